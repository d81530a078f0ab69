//! Robust means of a table with one row per round and one column per environment. The means of
//! shares add up. [`cleaned`] first pulls outliers back, and the interval of a mean accounts for
//! that ([`mean_with_probability`]). [`holm`] corrects probabilities for the number of comparisons.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::methods::{student_t, t_quantile};
use crate::{Estimate, SIGNED_RANK_ROUNDS_MIN, median};

/// The largest usual distance, in standard deviations. Normal noise exceeds it 3 times in 1,000.
const USUAL: f64 = 3.0;

/// Returns the mean with Student's interval, and the probability of a mean at least as far from 0
/// if the true mean is 0.
///
/// `pulled` is the share of figures that were pulled back. They are nearer to the mean than the
/// original figures, so the standard error is divided by the share of the other figures (Huber,
/// "Robust Statistics", 2nd edition, 6.8).
pub fn mean_with_probability(values: &[f64], pulled: f64) -> Option<(Estimate, f64)> {
    let mut estimate = student_t(values)?;
    let widened = |end: f64| estimate.centre + (end - estimate.centre) / (1.0 - pulled);
    (estimate.low, estimate.high) = (widened(estimate.low), widened(estimate.high));
    let degrees = values.len().saturating_sub(1) as f64;
    if degrees < 1.0 {
        return Some((estimate, 1.0));
    }
    let quantile = t_quantile(values.len() - 1);
    let error = (estimate.high - estimate.centre) / quantile;
    let probability = match (error > 0.0, estimate.centre == 0.0) {
        (false, true) => 1.0,
        (false, false) => 0.0,
        (true, _) => StudentsT::new(0.0, 1.0, degrees)
            .map_or(1.0, |t| 2.0 * t.sf((estimate.centre / error).abs())),
    };
    Some((estimate, probability))
}

/// Returns the probabilities corrected by Holm's method for the number of comparisons.
/// Source: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
/// Statistics 6, 1979.
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut ranks: Vec<usize> = (0..probabilities.len()).collect();
    ranks.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut corrected = vec![1.0; probabilities.len()];
    let mut least = 0.0f64;
    for (rank, index) in ranks.into_iter().enumerate() {
        let left = (probabilities.len() - rank) as f64;
        least = least.max(probabilities[index] * left).min(1.0);
        corrected[index] = least;
    }
    corrected
}

/// Returns the figures with outliers pulled back, and the share of figures that were.
///
/// Slices on a busy machine have heavy tails, which distort means. A robust estimate of each share
/// would weight the rounds differently for each share, and the shares would no longer add up.
/// Therefore the common table is cleaned once. The usual value of a figure is the environment's
/// median times the level of the round, on the log scale. A figure that is farther than `USUAL`
/// standard deviations from its usual value is moved to that distance. (These are Huber's
/// pseudo-values, "Robust Statistics", 2nd edition, 1.7, of the two-way table.) The method ignores
/// signs and shares. It therefore shifts no share if the noise is symmetric, and leaves normal
/// noise alone.
pub fn cleaned(rounds: &[Vec<f64>]) -> (Vec<Vec<f64>>, f64) {
    let mut table = rounds.to_vec();
    let columns = rounds.first().map_or(0, Vec::len);
    if rounds.len() < SIGNED_RANK_ROUNDS_MIN || columns == 0 {
        return (table, 0.0);
    }
    let mut logs: Vec<Vec<f64>> =
        rounds.iter().map(|round| round.iter().map(|us| us.ln()).collect()).collect();
    // The residual of each figure without its environment's median and its round's level.
    let usual: Vec<f64> = (0..columns).map(|c| middle(logs.iter().map(|round| round[c]))).collect();
    for round in &mut logs {
        round.iter_mut().zip(&usual).for_each(|(log, usual)| *log -= usual);
        let level = middle(round.iter().copied());
        round.iter_mut().for_each(|log| *log -= level);
    }
    let all = deviation(logs.iter().flatten().copied());
    let mut pulled = 0u32;
    for column in 0..columns {
        let own = deviation(logs.iter().map(|round| round[column]));
        let limit = USUAL * own.max(all);
        for (round, left) in table.iter_mut().zip(&logs) {
            let left = left[column];
            if left.abs() > limit {
                round[column] *= (limit.copysign(left) - left).exp();
                pulled += 1;
            }
        }
    }
    (table, f64::from(pulled) / (rounds.len() * columns) as f64)
}

/// The standard deviation of normal noise around 0, from the median of the absolute values.
fn deviation(values: impl Iterator<Item = f64>) -> f64 {
    // 1 / the third quartile of the standard normal distribution.
    1.4826 * middle(values.map(f64::abs))
}

/// The median, or 0 of nothing.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    median(values).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holm_corrects_for_number_of_comparisons() {
        let check = |probabilities: &[f64], expect: &[f64]| {
            let corrected = holm(probabilities);
            assert_eq!(corrected.len(), expect.len());
            for (found, expect) in corrected.iter().zip(expect) {
                assert!((found - expect).abs() < 1e-12, "{corrected:?}");
            }
        };
        check(&[0.04, 0.01, 0.03], &[0.06, 0.03, 0.06]);
        check(&[0.9, 0.8], &[1.0, 1.0]);
        check(&[], &[]);
    }

    #[test]
    fn pulls_back_one_outlier() {
        let mut rounds: Vec<Vec<f64>> = (0..12)
            .map(|k| vec![10.0 + 0.01 * f64::from(k), 20.0 - 0.01 * f64::from(k), 5.0])
            .collect();
        rounds[3][1] = 400.0;
        let (table, pulled) = cleaned(&rounds);
        assert!(table[3][1] < 30.0, "{:?}", table[3]);
        assert_eq!(table[3][0], rounds[3][0]);
        assert!(pulled > 0.0 && pulled < 0.2, "{pulled}");
    }
}
