//! All checks that a change must pass, with the fastest first. At the end it prints the time of
//! each step, the slowest tests, the numbers of passed, failed and skipped tests, and each skip
//! with its reason.

mod libtest;
mod skips;
mod suite;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::built::{program, target};
use crate::say;
use libtest::{Counts, Show};
use suite::Suite;

/// The name of a step, and its cargo arguments.
type Step = (&'static str, &'static [&'static str]);

/// The steps before the tests. The tests need what the last of them builds.
const BEFORE: [Step; 3] = [
    ("format", &["fmt", "--all", "--check"]),
    ("clippy", &["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    ("build", &["build", "--release", "--workspace", "--bins", "--examples"]),
];

/// The steps that only compile. They run beside the suites in guests, which leave a CPU idle.
const BESIDE: [Step; 3] = [
    ("doc tests", &["test", "--release", "--workspace", "--doc"]),
    ("docs", &["doc", "--release", "--workspace", "--no-deps"]),
    ("build of the benches", &["test", "--release", "--workspace", "--bench", "*", "--no-run"]),
];

/// The steps that have run so far.
#[derive(Debug, Default)]
struct Run {
    times: Vec<(&'static str, Duration)>,
    failed: Vec<String>,
}

impl Run {
    /// Runs a step and keeps its time. A failed step is named at the end.
    fn step(
        &mut self,
        name: &'static str,
        step: impl FnOnce() -> anyhow::Result<bool>,
    ) -> anyhow::Result<bool> {
        say(&format!("==> {name}"));
        let started = Instant::now();
        let good = step()?;
        let time = started.elapsed();
        say(&format!("{name}: {:.0} s", time.as_secs_f64()));
        self.times.push((name, time));
        if !good {
            self.failed.push(name.into());
        }
        Ok(good)
    }
}

/// Runs every step. Fails at the end with the names of the failed steps.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let mut run = Run::default();
    run.step("tidy", || {
        let tidy = crate::tidy::run(root);
        if let Err(error) = &tidy {
            say(&format!("{error:#}"));
        }
        Ok(tidy.is_ok())
    })?;
    let mut compiles = true;
    for (name, arguments) in BEFORE {
        compiles = run.step(name, || cargo(root, name, arguments))?;
        if !compiles && name != "format" {
            break;
        }
    }
    let skips = target(root).join("ci-skips.tsv");
    let _ = fs::remove_file(&skips);
    let mut suite = Suite::default();
    if compiles {
        tests(root, &mut run, &mut suite, &skips)?;
    }
    for (name, check) in crate::steps::AFTER.iter().filter(|_| compiles) {
        run.step(name, || Ok(crate::steps::run(root, *check)))?;
    }
    let skips = skips::read(&skips)?;
    say("");
    skips::print(&skips);
    let refused = skips::refused(&skips);
    for skip in &refused {
        say(&format!("ci: skipped without a known property of the machine: {skip}"));
    }
    if !refused.is_empty() {
        run.failed.push("skips".into());
    }
    suite.print_slowest();
    say("time of each step:");
    for (name, time) in &run.times {
        say(&format!("{:>8.0} s  {name}", time.as_secs_f64()));
    }
    suite.print_counts(&skips);
    if run.failed.is_empty() {
        say("ci: everything passed");
        return Ok(());
    }
    bail!("ci: failed: {}", run.failed.join(", "))
}

/// Runs the tests of the workspace, and third-party clients against the database.
fn tests(root: &Path, run: &mut Run, suite: &mut Suite, skips: &Path) -> anyhow::Result<()> {
    let mut binaries = Vec::new();
    let built = run.step("build of the tests", || match suite::build(root)? {
        Some(built) => {
            binaries = built;
            Ok(true)
        }
        None => Ok(false),
    })?;
    if built {
        let (mut beside, mut counts) = (Run::default(), Counts::default());
        run.step("tests", || {
            suite.run(&binaries, skips, || compile(root, &mut beside, &mut counts))
        })?;
        run.failed.extend(suite.failed());
        run.times.append(&mut beside.times);
        run.failed.append(&mut beside.failed);
        suite.doc_tests += counts;
    }
    let program = program(root)?;
    run.step("drivers", || {
        let script = root.join("tests/drivers/run");
        let mut command = Command::new(&script);
        command.arg(program).current_dir(root).env(skips::VARIABLE, skips);
        let status = command.status();
        Ok(status.with_context(|| format!("cannot start {}", script.display()))?.success())
    })?;
    Ok(())
}

fn cargo(root: &Path, name: &str, arguments: &[&str]) -> anyhow::Result<bool> {
    let status = Command::new(env!("CARGO")).args(arguments).current_dir(root).status();
    Ok(status.with_context(|| format!("cannot start cargo for the step {name:?}"))?.success())
}

/// Runs the steps that only compile. Each shows its output at its end.
fn compile(root: &Path, run: &mut Run, counts: &mut Counts) -> anyhow::Result<()> {
    for (name, arguments) in BESIDE {
        run.step(name, || {
            let mut nice = Command::new("nice");
            nice.args(["-n", "10", env!("CARGO")]).args(arguments).current_dir(root);
            nice.env("RUSTDOCFLAGS", "-D warnings");
            let (good, output) = libtest::run(&mut nice, Show::AtTheEnd, name)
                .with_context(|| format!("cannot start cargo for the step {name:?}"))?;
            *counts += output.counts;
            Ok(good)
        })?;
    }
    let (name, check) = crate::steps::BESIDE;
    run.step(name, || Ok(crate::steps::run(root, check)))?;
    Ok(())
}
