//! Noise that an environment has alone: by how much an interval over rounds must be wider.
//!
//! An interval over rounds assumes that rounds are independent of each other and that those that
//! were measured show what rounds can be like. What the host does to a whole round, it does to both
//! environments of a ratio, and it cancels. Two kinds of noise do not cancel:
//!
//! - **The environment wanders**: neighbouring rounds are alike, so that n rounds hold less than n
//!   independent ones ([`wander_factor`]).
//! - **The environment varies more than the other**, mostly skewed: few rounds decide its
//!   percentiles, and the sample may not have them ([`unequal`]).
//!
//! Both are tests with an answer of 1 in quiet noise, so that intervals there stay what they are.
//! `examples/validate_latency.rs` shows the coverage; docs/concepts/cost.md says what else was
//! tried.
//!
//! Limits: below [`ROUNDS_MIN`] rounds neither is visible, so that intervals of latencies are
//! always wide there. A state that lasts longer than the study is not noise but part of the figure.

use crate::methods::{t_quantile, t_quantile_one_sided};

/// The least number of rounds that show whether they are independent and alike.
pub const ROUNDS_MIN: usize = 10;

/// The smallest correlation of neighbouring rounds that counts, as a multiple of its standard error
/// without any (`1 / sqrt(n)`). One in seven quiet studies reaches it, so that the median width of
/// quiet intervals grows by less than a tenth.
const CORRELATION_MIN: f64 = 1.0;
/// The largest correlation of neighbours that an estimate may report. At 1 no number of rounds
/// would be enough.
const CORRELATION_MAX: f64 = 0.9;
/// The fewest degrees of freedom. One degree has a factor of 12.7, as if two rounds were measured.
const DEGREES_MIN: usize = 2;
/// The most cosines of [`slow_variance`]. More gain nothing: Student's factor is 2.1 there.
const COSINES_MAX: usize = 20;
/// The widening of an environment that varies more than the other, at most. Chosen by simulation,
/// like [`UNEQUAL_ROUNDS`]: at 100 rounds it is 1.4.
const UNEQUAL_MAX: f64 = 3.0;
const UNEQUAL_ROUNDS: f64 = 40.0;

/// Returns the factor by which the half width of an interval over these values, which are in the
/// order of their rounds, must grow because neighbours are alike. At least 1.
///
/// Below [`ROUNDS_MIN`] values nothing shows whether they are. They then count as two independent
/// ones: the variance is that at the slowest cosine, with one degree of freedom. From there on, the
/// factor is 1 unless neighbours correlate. If they do, the larger of two estimates counts. One is
/// the variance of a mean of a first-order autoregressive process with the corrected correlation,
/// and Student's factor for the number of independent rounds that are left (right for a few
/// rounds). The other is the variance at the slowest cosines, with one degree of freedom for each
/// (right for any process, but wide for few rounds). Sources: Kendall, "Note on Bias in the
/// Estimation of Autocorrelation", Biometrika 41 (1954); Lazarus, Lewis, Stock and Watson, "HAR
/// Inference: Recommendations for Practice", Journal of Business & Economic Statistics 36 (2018).
///
/// ```
/// use tare_stats::dependence::wander_factor;
///
/// let alternating: Vec<f64> = (0..40).map(|n| f64::from(n % 2)).collect();
/// assert_eq!(wander_factor(&alternating), 1.0);
/// let rising: Vec<f64> = (0..40).map(f64::from).collect();
/// assert!(wander_factor(&rising) > 3.0);
/// ```
pub fn wander_factor(values: &[f64]) -> f64 {
    let count = values.len();
    if count < 2 {
        return 1.0;
    }
    let n = count as f64;
    let mean = values.iter().sum::<f64>() / n;
    let centred: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let squares: f64 = centred.iter().map(|x| x * x).sum();
    let slow = |cosines: usize| {
        t_quantile(cosines) * (slow_variance(&centred, cosines) / squares * (n - 1.0)).sqrt()
    };
    if count < ROUNDS_MIN {
        // Not a number if all values are equal.
        return (slow(1) / t_quantile(count - 1)).max(1.0);
    }
    let neighbours: f64 = centred.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let correlation = neighbours / squares;
    if !correlation.is_finite() || correlation <= CORRELATION_MIN / n.sqrt() {
        return 1.0;
    }
    // Its expected value is smaller than the correlation by about (1 + 4 correlation) / n.
    let corrected = ((n * correlation + 1.0) / (n - 4.0)).clamp(0.0, CORRELATION_MAX);
    let left = n * (1.0 - corrected.powi(2)) / (1.0 + corrected.powi(2)) - 1.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to count")]
    let degrees = (left.round() as usize).clamp(DEGREES_MIN, count - 1);
    let regressive = t_quantile(degrees) * mean_variance_ratio(count, corrected).sqrt();
    (regressive.max(slow(cosines(count))) / t_quantile(count - 1)).max(1.0)
}

/// Returns the variance of the mean of a first-order autoregressive process, divided by what the
/// variance of its values lets expect.
fn mean_variance_ratio(count: usize, correlation: f64) -> f64 {
    let n = count as f64;
    let mut power = 1.0;
    let mut sum = 0.0;
    for distance in 1..count {
        power *= correlation;
        sum += (1.0 - distance as f64 / n) * power;
    }
    let of_mean = (1.0 + 2.0 * sum) / n;
    let of_values = (1.0 - of_mean) * n / (n - 1.0);
    n * of_mean / of_values
}

/// The number of cosines for `count` values.
fn cosines(count: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
    let cosines = (0.4 * (count as f64).powf(2.0 / 3.0)) as usize;
    cosines.clamp(DEGREES_MIN, COSINES_MAX)
}

/// Returns the mean square of the projections on the slowest cosines. It is the variance of the
/// values if they are independent.
fn slow_variance(centred: &[f64], cosines: usize) -> f64 {
    let n = centred.len() as f64;
    let squares = (1..=cosines).map(|number| {
        let step = std::f64::consts::PI * number as f64 / n;
        let (turn_sin, turn_cos) = step.sin_cos();
        let (mut sin, mut cos) = (step / 2.0).sin_cos();
        let mut sum = 0.0;
        for value in centred {
            sum += value * cos;
            (sin, cos) = (sin * turn_cos + cos * turn_sin, cos * turn_cos - sin * turn_sin);
        }
        2.0 / n * sum * sum
    });
    squares.sum::<f64>() / cosines as f64
}

/// One of two environments varies more from round to round than the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unequal {
    /// Whether it is the first.
    pub first: bool,
    /// The factor by which the half width of an interval must grow.
    pub factor: f64,
}

/// Returns which of two environments varies more from round to round, from one value of each round
/// for both. `None` if they vary alike, or for less than [`ROUNDS_MIN`] rounds.
///
/// The test is that of Pitman and Morgan ("A Note on Normal Correlation", Biometrika 31, 1939),
/// one-sided at 5 %: the variances of a pair differ if sum and difference correlate. It allows for
/// what the host does to both.
///
/// ```
/// use tare_stats::dependence::unequal;
///
/// let quiet: Vec<f64> = (0..20).map(|n| f64::from(n * 7 % 20)).collect();
/// let loud: Vec<f64> = (0..20).map(|n| 5.0 * f64::from(n * 3 % 20)).collect();
/// assert!(unequal(&loud, &quiet).is_some_and(|found| found.first && found.factor == 3.0));
/// assert!(unequal(&quiet, &loud).is_some_and(|found| !found.first));
/// assert_eq!(unequal(&quiet, &quiet), None);
/// ```
pub fn unequal(first: &[f64], second: &[f64]) -> Option<Unequal> {
    let count = first.len().min(second.len());
    if count < ROUNDS_MIN {
        return None;
    }
    let n = count as f64;
    let pairs = || first.iter().zip(second);
    let (sum, difference) = pairs().fold((0.0, 0.0), |(s, d), (a, b)| (s + a + b, d + a - b));
    let (sum, difference) = (sum / n, difference / n);
    let (mut sums, mut differences, mut products) = (0.0, 0.0, 0.0);
    for (a, b) in pairs() {
        let (s, d) = (a + b - sum, a - b - difference);
        sums += s * s;
        differences += d * d;
        products += s * d;
    }
    let correlation = products / (sums * differences).sqrt();
    let t = correlation * ((n - 2.0) / (1.0 - correlation * correlation)).sqrt();
    let differ = t.abs() > t_quantile_one_sided(count - 2);
    let factor = (1.0 + UNEQUAL_ROUNDS / n).min(UNEQUAL_MAX);
    differ.then_some(Unequal { first: t > 0.0, factor })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_std::rng::Rng;

    /// A process whose neighbours correlate by `correlation`.
    fn process(correlation: f64, count: usize, rng: &mut Rng) -> Vec<f64> {
        let mut state = rng.normal();
        let fresh = (1.0 - correlation * correlation).sqrt();
        (0..count)
            .map(|_| {
                state = correlation * state + fresh * rng.normal();
                state
            })
            .collect()
    }

    fn median_factor(correlation: f64, count: usize) -> f64 {
        let mut rng = Rng::new(3);
        let factors = (0..501).map(|_| wander_factor(&process(correlation, count, &mut rng)));
        crate::median(factors).unwrap()
    }

    #[test]
    fn widens_only_dependent_values() {
        for count in [ROUNDS_MIN, 20, 40, 100] {
            assert!(median_factor(0.0, count) < 1.1, "{count}");
        }
        // The true factor of many values is the square root of (1 + 0.8) / (1 - 0.8).
        let many = median_factor(0.8, 500);
        assert!((2.6..3.8).contains(&many), "{many}");
        assert_eq!(wander_factor(&[1.0; 20]), 1.0);
        assert_eq!(wander_factor(&[1.0; 3]), 1.0);
        assert!((wander_factor(&[1.0, 2.0]) - 1.0).abs() < 1e-9, "two values have one degree");
        assert!((median_factor(0.0, 5) - 3.0).abs() < 1.0, "{}", median_factor(0.0, 5));
    }

    #[test]
    fn cosines_give_the_variance_of_independent_values() {
        let mut rng = Rng::new(5);
        let mean: f64 = (0..400).map(|_| slow_variance(&process(0.0, 50, &mut rng), 5)).sum();
        assert!((mean / 400.0 - 1.0).abs() < 0.15, "{mean}");
    }

    #[test]
    fn unequal_noise_of_pairs() {
        let mut rng = Rng::new(7);
        let (mut same, mut first) = (0, 0);
        for _ in 0..400 {
            // What both share varies more than the quiet ones alone.
            let shared: Vec<f64> = (0..20).map(|_| 2.0 * rng.normal()).collect();
            let mut with = |own: f64| -> Vec<f64> {
                shared.iter().map(|shared| shared + own * rng.normal()).collect()
            };
            let (one, other, loud) = (with(1.0), with(1.0), with(6.0));
            same += usize::from(unequal(&one, &other).is_some());
            first += usize::from(unequal(&loud, &other).is_some_and(|found| found.first));
        }
        assert!(same < 60 && first > 350, "{same} {first}");
    }
}
