//! The CPUs of a host by NUMA node, last-level cache and core.

use tare_std::cpus::CpuSet;

/// The CPUs that this process may use, by NUMA node, last-level cache and core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    /// In ascending order of their numbers. No node is empty.
    pub nodes: Vec<Node>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number of the node.
    pub id: u32,
    /// The last-level caches of the node, each with its cores. A core is the set of its hardware
    /// threads. No cache and no core is empty.
    pub caches: Vec<Vec<CpuSet>>,
}

impl CpuTopology {
    /// Returns the topology of a host that shows none: every CPU is a core, and all share one
    /// cache.
    pub fn flat(cpus: &CpuSet) -> Self {
        let cores: Vec<CpuSet> = cpus.iter().map(|cpu| [cpu].into_iter().collect()).collect();
        let caches = if cores.is_empty() { Vec::new() } else { vec![cores] };
        let nodes = if caches.is_empty() { Vec::new() } else { vec![Node { id: 0, caches }] };
        Self { nodes }
    }

    /// Returns the CPUs of all nodes.
    pub fn cpus(&self) -> CpuSet {
        self.cores().flat_map(CpuSet::iter).collect()
    }

    /// Returns all cores in order of node and cache.
    pub fn cores(&self) -> impl Iterator<Item = &CpuSet> {
        self.nodes.iter().flat_map(Node::cores)
    }

    /// Returns the part of the topology that contains only `cpus`.
    #[must_use]
    pub fn restrict(&self, cpus: &CpuSet) -> Self {
        self.map_cores(|core| core.intersection(cpus))
    }

    /// Returns the topology with the first CPU of each core, so that its siblings stay idle.
    #[must_use]
    pub(super) fn first_threads(&self) -> Self {
        self.map_cores(|core| core.iter().take(1).collect())
    }

    /// Returns the cores with more than one CPU.
    pub(super) fn multithreaded_cores(&self) -> Vec<CpuSet> {
        self.cores().filter(|core| core.len() > 1).cloned().collect()
    }

    fn map_cores(&self, map: impl Fn(&CpuSet) -> CpuSet) -> Self {
        let cache = |cores: &Vec<CpuSet>| -> Vec<CpuSet> {
            cores.iter().map(&map).filter(|core| !core.is_empty()).collect()
        };
        let node = |node: &Node| {
            let caches = node.caches.iter().map(cache).filter(|cores| !cores.is_empty());
            Node { id: node.id, caches: caches.collect() }
        };
        let nodes = self.nodes.iter().map(node).filter(|node| !node.caches.is_empty());
        Self { nodes: nodes.collect() }
    }
}

impl Node {
    /// Returns the cores of all caches.
    pub fn cores(&self) -> impl Iterator<Item = &CpuSet> {
        self.caches.iter().flatten()
    }
}
