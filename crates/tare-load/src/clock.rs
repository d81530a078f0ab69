//! The clocks of the load generator: one for operations, two for its own CPU use.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::time::{ClockId, clock_gettime};

/// Returns the time of CLOCK_MONOTONIC in ns, from the vDSO, without a system call. Steps of the
/// wall clock do not change it.
#[inline]
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Returns the CPU time of the calling thread in ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// Returns the write time for what is written now, in µs since the epoch.
pub(crate) fn since_epoch_us() -> u64 {
    read(ClockId::Realtime) / 1_000
}

/// The wall clock beside the clock of [`now_ns`], to place times of one on the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WallClock {
    /// How far the wall clock was ahead at the last comparison, in ns.
    ahead_ns: Option<u64>,
}

impl WallClock {
    /// The longest comparison that counts, in ns: a longer one was interrupted.
    const COMPARISON_NS_MAX: u64 = 1_000;

    /// Compares the clocks. A comparison that was interrupted changes nothing, unless it is the
    /// first.
    #[inline]
    pub(crate) fn compare(&mut self) {
        let before_ns = now_ns();
        let wall_ns = read(ClockId::Realtime);
        let took_ns = now_ns() - before_ns;
        if took_ns <= Self::COMPARISON_NS_MAX || self.ahead_ns.is_none() {
            self.ahead_ns = wall_ns.checked_sub(before_ns + took_ns / 2);
        }
    }

    /// Returns the time of the other clock at which the wall clock showed this, in ns. `None` if
    /// the clocks were not compared.
    #[inline]
    pub(crate) fn monotonic_ns(&self, wall_ns: u64) -> Option<u64> {
        wall_ns.checked_sub(self.ahead_ns?)
    }
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Both clocks count up from a start in the past, so neither field is ever negative.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// How long the thread that made it was ready to run and waited for a CPU. Source:
/// Documentation/scheduler/sched-stats.rst of the kernel, the second field of
/// `/proc/PID/schedstat`.
#[derive(Debug)]
pub(crate) struct RunDelay {
    /// `None` if the kernel does not report it.
    file: Option<File>,
}

impl RunDelay {
    pub(crate) fn of_this_thread() -> Self {
        Self { file: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// Returns the time in ns since the thread began.
    pub(crate) fn read_ns(&self) -> Option<u64> {
        let mut text = [0; 64];
        let length = self.file.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..length)?).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}
