//! The isolation layers: their types, and the list of all layers.
//!
//! A study is parsed into these types once. A record stores their text, which `Display` writes and
//! `FromStr` reads. All code that iterates over layers uses [`Layer::ALL`]: studies, comparisons,
//! explanations, findings, records, `tare list layers` and docs/reference/layers.md.

mod cgroup;
mod confinement;
mod cpu;
mod host;
mod inject;
mod limits;
mod neighbour;
mod network;
mod rootfs;
mod runtime;
mod security;
mod sidecar;
#[cfg(test)]
mod tests;
mod text;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use cgroup::Cgroup;
pub use confinement::{Apparmor, Capabilities, Confinement, Pages, User};
pub use cpu::{Cpu, Quota, Request};
pub use host::Host;
pub use inject::{INJECTED_INSTRUCTIONS_MAX, Inject};
pub use limits::{HUGE_PAGE_BYTES, Limit, Limits};
pub(crate) use neighbour::text as neighbours_text;
pub use neighbour::{
    NEIGHBOUR_WORKERS_MAX, Neighbour, NeighbourKind, NoPlace, OtherSystem, Placement, RowsLoad,
};
pub use network::Network;
pub use rootfs::Rootfs;
pub use runtime::Runtime;
pub use security::Security;
pub use sidecar::Sidecar;
pub use text::BadLayerValue;

/// A layer: a part of the stack between the system and the bare host that a study can change
/// separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    Runtime,
    Network,
    Cpu,
    Security,
    #[serde(rename = "security.capabilities")]
    Capabilities,
    User,
    Apparmor,
    #[serde(rename = "memory.pages")]
    Pages,
    #[serde(rename = "memory.node")]
    Node,
    Cgroup,
    Host,
    Storage,
    Vm,
    Sandbox,
    Rootfs,
    System,
    Inject,
    Limits,
    Instances,
    Neighbours,
    Sidecar,
}

impl Layer {
    /// Every layer, in the order of lists and reports.
    pub const ALL: [Self; 21] = [
        Self::Runtime,
        Self::Network,
        Self::Cpu,
        Self::Security,
        Self::Capabilities,
        Self::User,
        Self::Apparmor,
        Self::Pages,
        Self::Node,
        Self::Cgroup,
        Self::Host,
        Self::Storage,
        Self::Vm,
        Self::Sandbox,
        Self::Rootfs,
        Self::System,
        Self::Inject,
        Self::Limits,
        Self::Instances,
        Self::Neighbours,
        Self::Sidecar,
    ];

    /// Returns the name, which is also the key in a study.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Network => "network",
            Self::Cpu => "cpu",
            Self::Security => "security",
            Self::Capabilities => "security.capabilities",
            Self::User => "user",
            Self::Apparmor => "apparmor",
            Self::Pages => "memory.pages",
            Self::Node => "memory.node",
            Self::Cgroup => "cgroup",
            Self::Host => "host",
            Self::Storage => "storage",
            Self::Vm => "vm",
            Self::Sandbox => "sandbox",
            Self::Rootfs => "rootfs",
            Self::System => "system",
            Self::Inject => "inject",
            Self::Limits => "limits",
            Self::Instances => "instances",
            Self::Neighbours => "neighbours",
            Self::Sidecar => "sidecar",
        }
    }

    /// Returns the layer with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.name() == name)
    }

    /// Returns a description on one line.
    pub const fn help(self) -> &'static str {
        match self {
            Self::Runtime => {
                "what runs the system: a plain process, a container runtime, an engine, a pod or a virtual machine"
            }
            Self::Network => "the path between the client and the system",
            Self::Cpu => "the CPUs of the system, and its share of them",
            Self::Security => {
                "seccomp filter; also written as seccomp in a table: security = { seccomp = VALUE }"
            }
            Self::Capabilities => {
                "the capabilities of the system (capabilities(7)), written as security.capabilities = VALUE \
                 or in a table with the filter: security = { seccomp = VALUE, capabilities = VALUE }"
            }
            Self::User => "the user namespace of the system (user_namespaces(7))",
            Self::Apparmor => "the AppArmor profile of the system, on a kernel that has AppArmor",
            Self::Pages => {
                "transparent huge pages. never and madvise are flags of the process (PR_SET_THP_DISABLE); \
                 always, and madvise where the kernel has no such flag (before Linux 6.18), is the host's \
                 setting, which Tare changes only while the environment runs"
            }
            Self::Node => {
                "the NUMA node to which the system's memory is bound, in place of those of its CPUs"
            }
            Self::Cgroup => "whether the system has its own cgroup in every hierarchy",
            Self::Host => "whether the host is tuned while the environment runs",
            Self::Storage => {
                "the storage of the system's data: NAME, or { kind = NAME, OPTION = VALUE }"
            }
            Self::Vm => "options of a virtual machine: { OPTION = VALUE }",
            Self::Sandbox => "options of gVisor: { OPTION = VALUE }",
            Self::Rootfs => {
                "root file system. A process uses the host's. A container's is read-only and contains the \
                 static program; none adds the host's program, a table { NAME = VALUE } another source"
            }
            Self::System => {
                "options of the system in this environment, in place of those of [system]: { OPTION = VALUE }"
            }
            Self::Inject => "a known injected cost, to test Tare itself (runtime = \"process\")",
            Self::Limits => {
                "limits and weights of resources: { KEY = AMOUNT }. Several instances divide a limit evenly; \
                 each has the whole weight"
            }
            Self::Instances => {
                "how many instances of the system run at once; CPUs, quota and limits are divided among them"
            }
            Self::Neighbours => {
                "other programs that run while the environment runs: names of [[neighbour]]; [] is none"
            }
            Self::Sidecar => "a second container in the pod of the system",
        }
    }

    /// Returns the values with one line of help each. `quota=*` means `quota=` followed by any
    /// text. A layer without values here takes those of its implementations: runtimes, kinds of
    /// storage, options.
    pub const fn values(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Runtime | Self::Storage | Self::Vm | Self::Sandbox => &[],
            Self::Network => Network::VALUES,
            Self::Cpu => Cpu::VALUES,
            Self::Security => Security::VALUES,
            Self::Capabilities => Capabilities::VALUES,
            Self::User => User::VALUES,
            Self::Apparmor => Apparmor::VALUES,
            Self::Pages => Pages::VALUES,
            Self::Node => Confinement::NODES,
            Self::Cgroup => Cgroup::VALUES,
            Self::Host => Host::VALUES,
            Self::Rootfs => Rootfs::VALUES,
            Self::System => {
                &[("*", "an option of the study's system (tare list systems), but not instances")]
            }
            Self::Inject => Inject::VALUES,
            Self::Limits => Limits::VALUES,
            Self::Sidecar => Sidecar::VALUES,
            Self::Neighbours => &[("[NAME, ...]", "the [[neighbour]] tables of these names")],
            Self::Instances => {
                &[("*", "a number, from 1; without it as many as [system] instances says")]
            }
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
