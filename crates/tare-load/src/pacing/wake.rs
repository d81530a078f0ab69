//! Sets timers so that operations leave on time.

/// Decides how long before an operation is due to wake up. A timer wakes late by the time that the
/// machine needs to leave its idle state (about 5 to 50 µs). This learns how late; the thread polls
/// for the rest.
///
/// The estimate rises by 3 µs after a late wake and falls by 1 µs after an early one, so it settles
/// where one wake in four is late. A few wakes that others on the CPU delay must not make every
/// operation wait long.
#[derive(Clone, Debug, Default)]
pub(crate) struct WakeEarly {
    late_ns: u64,
}

const UP_NS: u64 = 3_000;
const DOWN_NS: u64 = 1_000;
/// The most CPU time to spend on polling before one operation, in ns.
pub(super) const EARLY_NS_MAX: u64 = 60_000;

impl WakeEarly {
    /// Returns when to set the timer for something due at `due_ns`.
    pub(crate) fn timer_ns(&self, due_ns: u64) -> u64 {
        due_ns.saturating_sub(self.late_ns)
    }

    /// Learns from a timer that was set for `timer_ns` and woke the thread at `now_ns`.
    pub(crate) fn woke(&mut self, timer_ns: u64, now_ns: u64) {
        let late_ns = now_ns.saturating_sub(timer_ns);
        self.late_ns = if late_ns > self.late_ns {
            (self.late_ns + UP_NS).min(late_ns).min(EARLY_NS_MAX)
        } else {
            self.late_ns.saturating_sub(DOWN_NS).max(late_ns)
        };
    }
}
