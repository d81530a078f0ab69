//! Loads the rows of a campaign's workloads: the driver writes them after each start, or once in
//! the baseline, and every later start begins with a copy.
//!
//! Method for copies: an additional start of the baseline loads the rows, then the system shuts
//! down cleanly and its files are saved. Each start restores them. So all environments have the
//! same files, byte by byte, and a start takes only as long as linking or copying them.
//!
//! Limits: loaded rows are still in memory, restored rows are in files. A study uses one method in
//! all environments that allow it. The record names the environments that do not.

use std::time::Duration;

use super::outcome::StartError;
use super::{Campaign, CampaignError, Event, Stage};
use crate::driver::TargetId;
use crate::environment::{LayerState, RestoreStats};
use crate::schedule;
use crate::study::{DataStart, Study, WorkloadSpec};

/// Name of the layer state that records how an environment received its data.
pub(super) const DATA: &str = "data";

impl Campaign<'_, '_> {
    /// Loads the rows in the baseline and saves them, if the study requests that and the system
    /// supports it.
    pub(super) fn save_data(&mut self) -> Result<(), CampaignError> {
        let wanted = self.study.schedule.data == DataStart::Restored;
        let system = self.parts.system_of(&self.study.environments[self.baseline]);
        // Several instances have separate data.
        let saves = wanted && system.can_save_data() && system.instances().count == 1;
        let to = self.parts.data_dir.clone().filter(|_| saves);
        let Some(to) = to else { return Ok(()) };
        self.stage(Stage::Starting);
        let baseline = self.baseline;
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
        match snapshot {
            Ok(snapshot) => self.snapshot = snapshot,
            Err(source) => {
                let error = StartError::Part { step: "save the data of", source };
                return self.handle_start_error(baseline, error);
            }
        }
        Ok(())
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
/// the seed of its rows.
fn rows_to_write(study: &Study, seed: u64) -> Vec<(&WorkloadSpec, u64)> {
    let all = &study.workloads;
    let is_first =
        |number: &usize| !all[..*number].iter().any(|other| all[*number].has_rows_of(other));
    let numbers = (0..all.len()).filter(is_first);
    numbers.map(|number| (&all[number], schedule::rows_seed(seed, number))).collect()
}

/// Returns the layer state about an environment's data, if the study requests restored data.
pub(super) fn state(wanted: DataStart, restored: Option<RestoreStats>) -> Option<LayerState> {
    if wanted == DataStart::Loaded {
        return None;
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let found = match restored {
        Some(RestoreStats { linked_bytes, cloned_bytes, copied_bytes, took }) => {
            let cloned = match cloned_bytes {
                0 => String::new(),
                bytes => format!("{:.1} MiB by reflinks, ", mib(bytes)),
            };
            format!(
                "restored in {:.1} ms: {:.1} MiB shared by hard links, {cloned}{:.1} MiB copied",
                took.as_secs_f64() * 1e3,
                mib(linked_bytes),
                mib(copied_bytes)
            )
        }
        None => "loaded by the driver".into(),
    };
    // In force either way: loaded and restored rows are the same.
    Some(LayerState { layer: DATA.into(), wanted: "restored".into(), found, in_force: true })
}
