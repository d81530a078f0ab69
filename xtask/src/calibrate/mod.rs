//! `cargo xtask calibrate`: is the instrument right? Campaigns on this machine in which the true cost
//! is known because it was injected, each line of results beside its truth (docs/concepts/trust.md).
//!
//! Method: campaigns of several kinds in turn, each a study that the built `tare` runs as anybody's.
//! After every campaign its lines are added to the file of results, synced, and told on standard error;
//! whatever kills this, at most the running campaign is lost, and `--resume` goes on.
//!
//! Limits: one machine, one hour. A campaign that fails is told and not repeated until the next turn.

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
use std::time::Instant;

use anyhow::{Context, bail};

use measure::{Bench, Turn};
use options::{Options, Order};

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
    let program = match &options.program {
        Some(program) => program.clone(),
        None => crate::ci::program(root)?,
    };
    let program = fs::canonicalize(&program)
        .with_context(|| format!("{} is not there; cargo build --release", program.display()))?;
    let folder = Scratch::make()?;
    let bench = Bench { program, folder: folder.0.clone() };
    let begun = Instant::now();
    let over = || options.time.is_some_and(|time| begun.elapsed() >= time);
    let baseline_us = bench.baseline_us(options.seed)?;
    say(&format!("baseline: {baseline_us:.2} µs of server CPU per operation"));
    let mut failures = 0;
    for round in 0..options.campaigns {
        for (place, kind) in options.kinds.iter().copied().enumerate() {
            // The same kind in other places of the list has numbers of its own.
            let (same, before) = alike(&options.kinds, place);
            let number = round * same + before;
            let done = |line: &line::Line| line.kind == kind.name() && line.campaign == number;
            if lines.iter().any(done) {
                continue;
            }
            if over() {
                say("the time is over");
                print(&summary::markdown(&lines));
                return Ok(());
            }
            let seed = seed(options.seed, kind as u64, number);
            let turn = Turn { kind, number, seed, budget: options.budget_each, baseline_us };
            match bench.run(turn) {
                Ok(found) => {
                    failures = 0;
                    line::append(out, &found)?;
                    let minutes = begun.elapsed().as_secs() / 60;
                    say(&format!(
                        "{minutes} min, {} {number}: {}",
                        kind.name(),
                        summary::campaign(&found)
                    ));
                    lines.extend(found);
                }
                Err(error) => {
                    failures += 1;
                    say(&format!("{} {number} failed: {error:#}", kind.name()));
                    if failures >= FAILURES_MAX {
                        bail!(
                            "{failures} campaigns failed one after the other; what was measured is in {}",
                            out.display()
                        );
                    }
                }
            }
        }
    }
    print(&summary::markdown(&lines));
    Ok(())
}

/// How often the kind at a place stands in the list, and how often before that place.
fn alike(kinds: &[studies::Kind], place: usize) -> (u32, u32) {
    let kind = kinds[place];
    let of = |part: &[studies::Kind]| {
        u32::try_from(part.iter().filter(|other| **other == kind).count()).unwrap_or(u32::MAX)
    };
    (of(kinds), of(&kinds[..place]))
}

/// A seed of 62 bits for each campaign, the same again for the same base.
fn seed(base: u64, kind: u64, number: u32) -> u64 {
    // SplitMix64's increment spreads neighbouring numbers.
    let mixed = (base ^ kind << 40 ^ u64::from(number) << 8).wrapping_mul(0x9E37_79B9_7F4A_7C15);
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

#[expect(clippy::print_stderr, reason = "progress of a chore")]
fn say(line: &str) {
    eprintln!("{line}");
}

#[expect(clippy::print_stdout, reason = "the result of a chore")]
fn print(text: &str) {
    println!("{text}");
}
