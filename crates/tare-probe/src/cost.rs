//! The time that a probe takes at the edges of a slice, measured on this host.

use std::fmt;
use std::time::{Duration, Instant};

use tare_lab::PartError;
use tare_lab::probe::{Probe, Scope};

/// The number of readings. The cost is their median.
const READINGS: usize = 11;

/// The time that a probe takes: the median of a few readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// At the beginning of a slice.
    pub begin: Duration,
    /// At the end of a slice.
    pub end: Duration,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |time: Duration| tare_std::units::significant(time.as_secs_f64() * 1e6, 2);
        let (begin, end) = (us(self.begin), us(self.end));
        write!(f, "{begin} µs at the beginning of a slice, {end} µs at its end")
    }
}

impl Cost {
    /// Returns the time as text, and how the probe reads this host where that is not the usual way.
    pub fn with_method(&self, probe: &dyn Probe) -> String {
        match probe.method() {
            Some(method) => format!("{self}; {method}"),
            None => self.to_string(),
        }
    }
}

/// Measures a probe on this process. The working directory serves as the data directory.
///
/// # Errors
/// If the probe cannot be read.
pub fn cost(probe: &mut dyn Probe) -> Result<Cost, PartError> {
    let own = vec![std::process::id()];
    let data = std::env::current_dir().into_iter().collect();
    let scope =
        Scope { system: own.clone(), layer: Vec::new(), client: own, data, ..Scope::default() };
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
