//! Forecasts how long a study takes, and chooses the part of it that fits into a budget. Pure.
//!
//! Method: lead-in and window of every slice are known. The rest (the start of an environment with
//! its data, and the time around a slice) is expected. A campaign measures it and plans its rounds
//! with the measured times, so a wrong forecast changes the number of rounds and never a figure.
//!
//! With `window = "auto"`, the trial of all windows is part of the set-up, and the window that
//! quiet hosts choose is expected ([`AutoWindow::EXPECTED`]).
//!
//! Limits: an early stop, because all intervals are narrow, is not forecast. A study is expected to
//! use all of its rounds or its budget.

use std::time::Duration;

use crate::campaign::window::{has_quota, trial_time};
use crate::campaign::{CALIBRATION_SLICES, CALIBRATION_WINDOW_MAX, TEARDOWN_GUESS};
use crate::environment::EnvironmentSpec;
use crate::record::Phase;
use crate::schedule::{cells, has_latency_phase};
use crate::study::{AutoWindow, BudgetPart, DataStart, ScheduleKind, Study, WorkloadSpec};

/// The spare time of a part that is chosen for a budget, as a share of it: expected times are not
/// exact, and a part that is too large gets one round less than it needs.
const SPARE_SHARE: f64 = 0.05;

/// The time of a slice besides its lead-in and window where slices are short. 5 to 8 ms were
/// measured with processes and containers.
const SHORT_SLICE_EXTRA: Duration = Duration::from_millis(10);

/// The facts about host, runtimes and drivers that a forecast needs.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a closure has no Debug")]
pub struct Conditions<'c> {
    /// Names of the environments that this host cannot run. They take no time.
    pub absent: &'c [String],
    /// Returns the expected time from the start of an environment until the study's data is in it.
    pub start: &'c dyn Fn(&Study, &EnvironmentSpec) -> Duration,
    /// Returns the expected time in which the load writes the study's data. It is part of `start`
    /// unless the starts restore data.
    pub load: &'c dyn Fn(&Study) -> Duration,
    /// The workloads whose data the cache has; `None`: it has none of this study.
    pub cached: Option<&'c [WorkloadSpec]>,
    /// Returns the expected time of a slice besides its lead-in and window.
    pub slice_extra: &'c dyn Fn(&Study) -> Duration,
    /// Returns whether the load of the study's driver goes on while accounts are read, and those
    /// are exact. Otherwise `window = "auto"` keeps its longest window.
    pub short_slices: &'c dyn Fn(&Study) -> bool,
}

/// The expected times of a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Until the first round: starts, warm-up, and the search for the baseline's capacity.
    pub setup: Duration,
    /// One round of every environment under every workload.
    pub round: Duration,
    /// After the last round.
    pub teardown: Duration,
}

impl Forecast {
    /// Forecasts a study. The baseline counts twice: its second copy is the A/A control.
    pub fn of(study: &Study, conditions: &Conditions<'_>) -> Self {
        let runs = |spec: &&EnvironmentSpec| !conditions.absent.contains(&spec.name);
        let is_baseline = |spec: &&EnvironmentSpec| spec.name == study.baseline;
        let here: Vec<&EnvironmentSpec> = study.environments.iter().filter(runs).collect();
        let baseline = here.iter().copied().find(is_baseline);
        let start = |spec: &EnvironmentSpec| (conditions.start)(study, spec);
        let start_baseline = baseline.map(start).unwrap_or_default();
        let starts = here.iter().copied().map(start).sum::<Duration>() + start_baseline;
        let members = count(here.len() + usize::from(baseline.is_some()));
        let teardowns = TEARDOWN_GUESS * members;

        let schedule = &study.schedule;
        let quota = here.iter().any(|spec| has_quota(spec));
        let tries = schedule.auto_window.as_ref().is_some_and(|auto| !auto.is_decided())
            && (conditions.short_slices)(study)
            && !quota;
        let window = if tries { AutoWindow::EXPECTED } else { schedule.window };
        let extra = if tries { SHORT_SLICE_EXTRA } else { (conditions.slice_extra)(study) };
        let slice_of = |window: Duration| window + schedule.lead_in + extra;
        let slice = slice_of(schedule.window_at_rate());
        let trial = if tries { trial_time(schedule.budget, slice_of) } else { Duration::ZERO };
        // With a short window at capacity, only every so many rounds have slices at a fixed rate.
        let every = schedule.window_at_rate().as_millis() / window.as_millis().max(1);
        let every = u32::try_from(every).unwrap_or(1).max(1);
        let in_phase = |at_capacity: bool| {
            let all = cells(study).into_iter();
            count(all.filter(|cell| (cell.phase == Phase::Capacity) == at_capacity).count())
        };
        let slices =
            slice_of(window) * members * in_phase(true) + slice * members * in_phase(false) / every;
        let calibrated = study.workloads.iter().filter(|one| has_latency_phase(one));
        let calibrated = calibrated.filter(|one| one.rate_per_s.is_none()).count();
        let window = schedule.window_at_rate().min(CALIBRATION_WINDOW_MAX);
        let calibration = slice_of(window) * CALIBRATION_SLICES * count(calibrated);
        // The data that every start restores is written once, in the baseline, or is there already.
        let is_cached = conditions.cached.is_some_and(|cached| cached == study.workloads);
        let saved = match schedule.data {
            DataStart::Restored if !is_cached => {
                start_baseline + (conditions.load)(study) + TEARDOWN_GUESS
            }
            _ => Duration::ZERO,
        };
        match schedule.kind {
            ScheduleKind::Slices => {
                let warm_up = schedule.warm_up_time(members * count(study.workloads.len()), extra);
                let setup = saved + starts + warm_up + calibration + trial;
                Self { setup, round: slices, teardown: teardowns }
            }
            ScheduleKind::Trials => {
                let start = if calibrated > 0 { start_baseline } else { Duration::ZERO };
                let setup = saved + start + calibration;
                Self { setup, round: starts + slices + teardowns, teardown: Duration::ZERO }
            }
        }
    }

    /// Returns the expected time of this many rounds, with what is before and after them.
    pub fn time(&self, rounds: u32) -> Duration {
        self.setup + self.round * rounds + self.teardown
    }

    /// Returns how many whole rounds fit into a budget.
    pub fn rounds_in(&self, budget: Duration) -> u32 {
        let left = budget.saturating_sub(self.setup + self.teardown).as_nanos();
        u32::try_from(left / self.round.as_nanos().max(1)).unwrap_or(u32::MAX)
    }

    /// Returns the rounds that a schedule gives within its budget.
    pub fn rounds(&self, study: &Study) -> u32 {
        self.rounds_in(study.schedule.budget).min(study.schedule.rounds)
    }

    /// Returns the expected time of a study that does not stop early. It ends at its budget.
    pub fn whole(&self, study: &Study) -> Duration {
        self.time(self.rounds(study)).min(study.schedule.budget)
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the part of a study that gets its least number of rounds within its budget. `None` if
/// the whole study does.
///
/// The order of the file says what matters: the first workload comes with as many environments as
/// fit, and then further workloads in all of those environments. The baseline, its control, the
/// first other environment and the first workload are always in the part. So are environments that
/// this host cannot run: they take no time, and the record shows their own reason.
pub fn part_in_budget(study: &Study, conditions: &Conditions<'_>) -> Option<Study> {
    let schedule = &study.schedule;
    let fits = |environments: &[String], workloads: usize| {
        let part = part(study, environments, workloads);
        let time = Forecast::of(&part, conditions).time(schedule.rounds_min);
        time.mul_f64(1.0 + SPARE_SHARE) <= schedule.budget
    };
    if Forecast::of(study, conditions).time(schedule.rounds_min) <= schedule.budget {
        return None;
    }
    let free = |spec: &EnvironmentSpec| {
        spec.name == study.baseline || conditions.absent.contains(&spec.name)
    };
    let (kept, others): (Vec<&EnvironmentSpec>, Vec<&EnvironmentSpec>) =
        study.environments.iter().partition(|spec| free(spec));
    let mut kept: Vec<String> = kept.into_iter().map(|spec| spec.name.clone()).collect();
    for (number, spec) in others.into_iter().enumerate() {
        kept.push(spec.name.clone());
        if number > 0 && !fits(&kept, 1) {
            kept.pop();
            break;
        }
    }
    let more = (2..=study.workloads.len()).take_while(|workloads| fits(&kept, *workloads));
    let workloads = more.last().unwrap_or(1);
    let part = part(study, &kept, workloads);
    part.budget_part.is_some().then_some(part)
}

/// Returns a study with only these environments and its first workloads.
fn part(study: &Study, environments: &[String], workloads: usize) -> Study {
    let mut part = study.clone();
    part.environments.retain(|spec| environments.contains(&spec.name));
    part.workloads.truncate(workloads);
    let left = BudgetPart {
        budget: study.schedule.budget,
        rounds_min: study.schedule.rounds_min,
        environments: study
            .environments
            .iter()
            .filter(|spec| !environments.contains(&spec.name))
            .map(|spec| spec.name.clone())
            .collect(),
        workloads: study.workloads.iter().skip(workloads).map(|one| one.name.clone()).collect(),
    };
    part.budget_part =
        (!left.environments.is_empty() || !left.workloads.is_empty()).then_some(left);
    part
}

#[cfg(test)]
mod tests;
