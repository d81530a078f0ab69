//! `cargo bench -p tare --bench environments [-- ROUNDS]`
//!
//! Measures the time until a system in an environment answers, and the time to tear the environment
//! down: a study with the schedule "trials", which starts every environment again in each round.
//! Prints every start, then medians. Needs root, runc and nftables.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::collections::BTreeMap;
use std::error::Error;
use std::process::{Command, Stdio};

mod tiny;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const STUDY: &str = r#"name = "environments"
baseline = "process"
[system]
name = "tare-db"
[schedule]
kind = "trials"
window = "50ms"
lead_in = "10ms"
rounds = 1
budget = "10m"
[[environment]]
name = "process"
runtime = "process"
network = "host"
cpu = "pinned"
security = "none"
cgroup = "none"
[[environment]]
name = "runc, host network"
runtime = "oci:runc"
network = "host"
cpu = "pinned"
security = "default"
cgroup = "own"
[[environment]]
name = "runc, bridge"
extends = "runc, host network"
network = "bridge"
[[environment]]
name = "runc, bridge and proxy"
extends = "runc, host network"
network = "bridge+proxy"
[[environment]]
name = "crun, bridge"
extends = "runc, bridge"
runtime = "oci:crun"
optional = true
[[environment]]
name = "docker, bridge"
extends = "runc, bridge"
runtime = "docker"
optional = true
[[workload]]
name = "write"
rows = 100
latency_share = 0.0
"#;

fn main() -> Result<()> {
    let (words, tiny) = tiny::words();
    let named = words.iter().find_map(|word| word.parse().ok());
    let rounds: u32 = named.unwrap_or(if tiny { 1 } else { 10 });
    if !rustix::process::geteuid().is_root() {
        println!("skipped: environments: needs root");
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    std::fs::write(scratch.path().join("s.toml"), STUDY)?;
    let mut times: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    println!("{:>5}  {:<26}{:>10}{:>13}", "round", "environment", "ready ms", "teardown ms");
    for round in 0..rounds {
        let record = format!("{round}.tare");
        let output = Command::new(env!("CARGO_BIN_EXE_tare"))
            .args(["weigh", "s.toml", "--json", "-o", &record, "--state"])
            .arg(scratch.path().join("state"))
            .current_dir(scratch.path())
            .env("TARE_DATA_CACHE", "off")
            .stderr(Stdio::inherit())
            .output()?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let environments =
            report["environments"].as_array().ok_or("no environments in the report")?;
        for environment in environments {
            let name = environment["name"].as_str().ok_or("an environment without a name")?;
            let ms = |field: &str| environment[field].as_f64().map(|ns| ns / 1e6);
            if let (Some(ready), Some(teardown)) = (ms("ready_ns"), ms("teardown_ns")) {
                println!("{round:>5}  {name:<26}{ready:>10.1}{teardown:>13.1}");
                times.entry(name.to_string()).or_default().push((ready, teardown));
            }
        }
    }
    println!(
        "\n{:<26}{:>10}{:>13}   (median of {rounds})",
        "environment", "ready ms", "teardown ms"
    );
    for (name, times) in times {
        let median = |figure: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = times.iter().map(figure).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        println!("{name:<26}{:>10.1}{:>13.1}", median(|t| t.0), median(|t| t.1));
    }
    Ok(())
}
