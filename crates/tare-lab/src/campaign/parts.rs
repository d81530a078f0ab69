//! What a campaign works with: parts, time and memory, given by the program.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::PartError;
use crate::doubt::Doubt;
use crate::driver::Driver;
use crate::environment::{CpuPlan, Environment, EnvironmentSpec};
use crate::probe::Probe;
use crate::system::System;

/// Time, so that tests need none.
pub trait Clock {
    /// Time since some fixed instant.
    fn now(&self) -> Duration;
    /// ms since 1970.
    fn unix_ms(&self) -> u64;
    /// Lets time pass.
    fn wait(&self, time: Duration);
}

/// The host's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// Starts at zero.
    #[expect(clippy::new_without_default, reason = "it reads the time")]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn unix_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn wait(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Memory of the host against what the environments need while they are all up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// `MemAvailable` of the host.
    pub available_bytes: u64,
    /// What one environment with its data is expected to need; a memory limit caps it.
    pub per_environment_bytes: u64,
}

/// Makes an environment, which does not start it.
pub type Make<'p> = dyn FnMut(&EnvironmentSpec) -> Result<Box<dyn Environment>, PartError> + 'p;

/// What a campaign works with.
#[expect(missing_debug_implementations, reason = "parts are trait objects without Debug")]
pub struct Parts<'p> {
    pub make: &'p mut Make<'p>,
    pub system: &'p dyn System,
    pub driver: &'p mut dyn Driver,
    pub probes: Vec<Box<dyn Probe + 'p>>,
    pub clock: &'p dyn Clock,
    pub plan: CpuPlan,
    /// `None` checks nothing.
    pub memory: Option<Memory>,
    /// A directory that is not there, for data that is loaded once (`study::DataStart::Restored`).
    /// It has to go with the run. `None`: every start loads its own.
    pub keep: Option<PathBuf>,
    /// Doubts about the whole record that the caller has found (a baseline that is not clean).
    pub doubts: Vec<Doubt>,
}
