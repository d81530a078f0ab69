//! The law of claims: what is noise, what may be claimed, and what counts as proven. All code that
//! prints a difference or acts on one uses this module.
//!
//! 1. A difference is **found** if its 95 % interval excludes zero.
//! 2. The A/A control runs the baseline a second time. The largest difference that the control's
//!    own interval does not exclude is the **noise** ([`Noise`]) of that workload and figure.
//! 3. A difference is **claimed** if it is found and larger than the noise ([`judge`]). A control
//!    that has no interval yet allows no claim. Without a control, rule 1 decides alone.
//! 4. A difference that is found and not claimed reads as noise, in every table.
//! 5. A doubt about an environment can forbid claims about it ([`Objections`]). A throughput that
//!    was measured while others took the CPUs is **withheld**.
//! 6. A tuning is **proven** if it helps under one workload and hurts under none ([`proven`]).
//!
//! A study that compares runtimes has a second control for each of them: the baseline's layers
//! under the other runtime. A comparison across runtimes has the larger of both noises
//! ([`Noise::or`]).
//!
//! The noise is the control's interval and not its figure, because two starts of one environment
//! can differ permanently (page colouring, hash seeds, CPU placement). The interval bounds this
//! difference. `docs/concepts/cost.md` has the reasons and the measurements.
//!
//! Limits: each difference is judged alone. Among many of them, chance finds one more often than
//! one time in twenty. Rule 3 makes that rarer, but not impossible.

mod budget;
mod objections;
mod tuning;

use serde::Serialize;

use crate::{Cost, Interval};

pub use budget::{BudgetVerdict, is_decided_early, judge_budget, rounds_to_decide};
pub use objections::{
    FAILED_SHARE_MAX, OFTEN_SHARE, Objections, STEAL_SHARE_MAX, STRANGERS_SHARE_MAX,
};
pub use tuning::{TuningVerdict, proven};

/// The widest useful bound, in percent. Two or three rounds that differ give millions.
pub const INFORMATIVE_PERCENT_MAX: f64 = 1000.0;

/// Whether the bound of a difference that was not found is narrow enough to print.
/// `within_percent` is that of a [`Cost`].
pub fn is_informative(within_percent: f64) -> bool {
    within_percent.is_finite() && within_percent <= INFORMATIVE_PERCENT_MAX
}

/// The noise of one figure, from the A/A control: how much two copies of one environment differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noise {
    /// No control has this figure. The interval of a difference decides alone.
    NoControl,
    /// The control has no interval yet, so that nothing is claimed.
    Unknown,
    /// The largest difference that the control's interval does not exclude, in the unit of the
    /// difference: percent of a cost, factor of a ratio, or difference of two logarithms.
    Within(f64),
}

impl Noise {
    /// Returns the noise of a cost in percent, from the control's cost.
    ///
    /// ```
    /// use tare_stats::Interval;
    /// use tare_stats::law::Noise;
    ///
    /// let control = Interval { value: -0.6, low: -2.3, high: 1.1, rounds: 40 };
    /// assert_eq!(Noise::of_cost(Some(&control)), Noise::Within(2.3));
    /// assert_eq!(Noise::of_cost(None), Noise::NoControl);
    /// ```
    pub fn of_cost(control: Option<&Interval>) -> Self {
        let Some(control) = control else { return Self::NoControl };
        let noise = control.low.abs().max(control.high.abs());
        if noise.is_finite() { Self::Within(noise) } else { Self::Unknown }
    }

    /// Returns the noise of a ratio as a factor of at least 1, up or down, from the control's
    /// ratio.
    pub fn of_ratio(control: &Interval) -> Self {
        let noise = control.high.max(1.0 / control.low);
        if noise.is_finite() { Self::Within(noise) } else { Self::Unknown }
    }

    /// Returns the noise of the difference of two costs from two records, on the scale of
    /// logarithms. Each control depends on the chance of one start, so that the noises in percent
    /// combine like errors. A small percentage is about a logarithm. A record without a control
    /// adds nothing; one that has no interval yet allows no claim.
    ///
    /// ```
    /// use tare_stats::law::Noise;
    ///
    /// let one = Noise::of_two_records([Noise::NoControl, Noise::Within(4.0)]);
    /// assert_eq!(one, Noise::Within(0.04));
    /// assert_eq!(Noise::of_two_records([Noise::Within(3.0), Noise::Unknown]), Noise::Unknown);
    /// ```
    pub fn of_two_records(noises: [Self; 2]) -> Self {
        if noises.contains(&Self::Unknown) {
            return Self::Unknown;
        }
        let bounds = noises.into_iter().filter_map(Self::bound);
        Self::Within(bounds.fold(0.0, |sum: f64, noise| sum.hypot(noise / 100.0)))
    }

    /// Returns the larger of two noises, if two controls bound the same difference. A control that
    /// has no interval yet allows no claim; a missing one adds nothing.
    ///
    /// ```
    /// use tare_stats::law::Noise;
    ///
    /// assert_eq!(Noise::Within(1.0).or(Noise::Within(2.0)), Noise::Within(2.0));
    /// assert_eq!(Noise::NoControl.or(Noise::Within(2.0)), Noise::Within(2.0));
    /// assert_eq!(Noise::Within(1.0).or(Noise::Unknown), Noise::Unknown);
    /// ```
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::NoControl, known) | (known, Self::NoControl) => known,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Within(one), Self::Within(other)) => Self::Within(one.max(other)),
        }
    }

    /// Returns the bound if it is known.
    pub fn bound(self) -> Option<f64> {
        match self {
            Self::Within(noise) => Some(noise),
            Self::NoControl | Self::Unknown => None,
        }
    }
}

/// The verdict on a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval has no bounds, or is too wide to be informative.
    NotKnown,
    /// The interval holds zero.
    NotFound,
    /// The interval excludes zero, but the control differs from the baseline by as much.
    WithinNoise,
    /// The interval excludes zero, and the control has no interval yet.
    NoiseUnknown,
    /// The interval excludes zero, but a doubt forbids the claim ([`Verdict::unless`]).
    Withheld,
    /// A loss that may be claimed.
    Loss,
    /// A gain that may be claimed.
    Gain,
}

impl Verdict {
    /// Whether the difference may be claimed.
    pub fn is_claim(self) -> bool {
        matches!(self, Self::Loss | Self::Gain)
    }

    /// Withholds the claim if a doubt forbids it.
    #[must_use]
    pub fn unless(self, forbidden: bool) -> Self {
        if forbidden && self.is_claim() { Self::Withheld } else { self }
    }

    /// The name in JSON and CSV: `not_known`, `not_found`, `within_noise`, `noise_unknown`,
    /// `withheld`, `loss` or `gain`.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotKnown => "not_known",
            Self::NotFound => "not_found",
            Self::WithinNoise => "within_noise",
            Self::NoiseUnknown => "noise_unknown",
            Self::Withheld => "withheld",
            Self::Loss => "loss",
            Self::Gain => "gain",
        }
    }
}

/// Judges a cost in percent.
///
/// ```
/// use tare_stats::law::{Noise, Verdict, judge};
/// use tare_stats::{Cost, Interval};
///
/// let percent = Interval { value: -1.8, low: -3.2, high: -0.6, rounds: 40 };
/// let cost = Cost { percent, found: true, within_percent: 3.2 };
/// assert_eq!(judge(&cost, Noise::Within(2.3)), Verdict::WithinNoise);
/// assert_eq!(judge(&cost, Noise::Within(1.0)), Verdict::Gain);
/// assert_eq!(judge(&cost, Noise::NoControl), Verdict::Gain);
/// ```
pub fn judge(cost: &Cost, noise: Noise) -> Verdict {
    if !cost.found && !is_informative(cost.within_percent) {
        return Verdict::NotKnown;
    }
    judge_difference(cost.found, cost.percent.value, noise)
}

/// Judges the ratio of two times. Above 1 is a loss. `noise` comes from [`Noise::of_ratio`].
/// `found` means that the interval excludes 1.
pub fn judge_ratio(ratio: &Interval, found: bool, noise: Noise) -> Verdict {
    if !ratio.is_bounded() {
        return Verdict::NotKnown;
    }
    let noise = match noise {
        Noise::Within(factor) => Noise::Within(factor.ln()),
        other => other,
    };
    judge_difference(found, ratio.value.ln(), noise)
}

/// Judges any difference in the unit of the noise. Above 0 is a loss. `found` means that its
/// interval excludes 0.
pub fn judge_difference(found: bool, difference: f64, noise: Noise) -> Verdict {
    match noise {
        _ if !found => Verdict::NotFound,
        _ if !difference.is_finite() => Verdict::NotKnown,
        Noise::Unknown => Verdict::NoiseUnknown,
        Noise::Within(noise) if difference.abs() <= noise => Verdict::WithinNoise,
        _ if difference > 0.0 => Verdict::Loss,
        _ => Verdict::Gain,
    }
}

#[cfg(test)]
mod tests;
