//! The CPUs of a host by NUMA node, last-level cache and core.

use tare_std::cpus::CpuSet;

use super::error::Unusable;

/// The CPUs that this process may use, by NUMA node, last-level cache and core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    /// In ascending order of their numbers. No node is empty.
    pub nodes: Vec<Node>,
    /// The numbers of the host's nodes with CPUs and with memory that this process may use. Empty
    /// if they are not known.
    pub memory: CpuSet,
    pub excluded: ExcludedCpus,
    /// Whether the kernel does not show which CPUs share a core, so that each counts as one.
    pub is_flat: bool,
}

/// CPUs of the host that are not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcludedCpus {
    pub offline: CpuSet,
    /// By `isolcpus=` or a cpuset partition.
    pub isolated: CpuSet,
    /// Online CPUs that the affinity or the cpuset of this process does not contain.
    pub not_allowed: CpuSet,
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
        Self { nodes, is_flat: true, ..Self::default() }
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

    /// Returns the cores that have no CPU of `taken`.
    #[must_use]
    pub(super) fn without_cores_of(&self, taken: &CpuSet) -> Self {
        self.map_cores(|core| if core.is_disjoint(taken) { core.clone() } else { CpuSet::new() })
    }

    /// Returns the numbers of the nodes that have a CPU of `cpus`.
    pub(super) fn nodes_of(&self, cpus: &CpuSet) -> Vec<u32> {
        let on = |node: &&Node| node.cores().any(|core| !core.is_disjoint(cpus));
        self.nodes.iter().filter(on).map(|node| node.id).collect()
    }

    /// Returns why CPUs that are not in a part of the topology cannot be used: the first reason,
    /// with the CPUs to which it applies.
    pub(super) fn why_unusable(&self, cpus: &CpuSet) -> (Unusable, CpuSet) {
        let ExcludedCpus { offline, isolated, not_allowed } = &self.excluded;
        let here = self.cpus();
        let reasons = [
            (Unusable::Offline, offline),
            (Unusable::Isolated, isolated),
            (Unusable::NotAllowed, not_allowed),
            (Unusable::OtherNode, &here),
        ];
        let found = reasons.into_iter().map(|(why, of)| (why, cpus.intersection(of)));
        found
            .into_iter()
            .find(|(_, cpus)| !cpus.is_empty())
            .unwrap_or((Unusable::Missing, cpus.clone()))
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
        Self { nodes: nodes.collect(), ..self.clone() }
    }
}

impl Node {
    /// Returns the cores of all caches.
    pub fn cores(&self) -> impl Iterator<Item = &CpuSet> {
        self.caches.iter().flatten()
    }

    /// Returns the CPUs of all cores.
    pub fn cpus(&self) -> CpuSet {
        self.cores().flat_map(CpuSet::iter).collect()
    }
}
