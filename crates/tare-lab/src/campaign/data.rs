//! Loads the rows of a campaign's workloads: the driver writes them after each start, or once in
//! the baseline, and every later start begins with a copy.
//!
//! Method for copies: an additional start of the baseline loads the rows, then the system shuts
//! down cleanly and its files are saved. Each start restores them. So all environments have the
//! same files, byte by byte, and a start takes only as long as linking or copying them.
//!
//! The rows of separate instances are the same, so the data of the first one is that of all. Data
//! that an earlier study has loaded is taken from the caller's cache, if it has it.
//!
//! Limits: loaded rows are still in memory, restored rows are in files. A study uses one method in
//! all environments that allow it. The record names the environments that do not.

use std::path::Path;
use std::time::Duration;

use tare_std::units::rough_duration;

use super::outcome::StartError;
use super::{CachedData, Campaign, CampaignError, Event, Stage, WantedData};
use crate::driver::TargetId;
use crate::environment::{DATA_LAYER, DataSnapshot, LayerState, RestoreStats};
use crate::schedule;
use crate::study::{DataStart, Study, WorkloadSpec};
use crate::system::System;

/// The seed of restored rows in studies without a seed, so that they have the same data.
const RESTORED_SEED: u64 = 0;

impl Campaign<'_, '_> {
    /// Gets the saved rows of the baseline from the cache, or loads them there and saves them, if
    /// the study requests that and the system supports it.
    pub(super) fn save_data(&mut self) -> Result<(), CampaignError> {
        let wanted = self.study.schedule.data == DataStart::Restored;
        let system = self.parts.system_of(&self.study.environments[self.baseline]);
        // The nodes of a cluster have separate data, and those of other hosts are not seen here.
        let is_whole = !system.instances().cluster && self.parts.hosts.is_none();
        let saves = wanted && system.can_save_data() && is_whole;
        let to = self.parts.data_dir.clone().filter(|_| saves);
        let Some(to) = to else { return Ok(()) };
        self.stage(Stage::Starting);
        if self.find_data(system, &to) {
            return Ok(());
        }
        let (baseline, began) = (self.baseline, self.parts.clock.now());
        if let Err(error) = self.start_member(baseline) {
            return self.handle_start_error(baseline, error);
        }
        // A stopped load may be incomplete.
        if self.stopped() {
            return Ok(());
        }
        let Some(running) = self.members[baseline].running.as_mut() else { return Ok(()) };
        let processes = running.environment.processes().system;
        let Some(at) = running.endpoints.first() else { return Ok(()) };
        let snapshot = system.save_data(at, &processes, &to);
        self.stop_member(baseline);
        // Start times count from the next start on, which is faster.
        self.members[baseline].record.ready_ns = None;
        self.start_time = Duration::ZERO;
        let load_time = self.parts.clock.now() - began;
        match snapshot {
            Ok(Some(snapshot)) => {
                self.keep_data(&*snapshot, load_time);
                self.snapshot = Some(snapshot);
                self.data_origin = Some(DataOrigin { load_time, age: None });
            }
            Ok(None) => {}
            Err(source) => {
                let error = StartError::Part { step: "save the data of", source };
                return self.handle_start_error(baseline, error);
            }
        }
        Ok(())
    }

    /// Gets the data from the cache. Returns whether it has it.
    fn find_data(&mut self, system: &dyn System, to: &Path) -> bool {
        let cpus = self.cpus_of_instance(system);
        let rows = rows_to_write(self.study, self.seed);
        let baseline = &self.study.environments[self.baseline];
        let wanted = WantedData { baseline, system, cpus, rows: &rows };
        let Some(cache) = &mut self.parts.data_cache else { return false };
        let mut lines = Vec::new();
        let found = cache.find(&wanted, to, &mut lines);
        self.say_of_data(&lines);
        let Some(CachedData { data, age, load_time }) = found else { return false };
        let origin = DataOrigin { load_time, age: Some(age) };
        self.say_of_data(&[format!("data {}", origin.text())]);
        self.snapshot = Some(data);
        self.data_origin = Some(origin);
        true
    }

    fn keep_data(&mut self, data: &dyn DataSnapshot, load_time: Duration) {
        let Some(cache) = &mut self.parts.data_cache else { return };
        let mut lines = Vec::new();
        cache.keep(data, load_time, &mut lines);
        self.say_of_data(&lines);
    }

    fn say_of_data(&mut self, lines: &[String]) {
        lines.iter().for_each(|line| self.observer.event(&Event::DataSaved { line }));
    }

    /// Tells the driver that an environment has the rows of all workloads.
    pub(super) fn assume_data(&mut self, target: TargetId) -> Result<(), StartError> {
        for (workload, seed) in rows_to_write(self.study, self.seed) {
            let noted = self.parts.driver.assume_rows(target, workload, seed);
            noted.map_err(|source| StartError::Part { step: "use the data of", source })?;
        }
        Ok(())
    }

    /// Lets the driver write the rows of all workloads.
    pub(super) fn load_data(
        &mut self,
        target: TargetId,
        environment: &str,
    ) -> Result<(), StartError> {
        for (workload, seed) in rows_to_write(self.study, self.seed) {
            let observer = &mut *self.observer;
            let mut progress = |done, all| {
                let workload = workload.name.as_str();
                observer.event(&Event::Populating { environment, workload, done, all });
            };
            let populated = self.parts.driver.populate(target, workload, seed, &mut progress);
            populated.map_err(|source| StartError::Part { step: "load the data of", source })?;
            if self.stopped() {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the workloads whose rows are written, the first of those that have the same, each with
/// the seed of its rows. `seed` is that of the study's run.
pub fn rows_to_write(study: &Study, seed: u64) -> Vec<(&WorkloadSpec, u64)> {
    let all = &study.workloads;
    let is_first =
        |number: &usize| !all[..*number].iter().any(|other| all[*number].has_rows_of(other));
    let numbers = (0..all.len()).filter(is_first);
    let seed = match (study.schedule.data, study.schedule.seed) {
        (DataStart::Restored, None) => RESTORED_SEED,
        _ => seed,
    };
    numbers.map(|number| (&all[number], schedule::rows_seed(seed, number))).collect()
}

/// Where saved data is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataOrigin {
    /// How long the load took, with the start and the stop of the system.
    pub(super) load_time: Duration,
    /// How long ago that was, if the data is from the cache.
    pub(super) age: Option<Duration>,
}

impl DataOrigin {
    fn text(self) -> String {
        let took = format!("{:.1} s", self.load_time.as_secs_f64());
        match self.age {
            None => format!("loaded in {took}"),
            Some(age) => format!("from the cache: loaded {} ago in {took}", rough_duration(age)),
        }
    }
}

/// Returns the layer state about an environment's data, if the study requests restored data.
pub(super) fn state(
    wanted: DataStart,
    restored: Option<RestoreStats>,
    origin: Option<DataOrigin>,
) -> Option<LayerState> {
    if wanted == DataStart::Loaded {
        return None;
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let found = match restored {
        Some(RestoreStats { linked_bytes, cloned_bytes, copied_bytes, took }) => {
            let origin = origin.map(|origin| format!("; {}", origin.text())).unwrap_or_default();
            let cloned = match cloned_bytes {
                0 => String::new(),
                bytes => format!("{:.1} MiB by reflinks, ", mib(bytes)),
            };
            format!(
                "restored in {:.1} ms: {:.1} MiB shared by hard links, {cloned}{:.1} MiB copied{origin}",
                took.as_secs_f64() * 1e3,
                mib(linked_bytes),
                mib(copied_bytes)
            )
        }
        None => "loaded by the driver".into(),
    };
    // In force either way: loaded and restored rows are the same.
    Some(LayerState { layer: DATA_LAYER.into(), wanted: "restored".into(), found, in_force: true })
}
