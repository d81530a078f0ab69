//! Reads the clocks. No other file does.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tare_store::Now;

/// A clock: monotonic time since it was made, and wall-clock time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    #[cfg(feature = "simulation")]
    simulated: Option<&'static simulated::VirtualTime>,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            #[cfg(feature = "simulation")]
            simulated: None,
        }
    }

    /// A clock that shows virtual time.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(time: &'static simulated::VirtualTime) -> Self {
        Self { simulated: Some(time), ..Self::new() }
    }

    /// Nanoseconds since the clock was made.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        #[cfg(feature = "simulation")]
        if let Some(time) = self.simulated {
            return time.read_ns();
        }
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The time in the form that the store needs.
    pub(crate) fn now(&self) -> Now {
        let wall_s = u32::try_from(self.wall_us() / 1_000_000).unwrap_or(u32::MAX);
        Now { monotonic_ns: self.now_ns(), wall_s }
    }

    /// Microseconds since the Unix epoch.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    #[cfg_attr(
        not(feature = "simulation"),
        expect(clippy::unused_self, reason = "a simulated clock has the wall clock too")
    )]
    pub(crate) fn wall_us(&self) -> i64 {
        #[cfg(feature = "simulation")]
        if let Some(time) = self.simulated {
            return time.wall_us();
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }
}

#[cfg(feature = "simulation")]
pub(crate) mod simulated {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tare_store::Now;

    /// The time of a simulated machine. Each reading of the clock takes some of it, as computing
    /// does.
    #[derive(Debug)]
    pub struct VirtualTime {
        now_ns: AtomicU64,
        /// Microseconds since the Unix epoch at `now_ns` 0.
        epoch_us: u64,
        reading_ns: u64,
    }

    impl VirtualTime {
        /// Time that begins at `epoch_us` after the Unix epoch. It is never freed.
        pub fn begin(epoch_us: u64, reading_ns: u64) -> &'static Self {
            Box::leak(Box::new(Self { now_ns: AtomicU64::new(0), epoch_us, reading_ns }))
        }

        /// Nanoseconds since the begin.
        pub fn now_ns(&self) -> u64 {
            self.now_ns.load(Ordering::Relaxed)
        }

        /// Lets time pass until then.
        pub fn advance_to(&self, now_ns: u64) {
            self.now_ns.fetch_max(now_ns, Ordering::Relaxed);
        }

        /// The time in the form that a store needs.
        pub fn now(&self) -> Now {
            let monotonic_ns = self.now_ns();
            let wall_s = u64::try_from(self.wall_us()).unwrap_or(0) / 1_000_000;
            Now { monotonic_ns, wall_s: u32::try_from(wall_s).unwrap_or(u32::MAX) }
        }

        pub(crate) fn read_ns(&self) -> u64 {
            self.now_ns.fetch_add(self.reading_ns, Ordering::Relaxed) + self.reading_ns
        }

        pub(crate) fn wall_us(&self) -> i64 {
            let us = self.epoch_us + self.now_ns() / 1000;
            i64::try_from(us).unwrap_or(i64::MAX)
        }
    }
}
