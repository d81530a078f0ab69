//! The capacity of an environment under a service level objective: the fixed rate at which half of
//! the slices keep it.
//!
//! Method: an up-and-down staircase (Dixon and Mood, 1948). A slice that keeps the objective makes
//! the rate of the next one greater by a factor, one that does not makes it smaller by the same
//! factor. At every change of direction the factor becomes its square root, down to
//! `FACTOR_LEAST`; from then on the rates lie around the capacity, and count. Each step is half to
//! one and a half times as long, by chance, because rates of equal steps would be a few values
//! whose mean is not the capacity. Neighbouring rates depend on each other, so that the interval is
//! that of the means of [`BATCHES`] stretches of rounds.
//!
//! Limits: a rate moves by 5 % at a time, so that it follows a capacity that changes during a study
//! only slowly. Where an objective is kept or missed by chance over a wide range of rates (27 %
//! kept 10 % above the capacity), intervals of 60 rounds hold the truth in 90 % of searches, not
//! 95 %.

use tare_std::rng::{Rng, mix64};

use crate::probe::Counter;
use crate::record::{Phase, Slice};

/// The counter of a slice that says whether it kept the objective: 1 or 0.
pub const KEPT: &str = "slo_kept_share";

/// The factor between the first two rates.
const FACTOR_FIRST: f64 = 1.6;
const FACTOR_LEAST: f64 = 1.05;

/// Stretches of rounds whose means are the figures of an interval.
pub const BATCHES: usize = 5;
/// Fewer rounds have no interval.
const ROUNDS_MIN: usize = 20;

/// One slice of the search: its rate in operations/s, and whether it kept the objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub round: u32,
    pub rate_per_s: f64,
    pub kept: bool,
}

/// Returns the steps of one environment under one workload, in their order. Void slices are none.
pub fn steps<'s>(
    slices: impl IntoIterator<Item = &'s Slice>,
    workload: &str,
    environment: &str,
) -> Vec<Step> {
    let step = |slice: &Slice| {
        let kept = slice.counters.iter().find(|counter| counter.name == KEPT)?.value > 0.5;
        Some(Step { round: slice.round, rate_per_s: slice.rate_per_s?, kept })
    };
    let of = |slice: &&Slice| {
        slice.phase == Phase::Slo
            && slice.void.is_none()
            && slice.workload == workload
            && slice.environment == environment
    };
    slices.into_iter().filter(of).filter_map(step).collect()
}

/// Returns the rate of the next step, and the number of steps before the rates count, if they do.
/// `None` without a step.
pub fn next(steps: &[Step]) -> Option<(f64, Option<usize>)> {
    let mut factor = FACTOR_FIRST;
    let mut before: Option<bool> = None;
    let mut settled = None;
    for (number, step) in steps.iter().enumerate() {
        if before.is_some_and(|before| before != step.kept) {
            factor = factor.sqrt().max(FACTOR_LEAST);
        }
        if factor <= FACTOR_LEAST && settled.is_none() {
            settled = Some(number);
        }
        before = Some(step.kept);
    }
    let last = steps.last()?;
    let chance = Rng::new(mix64(last.rate_per_s.to_bits() ^ u64::from(last.round))).next_f64();
    let step = factor.powf(0.5 + chance);
    Some((if last.kept { last.rate_per_s * step } else { last.rate_per_s / step }, settled))
}

/// Returns the steps whose rates count.
pub fn settled(steps: &[Step]) -> &[Step] {
    match next(steps) {
        Some((_, Some(from))) => &steps[from..],
        _ => &[],
    }
}

/// Returns the means of [`BATCHES`] equal stretches of the values; none of fewer than 20.
pub fn batches(values: &[f64]) -> Vec<f64> {
    if values.len() < ROUNDS_MIN {
        return Vec::new();
    }
    let length = values.len() / BATCHES;
    let mean = |batch: &[f64]| batch.iter().sum::<f64>() / length as f64;
    values.chunks_exact(length).take(BATCHES).map(mean).collect()
}

/// Returns the counter of a slice that kept the objective or did not.
pub(crate) fn counter(kept: bool) -> Counter {
    Counter { name: KEPT.into(), value: f64::from(u8::from(kept)) }
}

#[cfg(test)]
mod tests {
    use tare_stats::{estimate, fall_of};

    use super::*;

    /// Simulates the search in a system that keeps the objective with a probability that falls
    /// around its capacity: to 27 % at `width` (log scale) above it.
    fn search(rng: &mut Rng, first: f64, capacity: f64, width: f64, rounds: u32) -> Vec<Step> {
        let mut steps = Vec::new();
        for round in 0..rounds {
            let rate_per_s = next(&steps).map_or(first, |(rate, _)| rate);
            let chance = 1.0 / (1.0 + ((rate_per_s / capacity).ln() / width).exp());
            steps.push(Step { round, rate_per_s, kept: rng.next_f64() < chance });
        }
        steps
    }

    #[test]
    fn rates_settle_around_the_capacity() {
        let mut rng = Rng::new(1);
        for (first, capacity) in [(1_000.0, 50_000.0), (80_000.0, 50_000.0), (5.0, 4.0)] {
            let steps = search(&mut rng, first, capacity, 0.02, 80);
            let settled = settled(&steps);
            assert!(settled.len() >= 50, "{} of 80", settled.len());
            let logs = settled.iter().map(|step| step.rate_per_s.ln());
            let mean = (logs.sum::<f64>() / settled.len() as f64).exp();
            assert!((mean / capacity).ln().abs() < 0.02, "{mean} for {capacity}");
        }
        assert_eq!(next(&[]), None);
    }

    #[test]
    fn intervals_hold_the_true_loss() {
        let mut rng = Rng::new(2);
        for (width, least) in [(0.001, 185), (0.03, 185), (0.1, 173)] {
            let mut held = 0;
            for _ in 0..200 {
                let base = search(&mut rng, 20_000.0, 50_000.0, width, 60);
                let here = search(&mut rng, 20_000.0, 40_000.0, width, 60);
                let (base, here) = (settled(&base), settled(&here));
                let pairs = here.iter().filter_map(|step| {
                    let other = base.iter().find(|other| other.round == step.round)?;
                    Some((step.rate_per_s / other.rate_per_s).ln())
                });
                let pairs: Vec<f64> = pairs.collect();
                let cost = fall_of(estimate(&batches(&pairs)).unwrap()).percent;
                held += u32::from(cost.low <= 20.0 && 20.0 <= cost.high);
            }
            assert!(held >= least, "{held} of 200 intervals hold 20 % at a width of {width}");
        }
    }
}
