"""Becomes another program, for which this kernel is as Linux 5.0.

usage: old_kernel.py PROGRAM ARGUMENTS... System calls from pidfd_send_signal (424) on fail with
ENOSYS, among them those of io_uring and of mounts in steps. All architectures number them alike.
"""
import ctypes
import os
import struct
import sys

FIRST_NEW = 424
LOAD, AT_LEAST, RETURN = 0x20, 0x35, 0x06
ENOSYS, ALLOW = 0x00050000 | 38, 0x7FFF0000
PR_SET_SECCOMP, MODE_FILTER = 22, 2


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]


STEPS = [(LOAD, 0, 0, 0), (AT_LEAST, 0, 1, FIRST_NEW), (RETURN, 0, 0, ENOSYS), (RETURN, 0, 0, ALLOW)]
text = b"".join(struct.pack("HBBI", *step) for step in STEPS)
buffer = ctypes.create_string_buffer(text, len(text))
program = Program(len(STEPS), ctypes.cast(buffer, ctypes.c_void_p))
if ctypes.CDLL(None).prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
    sys.exit("cannot set a filter of system calls")
os.execvp(sys.argv[1], sys.argv[1:])
