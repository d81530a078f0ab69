//! How the rows of a campaign's workloads get into its environments: written by the driver after
//! each start, or written once, in the baseline, and put into every other start as a copy.
//!
//! Method: the baseline is started once more than it is measured. Its rows are loaded, the system is
//! ended in good order and keeps its files, and each start begins with them. So all environments
//! have the same files, byte by byte, and a start takes what linking or copying them takes.
//!
//! Limits: what was loaded stands in memory as it was written, what is restored stands in files; a
//! study has one or the other in all environments that allow it, and the record says in which not.

use std::time::Duration;

use super::member::StartError;
use super::{Campaign, CampaignError, Event, Stage};
use crate::driver::TargetId;
use crate::environment::{LayerState, Restored};
use crate::schedule;
use crate::study::DataStart;

/// Name of the layer state that says how the data came into an environment.
pub(super) const DATA: &str = "data";

impl Campaign<'_, '_> {
    /// Loads the rows in the baseline and keeps them, where the study wants that and the system can.
    pub(super) fn keep_data(&mut self) -> Result<(), CampaignError> {
        let wanted = self.study.schedule.data == DataStart::Restored;
        let system = self.parts.system;
        // What one instance has is not what another has.
        let keeps = wanted && system.keeps_data() && system.instances().count == 1;
        let to = self.parts.keep.clone().filter(|_| keeps);
        let Some(to) = to else { return Ok(()) };
        self.stage(Stage::Starting);
        let baseline = self.baseline;
        if let Err(error) = self.start_member(baseline) {
            return self.not_started(baseline, error);
        }
        // Of a load that was stopped there may be half.
        if self.stopped() {
            return Ok(());
        }
        let Some(running) = self.members[baseline].running.as_mut() else { return Ok(()) };
        let processes = running.environment.processes().system;
        let Some(at) = running.endpoints.first() else { return Ok(()) };
        let kept = self.parts.system.keep(at, &processes, &to);
        self.stop_member(baseline);
        // Its first start that counts is the next, and takes less time.
        self.members[baseline].record.ready_ns = None;
        self.start_time = Duration::ZERO;
        match kept {
            Ok(kept) => self.kept = kept,
            Err(source) => {
                let error = StartError::Part { step: "keep the data of", source };
                return self.not_started(baseline, error);
            }
        }
        Ok(())
    }

    /// Writes the rows of all workloads by the driver.
    pub(super) fn load_data(
        &mut self,
        target: TargetId,
        environment: &str,
    ) -> Result<(), StartError> {
        for (number, workload) in self.study.workloads.iter().enumerate() {
            let seed = schedule::rows_seed(self.seed, number);
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

/// How the data came into an environment, for the record, where the study wants it restored.
pub(super) fn state(wanted: DataStart, restored: Option<Restored>) -> Option<LayerState> {
    if wanted == DataStart::Loaded {
        return None;
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let found = match restored {
        Some(Restored { linked_bytes, copied_bytes, took }) => format!(
            "restored in {:.1} ms: {:.1} MiB shared by hard links, {:.1} MiB copied",
            took.as_secs_f64() * 1e3,
            mib(linked_bytes),
            mib(copied_bytes)
        ),
        None => "loaded by the driver".into(),
    };
    // Either way the rows are those of the study.
    Some(LayerState { layer: DATA.into(), wanted: "restored".into(), found, in_force: true })
}
