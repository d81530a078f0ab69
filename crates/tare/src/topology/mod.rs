//! Reads the topology of this host's CPUs for the division between system, client and interrupts.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use tare_lab::cpus::{CpuTopology, ExcludedCpus, Node};
use tare_std::cpus::CpuSet;
use tare_tune::machine::{Topology, TopologyError};
use tare_tune::snapshot::Snapshot;

/// Returns the CPUs that this thread may use, by node, cache and core. On a host that shows no
/// topology, every CPU is a core.
pub(crate) fn allowed_here() -> anyhow::Result<CpuTopology> {
    let allowed =
        tare_host::process::cpus_of_this_thread().context("cannot read the allowed CPUs")?;
    let memory = tare_host::process::status_field(std::process::id(), "Mems_allowed_list");
    let memory = memory.and_then(|list| CpuSet::parse_list(&list).ok());
    Ok(of_process(&Snapshot::take_topology(Path::new("/")), &allowed, memory.as_ref()))
}

/// Returns the part of a described host that a process may use, with the CPUs and memory nodes of
/// its affinity and cpuset. Isolated CPUs are left out: the kernel does not balance load there, so
/// the threads of a system would stay on one.
fn of_process(snapshot: &Snapshot, allowed: &CpuSet, memory: Option<&CpuSet>) -> CpuTopology {
    let Some(host) = of_snapshot(snapshot).ok().filter(|host| allowed.is_subset(&host.cpus()))
    else {
        return CpuTopology::flat(allowed);
    };
    let usable = allowed.difference(&host.excluded.isolated);
    let mut part = host.restrict(&usable);
    part.excluded.not_allowed = host.cpus().difference(allowed).difference(&part.excluded.isolated);
    if let Some(memory) = memory {
        part.memory = part.memory.intersection(memory);
    }
    part
}

/// Returns the CPUs of a described host. Without cores in sysfs, every CPU is a core of its node.
fn of_snapshot(snapshot: &Snapshot) -> Result<CpuTopology, TopologyError> {
    let found = Topology::read(snapshot).or_else(|_| Topology::flat(snapshot))?;
    let mut host = of_host(&found);
    host.memory = nodes_with_memory(snapshot, &host);
    Ok(host)
}

/// Returns the host's nodes with CPUs and memory; nodes of memory alone (CXL) are nobody's own. A
/// kernel that does not show which have some has some on each.
fn nodes_with_memory(snapshot: &Snapshot, host: &CpuTopology) -> CpuSet {
    let with_cpus: CpuSet = host.nodes.iter().map(|node| node.id).collect();
    let list = snapshot.read("/sys/devices/system/node/has_memory");
    match list.and_then(|list| CpuSet::parse_list(list.trim()).ok()) {
        Some(memory) => memory.intersection(&with_cpus),
        None => with_cpus,
    }
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
    let mut nodes: Vec<Node> = found.nodes.iter().map(node).collect();
    nodes.sort_by_key(|node| node.id);
    CpuTopology {
        nodes,
        memory: CpuSet::new(),
        excluded: ExcludedCpus {
            offline: found.offline.clone(),
            isolated: found.isolated.union(&found.partitioned),
            not_allowed: CpuSet::new(),
        },
        is_flat: found.flat,
    }
}

#[cfg(test)]
mod tests;
