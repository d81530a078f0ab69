//! Spreading interrupts over CPUs: as far apart in the machine as it goes.

use tare_std::cpus::CpuSet;

use crate::machine::Topology;

/// A CPU for each of `count` interrupts, within `cpus`. What `hwloc-distrib COUNT --single
/// --restrict CPUS` prints. Empty when `cpus` holds no CPU of the topology.
pub fn spread(topology: &Topology, cpus: &CpuSet, count: usize) -> Vec<u32> {
    let _ = (topology, cpus, count);
    Vec::new()
}

/// The same as sets: each slot with all CPUs of its part (`hwloc-distrib` without `--single`).
pub fn spread_sets(topology: &Topology, cpus: &CpuSet, count: usize) -> Vec<CpuSet> {
    let _ = (topology, cpus, count);
    Vec::new()
}
