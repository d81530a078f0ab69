//! `tare doctor`: checks what can be measured on this host, what is missing and how to get it, and
//! what ended runs left.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_host::clean::Leftover;
use tare_host::doctor::{self, Check, Verdict};

use crate::cli::Doctor;
use crate::exit::Exit;
use crate::registry::HOUSEKEEPING;

pub(crate) fn run(options: &Doctor, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let leftovers: Vec<Leftover> =
        HOUSEKEEPING.iter().flat_map(|one| (one.leftovers)(state)).collect();
    let mut checks: Vec<Check> = HOUSEKEEPING.iter().flat_map(|one| (one.checks)(state)).collect();
    checks.push(doctor::leftovers(&leftovers));
    if options.json {
        let checks: Vec<_> = checks.iter().map(check_json).collect();
        let leftovers: Vec<_> = leftovers.iter().map(leftover_json).collect();
        let both = json!({ "checks": checks, "leftovers": leftovers });
        writeln!(out, "{}", serde_json::to_string_pretty(&both)?)?;
        return Ok(Exit::Success);
    }
    let width = checks.iter().map(|check| check.what.chars().count()).max().unwrap_or(0);
    for check in &checks {
        let Check { what, detail, remedy, .. } = check;
        writeln!(out, "{:<8} {what:<width$}  {detail}", word(check.verdict))?;
        if !remedy.is_empty() {
            writeln!(out, "{:<8} {:<width$}  -> {remedy}", "", "")?;
        }
    }
    writeln!(out)?;
    if leftovers.is_empty() {
        writeln!(out, "ended runs left nothing on this host")?;
    }
    for Leftover { kind, name, alive } in &leftovers {
        match alive {
            Some(run) => writeln!(out, "in use by run {run}: {kind} {name}")?,
            None => writeln!(
                out,
                "left over: {kind} {name}; tare clean removes it if a journal lists it"
            )?,
        }
    }
    Ok(Exit::Success)
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Limited => "limited",
        Verdict::Missing => "missing",
    }
}

fn check_json(check: &Check) -> serde_json::Value {
    let Check { what, verdict, detail, remedy } = check;
    json!({ "what": what, "verdict": word(*verdict), "detail": detail, "remedy": remedy })
}

fn leftover_json(leftover: &Leftover) -> serde_json::Value {
    json!({ "kind": leftover.kind, "name": leftover.name, "alive": leftover.alive })
}
