//! Reads the topology of this host's CPUs for the division between client and system.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use tare_lab::cpus::{CpuTopology, Node};
use tare_std::cpus::CpuSet;
use tare_tune::machine::{Topology, TopologyError};
use tare_tune::snapshot::Snapshot;

/// Returns the CPUs that this thread may use, by node, cache and core. On a host that shows no
/// topology, every CPU is a core.
pub(crate) fn allowed_here() -> anyhow::Result<CpuTopology> {
    let allowed =
        tare_host::process::cpus_of_this_thread().context("cannot read the allowed CPUs")?;
    let found = of_snapshot(&Snapshot::take_topology(Path::new("/")));
    let found = found.map(|topology| topology.restrict(&allowed));
    Ok(match found {
        Ok(topology) if topology.cpus() == allowed => topology,
        _ => CpuTopology::flat(&allowed),
    })
}

/// Returns the CPUs of a described host. Without cores in sysfs, every CPU is a core of its node.
fn of_snapshot(snapshot: &Snapshot) -> Result<CpuTopology, TopologyError> {
    Topology::read(snapshot).or_else(|_| Topology::flat(snapshot)).map(|found| of_host(&found))
}

/// Groups the cores of each node by last-level cache. A cache that spans nodes is one in each.
fn of_host(found: &Topology) -> CpuTopology {
    let cache_of = |core: &CpuSet| {
        let mut caches = found.last_level_caches.iter();
        caches.position(|cache| !cache.is_disjoint(core))
    };
    let node = |node: &tare_tune::machine::topology::Node| {
        let mut caches: BTreeMap<Option<usize>, Vec<CpuSet>> = BTreeMap::new();
        for core in &node.cores {
            caches.entry(cache_of(&core.cpus)).or_default().push(core.cpus.clone());
        }
        let mut caches: Vec<Vec<CpuSet>> = caches.into_values().collect();
        caches.sort();
        Node { id: node.id, caches }
    };
    CpuTopology { nodes: found.nodes.iter().map(node).collect() }
}

#[cfg(test)]
mod tests;
