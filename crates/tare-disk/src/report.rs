//! The report of a measurement. The JSON of `tare disk --json` has these fields.

use std::path::PathBuf;

use hdrhistogram::Histogram;
use serde::Serialize;
use tare_stats::estimate;
use tare_stats::steady_state::SteadyWindow;

use crate::device::Device;
use crate::doubt::Doubt;
use crate::io_properties::IoProperties;
use crate::rules::Step;
use crate::target::{Kind, Mount};

/// The version of the JSON.
pub(crate) const VERSION: u32 = 1;

/// A figure with its 95 % interval over the rounds (`tare_stats::estimate` of the logarithms).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub value: f64,
    /// Absent with fewer than two rounds, or if a round had 0.
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub rounds: usize,
}

impl Figure {
    pub(crate) fn of(values: &[f64]) -> Self {
        let mean = values.iter().sum::<f64>() / (values.len().max(1)) as f64;
        let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let usable = values.len() > 1 && logarithms.iter().all(|value| value.is_finite());
        match estimate(&logarithms).filter(|_| usable) {
            Some(estimate) => Self {
                value: estimate.centre.exp(),
                low: Some(estimate.low.exp()),
                high: Some(estimate.high.exp()),
                rounds: values.len(),
            },
            None => Self { value: mean, low: None, high: None, rounds: values.len() },
        }
    }

    /// Widens the interval to the resolution of a round's count: one operation more or less. Rounds
    /// that agree better are limited by a clock that restarts with each round and always includes
    /// the same operations.
    pub(crate) fn counted(self, operations: u64) -> Self {
        let one = 1.0 / operations.max(1) as f64;
        let low = self.low.map(|low| low.min(self.value * (1.0 - one)));
        let high = self.high.map(|high| high.max(self.value * (1.0 + one)));
        Self { low, high, ..self }
    }

    /// Returns the same interval around another value, widened to hold it.
    fn around(self, value: f64) -> Self {
        let low = self.low.map(|low| low.min(value));
        Self { value, low, high: self.high.map(|high| high.max(value)), rounds: self.rounds }
    }
}

/// Latencies in ns. Each quantile is from the merged histograms of all rounds; its interval is from
/// the single rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    pub operations: u64,
    pub p50_ns: Figure,
    pub p95_ns: Figure,
    pub p99_ns: Figure,
    pub p999_ns: Figure,
    pub max_ns: u64,
}

impl Latency {
    pub(crate) fn of(rounds: &[Histogram<u64>]) -> Self {
        let mut all = rounds.first().cloned().unwrap_or_else(|| {
            Histogram::new(3).unwrap_or_else(|error| unreachable!("constant digits: {error}"))
        });
        for round in rounds.iter().skip(1) {
            // All histograms have the same bounds.
            let _added = all.add(round);
        }
        let quantile = |q: f64| {
            let filled = rounds.iter().filter(|round| !round.is_empty());
            let values: Vec<f64> = filled.map(|round| round.value_at_quantile(q) as f64).collect();
            Figure::of(&values).around(all.value_at_quantile(q) as f64)
        };
        Self {
            operations: all.len(),
            p50_ns: quantile(0.5),
            p95_ns: quantile(0.95),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: all.max(),
        }
    }
}

/// The latency of the open loop at a share of the saturated rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    pub share: f64,
    /// Operations per second as requested, and as done.
    pub asked_per_s: Figure,
    pub operations_per_s: Figure,
    /// Latencies from the intended start.
    pub latency: Latency,
    /// Operations that were due and not started.
    pub unsent: u64,
}

/// How a disk was made steady before it was measured: written over in sequence, then at random in
/// rounds until the rate no longer changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SteadyReport {
    /// How often the range was written in sequence.
    pub passes: u32,
    pub round_s: f64,
    /// Random writes of 4 KiB per second in each round.
    pub rounds_per_s: Vec<f64>,
    /// How far apart the last rounds are; `None` after too few.
    pub last_rounds: Option<SteadyWindow>,
    /// Whether the disk reached the steady state.
    pub is_steady: bool,
    /// What all of it wrote, and how long it took.
    pub written_bytes: u64,
    pub seconds: f64,
}

/// One of the four loads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadReport {
    pub load: &'static str,
    pub write: bool,
    pub random: bool,
    pub block_bytes: u32,
    pub climb: Vec<Step>,
    pub saturation_depth: usize,
    /// The rate at the saturation depth, closed loop.
    pub operations_per_s: Figure,
    pub bytes_per_s: Figure,
    /// Service time: in the closed loop a stall hides the operations that it delays.
    pub service: Latency,
    /// CPU time of this process per operation; interrupts are charged to others.
    pub cpu_us_per_operation: Figure,
    pub points: Vec<Point>,
}

/// One field of the map.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Shares of the saturated rates.
    pub read_percent: u32,
    pub write_percent: u32,
    pub reads: u64,
    /// Absent with fewer than 20 reads.
    pub read_p95_ns: Option<u64>,
    /// The share of due operations (both kinds) that were not started.
    pub unsent_share: f64,
}

/// Read latency over read and write rates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Map {
    /// The rates at 100 %: random reads of 4 KiB per second, and bytes written per second.
    pub read_per_s: f64,
    pub write_bytes_per_s: f64,
    /// Reads of 0 % are a probe at this share.
    pub probe_percent: f64,
    pub write_block_bytes: u32,
    pub cell_s: f64,
    pub cells: Vec<Cell>,
}

/// A whole measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub version: u32,
    pub path: PathBuf,
    pub kind: Kind,
    pub mount: Option<Mount>,
    pub device: Device,
    /// The bytes that were read and overwritten.
    pub size_bytes: u64,
    pub seed: u64,
    pub budget_s: f64,
    pub spent_s: f64,
    pub confidence: f64,
    /// How it was made steady first, if that was asked for.
    pub steady: Option<SteadyReport>,
    pub loads: Vec<LoadReport>,
    pub map: Option<Map>,
    pub doubts: Vec<Doubt>,
}

impl Report {
    /// Returns the properties for Seastar, if all of them were measured.
    pub fn io_properties(&self) -> Option<IoProperties> {
        let load = |write, random| {
            self.loads.iter().find(|load| load.write == write && load.random == random)
        };
        Some(IoProperties {
            read_iops: load(false, true)?.operations_per_s.value,
            read_bandwidth: load(false, false)?.bytes_per_s.value,
            write_iops: load(true, true)?.operations_per_s.value,
            write_bandwidth: load(true, false)?.bytes_per_s.value,
        })
    }
}
