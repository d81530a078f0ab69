//! `cargo bench -p tare --bench disk_against_fio [-- DIRECTORY [ROUNDS]]`
//!
//! Whether `tare disk` and fio find the same disk: in each round both measure the four loads on files of
//! the same size in the same directory, fio at the depth that `tare disk` found in the first round, the
//! two in alternating order. Prints the ratio of the rates, tare over fio, with its 95 % interval.
//! Needs fio; takes about 25 s a round.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::error::Error;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tare_lab::stats::estimate;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const LOADS: [(&str, &str, &str); 4] = [
    ("sequential read", "read", "1m"),
    ("sequential write", "write", "1m"),
    ("random read", "randread", "4k"),
    ("random write", "randwrite", "4k"),
];
const SIZE: &str = "1G";

fn main() -> Result<()> {
    // Cargo adds `--bench`; as a test it would run this for nothing.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let directory = arguments.first().map_or("/var/tmp", String::as_str);
    let rounds: usize = arguments.get(1).map_or(Ok(5), |text| text.parse())?;
    let here = tempfile::tempdir_in(directory)?;
    let mut depths = [0; LOADS.len()];
    let mut logs: [Vec<f64>; LOADS.len()] = Default::default();
    for round in 0..rounds {
        let (ours, theirs) = if round % 2 == 0 {
            let ours = tare(here.path(), &mut depths)?;
            (ours, fio(here.path(), &depths)?)
        } else {
            let theirs = fio(here.path(), &depths)?;
            (tare(here.path(), &mut depths)?, theirs)
        };
        for (index, (name, _, _)) in LOADS.iter().enumerate() {
            let ratio = ours[index] / theirs[index];
            logs[index].push(ratio.ln());
            println!(
                "round {}: {name}, depth {}: tare {:.0}/s, fio {:.0}/s, ratio {ratio:.3}",
                round + 1,
                depths[index],
                ours[index],
                theirs[index],
            );
        }
    }
    for ((name, _, _), logs) in LOADS.iter().zip(&logs) {
        if let Some(found) = estimate(logs).map(|found| found.map(f64::exp)) {
            println!(
                "{name}: tare / fio = {:.3} [{:.3}, {:.3}], n = {}",
                found.centre, found.low, found.high, found.blocks
            );
        }
    }
    Ok(())
}

/// Operations per second of the four loads, and at first the depths.
fn tare(directory: &Path, depths: &mut [u64; LOADS.len()]) -> Result<Vec<f64>> {
    let output = Command::new(env!("CARGO_BIN_EXE_tare"))
        .arg("disk")
        .arg(directory)
        .args(["--json", "--budget", "12s", "--size", SIZE, "--state"])
        .arg(directory.join("state"))
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let mut rates = Vec::new();
    for (index, (name, _, _)) in LOADS.iter().enumerate() {
        let loads = report["loads"].as_array().ok_or("no loads")?;
        let load = loads.iter().find(|load| load["load"] == *name).ok_or("a load is missing")?;
        if depths[index] == 0 {
            depths[index] = load["saturation_depth"].as_u64().ok_or("no depth")?;
        }
        rates.push(load["operations_per_s"]["value"].as_f64().ok_or("no rate")?);
    }
    Ok(rates)
}

/// The same loads by fio, which fills its buffers with random bytes and scrambles them for each write.
/// Its file is written in full before, past the page cache, as ours is.
fn fio(directory: &Path, depths: &[u64; LOADS.len()]) -> Result<Vec<f64>> {
    let file = directory.join("fio");
    if !file.exists() {
        let made = Command::new("fio")
            .args(["--name=x", "--direct=1", "--rw=write", "--bs=1m", "--end_fsync=1"])
            .args([format!("--filename={}", file.display()), format!("--size={SIZE}")])
            .output()
            .map_err(|error| format!("cannot run fio (apt-get install fio): {error}"))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into());
        }
    }
    let mut rates = Vec::new();
    for ((_, pattern, block), depth) in LOADS.iter().zip(depths) {
        let output = Command::new("fio")
            .args(["--name=x", "--ioengine=io_uring", "--direct=1", "--time_based"])
            .args(["--runtime=2", "--ramp_time=300ms", "--output-format=json"])
            .arg(format!("--filename={}", file.display()))
            .arg(format!("--size={SIZE}"))
            .arg(format!("--rw={pattern}"))
            .arg(format!("--bs={block}"))
            .arg(format!("--iodepth={depth}"))
            .output()?;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let side = if pattern.ends_with("read") { "read" } else { "write" };
        let rate = report["jobs"][0][side]["iops"].as_f64().filter(|rate| *rate > 0.0);
        rates.push(rate.ok_or("fio moved nothing")?);
    }
    Ok(rates)
}
