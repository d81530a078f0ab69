//! CPU time per operation of two shards against one, each shard on a CPU of its own. The client shares them:
//! throughput would say what is left over for it, so only the server's own busy time is compared, and what two
//! shards could do is taken as twice one over the ratio.

use tare_lab::stats;

use crate::server::{Server, cpus, figure, scratch};
use crate::{Result, median};

const ROWS: u64 = 100_000;
const ROUNDS: usize = 10;

pub(crate) fn run(seconds: u64) -> Result<()> {
    let (server_cpu, client_cpu) = cpus()?;
    let both = format!("{},{}", server_cpu.min(client_cpu), server_cpu.max(client_cpu));
    for operation in ["write", "read"] {
        println!(
            "{:>5}  {:<6}{:<8}{:>12}{:>18}",
            "round", "what", "shards", "op/s", "server µs/op"
        );
        let mut us = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for shards in [1 + round % 2, 2 - round % 2] {
                let scratch = scratch()?;
                let smp = shards.to_string();
                let words = ["--smp", &smp, "--overprovisioned", "yes"];
                let cpus = if shards == 1 { server_cpu.to_string() } else { both.clone() };
                let server = Server::start(&scratch.path().join("data"), &cpus, &words)?;
                server.populate(client_cpu, ROWS)?;
                let (before, cpu) = (server.metrics()?, server.cpu_ns());
                let duration = format!("{seconds}s");
                let words = ["--operation", operation, "--keys", "uniform", "--in-flight", "64"];
                let mut load = server.load(client_cpu, ROWS, &words);
                let output = load.args(["--duration", &duration, "--lead-in", "100ms"]).output()?;
                let per_s = figure(&output.stdout, "throughput_per_s")?;
                let (after, cpu) = (server.metrics()?, server.cpu_ns() - cpu);
                let done = (after.reads + after.writes) - (before.reads + before.writes);
                let each = cpu as f64 / 1e3 / done.max(1) as f64;
                println!("{round:>5}  {operation:<6}{shards:<8}{per_s:>12.0}{each:>18.2}");
                us[shards - 1].push(each);
                server.stop()?;
            }
        }
        let pairs = us[0].iter().copied().zip(us[1].iter().copied());
        let ratio = stats::estimate(&stats::log_ratios(pairs)).ok_or("too few rounds")?;
        let ratio = ratio.map(|log| 2.0 * log.exp());
        println!(
            "{operation}: median {:.2} µs with one shard, {:.2} µs with two; two CPUs do {:.2} [{:.2}, {:.2}] times one, n = {}",
            median(us[0].clone()),
            median(us[1].clone()),
            ratio.centre,
            ratio.low,
            ratio.high,
            ratio.blocks
        );
    }
    Ok(())
}
