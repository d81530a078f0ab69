//! The only place that reads clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tare_store::Now;

/// Monotonic time since the clock was made, and wall-clock time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// Nanoseconds since the clock was made.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// As the store wants it.
    pub(crate) fn now(&self) -> Now {
        let wall_s = u32::try_from(self.wall_us() / 1_000_000).unwrap_or(u32::MAX);
        Now { monotonic_ns: self.now_ns(), wall_s }
    }

    /// Microseconds since 1970.
    #[expect(clippy::disallowed_methods, clippy::unused_self, reason = "this is the clock")]
    pub(crate) fn wall_us(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }
}
