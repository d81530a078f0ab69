//! Stacks: opening the sampler for `weigh`, and what `report` says of a record's stack slices.

use std::fs;
use std::io::Write;

use anyhow::{Context, anyhow};
use tare_lab::record::{Record, read_stacks};
use tare_lab::stacks::{StackOrder, StackSampler, StackSlice};
use tare_probe::stacks::Perf;
use tare_report::stacks::{Profile, Side, flamegraph, json, overview, pair};

use super::report;
use crate::cli::{Report, SampleStacks};
use crate::exit::{Exit, ExitWith};

/// The sampler of a study, marked as its own, or why there is none.
pub(super) fn open(run: &str) -> Result<Perf, String> {
    Perf::open((tare_host::RUN_VARIABLE, run)).map_err(|error| tare_host::error_line(&error))
}

/// The stack slices that were asked for.
pub(super) fn order<'s>(asked: &SampleStacks, sampler: &'s mut dyn StackSampler) -> StackOrder<'s> {
    StackOrder { sampler, rounds: asked.stack_rounds, window: asked.stack_window }
}

/// Prints what the stacks of a record say.
pub(super) fn show(options: &Report, record: &Record, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let asked = &options.stacks;
    let slices = read_stacks(&options.record).exit_with(Exit::Input)?;
    if slices.is_empty() {
        let path = options.record.display();
        return Err(anyhow!(
            "{path} has no stacks; sample some with tare weigh --resume {path} --stacks"
        ))
        .exit_with(Exit::Input);
    }
    let workload = workload(asked.workload.as_deref(), &slices).exit_with(Exit::Input)?;
    let chosen = asked.from.is_some() || asked.to.is_some();
    if !chosen && asked.flamegraph.is_none() && !options.json {
        let baseline = &record.study.baseline;
        write!(out, "{}", overview(&slices, &workload, baseline, report::style()))?;
        return Ok(Exit::Success);
    }
    let from = asked.from.as_ref().unwrap_or(&record.study.baseline);
    let to = match &asked.to {
        Some(name) => name.clone(),
        None => dearest(record, &slices, &workload, from)
            .with_context(|| format!("no environment but \"{from}\" has stacks; name two"))
            .exit_with(Exit::Input)?,
    };
    let side = |name: &str| {
        let side = Side::of(&slices, &workload, name);
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
        let value = json(&slices, &workload, &profile);
        writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?;
        return Ok(Exit::Success);
    }
    write!(out, "{}", pair(&slices, &workload, &profile, report::style()))?;
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

/// The environment that takes most CPU time per operation, besides this one and the control.
fn dearest(record: &Record, slices: &[StackSlice], workload: &str, from: &str) -> Option<String> {
    let others = record.environments.iter().filter(|one| !one.control && one.spec.name != from);
    let sides = others.map(|one| Side::of(slices, workload, &one.spec.name));
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
