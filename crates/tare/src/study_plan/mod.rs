//! The plan of a study on this host, which `tare weigh --dry-run` prints: CPUs, environments,
//! memory, disk, rounds and time. Making it starts nothing, changes nothing and needs no root.

mod conditioning;
mod elsewhere;
mod here;
mod needs;
mod resources;
#[cfg(test)]
mod tests;
mod text;
mod times;

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tare_host::data_cache::CachedData;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::forecast;
use tare_lab::schedule::has_latency_phase;
use tare_lab::study::{LoaderSpec, Study, WorkloadSpec, control_name};
use tare_std::units::{duration, rough_duration};

use crate::campaign::space::{self, DiskPlan};
use crate::campaign::{CampaignConfig, absent, controls, cpu_plan, data_cache};
use crate::exit::Exit;
use crate::stream::say;
use crate::topology;

pub(crate) use conditioning::check_writes;
pub(crate) use needs::Needs;
pub(crate) use times::at_most;

use conditioning::Conditioning;
use resources::{CpuGroup, MemoryPlan};
use times::{Known, Part};

/// Studies that are expected to take longer print their time at the start.
const LONG_S: f64 = 2.0 * 3600.0;

/// What a study will do on this host.
#[derive(Debug, Serialize)]
pub(crate) struct StudyPlan {
    name: String,
    title: String,
    /// The record that would be written.
    record: PathBuf,
    /// The study with the given options.
    time: Part,
    /// Other parts and budgets of the same study.
    other_parts: Vec<Part>,
    /// The study stops once all intervals are narrower, in percentage points. 0: never.
    stop_width_percent: f64,
    cpus: Vec<CpuGroup>,
    /// The hosts that load the system in place of the client here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    loaders: Vec<String>,
    /// The hosts that run the system in place of this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<String>,
    environments: Vec<EnvironmentPlan>,
    workloads: Vec<WorkloadPlan>,
    /// Of this host; `None` where the system runs on others.
    memory: Option<MemoryPlan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskPlan>,
    /// What the study does with its storage before it measures.
    #[serde(skip_serializing_if = "Option::is_none")]
    conditioning: Option<Conditioning>,
    /// The data that the study takes from the cache of this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_data: Option<CachedPlan>,
    needs: Needs,
    /// Why the study cannot start here; empty if it can.
    obstacles: Vec<String>,
    /// What only the start of the study shows, because the plan asks no other host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_known: Vec<String>,
    #[serde(skip)]
    exit: Exit,
}

/// Loaded data in the cache of this host.
#[derive(Debug, Serialize)]
struct CachedPlan {
    bytes: u64,
    /// How long ago it was loaded, and how long that took.
    age_s: f64,
    load_s: f64,
}

impl CachedPlan {
    fn of(entry: &CachedData) -> Self {
        let (age, load) = (entry.age(), entry.load_time());
        Self { bytes: entry.bytes, age_s: age.as_secs_f64(), load_s: load.as_secs_f64() }
    }
}

/// An environment of the plan.
#[derive(Debug, Serialize)]
struct EnvironmentPlan {
    name: String,
    runtime: String,
    /// `baseline`, `control` or `compared`.
    role: &'static str,
    optional: bool,
    /// Why it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    /// What limits its figures, or what only the start of the study shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// A workload of the plan.
#[derive(Debug, Serialize)]
struct WorkloadPlan {
    name: String,
    /// The views that are measured, in words.
    measured: String,
    /// Why it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
}

/// Leaves out of a study what has no time for enough rounds within its budget, if the budget was
/// given on the command line. Says on standard error what is left out, and how long a long study
/// takes.
pub(crate) fn fit_budget(
    config: &mut CampaignConfig,
    budget_given: bool,
    state: &Path,
) -> anyhow::Result<()> {
    let cached = data_cache::expected(config, |config| cpu_plan::quietly(config, state))?;
    let known = Known {
        absent: absent::names(config)?,
        cached: cached.map(|_| config.study.workloads.clone()),
    };
    if budget_given {
        choose_part(&mut config.study, &known);
    }
    announcement(&config.study, &known, budget_given).iter().for_each(|line| say(line));
    Ok(())
}

/// Replaces a study by the part of it that fits into its budget.
fn choose_part(study: &mut Study, known: &Known) {
    if let Some(mut part) = forecast::part_in_budget(study, &known.conditions()) {
        let budget = duration(part.schedule.budget);
        part.title = format!("{} (part for {budget})", part.title).trim_start().to_string();
        *study = part;
    }
}

/// Returns what a user should know about the time of a study before it starts; mostly nothing.
fn announcement(study: &Study, known: &Known, budget_given: bool) -> Vec<String> {
    let part = Part::of(study, known);
    let time = rough_duration(part.time());
    let mut lines = Vec::new();
    if let Some(left) = &study.budget_part {
        lines.push(format!("{}: up to {time}, {}", study.name, part.text()));
        let why = no_time(left.rounds_min, left.budget);
        lines.push(format!("  left out, because there is {why}:"));
        for (what, names) in [("environment", &left.environments), ("workload", &left.workloads)] {
            if !names.is_empty() {
                let plural = if names.len() > 1 { "s" } else { "" };
                lines.push(format!("  {} {what}{plural}: {}", names.len(), names.join("; ")));
            }
        }
    } else if !budget_given && part.seconds > LONG_S {
        lines.push(format!(
            "{}: up to {time}, {}; --dry-run prints the plan, --budget 1h chooses what comes first",
            study.name,
            part.text(),
        ));
    }
    if budget_given && part.rounds < part.rounds_min {
        lines.push(format!(
            "{}: the budget is enough for {} of at least {} rounds; give {}, or fewer --rounds",
            study.name,
            part.rounds,
            part.rounds_min,
            times::budget_for(study, known),
        ));
    }
    lines
}

impl StudyPlan {
    /// Plans a study on this host. `whole` is the study without `--budget`, and `quick` its quick
    /// part, if it has one.
    pub(crate) fn of(
        config: &mut CampaignConfig,
        whole: &Study,
        quick: Option<&Study>,
        state: &Path,
    ) -> anyhow::Result<Self> {
        let mut absent = absent::with_reasons(config)?;
        for refused in crate::campaign::tuning::refused_here(&config.study, state)? {
            if absent.iter().all(|(name, _)| *name != refused.0) {
                absent.push(refused);
            }
        }
        let names = absent.iter().map(|(name, _)| name.clone()).collect();
        let cpus = cpu_plan::of_study(&config.study, &config.plan_options, state)?;
        let found = data_cache::expected(config, |_| Ok(cpus.clone()))?;
        let cached = found.is_some().then(|| config.study.workloads.clone());
        let mut known = Known { absent: names, cached };
        if config.study.schedule.budget != whole.schedule.budget {
            choose_part(&mut config.study, &known);
        }
        let study = &config.study;
        let found = found.filter(|_| known.cached.as_ref() == Some(&study.workloads));
        let topology = topology::allowed_here()?;
        let names = &mut known.absent;
        let without_room = controls::without_room(config, names, &cpus, state)?;
        for without in absent::without_cpus(study, &cpus).into_iter().chain(without_room) {
            if !names.contains(&without.0) {
                names.push(without.0.clone());
                absent.push(without);
            }
        }
        let is_here = !elsewhere::has_hosts(study);
        let memory = resources::memory(config, &known.absent, &cpus).filter(|_| is_here);
        let disk = is_here.then(|| space::disk(study, &known.absent, state));
        let (mut obstacles, mut exit) = here::obstacles(config, &absent, &cpus)?;
        let lacks =
            [memory.as_ref().and_then(MemoryPlan::lack), disk.as_ref().and_then(DiskPlan::lack)];
        for lack in lacks.into_iter().flatten() {
            obstacles.push(lack);
            exit = if exit == Exit::Success { Exit::Host } else { exit };
        }
        Ok(Self {
            name: study.name.clone(),
            title: study.title.clone(),
            record: config.record.clone(),
            time: times::this(study, whole, &known),
            other_parts: times::other_parts(study, whole, quick, &known),
            stop_width_percent: study.schedule.stop_width_percent,
            cpus: elsewhere::without_system(study, CpuGroup::of(&topology, &cpus)),
            loaders: study.loaders.iter().map(LoaderSpec::name).collect(),
            hosts: elsewhere::hosts(study),
            environments: environments(study, whole, &absent),
            workloads: workloads(study, whole),
            memory,
            disk,
            conditioning: Conditioning::of(study, &known.absent),
            cached_data: found.as_ref().map(CachedPlan::of),
            needs: Needs::of(study),
            obstacles,
            not_known: elsewhere::not_known(study),
            exit,
        })
    }

    /// Prints the plan. Returns the exit code that the study would end with before it starts.
    pub(crate) fn print(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
        match json {
            true => writeln!(out, "{}", serde_json::to_string_pretty(self)?)?,
            false => write!(out, "{}", text::render(self))?,
        }
        Ok(self.exit)
    }
}

/// Returns the environments of the whole study, with the control after the baseline.
fn environments(study: &Study, whole: &Study, absent: &[(String, String)]) -> Vec<EnvironmentPlan> {
    let cut = study.budget_part.as_ref();
    let mut plans = Vec::new();
    for spec in &whole.environments {
        let baseline = spec.name == study.baseline;
        let here = absent.iter().find(|(name, _)| *name == spec.name);
        let left_out = match cut.filter(|part| part.environments.contains(&spec.name)) {
            Some(part) => Some(no_time(part.rounds_min, part.budget)),
            None => here.map(|(_, reason)| reason.clone()),
        };
        let plan = |name: String, role| EnvironmentPlan {
            name,
            runtime: spec.runtime.to_string(),
            role,
            optional: spec.optional,
            left_out: left_out.clone(),
            note: here::note(study, spec),
        };
        plans.push(plan(spec.name.clone(), if baseline { "baseline" } else { "compared" }));
        if baseline {
            plans.push(plan(control_name(&spec.name), "control"));
        }
    }
    plans
}

fn workloads(study: &Study, whole: &Study) -> Vec<WorkloadPlan> {
    let cut = study.budget_part.as_ref();
    let plan = |workload: &WorkloadSpec| WorkloadPlan {
        name: workload.name.clone(),
        measured: measured(workload),
        left_out: cut
            .filter(|part| part.workloads.contains(&workload.name))
            .map(|part| no_time(part.rounds_min, part.budget)),
    };
    whole.workloads.iter().map(plan).collect()
}

fn no_time(rounds_min: u32, budget: std::time::Duration) -> String {
    format!("no time for {rounds_min} rounds within --budget {}", duration(budget))
}

/// Returns the views of a workload that are measured.
fn measured(workload: &WorkloadSpec) -> String {
    let mut views = Vec::new();
    if !workload.rate_only {
        views.push("at capacity".to_string());
    }
    if let Some(rate) = workload.rate_per_s {
        views.push(format!("latency at {rate}/s"));
    } else if has_latency_phase(workload) {
        let share = workload.latency_share * 100.0;
        views.push(format!("latency at {share:.0} % of the baseline's capacity"));
    }
    views.extend(workload.slo.map(|slo| format!("capacity with a {slo}")));
    views.join(", and ")
}

/// Returns whether an environment is a virtual machine, whose start takes seconds.
fn is_guest(spec: &EnvironmentSpec) -> bool {
    spec.runtime.kind() == "vm" || spec.runtime.as_str().contains("kata")
}
