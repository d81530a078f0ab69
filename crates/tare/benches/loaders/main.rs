//! `cargo bench -p tare --bench loaders [-- ROUNDS] [ssh] [delay] [nine] [injected] [on]`
//!
//! Measures what changes when the load comes through ssh. The machines are network namespaces with
//! an sshd of their own (`tare_testkit::ssh_bed`), each with a veth pair to this host; agents have
//! one load thread, on the client's CPU. Without a word all parts run:
//!
//! - `ssh`: one server, loaded in turn by an agent that this process started in the client's own
//!   network namespace (`local`), by one that it started in the machine's (`machine`), and by one
//!   that sshd started there (`ssh`). `machine` and `ssh` differ in ssh alone, `local` and
//!   `machine` in the link.
//! - `delay`: the same over lines that delay every packet by 0, 1 and 10 ms. Only edges and clocks:
//!   such a line is a program and carries little.
//! - `nine`: nine loaders with one connection each against one loader with nine, with a server
//!   that spends 20 µs more per operation, so that it is the limit, not the one CPU of all loaders.
//!   First closed loop, where nine processes always want that CPU, then at half the throughput.
//! - `injected`: a study through the program itself, with 5 µs of server CPU per operation added,
//!   loaded from the machine and by the local client.
//! - `on`: the same study on the other machine (`--on`) and on this one: seconds from the start of
//!   the program to the first round and to the end, at the first run there with the copy of the
//!   program.
//!
//! Prints every slice, medians, and ratios within rounds with their intervals. `beyond` is the time
//! of a slice that is neither lead-in nor window. Needs root, sshd and two CPUs.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

mod sides;
#[path = "../tiny/mod.rs"]
mod tiny;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sides::{Figures, LoadedServer, Side};
use tare_lab::driver::Pacing;
use tare_stats as stats;
use tare_testkit::ssh_bed::{MachineSpec, SshBed};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
/// Runs a part with this many rounds, as a test or not.
type Part = fn(u32, bool) -> Result<()>;

const NINE: u32 = 9;

fn main() -> Result<()> {
    let (words, tiny) = tiny::words();
    let named = words.iter().find_map(|word| word.parse().ok());
    let rounds: u32 = named.unwrap_or(if tiny { 1 } else { 40 });
    let parts: [(&str, Part); 5] = [
        ("ssh", over_ssh),
        ("delay", delayed),
        ("nine", nine),
        ("injected", injected),
        ("on", on_machine),
    ];
    let asked = |name: &str| words.iter().any(|word| word == name);
    let all = !parts.iter().any(|(name, _)| asked(name));
    for (_, part) in parts.iter().filter(|(name, _)| all || asked(name)) {
        part(rounds, tiny)?;
    }
    Ok(())
}

fn window(tiny: bool) -> Duration {
    Duration::from_millis(if tiny { 50 } else { 300 })
}

/// Runs all sides in every round, in alternating order, and prints each slice.
fn rounds(
    server: &mut LoadedServer,
    sides: &mut [Side],
    rounds: u32,
    pacing: Pacing,
    window: Duration,
) -> Result<Vec<Vec<Figures>>> {
    // The first slice of a side opens connections.
    for side in &mut *sides {
        server.slice(side, pacing, window, 0)?;
    }
    println!("{:>5}  {:<16}{}", "round", "load", Figures::HEAD);
    let mut all = vec![Vec::new(); sides.len()];
    for round in 0..rounds {
        let count = sides.len();
        for step in 0..count {
            // Each side is first, second ... equally often, and in both directions.
            let place = (step + round as usize / 2) % count;
            let at = if round % 2 == 0 { place } else { count - 1 - place };
            let figures = server.slice(&mut sides[at], pacing, window, u64::from(round) + 1)?;
            println!("{round:>5}  {:<16}{figures}", sides[at].name);
            all[at].push(figures);
        }
    }
    for (side, figures) in sides.iter().zip(&all) {
        println!("{:<7}{:<16}{}", "median", side.name, Figures::medians(figures));
    }
    Ok(all)
}

/// Prints a figure of one side over that of another, as a ratio within rounds.
fn ratio(what: &str, over: &[Figures], under: &[Figures], figure: fn(&Figures) -> f64) {
    let pairs = over.iter().map(figure).zip(under.iter().map(figure));
    if let Some(ratio) = stats::estimate(&stats::log_ratios(pairs)) {
        let ratio = ratio.map(f64::exp);
        println!(
            "{what}: {:.4} [{:.4}, {:.4}], n = {}",
            ratio.centre, ratio.low, ratio.high, ratio.rounds
        );
    }
}

fn ratios(name: &str, over: &[Figures], under: &[Figures]) {
    ratio(&format!("server CPU per operation, {name}"), over, under, |one| one.server_us);
    ratio(&format!("client CPU per operation, {name}"), over, under, |one| one.client_us);
    ratio(&format!("throughput, {name}"), over, under, |one| one.per_s);
    ratio(&format!("mean service time, {name}"), over, under, |one| one.service_us);
}

fn over_ssh(count: u32, tiny: bool) -> Result<()> {
    println!("# the same client over ssh and local");
    let Some(bed) = SshBed::start("loaders: ssh", &["load1"]) else { return Ok(()) };
    let mut server = LoadedServer::open(&bed, "load1", None)?;
    let mut all = [
        server.local("local", None, 8)?,
        server.local("machine", Some(bed.namespace("load1")), 8)?,
        server.remote("ssh", &["load1"], 8)?,
    ];
    let found = rounds(&mut server, &mut all, count, Pacing::Closed, window(tiny))?;
    ratios("ssh / machine", &found[2], &found[1]);
    ratios("ssh / local", &found[2], &found[0]);
    ratios("machine / local", &found[1], &found[0]);
    server.close(all)
}

fn delayed(count: u32, tiny: bool) -> Result<()> {
    println!("# edges and clocks over lines with a delay (one way)");
    let lines = [("0ms", 0), ("1ms", 1), ("10ms", 10)];
    let specs: Vec<_> = lines
        .iter()
        .map(|(name, ms)| MachineSpec::new(name).delay(Duration::from_millis(*ms)))
        .collect();
    let Some(bed) = SshBed::start_with("loaders: delay", &specs) else { return Ok(()) };
    let mut server = LoadedServer::open(&bed, "0ms", None)?;
    let mut sides = Vec::new();
    for (name, _) in lines {
        sides.push(server.remote(name, &[name], 2)?);
    }
    rounds(&mut server, &mut sides, count, Pacing::Closed, window(tiny))?;
    server.close(sides)
}

fn nine(count: u32, tiny: bool) -> Result<()> {
    println!("# nine loaders of one connection each, and one of nine");
    let names: Vec<String> = (1..=NINE).map(|number| format!("load{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(bed) = SshBed::start("loaders: nine", &names) else { return Ok(()) };
    let mut server = LoadedServer::open(&bed, "load1", Some("busy=20us"))?;
    let mut sides = [
        server.remote("one of nine", &names[..1], NINE)?,
        server.remote("nine of one", &names, NINE)?,
    ];
    let closed = rounds(&mut server, &mut sides, count, Pacing::Closed, window(tiny))?;
    ratios("nine / one", &closed[1], &closed[0]);
    let rate_per_s = Figures::medians(&closed[0]).per_s / 2.0;
    println!("at {rate_per_s:.0} op/s:");
    let open = rounds(&mut server, &mut sides, count, Pacing::Open { rate_per_s }, window(tiny))?;
    ratios("nine / one", &open[1], &open[0]);
    server.close(sides)
}

/// The study of `injected` and `on`, which has no loader elsewhere.
fn study(loader: Option<(&str, &str)>, rounds: u32, tiny: bool) -> String {
    let environment = |name: &str, inject: &str| {
        format!(
            "[[environment]]\nname = \"{name}\"\nruntime = \"process\"\ncpu = \"pinned\"\n\
             security = \"none\"\ncgroup = \"none\"\ninject = \"{inject}\"\n"
        )
    };
    let loader = loader
        .map(|(host, cpus)| format!("[[loader]]\nhost = \"{host}\"\ncpus = \"{cpus}\"\n"))
        .unwrap_or_default();
    format!(
        "name = \"injected\"\nbaseline = \"native\"\n[schedule]\nwindow = \"{}ms\"\n\
         lead_in = \"50ms\"\nrounds = {rounds}\nrounds_min = {rounds}\nstop_width_percent = 0\n\
         budget = \"5m\"\n{loader}{}{}\
         [[workload]]\nname = \"w\"\nwrite_share = 0.5\nrows = 2000\nconnections = 8\n\
         in_flight = 64\nlatency_share = 0\n",
        window(tiny).as_millis(),
        environment("native", "none"),
        environment("busy", "busy=5us"),
    )
}

fn injected(count: u32, tiny: bool) -> Result<()> {
    println!(
        "# 5 µs of server CPU per operation, found through a loader elsewhere and a local client"
    );
    let Some(bed) = SshBed::start("loaders: injected", &["load1"]) else { return Ok(()) };
    let cpus = sides::plan()?.client.to_string();
    let address = bed.address("load1");
    for (name, loader) in [("elsewhere", Some((&*address, &*cpus))), ("local", None)] {
        let record = weigh(&bed, &study(loader, count.max(2), tiny))?;
        println!("{name}: {}", added(&record)?);
        for loader in record["loaders"].as_array().into_iter().flatten() {
            println!("{loader}");
        }
    }
    Ok(())
}

/// Runs a study through the program and returns its result.
fn weigh(bed: &SshBed, study: &str) -> Result<Value> {
    let scratch = tempfile::tempdir()?;
    fs::write(scratch.path().join("s.toml"), study)?;
    let output = weigh_command(bed, scratch.path()).stderr(Stdio::inherit()).output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The program, to weigh the study in a directory.
fn weigh_command(bed: &SshBed, directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tare"));
    command.args(["weigh", "s.toml", "--json", "--state"]).arg(directory.join("state"));
    command.current_dir(directory).env("TARE_SSH_CONFIG", bed.config());
    command
}

/// Returns what a study found of the injected CPU time.
fn added(record: &Value) -> Result<String> {
    let findings = record["analysis"]["findings"].as_array().ok_or("no findings")?;
    let of = |name: &str| findings.iter().find(|one| one["environment"] == name);
    let (native, busy) = of("native").zip(of("busy")).ok_or("an environment is missing")?;
    let native_us = native["server_cpu_us"]["value"].as_f64().ok_or("no CPU time")?;
    let cost = &busy["server_cpu_cost"];
    let us =
        |bound: &str| cost["percent"][bound].as_f64().map_or(f64::NAN, |p| p / 100.0 * native_us);
    Ok(format!(
        "native {native_us:.2} µs; added {:.2} [{:.2}, {:.2}] µs of 5; verdict {}",
        us("value"),
        us("low"),
        us("high"),
        cost["verdict"]
    ))
}

fn on_machine(count: u32, tiny: bool) -> Result<()> {
    println!("# a study on another machine and on this one: seconds from the start of the program");
    let Some(bed) = SshBed::start("loaders: on", &["db1"]) else { return Ok(()) };
    let scratch = tempfile::tempdir()?;
    fs::write(scratch.path().join("s.toml"), study(None, 2, tiny))?;
    let address = bed.address("db1");
    println!("{:>5}  {:<6}{:>14}{:>8}", "run", "where", "first round", "end");
    for run in 0..(count / 4).max(1) {
        for (name, words) in [("there", &["--on", &*address][..]), ("here", &[])] {
            let (first, end) = time_study(&bed, scratch.path(), words)?;
            println!("{run:>5}  {name:<6}{first:>14.2}{end:>8.2}");
        }
    }
    Ok(())
}

/// Returns the seconds until a study says that its first round runs, and until its end.
fn time_study(bed: &SshBed, directory: &Path, words: &[&str]) -> Result<(f64, f64)> {
    let begun = Instant::now();
    let mut command = weigh_command(bed, directory);
    let mut child = command.args(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut first = None;
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().ok_or("no pipe")?).lines() {
        let line = line?;
        if first.is_none() && line.starts_with("round ") {
            first = Some(begun.elapsed().as_secs_f64());
        }
        said.push_str(&line);
        said.push('\n');
    }
    let status = child.wait()?;
    match first {
        Some(first) if status.success() => Ok((first, begun.elapsed().as_secs_f64())),
        _ => Err(format!("the study ended with {status}: {said}").into()),
    }
}
