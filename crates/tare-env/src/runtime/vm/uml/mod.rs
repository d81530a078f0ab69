//! User-mode Linux: the guest's kernel is a program of the host
//! (Documentation/virt/uml/user_mode_linux_howto_v2.rst).
//!
//! Method: each address space of the guest is a process of the host, which the kernel's process
//! traces (ptrace(2)). User code runs directly on the CPU; each system call and page fault stops it
//! and wakes the kernel. The program runs in its own PID namespace, so the host ends the traced
//! processes with it; otherwise they would continue with the host's system calls. Orders use a
//! socket pair as the first serial line (`ssl0=fd:0`). The system's output uses the second line and
//! the console the standard error; a thread copies both to files, because the drivers poll their
//! descriptors and regular files cannot be polled.
//!
//! The guest's memory is a file in /dev/shm that is unlinked before the guest runs. Its clock is
//! the host's: time passes for a frozen guest, as for a container.
//!
//! Limits: one CPU. Paths are relative to the environment's directory, because the kernel splits
//! its command line at blanks and the paths of its disks at commas and colons.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::StatVfsMountFlags;
use rustix::process::Signal;
use tare_host::exec::Command;
use tare_host::process::{self, ProcessHandle};
use tare_lab::PartError;

use super::error::VmError;
use super::kernel::USER_MODE_PROGRAM;
use super::lines::Lines;
use super::monitor::Monitor;
use super::qemu::{DISK_FILE, Files};
use crate::guest::protocol::{LOG_PORT, ORDERS_PORT};
use crate::system::System;

pub(super) mod trial;

/// The program of util-linux that starts the kernel, in addition to a shell.
pub(super) const STARTER: &str = "unshare";

/// Waits for a line of input, then starts the kernel in its directory, without a core dump, and in
/// a PID namespace that ends with it and with `unshare`.
const GATE: &str = "cd \"$1\" && first=$2 && shift 2 && ulimit -c 0 && read -r go && exec \
                    unshare --pid --fork --kill-child /bin/sh -c \"$first\" \"$0\" \"$@\"";

/// The first process of that namespace. It cannot be the kernel: a panic ends the kernel by
/// SIGABRT, which the first process of a namespace ignores.
const FIRST: &str = "\"$0\" \"$@\"; exit $?";

/// The directory of the guest's memory: the kernel's own preference (arch/um/os-Linux/mem.c).
const MEMORY_FOLDER: &str = "/dev/shm";

/// The queue depth of the network device, in packets. The driver's default is 64.
const QUEUE_DEPTH: u32 = 128;

/// How long SIGSTOP may take.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// The start of the accelerator layer's value.
pub(crate) const ACCELERATOR: &str =
    "uml: a kernel in user mode, which intercepts every system call";

/// Returns the argument for the network device behind the tap.
pub(super) fn network_word(tap: &str) -> String {
    format!("vec0:transport=tap,ifname={tap},depth={QUEUE_DEPTH}")
}

/// Returns the argument for a disk behind a file of the guest's directory, with a serial number.
/// `d` keeps the kernel from looking for a copy-on-write header in the file, `s` opens it O_SYNC.
pub(crate) fn disk_word(number: usize, file: &str, serial: &str, write_cache: bool) -> String {
    let flags = if write_cache { "d" } else { "ds" };
    format!("ubd{number}{flags}={file},,{serial}")
}

/// Returns the kernel's command line, with these arguments for devices other than console and
/// serial lines.
pub(crate) fn arguments(
    memory_bytes: u64,
    devices: impl IntoIterator<Item = String>,
) -> Vec<String> {
    let mut words = vec![
        format!("mem={}M", memory_bytes >> 20),
        "initrd=initramfs".into(),
        "rdinit=/tare".into(),
        // Otherwise the kernel would add these two after the program's arguments.
        "root=/dev/ram0".into(),
        "console=tty0".into(),
        // The directory of its pid file and management socket.
        "uml_dir=./".into(),
        "umid=uml".into(),
        "con=null".into(),
        "con0=fd:2".into(),
        "ssl=null".into(),
        "ssl0=fd:0".into(),
        "ssl1=fd:1".into(),
        format!("{ORDERS_PORT}=/dev/ttyS0"),
        format!("{LOG_PORT}=/dev/ttyS1"),
        "quiet".into(),
    ];
    words.extend(devices);
    words.extend(["--", "guest"].map(String::from));
    words
}

/// Checks that the host can hold the guest's memory.
pub(crate) fn check_memory(memory_bytes: u64) -> Result<(), VmError> {
    let fail = |why: String| Err(VmError::Memory { folder: MEMORY_FOLDER, why });
    let found = match rustix::fs::statvfs(MEMORY_FOLDER) {
        Ok(found) => found,
        Err(error) => return fail(io::Error::from(error).to_string()),
    };
    if found.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return fail("it is mounted noexec".into());
    }
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    match free_bytes < memory_bytes {
        true => fail(format!("it has {free_bytes} bytes free, the guest needs {memory_bytes}")),
        false => Ok(()),
    }
}

/// A kernel that waits at its gate.
pub(crate) struct Started {
    /// The process of `unshare`. It and the kernel end together.
    pub(crate) monitor: Monitor,
    guest: UnixStream,
}

impl Started {
    /// Starts the shell, which waits at the gate.
    pub(crate) fn at_gate(
        command: Command,
        words: &[String],
        files: &Files,
    ) -> Result<Self, VmError> {
        let here = files.folder().to_path_buf();
        let fail = |source| VmError::File { path: here.clone(), source };
        let (guest, orders) = UnixStream::pair().map_err(fail)?;
        let (log, log_thread) = copied(&files.log())?;
        let (console, console_thread) = copied(&files.console())?;
        let command = command.arg(&here).arg(FIRST).args(words).variable("TMPDIR", MEMORY_FOLDER);
        let ends = [orders, log, console].map(|end| OwnedFd::from(end).into());
        let [orders, log, console] = ends;
        let child = command.spawn(orders, log, console).map_err(VmError::Start)?;
        let monitor = Monitor::new(child).copied_by(vec![log_thread, console_thread]);
        Ok(Self { monitor, guest })
    }

    /// Opens the gate. Returns the monitor, the connection, and the kernel's process.
    pub(crate) fn go(mut self, deadline: Instant) -> Result<(Monitor, Lines, u32), VmError> {
        let fail = |source| VmError::File { path: USER_MODE_PROGRAM.into(), source };
        io::Write::write_all(&mut self.guest, b"go\n").map_err(fail)?;
        let lines = Lines::over(self.guest).map_err(fail)?;
        let unshare = self.monitor.pid();
        loop {
            // The third process, after `unshare` and the first process of its namespace.
            if let Some(kernel) = process::tree(unshare).get(2) {
                return Ok((self.monitor, lines, *kernel));
            }
            if Instant::now() > deadline || !self.monitor.alive() {
                return Err(fail(io::ErrorKind::UnexpectedEof.into()));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Returns the command that starts the kernel; the kernel's arguments are appended to it. It has
/// its own process group, because a panic of the kernel ends its whole group.
pub(crate) fn command(program: &Path) -> Command {
    Command::new("/bin/sh").args(["-c", GATE]).arg(program).own_group()
}

/// Returns a descriptor that can be polled, and the thread that copies its input to a file until
/// all copies of the descriptor are closed.
fn copied(path: &Path) -> Result<(UnixStream, JoinHandle<()>), VmError> {
    let fail = |source| VmError::File { path: path.into(), source };
    let mut file = File::create(path).map_err(fail)?;
    let (mut here, there) = UnixStream::pair().map_err(fail)?;
    let copy = move || {
        // The file only serves error messages.
        let _ = io::copy(&mut here, &mut file);
    };
    let thread = thread::Builder::new().name("uml-output".into()).spawn(copy).map_err(fail)?;
    Ok((there, thread))
}

/// Returns the processes of the guest, which its kernel traces.
pub(super) fn traced(system: &System) -> Vec<u32> {
    let kernel = system.pid.to_string();
    let ours = |pid: &u32| process::status_field(*pid, "TracerPid").as_deref() == Some(&kernel);
    system.pids().into_iter().filter(ours).collect()
}

/// Returns whether the kernel opened the image of its disk with O_SYNC (in the octal flags of
/// proc_pid_fdinfo(5)), so that each write waits for the host's disk. `None` if it has not opened
/// the image.
pub(super) fn writes_through(system: &System) -> Option<bool> {
    const O_SYNC: u32 = 0o4_010_000;
    let folder = format!("/proc/{}", system.pid);
    let mut files = fs::read_dir(format!("{folder}/fd")).ok()?.flatten();
    let disk = files.find(|file| {
        let target = fs::read_link(file.path()).unwrap_or_default();
        target.file_name().is_some_and(|name| name == DISK_FILE)
    })?;
    let number = disk.file_name();
    let text = fs::read_to_string(format!("{folder}/fdinfo/{}", number.to_string_lossy())).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?.trim();
    u32::from_str_radix(flags, 8).ok().map(|flags| flags & O_SYNC == O_SYNC)
}

/// Returns `running`, or the state of the kernel's process.
pub(super) fn status(system: &System) -> String {
    match process::status_field(system.pid, "State") {
        Some(state) if state.starts_with(['R', 'S', 'D']) => "running".into(),
        Some(state) => state,
        None => "gone".into(),
    }
}

/// Stops the guest: by the freezer if there is one, else by stopping its kernel. A SIGSTOP to a
/// traced process would go to the kernel, which does not handle it. A SIGALRM, the kernel's clock
/// signal, stops the process too.
pub(super) fn freeze(system: &System) -> Result<(), PartError> {
    if system.can_freeze() {
        return system.freeze();
    }
    process::stop(&[system.pid], STOP_LIMIT)?;
    for hold in traced(system).into_iter().filter_map(ProcessHandle::open) {
        hold.signal(Signal::ALARM)?;
    }
    Ok(())
}

/// Resumes the guest.
pub(super) fn thaw(system: &System) -> Result<(), PartError> {
    match system.can_freeze() {
        true => system.thaw(),
        false => Ok(process::resume(&[system.pid])?),
    }
}
