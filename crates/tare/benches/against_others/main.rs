//! `cargo bench -p tare --bench against_others [-- ROUNDS SECONDS [CASSANDRA PID] [program=P]]`
//!
//! Compares the cost of one small request: `tare db` with `tare load` against Redis with
//! redis-benchmark, 300-byte rows, 64 requests in flight, server on one CPU and client on another,
//! in interleaved rounds of random order; the servers that are not measured are stopped. Prints
//! every round, then medians and the ratio to Redis with its 95 % interval. Needs two CPUs,
//! redis-server and redis-benchmark.
//!
//! Beside them, what the kernel alone takes for the same bytes over the same 64 sockets, with epoll
//! and with io_uring (`kernel`): the floor that neither server nor client can go below. The table
//! ends with what `tare db` and `tare load` take above it.
//!
//! A Cassandra that already runs, pinned to the second CPU, is measured too if its address and
//! process id are given. It gets the same load as `tare db`, after a warm-up. Its background work
//! during the measurement is included.
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
use tare_stats as stats;
use tare_std::rng::Rng;

use kernel::{Engine, Exchange};
use program::program;

#[path = "../cpu_time/mod.rs"]
mod cpu_time;
mod kernel;
#[path = "../program/mod.rs"]
mod program;
#[allow(unsafe_code, reason = "submission entries are raw memory")]
mod rings;
mod side;
#[path = "../tiny/mod.rs"]
mod tiny;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// 5 columns of 60 bytes make rows of 300 bytes.
const COLUMNS: &str = "5";
const COLUMN_BYTES: &str = "60";
const ROWS: &str = "100000";

/// Bytes of the write and the read of one row below, as they are on the wire (`ss -ti`:
/// `bytes_received` by `data_segs_in`).
const WRITE: Exchange = Exchange { request: 364, answer: 13 };
const READ: Exchange = Exchange { request: 44, answer: 345 };

/// One case: name, server, and arguments of the load.
const CASES: [(&str, Server, &[&str]); 14] = [
    ("kernel, epoll, write", Server::Kernel(Engine::Epoll, WRITE), &[]),
    ("kernel, epoll, read", Server::Kernel(Engine::Epoll, READ), &[]),
    ("kernel, io_uring, write", Server::Kernel(Engine::Uring, WRITE), &[]),
    ("kernel, io_uring, read", Server::Kernel(Engine::Uring, READ), &[]),
    ("redis SET, 64 x 1", Server::Redis, &["-t", "set"]),
    ("redis GET, 64 x 1", Server::Redis, &["-t", "get"]),
    ("tare write, 64 x 1", Server::Tare, &["--operation", "write", "--connections", "64"]),
    ("tare read, 64 x 1", Server::Tare, &["--operation", "read", "--connections", "64"]),
    ("tare write, 2 x 32", Server::Tare, &["--operation", "write", "--connections", "2"]),
    ("tare read, 2 x 32", Server::Tare, &["--operation", "read", "--connections", "2"]),
    (
        "cassandra write, 64 x 1",
        Server::Cassandra,
        &["--operation", "write", "--connections", "64"],
    ),
    ("cassandra read, 64 x 1", Server::Cassandra, &["--operation", "read", "--connections", "64"]),
    ("cassandra write, 2 x 32", Server::Cassandra, &["--operation", "write", "--connections", "2"]),
    ("cassandra read, 2 x 32", Server::Cassandra, &["--operation", "read", "--connections", "2"]),
];

/// Cases, and what the kernel alone takes for them: the engine is that of both.
const ABOVE: [(&str, &str); 4] = [
    ("redis SET, 64 x 1", "kernel, epoll, write"),
    ("redis GET, 64 x 1", "kernel, epoll, read"),
    ("tare write, 64 x 1", "kernel, io_uring, write"),
    ("tare read, 64 x 1", "kernel, io_uring, read"),
];

/// Returns the Redis case that a case is compared with.
fn reference(case: &str) -> &'static str {
    match case.contains("read") || case.contains("GET") {
        true => "redis GET, 64 x 1",
        false => "redis SET, 64 x 1",
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    Kernel(Engine, Exchange),
    Redis,
    Tare,
    Cassandra,
}

/// How long Cassandra is loaded before the rounds, so that its compilation is not measured.
const WARM_UP: &str = "40s";

/// One measurement.
struct Cell {
    per_s: f64,
    server_us: f64,
    client_us: f64,
}

fn main() -> Result<()> {
    let (words, tiny) = tiny::words();
    if let [first, words @ ..] = &words[..]
        && first == kernel::WORD
    {
        return kernel::side(words);
    }
    let (rounds, seconds) = if tiny { (1, 1) } else { (12, 2) };
    let rounds = words.first().map_or(Ok(rounds), |word| word.parse())?;
    let seconds = words.get(1).map_or(Ok(seconds), |word| word.parse())?;
    let cpus = cpus_of_this_thread()?;
    let mut cpus = cpus.iter();
    let (Some(client_cpu), Some(server_cpu)) = (cpus.next(), cpus.next()) else {
        println!("skipped: against_others: needs two CPUs");
        return Ok(());
    };
    for program in ["redis-server", "redis-benchmark", "taskset"] {
        if tare_host::exec::find(program).is_none() {
            println!("skipped: against_others: needs {program} on the PATH");
            return Ok(());
        }
    }
    let scratch = tempfile::tempdir()?;
    let mut servers = vec![
        (Server::Redis, redis(server_cpu)?),
        (Server::Tare, tare(server_cpu, scratch.path())?),
    ];
    if let [_, _, address, pid, ..] = &words[..] {
        servers.push((Server::Cassandra, cassandra(address, pid.parse()?, client_cpu)?));
    }
    let cases: Vec<_> = CASES
        .into_iter()
        .filter(|(_, of, _)| {
            matches!(of, Server::Kernel(..)) || servers.iter().any(|(server, _)| server == of)
        })
        .collect();
    let mut cells: BTreeMap<&str, Vec<Cell>> = BTreeMap::new();
    let mut rng = Rng::new(1);
    println!(
        "{:>5}  {:<24}{:>12}{:>16}{:>16}",
        "round", "case", "op/s", "server µs/op", "client µs/op"
    );
    for round in 0..rounds {
        let mut order = cases.clone();
        rng.shuffle(&mut order);
        for (name, server, how) in order {
            for (of, running) in &servers {
                running.signal(if *of == server { Signal::CONT } else { Signal::STOP })?;
            }
            // The interrupted iteration of its loop ends before CPU times are read.
            std::thread::sleep(Duration::from_millis(20));
            let cpus = (server_cpu, client_cpu);
            let running = servers.iter().find(|(of, _)| *of == server).map(|(_, running)| running);
            let running = || running.ok_or("a case without a server");
            let cell = match server {
                Server::Kernel(engine, bytes) => kernel::measure(engine, bytes, cpus, seconds)?,
                Server::Redis => measure_redis(running()?, client_cpu, seconds, how)?,
                Server::Tare => measure_tare(running()?, client_cpu, seconds, how, scratch.path())?,
                Server::Cassandra => measure_cassandra(running()?, client_cpu, seconds, how)?,
            };
            let Cell { per_s, server_us, client_us } = cell;
            println!("{round:>5}  {name:<24}{per_s:>12.0}{server_us:>16.2}{client_us:>16.2}");
            cells.entry(name).or_default().push(cell);
        }
    }
    println!(
        "\n{:<24}{:>12}{:>16}{:>16}  server CPU over Redis",
        "median", "op/s", "server µs/op", "client µs/op"
    );
    for (name, ..) in cases {
        let of = |name: &str, figure: fn(&Cell) -> f64| {
            cells[name].iter().map(figure).collect::<Vec<_>>()
        };
        let pairs = of(name, |c| c.server_us).into_iter().zip(of(reference(name), |c| c.server_us));
        let ratio =
            stats::estimate(&stats::log_ratios(pairs)).map(|estimate| estimate.map(f64::exp));
        let ratio = ratio.map_or_else(String::new, |r| {
            format!("{:.3} [{:.3}, {:.3}], n = {}", r.centre, r.low, r.high, r.rounds)
        });
        let (per_s, server, client) = (
            median(of(name, |c| c.per_s)),
            median(of(name, |c| c.server_us)),
            median(of(name, |c| c.client_us)),
        );
        println!("{name:<24}{per_s:>12.0}{server:>16.2}{client:>16.2}  {ratio}");
    }
    println!("\n{:<24}{:>24}{:>24}", "above the kernel alone", "server µs/op", "client µs/op");
    for (name, floor) in ABOVE {
        let above = |figure: fn(&Cell) -> f64| {
            let pairs = cells[name].iter().zip(&cells[floor]);
            let pairs: Vec<f64> = pairs.map(|(a, b)| figure(a) - figure(b)).collect();
            stats::estimate(&pairs).map_or_else(String::new, |above| {
                format!("{:.2} [{:.2}, {:.2}]", above.centre, above.low, above.high)
            })
        };
        println!("{name:<24}{:>24}{:>24}", above(|c| c.server_us), above(|c| c.client_us));
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A server; killed on drop if the bench started it.
struct Running {
    child: Option<Child>,
    pid: u32,
    port: u16,
}

impl Running {
    fn start(command: &mut Command, port: u16) -> Result<Self> {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let running = Self { pid: child.id(), child: Some(child), port };
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
        let pid = Pid::from_raw(self.pid.try_into()?).ok_or("a process id of 0")?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // All of these fail only if the server has already exited.
        let Some(child) = &mut self.child else {
            let _continued = self.signal(Signal::CONT);
            return;
        };
        let _killed = child.kill();
        let _reaped = child.wait();
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
    let mut command = Command::new(program());
    command.args(["db", "--port", &port.to_string(), "--cpus", &cpu.to_string(), "--data"]);
    command.arg(scratch.join("data")).args(["--durability", "periodic"]);
    let running = Running::start(&mut command, port)?;
    let populate = ["--populate", "--duration", "100ms"];
    load(&format!("127.0.0.1:{port}"), None, &populate)?;
    Ok(running)
}

fn cassandra(address: &str, pid: u32, client_cpu: u32) -> Result<Running> {
    let (host, port) = address.rsplit_once(':').ok_or("the address of Cassandra has no port")?;
    if host != "127.0.0.1" {
        return Err("Cassandra has to be on 127.0.0.1, so that its CPU time can be read".into());
    }
    let running = Running { child: None, pid, port: port.parse()? };
    load(address, Some(client_cpu), &["--populate", "--duration", WARM_UP])?;
    load(address, Some(client_cpu), &["--operation", "write", "--duration", WARM_UP])?;
    Ok(running)
}

/// Runs `tare load` and returns its report.
fn load(address: &str, cpu: Option<u32>, how: &[&str]) -> Result<serde_json::Value> {
    let mut command = Command::new(program());
    command.args(["load", address, "--rows", ROWS, "--lead-in", "0s", "--json"]);
    command.args(["--columns", COLUMNS, "--column-bytes", COLUMN_BYTES]);
    command.args(["--keys", "uniform", "--in-flight", "64"]).args(how);
    if let Some(cpu) = cpu {
        command.args(["--cpus", &cpu.to_string()]);
    }
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("tare load against {address}: {said}").into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn figure(report: &serde_json::Value, name: &str) -> Result<f64> {
    Ok(report[name].as_f64().ok_or_else(|| format!("tare load printed no {name}"))?)
}

/// Measures the CPU time of the server during `run`, which returns operations, seconds and client
/// CPU µs.
fn measure(
    server: &Running,
    idle_ns: impl Fn() -> Result<u64>,
    run: impl FnOnce() -> Result<(f64, f64, f64)>,
) -> Result<Cell> {
    let pids = [server.pid];
    let mut account = Account::new();
    let (cpu, idle) = (account.read(&pids), idle_ns()?);
    let (operations, seconds, client_us) = run()?;
    let cpu = account.read(&pids) - cpu;
    let idle = idle_ns()? - idle;
    Ok(Cell {
        per_s: operations / seconds,
        server_us: cpu.saturating_sub(idle) as f64 / 1e3 / operations,
        client_us: client_us / operations,
    })
}

fn measure_redis(server: &Running, cpu: u32, seconds: u64, how: &[&str]) -> Result<Cell> {
    // At roughly this rate a run takes `seconds`; the figures are per operation.
    let operations = 70_000 * seconds;
    measure(
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
            let before = cpu_time::of_children_us();
            let began = Instant::now();
            let status = command.args(how).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
            if !status.success() {
                return Err("redis-benchmark failed".into());
            }
            Ok((
                operations as f64,
                began.elapsed().as_secs_f64(),
                cpu_time::of_children_us() - before,
            ))
        },
    )
}

fn measure_tare(
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
    measure(server, idle, || {
        let (seen, seconds, client_us) = run_load(server, cpu, seconds, how)?;
        // The server's own count covers exactly its CPU time, including the start and end of the
        // load.
        let done = (operations()? - before) as f64;
        Ok((done, done * seconds / seen, client_us * done / seen))
    })
}

/// Measures Cassandra. It exposes no such count: the operations at the start and end of the load,
/// outside the window, are in its CPU time but not in the count, which makes it look 1 or 2 % more
/// expensive.
fn measure_cassandra(server: &Running, cpu: u32, seconds: u64, how: &[&str]) -> Result<Cell> {
    measure(server, || Ok(0), || run_load(server, cpu, seconds, how))
}

/// Runs one load; returns its operations, its seconds and the CPU time of the client in µs.
fn run_load(server: &Running, cpu: u32, seconds: u64, how: &[&str]) -> Result<(f64, f64, f64)> {
    let duration = format!("{seconds}s");
    let how = [how, &["--duration", &duration]].concat();
    let report = load(&format!("127.0.0.1:{}", server.port), Some(cpu), &how)?;
    let operations = figure(&report, "operations")?;
    let per_s = figure(&report, "throughput_per_s")?;
    let client = figure(&report, "client_cpu_us_per_operation")?;
    Ok((operations, operations / per_s, client * operations))
}
