//! `cargo xtask sim [--seed S [--lines L] | --seeds N] [--first S] [--steps K] [--only WHAT]`:
//! simulates one seed and prints its events, or simulates many seeds on all CPUs and prints those
//! that failed. Each seed is simulated over the stores and over a whole server.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::{Command, ExitCode};

use tare_sim::{Coverage, Failure, Options, Violation, each_seed, run, run_node};

/// The default number of seeds.
const SEEDS: u64 = 1000;
/// The default number of events before a failure that are printed.
const LINES: usize = 40;
/// The most failures that are printed in full.
const PRINTED_MAX: usize = 3;

const USAGE: &str = "usage: cargo xtask sim [--seed S [--lines L] | --seeds N [--first S]] \
                     [--steps K] [--only stores | server]";

/// What the command line asks for.
struct Asked {
    seed: Option<u64>,
    first: u64,
    seeds: u64,
    steps: Option<u64>,
    lines: usize,
    stores: bool,
    server: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = parse(&arguments).and_then(|asked| match asked.seed {
        Some(seed) => one(seed, &asked),
        None => many(&asked),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print(&format!("Error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Asked, String> {
    let mut asked = Asked {
        seed: None,
        first: 0,
        seeds: SEEDS,
        steps: None,
        lines: LINES,
        stores: true,
        server: true,
    };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err(format!("{} needs a value", pair[0])) };
        if name == "--only" {
            (asked.stores, asked.server) = match value.as_str() {
                "stores" => (true, false),
                "server" => (false, true),
                _ => return Err(USAGE.into()),
            };
            continue;
        }
        let number: u64 = value.parse().map_err(|_| format!("{value:?} is no number"))?;
        match name.as_str() {
            "--seed" => asked.seed = Some(number),
            "--first" => asked.first = number,
            "--seeds" => asked.seeds = number,
            "--steps" => asked.steps = Some(number),
            "--lines" => asked.lines = usize::try_from(number).unwrap_or(usize::MAX),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(asked)
}

impl Asked {
    /// The options of a simulation, which by itself has these.
    fn options(&self, of: Options, lines: usize) -> Options {
        Options { lines, steps: self.steps.unwrap_or(of.steps), ..of }
    }
}

/// Simulates a seed twice, and prints its last events if it fails.
fn one(seed: u64, asked: &Asked) -> Result<(), String> {
    if asked.stores {
        let options = asked.options(Options::default(), asked.lines);
        let outcome = twice(|| run(seed, &options), |outcome| outcome.hash)?;
        print(&format!(
            "seed {seed}, stores: {} events, {} restarts, hash {:016x}: nothing wrong",
            outcome.events, outcome.restarts, outcome.hash
        ));
    }
    if asked.server {
        let options = asked.options(Options::for_server(), asked.lines);
        let outcome = twice(|| run_node(seed, &options), |outcome| outcome.hash)?;
        print(&format!(
            "seed {seed}, server: {} events, hash {:016x}: nothing wrong; {}",
            outcome.events, outcome.hash, outcome.coverage
        ));
    }
    Ok(())
}

fn twice<T>(
    life: impl Fn() -> Result<T, Box<Failure>>,
    hash: impl Fn(&T) -> u64,
) -> Result<T, String> {
    let failed = |failure: Box<Failure>| format!("{failure}\ncommit {}", commit());
    let (first, second) = (life().map_err(failed)?, life().map_err(failed)?);
    match (hash(&first), hash(&second)) {
        (first, second) if first != second => {
            Err(Violation::NotDeterministic { first, second }.to_string())
        }
        _ => Ok(second),
    }
}

fn many(asked: &Asked) -> Result<(), String> {
    let mut failures = Vec::new();
    let seeds = format!("seeds {} to {}", asked.first, (asked.first + asked.seeds).max(1) - 1);
    if asked.stores {
        let options = asked.options(Options::default(), 0);
        let (mut events, mut restarts) = (0, 0);
        for life in each_seed(asked.seeds, |seed| run(asked.first + seed, &options)) {
            match life {
                Ok(outcome) => {
                    events += outcome.events;
                    restarts += outcome.restarts;
                }
                Err(failure) => failures.push(failure),
            }
        }
        print(&format!("{seeds}, stores: {restarts} restarts, {events} events"));
    }
    if asked.server {
        let options = asked.options(Options::for_server(), 0);
        let (mut events, mut coverage) = (0, Coverage::default());
        for life in each_seed(asked.seeds, |seed| run_node(asked.first + seed, &options)) {
            match life {
                Ok(outcome) => {
                    events += outcome.events;
                    coverage.add(&outcome.coverage);
                }
                Err(failure) => failures.push(failure),
            }
        }
        print(&format!("{seeds}, server: {events} events; {coverage}"));
    }
    if failures.is_empty() {
        return Ok(());
    }
    failures.iter().take(PRINTED_MAX).for_each(|failure| print(&failure.to_string()));
    let numbers: Vec<String> = failures.iter().map(|failure| failure.seed.to_string()).collect();
    Err(format!("{} runs failed: {}; commit {}", failures.len(), numbers.join(", "), commit()))
}

/// The commit of the working tree, or `unknown` without git.
fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_string()
        }
        _ => "unknown".into(),
    }
}

/// Prints a line. The reader may have gone.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
