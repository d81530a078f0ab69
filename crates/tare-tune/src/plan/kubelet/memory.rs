//! Amounts of memory in a kubelet's configuration, and the reservation that its memory manager
//! needs.
//!
//! Source: kubernetes.io, "Utilizing the NUMA-aware Memory Manager": with the policy `Static` the
//! reserved memory of all NUMA nodes has to add up to kube-reserved, system-reserved and the hard
//! eviction threshold, or the kubelet does not start. The default threshold is 100 MiB
//! ("Node-pressure Eviction").

use crate::machine::Topology;
use crate::machine::kubelet::Settings;
use crate::machine::kubelet::quantity::bytes;

/// The default of `memory.available` in `evictionHard`, in bytes.
const EVICTION_DEFAULT: u64 = 100 << 20;

/// Returns the bytes that `reservedMemory` has to add up to; `None` if the eviction threshold is a
/// share of the memory, or an amount cannot be read.
pub(super) fn total(settings: &Settings) -> Option<u64> {
    let amount = |text: Option<&String>, default: u64| text.map_or(Some(default), |t| bytes(t));
    let kube = amount(settings.kube_reserved.get("memory"), 0)?;
    let system = amount(settings.system_reserved.get("memory"), 0)?;
    let eviction = match settings.eviction_hard.is_empty() {
        true => EVICTION_DEFAULT,
        // A threshold that is set replaces the defaults of all thresholds.
        false => amount(settings.eviction_hard.get("memory.available"), 0)?,
    };
    kube.checked_add(system)?.checked_add(eviction)
}

/// Returns the bytes that `reservedMemory` adds up to now; `None` if an amount cannot be read.
pub(super) fn reserved(settings: &Settings) -> Option<u64> {
    let amounts = settings.reserved_memory.iter().map(|node| match node.limits.get("memory") {
        Some(text) => bytes(text),
        None => Some(0),
    });
    amounts.sum()
}

/// Returns the lines that divide a reservation among the NUMA nodes, in whole MiB except for the
/// rest, which the first node gets.
pub(super) fn fragment(total: u64, topology: &Topology) -> String {
    let nodes = u64::try_from(topology.nodes.len()).unwrap_or(1).max(1);
    let each = ((total / nodes) >> 20) << 20;
    let mut rest = total - each * nodes;
    let mut text = String::from("reservedMemory:\n");
    for node in &topology.nodes {
        let amount = each + std::mem::take(&mut rest);
        let amount = match amount % (1 << 20) {
            0 => format!("{}Mi", amount >> 20),
            _ => amount.to_string(),
        };
        text += &format!("  - numaNode: {}\n    limits:\n      memory: {amount:?}\n", node.id);
    }
    text
}
