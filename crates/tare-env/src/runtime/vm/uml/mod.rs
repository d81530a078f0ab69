//! User-mode Linux: the guest's kernel is a program of the host
//! (Documentation/virt/uml/user_mode_linux_howto_v2.rst).
//!
//! Method: each address space of the guest is a process of the host, which the kernel's process
//! traces (ptrace(2)): user code runs on the CPU itself, and every system call and page fault of it
//! stops it and wakes the kernel. The program runs in a PID namespace of its own, so that the host
//! ends the traced ones with it; left alone, they would go on with the host's system calls. Orders
//! go over a pair of sockets as its first serial line (`ssl0=fd:0`), what the system prints over
//! the second and the console over its standard error, both copied to files here: the drivers poll
//! their descriptors, which regular files do not allow.
//!
//! The guest's memory is a file in /dev/shm that is unlinked before the guest runs. Its clock is
//! the host's: while it is frozen, time goes on for it, as for a container.
//!
//! Limits: one CPU. Paths are given relative to the environment's directory, because the kernel
//! splits its command line at blanks and the paths of its disks at commas and colons.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
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
use crate::layer::network::TAP;
use crate::system::System;

pub(super) mod trial;

/// What starts it beside a shell, of util-linux.
pub(super) const STARTER: &str = "unshare";

/// Waits for the word to go, then starts the kernel: in its directory, without a core dump, in a
/// PID namespace that ends with it and with `unshare`.
const GATE: &str = "cd \"$1\" && first=$2 && shift 2 && ulimit -c 0 && read -r go && exec \
                    unshare --pid --fork --kill-child /bin/sh -c \"$first\" \"$0\" \"$@\"";

/// The first process of that namespace. It cannot be the kernel: one that panics ends itself by
/// SIGABRT, which the first process is free to ignore.
const FIRST: &str = "\"$0\" \"$@\"; exit $?";

/// Where the guest's memory lies: the kernel's own preference (arch/um/os-Linux/mem.c).
const MEMORY_FOLDER: &str = "/dev/shm";

/// Packets that wait in a queue of the network device. The driver's default (64) is half of this.
const QUEUE_DEPTH: u32 = 128;

/// How long SIGSTOP may take.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// The layer that says what runs the guest's instructions begins with this.
pub(crate) const ACCELERATOR: &str =
    "uml: a kernel in user mode, which intercepts every system call";

/// The network device behind the tap.
pub(super) fn network_word() -> String {
    format!("vec0:transport=tap,ifname={TAP},depth={QUEUE_DEPTH}")
}

/// A disk behind a file of the guest's directory, known by its serial number. No file to copy on
/// write stands between the two; `d` keeps the kernel from looking for the header of such a file,
/// `s` opens it O_SYNC.
pub(crate) fn disk_word(number: usize, file: &str, serial: &str, write_cache: bool) -> String {
    let flags = if write_cache { "d" } else { "ds" };
    format!("ubd{number}{flags}={file},,{serial}")
}

/// The kernel's command line, with words for what it has besides console and serial lines.
pub(crate) fn arguments(
    memory_bytes: u64,
    devices: impl IntoIterator<Item = String>,
) -> Vec<String> {
    let mut words = vec![
        format!("mem={}M", memory_bytes >> 20),
        "initrd=initramfs".into(),
        "rdinit=/tare".into(),
        // Left out, these two would be added after the words for the program.
        "root=/dev/ram0".into(),
        "console=tty0".into(),
        // Its pid and its management socket.
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

/// Why the guest's memory cannot be had, if so.
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
        true => fail(format!("it has {free_bytes} bytes free, the guest gets {memory_bytes}")),
        false => Ok(()),
    }
}

/// A kernel that is about to start.
pub(crate) struct Started {
    /// `unshare`, which ends with the kernel, and the kernel with it.
    pub(crate) monitor: Monitor,
    guest: UnixStream,
}

impl Started {
    /// Starts it up to the gate.
    pub(crate) fn at_gate(
        command: Command,
        words: &[String],
        files: &Files,
    ) -> Result<Self, VmError> {
        let here = files.folder().to_path_buf();
        let fail = |source| VmError::File { path: here.clone(), source };
        let (guest, orders) = UnixStream::pair().map_err(fail)?;
        let log = copied(&files.log())?;
        let console = copied(&files.console())?;
        let command = command.arg(&here).arg(FIRST).args(words).variable("TMPDIR", MEMORY_FOLDER);
        let ends = [orders, log, console].map(|end| OwnedFd::from(end).into());
        let [orders, log, console] = ends;
        let child = command.spawn(orders, log, console).map_err(VmError::Start)?;
        Ok(Self { monitor: Monitor::new(child), guest })
    }

    /// Opens the gate. Returns the monitor, the conversation, and the kernel's process.
    pub(crate) fn go(mut self, deadline: Instant) -> Result<(Monitor, Lines, u32), VmError> {
        let fail = |source| VmError::File { path: USER_MODE_PROGRAM.into(), source };
        io::Write::write_all(&mut self.guest, b"go\n").map_err(fail)?;
        let lines = Lines::over(self.guest).map_err(fail)?;
        let unshare = self.monitor.pid();
        loop {
            // After `unshare` and the first process of its namespace.
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

/// The command in whose place the kernel comes; its words follow. It has a process group of its
/// own: a kernel that panics ends its whole group.
pub(crate) fn command(program: &Path) -> Command {
    Command::new("/bin/sh").args(["-c", GATE]).arg(program).own_group()
}

/// A descriptor that can be polled; what is written to it is copied to a file until all of the
/// other ends are closed.
fn copied(path: &Path) -> Result<UnixStream, VmError> {
    let fail = |source| VmError::File { path: path.into(), source };
    let mut file = File::create(path).map_err(fail)?;
    let (mut here, there) = UnixStream::pair().map_err(fail)?;
    let copy = move || {
        // What cannot be written is only what an error would show.
        let _ = io::copy(&mut here, &mut file);
    };
    thread::Builder::new().name("uml-output".into()).spawn(copy).map_err(fail)?;
    Ok(there)
}

/// Processes of the guest: those that its kernel traces.
pub(super) fn traced(system: &System) -> Vec<u32> {
    let kernel = system.pid.to_string();
    let ours = |pid: &u32| process::status_field(*pid, "TracerPid").as_deref() == Some(&kernel);
    system.pids().into_iter().filter(ours).collect()
}

/// Whether the kernel opened the image of its disk so that each write waits for the host's disk
/// (O_SYNC, in the octal flags of proc_pid_fdinfo(5)). `None`: it has not opened it.
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

/// Whether the kernel's process runs.
pub(super) fn status(system: &System) -> String {
    match process::status_field(system.pid, "State") {
        Some(state) if state.starts_with(['R', 'S', 'D']) => "running".into(),
        Some(state) => state,
        None => "gone".into(),
    }
}

/// Stops the guest: by the freezer, else by stopping its kernel. A SIGSTOP to a traced process
/// would be the kernel's to handle, and it knows none; but a SIGALRM is its clock's, and stops it
/// as well.
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

/// Lets it go on.
pub(super) fn thaw(system: &System) -> Result<(), PartError> {
    match system.can_freeze() {
        true => system.thaw(),
        false => Ok(process::resume(&[system.pid])?),
    }
}
