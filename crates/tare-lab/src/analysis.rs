//! What a record says: costs with intervals, latencies, the control, the arithmetic.

use serde::{Deserialize, Serialize};

use crate::doubt::Doubt;

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
    /// Blocks it rests on.
    pub blocks: u32,
}

/// What an environment loses against the baseline, in percent; above 0 is a loss.
///
/// CPU: `(ratio - 1) * 100` of CPU time per operation, environment over baseline.
/// Throughput: `(1 - ratio) * 100` of operations/s, environment over baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub percent: Interval,
    /// False: "no difference found (within `within_percent` %)".
    pub found: bool,
    /// The largest loss or gain that the interval does not exclude, in percent.
    pub within_percent: f64,
}

/// Quantiles of a merged histogram, in ns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
    pub count: u64,
}

/// One environment under one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub environment: String,
    pub workload: String,
    pub baseline: bool,
    pub control: bool,
    /// Slices that count, capacity and latency.
    pub slices: u32,
    pub slices_void: u32,
    /// CPU time per operation in the capacity phase, µs: the system's threads (busy part, where it
    /// polls) plus what the layer adds. Median over blocks with its interval.
    pub server_cpu_us: Option<Interval>,
    /// True: idle polling was subtracted by the system's own account.
    pub server_cpu_is_busy_time: bool,
    pub server_cpu_cost: Option<Cost>,
    /// The same at the fixed rate.
    pub server_cpu_us_at_rate: Option<Interval>,
    pub server_cpu_cost_at_rate: Option<Cost>,
    /// Server and client together, in the capacity phase.
    pub total_cpu_us: Option<Interval>,
    pub total_cpu_cost: Option<Cost>,
    pub throughput_per_s: Option<Interval>,
    pub throughput_cost: Option<Cost>,
    /// At the fixed rate, from the intended start.
    pub response: Option<Latency>,
    /// At the fixed rate, from the send.
    pub service: Option<Latency>,
    /// CPU time of the client per operation, µs, capacity phase.
    pub client_cpu_us: Option<Interval>,
    /// Share of the client's CPUs that it used in the capacity phase, 0 to 1.
    pub client_cpu_share: Option<f64>,
    /// Doubts about this environment, each kind once, with the number of slices it touched.
    pub doubts: Vec<(Doubt, u32)>,
}

/// What the record says as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// In the order of the study, workload by workload; the control after the baseline.
    pub findings: Vec<Finding>,
    pub blocks: u32,
    /// Doubts about the record as a whole.
    pub doubts: Vec<Doubt>,
    /// The arithmetic of the headline cost, line by line.
    pub arithmetic: Vec<String>,
}
