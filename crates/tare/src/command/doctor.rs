//! `tare doctor`: what can be measured here, what is missing and how to get it, what is left over.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_host::clean::Leftover;
use tare_host::doctor::{self, Check, Verdict};
use tare_host::housekeeping::Housekeeping;

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
        writeln!(out, "nothing of an ended run is left on this host")?;
    }
    for Leftover { kind, name, alive } in &leftovers {
        match alive {
            Some(run) => writeln!(out, "in use by run {run}: {kind} {name}")?,
            None => {
                writeln!(out, "left over: {kind} {name}; tare clean removes what has a journal")?
            }
        }
    }
    Ok(Exit::Success)
}

/// The drivers, which know nothing of the host.
pub(crate) const DRIVERS: Housekeeping =
    Housekeeping { checks: load_tools, ..Housekeeping::NOTHING };

/// Other people's load tools: each driver names the program that it runs.
fn load_tools(_state: &Path) -> Vec<Check> {
    let check = |driver: &tare_driver::DriverInfo| {
        let program = driver.program?;
        let what = format!("driver {}", driver.name);
        let lacks = program.home.filter(|(home, needs)| !Path::new(home).join(needs).exists());
        Some(match tare_host::exec::find(program.name) {
            Some(path) => {
                let detail = format!("runs {}", path.display());
                match lacks {
                    None => Check { what, verdict: Verdict::Ok, detail, remedy: String::new() },
                    Some((home, needs)) => {
                        let detail = format!("{detail}; there is no {home}/{needs}");
                        let remedy = program.get.into();
                        Check { what, verdict: Verdict::Limited, detail, remedy }
                    }
                }
            }
            None => {
                let detail = format!("{} is not on PATH", program.name);
                Check { what, verdict: Verdict::Missing, detail, remedy: program.get.into() }
            }
        })
    };
    tare_driver::ALL.iter().filter_map(check).collect()
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
