//! NVMe over fabrics: a target of the kernel's own (nvmet), the initiator that connects to it or to
//! another host's, and soft-RoCE where there is no RDMA hardware.
//!
//! Method: the target is made in configfs, the initiator by one write to `/dev/nvme-fabrics`, as nvme-cli
//! and nvmetcli do; nothing but the kernel and, for soft-RoCE, iproute2 is needed. A run's target and its
//! controllers are known by their names: the target's NQN and the host NQN that it connects with end
//! in `tare-RUN...`, so that both can be undone by the name alone, after `kill -9` as well.
//!
//! Limits: the kernel reconnects in its first network namespace, whatever namespace connected
//! (drivers/nvme/host/tcp.c), so that all this belongs in the host's own.

mod initiator;
pub mod soft_roce;
mod target;

use std::io;
use std::path::PathBuf;

pub use initiator::{Connect, Controller, controllers, namespace, wait_for_namespace};
pub(crate) use initiator::{disconnect, host_names};
pub use target::{Listen, Target};

use crate::module::{self, ModuleError};

/// What the NQNs of Tare begin with; the name follows. The domain is one that nobody can have (RFC
/// 2606), the date the first in which it was used so.
const NQN_PREFIX: &str = "nqn.2026-11.invalid.tare:";

/// The NVMe qualified name of something that a run names.
pub fn nqn(name: &str) -> String {
    format!("{NQN_PREFIX}{name}")
}

/// The name in an NQN of ours.
fn name_in(nqn: &str) -> Option<&str> {
    nqn.trim().strip_prefix(NQN_PREFIX)
}

/// What commands and data travel on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Rdma,
}

impl Transport {
    /// As the kernel writes it, here and in sysfs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
        }
    }

    /// What the initiator needs.
    pub fn initiator_modules(self) -> &'static [&'static str] {
        match self {
            Self::Tcp => &["nvme-tcp"],
            Self::Rdma => &["nvme-rdma"],
        }
    }

    /// What the target needs.
    pub fn target_modules(self) -> &'static [&'static str] {
        match self {
            Self::Tcp => &["nvmet", "nvmet-tcp"],
            Self::Rdma => &["nvmet", "nvmet-rdma"],
        }
    }
}

/// Those of some modules that this kernel does not have.
pub fn missing<'a>(modules: &[&'a str]) -> Vec<&'a str> {
    modules.iter().copied().filter(|name| !module::is_had(name)).collect()
}

/// Why there is no target or no connection to one, or why it cannot be removed.
#[derive(Debug, thiserror::Error)]
pub enum NvmeError {
    #[error(transparent)]
    Module(#[from] ModuleError),
    #[error("cannot reach the kernel's configfs")]
    Configfs(#[source] io::Error),
    #[error("the module nvmet is there, but not its tree in configfs")]
    NoTree,
    #[error("cannot make the NVMe target: writing {value:?} to {} failed", .path.display())]
    Set { path: PathBuf, value: String, source: io::Error },
    #[error("cannot make the NVMe target: {} cannot be made", .path.display())]
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
    #[error("the controller {controller} did not go within {limit_s} s")]
    Stays { controller: String, limit_s: u64 },
}
