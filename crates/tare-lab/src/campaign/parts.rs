//! The parts, clock and memory limits of a campaign, which the caller supplies.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::PartError;
use crate::doubt::Doubt;
use crate::driver::Driver;
use crate::environment::{CpuPlan, DataSnapshot, Environment, EnvironmentSpec};
use crate::path::DeviceTowards;
use crate::probe::Probe;
use crate::study::{ScheduleKind, WorkloadSpec};
use crate::system::System;

/// The campaign's clock. Tests use a virtual one.
pub trait Clock {
    /// Returns the time since a fixed instant.
    fn now(&self) -> Duration;
    /// Returns the time in ms since 1970.
    fn unix_ms(&self) -> u64;
    /// Waits for this time.
    fn wait(&self, time: Duration);
}

/// The host's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// Creates a clock that starts at zero.
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

/// The host's memory, and the need of the environments while all of them run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// `MemAvailable` of the host.
    pub available_bytes: u64,
    /// Expected need of one environment with its data and this many instances; a memory limit caps
    /// it.
    pub per_environment_bytes: u64,
    pub instances: u32,
}

impl Memory {
    /// Returns how many of these environments are up at once, and the bytes that they need. An
    /// attached system has its memory already.
    pub fn needed<'s>(
        &self,
        kind: ScheduleKind,
        specs: impl Iterator<Item = &'s EnvironmentSpec>,
    ) -> (usize, u64) {
        let need = |spec: &EnvironmentSpec| {
            let instances = u64::from(spec.instances.unwrap_or(self.instances));
            let each = self.per_environment_bytes / u64::from(self.instances.max(1));
            spec.limits.memory_bytes.unwrap_or(u64::MAX).min(each.saturating_mul(instances))
        };
        let started = specs.filter(|spec| spec.attach.is_none());
        let needs: Vec<u64> = started.map(need).collect();
        match kind {
            ScheduleKind::Slices => (needs.len(), needs.iter().sum()),
            ScheduleKind::Trials => (1, needs.into_iter().max().unwrap_or(0)),
        }
    }
}

/// Creates an environment without starting it.
pub type EnvironmentFactory<'p> =
    dyn FnMut(&EnvironmentSpec) -> Result<Box<dyn Environment>, PartError> + 'p;

/// Options of a system as (name, value).
pub type SystemOptions = Vec<(String, String)>;

impl<'p> Parts<'p> {
    /// Returns the parts without probes, the check of memory, a directory for data and doubts. The
    /// accounts are read as they are.
    pub fn new(
        factory: &'p mut EnvironmentFactory<'p>,
        system: &'p dyn System,
        driver: &'p mut dyn Driver,
        clock: &'p dyn Clock,
        plan: CpuPlan,
    ) -> Self {
        Self {
            factory,
            system,
            systems_with_options: Vec::new(),
            driver,
            probes: Vec::new(),
            clock,
            plan,
            memory: None,
            data_dir: None,
            data_cache: None,
            doubts: Vec::new(),
            left_out: Vec::new(),
            device_towards: None,
            refresh_accounts: Box::new(|| {}),
            drop_cached_pages: Box::new(|_| Ok(())),
            accounts_are_exact: true,
            hosts: None,
            goal: None,
        }
    }

    /// Returns the system with the options of an environment.
    pub(super) fn system_of(&self, spec: &EnvironmentSpec) -> &'p dyn System {
        let mut own = self.systems_with_options.iter();
        let wanted = spec.system_options();
        own.find(|(options, _)| *options == wanted).map_or(self.system, |(_, system)| *system)
    }
}

/// Drops what the page cache has of a directory.
pub type DropCachedPages<'p> = dyn FnMut(&Path) -> Result<(), PartError> + 'p;

/// Loaded data that is kept for later studies. It costs nothing to lose: what cannot be used or
/// kept is a line for the user.
pub trait DataCache {
    /// Puts the data that the study wants into the new directory `to`, if the cache has it. Adds
    /// lines for the user.
    fn find(
        &mut self,
        wanted: &WantedData<'_>,
        to: &Path,
        lines: &mut Vec<String>,
    ) -> Option<CachedData>;

    /// Keeps the data that `find` did not find.
    fn keep(&mut self, data: &dyn DataSnapshot, load_time: Duration, lines: &mut Vec<String>);
}

/// The data of a study, by what it depends on.
#[expect(missing_debug_implementations, reason = "it has a system")]
pub struct WantedData<'d> {
    pub baseline: &'d EnvironmentSpec,
    /// The system with the options of the baseline.
    pub system: &'d dyn System,
    /// The CPUs of one instance.
    pub cpus: usize,
    /// The workloads whose rows are written, with the seeds of the rows.
    pub rows: &'d [(&'d WorkloadSpec, u64)],
}

/// Data from the cache.
#[derive(Debug)]
pub struct CachedData {
    pub data: Rc<dyn DataSnapshot>,
    /// How long ago it was loaded.
    pub age: Duration,
    /// How long that took.
    pub load_time: Duration,
}

/// Everything that a campaign needs from its caller.
#[expect(missing_debug_implementations, reason = "parts are trait objects without Debug")]
pub struct Parts<'p> {
    pub factory: &'p mut EnvironmentFactory<'p>,
    pub system: &'p dyn System,
    /// The system with the options of an environment (`EnvironmentSpec::system_options`), for each
    /// set of options that an environment has.
    pub systems_with_options: Vec<(SystemOptions, &'p dyn System)>,
    pub driver: &'p mut dyn Driver,
    pub probes: Vec<Box<dyn Probe + 'p>>,
    pub clock: &'p dyn Clock,
    pub plan: CpuPlan,
    /// `None` skips the check of memory.
    pub memory: Option<Memory>,
    /// Path of a new directory for data that is loaded once (`study::DataStart::Restored`). The
    /// caller removes it after the run. `None`: every start loads its own data.
    pub data_dir: Option<PathBuf>,
    /// Data that earlier studies have loaded. `None`: every study loads its own.
    pub data_cache: Option<Box<dyn DataCache + 'p>>,
    /// Doubts of the caller about the whole record, such as a baseline that is not clean.
    pub doubts: Vec<Doubt>,
    /// Environments that are not started, with the reasons.
    pub left_out: Vec<(String, String)>,
    /// Finds the device of this host towards a loader; `None`: it is not looked for.
    pub device_towards: Option<Box<DeviceTowards<'p>>>,
    /// Called at both edges before the CPU accounts are read, to bring them up to date.
    pub refresh_accounts: Box<dyn FnMut() + 'p>,
    /// Whether that works. Otherwise the accounts of running threads are up to one scheduler tick
    /// old, which is too much for short slices.
    pub accounts_are_exact: bool,
    /// Drops what the page cache has of a system's data directory.
    pub drop_cached_pages: Box<DropCachedPages<'p>>,
    /// Set if the instances of the system run on hosts of their own.
    pub hosts: Option<SystemHosts<'p>>,
    /// `None`: the study's schedule ends the rounds.
    pub goal: Option<&'p Goal>,
}

/// A question that ends the rounds once it is answered, in place of the study's number of rounds
/// and width of intervals.
#[expect(missing_debug_implementations, reason = "it has a closure")]
pub struct Goal {
    /// At most this many rounds; `None`: those that the budget has time for.
    pub rounds: Option<u32>,
    /// Reads the record so far and returns whether the question is answered. Called after rounds
    /// whose numbers grow by half each time, so that it is asked a few times only.
    pub is_reached: Box<dyn Fn(&Path) -> bool>,
}

/// The hosts of a system, each with one instance.
#[expect(missing_debug_implementations, reason = "it has a closure")]
pub struct SystemHosts<'p> {
    /// The CPUs of one instance: those of the host that gives it the fewest.
    pub instance_cpus: usize,
    /// All CPUs of the plans of the hosts.
    pub cpus: usize,
    /// Whether this host is one of them.
    pub has_this: bool,
    /// Returns why a host is lost, if one is.
    pub lost: Box<dyn Fn() -> Option<String> + 'p>,
}
