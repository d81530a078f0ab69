//! `cargo bench -p tare --bench neighbour_cost [-- ROUNDS]`
//!
//! Puts neighbours with a known demand on the CPU of a saturated database, and compares the
//! throughput that a study finds lost with what arithmetic says: a share that is less than half is
//! given in full, a worker that wants all of the CPU gets half, and beside a system with three
//! times the weight a quarter. Prints the share that arithmetic gives, the share of the CPU that
//! the neighbour got, and the loss with its interval. Needs root, stress-ng and nftables, and a
//! CPU for the system alone.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::error::Error;

use tare_host::exec;

#[path = "tiny/study.rs"]
mod study;
mod tiny;

use study::{counter_per_s, finding, number, weigh};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The name of an environment, the share of the CPU that arithmetic gives to its neighbour, the
/// neighbour's keys, and further keys of the environment.
const CASES: [(&str, f64, &str, &str); 4] = [
    ("10 % of a CPU", 0.10, "load = 0.1", ""),
    ("25 % of a CPU", 0.25, "load = 0.25", ""),
    ("all, same weight", 0.50, "load = 1", ""),
    ("all, a third of the weight", 0.25, "load = 1", "limits = { cpu_weight = 300 }"),
];

fn text(rounds: u32, tiny: bool) -> String {
    let (window, lead_in) = if tiny { ("400ms", "20ms") } else { ("500ms", "100ms") };
    let mut text = format!(
        "name = \"neighbour cost\"\nbaseline = \"alone\"\n\
         [system]\nname = \"tare-db\"\nmemory = \"256M\"\noverprovisioned = \"yes\"\n[cpus]\nsystem = 1\n\
         [schedule]\nwindow = \"{window}\"\nlead_in = \"{lead_in}\"\nrounds = {rounds}\n\
         rounds_min = {rounds}\nbudget = \"20m\"\n\
         [[environment]]\nname = \"alone\"\nruntime = \"process\"\nnetwork = \"host\"\n\
         cpu = \"pinned\"\ncgroup = \"own\"\n\
         [[workload]]\nname = \"write\"\nrows = 1000\nlatency_share = 0\n"
    );
    for (name, _, keys, more) in CASES {
        text += &format!(
            "[[neighbour]]\nname = \"{name}\"\nkind = \"cpu\"\nworkers = 1\n{keys}\n\
             [[environment]]\nname = \"{name}\"\nextends = \"alone\"\nneighbours = [\"{name}\"]\n{more}\n"
        );
    }
    text
}

fn main() -> Result<()> {
    let (words, tiny) = tiny::words();
    let named = words.iter().find_map(|word| word.parse().ok());
    let rounds: u32 = named.unwrap_or(if tiny { 2 } else { 30 });
    let missing = ["stress-ng", "nft"].into_iter().find(|name| exec::find(name).is_none());
    let why = match missing {
        _ if !rustix::process::geteuid().is_root() => Some("needs root".to_string()),
        Some(program) => Some(format!("needs {program} on the PATH")),
        None => None,
    };
    if let Some(why) = why {
        println!("skipped: neighbour_cost: {why}");
        return Ok(());
    }
    let here = tempfile::tempdir()?;
    let report = weigh(here.path(), "neighbour", &text(rounds, tiny))?;
    println!(
        "{:<28}{:>11}{:>11}{:>29}",
        "neighbour", "expected %", "it got %", "throughput lost % [95 %]"
    );
    for (name, expected, ..) in CASES {
        let cost = &finding(&report, name)?["throughput_cost"]["percent"];
        let at = |key: &str| number(&cost[key], key).ok();
        // Without a valid slice there is neither.
        let lost = match (at("value"), at("low"), at("high")) {
            (Some(lost), Some(low), Some(high)) => format!("{lost:.1} [{low:.1}, {high:.1}]"),
            _ => "-".into(),
        };
        let got = counter_per_s(&report, name, "neighbour_cpu_ns").ok();
        let got = got.map_or("-".into(), |ns| format!("{:.1}", ns / 1e7));
        println!("{name:<28}{:>11.1}{got:>11}{lost:>29}", 100.0 * expected);
    }
    Ok(())
}
