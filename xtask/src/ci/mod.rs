//! All checks that a change must pass, with the fastest first. At the end it prints the time of
//! each step, the slowest tests, the numbers of passed, failed and skipped tests, and each skip
//! with its reason.

mod libtest;
mod skips;
mod suite;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};

use crate::built::{program, target};
use crate::cargo::without_package;
use crate::say;
use libtest::{Counts, Show};
use suite::Suite;

/// The name of a step, and its cargo arguments.
type Step = (&'static str, &'static [&'static str]);

/// The steps before the tests. The tests need what the last of them builds.
const BEFORE: [Step; 2] = [
    ("format", &["fmt", "--all", "--check"]),
    ("build", &["build", "--release", "--workspace", "--bins", "--examples"]),
];

/// The steps that only compile. They run beside the suites in guests, which leave a CPU idle.
const BESIDE: [Step; 4] = [
    ("clippy", &["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    ("doc tests", &["test", "--release", "--workspace", "--doc"]),
    ("docs", &["doc", "--release", "--workspace", "--no-deps"]),
    ("build of the benches", &["test", "--release", "--workspace", "--bench", "*", "--no-run"]),
];

/// Every bench runs to its end as a test, with tiny inputs: without the flag `--bench`, which
/// `cargo bench` passes and `cargo test` does not. No figure is asserted, so they run beside the
/// third-party clients.
const BENCHES: [Step; 1] =
    [("benches", &["test", "--release", "--workspace", "--no-fail-fast", "--bench", "*"])];

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
            suite.run(&binaries, skips, || {
                in_background(root, &BESIDE, &mut beside, &mut counts)?;
                let (name, check) = crate::steps::BESIDE;
                beside.step(name, || Ok(crate::steps::run(root, check)))?;
                Ok(())
            })
        })?;
        run.failed.extend(suite.failed());
        run.times.append(&mut beside.times);
        run.failed.append(&mut beside.failed);
        suite.doc_tests += counts;
    }
    let mut beside = Run::default();
    thread::scope(|scope| {
        let benches =
            scope.spawn(|| in_background(root, &BENCHES, &mut beside, &mut Counts::default()));
        let clients = run.step("drivers", || drivers(root, skips));
        benches.join().map_err(|_| anyhow!("the benches panicked"))??;
        clients
    })?;
    run.times.append(&mut beside.times);
    run.failed.append(&mut beside.failed);
    Ok(())
}

/// Runs third-party clients against the database.
fn drivers(root: &Path, skips: &Path) -> anyhow::Result<bool> {
    let script = root.join("tests/drivers/run");
    let mut command = Command::new(&script);
    command.arg(program(root)?).current_dir(root).env(skips::VARIABLE, skips);
    let status = command.status();
    Ok(status.with_context(|| format!("cannot start {}", script.display()))?.success())
}

fn cargo(root: &Path, name: &str, arguments: &[&str]) -> anyhow::Result<bool> {
    let status = crate::cargo::cargo(root).args(arguments).status();
    Ok(status.with_context(|| format!("cannot start cargo for the step {name:?}"))?.success())
}

/// Runs steps with low priority. Each shows its output at its end.
fn in_background(
    root: &Path,
    steps: &[Step],
    run: &mut Run,
    counts: &mut Counts,
) -> anyhow::Result<()> {
    for (name, arguments) in steps {
        run.step(name, || {
            let mut nice = Command::new("nice");
            nice.args(["-n", "10", env!("CARGO")]).args(*arguments).current_dir(root);
            nice.env("RUSTDOCFLAGS", "-D warnings");
            without_package(&mut nice);
            let (good, output) = libtest::run(&mut nice, Show::AtTheEnd, name)
                .with_context(|| format!("cannot start cargo for the step {name:?}"))?;
            *counts += output.counts;
            Ok(good)
        })?;
    }
    Ok(())
}
