//! The response times of an environment at the fixed rate: what the analysis finds in histograms,
//! and what a finished record holds in tables.

use serde::{Deserialize, Serialize};
use tare_stats::Interval;

/// Latencies of a merged histogram, in ns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
    pub count: u64,
    /// The percentiles with their intervals and their ratios to the baseline's. Empty for a single
    /// slice.
    pub percentiles: Vec<Percentile>,
}

impl Latency {
    /// Returns one of [`crate::analysis::PERCENTS`] with its interval.
    pub fn percentile(&self, percent: f64) -> Option<&Percentile> {
        self.percentiles.iter().find(|one| one.percent.total_cmp(&percent).is_eq())
    }
}

/// One percentile of a merged histogram with its interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// One of [`crate::analysis::PERCENTS`].
    pub percent: f64,
    /// Number of operations that took longer.
    pub beyond: u64,
    /// `None` if fewer than [`tare_stats::merged::BEYOND_MIN`] operations took longer, too few for
    /// a percentile.
    pub ns: Option<Interval>,
    /// `None` for the baseline itself, and if one of the two is unknown.
    pub over_baseline: Option<OverBaseline>,
}

/// A percentile compared with the baseline's, over the rounds that both have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverBaseline {
    /// The environment's divided by the baseline's.
    pub ratio: Interval,
    /// The environment's minus the baseline's.
    pub difference_ns: Interval,
    /// Whether the interval of the ratio excludes 1.
    pub found: bool,
}

/// The response times of an environment under a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseTime {
    pub workload: String,
    pub environment: String,
    pub latency: Latency,
}
