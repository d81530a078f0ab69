//! How long a study and its parts are expected to take.

use std::time::Duration;

use serde::Serialize;
use tare_lab::campaign::SLICE_EXTRA_GUESS;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::forecast::{Conditions, Forecast, part_in_budget};
use tare_lab::study::{DataStart, Study, WorkloadSpec};
use tare_std::units::{duration, rough_duration};

use super::conditioning::{Conditioning, FILL_BYTES_PER_S};
use super::is_guest;
use crate::campaign::fit;
use crate::campaign::space::file_bytes;

/// Expected times from a start until the system answers, on a host with two CPUs.
const START_PROCESS: Duration = Duration::from_millis(300);
const START_CONTAINER: Duration = Duration::from_millis(400);
const START_ENGINE: Duration = Duration::from_millis(1200);
const START_GUEST: Duration = Duration::from_secs(6);
/// In addition, if the storage is a file system or device of its own.
const START_STORAGE: Duration = Duration::from_millis(500);
/// In addition, if the system is a Java program or a cluster's node.
const START_SLOW_SYSTEM: Duration = Duration::from_secs(30);
/// Expected time that another project's load tool takes to start and stop (docs/guides/storage.md).
const TOOL_START: Duration = Duration::from_millis(350);
/// Expected speed of loading.
const ROWS_PER_S: u64 = 100_000;

/// Budgets that a plan shows as examples.
const EXAMPLES: [Duration; 3] =
    [Duration::from_secs(15 * 60), Duration::from_secs(60 * 60), Duration::from_secs(4 * 60 * 60)];

/// A study, or a part of it, in figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Part {
    /// The options that select it, or `whole study`.
    pub(crate) options: String,
    /// The expected time, if it does not stop early.
    pub(crate) seconds: f64,
    pub(crate) budget_s: f64,
    pub(crate) setup_s: f64,
    pub(crate) round_s: f64,
    /// The expected number of rounds.
    pub(crate) rounds: u32,
    pub(crate) rounds_min: u32,
    pub(crate) rounds_max: u32,
    /// The number of environments that run, without the A/A control.
    pub(crate) environments: usize,
    pub(crate) workloads: usize,
}

impl Part {
    pub(crate) fn of(study: &Study, known: &Known) -> Self {
        let forecast = Forecast::of(study, &known.conditions());
        let runs = study.environments.iter().filter(|spec| !known.absent.contains(&spec.name));
        Self {
            options: if study.quick.is_some() { "--quick".into() } else { "whole study".into() },
            seconds: forecast.whole(study).as_secs_f64(),
            budget_s: study.schedule.budget.as_secs_f64(),
            setup_s: (forecast.setup + forecast.teardown).as_secs_f64(),
            round_s: forecast.round.as_secs_f64(),
            rounds: forecast.rounds(study),
            rounds_min: study.schedule.rounds_min,
            rounds_max: study.schedule.rounds,
            environments: runs.count(),
            workloads: study.workloads.len(),
        }
    }

    /// Adds the option of a budget.
    fn with_budget(mut self, budget: Duration) -> Self {
        let option = format!("--budget {}", duration(budget));
        self.options = match self.options.starts_with("--") {
            true => format!("{} {option}", self.options),
            false => option,
        };
        self
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Returns rounds, environments and workloads: `8 rounds of 14 environments under 1 workload`.
    pub(crate) fn text(&self) -> String {
        let number = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        };
        let rounds = number(self.rounds as usize, "round");
        let environments = number(self.environments, "environment");
        format!("{rounds} of {environments} under {}", number(self.workloads, "workload"))
    }
}

/// What is known of this host when the time of a study is forecast.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Names of the environments that it cannot run.
    pub(super) absent: Vec<String>,
    /// The workloads whose data its cache has.
    pub(super) cached: Option<Vec<WorkloadSpec>>,
}

impl Known {
    /// Returns the conditions of a forecast on this host.
    pub(super) fn conditions(&self) -> Conditions<'_> {
        Conditions {
            absent: &self.absent,
            start: &start_time,
            load: &load_of_saved_data,
            cached: self.cached.as_deref(),
            slice_extra: &slice_extra,
            short_slices: &has_short_slices,
        }
    }
}

/// Whether the study's driver is built in. Only its load covers both readings of the accounts. That
/// these are exact is expected: it fails without privileges, which studies need anyway.
fn has_short_slices(study: &Study) -> bool {
    let driver = tare_driver::find(&study.driver);
    driver.is_none_or(|driver| driver.program.is_none())
}

/// Returns the expected time of a slice besides its lead-in and window. A tool of another project
/// starts and stops in each slice.
fn slice_extra(study: &Study) -> Duration {
    let driver = tare_driver::find(&study.driver);
    match driver.and_then(|driver| driver.program) {
        Some(_) => SLICE_EXTRA_GUESS + TOOL_START,
        None => SLICE_EXTRA_GUESS,
    }
}

/// Returns the expected time of a start with its data. Rounded values of many starts; a campaign
/// measures its own.
fn start_time(study: &Study, spec: &EnvironmentSpec) -> Duration {
    let runtime = match spec.runtime.kind() {
        "process" => START_PROCESS,
        "oci" | "containerd" if !is_guest(spec) => START_CONTAINER,
        _ if is_guest(spec) => START_GUEST,
        "docker" | "podman" | "kubernetes" => START_ENGINE,
        _ => Duration::from_millis(50),
    };
    let own_storage = !matches!(spec.storage.kind.as_str(), "directory" | "rootfs" | "tmpfs");
    let slow = matches!(study.system.name.as_str(), "cassandra" | "scylla");
    let more = |wanted: bool, time: Duration| if wanted { time } else { Duration::ZERO };
    runtime
        + more(own_storage, START_STORAGE)
        + more(slow, START_SLOW_SYSTEM)
        + more(!restores(study), load_time(study))
        + Conditioning::start_time(study)
}

/// Whether the starts of a study restore its data. Not every system can.
fn restores(study: &Study) -> bool {
    let can_save = || fit::known_system(study).is_some_and(|system| system.can_save_data());
    study.schedule.data == DataStart::Restored && can_save()
}

/// Returns the expected time of the one load of data that the starts restore.
fn load_of_saved_data(study: &Study) -> Duration {
    if restores(study) { load_time(study) } else { Duration::ZERO }
}

/// Returns the expected time in which the load of a study writes its data.
fn load_time(study: &Study) -> Duration {
    let rows: u64 = study.workloads.iter().map(|workload| workload.rows).sum();
    let bytes = file_bytes(&study.workloads);
    let seconds = rows as f64 / ROWS_PER_S as f64 + bytes as f64 / FILL_BYTES_PER_S as f64;
    Duration::from_secs_f64(seconds)
}

/// Returns the option that gives a study its least number of rounds: `--budget 2h`.
pub(super) fn budget_for(study: &Study, known: &Known) -> String {
    let forecast = Forecast::of(study, &known.conditions());
    let time = forecast.time(study.schedule.rounds_min).as_secs_f64() * 1.05;
    // Whole minutes, so that the text is short.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
    let minutes = (time / 60.0).ceil() as u64;
    format!("--budget {}", duration(Duration::from_secs(minutes * 60)))
}

/// Returns the planned study. `whole` is the study without `--budget`.
pub(super) fn this(study: &Study, whole: &Study, known: &Known) -> Part {
    let part = Part::of(study, known);
    match study.schedule.budget {
        budget if budget == whole.schedule.budget => part,
        budget => part.with_budget(budget),
    }
}

/// Returns the parts of a study that other options select: the whole, the quick part, and budgets.
pub(super) fn other_parts(
    study: &Study,
    whole: &Study,
    quick: Option<&Study>,
    known: &Known,
) -> Vec<Part> {
    let mut parts = Vec::new();
    let budget_given = study.schedule.budget != whole.schedule.budget;
    if budget_given {
        parts.push(Part::of(whole, known));
    }
    if let Some(quick) = quick.filter(|_| study.quick.is_none()) {
        parts.push(Part::of(quick, known));
    }
    if budget_given || study.quick.is_some() {
        return parts;
    }
    let time = Forecast::of(whole, &known.conditions()).whole(whole);
    for budget in EXAMPLES.into_iter().filter(|budget| *budget < time.mul_f64(0.8)) {
        let mut limited = whole.clone();
        limited.schedule.budget = budget;
        let part = part_in_budget(&limited, &known.conditions()).unwrap_or(limited);
        parts.push(Part::of(&part, known).with_budget(budget));
    }
    parts
}

/// Returns the time of a study for a list: `up to 45 min`.
pub(crate) fn at_most(study: &Study) -> (f64, String) {
    let time = Forecast::of(study, &Known::default().conditions()).whole(study);
    (time.as_secs_f64(), format!("up to {}", rough_duration(time)))
}
