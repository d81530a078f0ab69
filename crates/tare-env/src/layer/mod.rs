//! How this crate provides the layers: what each needs, how it is read back and how it cleans up,
//! and which values go together. The list of layers and their types belong to the lab
//! (`tare_lab::layer`).

use tare_lab::layer::Layer;

// Written `layer::Cgroup`, because tare-host has a `Cgroup` too.
pub(crate) use tare_lab::layer::Cgroup;

pub(crate) mod checked;
pub mod host;
pub mod inject;
pub mod network;
#[cfg(test)]
mod reference;
pub mod rootfs;
pub mod security;

pub use checked::{LayerError, Layers};

/// How this crate provides a layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerInfo {
    pub layer: Layer,
    /// What it needs of the host.
    pub needs: &'static str,
    /// How it cleans up.
    pub cleanup: &'static str,
    /// How it is read back that it is in force.
    pub read_back: &'static str,
}

impl LayerInfo {
    /// How this crate provides the layer.
    pub const fn of(layer: Layer) -> Self {
        let (needs, cleanup, read_back) = match layer {
            Layer::Runtime => (
                "what tare list runtimes says of each",
                "each runtime names what it makes in the journal, and undoes it",
                "the process, its name and what the runtime or engine says of it",
            ),
            Layer::Network => (
                "iproute2, nftables; veth, bridge, nf_nat and nf_conntrack in the kernel",
                "its namespaces are removed, and with them links, bridge and nft table",
                "the inode of the network namespace of /proc/PID/ns/net",
            ),
            Layer::Cpu => (
                "the cpuset and cpu cgroup controllers where cgroup = \"own\"",
                "goes with the cgroup and the process",
                "Cpus_allowed_list of every thread; the cpuset in force; the quota's file",
            ),
            Layer::Security => (
                "CONFIG_SECCOMP_FILTER",
                "nothing to clean: the filter ends with the process",
                "the Seccomp line of /proc/PID/status",
            ),
            Layer::Cgroup => (
                "cgroup v1, hybrid or v2, writable",
                "its processes are killed and its directories removed",
                "/proc/PID/cgroup",
            ),
            Layer::Host => (
                "root, and a plan (tare tune prove makes it; tare weigh plans with the defaults)",
                "changes are put back as the environment is frozen; after kill -9 by tare clean",
                "each setting is read: as wanted where it is tuned, as found where it is not",
            ),
            Layer::Storage => (
                "what tare list storage says of each kind",
                "it is unmounted, and its devices and files are removed, through the journal",
                "the mount table that the system sees, and what the device says of itself",
            ),
            Layer::Vm => (
                "runtime = \"vm:qemu\" or \"vm:uml\"",
                "goes with the monitor's process and its directory",
                "the monitor over QMP, and the agent in the guest",
            ),
            Layer::Sandbox => (
                "the runtime runsc",
                "goes with the sandbox",
                "the arguments of the running sandbox, and the program asked inside it",
            ),
            Layer::Rootfs => (
                "a statically linked program; for packages apt-get, dpkg-deb and tar",
                "unmounted; what was unpacked stays in the cache for the next run",
                "/proc/PID/mountinfo: the root is read-only; every file is compared with the manifest",
            ),
            Layer::Inject => (
                "the system tare-db; for quota the cpu cgroup controller and cgroup = \"own\"; for delay network = \"host\"",
                "the relay is killed; the rest goes with the process and its cgroup",
                "the arguments of the running system and of the relay; the quota's file; the Seccomp line",
            ),
            Layer::Limits => (
                "the memory cgroup controller and cgroup = \"own\"",
                "goes with the cgroup",
                "memory.max (v2) or memory.limit_in_bytes (v1)",
            ),
        };
        Self { layer, needs, cleanup, read_back }
    }
}
