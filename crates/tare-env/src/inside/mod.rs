//! Running what the host runs, inside a guest of ours: for what the host's own kernel lacks (device
//! mapper, NVMe and its fabrics, 9p).
//!
//! Method: the guest of `vm:qemu` or `vm:uml` is booted (`machine`), with the host's root file
//! system as its own, read-only below an overlay in memory (`crate::guest`), so that every tool of
//! the host is there and no image has to be built. Any command can then be run in it
//! (`Guest::run`), with what it prints and how it ends. A disk of its own carries Tare's state
//! directory and scratch files, since neither direct I/O nor SQLite's log are at home on 9p. What
//! is to come back is put into a directory that is shared with the host.
//!
//! A program finds out by `here` that it runs in such a guest; `EnvironmentFactory` then says so in
//! every environment's layers.
//!
//! Limits: no network but the loopback; nothing of what a command changes on the root reaches the
//! host; x86-64.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_host::exec::{self, ExecError};
use tare_host::journal::JournalError;

use crate::runtime::vm::{self, KernelError, MonitorKind, QmpError, VmError};
use crate::unavailable::Unavailable;

mod environment;
mod guest;
mod machine;
mod monitor;
mod options;

pub(crate) use crate::guest::info::SCRATCH;
pub use crate::guest::info::{DISK, GuestInfo, RESULTS, current_guest};
pub(crate) use environment::GuestEnvironment;
pub use guest::{Command, Guest, Status};
pub use options::{Options, OptionsError};

/// Why nothing could be run inside a guest.
#[derive(Debug, thiserror::Error)]
pub enum InsideError {
    #[error("a guest needs root: it gets the host's root file system; run with sudo")]
    NoRoot,
    #[error(transparent)]
    Needs(#[from] Unavailable),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Vm(#[from] VmError),
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error("cannot list the modules of the guest's kernel for modprobe")]
    Depmod(#[source] ExecError),
    #[error("cannot lay the guest's disk")]
    Disk(#[source] ExecError),
    #[error("cannot use {}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot run {program:?} in the guest: {error}")]
    Refused { program: String, error: String },
    #[error("the guest is gone while {program:?} ran in it: {console}")]
    Gone { program: String, console: String, source: io::Error },
    #[error("{program:?} did not end in the guest within {} s", .limit.as_secs())]
    TimedOut { program: String, limit: Duration },
    #[error("cannot pass on what {program:?} printed")]
    Print { program: String, source: io::Error },
}

/// Checks that such a guest can be started: root, what it needs, and that a user-mode kernel boots
/// on this host. `state` is the state directory, where the outcome of that is kept.
///
/// # Errors
/// What is missing, and how to get it.
pub fn check(options: &Options, state: &Path) -> Result<(), InsideError> {
    if !rustix::process::geteuid().is_root() {
        return Err(InsideError::NoRoot);
    }
    needs(options)?;
    if options.monitor == MonitorKind::Uml {
        vm::check_user_mode(options.kernel.as_deref(), state)?;
    }
    Ok(())
}

/// Whether such a guest can be had on this host.
///
/// # Errors
/// What is missing, and how to get it.
pub fn needs(options: &Options) -> Result<(), Unavailable> {
    vm::needs(Some(options.monitor.word()))?;
    for program in ["depmod", "modprobe"] {
        if exec::find(program).is_none() && !Path::new("/sbin").join(program).exists() {
            return Err(Unavailable {
                what: "a guest with the host's root".into(),
                why: format!("there is no program {program} for its kernel's modules"),
                remedy: "apt-get install kmod".into(),
            });
        }
    }
    Ok(())
}
