//! `cargo bench -p tare --bench probes [-- SLICES]`
//!
//! Measures the cost of all probes together: one native environment under closed-loop load, slices
//! with every probe and slices with none, in pairs of alternating order. Prints the time of each
//! probe at the start and end of a slice, every pair, and the throughput with probes over that
//! without, with its interval. The promised cost is at most 0.5 %. Needs root.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tare_driver::{Client, TareLoad};
use tare_env::{EnvironmentFactory, FactoryOptions};
use tare_lab::driver::{Driver, Edge, Pacing, SliceOrder, TargetId};
use tare_lab::environment::{Environment, EnvironmentSpec};
use tare_lab::probe::{Probe, Scope};
use tare_lab::study::{CpuSpec, KeyDistribution, SystemSpec, WorkloadSpec};
use tare_probe::Roots;
use tare_system::ClientRoute;
use tare_testkit::EnvironmentBuilder;

mod tiny;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The window of the studies that ship.
const WINDOW: Duration = Duration::from_millis(300);
const LEAD_IN: Duration = Duration::from_millis(50);

fn spec() -> EnvironmentSpec {
    EnvironmentBuilder::new("process").name("native").cpu("pinned").cgroup("none").build()
}

fn workload() -> WorkloadSpec {
    WorkloadSpec {
        name: "write".into(),
        workload: None,
        workload_text: None,
        write_share: 1.0,
        rows: 10_000,
        columns: 5,
        column_bytes: 64,
        keys: KeyDistribution::Uniform,
        connections: 8,
        in_flight: 64,
        load: tare_lab::study::LoadSize::default(),
        latency_share: 0.0,
        rate_only: false,
        slo: None,
        reads_from_disk: None,
        replicas: tare_lab::study::Replicas::default(),
        connection: tare_lab::study::ClientConnection::default(),
        attached_rows: None,
        rate_per_s: None,
        options: Vec::new(),
    }
}

/// A probe with its times, in order of the slices.
struct Timed {
    probe: Box<dyn Probe>,
    prepare: Vec<Duration>,
    begin: Vec<Duration>,
    end: Vec<Duration>,
}

fn timed<T>(times: &mut Vec<Duration>, act: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = act();
    times.push(began.elapsed());
    done
}

fn median(times: &[Duration]) -> f64 {
    let mut times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Runs one slice and returns its operations/s.
fn slice(
    driver: &mut TareLoad,
    target: TargetId,
    seed: u64,
    probes: &mut [Timed],
    scope: &Scope,
) -> Result<f64> {
    let workload = workload();
    let order =
        SliceOrder { workload, pacing: Pacing::Closed, lead_in: LEAD_IN, window: WINDOW, seed };
    for one in &mut *probes {
        timed(&mut one.prepare, || one.probe.prepare(scope))?;
    }
    let mut failed = None;
    let load = driver.run(target, &order, &mut |edge| {
        for one in &mut *probes {
            let read = match edge {
                Edge::Begin => timed(&mut one.begin, || one.probe.begin()),
                Edge::End => timed(&mut one.end, || one.probe.end().map(drop)),
            };
            failed = failed.take().or(read.err());
        }
    })?;
    failed.map_or(Ok(load.operations as f64 * 1e9 / load.window_ns as f64), Err)
}

fn main() -> Result<()> {
    let (words, tiny) = tiny::words();
    let named = words.iter().find_map(|word| word.parse().ok());
    let slices: u64 = named.unwrap_or(if tiny { 4 } else { 60 });
    if !rustix::process::geteuid().is_root() {
        println!("skipped: probes: needs root");
        return Ok(());
    }
    let allowed = tare_host::process::cpus_of_this_thread()?;
    let cpus =
        tare_lab::cpus::plan(&tare_lab::cpus::CpuTopology::flat(&allowed), &CpuSpec::default())?;
    let scratch = tempfile::tempdir()?;
    let program = PathBuf::from(env!("CARGO_BIN_EXE_tare"));
    let state = scratch.path().to_path_buf();
    let options = FactoryOptions {
        state,
        program: program.clone(),
        cpus: cpus.clone(),
        destroy: Vec::new(),
        reach: None,
    };
    let factory = EnvironmentFactory::open(options)?;
    let mut environment = factory.environment(&spec())?;
    let measured = measure(&factory, &mut *environment, &program, &cpus, slices);
    environment.stop()?;
    let left = factory.close();
    assert!(left.is_empty(), "{left:?}");
    measured
}

fn measure(
    factory: &EnvironmentFactory,
    environment: &mut dyn Environment,
    program: &std::path::Path,
    cpus: &tare_lab::environment::CpuPlan,
    slices: u64,
) -> Result<()> {
    let spec = SystemSpec { name: "tare-db".into(), options: Vec::new() };
    let client = Some(factory.client_namespace());
    let route = ClientRoute { namespace: client.map(Into::into), ..ClientRoute::default() };
    let system = tare_system::find(&spec.name).ok_or("no tare-db")?.make(&spec, &route)?;
    let mut driver = TareLoad::start(&Client {
        program,
        cpus: &cpus.client,
        namespace: client,
        scratch: factory.context().work(),
        run: factory.run(),
        speaks: "cql",
        access: &tare_lab::access::ClientAccess::default(),
    })?;
    let endpoint = environment.start(&system.launch(cpus.system.len()))?;
    let target = driver.open(&[endpoint.address], Duration::from_secs(30))?;
    driver.populate(target, &workload(), 1, &mut |_, _| {})?;
    let processes = environment.processes();
    let (system, layer, client) = (processes.system, processes.layer, driver.pids());
    let data = endpoint.data.into_iter().collect();
    let scope = Scope { system, layer, client, data, ..Scope::default() };
    let (opened, missing) = tare_probe::open_all(&Roots::default(), &cpus.all.clone().into());
    for (name, error) in missing {
        println!("unavailable: {name}: {error}");
    }
    let timed = |probe| Timed { probe, prepare: vec![], begin: vec![], end: vec![] };
    let mut probes: Vec<Timed> = opened.into_iter().map(timed).collect();

    slice(&mut driver, target, 0, &mut [], &scope)?;
    println!("{:>5}{:>16}{:>16}{:>8}", "pair", "with, op/s", "without, op/s", "ratio");
    let mut pairs = Vec::new();
    for pair in 0..slices / 2 {
        let mut of = |with: bool| {
            let probes = if with { &mut probes[..] } else { &mut [] };
            slice(&mut driver, target, pair + 1, probes, &scope)
        };
        let (with, without) = match pair % 2 {
            0 => (of(true)?, of(false)?),
            _ => {
                let without = of(false)?;
                (of(true)?, without)
            }
        };
        println!("{pair:>5}{with:>16.0}{without:>16.0}{:>8.3}", with / without);
        pairs.push((with, without));
    }
    print_summary(&probes, &pairs);
    Ok(())
}

fn print_summary(probes: &[Timed], pairs: &[(f64, f64)]) {
    println!("\n{:<18}{:>12}{:>12}{:>12}   µs, medians", "probe", "prepare", "begin", "end");
    let mut sums = [0.0; 3];
    for one in probes {
        let times = [median(&one.prepare), median(&one.begin), median(&one.end)];
        println!("{:<18}{:>12.1}{:>12.1}{:>12.1}", one.probe.name(), times[0], times[1], times[2]);
        sums.iter_mut().zip(times).for_each(|(sum, time)| *sum += time);
    }
    println!("{:<18}{:>12.1}{:>12.1}{:>12.1}", "all", sums[0], sums[1], sums[2]);
    let share = (sums[1] + sums[2]) / (WINDOW.as_secs_f64() * 1e6) * 100.0;
    println!("both edges over a window of {} ms: {share:.3} % of one CPU", WINDOW.as_millis());
    if let Some(ratio) = tare_stats::estimate(&tare_stats::log_ratios(pairs.iter().copied())) {
        let ratio = ratio.map(f64::exp);
        println!(
            "throughput with probes over without: {:.4} [{:.4}, {:.4}] over {} pairs",
            ratio.centre, ratio.low, ratio.high, ratio.rounds
        );
    }
}
