//! Divides the compute CPUs among instances: disjoint, in whole cores, and within NUMA nodes where
//! possible.
//!
//! Otherwise containers that each request the first N CPUs would share them (scylladb #3336).

use tare_std::cpu_shares;
use tare_std::cpus::CpuSet;

use crate::machine::Topology;
use crate::machine::topology::Node;

/// One instance of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// From 1.
    pub number: u32,
    pub cpus: CpuSet,
    /// NUMA nodes of its CPUs, as a set of their numbers.
    pub nodes: CpuSet,
}

/// Why the CPUs cannot be divided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstancesError {
    #[error("no CPU is left for the database; use fewer for interrupts")]
    NoCpus,
    #[error(
        "{requested} instances need a core each, but CPUs {cpus} are {cores} {}; use at most {cores}",
        if *cores == 1 { "core" } else { "cores" }
    )]
    TooMany { requested: u32, cpus: CpuSet, cores: usize },
    #[error("it needs {wanted} CPUs of its own, but this host has {available} for databases")]
    TooFew { wanted: usize, available: usize },
}

/// Divides CPUs of a topology, as [`cpu_shares::divide`] does.
///
/// # Errors
/// When there are more instances than cores, or no CPU.
pub fn divide(
    topology: &Topology,
    cpus: &CpuSet,
    instances: u32,
) -> Result<Vec<Instance>, InstancesError> {
    let part = topology.restrict(cpus);
    let cores_of = |node: &Node| node.cores.iter().map(|core| core.cpus.clone()).collect();
    let nodes: Vec<Vec<CpuSet>> = part.nodes.iter().map(cores_of).collect();
    let cores = nodes.iter().map(Vec::len).sum();
    if cores == 0 {
        return Err(InstancesError::NoCpus);
    }
    let requested = usize::try_from(instances).unwrap_or(usize::MAX);
    let too_many = InstancesError::TooMany { requested: instances, cpus: part.cpus(), cores };
    let sets = cpu_shares::divide(&nodes, requested).ok_or(too_many)?;
    let instance = |(index, cpus): (usize, CpuSet)| Instance {
        number: u32::try_from(index + 1).unwrap_or(u32::MAX),
        nodes: nodes_of(topology, &cpus),
        cpus,
    };
    Ok(sets.into_iter().enumerate().map(instance).collect())
}

/// Returns the number of CPUs of the whole cores that an amount in thousandths of a CPU needs.
pub(super) fn cpus_of_millis(topology: &Topology, millis: u64) -> usize {
    let threads = topology.cores().map(|core| core.cpus.len()).max().unwrap_or(1).max(1);
    let whole = usize::try_from(millis.div_ceil(1000)).unwrap_or(usize::MAX).max(1);
    whole.div_ceil(threads).saturating_mul(threads)
}

/// Returns the numbers of the NUMA nodes that have the CPUs.
pub fn nodes_of(topology: &Topology, cpus: &CpuSet) -> CpuSet {
    let nodes = topology.nodes.iter();
    nodes.filter(|n| !n.cpus().is_disjoint(cpus)).map(|n| n.id).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flags::tests::machine;

    fn list(text: &str) -> CpuSet {
        CpuSet::parse_list(text).unwrap()
    }

    fn sets(topology: &Topology, cpus: &str, instances: u32) -> Vec<String> {
        let divided = divide(topology, &list(cpus), instances).unwrap();
        divided.iter().map(|instance| instance.cpus.to_string()).collect()
    }

    #[test]
    fn instances_get_disjoint_whole_cores() {
        let i3 = machine(1, 16, 2);
        assert_eq!(sets(&i3, "1-15,17-31", 1), ["1-15,17-31"]);
        assert_eq!(sets(&i3, "1-15,17-31", 2), ["1-8,17-24", "9-15,25-31"]);
        assert_eq!(sets(&i3, "1-15,17-31", 15)[14], "15,31");
        let two = machine(2, 24, 2);
        assert_eq!(sets(&two, "2-23,26-47,50-71,74-95", 2), ["2-23,50-71", "26-47,74-95"]);
        assert_eq!(
            sets(&two, "2-23,26-47,50-71,74-95", 3),
            ["2-12,50-60", "13-23,61-71", "26-47,74-95"]
        );
        assert_eq!(sets(&machine(1, 2, 1), "0-1", 2), ["0", "1"]);
        // Three nodes for two instances: whole nodes.
        assert_eq!(sets(&machine(3, 2, 1), "0-5", 2), ["0-3", "4-5"]);
    }

    #[test]
    fn too_many_instances_name_limit() {
        let error = divide(&machine(1, 16, 2), &list("1-15,17-31"), 16).unwrap_err();
        assert!(error.to_string().ends_with("are 15 cores; use at most 15"), "{error}");
        assert_eq!(divide(&machine(1, 2, 1), &CpuSet::new(), 1), Err(InstancesError::NoCpus));
    }

    proptest! {
        #[test]
        fn sets_are_disjoint_cover_all_and_share_no_core(
            nodes in 1u32..5, cores in 1u32..20, threads in 1u32..3, instances in 1u32..40,
        ) {
            let topology = machine(nodes, cores, threads);
            let all = topology.cpus();
            match divide(&topology, &all, instances) {
                Err(_) => prop_assert!(instances > nodes * cores),
                Ok(divided) => {
                    prop_assert_eq!(divided.len(), usize::try_from(instances).unwrap());
                    let sum: usize = divided.iter().map(|i| i.cpus.len()).sum();
                    prop_assert_eq!(sum, all.len());
                    let union = divided.iter().fold(CpuSet::new(), |all, i| all.union(&i.cpus));
                    prop_assert_eq!(union, all);
                    for core in topology.nodes.iter().flat_map(|node| &node.cores) {
                        let owners = divided.iter();
                        let owners = owners.filter(|i| !i.cpus.is_disjoint(&core.cpus));
                        prop_assert_eq!(owners.count(), 1);
                    }
                    if instances >= nodes {
                        prop_assert!(divided.iter().all(|i| i.nodes.len() == 1));
                    }
                }
            }
        }
    }
}
