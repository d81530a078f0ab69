//! What observes a slice besides the environment and the driver, as the core sees it.

use serde::{Deserialize, Serialize};

use crate::PartError;

/// One observed figure of a slice: the difference between its edges, or the value at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// Lower case, unit last: `steal_ns`, `softirq_ns`, `host_cpu_ns`.
    pub name: String,
    pub value: f64,
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

    /// Reads the first values. Takes well under 1 ms.
    fn begin(&mut self) -> Result<(), PartError>;

    /// Reads again and returns what changed.
    fn end(&mut self) -> Result<Vec<Counter>, PartError>;
}
