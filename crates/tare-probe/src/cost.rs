//! What a probe costs at the edges of a slice, measured where and when it is asked.

use std::fmt;
use std::time::{Duration, Instant};

use tare_lab::PartError;
use tare_lab::probe::{Probe, Scope};

/// Readings of which the median counts.
const READINGS: usize = 11;

/// Time that a probe takes, the median of a few readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// At the beginning of a slice.
    pub begin: Duration,
    /// At its end.
    pub end: Duration,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |time: Duration| tare_std::units::significant(time.as_secs_f64() * 1e6, 2);
        let (begin, end) = (us(self.begin), us(self.end));
        write!(f, "{begin} µs at the beginning of a slice, {end} µs at its end")
    }
}

/// Reads a probe a few times as at the edges of slices of this process, with its working directory
/// in the place of data.
///
/// # Errors
/// If the probe cannot be read.
pub fn cost(probe: &mut dyn Probe) -> Result<Cost, PartError> {
    let own = vec![std::process::id()];
    let data = std::env::current_dir().ok();
    let scope = Scope { system: own.clone(), layer: Vec::new(), client: own, data };
    let (mut begins, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..READINGS {
        probe.prepare(&scope)?;
        let started = Instant::now();
        probe.begin()?;
        begins.push(started.elapsed());
        let started = Instant::now();
        probe.end()?;
        ends.push(started.elapsed());
    }
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[READINGS / 2]
    };
    Ok(Cost { begin: median(begins), end: median(ends) })
}
