//! Pacing: operations start as soon as others end, or on a schedule.
//!
//! A schedule is arithmetic on ns since any epoch; nothing here reads a clock. The due time of
//! operation `index` depends on the schedule alone. A slot is never skipped, so a stall of the
//! system shows in the response times of everything that was due meanwhile (no coordinated
//! omission). Late operations are sent at once, in order. Threads share one schedule: thread t of n
//! sends the indices t, t + n, t + 2n ...

mod schedule;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use tare_std::rng::mix64;

pub use schedule::{Arrivals, Schedule, ScheduleError, Step};
pub(crate) use wake::WakeEarly;

/// How operations are paced.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: the next operation starts when one in flight ends, for this time.
    Closed(Duration),
    /// Open loop: operations start on a schedule, whatever the system does.
    Open(Schedule),
}

impl Pace {
    /// Returns the length of the measured window.
    pub fn window(&self) -> Duration {
        match self {
            Self::Closed(window) => *window,
            Self::Open(schedule) => schedule.steps().iter().map(|step| step.length).sum(),
        }
    }
}

/// An operation to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub index: u64,
    /// When it should be sent, in ns. Response time counts from here.
    pub intended_ns: u64,
}

/// One thread's part of a schedule, and its progress.
///
/// ```
/// use std::time::Duration;
///
/// use tare_load::pacing::{Arrivals, Pacer, Schedule, Step};
///
/// let steps = vec![Step::steady(1_000.0, Duration::from_secs(1))];
/// let schedule = Schedule::new(steps, Arrivals::Constant)?;
/// let mut pacer = Pacer::new(&schedule, Duration::ZERO, 0, (0, 1), 7);
/// // A stall of 5 ms: everything that was due meanwhile is sent late, and nothing is skipped.
/// let taken = std::iter::from_fn(|| pacer.take(5_000_000));
/// let late: Vec<u64> = taken.map(|due| due.index).collect();
/// assert_eq!(late, [0, 1, 2, 3, 4, 5]);
/// # Ok::<(), tare_load::pacing::ScheduleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pacer {
    schedule: Arc<schedule::Curve>,
    start_ns: u64,
    /// The number of threads.
    parts: u64,
    /// The next operation to send.
    next: Due,
    /// The position of `next` in the schedule, in operations; a whole number for constant arrivals.
    position: f64,
    /// The segment of the curve that `next` lies in.
    segment: usize,
    /// The seed of random arrivals.
    seed: Option<u64>,
}

impl Pacer {
    /// Returns the part of thread `part` of `parts` in a schedule that starts at `start_ns` with
    /// `lead_in` at its first rate. After its last step it goes on at the last rate for ever.
    /// Random arrivals derive from `seed`.
    ///
    /// # Panics
    /// If `part` is not below `parts`.
    pub fn new(
        schedule: &Schedule,
        lead_in: Duration,
        start_ns: u64,
        (part, parts): (u64, u64),
        seed: u64,
    ) -> Self {
        assert!(part < parts, "part {part} of {parts}");
        let seed = match schedule.arrivals() {
            Arrivals::Constant => None,
            // A stream apart from the keys, which derive from the same seed.
            Arrivals::Poisson => Some(mix64(seed ^ 0x6172_7269_7661_6c73)),
        };
        let mut pacer = Self {
            schedule: Arc::new(schedule.curve(lead_in)),
            start_ns,
            parts,
            next: Due { index: part, intended_ns: 0 },
            position: part as f64,
            segment: 0,
            seed,
        };
        if seed.is_some() {
            pacer.position = pacer.gap();
        }
        pacer.place();
        pacer
    }

    /// Returns when the next operation is due.
    #[inline]
    pub fn next_due_ns(&self) -> u64 {
        self.next.intended_ns
    }

    /// Returns the next operation, if it is due by `now_ns`. The caller sends it.
    #[inline]
    pub fn take(&mut self, now_ns: u64) -> Option<Due> {
        if self.next.intended_ns > now_ns {
            return None;
        }
        let due = self.next;
        self.next.index += self.parts;
        self.position = match self.seed {
            None => self.next.index as f64,
            Some(_) => self.position + self.gap(),
        };
        self.place();
        Some(due)
    }

    /// Returns how many of this thread's operations are due in [`from_ns`, `to_ns`) and not yet
    /// taken. It counts them one by one.
    pub fn not_taken(&self, from_ns: u64, to_ns: u64) -> u64 {
        let mut rest = self.clone();
        let mut count = 0;
        while let Some(due) = to_ns.checked_sub(1).and_then(|last_ns| rest.take(last_ns)) {
            count += u64::from(due.intended_ns >= from_ns);
        }
        count
    }

    /// Returns the distance to this thread's next operation, in operations of the schedule. Dealing
    /// a Poisson process out at random to n parts gives Poisson processes of 1/n of its rate, and a
    /// process of varying rate is one of rate 1 in distorted time: Kingman, "Poisson Processes"
    /// (1993), sections 2.3 and 5.1.
    #[inline]
    fn gap(&self) -> f64 {
        let seed = self.seed.unwrap_or_default();
        let bits = mix64(seed ^ mix64(self.next.index.wrapping_add(0x9e37_79b9_7f4a_7c15))) >> 11;
        // In (0, 1], so that the logarithm is finite.
        let uniform = (bits + 1) as f64 * (1.0 / (1u64 << 53) as f64);
        -uniform.ln() * self.parts as f64
    }

    /// Computes when the operation at `position` is due.
    #[inline]
    fn place(&mut self) {
        self.segment = self.schedule.segment_at(self.position, self.segment);
        self.next.intended_ns = self.start_ns + self.schedule.due_ns(self.position, self.segment);
    }
}

#[cfg(test)]
mod tests;
