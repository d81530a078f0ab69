//! One run of a search and what came of it.

use serde::Serialize;

/// One run of the search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchRun {
    pub rate_per_s: f64,
    pub throughput_per_s: f64,
    /// The latencies that the SLO limits, in its order, in ns; none if fewer operations than that
    /// were answered.
    pub latencies_ns: Vec<Option<u64>>,
    pub holds: bool,
    /// One of the runs that confirm, not one of the bracket.
    pub confirms: bool,
    pub doubts: Vec<String>,
}
