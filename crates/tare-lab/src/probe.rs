//! What observes a slice besides the environment and the driver, as the core sees it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::PartError;

/// One observed figure of a slice: the difference between its edges, or the value at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// Lower case, unit last: `steal_ns`, `softirq_ns`, `host_cpu_ns`. [`is_level`] says by the name
    /// what it is.
    pub name: String,
    pub value: f64,
}

/// Endings of the names of levels.
pub const LEVELS: [&str; 4] = ["_at_end", "_mean", "_max", "_share"];

/// Whether a counter is a level (memory at the end, a mean, the largest, a share of the time), which means what
/// it says. All others are sums over the slice, which mean something only per operation.
pub fn is_level(name: &str) -> bool {
    LEVELS.iter().any(|ending| name.ends_with(ending))
}

const LAYER_CPU: (&str, &str) = ("layer_cpu_", "_ns");

/// The name of a counter that is CPU time of a part of the layer which is in no process's account, such
/// as work of the kernel's own threads, in ns. It joins the layer's CPU time of its slice.
pub fn layer_cpu_name(part: &str) -> String {
    format!("{}{part}{}", LAYER_CPU.0, LAYER_CPU.1)
}

/// The part of the layer whose CPU time a counter of this name is: `nvme target` of
/// `layer_cpu_nvme_target_ns`.
pub fn layer_part(name: &str) -> Option<String> {
    let part = name.strip_prefix(LAYER_CPU.0)?.strip_suffix(LAYER_CPU.1)?;
    Some(part.replace('_', " "))
}

/// Whom a slice is about, so that a probe can look at them alone. Process ids are the host's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Processes of the system, its first one first.
    pub system: Vec<u32>,
    /// Processes that the layer adds outside the system (a userland proxy).
    pub layer: Vec<u32>,
    /// Processes of the client.
    pub client: Vec<u32>,
    /// The system's data directory as the host sees it.
    pub data: Option<PathBuf>,
}

/// Counter names that the core itself draws doubts from.
pub mod names {
    /// CPU time that the hypervisor gave to others, over all CPUs of the plan, in ns.
    pub const STEAL_NS: &str = "steal_ns";
    /// CPU time of every task on the host, in ns. The core subtracts what it knows; the rest is
    /// the strangers'.
    pub const HOST_CPU_NS: &str = "host_cpu_ns";
    /// CPU time of the harness process itself, in ns.
    pub const HARNESS_CPU_NS: &str = "harness_cpu_ns";
    /// Softirq time over all CPUs of the plan, in ns (resolution of /proc/stat: 1/USER_HZ).
    pub const SOFTIRQ_NS: &str = "softirq_ns";
}

/// A probe that does not disturb. Implementations live in `tare-probe`, one file each.
pub trait Probe {
    fn name(&self) -> &str;

    /// Learns whom the next slice is about, before its load starts: what has to be found and opened
    /// is found and opened here and not at the edges. Probes of the whole host need none.
    fn prepare(&mut self, _scope: &Scope) -> Result<(), PartError> {
        Ok(())
    }

    /// Reads the first values. Takes well under 1 ms.
    fn begin(&mut self) -> Result<(), PartError>;

    /// Reads again and returns what changed.
    fn end(&mut self) -> Result<Vec<Counter>, PartError>;
}
