//! `cargo bench -p tare --bench load -- [SECONDS] [ROUNDS] [cassandra-stress=SCRIPT] [latte=PROGRAM]`
//!
//! CPU time that the client itself needs per operation of 300 bytes, 64 requests in flight, over 64
//! connections and over 2, writes and reads, against one `tare db` on another CPU. Where they are
//! named, cassandra-stress (a script or program that takes its arguments) and latte (with its own
//! key-only workload from $LATTE_WORKLOAD) load the same server in the same rounds. Prints every run.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "database/server.rs"]
#[allow(dead_code, reason = "this bench uses a part of it")]
mod server;

use std::process::{Command, Stdio};

use server::{Server, cpus, figure, scratch};
use tare_lab::stats;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROWS: u64 = 100_000;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let mut numbers = words.iter().filter_map(|word| word.parse::<u64>().ok());
    let Some(seconds) = numbers.next() else {
        println!("skipped: load: name the seconds of a run, such as 5");
        return Ok(());
    };
    let rounds = numbers.next().unwrap_or(5);
    let named =
        |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let others: Vec<(&str, &str)> = ["cassandra-stress", "latte"]
        .into_iter()
        .filter_map(|name| Some((name, named(name)?)))
        .collect();
    let (server_cpu, client_cpu) = cpus()?;
    let scratch = scratch()?;
    let data = scratch.path().join("data");
    let words = ["--smp", "1", "--overprovisioned", "yes", "--durability", "periodic"];
    let server = Server::start(&data, &server_cpu.to_string(), &words)?;
    server.populate(client_cpu, ROWS)?;
    println!("{:>5}  {:<18}{:<7}{:>12}{:>18}", "round", "client", "what", "op/s", "client µs/op");
    let mut runs: Vec<(String, f64)> = Vec::new();
    for round in 0..rounds {
        for operation in ["write", "read"] {
            for connections in ["64", "2"] {
                let name = format!("tare load {connections}x{}", 64 / connections.parse::<u32>()?);
                let duration = format!("{seconds}s");
                let mut load = server.load(
                    client_cpu,
                    ROWS,
                    &["--operation", operation, "--connections", connections, "--in-flight", "64"],
                );
                let output = load.args(["--duration", &duration, "--keys", "uniform"]).output()?;
                let per_s = figure(&output.stdout, "throughput_per_s")?;
                let us = figure(&output.stdout, "client_cpu_us_per_operation")?;
                println!("{round:>5}  {name:<18}{operation:<7}{per_s:>12.0}{us:>18.2}");
                runs.push((format!("{name} {operation}"), us));
            }
            for &(name, program) in &others {
                let operations = seconds * 20_000;
                let us = foreign(name, program, operation, operations, server.port, client_cpu)?;
                println!("{round:>5}  {name:<18}{operation:<7}{:>12}{us:>18.2}", "");
                runs.push((format!("{name} {operation}"), us));
            }
        }
    }
    let mut names: Vec<&String> = runs.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let us = runs.iter().filter(|(other, _)| other == name).map(|(_, us)| us.ln());
        let Some(mean) = stats::estimate(&us.collect::<Vec<_>>()) else { continue };
        let mean = mean.map(f64::exp);
        println!(
            "{name:<26} {:.2} [{:.2}, {:.2}] µs/op, n = {}",
            mean.centre, mean.low, mean.high, mean.blocks
        );
    }
    server.stop()
}

/// Runs somebody else's tool for this many operations; returns its CPU time per operation in µs, its
/// start included.
fn foreign(
    name: &str,
    program: &str,
    operation: &str,
    operations: u64,
    port: u16,
    cpu: u32,
) -> Result<f64> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cpu.to_string(), program]);
    let count = operations.to_string();
    match name {
        "latte" => {
            let workload = std::env::var("LATTE_WORKLOAD")?;
            command.args(["run", &workload, "-d", &count, "-t", "1", "-p", "64", "-q"]);
            command.arg(format!("127.0.0.1:{port}"));
        }
        _ => {
            let columns = ["-col", "n=FIXED(5)", "size=FIXED(60)"];
            command.args([operation, &format!("n={count}"), "no-warmup"]).args(columns);
            command.args(["-rate", "threads=64", "-node", "127.0.0.1", "-port"]);
            command.arg(format!("native={port}"));
        }
    }
    let before = children_cpu_us();
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if !status.success() {
        return Err(format!("{name} ended with {status}").into());
    }
    Ok((children_cpu_us() - before) / operations as f64)
}

/// CPU time of this process's ended children, in µs (`/proc/self/stat`, fields 16 and 17, ticks of
/// 10 ms).
fn children_cpu_us() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = text.rsplit(')').next().unwrap_or_default();
    let ticks =
        rest.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() * 10_000.0
}
