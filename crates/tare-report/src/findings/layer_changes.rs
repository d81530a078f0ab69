//! The changes of one layer whose effects are reported, and how each is recognised.

use tare_lab::layer::Layer;

/// Both ends of a change of one layer.
pub(crate) struct Ends<'a> {
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    /// The system's I/O engine at both ends.
    pub(crate) engines: [Option<&'a str>; 2],
}

impl Ends<'_> {
    fn engine_lost(&self) -> bool {
        matches!(self.engines, [Some(from), Some(to)] if from != to)
    }
}

/// A kind of change of one layer, and the rule that reports its effect.
#[derive(Debug)]
pub(crate) struct LayerChange {
    /// Id of the rule that reports it.
    pub(crate) rule: &'static str,
    pub(crate) layer: Layer,
    /// The layer as a noun, in the words of the rule's title.
    pub(crate) name: &'static str,
    pub(crate) matches: fn(&Ends<'_>) -> bool,
    /// Subsystems of the stacks that the details name.
    pub(super) subsystems: &'static [&'static str],
    /// Counters that the details name.
    pub(super) counters: &'static [&'static str],
}

/// Returns whether the text of a limits layer has the key `memory` and no other.
fn is_memory_alone(text: &str) -> bool {
    let amount = text.strip_prefix("memory ");
    amount.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()) && !rest.contains(','))
}

/// Every change of a layer that has a rule. A change may match several; all of them report.
pub(crate) const LAYERS: &[LayerChange] = &[
    LayerChange {
        rule: "bridge",
        layer: Layer::Network,
        name: "bridge network",
        matches: |ends| ends.from == "host" && ends.to == "bridge",
        subsystems: &["bridge and veth", "netfilter and conntrack", "network stack"],
        counters: &[],
    },
    LayerChange {
        rule: "published_by_proxy",
        layer: Layer::Network,
        name: "port published by a userland proxy",
        matches: |ends| ends.to == "bridge+proxy",
        subsystems: &["userland proxy", "bridge and veth", "network stack", "scheduler"],
        counters: &[],
    },
    LayerChange {
        rule: "io_uring_lost",
        layer: Layer::Security,
        name: "io_uring lost to the seccomp profile",
        matches: |ends| {
            ends.from == "default+io_uring" && ends.to == "default" && ends.engine_lost()
        },
        subsystems: &["epoll", "io_uring", "system call entry", "seccomp"],
        counters: &["system_switches_voluntary"],
    },
    LayerChange {
        rule: "seccomp_filter",
        layer: Layer::Security,
        name: "seccomp filter",
        matches: |ends| ends.from == "none" && !ends.engine_lost(),
        subsystems: &["seccomp", "system call entry"],
        counters: &[],
    },
    LayerChange {
        rule: "seccomp_and_io_uring",
        layer: Layer::Security,
        name: "seccomp profile and loss of io_uring",
        matches: |ends| ends.from == "none" && ends.engine_lost(),
        subsystems: &["seccomp", "epoll", "io_uring", "system call entry"],
        counters: &["system_switches_voluntary"],
    },
    LayerChange {
        rule: "no_capabilities",
        layer: Layer::Capabilities,
        name: "no capabilities",
        matches: |ends| ends.to == "none",
        subsystems: &["system call entry", "file system"],
        counters: &[],
    },
    LayerChange {
        rule: "user_namespace",
        layer: Layer::User,
        name: "user namespace",
        matches: |ends| ends.to == "namespace",
        subsystems: &["file system", "system call entry"],
        counters: &[],
    },
    LayerChange {
        rule: "apparmor",
        layer: Layer::Apparmor,
        name: "AppArmor profile",
        matches: |ends| ends.from == "none",
        subsystems: &["file system", "network stack", "system call entry"],
        counters: &[],
    },
    LayerChange {
        rule: "huge_pages",
        layer: Layer::Pages,
        name: "transparent huge pages",
        matches: |ends| ends.from == "never" || ends.from != "always" && ends.to == "always",
        subsystems: &["page faults and memory"],
        counters: &["system_page_faults_minor"],
    },
    LayerChange {
        rule: "memory_node",
        layer: Layer::Node,
        name: "NUMA node of the memory",
        matches: |ends| ends.to != "any",
        subsystems: &["page faults and memory"],
        counters: &["system_page_faults_minor"],
    },
    LayerChange {
        rule: "cgroup",
        layer: Layer::Cgroup,
        name: "cgroup accounting",
        matches: |ends| ends.from == "none",
        subsystems: &["cgroup accounting"],
        counters: &[],
    },
    LayerChange {
        rule: "shared_cpus",
        layer: Layer::Cpu,
        name: "shared CPUs",
        matches: |ends| ends.from == "pinned" && ends.to == "shared",
        subsystems: &["scheduler", "interrupts and timers"],
        counters: &["system_migrations", "system_run_queue_wait_ns", "system_switches_involuntary"],
    },
    LayerChange {
        rule: "cpu_quota",
        layer: Layer::Cpu,
        name: "CPU quota",
        matches: |ends| ends.to.starts_with("quota="),
        subsystems: &["scheduler", "cgroup accounting"],
        counters: &["throttled_ns", "system_run_queue_wait_ns"],
    },
    LayerChange {
        rule: "memory_limit",
        layer: Layer::Limits,
        name: "memory limit",
        matches: |ends| ends.from == "none" && is_memory_alone(ends.to),
        subsystems: &["cgroup accounting", "page faults and memory", "file system"],
        counters: &["system_page_faults_minor", "system_page_faults_major"],
    },
    LayerChange {
        rule: "resource_limits",
        layer: Layer::Limits,
        name: "limits of resources",
        matches: |ends| ends.from == "none" && !is_memory_alone(ends.to),
        subsystems: &["cgroup accounting", "block layer", "network stack", "file system"],
        counters: &["system_page_faults_major", "system_switches_voluntary"],
    },
    LayerChange {
        rule: "sandbox",
        layer: Layer::Runtime,
        name: "sandboxed runtime",
        matches: |ends| ends.to.ends_with("runsc"),
        subsystems: &["userland proxy", "hypervisor", "scheduler"],
        counters: &[],
    },
    LayerChange {
        rule: "virtual_machine",
        layer: Layer::Runtime,
        name: "virtual machine",
        matches: |ends| is_machine(ends.to) && !is_machine(ends.from),
        subsystems: &["hypervisor", "userland proxy", "scheduler", "interrupts and timers"],
        counters: &["kvm_exits", "system_run_queue_wait_ns"],
    },
    LayerChange {
        rule: "storage",
        layer: Layer::Storage,
        name: "storage",
        matches: |ends| ends.from == "directory",
        subsystems: &["block layer", "file system", "overlay and FUSE"],
        counters: &["disk_flushes", "disk_writes", "disk_written_bytes"],
    },
    LayerChange {
        rule: "sidecar",
        layer: Layer::Sidecar,
        name: "sidecar",
        matches: |ends| ends.from == "none",
        subsystems: &["userland proxy", "network stack", "scheduler"],
        counters: &["system_run_queue_wait_ns"],
    },
    LayerChange {
        rule: "injected",
        layer: Layer::Inject,
        name: "injected cost",
        matches: |ends| ends.from == "none",
        subsystems: &[],
        counters: &["throttled_ns"],
    },
    LayerChange {
        rule: "engine",
        layer: Layer::Runtime,
        name: "container engine",
        matches: |ends| {
            let below = ends.from.starts_with("oci:") || ends.from == "containerd";
            below && is_engine(ends.to)
        },
        subsystems: &["overlay and FUSE", "cgroup accounting"],
        counters: &[],
    },
    LayerChange {
        rule: "runtime",
        layer: Layer::Runtime,
        name: "container (namespaces and mounts)",
        matches: |ends| {
            ["process", "fake"].contains(&ends.from)
                && !ends.to.ends_with("runsc")
                && !is_machine(ends.to)
        },
        subsystems: &["overlay and FUSE", "cgroup accounting"],
        counters: &[],
    },
];

/// The change from no neighbours to some, whose rule reports every pair.
pub(crate) static NEIGHBOURS: LayerChange = LayerChange {
    rule: "neighbours",
    layer: Layer::Neighbours,
    name: "neighbours",
    matches: |ends| ends.from == "none",
    subsystems: &[],
    counters: &[],
};

/// The change from a tuned host to one as it is found.
pub(super) static HOST_AS_IS: LayerChange = LayerChange {
    rule: "host_as_is",
    layer: Layer::Host,
    name: "host settings as found",
    matches: |ends| ends.from == "tuned" && ends.to == "as-is",
    subsystems: &[],
    counters: &[],
};

fn is_machine(runtime: &str) -> bool {
    runtime.split(':').next() == Some("vm")
}

fn is_engine(runtime: &str) -> bool {
    ["containerd", "docker", "podman", "kubernetes"]
        .contains(&runtime.split(':').next().unwrap_or_default())
}
