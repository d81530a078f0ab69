//! `tare report --stacks`: reports the stack slices of a record.

use std::fs;
use std::io::Write;

use anyhow::{Context, anyhow};
use tare_lab::record::{Record, read_stacks};
use tare_lab::stacks::{StackKind, StackSlice};
use tare_report::html::flamegraph;
use tare_report::stacks::{Profile, Side, json, overview, pair};

use crate::cli::Report;
use crate::exit::{Exit, ExitWith};
use crate::terminal::style;

/// Prints the report of a record's stacks.
pub(super) fn show(options: &Report, record: &Record, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let selection = &options.stacks;
    let kind = StackKind::from(selection.kind);
    let mut slices = read_stacks(&options.record).exit_with(Exit::Input)?;
    slices.retain(|slice| slice.kind == kind);
    if slices.is_empty() {
        let path = options.record.display();
        return Err(anyhow!(
            "{path} has no {} stacks; sample them with tare weigh --resume {path} --stacks",
            kind.name()
        ))
        .exit_with(Exit::Input);
    }
    let workload = workload(selection.workload.as_deref(), &slices).exit_with(Exit::Input)?;
    let chosen = selection.from.is_some() || selection.to.is_some();
    if !chosen && selection.flamegraph.is_none() && !options.json {
        let baseline = &record.study.baseline;
        write!(out, "{}", overview(&slices, kind, &workload, baseline, style()))?;
        return Ok(Exit::Success);
    }
    let from = selection.from.as_ref().unwrap_or(&record.study.baseline);
    let to = match &selection.to {
        Some(name) => name.clone(),
        None => most_expensive(record, &slices, kind, &workload, from)
            .with_context(|| {
                format!(
                    "no environment except \"{from}\" has stacks; name two with --from and --to"
                )
            })
            .exit_with(Exit::Input)?,
    };
    let side = |name: &str| {
        let side = Side::of(&slices, kind, &workload, name);
        (side.rounds() > 0).then_some(side).ok_or_else(|| no_stacks_error(&slices, &workload, name))
    };
    let sides = side(from).and_then(|from| side(&to).map(|to| (from, to)));
    let (one, other) = sides.exit_with(Exit::Input)?;
    let profile = Profile::new(one, other)
        .with_context(|| format!("\"{from}\" and \"{to}\" have no round of stacks in common"))
        .exit_with(Exit::Input)?;
    if let Some(path) = &selection.flamegraph {
        let title = format!("{}: \"{from}\" and \"{to}\"", record.study.name);
        fs::write(path, flamegraph(&title, &workload, &profile))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.json {
        let value = json(&slices, kind, &workload, &profile);
        writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?;
        return Ok(Exit::Success);
    }
    write!(out, "{}", pair(&slices, kind, &workload, &profile, style()))?;
    if let Some(path) = &selection.flamegraph {
        writeln!(out, "flame graphs: {}", path.display())?;
    }
    Ok(Exit::Success)
}

/// Returns the named workload, or the first that was sampled.
fn workload(name: Option<&str>, slices: &[StackSlice]) -> anyhow::Result<String> {
    let mut names: Vec<&str> = slices.iter().map(|slice| slice.workload.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    match name {
        None => Ok(slices[0].workload.clone()),
        Some(name) if names.contains(&name) => Ok(name.to_string()),
        Some(name) => Err(anyhow!(
            "no stacks of \"{name}\" in this record; it has those of {}",
            names.join(", ")
        )),
    }
}

/// Returns the environment with the most CPU time (or waiting) per operation, except `from` and the
/// control.
fn most_expensive(
    record: &Record,
    slices: &[StackSlice],
    kind: StackKind,
    workload: &str,
    from: &str,
) -> Option<String> {
    let others = record.environments.iter().filter(|one| !one.control && one.spec.name != from);
    let sides = others.map(|one| Side::of(slices, kind, workload, &one.spec.name));
    let most_expensive = sides
        .filter(|side| side.rounds() > 0)
        .max_by(|a, b| a.total().us.total_cmp(&b.total().us))?;
    Some(most_expensive.environment)
}

/// Returns the error of an environment without stacks.
fn no_stacks_error(slices: &[StackSlice], workload: &str, name: &str) -> anyhow::Error {
    let ours = |slice: &&StackSlice| slice.environment == name && slice.workload == workload;
    if let Some(reason) = slices.iter().filter(ours).find_map(|slice| slice.void.as_ref()) {
        return anyhow!("every stack slice of \"{name}\" is void; the first: {reason}");
    }
    let mut names: Vec<&str> = slices.iter().map(|slice| slice.environment.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    anyhow!("no stacks of \"{name}\" in this record; it has those of {}", names.join(", "))
}
