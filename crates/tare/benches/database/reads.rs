//! Random reads of data ten times as large as the memory, beside fio's from the same file system: one file of
//! the same size, direct I/O, blocks of 4 KiB, the same number under way, the server's CPU.

use std::path::Path;
use std::process::{Command, Stdio};

use tare_lab::stats;
use tare_std::rng::Rng;

use crate::server::{ROW_BYTES, Server, cpus, figure, scratch};
use crate::{Result, median};

const IN_FLIGHT: &str = "32";
const ROUNDS: usize = 10;

pub(crate) fn run(size_mib: u64, seconds: u64) -> Result<()> {
    if tare_host::exec::find("fio").is_none() {
        println!("skipped: reads: needs fio on the PATH");
        return Ok(());
    }
    let (server_cpu, client_cpu) = cpus()?;
    let scratch = scratch()?;
    let memory = (size_mib / 10).max(64);
    let rows = (size_mib << 20) / ROW_BYTES;
    let data = scratch.path().join("data");
    let memory = format!("{memory}M");
    let server = Server::start(&data, &server_cpu.to_string(), &["--memory", &memory])?;
    println!("{rows} rows of {ROW_BYTES} B, --memory {memory}, {IN_FLIGHT} in flight");
    server.populate(client_cpu, rows)?;
    let file = scratch.path().join("fio");
    fio(&file, size_mib, server_cpu, seconds)?;
    println!("{:>5}  {:<6}{:>12}{:>20}", "round", "who", "reads/s", "blocks read per op");
    let mut rng = Rng::new(1);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut order = [false, true];
        rng.shuffle(&mut order);
        for is_fio in order {
            if is_fio {
                let per_s = fio(&file, size_mib, server_cpu, seconds)?;
                println!("{round:>5}  {:<6}{per_s:>12.0}", "fio");
                theirs.push(per_s);
                continue;
            }
            let before = server.metrics()?;
            let duration = format!("{seconds}s");
            let words = ["--operation", "read", "--keys", "uniform", "--in-flight", IN_FLIGHT];
            let mut load = server.load(client_cpu, rows, &words);
            let output = load.args(["--duration", &duration, "--lead-in", "500ms"]).output()?;
            let per_s = figure(&output.stdout, "throughput_per_s")?;
            let after = server.metrics()?;
            let reads = (after.reads - before.reads).max(1);
            let blocks = (after.file_operations - before.file_operations) as f64 / reads as f64;
            println!("{round:>5}  {:<6}{per_s:>12.0}{blocks:>20.2}", "tare");
            ours.push(per_s);
        }
    }
    let ratio =
        stats::estimate(&stats::log_ratios(ours.iter().copied().zip(theirs.iter().copied())))
            .map(|estimate| estimate.map(f64::exp))
            .ok_or("too few rounds")?;
    println!(
        "median: tare {:.0}/s, fio {:.0}/s; tare over fio {:.3} [{:.3}, {:.3}], n = {}",
        median(ours),
        median(theirs),
        ratio.centre,
        ratio.low,
        ratio.high,
        ratio.blocks
    );
    println!("resident set: {} MiB", server.resident_bytes()? >> 20);
    Ok(())
}

/// Reads per second.
fn fio(file: &Path, size_mib: u64, cpu: u32, seconds: u64) -> Result<f64> {
    let output = Command::new("taskset")
        .args(["-c", &cpu.to_string(), "fio", "--name=reads", "--rw=randread", "--bs=4k"])
        .args(["--direct=1", "--ioengine=io_uring", "--time_based", "--output-format=json"])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={size_mib}M"))
        .arg(format!("--iodepth={IN_FLIGHT}"))
        .arg(format!("--runtime={seconds}"))
        .stderr(Stdio::null())
        .output()?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    report["jobs"][0]["read"]["iops"].as_f64().ok_or_else(|| "fio printed no IOPS".into())
}
