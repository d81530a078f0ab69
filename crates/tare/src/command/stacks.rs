//! Stacks: opening the sampler for `weigh`, and what `report` says of a record's stack slices.

use std::error::Error;
use std::fs;
use std::io::Write;

use anyhow::{Context, anyhow};
use tare_lab::doubt::Doubt;
use tare_lab::record::{Record, read_stacks};
use tare_lab::stacks::{ExtraRounds, StackKind, StackSlice};
use tare_probe::Roots;
use tare_probe::stacks::Perf;
use tare_report::html::flamegraph;
use tare_report::stacks::{Profile, Side, json, overview, pair};
use tare_std::cpus::CpuSet;

use super::report;
use super::weigh::warn;
use crate::cli::{Report, SampleStacks};
use crate::exit::{Exit, ExitWith};

/// What was asked for, marked as the run's own, and doubts for what cannot be had.
pub(super) fn extra_rounds(
    asked: &SampleStacks,
    run: &str,
    cpus: &CpuSet,
) -> (ExtraRounds<'static>, Vec<Doubt>) {
    let mut extra = ExtraRounds {
        rounds: asked.stack_rounds,
        window: asked.stack_window,
        ..ExtraRounds::default()
    };
    let mut doubts = Vec::new();
    let mut missing = |probe: &str, error: &dyn Error| {
        let reason = tare_host::error_line(error);
        warn(&format!("no {probe} in this record: {reason}"));
        doubts.push(Doubt::ProbeFailed { probe: probe.into(), reason });
    };
    if asked.stacks {
        for kind in &asked.stack_kinds {
            match Perf::open(
                (*kind).into(),
                asked.stacks_user.into(),
                (tare_host::RUN_VARIABLE, run),
            ) {
                Ok(perf) => extra.samplers.push(Box::new(perf)),
                Err(error) => missing(StackKind::from(*kind).probe(), &error),
            }
        }
    }
    if asked.syscalls {
        let (tracers, unread) = tare_probe::open_disturbing(&Roots::default(), cpus);
        extra.tracers = tracers;
        unread.iter().for_each(|(probe, error)| missing(probe, error));
    }
    (extra, doubts)
}

/// Prints what the stacks of a record say.
pub(super) fn show(options: &Report, record: &Record, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let asked = &options.stacks;
    let kind = StackKind::from(asked.kind);
    let mut slices = read_stacks(&options.record).exit_with(Exit::Input)?;
    slices.retain(|slice| slice.kind == kind);
    if slices.is_empty() {
        let path = options.record.display();
        return Err(anyhow!(
            "{path} has no {} stacks; sample some with tare weigh --resume {path} --stacks",
            kind.name()
        ))
        .exit_with(Exit::Input);
    }
    let workload = workload(asked.workload.as_deref(), &slices).exit_with(Exit::Input)?;
    let chosen = asked.from.is_some() || asked.to.is_some();
    if !chosen && asked.flamegraph.is_none() && !options.json {
        let baseline = &record.study.baseline;
        write!(out, "{}", overview(&slices, kind, &workload, baseline, report::style()))?;
        return Ok(Exit::Success);
    }
    let from = asked.from.as_ref().unwrap_or(&record.study.baseline);
    let to = match &asked.to {
        Some(name) => name.clone(),
        None => dearest(record, &slices, kind, &workload, from)
            .with_context(|| format!("no environment but \"{from}\" has stacks; name two"))
            .exit_with(Exit::Input)?,
    };
    let side = |name: &str| {
        let side = Side::of(&slices, kind, &workload, name);
        (side.rounds() > 0).then_some(side).ok_or_else(|| why_none(&slices, &workload, name))
    };
    let sides = side(from).and_then(|from| side(&to).map(|to| (from, to)));
    let (one, other) = sides.exit_with(Exit::Input)?;
    let profile = Profile::new(one, other)
        .with_context(|| format!("\"{from}\" and \"{to}\" have no round of stacks in common"))
        .exit_with(Exit::Input)?;
    if let Some(path) = &asked.flamegraph {
        let title = format!("{}: \"{from}\" and \"{to}\"", record.study.name);
        fs::write(path, flamegraph(&title, &workload, &profile))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.json {
        let value = json(&slices, kind, &workload, &profile);
        writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?;
        return Ok(Exit::Success);
    }
    write!(out, "{}", pair(&slices, kind, &workload, &profile, report::style()))?;
    if let Some(path) = &asked.flamegraph {
        writeln!(out, "flame graphs: {}", path.display())?;
    }
    Ok(Exit::Success)
}

fn workload(asked: Option<&str>, slices: &[StackSlice]) -> anyhow::Result<String> {
    let mut names: Vec<&str> = slices.iter().map(|slice| slice.workload.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    match asked {
        None => Ok(slices[0].workload.clone()),
        Some(name) if names.contains(&name) => Ok(name.to_string()),
        Some(name) => {
            Err(anyhow!("there are no stacks of \"{name}\"; there are of {}", names.join(", ")))
        }
    }
}

/// The environment that takes (or waits for) most time per operation, besides this one and the
/// control.
fn dearest(
    record: &Record,
    slices: &[StackSlice],
    kind: StackKind,
    workload: &str,
    from: &str,
) -> Option<String> {
    let others = record.environments.iter().filter(|one| !one.control && one.spec.name != from);
    let sides = others.map(|one| Side::of(slices, kind, workload, &one.spec.name));
    let dearest = sides
        .filter(|side| side.rounds() > 0)
        .max_by(|a, b| a.total().us.total_cmp(&b.total().us))?;
    Some(dearest.environment)
}

/// Why an environment has no stacks.
fn why_none(slices: &[StackSlice], workload: &str, name: &str) -> anyhow::Error {
    let ours = |slice: &&StackSlice| slice.environment == name && slice.workload == workload;
    if let Some(reason) = slices.iter().filter(ours).find_map(|slice| slice.void.as_ref()) {
        return anyhow!("no stack slice of \"{name}\" counts; one of them: {reason}");
    }
    let mut names: Vec<&str> = slices.iter().map(|slice| slice.environment.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    anyhow!("there are no stacks of \"{name}\"; there are of {}", names.join(", "))
}
