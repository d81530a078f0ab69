//! The schedule of an open loop, as arithmetic on ns since any epoch. Nothing here reads a clock.
//!
//! Operation `index` of a run is due at `start + index / rate`, whatever happened to those before:
//! a slot is never skipped, so a stall of the system shows in the response times of everything
//! that was due meanwhile (no coordinated omission). Operations that are late are sent at once, in
//! order. Threads share one schedule: thread t of n sends the indices t, t + n, t + 2n ...

/// An operation that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub index: u64,
    /// When it should be sent, in ns; response time counts from here.
    pub intended_ns: u64,
}

/// One thread's part of the schedule and how far it has got.
#[derive(Clone, Debug)]
pub struct Pacer {
    start_ns: u64,
    period_ns: f64,
    step: u64,
    /// Index of the next operation to send.
    next: u64,
}

impl Pacer {
    /// The part of thread `part` of `parts` in a schedule of `rate_per_s` that starts at
    /// `start_ns`.
    ///
    /// # Panics
    /// If the rate is not a positive number or `part` is not below `parts`.
    pub fn new(start_ns: u64, rate_per_s: f64, part: u64, parts: u64) -> Self {
        assert!(rate_per_s.is_finite() && rate_per_s > 0.0, "no rate: {rate_per_s}");
        assert!(part < parts, "part {part} of {parts}");
        Self { start_ns, period_ns: 1e9 / rate_per_s, step: parts, next: part }
    }

    /// When the next operation is due.
    #[inline]
    pub fn next_due_ns(&self) -> u64 {
        self.due_ns(self.next)
    }

    /// The next operation, if it is due by `now_ns`. The caller sends it.
    #[inline]
    pub fn take(&mut self, now_ns: u64) -> Option<Due> {
        let intended_ns = self.next_due_ns();
        if intended_ns > now_ns {
            return None;
        }
        let index = self.next;
        self.next += self.step;
        Some(Due { index, intended_ns })
    }

    /// How many of this thread's operations are due in [`from_ns`, `to_ns`) and not yet taken.
    pub fn unsent(&self, from_ns: u64, to_ns: u64) -> u64 {
        // `next` is `part + step * taken`, and part is below step.
        let from = self.count_before(from_ns).max(self.next / self.step);
        self.count_before(to_ns).saturating_sub(from)
    }

    /// How many of this thread's operations are due before `at_ns`.
    fn count_before(&self, at_ns: u64) -> u64 {
        let first = self.next % self.step;
        let elapsed = at_ns.saturating_sub(self.start_ns) as f64;
        let guess = (elapsed / self.period_ns - first as f64) / self.step as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a guess that saturates at 0 and is put right below"
        )]
        let mut count = guess.ceil() as u64;
        // The division rounds; `due_ns` decides.
        while count > 0 && self.due_ns(first + (count - 1) * self.step) >= at_ns {
            count -= 1;
        }
        while self.due_ns(first + count * self.step) < at_ns {
            count += 1;
        }
        count
    }

    #[inline]
    fn due_ns(&self, index: u64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive time; 2^53 ns are 104 days"
        )]
        let offset = (index as f64 * self.period_ns) as u64;
        self.start_ns + offset
    }
}

/// How long before an operation is due to wake up. A timer wakes late by what the machine needs to
/// leave its idle state (about 5 to 50 µs); this learns how late, and the rest of the way is spent
/// polling.
///
/// The estimate goes up by 3 µs when a wake was later and down by 1 µs when it was earlier, so it
/// settles where one wake in four is later: a few wakes that were held up by others on the CPU,
/// however long, must not buy every operation a long wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct WakeEarly {
    late_ns: u64,
}

const UP_NS: u64 = 3_000;
const DOWN_NS: u64 = 1_000;
/// The most CPU time to spend on polling before one operation, in ns.
const EARLY_NS_MAX: u64 = 60_000;

impl WakeEarly {
    /// When to set the timer for something due at `due_ns`.
    pub(crate) fn timer_ns(&self, due_ns: u64) -> u64 {
        due_ns.saturating_sub(self.late_ns)
    }

    /// The timer was set for `timer_ns` and the thread ran again at `now_ns`.
    pub(crate) fn woke(&mut self, timer_ns: u64, now_ns: u64) {
        let late_ns = now_ns.saturating_sub(timer_ns);
        self.late_ns = if late_ns > self.late_ns {
            (self.late_ns + UP_NS).min(late_ns).min(EARLY_NS_MAX)
        } else {
            self.late_ns.saturating_sub(DOWN_NS).max(late_ns)
        };
    }
}

#[cfg(test)]
mod tests;
