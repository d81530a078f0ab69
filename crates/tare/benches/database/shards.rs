//! Compares two shards with one, each on its own CPU. With only two CPUs the client has to share
//! them, so everything is doubled: one CPU with one shard, one client thread and 64 requests in
//! flight, against two CPUs with two of each. The ratio of the throughputs is the gain from a
//! second CPU; the ratio of the server's CPU time per operation is printed too. Writes are measured
//! twice: each on the disk before its answer, where both shards also share the disk, and with a log
//! that is synced from time to time.

use tare_host::cpu_times::CpuTimes;
use tare_stats as stats;
use tare_std::cpus::CpuSet;

use crate::server::{HERE, Place, Server, cpus, figure, printed, scratch};
use crate::{Result, median, rounds};

const ROWS: u64 = 100_000;
const ROUNDS: usize = 10;

struct Case {
    name: &'static str,
    operation: &'static str,
    durability: &'static str,
}

const CASES: [Case; 3] = [
    Case { name: "write, sync", operation: "write", durability: "sync" },
    Case { name: "write, periodic", operation: "write", durability: "periodic" },
    Case { name: "read", operation: "read", durability: "periodic" },
];

pub(crate) fn run(seconds: u64) -> Result<()> {
    let (one, other) = cpus()?;
    let both = format!("{},{}", one.min(other), one.max(other));
    for case in CASES {
        let name = case.name;
        println!("round  what            shards        op/s  server µs/op  idle CPU %");
        let mut runs = [Vec::new(), Vec::new()];
        for round in 0..rounds(ROUNDS) {
            for shards in [1 + round % 2, 2 - round % 2] {
                let cpus = if shards == 1 { one.to_string() } else { both.clone() };
                let (per_s, us, idle) = measure(&case, shards, &cpus, seconds)?;
                println!(
                    "{round:>5}  {name:<16}{shards:<6}{per_s:>12.0}{us:>14.2}{:>12.1}",
                    idle * 100.0
                );
                runs[shards - 1].push((per_s, us));
            }
        }
        let [of_one, of_two] = &runs;
        let column = |runs: &[(f64, f64)], at: fn(&(f64, f64)) -> f64| -> Vec<f64> {
            runs.iter().map(at).collect()
        };
        let ratio = |at: fn(&(f64, f64)) -> f64| {
            let pairs = column(of_one, at).into_iter().zip(column(of_two, at));
            stats::estimate(&stats::log_ratios(pairs)).ok_or("too few rounds")
        };
        // The logarithm of the first over the second.
        let (faster, costlier) = (ratio(|run| run.0)?.map(|log| (-log).exp()), ratio(|run| run.1)?);
        println!(
            "{name}: median {:.0} op/s with one shard, {:.0} with two: {:.2} [{:.2}, {:.2}] times as many, n = {}; \
             server {:.2} and {:.2} µs per operation, {:.2} times as much",
            median(column(of_one, |run| run.0)),
            median(column(of_two, |run| run.0)),
            faster.centre,
            faster.low.min(faster.high),
            faster.low.max(faster.high),
            faster.rounds,
            median(column(of_one, |run| run.1)),
            median(column(of_two, |run| run.1)),
            (-costlier.centre).exp(),
        );
    }
    Ok(())
}

/// Returns the operations per second, the server's CPU time of each in µs, and the share of the
/// CPUs that was idle.
fn measure(case: &Case, shards: usize, cpus: &str, seconds: u64) -> Result<(f64, f64, f64)> {
    let scratch = scratch()?;
    let smp = shards.to_string();
    let words = ["--smp", &smp, "--overprovisioned", "yes", "--durability", case.durability];
    let place = Place { bound: true, ..HERE };
    let server = Server::start_at(place, &scratch.path().join("data"), cpus, &words)?;
    server.populate(cpus, ROWS)?;
    let (in_flight, connections) = ((64 * shards).to_string(), (2 * shards).to_string());
    let duration = format!("{seconds}s");
    let words = ["--operation", case.operation, "--keys", "uniform", "--in-flight", &in_flight];
    let mut load = server.load(cpus, ROWS, &words);
    load.args(["--connections", &connections, "--duration", &duration, "--lead-in", "100ms"]);
    let cpu_set = CpuSet::parse_list(cpus)?;
    let (before, cpu, times) = (server.metrics()?, server.cpu_ns(), CpuTimes::of(&cpu_set)?);
    let per_s = figure(&printed(&mut load)?, "throughput_per_s")?;
    let idle = CpuTimes::of(&cpu_set)?.idle_share_since(times);
    let (after, cpu) = (server.metrics()?, server.cpu_ns() - cpu);
    let done = (after.reads + after.writes) - (before.reads + before.writes);
    server.stop()?;
    Ok((per_s, cpu as f64 / 1e3 / done.max(1) as f64, idle))
}
