//! `cargo bench -p tare --bench against_redis [-- ROUNDS SECONDS]`
//!
//! What one small request costs: `tare db` with `tare load` beside Redis with redis-benchmark, 300-byte
//! rows, 64 requests in flight, server on one CPU and client on another, in interleaved rounds of
//! random order; the server that is not measured is stopped. Prints every round, then medians and
//! the ratio to Redis with its 95 % interval. Needs two CPUs, redis-server and redis-benchmark.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tare_host::account::Account;
use tare_host::process::cpus_of_this_thread;
use tare_lab::stats;
use tare_std::rng::Rng;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// 5 columns of 60 bytes make rows of 300 bytes.
const COLUMNS: &str = "5";
const COLUMN_BYTES: &str = "60";
const ROWS: &str = "100000";

/// One way of asking: name, server, and how.
const CASES: [(&str, Server, &[&str]); 6] = [
    ("redis SET, 64 x 1", Server::Redis, &["-t", "set"]),
    ("redis GET, 64 x 1", Server::Redis, &["-t", "get"]),
    ("tare write, 64 x 1", Server::Tare, &["--operation", "write", "--connections", "64"]),
    ("tare read, 64 x 1", Server::Tare, &["--operation", "read", "--connections", "64"]),
    ("tare write, 2 x 32", Server::Tare, &["--operation", "write", "--connections", "2"]),
    ("tare read, 2 x 32", Server::Tare, &["--operation", "read", "--connections", "2"]),
];

/// What each case is compared with.
fn reference(case: &str) -> &'static str {
    if case.contains("read") || case.contains("GET") { CASES[1].0 } else { CASES[0].0 }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    Redis,
    Tare,
}

/// One measurement.
struct Cell {
    per_s: f64,
    server_us: f64,
    client_us: f64,
}

fn main() -> Result<()> {
    let numbers: Vec<u64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let rounds = numbers.first().copied().unwrap_or(12);
    let seconds = numbers.get(1).copied().unwrap_or(2);
    let cpus = cpus_of_this_thread()?;
    let mut cpus = cpus.iter();
    let (Some(client_cpu), Some(server_cpu)) = (cpus.next(), cpus.next()) else {
        println!("skipped: against_redis: needs two CPUs");
        return Ok(());
    };
    for program in ["redis-server", "redis-benchmark", "taskset"] {
        if tare_host::exec::find(program).is_none() {
            println!("skipped: against_redis: needs {program} on the PATH");
            return Ok(());
        }
    }
    let scratch = tempfile::tempdir()?;
    let redis = redis(server_cpu)?;
    let tare = tare(server_cpu, scratch.path())?;
    let mut cells: BTreeMap<&str, Vec<Cell>> = BTreeMap::new();
    let mut rng = Rng::new(1);
    println!(
        "{:>5}  {:<20}{:>12}{:>16}{:>16}",
        "round", "case", "op/s", "server µs/op", "client µs/op"
    );
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..CASES.len()).collect();
        rng.shuffle(&mut order);
        for (name, server, how) in order.into_iter().map(|at| CASES[at]) {
            let (running, other) =
                if server == Server::Redis { (&redis, &tare) } else { (&tare, &redis) };
            other.signal(Signal::STOP)?;
            running.signal(Signal::CONT)?;
            // The turn of the loop in which it was stopped ends before the accounts are read.
            std::thread::sleep(Duration::from_millis(20));
            let cell = match server {
                Server::Redis => ask_redis(running, client_cpu, seconds, how)?,
                Server::Tare => ask_tare(running, client_cpu, seconds, how, scratch.path())?,
            };
            other.signal(Signal::CONT)?;
            let Cell { per_s, server_us, client_us } = cell;
            println!("{round:>5}  {name:<20}{per_s:>12.0}{server_us:>16.2}{client_us:>16.2}");
            cells.entry(name).or_default().push(cell);
        }
    }
    println!(
        "\n{:<20}{:>12}{:>16}{:>16}  server CPU over Redis",
        "median", "op/s", "server µs/op", "client µs/op"
    );
    for (name, ..) in CASES {
        let of = |name: &str, figure: fn(&Cell) -> f64| {
            cells[name].iter().map(figure).collect::<Vec<_>>()
        };
        let pairs = of(name, |c| c.server_us).into_iter().zip(of(reference(name), |c| c.server_us));
        let ratio =
            stats::estimate(&stats::log_ratios(pairs)).map(|estimate| estimate.map(f64::exp));
        let ratio = ratio.map_or_else(String::new, |r| {
            format!("{:.3} [{:.3}, {:.3}], n = {}", r.centre, r.low, r.high, r.blocks)
        });
        let (per_s, server, client) = (
            median(of(name, |c| c.per_s)),
            median(of(name, |c| c.server_us)),
            median(of(name, |c| c.client_us)),
        );
        println!("{name:<20}{per_s:>12.0}{server:>16.2}{client:>16.2}  {ratio}");
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A server that ends with the bench.
struct Running {
    child: Child,
    port: u16,
}

impl Running {
    fn start(command: &mut Command, port: u16) -> Result<Self> {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let running = Self { child, port };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > deadline {
                return Err(format!("the server on port {port} does not answer").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().try_into()?).ok_or("a process id of 0")?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both may fail only because it has ended already.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn redis(cpu: u32) -> Result<Running> {
    let port = free_port()?;
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), "redis-server", "--port", &port.to_string()]);
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/"]);
    Running::start(&mut command, port)
}

fn tare(cpu: u32, scratch: &Path) -> Result<Running> {
    let port = free_port()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tare"));
    command.args(["db", "--port", &port.to_string(), "--cpus", &cpu.to_string(), "--data"]);
    command.arg(scratch.join("data")).args(["--durability", "periodic"]);
    let running = Running::start(&mut command, port)?;
    let populated = Command::new(env!("CARGO_BIN_EXE_tare"))
        .args(["load", &format!("127.0.0.1:{port}"), "--populate", "--rows", ROWS])
        .args(["--columns", COLUMNS, "--column-bytes", COLUMN_BYTES])
        .args(["--duration", "100ms", "--lead-in", "0s", "--json"])
        .stderr(Stdio::null())
        .output()?;
    if !populated.status.success() {
        return Err("the rows could not be written".into());
    }
    Ok(running)
}

/// CPU time of the server around `ask`, which returns operations, seconds and client CPU µs.
fn around(
    server: &Running,
    idle_ns: impl Fn() -> Result<u64>,
    ask: impl FnOnce() -> Result<(f64, f64, f64)>,
) -> Result<Cell> {
    let pids = [server.child.id()];
    let mut account = Account::new();
    let (cpu, idle) = (account.read(&pids), idle_ns()?);
    let (operations, seconds, client_us) = ask()?;
    let cpu = account.read(&pids) - cpu;
    let idle = idle_ns()? - idle;
    Ok(Cell {
        per_s: operations / seconds,
        server_us: cpu.saturating_sub(idle) as f64 / 1e3 / operations,
        client_us: client_us / operations,
    })
}

fn ask_redis(server: &Running, cpu: u32, seconds: u64, how: &[&str]) -> Result<Cell> {
    // About so many per second here; the figures are per operation.
    let operations = 70_000 * seconds;
    around(
        server,
        || Ok(0),
        || {
            let mut command = Command::new("taskset");
            command.args([
                "-c",
                &cpu.to_string(),
                "redis-benchmark",
                "-p",
                &server.port.to_string(),
            ]);
            command.args([
                "-n",
                &operations.to_string(),
                "-d",
                "300",
                "-c",
                "64",
                "-P",
                "1",
                "-r",
                ROWS,
                "-q",
            ]);
            let before = children_cpu_us();
            let began = Instant::now();
            let status = command.args(how).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
            if !status.success() {
                return Err("redis-benchmark failed".into());
            }
            Ok((operations as f64, began.elapsed().as_secs_f64(), children_cpu_us() - before))
        },
    )
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

fn ask_tare(
    server: &Running,
    cpu: u32,
    seconds: u64,
    how: &[&str],
    scratch: &Path,
) -> Result<Cell> {
    let metrics = scratch.join("data").join(tare_db::metrics::FILE);
    let idle = || Ok(tare_db::metrics::read(&metrics)?.total().idle_poll_ns);
    let operations = || -> Result<u64> {
        let total = tare_db::metrics::read(&metrics)?.total();
        Ok(total.reads + total.writes)
    };
    let before = operations()?;
    let mut client = 0.0;
    let mut cell = around(server, idle, || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tare"));
        command.args(["load", &format!("127.0.0.1:{}", server.port), "--cpus", &cpu.to_string()]);
        command.args(["--rows", ROWS, "--columns", COLUMNS, "--column-bytes", COLUMN_BYTES]);
        command.args(["--keys", "uniform", "--in-flight", "64", "--lead-in", "100ms", "--json"]);
        command.args(["--duration", &format!("{seconds}s")]).args(how);
        let output = command.stderr(Stdio::null()).output()?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let number = |name: &str| report[name].as_f64().ok_or("tare load printed no figure");
        client = number("client_cpu_us_per_operation")?;
        let per_s = number("throughput_per_s")?;
        // The server's own count spans its CPU time exactly, lead-in included.
        let done = (operations()? - before) as f64;
        Ok((done, done / per_s, client * done))
    })?;
    cell.client_us = client;
    Ok(cell)
}
