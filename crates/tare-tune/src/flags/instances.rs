//! Divides the compute CPUs among instances: disjoint, in whole cores, and within NUMA nodes where
//! possible.
//!
//! Otherwise containers that each request the first N CPUs would share them (scylladb #3336).

use tare_std::cpus::CpuSet;

use crate::machine::Topology;
use crate::machine::topology::Core;

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
}

/// Divides CPUs of a topology.
///
/// With fewer instances than nodes, each gets whole nodes. Otherwise every node gets one instance
/// and a share of the others in proportion to its cores (highest averages method), and divides its
/// cores among its instances so that they differ by at most one core.
///
/// # Errors
/// When there are more instances than cores, or no CPU.
pub fn divide(
    topology: &Topology,
    cpus: &CpuSet,
    instances: u32,
) -> Result<Vec<Instance>, InstancesError> {
    let part = topology.restrict(cpus);
    let cores: usize = part.nodes.iter().map(|node| node.cores.len()).sum();
    let requested = usize::try_from(instances).unwrap_or(usize::MAX).max(1);
    if cores == 0 {
        return Err(InstancesError::NoCpus);
    }
    if requested > cores {
        return Err(InstancesError::TooMany { requested: instances, cpus: part.cpus(), cores });
    }
    let sets: Vec<CpuSet> = if requested <= part.nodes.len() {
        runs(part.nodes.len(), requested)
            .map(|nodes| part.nodes[nodes].iter().map(|n| n.cpus()).fold(CpuSet::new(), union))
            .collect()
    } else {
        let counts = apportion(&part, requested);
        let nodes = part.nodes.iter().zip(counts);
        nodes
            .flat_map(|(node, count)| {
                runs(node.cores.len(), count).map(|cores| cpus_of(&node.cores[cores]))
            })
            .collect()
    };
    let instance = |(index, cpus): (usize, CpuSet)| Instance {
        number: u32::try_from(index + 1).unwrap_or(u32::MAX),
        nodes: nodes_of(topology, &cpus),
        cpus,
    };
    Ok(sets.into_iter().enumerate().map(instance).collect())
}

/// Returns the numbers of the NUMA nodes that have the CPUs.
pub fn nodes_of(topology: &Topology, cpus: &CpuSet) -> CpuSet {
    let nodes = topology.nodes.iter();
    nodes.filter(|n| !n.cpus().is_disjoint(cpus)).map(|n| n.id).collect()
}

/// Returns how many instances each node gets; no node gets more than it has cores.
fn apportion(part: &Topology, instances: usize) -> Vec<usize> {
    let cores: Vec<usize> = part.nodes.iter().map(|node| node.cores.len()).collect();
    let mut counts = vec![1; cores.len()];
    for _ in cores.len()..instances {
        // The node with the largest cores / (count + 1); of equal ones the first.
        let best = (0..cores.len()).reduce(|best, next| {
            let more = cores[next] * (counts[best] + 1) > cores[best] * (counts[next] + 1);
            if more { next } else { best }
        });
        if let Some(best) = best {
            counts[best] += 1;
        }
    }
    counts
}

/// Splits `length` items into `parts` ranges, the longer ones first.
fn runs(length: usize, parts: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let (least, longer) = (length / parts, length % parts);
    let start = move |part: usize| part * least + part.min(longer);
    (0..parts).map(move |part| start(part)..start(part + 1))
}

fn cpus_of(cores: &[Core]) -> CpuSet {
    cores.iter().map(|core| core.cpus.clone()).fold(CpuSet::new(), union)
}

#[expect(clippy::needless_pass_by_value, reason = "fold needs this signature")]
fn union(all: CpuSet, more: CpuSet) -> CpuSet {
    all.union(&more)
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
                    let union = divided.iter().map(|i| i.cpus.clone()).fold(CpuSet::new(), union);
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
