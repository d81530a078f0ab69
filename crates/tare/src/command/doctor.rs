//! `tare doctor`: what can be measured here, what is missing and how to get it, what is left over.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_host::clean::{Leftover, leftovers};
use tare_host::doctor::{Check, Verdict, checks};
use tare_lab::stacks::{StackKind, StackSampler};
use tare_probe::stacks::Perf;

use crate::cli::Doctor;
use crate::exit::Exit;

/// perf is started only to hear what it can do; it belongs to no run.
const OWN_MARK: (&str, &str) = (tare_host::RUN_VARIABLE, "doctor");

pub(crate) fn run(options: &Doctor, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut checks = checks(state);
    checks.extend(engines());
    checks.extend(observers());
    let leftovers = leftovers(state);
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

/// Container engines: the runtimes of `tare-env` say themselves what is missing.
fn engines() -> Vec<Check> {
    let engines =
        tare_env::runtime::ALL.iter().filter(|runtime| matches!(runtime.name, "docker" | "podman"));
    let check = |runtime: &tare_env::runtime::Runtime| {
        let what = runtime.name.to_string();
        match (runtime.needs)(None) {
            Ok(()) => {
                let detail = format!("answers; usable: {}", (runtime.found)().join(", "));
                Check { what, verdict: Verdict::Ok, detail, remedy: String::new() }
            }
            Err(error) => {
                Check { what, verdict: Verdict::Missing, detail: error.why, remedy: error.remedy }
            }
        }
    };
    engines.map(check).collect()
}

/// What observes a study: the probes of every slice, and what runs in slices of its own.
fn observers() -> Vec<Check> {
    let cpus = tare_host::process::cpus_of_this_thread().unwrap_or_default();
    let roots = tare_probe::Roots::default();
    let check = |what: &str, found: Result<String, (Verdict, String)>, remedy: &str| match found {
        Ok(detail) => {
            Check { what: what.into(), verdict: Verdict::Ok, detail, remedy: String::new() }
        }
        Err((verdict, detail)) => {
            Check { what: what.into(), verdict, detail, remedy: remedy.into() }
        }
    };
    let why = |missing: &[tare_probe::Unavailable]| {
        let one = |(name, error): &tare_probe::Unavailable| {
            format!("{name}: {}", tare_host::error_line(error))
        };
        missing.iter().map(one).collect::<Vec<_>>().join("; ")
    };
    let (opened, missing) = tare_probe::open_all(&roots, &cpus);
    let probes = match missing.is_empty() {
        true => Ok(format!("{} can be read (tare list probes)", opened.len())),
        false => Err((Verdict::Limited, why(&missing))),
    };
    let (_, missing) = tare_probe::open_disturbing(&roots, &cpus);
    let syscalls = match missing.is_empty() {
        true => Ok("can be counted by name (tare weigh --syscalls)".to_string()),
        false => Err((Verdict::Missing, why(&missing))),
    };
    let stacks = |kind: StackKind, option: &str| match Perf::open(kind, OWN_MARK) {
        Ok(perf) => Ok(format!("perf samples {} ({option})", perf.event())),
        Err(error) => Err((Verdict::Missing, tare_host::error_line(&error))),
    };
    let perf = "apt-get install linux-perf (Ubuntu: linux-tools-generic), and run as root";
    vec![
        check("probes", probes, "studies go on without these; their doubts are missing"),
        check("stacks", stacks(StackKind::OnCpu, "tare weigh --stacks"), perf),
        check("stacks of waiting", stacks(StackKind::OffCpu, "--stack-kinds off-cpu"), perf),
        check("system calls", syscalls, "run as root, outside of a container"),
    ]
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
