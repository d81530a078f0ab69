//! `cargo bench -p tare --bench agreement -- SECONDS [ROUNDS]`
//!
//! Checks the figures that `tare load` prints against a packet capture of the same run, and against
//! another client in alternating runs. Client and server each have a network namespace of their
//! own, linked by a pair of virtual Ethernet devices (see `server_side`); the load reads rows of
//! 300 bytes.
//!
//! 1. The capture (see `capture`): service times of the same operations on the wire, beside those
//!    by the client's clock and, in a second run, by the kernel's times (`--kernel-times`). The
//!    client's clock adds the client's own part: the system call of the send, and the time from the
//!    packet to the return of the receive.
//! 2. The plain client (see `plain`), one request at a time: service times; and at a fixed rate:
//!    response times.
//!
//! In the runs with stops the server is stopped for 100 ms in each second.
//!
//! The server burns 1 ms of CPU time per operation, so that the figures are dominated by the server
//! and not by the cost of a wake-up; the capture is also compared for a server without that delay,
//! where that cost shows. Prints every run; fails if a figure by the kernel's times is more than
//! 3 % and 1 µs off the capture, or if the interval of a ratio to the plain client lies more than
//! 3 % off. Needs root, unshare, nsenter, ip and two CPUs; tcpdump for the first part; uses tshark
//! too if it is installed.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

mod capture;
#[path = "../own_network/mod.rs"]
mod own_network;
mod plain;
#[path = "../database/server.rs"]
#[allow(dead_code, reason = "this bench uses a part of it")]
mod server;
mod server_side;
#[path = "../tiny/mod.rs"]
mod tiny;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use server::{Place, Server, cpus, errors, figure, printed, scratch};
use server_side::ServerSide;
use tare_stats as stats;

use capture::{Capture, Exchange};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROWS: u64 = 10_000;
const LEAD_IN: Duration = Duration::from_secs(1);
/// The largest difference of a ratio from 1.
const TOLERANCE: f64 = 0.03;
/// The largest difference from the capture that counts as none, in ns. The kernel copies a packet
/// to the capture, with its time, before it passes the packet to the device (`xmit_one` in
/// net/core/dev.c), whose driver takes the time of the client.
const TOLERANCE_NS: f64 = 1_000.0;
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];
/// CPU time that the slow server burns per operation in ns, and half of its capacity in
/// operations/s.
const BUSY_NS: &str = "1000000";
const HALF_RATE: f64 = 500.0;
/// How long the slow server is stopped in each second of a paced run.
const STOP: Duration = Duration::from_millis(100);

/// The three quantiles, in ns.
type Figures = [f64; 3];

fn main() -> Result<()> {
    let (words, tiny) = tiny::words();
    let mut numbers = words.iter().filter_map(|word| word.parse::<u64>().ok());
    let Some(seconds) = numbers.next().or(tiny.then_some(1)) else {
        println!("skipped: agreement: name the seconds of a run, such as 10");
        return Ok(());
    };
    let rounds = numbers.next().unwrap_or(if tiny { 1 } else { 5 });
    if !own_network::enter("agreement", "")? {
        return Ok(());
    }
    let side = ServerSide::create()?;
    let length = Duration::from_secs(seconds);
    let bench = Bench { cpus: cpus()?, length, place: side.place() };
    let scratch = scratch()?;
    let mut worst = 0.0f64;
    let quick = bench.server(&scratch.path().join("quick"), &[])?;
    if tare_host::exec::find("tcpdump").is_none() {
        println!("skipped: the capture: needs tcpdump on the PATH");
    } else {
        let file = scratch.path().join("capture.pcap");
        println!("a quick server:");
        let words = ["--connections", "8", "--rate", "5000"];
        worst = bench.captured(&quick, &words, false, &file)?.max(worst);
        quick.stop()?;
        let slow = bench.server(&scratch.path().join("slow"), &["--inject-busy-ns", BUSY_NS])?;
        println!("a server of 1 ms per operation:");
        for (words, stops) in [
            (&["--connections", "8", "--in-flight", "64"][..], false),
            (&["--connections", "64", "--in-flight", "64"], false),
            (&["--connections", "8", "--rate", "500"], true),
        ] {
            worst = bench.captured(&slow, words, stops, &file)?.max(worst);
        }
        slow.stop()?;
    }
    let slow = bench.server(&scratch.path().join("plain"), &["--inject-busy-ns", BUSY_NS])?;
    println!("the plain client, a server of 1 ms per operation:");
    worst = bench.against_plain(&slow, 1, None, rounds)?.max(worst);
    worst = bench.against_plain(&slow, 64, Some(HALF_RATE), rounds)?.max(worst);
    slow.stop()?;
    if worst > TOLERANCE && !tiny {
        return Err(format!("a ratio is {:.1} % from 1", 100.0 * worst).into());
    }
    Ok(())
}

struct Bench {
    /// Server, client.
    cpus: (u32, u32),
    length: Duration,
    place: Place<'static>,
}

impl Bench {
    /// Starts a server and writes its rows.
    fn server(&self, data: &Path, words: &[&str]) -> Result<Server> {
        let words = [&["--smp", "1", "--durability", "periodic"][..], words].concat();
        let server = Server::start_at(self.place, data, &self.cpus.0.to_string(), &words)?;
        server.populate(self.cpus.1, ROWS)?;
        Ok(server)
    }

    /// Runs `tare load`; returns its output.
    fn load(&self, server: &Server, words: &[&str]) -> Result<Vec<u8>> {
        let (length, lead_in) = (self.length.as_secs(), LEAD_IN.as_secs());
        let (length, lead_in) = (format!("{length}s"), format!("{lead_in}s"));
        let common = ["--operation", "read", "--keys", "uniform", "--duration", &length];
        let mut command = server.load(self.cpus.1, ROWS, &[&common[..], words].concat());
        let output = printed(command.args(["--lead-in", &lead_in]))?;
        match errors(&output)? {
            (0, _) => Ok(output),
            (count, first) => Err(format!("{words:?}: {count} operations failed: {first}").into()),
        }
    }

    /// Service times of a load by the client's clock and of one by the kernel's times, each as
    /// printed and as captured. Returns the largest difference of a ratio by the kernel's times
    /// from 1, of those above [`TOLERANCE_NS`].
    fn captured(&self, server: &Server, words: &[&str], stops: bool, file: &Path) -> Result<f64> {
        self.capture(server, words, "service", stops, file)?;
        let words = [words, &["--kernel-times"]].concat();
        self.capture(server, &words, "in_kernel/service", stops, file)
    }

    /// One load. `times` are the printed service times.
    fn capture(
        &self,
        server: &Server,
        words: &[&str],
        times: &str,
        stops: bool,
        file: &Path,
    ) -> Result<f64> {
        let capture = Capture::start(file, server_side::DEVICE, server.port)?;
        let printed = self.stopping(server, stops, || self.load(server, words))?;
        let captured = capture.finish()?;
        println!("  tare load {}{}", words.join(" "), if stops { ", with stops" } else { "" });
        let ours = printed_figures(&printed, times)?;
        let count = figure(&printed, &format!("{times}/count"))?;
        println!("    {:<18}{:>9}  {}", "printed", count, shown(ours));
        let mut worst = 0.0f64;
        let mut compare = |name: &str, exchanges: &[Exchange]| -> Result<()> {
            let times = self.of_window(exchanges);
            let theirs = figures(&times).ok_or("there is no exchange in the capture")?;
            println!("    {name:<18}{:>9}  {}", times.len(), shown(theirs));
            let ratios: Vec<String> = (0..QUANTILES.len())
                .map(|at| {
                    let (ratio, more_us) = (ours[at] / theirs[at], (ours[at] - theirs[at]) / 1e3);
                    if (ours[at] - theirs[at]).abs() > TOLERANCE_NS {
                        worst = worst.max((ratio - 1.0).abs());
                    }
                    format!("{} {ratio:.4} ({more_us:+.1} µs)", QUANTILES[at].0)
                })
                .collect();
            println!("    {:<27}  {}", "printed / this", ratios.join("  "));
            Ok(())
        };
        compare("capture", &captured.read()?)?;
        if tare_host::exec::find("tshark").is_some() {
            compare("capture by tshark", &captured.dissect()?)?;
        } else {
            println!("    skipped: tshark: not on the PATH");
        }
        std::fs::remove_file(file)?;
        Ok(worst)
    }

    /// Returns the service times of the window, sorted. The load starts with the first request.
    fn of_window(&self, exchanges: &[Exchange]) -> Vec<u64> {
        let begin = exchanges.iter().map(|exchange| exchange.sent_ns).min().unwrap_or_default();
        let from = u128::from(begin) + LEAD_IN.as_nanos();
        let window = from..from + self.length.as_nanos();
        let inside = exchanges.iter().filter(|one| window.contains(&u128::from(one.answered_ns)));
        let mut times: Vec<u64> = inside.map(|one| one.answered_ns - one.sent_ns).collect();
        times.sort_unstable();
        times
    }

    /// Runs `tare load` and the plain client alternately. Returns the largest distance of the
    /// interval of a ratio from 1.
    fn against_plain(
        &self,
        server: &Server,
        connections: u32,
        rate: Option<f64>,
        rounds: u64,
    ) -> Result<f64> {
        let connections_text = connections.to_string();
        let mut words = vec!["--connections", &connections_text, "--in-flight", &connections_text];
        let rate_text = rate.unwrap_or_default().to_string();
        let times = if rate.is_some() { "response" } else { "service" };
        if rate.is_some() {
            words.extend(["--rate", &rate_text]);
        }
        println!(
            "  {connections} connections, {}",
            match rate {
                Some(rate) => format!("{rate}/s, with stops: response time"),
                None => "one request at a time: service time".into(),
            }
        );
        let load = plain::Load {
            host: self.place.host,
            port: server.port,
            cpu: self.cpus.1,
            connections,
            rate,
            lead_in: LEAD_IN,
            length: self.length,
            rows: ROWS,
        };
        let mut pairs: Vec<(Figures, Figures)> = Vec::new();
        for round in 0..rounds {
            let stops = rate.is_some();
            let ours = self.stopping(server, stops, || self.load(server, &words))?;
            let ours = printed_figures(&ours, times)?;
            let theirs = self.stopping(server, stops, || plain::run(load))?;
            let theirs =
                figures(&theirs).ok_or("the plain client completed no request in the window")?;
            println!("    round {round}: tare load  {}", shown(ours));
            println!("    round {round}: plain      {}", shown(theirs));
            pairs.push((ours, theirs));
        }
        let mut worst = 0.0f64;
        for (at, (name, _)) in QUANTILES.iter().enumerate() {
            let logs = stats::log_ratios(pairs.iter().map(|(ours, theirs)| (ours[at], theirs[at])));
            let Some(ratio) = stats::estimate(&logs).map(|ratio| ratio.map(f64::exp)) else {
                continue;
            };
            worst = worst.max(ratio.low - 1.0).max(1.0 - ratio.high);
            println!(
                "    {name:<6} tare load / plain {:.4} [{:.4}, {:.4}], n = {}",
                ratio.centre, ratio.low, ratio.high, ratio.rounds
            );
        }
        Ok(worst)
    }

    /// Runs `work` and, if `stops` is set, stops the server for [`STOP`] in each second meanwhile.
    fn stopping<T>(
        &self,
        server: &Server,
        stops: bool,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let pid = Pid::from_raw(server.pid().try_into()?).ok_or("no pid")?;
        let done = AtomicBool::new(!stops);
        std::thread::scope(|scope| {
            let stopper = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    kill_process(pid, Signal::STOP)?;
                    std::thread::sleep(STOP);
                    kill_process(pid, Signal::CONT)?;
                    std::thread::sleep(Duration::from_secs(1).saturating_sub(STOP));
                }
                rustix::io::Result::Ok(())
            });
            let result = work();
            done.store(true, Ordering::Relaxed);
            stopper.join().map_err(|_| "the thread that stops the server failed")??;
            result
        })
    }
}

/// Returns the quantiles that `tare load` printed.
fn printed_figures(printed: &[u8], times: &str) -> Result<Figures> {
    let of = |name: &str| figure(printed, &format!("{times}/{name}_ns"));
    Ok([of("p50")?, of("p99")?, of("p999")?])
}

/// Returns the quantiles of sorted times: for each share, the smallest time that at least this
/// share does not exceed.
fn figures(times: &[u64]) -> Option<Figures> {
    let at = |quantile: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a position")]
        let rank = (quantile * times.len() as f64).ceil() as usize;
        times.get(rank.max(1) - 1).map(|&ns| ns as f64)
    };
    Some([at(0.5)?, at(0.99)?, at(0.999)?])
}

fn shown(figures: Figures) -> String {
    let one = |(&(name, _), ns): (&(&str, f64), f64)| format!("{name} {:>9.1} µs", ns / 1e3);
    QUANTILES.iter().zip(figures).map(one).collect::<Vec<_>>().join("  ")
}
