//! Statistics of paired rounds: one number per round, and intervals that are right for few rounds.
//! A round is one round of a study: one slice of every environment.
//!
//! The number is the log of a ratio, environment over baseline. Both are measured inside one round,
//! so that an influence of the host on both cancels. On the log scale, a loss and a gain of the
//! same factor weigh the same. The logs of two equally noisy arms differ symmetrically, even if the
//! noise of each is skewed. The rule below depends on this symmetry.
//!
//! **The rule** ([`estimate`]): below [`SIGNED_RANK_ROUNDS_MIN`] rounds, Student's t on the mean of
//! the log ratios. From there on, the exact signed-rank interval of Wilcoxon with the
//! Hodges-Lehmann estimate, which is the median of all means of two rounds. Simulations led to this
//! rule ([`validation`], `examples/validate_statistics.rs`). If neighbouring rounds are alike, the
//! signed-rank interval is widened ([`dependence`]).
//!
//! Limits: a cost that drifts through the whole study has no constant value, and below 20 rounds
//! nothing shows that they depend on each other. `docs/concepts/cost.md` has the figures.

#![forbid(unsafe_code)]

pub mod change;
mod cost;
pub mod dependence;
mod difference;
pub mod law;
pub mod merged;
pub mod methods;
pub mod robust;
pub mod saturation;
pub mod starts;
pub mod steady;
pub mod steady_state;
pub mod validation;

pub use cost::{Cost, Interval, fall, fall_of, rise, rise_of};
pub use difference::difference;

/// Confidence of every interval that Tare prints.
pub const CONFIDENCE: f64 = 0.95;

/// The least number of rounds for the signed-rank interval. There it is as narrow as Student's t
/// under normal noise (within 3 %), and far narrower under heavy tails. With fewer rounds, its few
/// steps allow no confidence near 95 %, and below 6 rounds it has no 95 % interval at all.
pub const SIGNED_RANK_ROUNDS_MIN: usize = 10;

/// The least number of rounds for which a cost's interval is widened if neighbouring rounds are
/// alike. In fewer, the correlation is so uncertain that it gains two points of coverage at most.
pub const WANDER_ROUNDS_MIN: usize = 20;

/// The least number of rounds for a useful figure. With fewer, an interval is right but wide:
/// Student's factor is 12.7, 4.3, 3.2, 2.8 and 2.6 for 2 to 6 rounds, and 2.4 for 7.
pub const ROUNDS_MIN: u32 = 7;

/// An estimate with its 95 % interval, on the scale of the input values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate, which is inside the interval.
    pub centre: f64,
    /// The lower bound. Minus infinity if the values allow no interval.
    pub low: f64,
    /// The upper bound. Infinity if the values allow no interval.
    pub high: f64,
    /// The number of values.
    pub rounds: u32,
}

impl Estimate {
    /// An estimate without bounds, which excludes nothing.
    fn unbounded(centre: f64, rounds: usize) -> Self {
        Self::new(centre, f64::NEG_INFINITY, f64::INFINITY, rounds)
    }

    fn new(centre: f64, low: f64, high: f64, rounds: usize) -> Self {
        Self { centre, low, high, rounds: u32::try_from(rounds).unwrap_or(u32::MAX) }
    }

    /// Whether the interval excludes `value`.
    pub fn excludes(&self, value: f64) -> bool {
        value < self.low || value > self.high
    }

    /// Moves each bound away from the estimate, to `factor` times its distance.
    #[must_use]
    pub fn widened(self, factor: f64) -> Self {
        let bound = |bound: f64| self.centre + factor * (bound - self.centre);
        // A factor of 1 changes nothing, not even by rounding.
        if factor == 1.0 {
            return self;
        }
        Self { low: bound(self.low), high: bound(self.high), ..self }
    }

    /// Converts the estimate to another scale by a growing function.
    pub fn map(self, growing: impl Fn(f64) -> f64) -> Self {
        Self {
            centre: growing(self.centre),
            low: growing(self.low),
            high: growing(self.high),
            rounds: self.rounds,
        }
    }
}

/// Returns the median. For an even number of values it is the mean of the two middle ones. `None`
/// without a value.
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

/// Returns the estimate and interval that Tare prints, from one value per round in the order of the
/// rounds. `None` without a value. One round gives an interval without bounds, because the noise is
/// unknown. Two rounds give Student's t with one degree of freedom, which is 12.7 standard errors
/// to each side.
///
/// The time grows little faster than the number of rounds.
///
/// ```
/// use tare_stats::{estimate, log_ratios};
///
/// // µs per operation in five rounds: in a container, and natively beside it.
/// let pairs = [(11.6, 6.6), (11.8, 6.5), (11.5, 6.5), (11.7, 6.7), (11.6, 6.4)];
/// let ratio = estimate(&log_ratios(pairs)).unwrap().map(f64::exp);
/// assert!(ratio.low < 1.78 && 1.78 < ratio.high, "{ratio:?}");
/// assert!(ratio.excludes(1.0));
/// ```
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    if values.len() < SIGNED_RANK_ROUNDS_MIN {
        methods::student_t(values)
    } else {
        let found = methods::signed_rank(values)?;
        let wanders = values.len() >= WANDER_ROUNDS_MIN;
        let factor = if wanders { dependence::wander_factor(values) } else { 1.0 };
        Some(found.widened(factor))
    }
}

/// Returns the quantile of the answered operations that is a percentile of all, with the missing
/// ones counted as slower than any other; `None` if the percentile falls among those.
///
/// ```
/// use tare_stats::quantile_of_answered;
///
/// assert_eq!(quantile_of_answered(50.0, 100, 100), Some(1.0));
/// assert_eq!(quantile_of_answered(50.0, 100, 102), None);
/// ```
pub fn quantile_of_answered(percent: f64, answered: u64, missing: u64) -> Option<f64> {
    // The rank of the percentile among all, from 1, counted as HdrHistogram counts.
    let rank = (percent / 100.0 * (answered + missing) as f64).ceil().max(1.0);
    (rank <= answered as f64).then(|| rank / answered as f64)
}

/// Returns the logs of the ratios `over / under`, one per round. Leaves out pairs in which a side
/// is not above 0.
pub fn log_ratios(pairs: impl IntoIterator<Item = (f64, f64)>) -> Vec<f64> {
    let sound = |x: f64| x > 0.0 && x.is_finite();
    let pairs = pairs.into_iter().filter(|&(over, under)| sound(over) && sound(under));
    pairs.map(|(over, under)| (over / under).ln()).collect()
}

#[cfg(test)]
mod tests;
