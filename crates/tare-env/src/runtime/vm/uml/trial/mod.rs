//! Whether a user-mode kernel boots on this host, found out by a boot.
//!
//! Why: user-mode Linux before 6.13 keeps the floating-point registers of a process in a buffer
//! whose size was fixed when the kernel was built. Where the CPU's state is larger (with AMX, for
//! one), PTRACE_SETREGSET refuses it with EFAULT, and the first process of the guest dies. From
//! Linux 6.13 on the kernel asks the host for the size (commit 3f17fed21491, "um: switch to regset
//! API and depend on XSTATE"). A CPU flag does not tell: distributions carry patches, and other
//! things keep a guest from booting too.
//!
//! Method: the kernel boots with a first process of two system calls (`init`), which prints a line
//! and powers off, below a time limit. The processes and the directory of the boot are in a journal
//! of its own, so `tare clean` removes what a killed harness leaves. An outcome that only the
//! kernel and the CPU decide (it boots, or it cannot set the registers) is kept in the state
//! directory for this kernel file, CPU and kernel of the host; any other is tried again the next
//! time.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tare_host::RUN_VARIABLE;
use tare_host::journal::{Entry, Journal};

use super::{FIRST, MEMORY_FOLDER};
use crate::runtime::vm::VmError;
use crate::runtime::vm::initramfs;
use crate::runtime::vm::kernel::Kernel;
use crate::runtime::vm::monitor::Monitor;
use crate::runtime::vm::qemu::Files;
use crate::unavailable::Unavailable;

mod init;
#[cfg(test)]
mod tests;

/// A guest without devices is up and off within a second on an idle host.
const LIMIT: Duration = Duration::from_secs(10);

/// Enough for the kernel of a distribution.
const MEMORY_BYTES: u64 = 64 << 20;

/// What the kernel prints when the host refuses the registers of a process
/// (arch/um/os-Linux/skas/process.c).
const REGISTERS_REFUSED: &str = "ptrace set fp regs failed";

/// What a kernel that gives up prints first (kernel/panic.c).
const PANIC: &str = "Kernel panic";

/// Outcomes that are kept at most.
const KEPT: usize = 16;

/// A user-mode kernel that does not boot on this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vm:uml cannot run here: {} (Linux {release}) {reason}; {}", .kernel.display(), .reason.remedy())]
pub struct NoBoot {
    pub kernel: PathBuf,
    /// What the kernel says it is, such as `6.1.176`.
    pub release: String,
    pub reason: Reason,
}

/// Why a user-mode kernel does not boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The CPU's register state is larger than the kernel's buffer for it.
    RegisterState { cpu: String },
    /// The kernel ended. `said` is its last line.
    Ended { said: String },
    /// The guest was not up in time.
    TimedOut { limit: Duration },
}

impl Reason {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::RegisterState { .. } => {
                "name a newer user-mode kernel, of Linux 6.13 or later, by kernel = \"PATH\" \
                 (--inside vm:uml,kernel=PATH)"
            }
            Self::Ended { .. } | Self::TimedOut { .. } => {
                "name another user-mode kernel by kernel = \"PATH\" (--inside vm:uml,kernel=PATH), \
                 or try again on an idle host"
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RegisterState { cpu } => {
                write!(
                    f,
                    "cannot set the registers of this CPU ({cpu}), which has more than it knows"
                )
            }
            Self::Ended { said } if said.is_empty() => write!(f, "ends without a word"),
            Self::Ended { said } => write!(f, "ends before its guest is up: {said}"),
            Self::TimedOut { limit } => {
                write!(f, "does not boot a guest within {} s", limit.as_secs())
            }
        }
    }
}

impl NoBoot {
    /// The kernel and the reason, without the remedy.
    pub fn why(&self) -> String {
        format!("{} (Linux {}) {}", self.kernel.display(), self.release, self.reason)
    }
}

impl From<NoBoot> for Unavailable {
    fn from(found: NoBoot) -> Self {
        let (why, remedy) = (found.why(), found.reason.remedy().into());
        Self { what: "vm:uml".into(), why, remedy }
    }
}

/// How a boot ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Boots,
    Fails(Reason),
}

/// An outcome that is kept, and for what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CachedBoot {
    kernel: PathBuf,
    bytes: u64,
    modified_ns: u64,
    /// Model and flags of the CPU.
    cpu: String,
    /// Release of the host's kernel, which decides what of the CPU's state is in use.
    host: String,
    /// Otherwise the kernel cannot set the registers.
    boots: bool,
}

impl CachedBoot {
    /// The case of this kernel on this host.
    fn case(kernel: &Path) -> io::Result<Self> {
        let kernel = fs::canonicalize(kernel)?;
        let data = fs::metadata(&kernel)?;
        let modified = data.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let cpu = format!("{}; {}", cpu_field("model name"), cpu_field("flags"));
        let host = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Self {
            kernel,
            bytes: data.len(),
            modified_ns: u64::try_from(modified.as_nanos()).unwrap_or(u64::MAX),
            cpu,
            host: host.trim().into(),
            boots: false,
        })
    }

    fn same_case(&self, other: &Self) -> bool {
        Self { boots: other.boots, ..self.clone() } == *other
    }
}

/// A field of the first CPU in /proc/cpuinfo.
fn cpu_field(name: &str) -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |line: &str| {
        Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim().to_string())
    };
    text.lines().find_map(value).unwrap_or_default()
}

/// Where outcomes are kept.
fn path(state: &Path) -> PathBuf {
    state.join("user-mode.json")
}

fn all_known(state: &Path) -> Vec<CachedBoot> {
    let text = fs::read_to_string(path(state)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Checks that a kernel boots here: from what is known in the state directory, else by a boot,
/// which needs root. Without root nothing is tried, and a kernel of which nothing is known passes.
pub(crate) fn check(kernel: &Kernel, state: &Path) -> Result<(), NoBoot> {
    check_within(kernel, state, LIMIT)
}

fn check_within(kernel: &Kernel, state: &Path, limit: Duration) -> Result<(), NoBoot> {
    let no_boot =
        |reason| NoBoot { kernel: kernel.image.clone(), release: kernel.release.clone(), reason };
    let refused = || no_boot(Reason::RegisterState { cpu: cpu_field("model name") });
    let Ok(mut case) = CachedBoot::case(&kernel.image) else { return Ok(()) };
    if let Some(known) = all_known(state).into_iter().find(|known| known.same_case(&case)) {
        return if known.boots { Ok(()) } else { Err(refused()) };
    }
    // A memory folder that is full or noexec has its own error when the guest starts.
    if !rustix::process::geteuid().is_root() || super::check_memory(MEMORY_BYTES).is_err() {
        return Ok(());
    }
    match boot(kernel, state, limit) {
        Ok(Outcome::Boots) => {
            case.boots = true;
            keep(state, case);
            Ok(())
        }
        Ok(Outcome::Fails(Reason::RegisterState { .. })) => {
            keep(state, case);
            Err(refused())
        }
        Ok(Outcome::Fails(reason)) => Err(no_boot(reason)),
        // Without a place to try it, the start of the guest says what is wrong.
        Err(_) => Ok(()),
    }
}

/// Keeps an outcome. Should that fail, the next run tries again.
fn keep(state: &Path, case: CachedBoot) {
    let mut all = all_known(state);
    all.retain(|known| known.kernel != case.kernel);
    all.push(case);
    all.drain(..all.len().saturating_sub(KEPT));
    let Ok(text) = serde_json::to_string(&all) else { return };
    let new = state.join(format!("user-mode.json.{}", std::process::id()));
    let written = fs::write(&new, text + "\n").and_then(|()| fs::rename(&new, path(state)));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
}

/// Boots a guest that ends at once. Nothing of it is left afterwards.
fn boot(kernel: &Kernel, state: &Path, limit: Duration) -> Result<Outcome, VmError> {
    let fail = |source| VmError::File { path: state.into(), source };
    let journal = Journal::create(state, &[]).map_err(|error| fail(io::Error::other(error)))?;
    let booted = boot_in(kernel, state, &journal, limit);
    journal.close();
    booted
}

fn boot_in(
    kernel: &Kernel,
    state: &Path,
    journal: &Journal,
    limit: Duration,
) -> Result<Outcome, VmError> {
    let fail = |source| VmError::File { path: state.into(), source };
    let folder = fs::canonicalize(state).map_err(fail)?.join(journal.prefix());
    let entries = vec![Entry::processes(), Entry::directory(folder.clone())];
    journal.write(entries).map_err(|error| fail(io::Error::other(error)))?;
    fs::create_dir(&folder).map_err(fail)?;
    let program = folder.join("init");
    fs::write(&program, init::program()).map_err(fail)?;
    let contents = initramfs::Contents {
        program: &program,
        files: &[],
        modules: &[],
        boot: &[],
        bundle: None,
    };
    initramfs::write(&Files::new(&folder).initramfs(), &contents).map_err(fail)?;

    let (mut gate, orders) = UnixStream::pair().map_err(fail)?;
    let (console, theirs) = UnixStream::pair().map_err(fail)?;
    let log = theirs.try_clone().map_err(fail)?;
    let [orders, log, theirs] = [orders, log, theirs].map(|end| OwnedFd::from(end).into());
    let command = super::command(&kernel.image)
        .arg(&folder)
        .arg(FIRST)
        .args(super::arguments(MEMORY_BYTES, []))
        .variable("TMPDIR", MEMORY_FOLDER)
        .variable(RUN_VARIABLE, journal.run());
    let deadline = Instant::now() + limit;
    // This drops the command, and with it the other end of the console on this side.
    let child = command.spawn(orders, log, theirs).map_err(VmError::Start)?;
    let mut monitor = Monitor::new(child);
    gate.write_all(b"go\n").map_err(fail)?;
    let ended = listen(console, deadline).map_err(fail);
    monitor.kill()?;
    Ok(match ended? {
        Some(outcome) => outcome,
        None => Outcome::Fails(Reason::TimedOut { limit }),
    })
}

/// Reads the console until it decides the outcome. `None`: it did not until the deadline.
fn listen(mut console: UnixStream, deadline: Instant) -> io::Result<Option<Outcome>> {
    let mut said = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        console.set_read_timeout(Some(left))?;
        let ended = match console.read(&mut piece) {
            Ok(count) => {
                said.extend_from_slice(&piece[..count]);
                count == 0
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            // The kernel died with something unread of what was sent to it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => true,
            Err(error) => return Err(error),
        };
        if let Some(outcome) = judge(&String::from_utf8_lossy(&said), ended) {
            return Ok(Some(outcome));
        }
    }
}

/// What a console says so far. A kernel that panics may hang afterwards.
fn judge(said: &str, ended: bool) -> Option<Outcome> {
    let whole = |text: &str| said.lines().find(|line| line.contains(text)).map(str::trim);
    if said.contains(init::LINE) {
        return Some(Outcome::Boots);
    }
    if said.contains(REGISTERS_REFUSED) {
        return Some(Outcome::Fails(Reason::RegisterState { cpu: cpu_field("model name") }));
    }
    let complete = said.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let panic = if ended || complete.contains(PANIC) { whole(PANIC) } else { None };
    let last = || said.lines().rfind(|line| !line.trim().is_empty()).map(str::trim);
    match (panic, ended) {
        (Some(line), _) => Some(Outcome::Fails(Reason::Ended { said: line.into() })),
        (None, true) => {
            Some(Outcome::Fails(Reason::Ended { said: last().unwrap_or_default().into() }))
        }
        (None, false) => None,
    }
}
