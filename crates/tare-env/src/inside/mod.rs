//! Running the host's commands inside a guest, for features that the host's kernel lacks (device
//! mapper, NVMe and its fabrics, 9p).
//!
//! Method: Tare boots the guest of `vm:qemu` or `vm:uml` (`machine`). Its root is the host's root
//! file system, read-only below an overlay in memory (`crate::guest`), so every tool of the host is
//! there and no image has to be built. `Guest::run` runs a command and returns its output and its
//! exit code. Tare's state directory and scratch files are on the guest's own disk, because direct
//! I/O and SQLite's log do not work well on 9p. Results are copied to a directory that is shared
//! with the host.
//!
//! `current_guest` returns whether a program runs in such a guest; `EnvironmentFactory` then adds
//! the accelerator to every environment's layers.
//!
//! Limits: no network but the loopback and, with `tap=NAME`, one card; changes to the root do not
//! reach the host; x86-64.

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
pub use options::{Card, CardModel, Options, OptionsError};

/// Why a guest or a command in it failed.
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
    #[error("cannot create the guest's disk")]
    Disk(#[source] ExecError),
    #[error("cannot use {}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot run {program:?} in the guest: {error}")]
    Refused { program: String, error: String },
    #[error("the guest ended while {program:?} ran in it: {console}")]
    Gone { program: String, console: String, source: io::Error },
    #[error("{program:?} did not end in the guest within {} s", .limit.as_secs())]
    TimedOut { program: String, limit: Duration },
    #[error("cannot print the output of {program:?}")]
    Print { program: String, source: io::Error },
}

/// Checks that a guest can start: for root, for programs and kernel, and that a user-mode kernel
/// boots on this host. `state` is the state directory, which holds the journal of the trial boot.
///
/// # Errors
/// Names what is missing, and how to get it.
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

/// Checks that this host has the programs and the kernel of a guest.
///
/// # Errors
/// Names what is missing, and how to get it.
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
