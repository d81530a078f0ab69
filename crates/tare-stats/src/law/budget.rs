//! Whether a cost is within a budget: the rule of `tare check`.
//!
//! 1. A cost is **beyond** its budget only if it is claimed ([`super::judge`]) and its whole
//!    interval is above the limit.
//! 2. It is **within** if its whole interval is at or below the limit.
//! 3. Otherwise it is **undecided**: a gate must not fail by chance, nor pass by ignorance.
//!
//! The rounds that a decision needs follow from the width of the interval, which shrinks with the
//! root of the number of rounds.
//!
//! A measurement that ends as soon as its budgets are decided asks more of an early decision
//! ([`is_decided_early`]).
//!
//! Limits: the estimate of the rounds assumes that the figure stays where it is. Costs near the
//! limit can stay undecided for any time.

use serde::Serialize;

use super::Verdict;
use crate::Interval;

/// More rounds than this factor are not worth naming.
const FACTOR_MAX: f64 = 1_000.0;

/// The width of the intervals of an early decision, as a multiple of those at 95 %.
const EARLY_WIDTH: f64 = 2.555 / 1.960;

/// Whether a cost is within its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetVerdict {
    Within,
    Beyond,
    /// The limit is inside the interval, or there is no interval.
    TooWide,
    /// The interval is above the limit, but the noise of the control is as large as the cost.
    Noise,
    /// A doubt forbids claims about the figure.
    Withheld,
}

impl BudgetVerdict {
    pub fn is_undecided(self) -> bool {
        !matches!(self, Self::Within | Self::Beyond)
    }
}

/// Judges a figure against its limit. `verdict` is that of the law on the same figure.
///
/// ```
/// use tare_stats::Interval;
/// use tare_stats::law::{BudgetVerdict, Verdict, judge_budget};
///
/// let cost = Interval { value: 33.0, low: 31.0, high: 35.0, rounds: 40 };
/// assert_eq!(judge_budget(&cost, 30.0, Verdict::Loss), BudgetVerdict::Beyond);
/// assert_eq!(judge_budget(&cost, 30.0, Verdict::WithinNoise), BudgetVerdict::Noise);
/// assert_eq!(judge_budget(&cost, 32.0, Verdict::Loss), BudgetVerdict::TooWide);
/// assert_eq!(judge_budget(&cost, 35.0, Verdict::Loss), BudgetVerdict::Within);
/// ```
pub fn judge_budget(interval: &Interval, limit: f64, verdict: Verdict) -> BudgetVerdict {
    match verdict {
        Verdict::Withheld => BudgetVerdict::Withheld,
        _ if !interval.is_bounded() => BudgetVerdict::TooWide,
        _ if interval.high <= limit => BudgetVerdict::Within,
        _ if interval.low <= limit => BudgetVerdict::TooWide,
        verdict if verdict.is_claim() => BudgetVerdict::Beyond,
        _ => BudgetVerdict::Noise,
    }
}

/// Returns whether a figure is decided before the end of a measurement that looks at it again and
/// again. A limit that is looked at ten times at 95 % is crossed by chance in one of five
/// measurements, so an early decision needs wider intervals: Pocock's bound for ten looks is 2.555
/// standard errors in place of 1.960 (Biometrika 64, 1977).
///
/// ```
/// use tare_stats::Interval;
/// use tare_stats::law::{Verdict, is_decided_early};
///
/// let cost = Interval { value: 33.0, low: 31.0, high: 35.0, rounds: 40 };
/// assert!(is_decided_early(&cost, 30.0, Verdict::Loss));
/// assert!(!is_decided_early(&cost, 30.5, Verdict::Loss));
/// ```
pub fn is_decided_early(interval: &Interval, limit: f64, verdict: Verdict) -> bool {
    let bound = |bound: f64| interval.value + EARLY_WIDTH * (bound - interval.value);
    let wide = Interval { low: bound(interval.low), high: bound(interval.high), ..*interval };
    !judge_budget(&wide, limit, verdict).is_undecided()
}

/// Returns the number of rounds after which an undecided figure is expected to be decided: when the
/// side of its interval that crosses the limit, or the noise of the control, has shrunk enough.
/// `None` if that is not foreseeable, or far away.
///
/// ```
/// use tare_stats::Interval;
/// use tare_stats::law::rounds_to_decide;
///
/// // The upper bound must come down from 34 to 30, half its distance from 26 ... in 4 x 10 rounds.
/// let cost = Interval { value: 26.0, low: 18.0, high: 34.0, rounds: 10 };
/// assert_eq!(rounds_to_decide(&cost, 30.0, None), Some(40));
/// let at_the_limit = Interval { value: 30.0, low: 22.0, high: 38.0, rounds: 10 };
/// assert_eq!(rounds_to_decide(&at_the_limit, 30.0, None), None);
/// ```
pub fn rounds_to_decide(interval: &Interval, limit: f64, noise: Option<f64>) -> Option<u32> {
    if !interval.is_bounded() {
        return None;
    }
    let above = interval.value > limit;
    let side = if above { interval.value - interval.low } else { interval.high - interval.value };
    let of_interval = side / (interval.value - limit).abs();
    let of_noise = noise.filter(|_| above).map_or(0.0, |noise| noise / interval.value.abs());
    let factor = of_interval.max(of_noise).powi(2);
    if !factor.is_finite() || !(1.0..=FACTOR_MAX).contains(&factor) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^42")]
    let rounds = (factor * f64::from(interval.rounds)).ceil() as u64;
    u32::try_from(rounds).ok()
}
