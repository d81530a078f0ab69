//! A cost: the loss of an environment against another, in percent, with its interval.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{Estimate, estimate};

/// A figure with its 95 % interval. The figure is inside the interval.
///
/// One round allows no interval. A bound is then infinite (or the limit of a cost). JSON writes an
/// infinite bound as `null`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub value: f64,
    #[serde(deserialize_with = "null_is_below_all")]
    pub low: f64,
    #[serde(deserialize_with = "null_is_above_all")]
    pub high: f64,
    /// The number of rounds behind the interval.
    #[serde(rename = "blocks")]
    pub rounds: u32,
}

impl Interval {
    /// Whether both bounds are finite. A single round has no bounds.
    pub fn is_bounded(&self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }
}

impl From<Estimate> for Interval {
    fn from(estimate: Estimate) -> Self {
        let Estimate { centre, low, high, rounds } = estimate;
        Self { value: centre, low, high, rounds }
    }
}

fn null_is_below_all<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NEG_INFINITY))
}

fn null_is_above_all<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

/// The loss of an environment against the baseline, in percent. Above 0 is a loss.
///
/// CPU: `(ratio - 1) * 100` of CPU time per operation, environment over baseline ([`rise`]).
/// Throughput: `(1 - ratio) * 100` of operations/s, environment over baseline ([`fall`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub percent: Interval,
    /// Whether the interval excludes 0. False reads as "no difference found (within
    /// `within_percent` %)".
    pub found: bool,
    /// The largest loss or gain inside the interval, in percent. Infinite (`null` in JSON) without
    /// an interval.
    #[serde(deserialize_with = "null_is_above_all")]
    pub within_percent: f64,
}

impl From<Estimate> for Cost {
    fn from(percent: Estimate) -> Self {
        Self {
            found: percent.excludes(0.0),
            within_percent: percent.low.abs().max(percent.high.abs()),
            percent: percent.into(),
        }
    }
}

/// Returns the cost of a figure whose rise is a loss: `(ratio - 1) * 100`, from the logs of the
/// ratios of all rounds ([`crate::log_ratios`]). `None` without a round.
///
/// ```
/// use tare_stats::{log_ratios, rise};
///
/// // µs of CPU per operation: in a container, and natively in the same round.
/// let pairs = [(11.0, 10.0), (11.1, 10.0), (10.9, 10.0), (11.0, 10.1), (11.0, 9.9)];
/// let cost = rise(&log_ratios(pairs)).unwrap();
/// assert!(cost.found && (9.0..11.0).contains(&cost.percent.value), "{cost:?}");
/// ```
pub fn rise(log_ratios: &[f64]) -> Option<Cost> {
    Some(rise_of(estimate(log_ratios)?))
}

/// Returns the cost of a figure whose rise is a loss from the estimate of the log of its ratio.
pub fn rise_of(log_ratio: Estimate) -> Cost {
    log_ratio.map(|log| 100.0 * log.exp_m1()).into()
}

/// Returns the cost of a figure whose fall is a loss: `(1 - ratio) * 100`. The interval mirrors
/// that of [`rise`].
pub fn fall(log_ratios: &[f64]) -> Option<Cost> {
    Some(fall_of(estimate(log_ratios)?))
}

/// Returns the cost of a figure whose fall is a loss from the estimate of the log of its ratio.
pub fn fall_of(log_ratio: Estimate) -> Cost {
    let Estimate { centre, low, high, rounds } = log_ratio;
    let mirrored = Estimate { centre: -centre, low: -high, high: -low, rounds };
    mirrored.map(|log| -100.0 * (-log).exp_m1()).into()
}
