//! `cargo bench -p tare --bench stall_truth -- [SECONDS] [PERIODS]`
//!
//! What `tare load` says of a server that stops for 1 s in every 10 s at half of its capacity, beside what
//! arithmetic says. A `tare db` is stopped and continued (SIGSTOP, SIGCONT) while an open loop asks it;
//! how long each stop took is measured here. Operations due x before the end of a stop of S seconds end
//! when all those before them have: x (1 - R/C) + S R/C after they were due, and then the queue shrinks.
//! So every stop delays R S C / (C - R) operations, and their response times lie evenly between 0 and S.
//! The p99.9 is where one in a thousand of all operations is above.
//!
//! Prints the stops, the arithmetic and what was printed; fails above 2 %. A closed loop against the same
//! server follows: what a tool without a schedule would say.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Share of the arithmetic truth that the measured p99.9 may differ by.
const TOLERANCE: f64 = 0.02;

fn main() -> Result<()> {
    let words: Vec<u64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let Some(&seconds) = words.first() else {
        println!("skipped: stall_truth: say for how many seconds, such as 60");
        return Ok(());
    };
    let period = Duration::from_secs(words.get(1).copied().unwrap_or(10));
    let cpus = tare_host::process::cpus_of_this_thread()?;
    let mut cpus = cpus.iter();
    let (client, server) = cpus.next().zip(cpus.next()).ok_or("needs two CPUs")?;
    let data =
        tempfile::Builder::new().prefix("tare-bench").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let database = Database::start(data.path(), server)?;
    let closed = database.load(client, &["--populate", "--duration", "5s"]).output()?;
    let capacity = figure(&closed.stdout, "/throughput_per_s")?;
    let rate = (capacity / 2.0).round();
    println!("capacity {capacity:.0} op/s (closed loop), so the rate is {rate:.0} op/s");

    let length = Duration::from_secs(seconds);
    let duration = format!("{seconds}s");
    let rate_text = rate.to_string();
    let words = ["--rate", &rate_text, "--duration", &duration, "--lead-in", "1s"];
    let child = database.load(client, &words).spawn()?;
    let stops = database.stop_each(period, length)?;
    let printed = child.wait_with_output()?.stdout;
    let truth = truth(&stops, rate, capacity, rate * length.as_secs_f64());
    for (number, stop) in stops.iter().enumerate() {
        println!("stop {:>2}: {:.4} s", number + 1, stop.as_secs_f64());
    }
    let measured = figure(&printed, "/response/p999_ns")? / 1e9;
    let delayed: f64 = stops.iter().map(|stop| delayed(*stop, rate, capacity)).sum();
    println!(
        "delayed: sum of R S C / (C - R) = {delayed:.0} of {:.0} operations",
        rate * length.as_secs_f64()
    );
    println!(
        "p99.9 by arithmetic {truth:.4} s, printed {measured:.4} s, {:+.2} %",
        100.0 * (measured / truth - 1.0)
    );
    for name in ["/response/p50_ns", "/response/p99_ns", "/response/max_ns", "/service/p999_ns"] {
        println!("{name:<18} {:.4} s", figure(&printed, name)? / 1e9);
    }
    for name in ["/dropped", "/late_count", "/without_service/count", "/without_service/total_s"] {
        println!("{name:<24} {}", figure(&printed, name)?);
    }

    let words = ["--duration", &duration, "--lead-in", "1s", "--in-flight", "64"];
    let child = database.load(client, &words).spawn()?;
    database.stop_each(period, length)?;
    let closed = child.wait_with_output()?.stdout;
    println!(
        "closed loop, 64 in flight: p99.9 of the service time {:.4} s",
        figure(&closed, "/service/p999_ns")? / 1e9
    );
    let difference = (measured / truth - 1.0).abs();
    if difference > TOLERANCE {
        return Err(format!("the p99.9 is {:.1} % from the truth", 100.0 * difference).into());
    }
    Ok(())
}

/// How many operations a stop delays.
fn delayed(stop: Duration, rate: f64, capacity: f64) -> f64 {
    rate * stop.as_secs_f64() * capacity / (capacity - rate)
}

/// The response time in s that one in a thousand of `operations` exceeds, by bisection.
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

fn figure(printed: &[u8], pointer: &str) -> Result<f64> {
    let report: serde_json::Value = serde_json::from_slice(printed)?;
    let figure = report.pointer(pointer).and_then(serde_json::Value::as_f64);
    figure.ok_or_else(|| format!("tare load printed no {pointer}").into())
}

/// A `tare db` that ends with the bench.
struct Database {
    child: Child,
    address: String,
}

impl Database {
    fn start(data: &Path, cpu: u32) -> Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = Command::new(env!("CARGO_BIN_EXE_tare"))
            .args([
                "db",
                "--port",
                &address.port().to_string(),
                "--cpus",
                &cpu.to_string(),
                "--data",
            ])
            .arg(data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let database = Self { child, address: address.to_string() };
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(address).is_err() {
            if Instant::now() > end {
                return Err("tare db does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(database)
    }

    fn load(&self, cpu: u32, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tare"));
        command.args(["load", &self.address, "--cpus", &cpu.to_string(), "--json"]).args(words);
        command.stderr(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// Stops the server for 1 s in each period of a load that begins now with a lead-in of 1 s. Returns
    /// how long each stop took.
    fn stop_each(&self, period: Duration, length: Duration) -> Result<Vec<Duration>> {
        let pid = Pid::from_raw(self.child.id().try_into()?).ok_or("no pid")?;
        let begin = Instant::now() + Duration::from_secs(1);
        let mut stops = Vec::new();
        let mut at = period / 2;
        while at + Duration::from_secs(2) < length {
            std::thread::sleep((begin + at).saturating_duration_since(Instant::now()));
            kill_process(pid, Signal::STOP)?;
            let stopped = Instant::now();
            std::thread::sleep(Duration::from_secs(1));
            kill_process(pid, Signal::CONT)?;
            stops.push(stopped.elapsed());
            at += period;
        }
        Ok(stops)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Both may fail only because it has ended already.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}
