//! Runs a study: starts, loads and freezes the environments, measures one at a time, and ends them.
//!
//! Method: `schedule` gives the order, the four traits do the work, `record` stores each slice as
//! it ends, `judge` adds doubts, and `analysis` finds when the intervals are narrow enough.
//! A failure in one slice voids that slice; the campaign continues. Every exit ends all
//! environments and leaves a readable record.
//!
//! Limits: a campaign runs on one thread, so that the harness does not disturb a slice. A part that
//! never returns rounds the campaign; parts have their own deadlines.

mod climb;
mod data;
mod events;
mod measure;
mod member;
mod objective;
mod outcome;
mod parts;
mod restarts;
mod rounds;
mod shares;
mod stacks;
#[cfg(test)]
mod tests;
mod waiting;
pub(crate) mod window;

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::analysis::response_times;
use crate::doubt::Doubt;
use crate::environment::{DataSnapshot, EnvironmentSpec};
use crate::judge;
use crate::record::{DoubtRecord, Record, RecordWriter};
use crate::schedule::{self, Cell};
use crate::stacks::ExtraRounds;
use crate::study::{ScheduleKind, Study, WorkloadSpec, control_name};
use data::DataOrigin;
use member::Member;

#[cfg(test)]
pub(crate) use measure::empty as empty_slice;

pub use climb::CLIMB_BUDGET_SHARE;
pub use data::rows_to_write;
pub use events::{Event, NoObserver, Observer, Stage};
pub use outcome::{CampaignError, Ending, Outcome};
pub use parts::{
    CachedData, Clock, DataCache, DropCachedPages, EnvironmentFactory, Goal, Memory, Parts,
    SystemClock, SystemHosts, SystemOptions, WantedData,
};
pub use rounds::SLICE_EXTRA_GUESS;
pub use shares::{instance_cpus, system_cpus};
pub use tare_std::error_line;

/// Time limit for the driver to connect to a started system.
pub const READY_DEADLINE: Duration = Duration::from_secs(60);
/// Number of slices that find the baseline's capacity, which is their median.
pub const CALIBRATION_SLICES: u32 = 5;
/// Maximum window of these slices: whole runs would use up the budget.
pub const CALIBRATION_WINDOW_MAX: Duration = Duration::from_secs(5);
/// Failed slices in a row after which an environment is left out.
pub const FAILURES_MAX: u32 = 3;
/// The same for slices in which no operation ended: those of about this time of load, at most
/// [`EMPTY_SLICES_MAX`] and at least [`FAILURES_MAX`]. On a busy host a system may wait for a CPU
/// or a disk for longer than a short slice.
pub const EMPTY_LOAD: Duration = Duration::from_secs(1);
pub const EMPTY_SLICES_MAX: u32 = 10;
/// Rounds between two read-backs of the layers: often enough to notice a lost layer, and
/// seldom enough to leave the time to measuring.
pub const READ_BACK_ROUNDS: u32 = 10;
/// Expected teardown time of one environment before the first teardown.
pub const TEARDOWN_GUESS: Duration = Duration::from_millis(300);
/// How long a process may take to end after it closed its sockets.
const ENDING_MAX: Duration = Duration::from_secs(2);

/// Runs a study, or the rest of it after a resume, into its record.
///
/// In every case all environments end and the record is closed. `stop` ends the campaign after the
/// running slice. A resumed campaign has a new budget, and continues with the incomplete round, in
/// the original order and at the original rates.
pub fn run(
    parts: Parts<'_>,
    study: &Study,
    writer: RecordWriter,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Outcome, CampaignError> {
    run_with_extra_rounds(parts, study, writer, observer, stop, ExtraRounds::default())
}

/// Runs a study as [`run`] does, and then the extra rounds, in slices of their own. Their figures
/// and failures do not affect the rest of the record.
pub fn run_with_extra_rounds<'p>(
    parts: Parts<'p>,
    study: &Study,
    writer: RecordWriter,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
    extra: ExtraRounds<'p>,
) -> Result<Outcome, CampaignError> {
    let mut campaign = Campaign::new(parts, study, writer, observer, stop);
    let result = campaign.prepare().and_then(|()| match study.schedule.kind {
        ScheduleKind::Slices => campaign.slices(),
        ScheduleKind::Trials => campaign.trials(),
    });
    let result = match result {
        Ok(ending) if ending != Ending::Interrupted => {
            campaign.run_extra_rounds(extra).map(|end| match end {
                Ending::Interrupted => end,
                _ => ending,
            })
        }
        result => result,
    };
    campaign.finish(result)
}

/// Returns the workloads of a study, with the loads that a resumed record has found before.
fn workloads(study: &Study, recorded: &Study) -> Vec<WorkloadSpec> {
    let found = |own: &WorkloadSpec| {
        let known = recorded.workloads.iter().find(|one| one.name == own.name);
        let known = known.filter(|one| one.load.climb().is_some()).unwrap_or(own).clone();
        // A resumed run has rows of its own in attached systems.
        WorkloadSpec { attached_rows: own.attached_rows.clone(), ..known }
    };
    study.workloads.iter().map(found).collect()
}

struct Campaign<'c, 'p> {
    parts: Parts<'p>,
    study: &'c Study,
    /// `None` after `finish`.
    writer: Option<RecordWriter>,
    observer: &'c mut dyn Observer,
    stop: &'c AtomicBool,
    /// In the order of the study; the control is the last.
    members: Vec<Member>,
    baseline: usize,
    cells: Vec<Cell>,
    /// Those of the study, with the loads that the campaign has found.
    workloads: Vec<WorkloadSpec>,
    /// Fixed rate of each workload's latency phase; `None` until calibration.
    rates: Vec<Option<f64>>,
    seed: u64,
    /// The window of slices at capacity.
    window: Duration,
    began: Duration,
    /// Number of CPUs for which every environment starts its system.
    system_cpus: usize,
    /// The saved data that all starts restore, if there is any.
    snapshot: Option<Rc<dyn DataSnapshot>>,
    /// Where that data is from; `None` until it is saved.
    data_origin: Option<DataOrigin>,
    leftovers: Vec<(String, String)>,
    /// The longest teardown of one environment so far.
    teardown: Duration,
    /// The longest start of one environment so far, including its data.
    start_time: Duration,
    /// Durations of the complete rounds of this run.
    round_times: Vec<Duration>,
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
        // A checked study contains its baseline.
        let baseline = study.environments.iter().position(is_baseline).unwrap_or(0);
        let mut members: Vec<Member> =
            study.environments.iter().map(|spec| Member::new(spec.clone(), false)).collect();
        let mut control = study.environments[baseline].clone();
        control.name = control_name(&study.baseline);
        members.push(Member::new(control, true));
        let system_cpus = system_cpus(study, &parts.plan);
        let known = writer.record().header.rates.clone();
        let rate =
            |name: &str| known.iter().find(|(known, _)| known == name).map(|(_, rate)| *rate);
        Self {
            baseline,
            members,
            cells: schedule::cells(study),
            workloads: workloads(study, &writer.record().study),
            rates: study.workloads.iter().map(|one| one.rate_per_s.or(rate(&one.name))).collect(),
            seed: writer.record().header.seed,
            window: study.schedule.window,
            began: parts.clock.now(),
            system_cpus,
            snapshot: None,
            data_origin: None,
            leftovers: Vec::new(),
            teardown: TEARDOWN_GUESS,
            start_time: Duration::ZERO,
            round_times: Vec::new(),
            parts,
            study,
            writer: Some(writer),
            observer,
            stop,
        }
    }

    /// Returns how many CPUs the system can use in an environment. It is started for those of the
    /// baseline in all of them.
    fn system_cpus_in(&self, spec: &EnvironmentSpec) -> f64 {
        if let Some(hosts) = &self.parts.hosts {
            let count = f64::from(self.parts.system.instances().count);
            let most = hosts.instance_cpus as f64;
            return count * spec.cpu.quota().map_or(most, |quota| most.min(quota.cpus));
        }
        let most = spec.cpu.set(&self.parts.plan).len().min(self.system_cpus) as f64;
        spec.cpu.quota().map_or(most, |quota| most.min(quota.cpus))
    }

    /// Returns an error if a host of the system is lost: every later slice would fail.
    fn check_hosts(&self) -> Result<(), CampaignError> {
        let lost = self.parts.hosts.as_ref().and_then(|hosts| (hosts.lost)());
        lost.map_or(Ok(()), |reason| Err(CampaignError::HostLost { reason }))
    }

    /// Returns an error if an attached system has ended: no later slice could be compared.
    fn check_attached(&self, index: usize) -> Result<(), CampaignError> {
        let running = self.members[index].running.as_ref();
        let lost = running.and_then(|running| running.environment.lost());
        let environment = self.members[index].name().to_string();
        lost.map_or(Ok(()), |reason| Err(CampaignError::SystemGone { environment, reason }))
    }

    /// Returns an error if any attached system has ended.
    fn check_all_attached(&self) -> Result<(), CampaignError> {
        (0..self.members.len()).try_for_each(|index| self.check_attached(index))
    }

    /// Returns an error if the environment is attached: its system has ended, or runs and does not
    /// serve the load any more. A process that ends closes its sockets before it has ended.
    fn refuse_attached(&self, index: usize, failure: &str) -> Result<(), CampaignError> {
        let member = &self.members[index];
        let Some(attach) = &member.record.spec.attach else { return Ok(()) };
        let until = self.parts.clock.now() + ENDING_MAX;
        while self.parts.clock.now() < until {
            self.check_attached(index)?;
            self.parts.clock.wait(ENDING_MAX / 10);
        }
        let (target, address) = (attach.target.to_string(), attach.address);
        let (environment, failure) = (member.name().to_string(), failure.to_string());
        Err(CampaignError::AttachedFails { environment, target, address, failure })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn stage(&mut self, stage: Stage) {
        self.observer.event(&Event::Stage(stage));
    }

    /// Returns the record's writer, which is open until `finish`.
    fn writer(&mut self) -> &mut RecordWriter {
        self.writer.as_mut().expect("the record is closed by finish() alone")
    }

    /// Writes everything known before the first start.
    fn prepare(&mut self) -> Result<(), CampaignError> {
        for (name, reason) in std::mem::take(&mut self.parts.left_out) {
            if let Some(at) = self.members.iter().position(|member| member.name() == name) {
                self.leave_out(at, &reason)?;
            }
        }
        self.check_memory()?;
        let loaders = self.parts.driver.loaders();
        self.writer().put_loaders(&loaders)?;
        for doubt in std::mem::take(&mut self.parts.doubts) {
            self.put_doubt(None, doubt)?;
        }
        if let Some(doubt) = judge::all_awake(self.study) {
            self.put_doubt(None, doubt)?;
        }
        for index in 0..self.members.len() {
            self.put_unless_known(index)?;
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
        let up = self.members.iter().filter(|member| !member.out);
        let specs = up.map(|member| &member.record.spec);
        let (environments, needed_bytes) = memory.needed(self.study.schedule.kind, specs);
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

    /// Writes the current facts of an environment.
    fn put_member(&mut self, index: usize) -> Result<(), CampaignError> {
        let position = u32::try_from(index).unwrap_or(u32::MAX);
        let writer = self.writer.as_mut().expect("the record is open");
        Ok(writer.put_environment(position, &self.members[index].record)?)
    }

    /// Writes an environment, unless the record already holds more from before a resume.
    fn put_unless_known(&mut self, index: usize) -> Result<(), CampaignError> {
        let record = &self.members[index].record;
        let seen = record.ready_ns.is_some() || record.left_out.is_some();
        let name = record.spec.name.clone();
        let known = &self.writer().record().environments;
        match seen || known.iter().all(|one| one.spec.name != name) {
            true => self.put_member(index),
            false => Ok(()),
        }
    }

    /// Ends all environments and closes the record, after success and failure alike.
    fn finish(mut self, result: Result<Ending, CampaignError>) -> Result<Outcome, CampaignError> {
        self.stage(Stage::TearingDown);
        self.tear_down();
        let unix_ms = self.parts.clock.unix_ms();
        // A full disk refuses this too; the first error is the one to report.
        let written = (0..self.members.len())
            .try_for_each(|index| self.put_unless_known(index))
            .and_then(|()| if result.is_ok() { self.put_response_times() } else { Ok(()) });
        let text = match &result {
            Ok(ending) => ending.text().to_string(),
            Err(error) => format!("failed: {}", error_line(error)),
        };
        let writer = self.writer.take().expect("finish is called once");
        let (rounds, record) = (writer.rounds(), writer.path().to_path_buf());
        let closed = writer.finish(&text, unix_ms);
        let ending = result?;
        written?;
        closed?;
        Ok(Outcome { ending, rounds, record, leftovers: std::mem::take(&mut self.leftovers) })
    }

    /// Writes the response times of all rounds, from the histograms that only the file holds.
    fn put_response_times(&mut self) -> Result<(), CampaignError> {
        let times = response_times(&Record::read(self.writer().path())?);
        Ok(self.writer().put_response_times(&times)?)
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
    /// Ends all environments after a panic: none may outlive the campaign.
    fn drop(&mut self) {
        if self.writer.is_some() {
            self.tear_down();
        }
    }
}
