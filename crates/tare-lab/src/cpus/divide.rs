//! Chooses the cores of the system.
//!
//! The system gets the smallest part of the host that has enough cores: one last-level cache, one
//! NUMA node, or as few nodes as possible, with an equal number of cores from each. Between equal
//! parts it gets the one with the highest CPU numbers, because the kernel does more of its own work
//! on the first CPUs. Within a part it takes whole caches from the end.

use tare_std::cpus::CpuSet;

use super::topology::{CpuTopology, Node};

/// Returns `count` cores for the system. The topology must have at least as many.
pub(super) fn system_cores(topology: &CpuTopology, count: usize) -> Vec<CpuSet> {
    let caches = topology.nodes.iter().flat_map(|node| &node.caches);
    if let Some(cores) = smallest(caches.filter(|cores| cores.len() >= count), |cores| cores.len())
    {
        return last(cores.iter(), count);
    }
    let nodes = topology.nodes.iter().filter(|node| node.cores().count() >= count);
    if let Some(node) = smallest(nodes, |node| node.cores().count()) {
        return from_node(node, count);
    }
    from_several(topology, count)
}

/// Returns at most `count` cores for interrupts: the first of each node in turn, because the kernel
/// does more of its own work on the first CPUs.
pub(super) fn interrupt_cores(topology: &CpuTopology, count: usize) -> Vec<CpuSet> {
    let nodes: Vec<Vec<&CpuSet>> =
        topology.nodes.iter().map(|node| node.cores().collect()).collect();
    let deepest = nodes.iter().map(Vec::len).max().unwrap_or(0);
    let rows = (0..deepest).flat_map(|row| nodes.iter().filter_map(move |node| node.get(row)));
    rows.take(count).map(|core| (*core).clone()).collect()
}

/// Returns the smallest part, and of several the last.
fn smallest<T>(parts: impl Iterator<Item = T>, size: impl Fn(&T) -> usize) -> Option<T> {
    let mut best: Option<(usize, T)> = None;
    for part in parts {
        let size = size(&part);
        if best.as_ref().is_none_or(|(least, _)| size <= *least) {
            best = Some((size, part));
        }
    }
    best.map(|(_, part)| part)
}

fn last<'a>(cores: impl DoubleEndedIterator<Item = &'a CpuSet>, count: usize) -> Vec<CpuSet> {
    cores.rev().take(count).cloned().collect()
}

/// Takes the last caches of a node as a whole, then the last cores of the one before them.
fn from_node(node: &Node, count: usize) -> Vec<CpuSet> {
    last(node.caches.iter().flatten(), count)
}

/// Takes an equal number of cores from each of the fewest nodes that have enough together, as far
/// as the smaller ones allow.
fn from_several(topology: &CpuTopology, count: usize) -> Vec<CpuSet> {
    let mut nodes: Vec<(usize, &Node)> =
        topology.nodes.iter().map(|node| (node.cores().count(), node)).collect();
    // The largest first, and of equal ones the last.
    nodes.reverse();
    nodes.sort_by_key(|(cores, _)| std::cmp::Reverse(*cores));
    let mut total = 0;
    let enough = nodes.iter().position(|(cores, _)| {
        total += cores;
        total >= count
    });
    nodes.truncate(enough.map_or(nodes.len(), |position| position + 1));
    // From the smallest on, each gives its share of what is left, or all that it has.
    let mut left = count;
    let mut taken = Vec::with_capacity(count);
    while let Some((cores, node)) = nodes.pop() {
        let share = left.div_ceil(nodes.len() + 1).min(cores);
        left -= share;
        taken.extend(from_node(node, share));
    }
    taken
}
