//! `cargo xtask calibrate`: is the instrument right? Campaigns on this machine in which the true
//! cost is known because it was injected, each line of results beside its truth
//! (docs/concepts/trust.md).
//!
//! Method: campaigns of several kinds in turn, each a study that the built `tare` runs like a
//! user's. After every campaign its lines are appended to the file of results, synced, and printed
//! on standard error. A kill loses at most the running campaign; `--resume` goes on.
//!
//! Limits: one machine, one hour. A campaign that fails is printed and not repeated until the next
//! turn.

mod line;
mod measure;
mod neighbour;
mod options;
mod page;
mod proportion;
mod studies;
mod summary;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use signal_hook::consts::{SIGINT, SIGTERM};

use measure::{Bench, Turn};
use options::{Options, Order};
use studies::Kind;

use crate::say;

pub(crate) use neighbour::{WORD as NEIGHBOUR, run as neighbour};

/// Campaigns that may fail one after the other.
const FAILURES_MAX: u32 = 3;

/// Does what the words after `calibrate` say.
pub(crate) fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    match options::parse(words)? {
        Order::Run(options) => campaigns(root, &options),
        Order::Summary(path) => {
            print(&summary::markdown(&line::read(&path)?));
            Ok(())
        }
        Order::Page => page::write(root),
    }
}

fn campaigns(root: &Path, options: &Options) -> anyhow::Result<()> {
    let out = &options.out;
    let mut lines = line::read(out)?;
    if out.exists() {
        if !options.resume {
            bail!("{} is there already; go on with --resume, or take another file", out.display());
        }
        line::rewrite(out, &lines)?;
    }
    let wanted = wanted(options, &lines);
    if wanted.is_empty() {
        print(&summary::markdown(&lines));
        return Ok(());
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot watch signals")?;
    }
    let program = match &options.program {
        Some(program) => program.clone(),
        None => crate::ci::program(root)?,
    };
    let program = fs::canonicalize(&program)
        .with_context(|| format!("{} is not there; cargo build --release", program.display()))?;
    let folder = Scratch::make()?;
    let begun = Instant::now();
    let bench = Bench::open(program, folder.0.clone(), options.seed)?;
    say(&format!("baseline: {:.2} µs of server CPU per operation", bench.baseline_us));
    let mut failures = 0;
    for (kind, number) in wanted {
        let over = options.time.is_some_and(|time| begun.elapsed() >= time);
        if over || stop.load(Ordering::Relaxed) {
            say(if over { "the time is over" } else { "stopped; go on with --resume" });
            break;
        }
        let seed = seed(options.seed, kind, number);
        let found = bench.run(Turn { kind, number, seed, budget: options.budget_each });
        let minutes = begun.elapsed().as_secs() / 60;
        let name = kind.name();
        match found {
            Ok(found) => {
                failures = 0;
                line::append(out, &found)?;
                say(&format!("{minutes} min, {name} {number}: {}", summary::campaign(&found)));
                lines.extend(found);
            }
            // The program was interrupted too.
            Err(_) if stop.load(Ordering::Relaxed) => {}
            Err(error) => {
                failures += 1;
                say(&format!("{minutes} min, {name} {number} failed: {error:#}"));
                if failures >= FAILURES_MAX {
                    let out = out.display();
                    bail!(
                        "{failures} campaigns failed one after the other; the others are in {out}"
                    );
                }
            }
        }
    }
    print(&summary::markdown(&lines));
    Ok(())
}

/// The campaigns that are not there yet, in turn. A kind that the list names several times has
/// as many numbers in each turn.
fn wanted(options: &Options, lines: &[line::Line]) -> Vec<(Kind, u32)> {
    let mut next = [0u32; Kind::ALL.len()];
    let mut wanted = Vec::new();
    for _ in 0..options.campaigns {
        for kind in options.kinds.iter().copied() {
            let number = next[kind as usize];
            next[kind as usize] += 1;
            let done = |line: &line::Line| line.kind == kind.name() && line.campaign == number;
            if !lines.iter().any(done) {
                wanted.push((kind, number));
            }
        }
    }
    wanted
}

/// A seed of 62 bits for each campaign, the same again for the same base.
fn seed(base: u64, kind: Kind, number: u32) -> u64 {
    // SplitMix64's increment spreads neighbouring numbers.
    let mixed = (base ^ ((kind as u64) << 40) ^ (u64::from(number) << 8))
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed >> 2
}

/// A directory of our own that goes when this does.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn make() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("tare-calibrate-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Temporary files that cannot be removed are the system's to clean.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[expect(clippy::print_stdout, reason = "the result of a chore")]
fn print(text: &str) {
    println!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_run_again() {
        let words = ["--out", "x", "--campaigns", "2", "--kinds", "busy,noise,busy"];
        let Ok(Order::Run(options)) = options::parse(&words) else {
            panic!("it is an order to run")
        };
        let all = wanted(&options, &[]);
        let (busy, noise) = (Kind::Busy, Kind::Noise);
        assert_eq!(all, [(busy, 0), (noise, 0), (busy, 1), (busy, 2), (noise, 1), (busy, 3)]);
        let there = line::Line { campaign: 1, ..line::example() };
        assert_eq!(wanted(&options, &[there]).len(), 5);
        let seeds: std::collections::BTreeSet<u64> =
            all.iter().map(|(kind, number)| seed(1, *kind, *number)).collect();
        assert_eq!(seeds.len(), all.len());
    }
}
