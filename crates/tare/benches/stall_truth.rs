//! `cargo bench -p tare --bench stall_truth -- \
//!  SECONDS [PERIOD] [connections=N] [rate=N] [TOOL=...]`
//!
//! Compares the p99.9 that `tare load` prints for a server that stops for 1 s in every PERIOD (10
//! s) at half of its capacity with the calculated one. A `tare db` is stopped and continued
//! (SIGSTOP, SIGCONT) under an open loop; the length of each stop is measured here.
//!
//! The calculation: operations are due R times a second, the server is stopped from 0 to S and then
//! serves C a second in their order. The operation due at t is served when the R t before it have
//! been, at S + R t / C, which is S - t (1 - R / C) after it was due; from t = S / (1 - R / C) on
//! nothing waits. So a stop delays R S C / (C - R) operations, and their response times are evenly
//! distributed between 0 and S. The p99.9 is the time that one in a thousand of all operations
//! exceeds. C hardly matters: at one stop of 1 s in 10 s the p99.9 is 0.990 S if C is infinite and
//! 0.995 S if it is 2 R.
//!
//! The calculation needs sockets that take all that is sent during a stop. With the default buffers
//! the kernel drops packets that do not fit and sends them again later, so the bench has a network
//! namespace of its own with larger ones (`tcp_rmem`, `tcp_wmem`). Needs root.
//!
//! Prints the stops, the calculated and the printed figures; fails above 1 %. Then the same server
//! stops under a closed loop and under third-party tools (see `tools`), each at `rate` (5,000/s),
//! which all of them can sustain, to show the figures of tools that do not count from when an
//! operation was due.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

mod own_network;
#[path = "database/server.rs"]
#[allow(dead_code, reason = "this bench uses a part of it")]
mod server;
mod tiny;
mod tools;

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use server::{Server, cpus, figure, printed, scratch};
use tare_lab::driver::Pacing;
use tare_load::histogram::{self, Histogram};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Share of the arithmetic truth that the measured p99.9 may differ by.
const TOLERANCE: f64 = 0.01;
/// Gives the sockets of the namespace room for all that is sent during a stop, from the start.
const LARGE_BUFFERS: &str = "for name in rmem wmem; do \
                             echo 4096 67108864 67108864 > /proc/sys/net/ipv4/tcp_$name; done;";
/// How long the server is stopped.
const STOP: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    let (words, tiny) = tiny::words();
    let mut numbers = words.iter().filter_map(|word| word.parse::<u64>().ok());
    let Some(seconds) = numbers.next().or(tiny.then_some(4)) else {
        println!("skipped: stall_truth: name the seconds of a run, such as 60");
        return Ok(());
    };
    if !own_network::enter("stall_truth", LARGE_BUFFERS)? {
        return Ok(());
    }
    let period = Duration::from_secs(numbers.next().unwrap_or(if tiny { 2 } else { 10 }));
    let named = |name: &str| -> Option<f64> {
        words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
    };
    let connections = named("connections").unwrap_or(8.0).to_string();
    let (server_cpu, client_cpu) = cpus()?;
    let scratch = scratch()?;
    let data = scratch.path().join("data");
    // The speed of the disk must not affect the result.
    let durability = ["--durability", "periodic"];
    let server = Server::start(&data, &server_cpu.to_string(), &durability)?;
    server.populate(client_cpu, tools::ROWS)?;
    let bench = Bench { server, client_cpu, period, length: Duration::from_secs(seconds) };

    let closed = printed(&mut bench.load(&["--connections", &connections, "--duration", "5s"]))?;
    let capacity = figure(&closed, "throughput_per_s")?;
    println!("capacity {capacity:.0} op/s (closed loop, 64 in flight, {connections} connections)");
    let half_rate = (capacity / 2.0).round();
    let common_rate = named("rate").unwrap_or(5_000.0).min(half_rate);
    let mut differences = Vec::new();
    for rate in [half_rate, common_rate] {
        let rate_text = rate.to_string();
        let (printed, stops) =
            bench.stopped(&["--connections", &connections, "--rate", &rate_text])?;
        let truth = truth(&stops, rate, capacity, rate * bench.length.as_secs_f64());
        differences.push(print_and_compare(&printed, &stops, rate, capacity, truth)?);
    }
    let (closed, _) = bench.stopped(&["--connections", &connections, "--in-flight", "64"])?;
    let p999_s = figure(&closed, "service/p999_ns")? / 1e9;
    println!("tare load, closed loop, 64 in flight: p99.9 of the service time {p999_s:.4} s");
    for mut tool in
        tools::all(&words, client_cpu, bench.server.port, &scratch.path().join("tools"))?
    {
        if let Err(error) = bench.other(&mut tool, common_rate, capacity) {
            println!("{}: failed: {error}", tool.name);
        }
    }
    let worst = differences.into_iter().fold(0.0, f64::max);
    bench.server.stop()?;
    if worst > TOLERANCE && !tiny {
        return Err(format!("a p99.9 is {:.1} % from the truth", 100.0 * worst).into());
    }
    Ok(())
}

/// Prints the result of an open loop; returns by which share its p99.9 differs from the calculated
/// one.
fn print_and_compare(
    printed: &[u8],
    stops: &[Duration],
    rate: f64,
    capacity: f64,
    truth: f64,
) -> Result<f64> {
    let seconds: Vec<String> =
        stops.iter().map(|stop| format!("{:.4}", stop.as_secs_f64())).collect();
    println!("\ntare load, open loop at {rate:.0}/s; stops in s: {}", seconds.join(" "));
    let delayed: f64 = stops.iter().map(|stop| delayed(*stop, rate, capacity)).sum();
    let operations = figure(printed, "operations")?;
    println!("delayed: sum of R S C / (C - R) = {delayed:.0} of {operations:.0} operations");
    let measured = figure(printed, "response/p999_ns")? / 1e9;
    let difference = measured / truth - 1.0;
    println!(
        "p99.9 calculated {truth:.4} s, printed {measured:.4} s, {:+.2} %",
        100.0 * difference
    );
    for name in ["response/p50_ns", "response/p99_ns", "response/max_ns", "service/p999_ns"] {
        println!("{name:<24} {:.4} s", figure(printed, name)? / 1e9);
    }
    for name in ["dropped", "late_count", "without_service/count", "without_service/total_s"] {
        println!("{name:<24} {}", figure(printed, name)?);
    }
    Ok(difference.abs())
}

/// Returns how many operations a stop delays.
fn delayed(stop: Duration, rate: f64, capacity: f64) -> f64 {
    rate * stop.as_secs_f64() * capacity / (capacity - rate)
}

/// Returns the response time in s that one in a thousand of `operations` exceeds, by bisection.
fn truth(stops: &[Duration], rate: f64, capacity: f64, operations: f64) -> f64 {
    let above = |limit_s: f64| -> f64 {
        let share = |stop: &Duration| (1.0 - limit_s / stop.as_secs_f64()).max(0.0);
        stops.iter().map(|stop| delayed(*stop, rate, capacity) * share(stop)).sum()
    };
    let (mut low, mut high) = (0.0, 3_600.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if above(middle) > operations / 1_000.0 { low = middle } else { high = middle }
    }
    low
}

/// A server that can be stopped, and the length of each load.
struct Bench {
    server: Server,
    client_cpu: u32,
    period: Duration,
    length: Duration,
}

impl Bench {
    fn load(&self, words: &[&str]) -> std::process::Command {
        self.server.load(self.client_cpu, tools::ROWS, words)
    }

    /// Runs `tare load` while the server is stopped periodically; returns its output and the length
    /// of each stop.
    fn stopped(&self, words: &[&str]) -> Result<(Vec<u8>, Vec<Duration>)> {
        let duration = format!("{}s", self.length.as_secs());
        let words = [words, &["--lead-in", "1s", "--duration", &duration]].concat();
        let child = self.load(&words).spawn()?;
        let begin = Instant::now() + Duration::from_secs(1);
        let stops = stop_each(self.server.pid(), self.period, begin, self.length)?;
        Ok((child.wait_with_output()?.stdout, stops))
    }

    /// Prints the result of a third-party tool.
    fn other(&self, tool: &mut tools::Tool, rate: f64, capacity: f64) -> Result<()> {
        let (pid, period, length) = (self.server.pid(), self.period, self.length);
        let mut stopper = None;
        let mut begin = || {
            let begin = Instant::now();
            // An error of this thread shows as zero stops.
            let stop = move || stop_each(pid, period, begin, length).unwrap_or_default();
            stopper = Some(std::thread::spawn(stop));
        };
        let load = tool.run("write", Pacing::Open { rate_per_s: rate }, length, &mut begin);
        let stops = stopper.and_then(|stopper| stopper.join().ok()).unwrap_or_default();
        let load = load?;
        let truth = truth(&stops, rate, capacity, rate * length.as_secs_f64());
        let due = rate * load.window_ns as f64 / 1e9;
        let shown = |bytes: &[u8]| match histogram::decode(bytes) {
            Ok(times) if !times.is_empty() => quantiles(&times),
            _ => "none".into(),
        };
        println!(
            "\n{}, {rate:.0}/s: {} operations of {due:.0} in {} stops; p99.9 calculated {truth:.4} s",
            tool.name,
            load.operations,
            stops.len()
        );
        println!("  response time (from when it was due): {}", shown(&load.response));
        println!("  service time (from the send):         {}", shown(&load.service));
        Ok(())
    }
}

fn quantiles(times: &Histogram) -> String {
    let s = |quantile| times.value_at_quantile(quantile) as f64 / 1e9;
    let max_s = times.max() as f64 / 1e9;
    format!("p50 {:.4} p99 {:.4} p99.9 {:.4} max {max_s:.4} s", s(0.5), s(0.99), s(0.999))
}

/// Stops a process for 1 s in the middle of each period of a load that starts at `begin`; returns
/// the length of each stop.
fn stop_each(
    pid: u32,
    period: Duration,
    begin: Instant,
    length: Duration,
) -> Result<Vec<Duration>> {
    let pid = Pid::from_raw(pid.try_into()?).ok_or("no pid")?;
    let mut stops = Vec::new();
    let mut at = period / 2;
    while at + 2 * STOP < length {
        std::thread::sleep((begin + at).saturating_duration_since(Instant::now()));
        kill_process(pid, Signal::STOP)?;
        let stopped = Instant::now();
        std::thread::sleep(STOP);
        kill_process(pid, Signal::CONT)?;
        stops.push(stopped.elapsed());
        at += period;
    }
    Ok(stops)
}
