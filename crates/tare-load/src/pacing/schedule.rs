//! Schedules: steps with a constant, rising or falling rate.

use std::time::Duration;

/// A step of a schedule: the rate changes evenly from one value to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub from_per_s: f64,
    pub to_per_s: f64,
    pub length: Duration,
}

impl Step {
    /// Returns a step with one rate.
    pub fn steady(rate_per_s: f64, length: Duration) -> Self {
        Self { from_per_s: rate_per_s, to_per_s: rate_per_s, length }
    }

    /// Returns the mean rate in operations/s.
    pub fn mean_per_s(&self) -> f64 {
        f64::midpoint(self.from_per_s, self.to_per_s)
    }
}

/// How arrivals are spread at a given rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly spaced, one every 1/rate.
    #[default]
    Constant,
    /// At random and independent of one another, like those of many users.
    Poisson,
}

/// Why steps do not make a schedule.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    #[error("the load's rate is {0}; it must be a number of operations per second above 0")]
    Rate(f64),
    #[error("all steps of the load's schedule have length 0; give one a length above 0")]
    Empty,
}

/// The rate over time.
///
/// ```
/// use std::time::Duration;
///
/// use tare_load::pacing::{Arrivals, Schedule, Step};
///
/// let second = Duration::from_secs(1);
/// let ramp = Step { from_per_s: 100.0, to_per_s: 300.0, length: second };
/// let schedule = Schedule::new(vec![ramp, Step::steady(300.0, second)], Arrivals::Constant)?;
/// assert_eq!(schedule.mean_per_s(), 250.0);
/// assert!(Schedule::new(vec![Step::steady(0.0, second)], Arrivals::Constant).is_err());
/// # Ok::<(), tare_load::pacing::ScheduleError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    steps: Vec<Step>,
    arrivals: Arrivals,
}

impl Schedule {
    /// Returns the schedule of these steps, one after the other.
    ///
    /// # Errors
    /// If a rate is not a positive number or no time passes.
    pub fn new(steps: Vec<Step>, arrivals: Arrivals) -> Result<Self, ScheduleError> {
        for rate in steps.iter().flat_map(|step| [step.from_per_s, step.to_per_s]) {
            if !(rate.is_finite() && rate > 0.0) {
                return Err(ScheduleError::Rate(rate));
            }
        }
        if steps.is_empty() || steps.iter().any(|step| step.length.is_zero()) {
            return Err(ScheduleError::Empty);
        }
        Ok(Self { steps, arrivals })
    }

    /// Returns the steps in their order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the mean rate over all steps in operations/s.
    pub fn mean_per_s(&self) -> f64 {
        let length_s = |step: &Step| step.length.as_secs_f64();
        let operations: f64 =
            self.steps.iter().map(|step| step.mean_per_s() * length_s(step)).sum();
        operations / self.steps.iter().map(length_s).sum::<f64>()
    }

    /// Returns how arrivals are spread.
    pub fn arrivals(&self) -> Arrivals {
        self.arrivals
    }

    /// Returns the curve of due operations, with `lead_in` before the first step at the first rate.
    pub(super) fn curve(&self, lead_in: Duration) -> Curve {
        let mut segments = Vec::new();
        let mut begin = Segment { at_s: 0.0, count: 0.0, rate: 0.0, slope: 0.0 };
        let mut last_rate = 0.0;
        let first = self.steps.iter().take(1).map(|step| Step::steady(step.from_per_s, lead_in));
        for step in first.filter(|step| !step.length.is_zero()).chain(self.steps.iter().copied()) {
            let length_s = step.length.as_secs_f64();
            begin.rate = step.from_per_s;
            begin.slope = (step.to_per_s - step.from_per_s) / length_s;
            segments.push(begin);
            begin.at_s += length_s;
            begin.count += step.mean_per_s() * length_s;
            last_rate = step.to_per_s;
        }
        // A constant last step continues, so its slots stay on one grid.
        if begin.slope != 0.0 {
            segments.push(Segment { rate: last_rate, slope: 0.0, ..begin });
        }
        Curve { segments }
    }
}

/// The number of operations due by a time, in pieces.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    segments: Vec<Segment>,
}

/// A piece of the curve. It ends where the next begins; the last never ends.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Its begin, in s.
    at_s: f64,
    /// The operations due before it.
    count: f64,
    /// The rate at its begin, in operations/s.
    rate: f64,
    /// The change of the rate, in operations/s per s.
    slope: f64,
}

impl Curve {
    /// Returns the segment in which `position` operations are due, not before `from`.
    #[inline]
    pub(super) fn segment_at(&self, position: f64, from: usize) -> usize {
        let mut at = from;
        while self.segments.get(at + 1).is_some_and(|next| next.count <= position) {
            at += 1;
        }
        at
    }

    /// Returns when `position` operations are due, in ns from the start.
    #[inline]
    pub(super) fn due_ns(&self, position: f64, segment: usize) -> u64 {
        let Segment { at_s, count, rate, slope } = self.segments[segment];
        let more = position - count;
        // Solves `rate t + slope t^2 / 2 = more` without cancellation where the slope is small.
        let offset_ns = if slope == 0.0 {
            more * (1e9 / rate)
        } else {
            let end_rate = (rate * rate + 2.0 * slope * more).max(0.0).sqrt();
            2e9 * more / (rate + end_rate)
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive time; 2^53 ns are 104 days"
        )]
        let due_ns = (at_s * 1e9 + offset_ns) as u64;
        due_ns
    }
}
