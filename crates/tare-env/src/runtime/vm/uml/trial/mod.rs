//! The trial boot that decides whether a user-mode kernel runs on this host.
//!
//! Why: user-mode Linux before 6.13 keeps the floating-point registers of a process in a buffer
//! whose size is fixed at build time. If the CPU's state is larger (with AMX, for example),
//! PTRACE_SETREGSET fails with EFAULT, and the first process of the guest dies. From Linux 6.13 on
//! the kernel reads the size from the host (commit 3f17fed21491, "um: switch to regset API and
//! depend on XSTATE"). A CPU flag does not decide it: distributions carry patches, and other causes
//! keep a guest from booting too.
//!
//! Method: the kernel boots under a time limit with a first process of two system calls (`init`),
//! which prints a line and powers off. The processes and the directory of the boot are in their own
//! journal, so `tare clean` removes what a killed harness leaves. An outcome that depends only on
//! the kernel and the CPU (it boots, or it cannot set the registers) is cached (`outcome_cache`)
//! for this kernel file, CPU and kernel of the host. After any other outcome the next run tries
//! again.

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
use crate::outcome_cache;
use crate::runtime::vm::VmError;
use crate::runtime::vm::initramfs;
use crate::runtime::vm::kernel::Kernel;
use crate::runtime::vm::monitor::Monitor;
use crate::runtime::vm::qemu::Files;
use crate::unavailable::Unavailable;

mod init;
#[cfg(test)]
mod tests;

/// How long a boot may take. A guest without devices takes less than a second on an idle host.
const LIMIT: Duration = Duration::from_secs(10);

/// The memory of the guest: enough for the kernel of a distribution.
const MEMORY_BYTES: u64 = 64 << 20;

/// The message of the kernel when the host refuses the registers of a process
/// (arch/um/os-Linux/skas/process.c).
const REGISTERS_REFUSED: &str = "ptrace set fp regs failed";

/// The first words of a panic (kernel/panic.c).
const PANIC: &str = "Kernel panic";

/// The file of outcomes in the cache.
const CACHE_FILE: &str = "user-mode.json";

/// The highest number of cached outcomes.
const CACHED_MAX: usize = 16;

/// A user-mode kernel that does not boot on this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vm:uml cannot run here: {} (Linux {release}) {reason}; {}", .kernel.display(), .reason.remedy())]
pub struct NoBoot {
    pub kernel: PathBuf,
    /// The release that the kernel reports, such as `6.1.176`.
    pub release: String,
    pub reason: Reason,
}

/// Why a user-mode kernel does not boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The CPU's register state is larger than the kernel's buffer for it.
    RegisterState { cpu: String },
    /// The kernel ended early. `last_line` is its last line.
    Ended { last_line: String },
    /// The guest did not come up in time.
    TimedOut { limit: Duration },
}

impl Reason {
    /// Returns what the user can do about it.
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
                    "cannot set the registers of this CPU ({cpu}), which has more than the kernel supports"
                )
            }
            Self::Ended { last_line } if last_line.is_empty() => {
                write!(f, "ends without a message")
            }
            Self::Ended { last_line } => write!(f, "ends before its guest is up: {last_line}"),
            Self::TimedOut { limit } => {
                write!(f, "does not boot a guest within {} s", limit.as_secs())
            }
        }
    }
}

impl NoBoot {
    /// Returns the kernel and the reason, without the remedy.
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

/// A cached outcome, and the kernel and host that it holds for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CachedBoot {
    kernel: PathBuf,
    bytes: u64,
    modified_ns: u64,
    /// Model and flags of the CPU.
    cpu: String,
    /// Release of the host's kernel, which decides which part of the CPU's state is in use.
    host: String,
    /// Whether the kernel boots. It cannot set the registers otherwise.
    boots: bool,
}

impl CachedBoot {
    /// Returns the key of this kernel on this host, with no outcome yet.
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

/// Returns a field of the first CPU in /proc/cpuinfo.
fn cpu_field(name: &str) -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |line: &str| {
        Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim().to_string())
    };
    text.lines().find_map(value).unwrap_or_default()
}

fn cached(cache: &Path) -> Vec<CachedBoot> {
    outcome_cache::read(cache, CACHE_FILE).unwrap_or_default()
}

/// Checks that a kernel boots on this host, by the cached outcome or by a trial boot, whose journal
/// and files are in the state directory. A trial needs root; without root a kernel without a cached
/// outcome passes.
pub(crate) fn check(kernel: &Kernel, state: &Path) -> Result<(), NoBoot> {
    check_within(kernel, state, Path::new(outcome_cache::FOLDER), LIMIT)
}

fn check_within(
    kernel: &Kernel,
    state: &Path,
    cache: &Path,
    limit: Duration,
) -> Result<(), NoBoot> {
    let no_boot =
        |reason| NoBoot { kernel: kernel.image.clone(), release: kernel.release.clone(), reason };
    let refused = || no_boot(Reason::RegisterState { cpu: cpu_field("model name") });
    let Ok(mut case) = CachedBoot::case(&kernel.image) else { return Ok(()) };
    if let Some(known) = cached(cache).into_iter().find(|known| known.same_case(&case)) {
        return if known.boots { Ok(()) } else { Err(refused()) };
    }
    // A memory directory that is full or noexec fails with its own error when the guest starts.
    if !rustix::process::geteuid().is_root() || super::check_memory(MEMORY_BYTES).is_err() {
        return Ok(());
    }
    match boot(kernel, state, limit) {
        Ok(Outcome::Boots) => {
            case.boots = true;
            add_to_cache(cache, case);
            Ok(())
        }
        Ok(Outcome::Fails(Reason::RegisterState { .. })) => {
            add_to_cache(cache, case);
            Err(refused())
        }
        Ok(Outcome::Fails(reason)) => Err(no_boot(reason)),
        // If the trial cannot run, the start of the guest reports the cause.
        Err(_) => Ok(()),
    }
}

/// Adds an outcome to the cache.
fn add_to_cache(cache: &Path, case: CachedBoot) {
    let mut all = cached(cache);
    all.retain(|known| known.kernel != case.kernel);
    all.push(case);
    all.drain(..all.len().saturating_sub(CACHED_MAX));
    outcome_cache::write(cache, CACHE_FILE, &all);
}

/// Boots a guest that ends at once, and removes everything that the boot created.
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
    // Spawning drops the command and with it this process's copy of the console's other end.
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

/// Reads the console until it decides the outcome; returns `None` at the deadline.
fn listen(mut console: UnixStream, deadline: Instant) -> io::Result<Option<Outcome>> {
    let mut output = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        console.set_read_timeout(Some(left))?;
        let ended = match console.read(&mut piece) {
            Ok(count) => {
                output.extend_from_slice(&piece[..count]);
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
            // The kernel died with unread input.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => true,
            Err(error) => return Err(error),
        };
        if let Some(outcome) = judge(&String::from_utf8_lossy(&output), ended) {
            return Ok(Some(outcome));
        }
    }
}

/// Returns the outcome that the console output decides, or `None` if it is still open. A kernel
/// that panics may hang afterwards, so the panic message itself decides.
fn judge(output: &str, ended: bool) -> Option<Outcome> {
    let whole = |text: &str| output.lines().find(|line| line.contains(text)).map(str::trim);
    if output.contains(init::LINE) {
        return Some(Outcome::Boots);
    }
    if output.contains(REGISTERS_REFUSED) {
        return Some(Outcome::Fails(Reason::RegisterState { cpu: cpu_field("model name") }));
    }
    let complete = output.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let panic = if ended || complete.contains(PANIC) { whole(PANIC) } else { None };
    let last = || output.lines().rfind(|line| !line.trim().is_empty()).map(str::trim);
    match (panic, ended) {
        (Some(line), _) => Some(Outcome::Fails(Reason::Ended { last_line: line.into() })),
        (None, true) => {
            Some(Outcome::Fails(Reason::Ended { last_line: last().unwrap_or_default().into() }))
        }
        (None, false) => None,
    }
}
