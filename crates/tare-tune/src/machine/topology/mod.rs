//! Sockets, NUMA nodes, cores and threads, from /sys/devices/system/{cpu,node}.

mod read;
#[cfg(test)]
mod tests;

use tare_std::cpus::CpuSet;

use crate::snapshot::Snapshot;

/// The online CPUs, by NUMA node and core.
///
/// Siblings (nodes, cores, threads) are ordered by their lowest CPU number, as in hwloc.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    pub nodes: Vec<Node>,
    /// CPU sets between machine and core: packages, dies, caches. Interrupts are spread over these
    /// too, as in hwloc. Each set once, in no particular order.
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
    /// Efficiency cores of a hybrid machine (Intel `cpu_atom`; arm64 by a lower `cpu_capacity`).
    /// Empty if all cores are of one kind.
    pub efficiency: CpuSet,
    /// Whether the kernel shows no topology, so that every CPU counts as its own core.
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
    #[error("{path} is missing: this kernel does not report the CPU topology; give --irq-cpus")]
    Missing { path: String },
    #[error("{path} contains {text:?}, which is not a CPU set")]
    Set { path: String, text: String },
}

impl Topology {
    /// Reads the topology of a snapshot.
    ///
    /// # Errors
    /// When the files of the topology are missing or malformed.
    pub fn read(snapshot: &Snapshot) -> Result<Self, TopologyError> {
        read::read(snapshot)
    }

    /// Returns a topology for a host that reports none: every online CPU is its own core.
    /// Interrupts cannot be placed by it, but CPUs named by the user can be checked.
    ///
    /// # Errors
    /// When not even the online CPUs are known.
    pub fn flat(snapshot: &Snapshot) -> Result<Self, TopologyError> {
        read::flat(snapshot)
    }

    /// Returns all online CPUs.
    pub fn cpus(&self) -> CpuSet {
        self.cores().flat_map(|core| core.cpus.iter()).collect()
    }

    /// Returns all cores, node by node.
    pub fn cores(&self) -> impl Iterator<Item = &Core> {
        self.nodes.iter().flat_map(|node| &node.cores)
    }

    /// Returns the part of the topology within a set, without nodes and cores that have no CPU of
    /// the set.
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

    /// Sorts siblings by their lowest CPU.
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
