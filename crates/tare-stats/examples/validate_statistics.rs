//! Prints the coverage and width of the intervals on simulated campaigns with a known truth, for
//! the table in docs/concepts/cost.md. Run
//! `cargo run --release --package tare-stats --example validate_statistics`.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use std::time::Instant;

use tare_stats::methods::Method;
use tare_stats::validation::{NoiseModel, Outcome, simulate, simulate_early_stop, simulate_family};

const CAMPAIGNS: usize = 10_000;
const SEED: u64 = 42;
const ROUNDS: [usize; 5] = [3, 5, 10, 40, 100];

fn main() {
    let started = Instant::now();
    let mut outcomes: Vec<(NoiseModel, usize, Outcome)> = Vec::new();
    for noise in NoiseModel::ALL {
        for rounds in ROUNDS {
            let simulated = simulate(noise, rounds, CAMPAIGNS, SEED, &Method::ALL);
            outcomes.extend(simulated.into_iter().map(|outcome| (noise, rounds, outcome)));
        }
    }
    println!("{CAMPAIGNS} campaigns for each line; chance moves a coverage of 95 % by 0.2 points");
    println!();
    print_short(&outcomes);
    println!();
    print_whole(&outcomes);
    println!();
    println!("stopped as soon as the interval is narrower than requested, at most 60 rounds:");
    for noise in [NoiseModel::Normal, NoiseModel::HeavyTails] {
        for (asked, least) in [(4.0, 5), (6.0, 5), (4.0, 10), (6.0, 10), (4.0, 20)] {
            let bounds = (least, 60);
            let (coverage, rounds) = simulate_early_stop(noise, bounds, asked, CAMPAIGNS, SEED);
            println!(
                "{}, {asked} points, at least {least} rounds: coverage {:.1} % after {rounds:.1} \
                 rounds on average",
                noise.name(),
                100.0 * coverage
            );
        }
    }
    println!();
    println!("at least one false alarm among environments with a common baseline, 10 rounds:");
    for environments in [1, 2, 4, 6, 10] {
        let alarms = simulate_family(environments, 10, CAMPAIGNS, SEED);
        println!("{environments}: {:.1} %", 100.0 * alarms);
    }
    println!();
    println!("took {:.1} s", started.elapsed().as_secs_f64());
}

/// Prints coverage and median width, with one column per number of rounds.
fn print_short(outcomes: &[(NoiseModel, usize, Outcome)]) {
    println!("| noise | method | 3 rounds | 5 rounds | 10 rounds | 40 rounds | 100 rounds |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    for noise in NoiseModel::ALL {
        for method in Method::ALL {
            let wanted = outcomes.iter().filter(|(n, _, o)| *n == noise && o.method == method);
            let cells = wanted.map(|(_, _, outcome)| {
                let width = width(outcome.width_median_percent);
                match width.as_str() {
                    "none" => "no interval".to_string(),
                    _ => format!("{:.1} % ({width})", 100.0 * outcome.coverage),
                }
            });
            let cells: Vec<String> = cells.collect();
            println!("| {} | {} | {} |", noise.name(), method.name(), cells.join(" | "));
        }
    }
}

/// Prints all results.
fn print_whole(outcomes: &[(NoiseModel, usize, Outcome)]) {
    println!(
        "| noise | rounds | method | coverage % | false alarms % | mean width | median width | \
         finds 3 % |"
    );
    println!("|---|---:|---|---:|---:|---:|---:|---:|");
    for (noise, rounds, outcome) in outcomes {
        println!(
            "| {} | {rounds} | {} | {:.1} | {:.1} | {} | {} | {:.1} |",
            noise.name(),
            outcome.method.name(),
            100.0 * outcome.coverage,
            100.0 * outcome.false_alarms,
            width(outcome.width_mean_percent),
            width(outcome.width_median_percent),
            100.0 * outcome.found,
        );
    }
}

/// Formats a width in percentage points.
fn width(percent: f64) -> String {
    match percent {
        _ if percent.is_infinite() => "none".to_string(),
        _ if percent >= 1000.0 => "> 1000".to_string(),
        _ => format!("{percent:.1}"),
    }
}
