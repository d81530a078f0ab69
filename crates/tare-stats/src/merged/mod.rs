//! Percentiles of histograms that are merged over rounds, with their intervals.
//!
//! Method: a block bootstrap. Whole rounds are drawn with replacement, as many as there are. Their
//! histograms are merged and the percentile is read, [`RESAMPLES`] times. The operations of one
//! round share the state of the host, so that the independent samples are the rounds. Both
//! environments of a comparison use the same draws, so that an influence of the host on both
//! cancels. The standard error is the standard deviation of the resampled percentiles, times
//! `sqrt(n / (n - 1))`. Student's factor for n - 1 degrees makes an interval of it, on the log
//! scale for a level and a ratio. For a mean this would be exactly Student's interval: with n
//! values the bootstrap underestimates the variance by `(n - 1) / n`. Tails are not symmetric, so
//! each side uses the distances of the resamples on its own side if they are larger.
//!
//! Rounds that resemble their neighbours, or an environment that varies more than the other, make
//! such an interval too narrow. [`super::dependence`] finds both, from the influence of each round
//! on the percentile ([`influences`]) and from its mean ([`RoundHistograms::mean_logs`]); the
//! interval is then widened ([`Estimate::widened`]). Below 10 rounds neither can be seen, so that
//! it is always widened.
//!
//! Two other methods were tried and rejected (coverage in the models of the tests;
//! docs/concepts/cost.md). The usual percentiles of the resamples hold the truth in 50 % at 2
//! rounds and in 80 to 90 % at 10. Student's t on the percentiles of single rounds estimates
//! another figure, because the mean of percentiles is not the percentile of all: at 40 rounds it
//! holds the p99 in 3 to 36 %.
//!
//! Only the running totals of each bucket are kept, in one flat array. The percentile of a resample
//! is found by a search among sums of totals, without merging histograms.
//!
//! Limits: a tail that comes from few rounds (a pause in one of ten) depends on few events, even
//! with many operations. Its interval holds the truth less often than 95 %; the tests have the
//! figures. A percentile with fewer than [`BEYOND_MIN`] operations beyond it is not reported at
//! all.

use tare_std::rng::Rng;

use super::Estimate;
use super::methods::t_quantile;

/// The number of resamples. The standard error is known within 2.5 % of itself for any seed.
pub const RESAMPLES: usize = 800;

/// The least number of operations beyond a percentile that is reported. A count of 10 is known
/// within a third of itself, and so is the position of the percentile in the tail.
pub const BEYOND_MIN: u64 = 10;

/// The most groups of rounds. More rounds are joined with their neighbours. At this number
/// Student's factor is about that of normal noise, and more draws gain nothing.
pub const GROUPS_MAX: usize = 100;

/// A bucket of a histogram: its lowest value, its highest value, and its count.
pub type Bucket = (u64, u64, u64);

/// The histograms of several rounds, with common buckets.
#[derive(Clone, Debug, Default)]
pub struct RoundHistograms {
    /// The lowest and highest value of each bucket, in rising order.
    buckets: Vec<(f64, f64)>,
    /// The number of values up to and in a bucket, for every round. The rounds of one bucket are
    /// adjacent.
    totals: Vec<u64>,
    rounds: usize,
}

/// The resamples of a bootstrap: how often each round was drawn in each.
#[derive(Clone, Debug)]
pub struct Resamples {
    times: Vec<u32>,
    rounds: usize,
}

impl Resamples {
    /// Draws rounds. The same seed and number of rounds give the same draws.
    pub fn new(seed: u64, rounds: usize) -> Self {
        let mut rng = Rng::new(seed);
        let mut times = vec![0u32; rounds * RESAMPLES];
        for row in times.chunks_exact_mut(rounds.max(1)) {
            for _ in 0..rounds {
                #[expect(clippy::cast_possible_truncation, reason = "below a slice's length")]
                let drawn = rng.below(rounds as u64) as usize;
                row[drawn] += 1;
            }
        }
        Self { times, rounds }
    }

    /// Draws runs of `length` neighbouring rounds, for the comparison of methods. The last round is
    /// followed by the first.
    /// Source: Politis, Romano, "A Circular Block-Resampling Procedure for Stationary Data" (1992).
    pub fn in_blocks(seed: u64, rounds: usize, length: usize) -> Self {
        let mut rng = Rng::new(seed);
        let mut times = vec![0u32; rounds * RESAMPLES];
        for row in times.chunks_exact_mut(rounds.max(1)) {
            let mut start = 0;
            for drawn in 0..rounds {
                if drawn % length == 0 {
                    #[expect(clippy::cast_possible_truncation, reason = "below a slice's length")]
                    let drawn = rng.below(rounds as u64) as usize;
                    start = drawn;
                }
                row[(start + drawn % length) % rounds] += 1;
            }
        }
        Self { times, rounds }
    }
}

impl RoundHistograms {
    /// Takes one list of buckets for each round, in any order. The buckets of all rounds must have
    /// the same edges, like those of HdrHistograms of one precision.
    pub fn new(rounds: &[Vec<Bucket>]) -> Self {
        let all = rounds.iter().flatten();
        let mut edges: Vec<(u64, u64)> = all.map(|(low, high, _)| (*high, *low)).collect();
        edges.sort_unstable();
        edges.dedup_by_key(|(high, _)| *high);
        let width = rounds.len();
        let mut totals = vec![0u64; edges.len() * width];
        for (round, buckets) in rounds.iter().enumerate() {
            for (_, high, count) in buckets {
                let place = edges.partition_point(|(edge, _)| edge < high);
                totals[place * width + round] += count;
            }
        }
        for place in width..totals.len() {
            totals[place] += totals[place - width];
        }
        let buckets = edges.iter().map(|(high, low)| (*low as f64, *high as f64)).collect();
        Self { buckets, totals, rounds: width }
    }

    pub fn len(&self) -> usize {
        self.rounds
    }

    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The number of values in all rounds.
    pub fn count(&self) -> u64 {
        self.row(self.buckets.len().wrapping_sub(1)).iter().sum()
    }

    /// The number of values beyond a percentile of all rounds together.
    pub fn beyond(&self, quantile: f64) -> u64 {
        let count = self.count();
        count - rank(quantile, count)
    }

    /// A percentile of all rounds together: the highest value of its bucket, as in HdrHistogram.
    pub fn percentile(&self, quantile: f64) -> Option<f64> {
        let (place, _) = self.find(quantile, &vec![1; self.rounds])?;
        Some(self.buckets[place].1)
    }

    /// The percentile in every resample. Values are assumed to be spread evenly inside a bucket, so
    /// that rounds that differ by less than a bucket do not look equal.
    pub fn resampled(&self, quantile: f64, draws: &Resamples) -> Vec<f64> {
        debug_assert_eq!(self.rounds, draws.rounds, "draws are of as many rounds");
        let rows = draws.times.chunks_exact(self.rounds.max(1));
        let one = |times: &[u32]| {
            let (place, share) = self.find(quantile, times)?;
            let (low, high) = self.buckets[place];
            Some(low + share * (high - low))
        };
        rows.map(|times| one(times).unwrap_or(f64::NAN)).collect()
    }

    /// Returns the share of each round's values that are beyond a percentile of all rounds.
    pub fn shares_beyond(&self, quantile: f64) -> Vec<f64> {
        let Some((place, within)) = self.find(quantile, &vec![1; self.rounds]) else {
            return vec![0.0; self.rounds];
        };
        let last = self.row(self.buckets.len() - 1);
        let here = self.row(place);
        let before = if place == 0 { vec![0; self.rounds] } else { self.row(place - 1).to_vec() };
        let share = |round: usize| {
            let inside = within * (here[round] - before[round]) as f64;
            let below = before[round] as f64 + inside;
            1.0 - below / (last[round] as f64).max(1.0)
        };
        (0..self.rounds).map(share).collect()
    }

    /// Returns the mean of the logs of each round's values. 0 for a round without a value.
    pub fn mean_logs(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.rounds];
        for (place, (low, high)) in self.buckets.iter().enumerate() {
            let log = f64::midpoint(*low, *high).max(f64::MIN_POSITIVE).ln();
            for (round, total) in self.row(place).iter().enumerate() {
                let before = if place == 0 { 0 } else { self.row(place - 1)[round] };
                sums[round] += log * (total - before) as f64;
            }
        }
        let counts = self.row(self.buckets.len().wrapping_sub(1));
        sums.iter().zip(counts).map(|(sum, count)| sum / (*count as f64).max(1.0)).collect()
    }

    /// The totals of a bucket. Empty for a bucket that does not exist.
    fn row(&self, place: usize) -> &[u64] {
        let start = place.saturating_mul(self.rounds);
        self.totals.get(start..start.saturating_add(self.rounds)).unwrap_or_default()
    }

    /// The bucket of a percentile, and its position in the bucket. `None` if the drawn rounds have
    /// no value.
    fn find(&self, quantile: f64, times: &[u32]) -> Option<(usize, f64)> {
        let total = |place: usize| -> u64 {
            self.row(place).iter().zip(times).map(|(total, times)| total * u64::from(*times)).sum()
        };
        let all = total(self.buckets.len().checked_sub(1)?);
        let rank = rank(quantile, all);
        let (mut from, mut to) = (0, self.buckets.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            if total(middle) < rank {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        let before = if from == 0 { 0 } else { total(from - 1) };
        let here = total(from) - before;
        (all > 0 && here > 0).then(|| (from, (rank - before) as f64 / here as f64))
    }
}

/// The number of values at or below a percentile, at least one, as HdrHistogram counts.
fn rank(quantile: f64, count: u64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to count")]
    let rank = (quantile * count as f64).ceil() as u64;
    rank.clamp(count.min(1), count)
}

/// Returns how much each round moves a percentile, in the scale of its resamples: the round's share
/// of values beyond it ([`RoundHistograms::shares_beyond`]), stretched so that their mean has the
/// variance of the resamples.
pub fn influences(resampled: &[f64], shares_beyond: &[f64]) -> Vec<f64> {
    let (of_resamples, of_shares) = (variance(resampled), variance(shares_beyond));
    let stretch = (of_resamples / of_shares * shares_beyond.len() as f64).sqrt();
    let stretch = if stretch.is_finite() { stretch } else { 0.0 };
    shares_beyond.iter().map(|share| stretch * share).collect()
}

fn variance(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0)
}

/// Returns an interval around a figure from its resamples of `rounds` rounds, all on one scale. The
/// interval has no bounds for one round, or if a resample has no value. It is right if rounds are
/// independent and vary alike in both environments; the caller widens it where they are not.
pub fn around(centre: f64, resampled: &[f64], rounds: usize) -> Estimate {
    let unbounded = Estimate::unbounded(centre, rounds);
    let degrees = rounds.min(GROUPS_MAX).saturating_sub(1);
    if degrees == 0 || resampled.len() < 2 || resampled.iter().any(|x| !x.is_finite()) {
        return unbounded;
    }
    let n = resampled.len() as f64;
    // The sum of squares as if the other side were as far away as this one.
    let side = |is: fn(f64) -> bool| -> f64 {
        let away = resampled.iter().map(|x| x - centre).filter(|x| is(*x));
        2.0 * away.map(|x| x * x).sum::<f64>() / (n - 1.0)
    };
    let both = variance(resampled);
    let unbiased = 1.0 + 1.0 / degrees as f64;
    let half = |side: f64| t_quantile(degrees) * (unbiased * both.max(side)).sqrt();
    let (below, above) = (half(side(|x| x < 0.0)), half(side(|x| x > 0.0)));
    Estimate { low: centre - below, high: centre + above, ..unbounded }
}

#[cfg(test)]
mod tests;
