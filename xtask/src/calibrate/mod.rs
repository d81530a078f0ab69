//! `cargo xtask calibrate`: checks the instrument with campaigns on this machine. Each campaign
//! injects a known cost and compares the measured cost with it (docs/concepts/trust.md).
//!
//! Method: campaigns of several kinds alternate. Each is a study that the built `tare` runs like a
//! user's study. After every campaign its lines are appended to the file of results, synced, and
//! printed on standard error. A kill loses at most the running campaign. `--resume` continues.
//!
//! Limits: the results are those of one machine. A failed campaign is printed, and repeated only by
//! a later `--resume`.

mod burners;
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

use measure::{Campaign, CampaignRunner};
use options::{Action, Options};
use studies::Kind;

use crate::say;

pub(crate) use burners::{WORD as BURNER, run as burner};
pub(crate) use neighbour::{WORD as NEIGHBOUR, run as neighbour};

/// The number of consecutive failed campaigns that ends the run.
const FAILURES_MAX: u32 = 3;

/// Runs `cargo xtask calibrate` with the words after `calibrate`.
pub(crate) fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    match options::parse(words)? {
        Action::Run(options) => campaigns(root, &options),
        Action::Summary(path) => {
            print(&summary::markdown(&line::read(&path)?));
            Ok(())
        }
        Action::Page => page::write(root),
    }
}

fn campaigns(root: &Path, options: &Options) -> anyhow::Result<()> {
    let out = &options.out;
    let mut lines = line::read(out)?;
    if out.exists() {
        if !options.resume {
            bail!("{} already exists; use --resume, or another file", out.display());
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
        None => crate::built::program(root)?,
    };
    let program = fs::canonicalize(&program)
        .with_context(|| format!("{} is not there; cargo build --release", program.display()))?;
    let folder = Scratch::make()?;
    let begun = Instant::now();
    let bench = CampaignRunner::open(program, folder.0.clone(), options.seed)?;
    say(&format!("baseline: {:.2} µs of server CPU per operation", bench.baseline_us));
    let mut failures = 0;
    for (kind, number) in wanted {
        let over = options.time.is_some_and(|time| begun.elapsed() >= time);
        if over || stop.load(Ordering::Relaxed) {
            say(if over { "the time is over" } else { "stopped; continue with --resume" });
            break;
        }
        let seed = seed(options.seed, kind, number);
        let found = bench.run(Campaign { kind, number, seed, budget: options.budget_each });
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

/// The campaigns without results, with alternating kinds. A kind that the list names several times
/// has as many campaigns in each pass.
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

/// Derives a seed of 62 bits for each campaign from the base.
fn seed(base: u64, kind: Kind, number: u32) -> u64 {
    // SplitMix64's increment spreads neighbouring numbers.
    let mixed = (base ^ ((kind as u64) << 40) ^ (u64::from(number) << 8))
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed >> 2
}

/// A temporary directory that is removed on drop.
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
        // The system cleans temporary files that cannot be removed.
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
    fn skips_campaigns_with_results() {
        let words = ["--out", "x", "--campaigns", "2", "--kinds", "busy,noise,busy"];
        let Ok(Action::Run(options)) = options::parse(&words) else {
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
