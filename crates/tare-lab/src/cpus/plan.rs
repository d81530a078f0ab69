//! The CPUs of each group during a study.

use serde::{Deserialize, Serialize};
use tare_std::cpu_shares;
use tare_std::cpus::CpuSet;

/// The CPUs of system, client and interrupts during a study.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPlan {
    /// Every CPU of system and client.
    pub all: CpuSet,
    /// CPUs of the system under test where its `cpu` layer is `pinned`.
    pub system: CpuSet,
    /// CPUs of the client. Disjoint from `system` unless the host has a single CPU.
    pub client: CpuSet,
    /// CPUs that are kept for interrupts, in neither `system` nor `client`. Empty if none are.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub interrupts: CpuSet,
    /// CPUs of a system that is not pinned. Empty in old records, where it is `all`.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub shared: CpuSet,
    /// The host's cores with more than one hardware thread, which is how two CPUs share a core.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<CpuSet>,
    /// The NUMA nodes with usable CPUs; empty on a host with one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<PlanNode>,
    /// The numbers of the NUMA nodes with memory that this process may use; empty on a host with
    /// one node.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub memory: CpuSet,
}

/// A NUMA node of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanNode {
    /// The kernel's number of the node.
    pub id: u32,
    /// Its usable CPUs, those that no group uses included.
    pub cpus: CpuSet,
}

impl CpuPlan {
    /// Returns the numbers of the NUMA nodes to which the memory of a system on `cpus` is bound:
    /// those of its CPUs. `None` if nothing is bound, because there is one node, or because the
    /// CPUs are on all nodes, or only on nodes without memory.
    pub fn memory_nodes(&self, cpus: &CpuSet) -> Option<CpuSet> {
        let near = self.nodes.iter().filter(|node| !node.cpus.is_disjoint(cpus));
        let near: CpuSet = near.map(|node| node.id).collect();
        let bound = near.intersection(&self.memory);
        (!bound.is_empty() && bound != self.memory).then_some(bound)
    }

    /// Divides the system's CPUs among `count` instances, as [`cpu_shares::divide`] does. With more
    /// instances than cores, `None`: they share all.
    pub fn of_instances(&self, count: usize) -> Option<Vec<CpuSet>> {
        cpu_shares::divide(&self.cores_by_node(), count)
    }

    /// Returns the first `count` of the system's CPUs, whole cores and whole NUMA nodes first; all
    /// of them if there are fewer.
    pub fn first(&self, count: u32) -> CpuSet {
        cpu_shares::first(&self.cores_by_node(), count as usize)
    }

    /// Returns the plan of a system that has only the first `count` of its CPUs.
    pub fn limited_to(&self, count: u32) -> Self {
        Self { system: self.first(count), ..self.clone() }
    }

    /// Returns the system's CPUs by core and by NUMA node.
    fn cores_by_node(&self) -> Vec<Vec<CpuSet>> {
        match self.nodes.as_slice() {
            [] => vec![self.cores_of(&self.system)],
            nodes => {
                let known = nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.cpus));
                let parts = nodes.iter().map(|node| node.cpus.intersection(&self.system));
                let parts = parts.chain([self.system.difference(&known)]);
                parts.map(|part| self.cores_of(&part)).collect()
            }
        }
    }

    /// Groups CPUs by core.
    pub fn cores_of(&self, cpus: &CpuSet) -> Vec<CpuSet> {
        let mut cores: Vec<CpuSet> = Vec::new();
        for cpu in cpus.iter() {
            let core = self.cores.iter().find(|core| core.contains(cpu));
            match core.map(|core| core.intersection(cpus)) {
                // A core is added with its first thread.
                Some(core) if core.iter().next() == Some(cpu) => cores.push(core),
                Some(_) => {}
                None => cores.push([cpu].into_iter().collect()),
            }
        }
        cores
    }
}
