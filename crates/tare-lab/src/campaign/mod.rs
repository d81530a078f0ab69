//! Running a study: environments are started, loaded, frozen, measured in turn, and ended.
//!
//! Method: `schedule` says the order, the four traits do the work, `record` keeps each slice as it
//! ends, `doubt::judge` says what is wrong with it, and `analysis` says when the intervals are
//! narrow enough. What goes wrong in one slice voids that slice; the campaign goes on. Every way
//! out ends all environments and leaves a record that can be read.
//!
//! Limits: everything here happens on one thread, because a slice must not be disturbed by the
//! harness. A part that never returns holds the campaign; parts have deadlines of their own.

mod data;
mod events;
mod measure;
mod member;
mod outcome;
mod parts;
mod rounds;
mod stacks;
#[cfg(test)]
mod tests;
mod waiting;

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::doubt::Doubt;
use crate::environment::{EnvironmentSpec, KeptData};
use crate::layer::Cpu;
use crate::record::{DoubtRecord, RecordWriter};
use crate::schedule::{self, Cell};
use crate::stacks::Afterwards;
use crate::study::{ScheduleKind, Study, control_name};
use member::Member;

pub use events::{Event, NoObserver, Observer, Stage};
pub use outcome::{CampaignError, Ending, Outcome};
pub use parts::{Clock, Make, Memory, Parts, SystemClock};
pub use tare_std::error_line;

/// How long a started system may take until it answers.
pub const READY_DEADLINE: Duration = Duration::from_secs(60);
/// Slices by which the baseline's capacity is found; their median counts.
pub const CALIBRATION_SLICES: u32 = 5;
/// The longest of them; whole runs would take the budget.
pub const CALIBRATION_WINDOW_MAX: Duration = Duration::from_secs(5);
/// Slices that an environment may fail in a row before it is left out.
pub const FAILURES_MAX: u32 = 3;
/// Layers are read back again in every so many blocks: often enough to notice a layer that is
/// lost, seldom enough not to take time from measuring.
pub const READ_BACK_BLOCKS: u32 = 10;
/// Time that ending one environment is taken to need before one was ended.
pub const TEARDOWN_GUESS: Duration = Duration::from_millis(300);

/// Runs a study, or what is left of it after a resume, into its record.
///
/// Whatever happens, every environment is ended and the record is closed. `stop` ends the campaign
/// after the running slice. A resumed campaign has a budget of its own, and goes on with the block
/// that was not complete, in the order and at the rates that it began with.
pub fn run(
    parts: Parts<'_>,
    study: &Study,
    writer: RecordWriter,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Outcome, CampaignError> {
    run_and_look(parts, study, writer, observer, stop, Afterwards::default())
}

/// The same, and looks closer after the rounds where that is ordered: in slices of their own, which
/// touch no other figure. What goes wrong there leaves the rest of the record whole.
pub fn run_and_look<'p>(
    parts: Parts<'p>,
    study: &Study,
    writer: RecordWriter,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
    afterwards: Afterwards<'p>,
) -> Result<Outcome, CampaignError> {
    let mut campaign = Campaign::new(parts, study, writer, observer, stop);
    let result = campaign.prepare().and_then(|()| match study.schedule.kind {
        ScheduleKind::Slices => campaign.slices(),
        ScheduleKind::Trials => campaign.trials(),
    });
    let result = match result {
        Ok(ending) if ending != Ending::Interrupted => {
            campaign.look_closer(afterwards).map(|end| match end {
                Ending::Interrupted => end,
                _ => ending,
            })
        }
        result => result,
    };
    campaign.finish(result)
}

struct Campaign<'c, 'p> {
    parts: Parts<'p>,
    study: &'c Study,
    /// `None` once it is finished.
    writer: Option<RecordWriter>,
    observer: &'c mut dyn Observer,
    stop: &'c AtomicBool,
    /// In the order of the study; the control is the last.
    members: Vec<Member>,
    baseline: usize,
    cells: Vec<Cell>,
    /// Fixed rate of each workload's latency phase, once it is known.
    rates: Vec<Option<f64>>,
    seed: u64,
    began: Duration,
    /// CPUs that every environment starts its system for.
    system_cpus: usize,
    /// The data that starts begin with, once it was loaded.
    kept: Option<Rc<dyn KeptData>>,
    leftovers: Vec<(String, String)>,
    /// The longest teardown of one environment so far.
    teardown: Duration,
    /// The longest start of one environment so far, its data included.
    start_time: Duration,
    /// Durations of the blocks of this run.
    block_times: Vec<Duration>,
}

impl<'c, 'p> Campaign<'c, 'p> {
    fn new(
        parts: Parts<'p>,
        study: &'c Study,
        writer: RecordWriter,
        observer: &'c mut dyn Observer,
        stop: &'c AtomicBool,
    ) -> Self {
        let is_baseline = |spec: &EnvironmentSpec| spec.name == study.baseline;
        // A checked study has its baseline.
        let baseline = study.environments.iter().position(is_baseline).unwrap_or(0);
        let mut members: Vec<Member> =
            study.environments.iter().map(|spec| Member::new(spec.clone(), false)).collect();
        let mut control = study.environments[baseline].clone();
        control.name = control_name(&study.baseline);
        members.push(Member::new(control, true));
        let system_cpus = match study.environments[baseline].cpu {
            Cpu::Pinned => parts.plan.system.len(),
            Cpu::Quota(quota) => {
                let all = parts.plan.all.len();
                (1..=all).find(|cpus| *cpus as f64 >= quota).unwrap_or(all)
            }
            Cpu::Shared => parts.plan.all.len(),
        };
        let known = writer.record().header.rates.clone();
        let rate =
            |name: &str| known.iter().find(|(known, _)| known == name).map(|(_, rate)| *rate);
        Self {
            baseline,
            members,
            cells: schedule::cells(study),
            rates: study.workloads.iter().map(|one| one.rate_per_s.or(rate(&one.name))).collect(),
            seed: writer.record().header.seed,
            began: parts.clock.now(),
            system_cpus,
            kept: None,
            leftovers: Vec::new(),
            teardown: TEARDOWN_GUESS,
            start_time: Duration::ZERO,
            block_times: Vec::new(),
            parts,
            study,
            writer: Some(writer),
            observer,
            stop,
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn stage(&mut self, stage: Stage) {
        self.observer.event(&Event::Stage(stage));
    }

    /// The record, which is open until `finish`.
    fn writer(&mut self) -> &mut RecordWriter {
        self.writer.as_mut().expect("the record is closed by finish() alone")
    }

    /// Writes what is known before anything runs.
    fn prepare(&mut self) -> Result<(), CampaignError> {
        self.check_memory()?;
        for doubt in std::mem::take(&mut self.parts.doubts) {
            self.put_doubt(None, doubt)?;
        }
        for index in 0..self.members.len() {
            self.put_if_new(index)?;
        }
        let rates: Vec<(String, f64)> = self
            .study
            .workloads
            .iter()
            .filter_map(|workload| Some((workload.name.clone(), workload.rate_per_s?)))
            .collect();
        for (workload, rate_per_s) in rates {
            self.writer().put_rate(&workload, rate_per_s)?;
        }
        Ok(())
    }

    fn check_memory(&self) -> Result<(), CampaignError> {
        let Some(memory) = self.parts.memory else { return Ok(()) };
        let need = |member: &Member| {
            let limit = member.record.spec.limits.memory_bytes.unwrap_or(u64::MAX);
            limit.min(memory.per_environment_bytes)
        };
        let needs = self.members.iter().map(need);
        let (environments, needed_bytes) = match self.study.schedule.kind {
            ScheduleKind::Slices => (self.members.len(), needs.sum()),
            ScheduleKind::Trials => (1, needs.max().unwrap_or(0)),
        };
        if needed_bytes > memory.available_bytes {
            let available_bytes = memory.available_bytes;
            return Err(CampaignError::Memory { environments, needed_bytes, available_bytes });
        }
        Ok(())
    }

    fn put_doubt(&mut self, environment: Option<&str>, doubt: Doubt) -> Result<(), CampaignError> {
        self.observer.event(&Event::Doubted { environment, doubt: &doubt });
        let environment = environment.map(str::to_string);
        Ok(self.writer().put_doubt(&DoubtRecord { slice: None, environment, doubt })?)
    }

    /// Writes an environment as it is known now.
    fn put_member(&mut self, index: usize) -> Result<(), CampaignError> {
        let position = u32::try_from(index).unwrap_or(u32::MAX);
        let writer = self.writer.as_mut().expect("the record is open");
        Ok(writer.put_environment(position, &self.members[index].record)?)
    }

    /// Writes an environment unless a run before a resume knew more about it.
    fn put_if_new(&mut self, index: usize) -> Result<(), CampaignError> {
        let record = &self.members[index].record;
        let seen = record.ready_ns.is_some() || record.left_out.is_some();
        let name = record.spec.name.clone();
        let known = &self.writer().record().environments;
        match seen || known.iter().all(|one| one.spec.name != name) {
            true => self.put_member(index),
            false => Ok(()),
        }
    }

    /// Ends everything and closes the record, whatever the result.
    fn finish(mut self, result: Result<Ending, CampaignError>) -> Result<Outcome, CampaignError> {
        self.stage(Stage::TearingDown);
        self.tear_down();
        let unix_ms = self.parts.clock.unix_ms();
        // A disk that is full cannot take this either; the first error is the one to tell.
        let written = (0..self.members.len()).try_for_each(|index| self.put_if_new(index));
        let text = match &result {
            Ok(ending) => ending.text().to_string(),
            Err(error) => format!("failed: {}", error_line(error)),
        };
        let writer = self.writer.take().expect("finish is called once");
        let (blocks, record) = (writer.blocks(), writer.path().to_path_buf());
        let closed = writer.finish(&text, unix_ms);
        let ending = result?;
        written?;
        closed?;
        Ok(Outcome { ending, blocks, record, leftovers: std::mem::take(&mut self.leftovers) })
    }

    fn tear_down(&mut self) {
        for index in (0..self.members.len()).rev() {
            self.stop_member(index);
        }
        if let Err(error) = self.parts.driver.stop() {
            self.leftover("the driver", &*error);
        }
    }

    fn leftover(&mut self, name: &str, error: &(dyn std::error::Error + 'static)) {
        let reason = error_line(error);
        self.observer.event(&Event::TeardownFailed { name, reason: &reason });
        self.leftovers.push((name.to_string(), reason));
    }
}

impl Drop for Campaign<'_, '_> {
    /// After a panic: no environment may outlive the campaign.
    fn drop(&mut self) {
        if self.writer.is_some() {
            self.tear_down();
        }
    }
}
