//! Shares and interactions from figures alone: one row per block, one column per environment.
//!
//! A share, and an interaction, is a linear combination of the figures of one block. So each block
//! gives one value of it, and the values of all blocks give a mean with Student's interval; no
//! theory of its own is needed. The mean is taken, and not the signed-rank estimate of the costs,
//! because means of parts add up to the mean of the whole.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::orders::{Set, sets_of};
use crate::stats::methods::student_t;
use crate::stats::{Estimate, SIGNED_RANK_BLOCKS_MIN};

/// So many standard deviations are usual. Normal noise exceeds it 3 times in 1,000.
const USUAL: f64 = 3.0;

/// What each figure counts for.
pub(super) type Weights = BTreeMap<Set, f64>;

/// A share: the mean, over the orders, of what the step adds where it stands.
///
/// Over all orders this is Shapley's value ("A value for n-person games", 1953), and where a step
/// needs another, over all orders that respect it, that of Faigle and Kern ("The Shapley value for
/// cooperative games under precedence constraints", Int. J. of Game Theory 21, 1992). Within every
/// single order the additions sum up to the whole, so the shares do for any choice of orders.
pub(super) fn share(orders: &[Vec<usize>], step: usize) -> Weights {
    let each = 1.0 / orders.len() as f64;
    let mut weights = Weights::new();
    for order in orders {
        let mut sets = sets_of(order).zip(order);
        if let Some((before, _)) = sets.find(|(_, taken)| **taken == step) {
            *weights.entry(before | 1 << step).or_default() += each;
            *weights.entry(before).or_default() -= each;
        }
    }
    weights
}

/// How much more two steps add together than each alone, where they stand next to each other:
/// `v(S+a+b) - v(S+a) - v(S+b) + v(S)`, as a mean over the orders in which they do and for which
/// all four were measured. Over all orders this is Shapley's interaction index (Grabisch and
/// Roubens, "An axiomatic approach to the concept of interaction among players in cooperative
/// games", Int. J. of Game Theory 28, 1999). `None` if there is no such order.
pub(super) fn interaction(
    orders: &[Vec<usize>],
    measured: &dyn Fn(Set) -> bool,
    pair: (usize, usize),
) -> Option<Weights> {
    let (a, b) = (1 << pair.0, 1 << pair.1);
    let mut places = Vec::new();
    for order in orders {
        for (before, two) in sets_of(order).zip(order.windows(2)) {
            let here = [pair.0, pair.1] == *two || [pair.1, pair.0] == *two;
            if here && measured(before | a) && measured(before | b) {
                places.push(before);
            }
        }
    }
    let each = 1.0 / places.len() as f64;
    let mut weights = Weights::new();
    for before in &places {
        for (set, sign) in [(a | b, 1.0), (a, -1.0), (b, -1.0), (0, 1.0)] {
            *weights.entry(before | set).or_default() += sign * each;
        }
    }
    (!places.is_empty()).then_some(weights)
}

/// One value per block.
pub(super) fn values(
    blocks: &[Vec<f64>],
    columns: &BTreeMap<Set, usize>,
    weights: &Weights,
) -> Vec<f64> {
    let value = |block: &Vec<f64>| {
        let part = |(set, weight): (&Set, &f64)| Some(weight * block.get(*columns.get(set)?)?);
        weights.iter().filter_map(part).sum()
    };
    blocks.iter().map(value).collect()
}

/// Mean and Student's interval, and the probability of a mean as far from 0 if it were 0.
///
/// `pulled`: the share of figures that were pulled back. They lie nearer to the mean than what they
/// were made of, so the standard error of what they left is divided by the share of the others
/// (Huber, "Robust Statistics", 2nd edition, 6.8).
pub(super) fn mean(values: &[f64], pulled: f64) -> Option<(Estimate, f64)> {
    let mut estimate = student_t(values)?;
    let widened = |end: f64| estimate.centre + (end - estimate.centre) / (1.0 - pulled);
    (estimate.low, estimate.high) = (widened(estimate.low), widened(estimate.high));
    let degrees = values.len().saturating_sub(1) as f64;
    if degrees < 1.0 {
        return Some((estimate, 1.0));
    }
    let quantile = crate::stats::methods::t_quantile(values.len() - 1);
    let error = (estimate.high - estimate.centre) / quantile;
    let probability = match (error > 0.0, estimate.centre == 0.0) {
        (false, true) => 1.0,
        (false, false) => 0.0,
        (true, _) => StudentsT::new(0.0, 1.0, degrees)
            .map_or(1.0, |t| 2.0 * t.sf((estimate.centre / error).abs())),
    };
    Some((estimate, probability))
}

/// Holm's correction: how improbable each is, given that so many were looked at.
/// Source: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
/// Statistics 6, 1979.
pub(super) fn holm(probabilities: &[f64]) -> Vec<f64> {
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

/// The figures with their outliers pulled back, and what share of them was.
///
/// Slices on a busy machine have heavy tails, which means do not stand; but a robust estimate of
/// each share would weigh other blocks for each, and the shares would no longer add up. So the table
/// that all shares are made of is cleaned once: a figure that is farther than [`USUAL`] standard
/// deviations from what is usual for its environment in such a block (the environment's median
/// times the block's own level, on the log scale) is put at that distance. (Huber's pseudo-values,
/// "Robust Statistics", 2nd edition, 1.7, of the two-way table.) It knows no sign and no share, so
/// it moves no share to either side where the noise is symmetric, and normal noise is left alone.
pub(super) fn cleaned(blocks: &[Vec<f64>]) -> (Vec<Vec<f64>>, f64) {
    let mut table = blocks.to_vec();
    let columns = blocks.first().map_or(0, Vec::len);
    if blocks.len() < SIGNED_RANK_BLOCKS_MIN || columns == 0 {
        return (table, 0.0);
    }
    let mut logs: Vec<Vec<f64>> =
        blocks.iter().map(|block| block.iter().map(|us| us.ln()).collect()).collect();
    // What is left of each figure without its environment's median and its block's level.
    let usual: Vec<f64> = (0..columns).map(|c| median(logs.iter().map(|block| block[c]))).collect();
    for block in &mut logs {
        block.iter_mut().zip(&usual).for_each(|(log, usual)| *log -= usual);
        let level = median(block.iter().copied());
        block.iter_mut().for_each(|log| *log -= level);
    }
    let all = deviation(logs.iter().flatten().copied());
    let mut pulled = 0u32;
    for column in 0..columns {
        let own = deviation(logs.iter().map(|block| block[column]));
        let limit = USUAL * own.max(all);
        for (block, left) in table.iter_mut().zip(&logs) {
            let left = left[column];
            if left.abs() > limit {
                block[column] *= (limit.copysign(left) - left).exp();
                pulled += 1;
            }
        }
    }
    (table, f64::from(pulled) / (blocks.len() * columns) as f64)
}

/// Standard deviation of normal noise around 0, from the median of its distances.
fn deviation(values: impl Iterator<Item = f64>) -> f64 {
    // 1 / the third quartile of the standard normal distribution.
    1.4826 * median(values.map(f64::abs))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n => f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
    }
}
