//! The methods that were compared. Each takes one value per round and returns an estimate with its
//! interval. `None` without a value. The interval has no bounds if the method has no 95 % interval
//! for so few rounds. Tare uses [`student_t`] and [`signed_rank`]. The others stay so that the
//! choice can be checked again.

use std::sync::OnceLock;

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use tare_std::rng::Rng;

use super::{CONFIDENCE, Estimate, estimate};

const TAIL: f64 = (1.0 - CONFIDENCE) / 2.0;

/// Resamples of the bootstrap methods.
pub const RESAMPLES: usize = 999;

/// A method to compute an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    StudentT,
    OrderStatistic,
    SignedRank,
    BootstrapT,
    Bca,
    /// The rule that Tare uses: [`estimate`].
    Product,
}

impl Method {
    pub const ALL: [Self; 6] = [
        Self::StudentT,
        Self::OrderStatistic,
        Self::SignedRank,
        Self::BootstrapT,
        Self::Bca,
        Self::Product,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::StudentT => "student t",
            Self::OrderStatistic => "order statistic",
            Self::SignedRank => "signed rank",
            Self::BootstrapT => "bootstrap t",
            Self::Bca => "bootstrap BCa",
            Self::Product => "tare's rule",
        }
    }

    /// Runs the method. Only the bootstrap methods use `rng`.
    pub fn estimate(self, values: &[f64], rng: &mut Rng) -> Option<Estimate> {
        match self {
            Self::StudentT => student_t(values),
            Self::OrderStatistic => order_statistic(values),
            Self::SignedRank => signed_rank(values),
            Self::BootstrapT => bootstrap_t(values, rng),
            Self::Bca => bca(values, rng),
            Self::Product => estimate(values),
        }
    }
}

/// The mean and its standard error. The error is `None` below two values.
fn mean_and_error(values: &[f64]) -> Option<(f64, Option<f64>)> {
    if values.is_empty() {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    Some((mean, (values.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt())))
}

/// Returns the two-sided 95 % quantile of Student's t: 12.71, 4.30, 3.18, 2.78 ... for 1, 2, 3, 4
/// degrees of freedom.
pub fn t_quantile(degrees: usize) -> f64 {
    static TABLE: OnceLock<Vec<f64>> = OnceLock::new();
    let compute = |degrees: usize| {
        StudentsT::new(0.0, 1.0, degrees as f64)
            .map_or(f64::INFINITY, |t| t.inverse_cdf(1.0 - TAIL))
    };
    let table = TABLE.get_or_init(|| (0..128).map(compute).collect());
    table.get(degrees).copied().unwrap_or_else(|| compute(degrees))
}

/// Returns the one-sided 95 % quantile of Student's t: 6.31, 2.92, 2.35, 2.13 ... for 1, 2, 3, 4
/// degrees of freedom.
pub fn t_quantile_one_sided(degrees: usize) -> f64 {
    StudentsT::new(0.0, 1.0, degrees as f64).map_or(f64::INFINITY, |t| t.inverse_cdf(CONFIDENCE))
}

/// Returns the mean with the interval of Student's t.
pub fn student_t(values: &[f64]) -> Option<Estimate> {
    let (mean, error) = mean_and_error(values)?;
    Some(match error {
        None => Estimate::unbounded(mean, values.len()),
        Some(error) => {
            let half = t_quantile(values.len() - 1) * error;
            Estimate::new(mean, mean - half, mean + half, values.len())
        }
    })
}

/// The largest `d` with `P(statistic <= d - 1) <= 2.5 %`, or 0. The interval then goes from the
/// d-th smallest to the d-th largest of the ranked values.
fn depth(probabilities: impl Iterator<Item = f64>) -> usize {
    let mut below = 0.0;
    probabilities
        .take_while(|p| {
            below += p;
            below <= TAIL
        })
        .count()
}

/// Inverts the sign test: the median is between two order statistics with a probability that the
/// binomial distribution gives exactly for any noise. No interval below 6 rounds.
pub fn order_statistic(values: &[f64]) -> Option<Estimate> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len();
    let median = f64::midpoint(*sorted.get(n.checked_sub(1)? / 2)?, sorted[n / 2]);
    // P(Bin(n, 1/2) = k), each computed from the previous one.
    let half_n = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let binomial = (0..n).scan(half_n, |p, k| {
        let this = *p;
        *p *= (n - k) as f64 / (k + 1) as f64;
        Some(this)
    });
    Some(match depth(binomial) {
        0 => Estimate::unbounded(median, n),
        d => Estimate::new(median, sorted[d - 1], sorted[n - d], n),
    })
}

/// The most rounds for which the distribution of the signed-rank statistic is computed exactly.
/// Above, the normal approximation with continuity correction is off by less than one rank.
const EXACT_ROUNDS_MAX: usize = 64;

/// The [`depth`] of the signed-rank statistic, which is the sum of a random subset of 1..=n.
fn signed_rank_depth(n: usize) -> usize {
    static TABLE: OnceLock<Vec<usize>> = OnceLock::new();
    let table = TABLE.get_or_init(|| (0..=EXACT_ROUNDS_MAX).map(signed_rank_depth_exact).collect());
    table.get(n).copied().unwrap_or_else(|| signed_rank_depth_normal(n))
}

fn signed_rank_depth_exact(n: usize) -> usize {
    let mut probability = vec![0.0; n * (n + 1) / 2 + 1];
    probability[0] = 1.0;
    for rank in 1..=n {
        for sum in (0..probability.len()).rev() {
            let with = if sum >= rank { probability[sum - rank] } else { 0.0 };
            probability[sum] = f64::midpoint(probability[sum], with);
        }
    }
    depth(probability.into_iter())
}

fn signed_rank_depth_normal(n: usize) -> usize {
    let n = n as f64;
    let mean = n * (n + 1.0) / 4.0;
    let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
    let last = mean + standard_normal().inverse_cdf(TAIL) * deviation - 0.5;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped above 0")]
    let depth = (last.floor() + 1.0).max(0.0) as usize;
    depth
}

/// Inverts Wilcoxon's signed-rank test: the centre of a symmetric distribution is between two order
/// statistics of the Walsh averages (the means of all pairs of values, including each value with
/// itself). Their median is the Hodges-Lehmann estimate. Exact for any symmetric noise. No interval
/// below 6 rounds.
/// Source: Hollander, Wolfe, Chicken, "Nonparametric Statistical Methods", 3rd edition, 3.2-3.3.
pub fn signed_rank(values: &[f64]) -> Option<Estimate> {
    let n = values.len();
    let last = (n * (n + 1) / 2).checked_sub(1)?;
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let kth = |k: usize| walsh_average(&sorted, k);
    let centre = f64::midpoint(kth(last / 2), kth(last.div_ceil(2)));
    Some(match signed_rank_depth(n) {
        0 => Estimate::unbounded(centre, n),
        d => Estimate::new(centre, kth(d - 1), kth(last + 1 - d), n),
    })
}

/// Finds the Walsh average of rank `k` (from 0) of sorted values without storing all averages. It
/// halves the range that contains the average. Averages rise along rows and columns, so that one
/// walk along the border between small and large ones counts those below the middle. Both ends of
/// the range are existing averages, so that ties end the search too.
pub(super) fn walsh_average(sorted: &[f64], k: usize) -> f64 {
    let n = sorted.len();
    let (mut low, mut high) = (sorted[0], sorted[n - 1]);
    while low < high {
        // The middle of two neighbouring floats can be the upper one, which would not split the
        // range.
        let middle = Some(f64::midpoint(low, high)).filter(|m| *m < high).unwrap_or(low);
        // The number of averages up to the middle, the largest of them, and the smallest above it.
        let (mut count, mut below, mut above) = (0, low, high);
        let mut end = n;
        for (row, x) in sorted.iter().enumerate() {
            while end > row && f64::midpoint(*x, sorted[end - 1]) > middle {
                end -= 1;
            }
            if end < n {
                above = above.min(f64::midpoint(*x, sorted[end.max(row)]));
            }
            if end <= row {
                break;
            }
            count += end - row;
            below = below.max(f64::midpoint(*x, sorted[end - 1]));
        }
        if k < count { high = below } else { low = above }
    }
    low
}

fn standard_normal() -> Normal {
    Normal::standard()
}

/// Draws a sample of the same size as `values`, with replacement.
fn resample(values: &[f64], rng: &mut Rng, into: &mut Vec<f64>) {
    into.clear();
    #[expect(clippy::cast_possible_truncation, reason = "below a slice's length")]
    into.extend(values.iter().map(|_| values[rng.below(values.len() as u64) as usize]));
}

/// The quantile of sorted values at the rank `(count + 1) * share`.
fn ranked(sorted: &[f64], share: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let rank = ((sorted.len() + 1) as f64 * share).round().clamp(1.0, sorted.len() as f64) as usize;
    sorted[rank - 1]
}

/// Bootstrap t on the mean: the quantiles of t are taken from resamples.
/// Source: Efron, Tibshirani, "An Introduction to the Bootstrap", 12.5.
pub fn bootstrap_t(values: &[f64], rng: &mut Rng) -> Option<Estimate> {
    let (mean, error) = mean_and_error(values)?;
    let mut drawn = Vec::with_capacity(values.len());
    let mut quotients: Vec<f64> = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        resample(values, rng, &mut drawn);
        // A resample of equal values has no standard error and no t.
        if let Some((drawn_mean, Some(drawn_error))) = mean_and_error(&drawn)
            && drawn_error > 0.0
        {
            quotients.push((drawn_mean - mean) / drawn_error);
        }
    }
    quotients.sort_unstable_by(f64::total_cmp);
    Some(match error {
        Some(error) if !quotients.is_empty() => Estimate::new(
            mean,
            mean - ranked(&quotients, 1.0 - TAIL) * error,
            mean - ranked(&quotients, TAIL) * error,
            values.len(),
        ),
        _ => Estimate::unbounded(mean, values.len()),
    })
}

/// Bias-corrected and accelerated bootstrap of the mean.
/// Source: Efron, Tibshirani, "An Introduction to the Bootstrap", 14.3.
pub fn bca(values: &[f64], rng: &mut Rng) -> Option<Estimate> {
    let (mean, error) = mean_and_error(values)?;
    if error.is_none_or(|error| error == 0.0) {
        return Some(Estimate::unbounded(mean, values.len()));
    }
    let mut drawn = Vec::with_capacity(values.len());
    let mut means: Vec<f64> = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        resample(values, rng, &mut drawn);
        means.push(drawn.iter().sum::<f64>() / drawn.len() as f64);
    }
    means.sort_unstable_by(f64::total_cmp);
    let normal = standard_normal();
    let below = means.partition_point(|&m| m < mean) as f64;
    let bias = normal.inverse_cdf((below + 0.5) / (RESAMPLES as f64 + 1.0));
    // The jackknife's influence of a value on the mean is proportional to its deviation.
    let cubes: f64 = values.iter().map(|x| (x - mean).powi(3)).sum();
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    let acceleration = cubes / (6.0 * squares.powf(1.5));
    let share = |tail: f64| {
        let z = bias + normal.inverse_cdf(tail);
        normal.cdf(bias + z / (1.0 - acceleration * z))
    };
    let (low, high) = (ranked(&means, share(TAIL)), ranked(&means, share(1.0 - TAIL)));
    Some(Estimate::new(mean, low, high, values.len()))
}
