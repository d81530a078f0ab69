//! `tare clean`: removes what ended runs left on the host.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_host::clean::{Outcome, clean, forget};

use crate::campaign::data_cache;
use crate::cleanup;
use crate::cli::Clean;
use crate::exit::{Exit, ExitWith};
use crate::registry::KINDS;
use crate::remote_run;

pub(crate) fn run(options: &Clean, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if let Some(run) = &options.forget {
        let left = forget(state, run, KINDS).exit_with(Exit::Input)?;
        let what = if left.is_empty() { "nothing was left" } else { "this may be left" };
        writeln!(out, "run {run}: forgotten; {what}")?;
        for error in left {
            writeln!(out, "  {error}")?;
        }
        return Ok(Exit::Success);
    }
    // A wrong variable is an error before anything is removed.
    let cache = data_cache::of_host()?.filter(|_| options.data);
    let mut report = clean(state, KINDS)?;
    if let Some(own) = remote_run::user_state(state).filter(|own| own.exists()) {
        report.runs.extend(clean(&own, KINDS)?.runs);
    }
    let mut others = cleanup::remove_unjournalled(state);
    others.extend(cache.map(|cache| (data_cache::WHAT, data_cache::clear(&cache))));
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
            writeln!(out, "{}", cleanup::line(run, outcome))?;
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

fn as_json(run: &str, outcome: &Outcome) -> serde_json::Value {
    match outcome {
        Outcome::Alive { pid } => json!({ "run": run, "outcome": "alive", "pid": pid }),
        Outcome::Cleaned { entries } => {
            json!({ "run": run, "outcome": "cleaned", "entries": entries })
        }
        Outcome::Failed { errors } => json!({ "run": run, "outcome": "failed", "errors": errors }),
    }
}
