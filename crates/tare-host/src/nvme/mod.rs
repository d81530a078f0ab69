//! NVMe over fabrics: a target in this kernel (nvmet), the initiator that connects to it or to
//! another host's target, and soft-RoCE where there is no RDMA hardware.
//!
//! Method: the target is created in configfs and the controller by one write to
//! `/dev/nvme-fabrics`, like nvmetcli and nvme-cli do. This needs only the kernel and, for
//! soft-RoCE, iproute2. The NQN of a run's target and the host NQN of its controllers end in
//! `tare-RUN...`, so that names alone suffice to undo both, even after `kill -9`.
//!
//! Limits: the kernel reconnects in the initial network namespace regardless of the namespace that
//! connected (drivers/nvme/host/tcp.c), so all of this belongs in the host's own namespace.

mod initiator;
pub mod soft_roce;
mod target;

use std::io;
use std::path::PathBuf;

pub use initiator::{Connect, Controller, controllers, namespace, wait_for_namespace};
pub(crate) use initiator::{disconnect, host_names};
pub use target::{ListenAddress, Target};

use crate::module::{self, ModuleError};

/// The prefix of Tare's NQNs; the name follows. The domain cannot be registered (RFC 2606); the
/// date is the month of its first use here.
const NQN_PREFIX: &str = "nqn.2026-11.invalid.tare:";

/// Returns the NVMe qualified name for a name of a run.
pub fn nqn(name: &str) -> String {
    format!("{NQN_PREFIX}{name}")
}

/// Returns the name in an NQN of Tare; `None` for other NQNs.
fn name_in(nqn: &str) -> Option<&str> {
    nqn.trim().strip_prefix(NQN_PREFIX)
}

/// The transport of commands and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Rdma,
}

impl Transport {
    /// Returns the kernel's name of the transport, which is also the one in sysfs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
        }
    }

    /// Lists the kernel modules of the initiator.
    pub fn initiator_modules(self) -> &'static [&'static str] {
        match self {
            Self::Tcp => &["nvme-tcp"],
            Self::Rdma => &["nvme-rdma"],
        }
    }

    /// Lists the kernel modules of the target.
    pub fn target_modules(self) -> &'static [&'static str] {
        match self {
            Self::Tcp => &["nvmet", "nvmet-tcp"],
            Self::Rdma => &["nvmet", "nvmet-rdma"],
        }
    }
}

/// Returns those of `modules` that this kernel does not have.
pub fn missing<'a>(modules: &[&'a str]) -> Vec<&'a str> {
    modules.iter().copied().filter(|name| !module::is_available(name)).collect()
}

/// Why a target or a connection could not be created or removed.
#[derive(Debug, thiserror::Error)]
pub enum NvmeError {
    #[error(transparent)]
    Module(#[from] ModuleError),
    #[error("cannot reach the kernel's configfs")]
    Configfs(#[source] io::Error),
    #[error("the module nvmet is loaded, but its tree in configfs is missing")]
    NoTree,
    #[error("cannot create the NVMe target: writing {value:?} to {} failed", .path.display())]
    Set { path: PathBuf, value: String, source: io::Error },
    #[error("cannot create the NVMe target: {} cannot be created", .path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot remove the NVMe target: {} stays", .path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error(
        "there is a controller of {nqn} on this host already ({controller}); two would share one \
         device: disconnect it first (nvme disconnect)"
    )]
    Connected { nqn: String, controller: String },
    #[error(
        "cannot connect to {nqn} at {at}; the kernel's log (dmesg) says more. Is the target there, and \
         does it take any host?"
    )]
    Connect { nqn: String, at: String, source: io::Error },
    #[error("the kernel's answer to a connection names no controller: {said:?}")]
    Answer { said: String },
    #[error("namespace {id} of {nqn} did not appear as a block device within {limit_s} s")]
    NoNamespace { nqn: String, id: u32, limit_s: u64 },
    #[error("the kernel did not remove the controller {controller} within {limit_s} s")]
    Stays { controller: String, limit_s: u64 },
}
