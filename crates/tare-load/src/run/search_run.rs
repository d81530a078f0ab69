//! One run of a search and its result.

use serde::Serialize;

/// One run of the search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchRun {
    pub rate_per_s: f64,
    pub throughput_per_s: f64,
    /// The latencies that the SLO limits, in its order, in ns; `None` if too few operations were
    /// answered.
    pub latencies_ns: Vec<Option<u64>>,
    pub holds: bool,
    /// True for a confirming run, false for one of the bracket.
    pub confirms: bool,
    pub doubts: Vec<String>,
}
