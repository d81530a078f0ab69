//! `tare doctor`: what can be measured here, what is missing and how to get it, what is left over.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_host::clean::{Leftover, leftovers};
use tare_host::doctor::{Check, Verdict, checks};
use tare_lab::stacks::{StackKind, StackSampler};
use tare_probe::stacks::{Perf, UserFrames};

use crate::cli::Doctor;
use crate::exit::Exit;

/// perf is started only to hear what it can do; it belongs to no run.
const OWN_MARK: (&str, &str) = (tare_host::RUN_VARIABLE, "doctor");

pub(crate) fn run(options: &Doctor, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut checks = checks(state);
    checks.extend(tare_env::runtime::gvisor::doctor::checks(state));
    checks.extend(engines());
    checks.extend(systems());
    checks.push(root_file_systems());
    checks.extend(stacks());
    checks.extend(load_tools());
    checks.extend(probes());
    checks.extend(tare_env::runtime::vm::doctor::checks(state));
    checks.push(tare_env::runtime::kata::check());
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

/// Probes: what each takes to read, here and now, or why it cannot be read.
fn probes() -> Vec<Check> {
    let cpus = tare_host::process::cpus_of_this_thread().unwrap_or_default();
    let roots = tare_probe::Roots::default();
    let check = |kind: &tare_probe::ProbeKind| {
        let what = format!("probe {}", kind.name);
        let missing = |detail: String, verdict| {
            let remedy = format!("it needs {}", kind.needs);
            Check { what: what.clone(), verdict, detail, remedy }
        };
        let mut probe = match kind.open(&roots, &cpus) {
            Ok(probe) => probe,
            Err(_) if kind.optional => return None,
            Err(error) => return Some(missing(tare_host::error_line(&error), Verdict::Missing)),
        };
        let detail = match tare_probe::cost(&mut *probe) {
            Ok(cost) => super::weigh::cost_line(cost),
            Err(error) => {
                return Some(missing(tare_host::error_line(&*error), Verdict::Limited));
            }
        };
        Some(Check { what: what.clone(), verdict: Verdict::Ok, detail, remedy: String::new() })
    };
    tare_probe::ALL.iter().filter_map(check).collect()
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

/// Other people's systems, whose programs a study starts.
fn systems() -> Vec<Check> {
    let check = |system: &tare_system::SystemInfo| {
        let (verdict, detail, remedy) = match system.found?() {
            Ok(found) => (Verdict::Ok, found, String::new()),
            Err(remedy) => (Verdict::Missing, "not installed".into(), remedy.into()),
        };
        Some(Check { what: format!("system {}", system.name), verdict, detail, remedy })
    };
    tare_system::ALL.iter().filter_map(check).collect()
}

/// What containers' root file systems can be made of.
fn root_file_systems() -> Check {
    let what = "root file systems".to_string();
    let missing: Vec<&str> = tare_env::rootfs::TOOLS
        .iter()
        .copied()
        .filter(|name| tare_host::exec::find(name).is_none())
        .collect();
    let cached = tare_env::rootfs::cached();
    let unpacked = match cached.is_empty() {
        true => format!("none in {} yet", tare_env::rootfs::CACHE),
        false => format!("in {}: {}", tare_env::rootfs::CACHE, cached.join(", ")),
    };
    match missing.is_empty() {
        true => Check {
            what,
            verdict: Verdict::Ok,
            detail: format!("packages, images and directories; {unpacked}"),
            remedy: String::new(),
        },
        false => Check {
            what,
            verdict: Verdict::Limited,
            detail: format!("images and directories, no packages; {unpacked}"),
            remedy: format!("packages need {}, on Debian and Ubuntu", missing.join(", ")),
        },
    }
}

/// Other people's load tools: each driver names the program that it runs.
fn load_tools() -> Vec<Check> {
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

/// Stacks: what perf can take them by, here and now.
fn stacks() -> Vec<Check> {
    let check = |kind: StackKind, option: &str| {
        let what = kind.probe().to_string();
        match Perf::open(kind, UserFrames::Auto, OWN_MARK) {
            Ok(perf) => {
                let detail = format!("perf samples {} (tare weigh {option})", perf.event());
                Check { what, verdict: Verdict::Ok, detail, remedy: String::new() }
            }
            Err(error) => {
                let remedy =
                    "apt-get install linux-perf (Ubuntu: linux-tools-generic), and run as root";
                let detail = tare_host::error_line(&error);
                Check { what, verdict: Verdict::Missing, detail, remedy: remedy.into() }
            }
        }
    };
    let off_cpu = "--stacks --stack-kinds off-cpu";
    vec![check(StackKind::OnCpu, "--stacks"), check(StackKind::OffCpu, off_cpu)]
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
