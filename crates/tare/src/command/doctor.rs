//! `tare doctor`: checks what can be measured on this host, what is missing and how to get it, and
//! what ended runs left; or which load tools other hosts have.

use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tare_host::clean::Leftover;
use tare_host::doctor::{self, Check, Verdict};
use tare_std::loader_address::LoaderAddress;

use crate::cli::Doctor;
use crate::exit::{Exit, ExitWith};
use crate::registry::HOUSEKEEPING;
use crate::remote_run::{Connected, Connections, loader_hosts};

/// A check as it is printed, and as a loader sends it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    what: String,
    verdict: String,
    detail: String,
    remedy: String,
}

/// The checks of a loader, for JSON.
#[derive(Debug, Serialize)]
struct OfLoader {
    loader: String,
    checks: Vec<Line>,
}

pub(crate) fn run(options: &Doctor, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if !options.loaders.is_empty() {
        return of_loaders(options, state, out);
    }
    let leftovers: Vec<Leftover> =
        HOUSEKEEPING.iter().flat_map(|one| (one.leftovers)(state)).collect();
    let mut checks: Vec<Check> = HOUSEKEEPING.iter().flat_map(|one| (one.checks)(state)).collect();
    checks.push(doctor::leftovers(&leftovers));
    let checks: Vec<Line> = checks.into_iter().map(Line::from).collect();
    if options.json {
        let leftovers: Vec<_> = leftovers.iter().map(leftover_json).collect();
        let both = json!({ "checks": checks, "leftovers": leftovers });
        writeln!(out, "{}", serde_json::to_string_pretty(&both)?)?;
        return Ok(Exit::Success);
    }
    print(&checks, out)?;
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

/// Asks loaders which load tools they have.
fn of_loaders(options: &Doctor, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let asked: Vec<LoaderAddress> =
        options.loaders.iter().flat_map(|list| list.0.clone()).collect();
    let hosts = loader_hosts(&asked)?;
    let connections = Connections::open(state, options.on.image.get())?;
    let mut all = Vec::new();
    for loader in &hosts {
        let checks = match loader.remote() {
            None => load_tools(),
            Some(address) => {
                let Connected { host, program, .. } = connections.connect(address)?;
                let told = host.output(&program.path, &["load-agent", "--tools"], std::io::empty());
                serde_json::from_slice(&told.exit_with(Exit::Host)?)?
            }
        };
        all.push(OfLoader { loader: loader.to_string(), checks });
    }
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&json!({ "loaders": all }))?)?;
        return Ok(Exit::Success);
    }
    for OfLoader { loader, checks } in &all {
        writeln!(out, "{loader}")?;
        print(checks, out)?;
    }
    Ok(Exit::Success)
}

/// Returns the checks of this host as a loader.
pub(crate) fn load_tools() -> Vec<Line> {
    tare_driver::doctor::loader_checks().into_iter().map(Line::from).collect()
}

fn print(checks: &[Line], out: &mut dyn Write) -> anyhow::Result<()> {
    let width = checks.iter().map(|check| check.what.chars().count()).max().unwrap_or(0);
    for Line { what, verdict, detail, remedy } in checks {
        writeln!(out, "{verdict:<8} {what:<width$}  {detail}")?;
        if !remedy.is_empty() {
            writeln!(out, "{:<8} {:<width$}  -> {remedy}", "", "")?;
        }
    }
    Ok(())
}

impl From<Check> for Line {
    fn from(check: Check) -> Self {
        let Check { what, verdict, detail, remedy } = check;
        Self { what, verdict: word(verdict).into(), detail, remedy }
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Limited => "limited",
        Verdict::Missing => "missing",
    }
}

fn leftover_json(leftover: &Leftover) -> serde_json::Value {
    json!({ "kind": leftover.kind, "name": leftover.name, "alive": leftover.alive })
}
