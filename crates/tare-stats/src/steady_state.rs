//! When a disk is steady: the rule of SNIA's Solid State Storage Performance Test Specification,
//! version 2.0.2, in its definition of steady state
//! (<https://www.snia.org/tech_activities/standards/curr_standards/pts>).
//!
//! The workload runs in rounds of equal length. It is steady once, in the last five rounds, the
//! difference between the highest and the lowest rate is at most 20 % of their mean, and the line
//! through them rises or falls by at most 10 % of the mean from the first to the last.

use std::fmt;

use serde::Serialize;

/// Rounds that are judged together.
pub const WINDOW_ROUNDS: usize = 5;
/// Largest range of their rates, as a share of the mean.
pub const RANGE_MAX: f64 = 0.2;
/// Largest rise or fall of the line through them, as a share of the mean.
pub const SLOPE_MAX: f64 = 0.1;

/// The last five rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SteadyWindow {
    /// The highest less the lowest rate, over their mean.
    pub range_share: f64,
    /// By how much the line through them rises or falls, over their mean.
    pub slope_share: f64,
}

impl SteadyWindow {
    /// Judges the last rounds. `None` with too few of them, or without operations.
    pub fn of(rates: &[f64]) -> Option<Self> {
        let last = rates.last_chunk::<WINDOW_ROUNDS>()?;
        let rounds = WINDOW_ROUNDS as f64;
        let mean = last.iter().sum::<f64>() / rounds;
        if mean.is_nan() || mean <= 0.0 {
            return None;
        }
        let high = last.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let low = last.iter().copied().fold(f64::INFINITY, f64::min);
        let middle = (rounds - 1.0) / 2.0;
        let at = (0..WINDOW_ROUNDS).map(|round| round as f64 - middle);
        let (mut moment, mut squares) = (0.0, 0.0);
        for (at, rate) in at.zip(last) {
            moment += at * (rate - mean);
            squares += at * at;
        }
        let rise = moment / squares * (rounds - 1.0);
        Some(Self { range_share: (high - low) / mean, slope_share: rise.abs() / mean })
    }

    /// Returns whether the disk is steady.
    pub fn is_steady(self) -> bool {
        self.range_share <= RANGE_MAX && self.slope_share <= SLOPE_MAX
    }
}

impl fmt::Display for SteadyWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range_share, slope_share } = self;
        let percent = |share: f64| share * 100.0;
        write!(
            f,
            "last five rounds: range {:.0} % of the mean (at most {:.0}), slope {:.0} % (at most {:.0})",
            percent(*range_share),
            percent(RANGE_MAX),
            percent(*slope_share),
            percent(SLOPE_MAX)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rates: &[f64], expect: Option<bool>) {
        assert_eq!(SteadyWindow::of(rates).map(SteadyWindow::is_steady), expect, "{rates:?}");
    }

    #[test]
    fn five_even_rounds_are_steady() {
        check(&[100.0, 101.0, 99.0, 100.0, 100.0], Some(true));
        // The first rounds of a fresh device do not count once there are five after them.
        check(&[900.0, 500.0, 100.0, 101.0, 99.0, 100.0, 100.0], Some(true));
        check(&[100.0, 100.0, 100.0, 100.0], None);
        check(&[0.0; 5], None);
    }

    #[test]
    fn range_and_slope_have_limits() {
        check(&[100.0, 100.0, 121.0, 100.0, 100.0], Some(false));
        check(&[100.0, 100.0, 119.0, 100.0, 100.0], Some(true));
        // A range of 12 % that only falls.
        check(&[106.0, 103.0, 100.0, 97.0, 94.0], Some(false));
        check(&[104.0, 102.0, 100.0, 98.0, 96.0], Some(true));
        let falls = SteadyWindow::of(&[106.0, 103.0, 100.0, 97.0, 94.0]).unwrap();
        assert_eq!(
            falls.to_string(),
            "last five rounds: range 12 % of the mean (at most 20), slope 12 % (at most 10)"
        );
    }
}
