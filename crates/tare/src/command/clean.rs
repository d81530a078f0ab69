//! `tare clean`: removes whatever ended runs left on the host.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_host::clean::{Outcome, Report, clean};

use crate::cli::Clean;
use crate::exit::Exit;
use crate::stream::say;

pub(crate) fn run(options: &Clean, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let report = clean(state)?;
    if options.json {
        let runs: Vec<_> = report.runs.iter().map(|(run, outcome)| as_json(run, outcome)).collect();
        let tunings: Vec<_> =
            report.tunings.iter().map(|(id, outcome)| as_json(id, outcome)).collect();
        let all = json!({ "runs": runs, "tunings": tunings });
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else if report.runs.is_empty() && report.tunings.is_empty() {
        writeln!(out, "nothing to clean: no journal in {}", state.display())?;
    } else {
        for (run, outcome) in &report.runs {
            writeln!(out, "{}", line(run, outcome))?;
        }
        for (id, outcome) in &report.tunings {
            writeln!(out, "{}", line_of_tuning(id, outcome))?;
        }
    }
    let mut outcomes = report.runs.iter().chain(&report.tunings);
    let failed = outcomes.any(|(_, outcome)| matches!(outcome, Outcome::Failed { .. }));
    Ok(if failed { Exit::Failure } else { Exit::Success })
}

/// Cleans before a run starts, and says only what was done or went wrong.
pub(crate) fn quietly(state: &Path) {
    let Ok(Report { runs, tunings }) = clean(state) else { return };
    for (run, outcome) in
        runs.iter().filter(|(_, outcome)| !matches!(outcome, Outcome::Alive { .. }))
    {
        say(&line(run, outcome));
    }
    for (id, outcome) in &tunings {
        say(&line_of_tuning(id, outcome));
    }
}

fn line_of_tuning(id: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Cleaned { entries } => {
            format!("tuning {id} of a dead run: put back ({entries} settings)")
        }
        Outcome::Failed { errors } => format!("tuning {id}: not put back: {}", errors.join("; ")),
        Outcome::Alive { pid } => format!("tuning {id}: alive (process {pid}); left alone"),
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
