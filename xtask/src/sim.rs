//! `cargo xtask sim [--seed S [--lines L] | --seeds N] [--steps K]`: lives through one seed and
//! tells what happened, or through many on all CPUs and tells which went wrong.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};
use tare_sim::{Options, Violation, each_seed};

use crate::say;

/// Seeds where nothing else is asked for.
const SEEDS: u64 = 1000;
/// Events before a failure that are printed.
const LINES: usize = 40;
/// Failures that are printed in full.
const TOLD_MAX: usize = 3;

pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let (mut seed, mut seeds, mut options) = (None, SEEDS, Options::default());
    let mut lines = LINES;
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { bail!("{:?} needs a number", pair[0]) };
        let number: u64 = value.parse().with_context(|| format!("{value:?} is no number"))?;
        match *name {
            "--seed" => seed = Some(number),
            "--seeds" => seeds = number,
            "--steps" => options.steps = number,
            "--lines" => lines = usize::try_from(number).context("too many lines")?,
            _ => bail!("usage: cargo xtask sim [--seed S [--lines L] | --seeds N] [--steps K]"),
        }
    }
    match seed {
        Some(seed) => one(root, seed, &Options { lines, ..options }),
        None => many(root, seeds, &options),
    }
}

/// Lives through a seed twice and tells its last events if it goes wrong.
fn one(root: &Path, seed: u64, options: &Options) -> anyhow::Result<()> {
    match (tare_sim::run(seed, options), tare_sim::run(seed, options)) {
        (Ok(first), Ok(second)) if first == second => {
            say(&format!(
                "seed {seed}: {} events, {} restarts, hash {:016x}: nothing wrong",
                first.events, first.restarts, first.hash
            ));
            Ok(())
        }
        (Ok(first), Ok(second)) => {
            let (first, second) = (first.hash, second.hash);
            bail!("seed {seed}: {}", Violation::NotDeterministic { first, second })
        }
        (Err(failure), _) | (_, Err(failure)) => {
            bail!("{failure}\ncommit {}", commit(root))
        }
    }
}

fn many(root: &Path, seeds: u64, options: &Options) -> anyhow::Result<()> {
    let started = Instant::now();
    let (mut events, mut restarts, mut failures) = (0, 0, Vec::new());
    for life in each_seed(seeds, |seed| tare_sim::run(seed, options)) {
        match life {
            Ok(outcome) => {
                events += outcome.events;
                restarts += outcome.restarts;
            }
            Err(failure) => failures.push(failure),
        }
    }
    say(&format!(
        "{seeds} seeds, {restarts} restarts, {events} events, {:.1} s",
        started.elapsed().as_secs_f64()
    ));
    if failures.is_empty() {
        return Ok(());
    }
    for failure in failures.iter().take(TOLD_MAX) {
        say(&failure.to_string());
    }
    let numbers: Vec<String> = failures.iter().map(|failure| failure.seed.to_string()).collect();
    bail!("{} seeds failed: {}; commit {}", failures.len(), numbers.join(", "), commit(root))
}

/// The commit that is built, as far as git knows it.
fn commit(root: &Path) -> String {
    let output =
        Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(root).output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_string()
        }
        _ => "unknown".into(),
    }
}
