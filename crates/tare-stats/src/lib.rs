//! Statistics of paired blocks: one number per block, few blocks, and an interval that is right
//! for few.
//!
//! The number is the log of a ratio, environment over baseline, both measured inside one block, so
//! that whatever the host did to both cancels. On the log scale a loss and a gain of the same
//! factor weigh the same, and the logs of two equally noisy arms differ symmetrically however
//! skewed the noise of each is. That symmetry is what the rule below rests on.
//!
//! **The rule** ([`estimate`]): below [`SIGNED_RANK_BLOCKS_MIN`] blocks Student's t on the mean of
//! the log ratios; from there the exact signed-rank interval of Wilcoxon with the Hodges-Lehmann
//! estimate, which is the median of all means of two blocks. It was chosen by simulation
//! ([`validation`], `examples/validate_statistics.rs`).
//!
//! Limits: the blocks are taken to be independent. A cost that itself drifts from block to block is
//! covered less often than the interval says, by every method tried; `docs/concepts/cost.md` has
//! the figures.

#![forbid(unsafe_code)]

mod cost;
mod difference;
pub mod law;
pub mod merged;
pub mod methods;
pub mod robust;
pub mod steady;
pub mod validation;

pub use cost::{Cost, Interval, fall, rise};
pub use difference::difference;

/// Confidence of every interval that Tare prints.
pub const CONFIDENCE: f64 = 0.95;

/// From so many blocks on the interval is the signed-rank one. Under normal noise it is as narrow
/// as Student's t there (within 3 %), and under heavy tails it is far narrower; below, its few
/// steps leave it no choice of confidence near 95 % (under 6 blocks it has none at all).
pub const SIGNED_RANK_BLOCKS_MIN: usize = 10;

/// Below so many blocks an interval is right but so wide that a figure is worth little: Student's
/// factor is 12.7, 4.3, 3.2, 2.8 and 2.6 for 2 to 6 blocks, and 2.4 for 7.
pub const BLOCKS_MIN: u32 = 7;

/// An estimate with its 95 % interval, on the scale of the values it was made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate that belongs to the interval, and lies in it.
    pub centre: f64,
    /// Minus infinity where the values allow no interval.
    pub low: f64,
    /// Infinity where the values allow no interval.
    pub high: f64,
    pub blocks: u32,
}

impl Estimate {
    /// An estimate that excludes nothing.
    fn unbounded(centre: f64, blocks: usize) -> Self {
        Self::new(centre, f64::NEG_INFINITY, f64::INFINITY, blocks)
    }

    fn new(centre: f64, low: f64, high: f64, blocks: usize) -> Self {
        Self { centre, low, high, blocks: u32::try_from(blocks).unwrap_or(u32::MAX) }
    }

    /// Whether the interval excludes `value`.
    pub fn excludes(&self, value: f64) -> bool {
        value < self.low || value > self.high
    }

    /// The same on another scale, by a function that grows.
    pub fn map(self, growing: impl Fn(f64) -> f64) -> Self {
        Self {
            centre: growing(self.centre),
            low: growing(self.low),
            high: growing(self.high),
            blocks: self.blocks,
        }
    }
}

/// The median; the mean of the two in the middle of an even number. `None` without a value.
///
/// ```
/// assert_eq!(tare_stats::median([3.0, 1.0, 2.0, 10.0]), Some(2.5));
/// ```
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len();
    Some(f64::midpoint(*sorted.get(n.checked_sub(1)? / 2)?, sorted[n / 2]))
}

/// The estimate and interval of the product, from one value per block. `None` without a value.
/// One block gives an interval without bounds: nothing is known about the noise. Two give Student's
/// t with one degree of freedom, which is 12.7 standard errors to each side.
///
/// Time grows little faster than the number of blocks.
///
/// ```
/// use tare_stats::{estimate, log_ratios};
///
/// // µs per operation in five blocks: in a container, and natively beside it.
/// let pairs = [(11.6, 6.6), (11.8, 6.5), (11.5, 6.5), (11.7, 6.7), (11.6, 6.4)];
/// let ratio = estimate(&log_ratios(pairs)).unwrap().map(f64::exp);
/// assert!(ratio.low < 1.78 && 1.78 < ratio.high, "{ratio:?}");
/// assert!(ratio.excludes(1.0));
/// ```
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    if values.len() < SIGNED_RANK_BLOCKS_MIN {
        methods::student_t(values)
    } else {
        methods::signed_rank(values)
    }
}

/// Logs of the ratios `over / under` of one block each. A pair with a side that is not above 0 has
/// no ratio and is left out.
pub fn log_ratios(pairs: impl IntoIterator<Item = (f64, f64)>) -> Vec<f64> {
    let sound = |x: f64| x > 0.0 && x.is_finite();
    let pairs = pairs.into_iter().filter(|&(over, under)| sound(over) && sound(under));
    pairs.map(|(over, under)| (over / under).ln()).collect()
}

#[cfg(test)]
mod tests;
