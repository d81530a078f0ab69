//! The interval of a cost when environments were started several times.
//!
//! Slices of one start share its luck (addresses, caches, huge pages), so their log ratios are not
//! independent of each other, and an interval over all rounds is too narrow. The starts are
//! independent: the estimate of each start is one value, and Student's t over these values gives an
//! interval that holds the truth as often as it says, whatever the share of the starts is. (This is
//! the analysis of cluster means: Donner and Klar, "Design and Analysis of Cluster Randomization
//! Trials in Health Research", 2000, 6.3.)
//!
//! Limits: with few starts the interval is wide, because Student's factor is 4.3, 3.2 and 2.8 for
//! 3, 4 and 5 starts. Two starts give no useful interval, so they are not told apart.

use crate::methods::student_t;
use crate::{Estimate, estimate};

/// The fewest starts for an interval over starts.
pub const STARTS_MIN: usize = 3;

/// An estimate over starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverStarts {
    /// `rounds` is the number of pairs of all starts.
    pub estimate: Estimate,
    pub starts: u32,
    /// The share of the variance of the estimate that comes from the starts, 0 to 1. The rest is
    /// the noise of slices.
    pub share: f64,
}

/// Returns the estimate from the log ratios of each start. `None` with less than [`STARTS_MIN`]
/// starts that have at least two.
///
/// ```
/// use tare_stats::starts::over_starts;
///
/// // The noise within a start is 1 %, but the starts differ by up to 10 %.
/// let starts = [[0.10, 0.11, 0.09], [0.20, 0.19, 0.21], [0.15, 0.16, 0.14]];
/// let found = over_starts(&starts.map(Vec::from)).unwrap();
/// assert!(found.share > 0.9 && !found.estimate.excludes(0.05), "{found:?}");
/// ```
pub fn over_starts(starts: &[Vec<f64>]) -> Option<OverStarts> {
    let starts: Vec<&Vec<f64>> = starts.iter().filter(|values| values.len() > 1).collect();
    if starts.len() < STARTS_MIN {
        return None;
    }
    let centres: Vec<f64> =
        starts.iter().filter_map(|values| Some(estimate(values)?.centre)).collect();
    let mut found = student_t(&centres)?;
    let pairs: usize = starts.iter().map(|values| values.len()).sum();
    found.rounds = u32::try_from(pairs).unwrap_or(u32::MAX);
    // The variance of a start's centre that the noise of its slices explains.
    let within: f64 = starts.iter().map(|values| variance_of_mean(values)).sum::<f64>();
    let within = within / starts.len() as f64;
    let between = variance(&centres);
    let share = if between > 0.0 { (1.0 - within / between).max(0.0) } else { 0.0 };
    let starts = u32::try_from(starts.len()).unwrap_or(u32::MAX);
    Some(OverStarts { estimate: found, starts, share })
}

fn variance(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0)
}

fn variance_of_mean(values: &[f64]) -> f64 {
    variance(values) / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_std::rng::Rng;

    /// Simulates campaigns of 120 rounds. Returns how often the intervals over starts and over
    /// rounds hold the truth, and the mean share of the starts.
    fn simulate(starts: usize, luck: f64) -> (f64, f64, f64) {
        let mut rng = Rng::new(7);
        let (mut by_start, mut by_round, mut share) = (0, 0, 0.0);
        let campaigns = 2000;
        for _ in 0..campaigns {
            let groups: Vec<Vec<f64>> = (0..starts)
                .map(|_| {
                    let luck = luck * (rng.normal() - rng.normal());
                    (0..120 / starts).map(|_| luck + 0.1 * rng.normal()).collect()
                })
                .collect();
            let found = over_starts(&groups).unwrap();
            by_start += usize::from(!found.estimate.excludes(0.0));
            by_round += usize::from(!estimate(&groups.concat()).unwrap().excludes(0.0));
            share += found.share;
        }
        let of = |count: usize| count as f64 / f64::from(campaigns);
        (of(by_start), of(by_round), share / f64::from(campaigns))
    }

    #[test]
    fn interval_over_starts_holds_the_truth() {
        for starts in [3, 6] {
            let (by_start, by_round, share) = simulate(starts, 0.0);
            assert!((0.935..0.965).contains(&by_start), "{starts}: {by_start}");
            assert!(by_round > 0.93 && share < 0.4, "{starts}: {by_round} {share}");
            // Starts differ by 2 %, less than slices do.
            let (by_start, by_round, share) = simulate(starts, 0.02);
            assert!((0.935..0.965).contains(&by_start), "{starts}: {by_start}");
            assert!(by_round < 0.9 && share > 0.3, "{starts}: {by_round} {share}");
        }
    }

    #[test]
    fn needs_three_starts() {
        assert_eq!(over_starts(&[vec![0.1, 0.2], vec![0.1, 0.3], vec![0.1]]), None);
    }
}
