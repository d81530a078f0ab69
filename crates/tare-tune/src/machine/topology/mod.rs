//! Sockets, NUMA nodes, cores and threads, from /sys/devices/system/{cpu,node}.

mod read;
#[cfg(test)]
mod tests;

use tare_std::cpus::CpuSet;

use crate::snapshot::Snapshot;

/// The CPUs that are online, by NUMA node and core.
///
/// Everywhere, siblings (nodes, cores, threads) are ordered by their lowest CPU number, which is
/// the order that hwloc gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    pub nodes: Vec<Node>,
    /// CPUs that share something between machine and core: packages, dies, caches. Interrupts are
    /// spread over these too, as hwloc does it. Each set once, in no particular order.
    pub domains: Vec<CpuSet>,
    /// The CPUs of each last-level cache, ascending; empty where the kernel shows no caches.
    pub last_level_caches: Vec<CpuSet>,
    /// CPUs that exist but are offline.
    pub offline: CpuSet,
    /// CPUs that a boot parameter keeps free of tasks: `isolcpus=`.
    pub isolated: CpuSet,
    /// CPUs without a scheduler tick: `nohz_full=`.
    pub nohz_full: CpuSet,
    /// CPUs of isolated cpuset partitions (cgroup v2 `cpuset.cpus.isolated`).
    pub partitioned: CpuSet,
    /// CPUs of a hybrid machine that are built to save energy (Intel `cpu_atom`; arm64 by a lower
    /// `cpu_capacity`). Empty where all cores are of a kind.
    pub efficiency: CpuSet,
    /// The kernel shows no topology, so every CPU counts as its own core.
    pub flat: bool,
}

/// A NUMA node with CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number in the kernel.
    pub id: u32,
    pub cores: Vec<Core>,
}

/// A physical core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// Its hardware threads, ascending.
    pub cpus: CpuSet,
}

/// Why the CPUs could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Some virtual machines (scylladb #11639) have no topology in sysfs.
    #[error("{path} is missing: this kernel does not tell its CPU topology; give --irq-cpus")]
    Missing { path: String },
    #[error("{path} holds {text:?}, which is no CPU set")]
    Set { path: String, text: String },
}

impl Topology {
    /// Reads the topology of a snapshot.
    ///
    /// # Errors
    /// When the files of the topology are missing or make no sense.
    pub fn read(snapshot: &Snapshot) -> Result<Self, TopologyError> {
        read::read(snapshot)
    }

    /// The topology of a host that does not tell one: every online CPU is a core of its own.
    /// Interrupts cannot be placed by it, but CPUs that are given by hand can be checked.
    ///
    /// # Errors
    /// When not even the online CPUs are known.
    pub fn flat(snapshot: &Snapshot) -> Result<Self, TopologyError> {
        read::flat(snapshot)
    }

    /// All CPUs that are online.
    pub fn cpus(&self) -> CpuSet {
        self.cores().flat_map(|core| core.cpus.iter()).collect()
    }

    /// All cores, node by node.
    pub fn cores(&self) -> impl Iterator<Item = &Core> {
        self.nodes.iter().flat_map(|node| &node.cores)
    }

    /// The part that lies in a set: nodes and cores without CPUs of the set are left out.
    pub fn restrict(&self, universe: &CpuSet) -> Self {
        let core = |core: &Core| Core { cpus: core.cpus.intersection(universe) };
        let node = |node: &Node| Node {
            id: node.id,
            cores: node.cores.iter().map(core).filter(|core| !core.cpus.is_empty()).collect(),
        };
        let mut nodes: Vec<Node> = self.nodes.iter().map(node).collect();
        nodes.retain(|node| !node.cores.is_empty());
        let mut part = Self { nodes, ..self.clone() };
        part.sort();
        part
    }

    /// Puts siblings in the order of their lowest CPU.
    pub fn sort(&mut self) {
        for node in &mut self.nodes {
            node.cores.sort_by_key(|core| core.cpus.iter().next());
        }
        // Cores are sorted: the first CPU of the first core is the lowest of the node.
        self.nodes.sort_by_key(|node| node.cores.first().and_then(|core| core.cpus.iter().next()));
    }
}

impl Node {
    pub fn cpus(&self) -> CpuSet {
        self.cores.iter().flat_map(|core| core.cpus.iter()).collect()
    }
}
