//! `cargo bench -p tare --bench load -- SECONDS [ROUNDS] [rust-driver=PROGRAM] [TOOL=...]`
//!
//! Measures the CPU time that the client needs per operation of 300 bytes, 64 requests in flight,
//! over 64 connections and over 2, writes and reads, against one `tare db` on another CPU. In the
//! same rounds, on the same CPUs and against the same server, it also measures the bare Rust driver
//! (`rust-driver`, built from tests/drivers/rust-scylla/examples/bare.rs) and third-party tools
//! (see `tools`).
//!
//! `tare load` has two figures: its threads in the window, as it prints them, and its whole process
//! from start to end. The figure of a tool is its process between the start and end of the window,
//! after a lead-in (in which Java compiles a tool's code); that of the bare driver is the
//! additional CPU time of 3 N operations over N. All are marginal. Ratios are relative to the whole
//! process of `tare load`, the worse of its figures. Prints every run.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

mod cpu_time;
#[path = "database/server.rs"]
#[allow(dead_code, reason = "this bench uses a part of it")]
mod server;
mod tiny;
mod tools;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use server::{Server, cpus, figure, printed, scratch};
use tare_lab::driver::Pacing;
use tare_stats as stats;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Operations of the bare driver for each second of a run; it does about this many per second.
const DRIVER_PER_S: u64 = 20_000;

/// One run of a client.
struct Run {
    round: u64,
    client: String,
    operation: &'static str,
    us: f64,
}

fn main() -> Result<()> {
    let (words, tiny) = tiny::words();
    let mut numbers = words.iter().filter_map(|word| word.parse::<u64>().ok());
    let Some(seconds) = numbers.next().or(tiny.then_some(1)) else {
        println!("skipped: load: name the seconds of a run, such as 5");
        return Ok(());
    };
    let rounds = numbers.next().unwrap_or(if tiny { 1 } else { 5 });
    let (server_cpu, client_cpu) = cpus()?;
    let scratch = scratch()?;
    let data = scratch.path().join("data");
    let more = ["--smp", "1", "--overprovisioned", "yes", "--durability", "periodic"];
    let server = Server::start(&data, &server_cpu.to_string(), &more)?;
    server.populate(client_cpu, tools::ROWS)?;
    let driver = words.iter().find_map(|word| word.strip_prefix("rust-driver="));
    if driver.is_none() {
        println!("skipped: rust-driver: not found; pass rust-driver=...");
    }
    let mut others = tools::all(&words, client_cpu, server.port, &scratch.path().join("tools"))?;
    println!("{:>5}  {:<24}{:<7}{:>12}{:>14}", "round", "client", "what", "op/s", "CPU µs/op");
    let mut runs: Vec<Run> = Vec::new();
    let mut note = |round, client: &str, operation, per_s: f64, us: f64| {
        println!("{round:>5}  {client:<24}{operation:<7}{per_s:>12.0}{us:>14.2}");
        runs.push(Run { round, client: client.into(), operation, us });
    };
    for round in 0..rounds {
        for operation in ["write", "read"] {
            for connections in [64, 2] {
                let [threads, whole] = ours(&server, client_cpu, seconds, operation, connections)?;
                let name = format!("tare load {connections}x{}", 64 / connections);
                note(round, &format!("{name}, threads"), operation, threads.0, threads.1);
                note(round, &name, operation, whole.0, whole.1);
            }
            if let Some(program) = driver {
                let count = seconds * DRIVER_PER_S;
                let run = |count| bare(program, operation, count, server.port, client_cpu);
                let ((long_s, long_us), (short_s, short_us)) = (run(3 * count)?, run(count)?);
                let operations = (2 * count) as f64;
                let (per_s, us) =
                    (operations / (long_s - short_s), (long_us - short_us) / operations);
                note(round, "rust driver", operation, per_s, us);
            }
            for tool in &mut others {
                let window = Duration::from_secs(seconds);
                match tool.run(operation, Pacing::Closed, window, &mut || ()) {
                    Err(error) => println!("{}: failed: {error}", tool.name),
                    Ok(load) => {
                        let per_s = load.operations as f64 / (load.window_ns as f64 / 1e9);
                        let us = load.client_cpu_ns as f64 / 1e3 / load.operations as f64;
                        note(round, tool.name, operation, per_s, us);
                    }
                }
            }
        }
    }
    println!();
    summary(&runs);
    server.stop()
}

/// Prints means and, for other clients, the ratio to `tare load`.
fn summary(runs: &[Run]) {
    for operation in ["write", "read"] {
        let of = |client: &str| -> Vec<(u64, f64)> {
            let its = runs.iter().filter(|run| run.client == client && run.operation == operation);
            its.map(|run| (run.round, run.us)).collect()
        };
        let mut clients: Vec<&str> = runs.iter().map(|run| run.client.as_str()).collect();
        clients.sort_unstable();
        clients.dedup();
        for client in clients {
            let logs: Vec<f64> = of(client).iter().map(|(_, us)| us.ln()).collect();
            let Some(mean) = stats::estimate(&logs).map(|mean| mean.map(f64::exp)) else {
                continue;
            };
            println!(
                "{operation:<6}{client:<24} {:.2} [{:.2}, {:.2}] µs/op, n = {}",
                mean.centre, mean.low, mean.high, mean.rounds
            );
            for reference in ["tare load 64x1", "tare load 2x32"] {
                if client.starts_with("tare load") {
                    continue;
                }
                let mine = of(reference);
                let pairs = of(client).into_iter().filter_map(|(round, us)| {
                    let (_, reference_us) = mine.iter().find(|(other, _)| *other == round)?;
                    Some((us, *reference_us))
                });
                let ratio = stats::estimate(&stats::log_ratios(pairs));
                if let Some(ratio) = ratio.map(|ratio| ratio.map(f64::exp)) {
                    println!(
                        "        {:.2} [{:.2}, {:.2}] times {reference}",
                        ratio.centre, ratio.low, ratio.high
                    );
                }
            }
        }
    }
}

/// Returns operations/s and CPU time per operation of `tare load`: of its threads in the window,
/// and of its process from start to end.
fn ours(
    server: &Server,
    cpu: u32,
    seconds: u64,
    operation: &str,
    connections: u32,
) -> Result<[(f64, f64); 2]> {
    let connections = connections.to_string();
    let duration = format!("{seconds}s");
    let words = ["--operation", operation, "--connections", &connections, "--in-flight", "64"];
    let mut load = server.load(cpu, tools::ROWS, &words);
    let before = cpu_time::of_children_us();
    // Without a lead-in every operation is in the window.
    let words = ["--duration", &duration, "--keys", "uniform", "--lead-in", "0s"];
    let output = printed(load.args(words))?;
    let process_us = cpu_time::of_children_us() - before;
    let per_s = figure(&output, "throughput_per_s")?;
    let threads_us = figure(&output, "client_cpu_us_per_operation")?;
    let operations = figure(&output, "operations")?;
    Ok([(per_s, threads_us), (per_s, process_us / operations)])
}

/// Returns the time in s and the CPU time in µs of the bare driver for `count` operations, its
/// start included.
fn bare(program: &str, operation: &str, count: u64, port: u16, cpu: u32) -> Result<(f64, f64)> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cpu.to_string(), program]);
    command.args([&format!("127.0.0.1:{port}"), operation, &count.to_string()]);
    let (began, before) = (Instant::now(), cpu_time::of_children_us());
    let output = command.stderr(Stdio::inherit()).output()?;
    let took_s = began.elapsed().as_secs_f64();
    let done: u64 = String::from_utf8(output.stdout)?.trim().parse().unwrap_or_default();
    if !output.status.success() || done != count {
        return Err(format!("{program} did {done} operations of {count}").into());
    }
    Ok((took_s, cpu_time::of_children_us() - before))
}
