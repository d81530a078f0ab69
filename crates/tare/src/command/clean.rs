//! `tare clean`: removes whatever ended runs left on the host.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_host::clean::{Outcome, Report, clean};
use tare_host::housekeeping::Cleaned;

use crate::cli::Clean;
use crate::exit::Exit;
use crate::registry::{HOUSEKEEPING, KINDS};
use crate::stream::say;

pub(crate) fn run(options: &Clean, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let report = clean(state, KINDS)?;
    let others = others(state);
    if options.json {
        let runs: Vec<_> = report.runs.iter().map(|(run, outcome)| as_json(run, outcome)).collect();
        let mut all = serde_json::Map::from_iter([("runs".to_string(), runs.into())]);
        for (what, cleaned) in &others {
            let cleaned: Vec<_> =
                cleaned.iter().map(|one| as_json(&one.id, &one.outcome)).collect();
            all.insert((*what).to_string(), cleaned.into());
        }
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else if report.runs.is_empty() && others.iter().all(|(_, cleaned)| cleaned.is_empty()) {
        writeln!(out, "nothing to clean: no journal in {}", state.display())?;
    } else {
        for (run, outcome) in &report.runs {
            writeln!(out, "{}", line(run, outcome))?;
        }
        for one in others.iter().flat_map(|(_, cleaned)| cleaned) {
            writeln!(out, "{}", one.line)?;
        }
    }
    let outcomes = report.runs.iter().map(|(_, outcome)| outcome);
    let others = others.iter().flat_map(|(_, cleaned)| cleaned).map(|one| &one.outcome);
    let failed = outcomes.chain(others).any(|outcome| matches!(outcome, Outcome::Failed { .. }));
    Ok(if failed { Exit::Failure } else { Exit::Success })
}

/// Cleans what crates keep outside of the journals of runs: the sort, and what became of each.
fn others(state: &Path) -> Vec<(&'static str, Vec<Cleaned>)> {
    let cleanups = HOUSEKEEPING.iter().flat_map(|one| one.cleanups);
    cleanups.map(|cleanup| (cleanup.what, (cleanup.clean)(state))).collect()
}

/// Cleans before a run starts, and says only what was done or went wrong.
pub(crate) fn quietly(state: &Path) {
    let Ok(Report { runs }) = clean(state, KINDS) else { return };
    for (run, outcome) in
        runs.iter().filter(|(_, outcome)| !matches!(outcome, Outcome::Alive { .. }))
    {
        say(&line(run, outcome));
    }
    for one in others(state).iter().flat_map(|(_, cleaned)| cleaned) {
        say(&one.line);
    }
}

fn line(run: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Alive { pid } => format!("run {run}: alive (process {pid}); left alone"),
        Outcome::Cleaned { entries } => {
            format!("run {run}: cleaned ({entries} journal entries undone)")
        }
        Outcome::Failed { errors } => format!("run {run}: not clean: {}", errors.join("; ")),
    }
}

fn as_json(run: &str, outcome: &Outcome) -> serde_json::Value {
    match outcome {
        Outcome::Alive { pid } => json!({ "run": run, "outcome": "alive", "pid": pid }),
        Outcome::Cleaned { entries } => {
            json!({ "run": run, "outcome": "cleaned", "entries": entries })
        }
        Outcome::Failed { errors } => json!({ "run": run, "outcome": "failed", "errors": errors }),
    }
}
