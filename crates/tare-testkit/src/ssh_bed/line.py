"""A line with a delay between two network devices, for kernels without netem.

usage: line.py DEVICE DEVICE MICROSECONDS. Creates both (tap), prints a line, and passes frames from
each to the other until standard input ends.
"""
import collections
import fcntl
import os
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP_NO_PI = 0x1002


def tap(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP_NO_PI))
    return device


def main():
    ends = [tap(sys.argv[1]), tap(sys.argv[2])]
    delay = int(sys.argv[3]) / 1e6
    print("ready", flush=True)
    waiting = {end: collections.deque() for end in ends}
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    while True:
        due = min((queue[0][0] for queue in waiting.values() if queue), default=None)
        limit = None if due is None else max(0.0, due - time.monotonic())
        readable, _, _ = select.select([0, *ends], [], [], limit)
        if 0 in readable and not os.read(0, 1):
            return
        for end in readable:
            if end:
                try:
                    frame = os.read(end, 65536)
                except OSError:  # The device is down.
                    continue
                waiting[other[end]].append((time.monotonic() + delay, frame))
        now = time.monotonic()
        for end, queue in waiting.items():
            while queue and queue[0][0] <= now:
                try:
                    os.write(end, queue.popleft()[1])
                except OSError:  # A frame is lost, as on a line.
                    pass


main()
