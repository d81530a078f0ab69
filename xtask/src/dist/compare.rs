//! `cargo xtask dist --compare PROGRAM OTHER [ROUNDS [SECONDS]]`: two builds of the program beside
//! each other, for instance those of the profiles `release` and `dist`.
//!
//! Method: `tare db` of one build on one CPU, `tare load` of one build on another, rows of 300
//! bytes, 64 requests in flight. In every round the four figures are taken for both builds, the
//! build that begins alternates. The server's figures are taken with the client of the first build,
//! the client's against the server of the first build. Prints every run, then each ratio, OTHER
//! over PROGRAM, with its 95 % interval (Student's t on log ratios of rounds).
//!
//! Limits: a ratio is the machine's as much as the builds'. Run it alone on the machine.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tare_stats as stats;

const ROWS: &str = "100000";
const READY: Duration = Duration::from_secs(60);

/// What is compared: operations per second, and CPU time of an operation in µs.
#[derive(Clone, Copy)]
struct Figures {
    per_s: f64,
    server_us: f64,
    client_us: f64,
}

pub(super) fn run(first: &Path, second: &Path, words: &[&str]) -> anyhow::Result<()> {
    let number = |at: usize, otherwise: u64| match words.get(at) {
        Some(word) => word.parse().with_context(|| format!("{word:?} is no number")),
        None => Ok(otherwise),
    };
    let (rounds, seconds) = (number(0, 20)?, number(1, 2)?);
    let programs = [first, second];
    let mut runs: Vec<(&str, &str, [Vec<Figures>; 2])> = Vec::new();
    for what in ["server", "client"] {
        for operation in ["write", "read"] {
            runs.push((what, operation, [Vec::new(), Vec::new()]));
        }
    }
    crate::print("round  build  varied  what         op/s  server µs/op  client µs/op");
    for round in 0..rounds {
        for build in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            for (what, operation, figures) in &mut runs {
                let (server, client) = match *what {
                    "server" => (programs[build], first),
                    _ => (first, programs[build]),
                };
                let found = measure(server, client, operation, seconds)?;
                crate::print(&format!(
                    "{round:>5}  {build:>5}  {what:<6}  {operation:<5}{:>12.0}{:>14.2}{:>14.2}",
                    found.per_s, found.server_us, found.client_us
                ));
                figures[build].push(found);
            }
        }
    }
    let show = |what: &str, operation: &str, name: &str, pairs: Vec<(f64, f64)>| {
        let line = match stats::estimate(&stats::log_ratios(pairs)) {
            Some(ratio) => {
                let ratio = ratio.map(f64::exp);
                format!("{:.4} [{:.4}, {:.4}]", ratio.centre, ratio.low, ratio.high)
            }
            None => "too few rounds".to_string(),
        };
        crate::print(&format!("{what} {operation}: {name}, other over first: {line}"));
    };
    for (what, operation, [of_first, of_second]) in &runs {
        let pairs = |figure: fn(&Figures) -> f64| {
            of_second.iter().zip(of_first).map(|(b, a)| (figure(b), figure(a))).collect()
        };
        show(what, operation, "operations per second", pairs(|f| f.per_s));
        match *what {
            "server" => show(what, operation, "CPU per operation", pairs(|f| f.server_us)),
            _ => show(what, operation, "CPU per operation", pairs(|f| f.client_us)),
        }
    }
    Ok(())
}

/// One run: a server with its rows, and a load of so many seconds.
fn measure(server: &Path, client: &Path, what: &str, seconds: u64) -> anyhow::Result<Figures> {
    let data = tempfile::tempdir().context("cannot make a temporary folder")?;
    let server = Server::start(server, data.path())?;
    let load = |words: &[&str]| -> anyhow::Result<Value> {
        let output = Command::new(client)
            .args(["load", &format!("127.0.0.1:{}", server.port), "--cpus", "0", "--rows", ROWS])
            .args(["--columns", "5", "--column-bytes", "60", "--in-flight", "64"])
            .args(["--keys", "uniform", "--json"])
            .args(words)
            .output()
            .with_context(|| format!("cannot start {}", client.display()))?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tare load: {}: {error}", output.status);
        serde_json::from_slice(&output.stdout).context("tare load printed no JSON")
    };
    load(&["--populate", "--duration", "100ms", "--lead-in", "0s"])?;
    let before = server.cpu_ns()?;
    let duration = format!("{seconds}s");
    let report = load(&["--operation", what, "--duration", &duration, "--lead-in", "0s"])?;
    let server_ns = server.cpu_ns()? - before;
    let figure = |name: &str| report[name].as_f64().with_context(|| format!("no {name} in it"));
    let operations = figure("operations")?;
    let window_ns = operations / figure("throughput_per_s")? * 1e9;
    Ok(Figures {
        per_s: figure("throughput_per_s")?,
        server_us: server_ns as f64 / 1e3 / operations,
        client_us: figure("client_cpu_share")? * window_ns / 1e3 / operations,
    })
}

/// A server that ends with this value.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(program: &Path, data: &Path) -> anyhow::Result<Server> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = port.context("no free port")?.port();
        let child = Command::new(program)
            .args(["db", "--port", &port.to_string(), "--cpus", "1", "--smp", "1"])
            .args(["--overprovisioned", "yes", "--durability", "periodic", "--data"])
            .arg(data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut server = Server { child, port };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("tare db ended: {status}");
            }
            ensure!(began.elapsed() < READY, "tare db does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// CPU time of all its threads, from the scheduler's account.
    fn cpu_ns(&self) -> anyhow::Result<u64> {
        let folder = format!("/proc/{}/task", self.child.id());
        let mut sum = 0;
        for task in fs::read_dir(&folder).with_context(|| folder.clone())? {
            let path = task?.path().join("schedstat");
            let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
            let running = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
            sum += running.with_context(|| format!("{}: no figure", path.display()))?;
        }
        Ok(sum)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}
