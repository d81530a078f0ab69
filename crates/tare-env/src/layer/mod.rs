//! How this crate provides the layers: what each needs, how it is read back, how it cleans up, and
//! which values exclude each other. `tare_lab::layer` has the list of layers and their types.

use tare_lab::layer::Layer;

// Callers write `layer::Cgroup`, because tare-host has a `Cgroup` too.
pub(crate) use tare_lab::layer::Cgroup;

pub(crate) mod checked;
pub mod confinement;
pub mod host;
pub mod inject;
pub(crate) mod limits;
pub mod neighbour;
pub mod network;
#[cfg(test)]
mod reference;
pub mod rootfs;
pub mod security;

pub(crate) use checked::confinement_set;
pub use checked::{LayerError, Layers};
pub use limits::{LimitError, check_cpus};

/// How this crate provides a layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerInfo {
    pub layer: Layer,
    /// Programs, kernel features and settings that it needs.
    pub needs: &'static str,
    /// How it is removed.
    pub cleanup: &'static str,
    /// What is read back to check that it is in force.
    pub read_back: &'static str,
}

impl LayerInfo {
    /// Returns how this crate provides the layer.
    pub const fn of(layer: Layer) -> Self {
        let (needs, cleanup, read_back) = match layer {
            Layer::Runtime => (
                "see tare list runtimes",
                "each runtime writes what it creates to the journal, and removes it",
                "the process, its name and its state in the runtime or engine",
            ),
            Layer::Network => (
                "iproute2, nftables; veth, bridge, nf_nat and nf_conntrack in the kernel; for macvlan, ipvlan and \
                 vxlan CONFIG_MACVLAN, CONFIG_IPVLAN and CONFIG_VXLAN; for pasta CONFIG_TUN and the program (passt)",
                "its namespaces are removed, and with them links, bridge and nft table; with other hosts \
                 bridge, nft table and forwarding of the host go when the environment is frozen or ends",
                "the inode of the network namespace of /proc/PID/ns/net; from macvlan on also the devices in it with kind, mode \
                 and MTU, and their other ends; with other hosts (loaders, instances) also a \
                 connection from outside, the nft tables and the forwarding of the host",
            ),
            Layer::Cpu => (
                "the cpuset and cpu cgroup controllers where cgroup = \"own\"",
                "ends with the cgroup and the process",
                "Cpus_allowed_list of every thread; the cpuset in force; the files of quota, period and burst; on several NUMA \
                 nodes Mems_allowed_list and the memory policy",
            ),
            Layer::Security => (
                "CONFIG_SECCOMP_FILTER",
                "none needed: the filter ends with the process",
                "the Seccomp line of /proc/PID/status",
            ),
            Layer::Capabilities | Layer::User | Layer::Apparmor | Layer::Pages | Layer::Node => {
                Self::of_confinement(layer)
            }
            Layer::Cgroup => (
                "cgroup v1, hybrid or v2, writable",
                "its processes are killed and its directories removed",
                "/proc/PID/cgroup; as cpu.weight the scheduler's groups, which are alike for all",
            ),
            Layer::Host => (
                "root, and a plan (from tare tune prove; tare weigh plans with the defaults)",
                "changes are put back when the environment is frozen; after kill -9 by tare clean",
                "every setting: tuned ones have the planned value, others the original one",
            ),
            Layer::Storage => (
                "see tare list storage",
                "unmounted; its devices and files are removed, through the journal",
                "the mount table that the system sees, and the device's attributes",
            ),
            Layer::Vm => (
                "runtime = \"vm:qemu\" or \"vm:uml\"",
                "ends with the monitor's process; its directory is removed",
                "the monitor over QMP, and the agent in the guest",
            ),
            Layer::Sandbox => (
                "the runtime runsc",
                "ends with the sandbox",
                "the arguments of the running sandbox, and a program's report from inside",
            ),
            Layer::Rootfs => (
                "a statically linked program; for packages apt-get, dpkg-deb and tar",
                "unmounted; unpacked files stay in the cache for the next run",
                "/proc/PID/mountinfo: the root is read-only; every file is compared with the manifest",
            ),
            Layer::System => (
                "an option that the system has",
                "ends with the system",
                "the settings that the running system reports, in the record and on the page",
            ),
            Layer::Inject => (
                "the system tare-db; for quota the cpu cgroup controller and cgroup = \"own\"; for delay network = \"host\"",
                "the relay is killed; the rest ends with the process and its cgroup",
                "the arguments of the running system and of the relay; the quota's file; the Seccomp line",
            ),
            Layer::Limits => (
                "the memory, cpu or I/O controller (io, blkio) and cgroup = \"own\"; for limits of I/O a block device \
                 below the data; for network_bandwidth network = \"bridge\" or \"vxlan\", tc (iproute2) and CONFIG_NET_SCH_TBF",
                "ends with the cgroup and, for the network, with the link",
                "memory.max, memory.high, memory.swap.max, hugetlb.2MB.max, cpu.weight, io.bfq.weight and io.max (v2), or \
                 memory.limit_in_bytes, memory.memsw.limit_in_bytes, hugetlb.2MB.limit_in_bytes, cpu.shares, blkio.bfq.weight and \
                 blkio.throttle.* (v1), with the device; the token bucket filter (tbf) of both ends of the link",
            ),
            Layer::Instances => (
                "a system with the option instances",
                "each instance ends as a single one does",
                "every layer of every instance; the address and the figures of each",
            ),
            Layer::Neighbours => (
                "stress-ng, except for kind = \"command\"; cgroups",
                "its processes are killed before the environment ends, its directory, cgroup and network \
                 namespace are removed; after kill -9 by tare clean",
                "its processes in their cgroup, Cpus_allowed_list of every thread, and its CPU time in each slice \
                 (neighbour_cpu_ns), which is never 0",
            ),
            Layer::Sidecar => (
                "runtime = \"kubernetes\"",
                "ends with the pod",
                "the process of the second container, found by its cgroup, in the pod's network namespace; of a proxy a new \
                 connection, which ends at a socket of it",
            ),
        };
        Self { layer, needs, cleanup, read_back }
    }

    /// Returns needs, cleanup and read-back of the layers of rights and memory.
    const fn of_confinement(layer: Layer) -> (&'static str, &'static str, &'static str) {
        match layer {
            Layer::Capabilities => (
                "a process: setpriv (util-linux); a container of this kernel",
                "none needed: the sets end with the process",
                "CapInh, CapPrm, CapEff, CapBnd and CapAmb of /proc/PID/status of every process",
            ),
            Layer::User => (
                "CONFIG_USER_NS; unshare (util-linux), for a process nsenter too; data in a directory of ext4, xfs, \
                 btrfs or tmpfs, which is mounted with the ids of the namespace (Linux 5.12)",
                "unmounted; the namespace ends with the system. No file changes its owner",
                "/proc/PID/uid_map, the inode of /proc/PID/ns/user, and the Uid line of /proc/PID/status",
            ),
            Layer::Apparmor => (
                "AppArmor in the kernel, switched on; apparmor_parser, for a process aa-exec too",
                "the profile is unloaded",
                "/proc/PID/attr/apparmor/current: Tare's profile, or for runtime another one, enforced",
            ),
            Layer::Pages => (
                "CONFIG_TRANSPARENT_HUGEPAGE; Tare's program as the first one of the system",
                "the flag ends with the process; the host's setting is put back when the environment is frozen or \
                 ends; after kill -9 by tare clean",
                "THP_enabled of /proc/PID/status and AnonHugePages of /proc/PID/smaps_rollup; for madvise THPeligible of \
                 every mapping in /proc/PID/smaps; the host's setting where Tare changes it",
            ),
            _ => (
                "a NUMA node with memory; the cpuset controller, or a process without a cgroup of its own",
                "ends with the cgroup and the process",
                "Mems_allowed_list, the memory policy and the pages on the node in /proc/PID/numa_maps",
            ),
        }
    }
}
