//! The isolation layers: their types, and the one list of them.
//!
//! A study is parsed into these types once. A record keeps their text, which `Display` writes and
//! `FromStr` reads. [`Layer::ALL`] serves everything that goes through all layers: studies,
//! comparisons, explanations, findings, records, `tare list layers` and docs/reference/layers.md.

mod cgroup;
mod cpu;
mod host;
mod inject;
mod network;
mod rootfs;
mod runtime;
mod security;
#[cfg(test)]
mod tests;
mod text;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use cgroup::Cgroup;
pub use cpu::Cpu;
pub use host::Host;
pub use inject::{INJECTED_INSTRUCTIONS_MAX, Inject};
pub use network::Network;
pub use rootfs::Rootfs;
pub use runtime::Runtime;
pub use security::Security;
pub use text::BadLayerValue;

/// A layer: a part of the stack between the system and the bare host that a study can switch alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    Runtime,
    Network,
    Cpu,
    Security,
    Cgroup,
    Host,
    Storage,
    Vm,
    Sandbox,
    Rootfs,
    Inject,
    Limits,
}

impl Layer {
    /// Every layer, in the order in which they are named and explained.
    pub const ALL: [Self; 12] = [
        Self::Runtime,
        Self::Network,
        Self::Cpu,
        Self::Security,
        Self::Cgroup,
        Self::Host,
        Self::Storage,
        Self::Vm,
        Self::Sandbox,
        Self::Rootfs,
        Self::Inject,
        Self::Limits,
    ];

    /// Its key in a study, and its name everywhere else.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Network => "network",
            Self::Cpu => "cpu",
            Self::Security => "security",
            Self::Cgroup => "cgroup",
            Self::Host => "host",
            Self::Storage => "storage",
            Self::Vm => "vm",
            Self::Sandbox => "sandbox",
            Self::Rootfs => "rootfs",
            Self::Inject => "inject",
            Self::Limits => "limits",
        }
    }

    /// The layer of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.name() == name)
    }

    /// One line: what it is.
    pub const fn help(self) -> &'static str {
        match self {
            Self::Runtime => {
                "what runs the system: a plain process, a container runtime, an engine or a virtual machine"
            }
            Self::Network => "what lies between the client and the system",
            Self::Cpu => "which CPUs the system may run on, and how much of them",
            Self::Security => {
                "seccomp filter; capabilities are the engine's minimum under every value"
            }
            Self::Cgroup => "whether the system has a cgroup of its own in every hierarchy",
            Self::Host => "whether the host is tuned while the environment runs",
            Self::Storage => {
                "what the system's data lies on: NAME, or { kind = NAME, OPTION = VALUE }"
            }
            Self::Vm => "options of a virtual machine: { OPTION = VALUE }",
            Self::Sandbox => "options of gVisor: { OPTION = VALUE }",
            Self::Rootfs => {
                "root file system: the host's for a process; for a container read-only, with the static \
                 program bind-mounted, and none (the host's program in it) or a table { NAME = VALUE }"
            }
            Self::Inject => {
                "a known cost that is added, so that Tare itself can be tried (runtime = \"process\")"
            }
            Self::Limits => {
                "how much memory the environment may use: { memory = AMOUNT }, page cache included"
            }
        }
    }

    /// Its values with one line each. `quota=*` stands for `quota=` and something after it. A layer
    /// without values here takes those of its implementations: runtimes, kinds of storage, options.
    pub const fn values(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Runtime | Self::Storage | Self::Vm | Self::Sandbox => &[],
            Self::Network => Network::VALUES,
            Self::Cpu => Cpu::VALUES,
            Self::Security => Security::VALUES,
            Self::Cgroup => Cgroup::VALUES,
            Self::Host => Host::VALUES,
            Self::Rootfs => Rootfs::VALUES,
            Self::Inject => Inject::VALUES,
            Self::Limits => {
                &[("memory", "an amount such as 512M or 6G; no limit when it is left out")]
            }
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
