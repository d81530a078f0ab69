//! Compares the latency of reads at a fixed rate with and without compactions under way. Every
//! round has the same backlog of compactions: rows are written, the server is stopped, and each
//! round starts from a copy of its data. The copies are removed at the end: on a file system that
//! is mounted with `discard`, the disk is slower after a removal.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tare_stats as stats;

use crate::server::program::program;
use crate::server::{ROW_BYTES, Server, cpus, errors, figure, printed, scratch};
use crate::{Result, rounds};

const ROUNDS: usize = 10;
/// The rate as a share of the maximum of the server at rest.
const RATE_SHARE: f64 = 0.5;
const REST_DEADLINE: Duration = Duration::from_secs(900);

pub(crate) fn run(size_mib: u64, seconds: u64) -> Result<()> {
    let (server_cpu, client_cpu) = cpus()?;
    let scratch = scratch()?;
    let memory = format!("{}M", (size_mib / 10).max(64));
    let rows = (size_mib << 20) / ROW_BYTES;
    let (behind, rest) = (scratch.path().join("behind"), scratch.path().join("rest"));
    let start = |data: &Path| Server::start(data, &server_cpu.to_string(), &["--memory", &memory]);
    let read = |server: &Server, rate: Option<f64>, seconds: u64| -> Result<Vec<u8>> {
        let words = ["--operation", "read", "--keys", "uniform", "--lead-in", "500ms"];
        let mut load = server.load(client_cpu, rows, &words);
        load.args(["--duration", &format!("{seconds}s")]);
        rate.map(|rate| load.args(["--rate", &format!("{rate:.0}")]));
        printed(&mut load)
    };
    let server = start(&behind)?;
    server.populate(client_cpu, rows)?;
    server.stop()?;
    copy(&behind, &rest)?;
    let server = start(&rest)?;
    server.wait_idle(REST_DEADLINE)?;
    read(&server, None, seconds)?;
    let most = figure(&read(&server, None, seconds)?, "throughput_per_s")?;
    server.stop()?;
    let rate = most * RATE_SHARE;
    println!("{rows} rows of {ROW_BYTES} B, --memory {memory}, {rate:.0} of {most:.0} reads/s");
    println!(
        "{:>5}  {:<11}{:>9}{:>9}{:>9}{:>9}{:>8}{:>15}",
        "round",
        "compactions",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "dropped",
        "failed",
        "compacted MiB"
    );
    let mut pairs = Vec::new();
    for round in 0..rounds(ROUNDS) {
        let data = scratch.path().join(round.to_string());
        copy(&behind, &data)?;
        let server = start(&data)?;
        let measure = |what: &str| -> Result<(f64, u64)> {
            // Loads filters and indexes into memory first.
            read(&server, Some(rate), 1)?;
            let before = server.metrics()?;
            let output = read(&server, Some(rate), seconds)?;
            let after = server.metrics()?;
            let compacted = after.compacted_bytes_read - before.compacted_bytes_read;
            let us = |name: &str| figure(&output, name).map(|ns| ns / 1e3);
            let p999 = us("response/p999_ns")?;
            println!(
                "{round:>5}  {what:<11}{:>9.0}{:>9.0}{p999:>9.0}{:>9.0}{:>8}{:>15}",
                us("response/p50_ns")?,
                us("response/p99_ns")?,
                figure(&output, "dropped")?,
                errors(&output)?.0,
                compacted >> 20
            );
            Ok((p999, compacted))
        };
        let (with, compacted) = measure("under way")?;
        server.wait_idle(REST_DEADLINE)?;
        let (without, rest) = measure("none")?;
        server.stop()?;
        // The small data of a test may be compacted before it is measured.
        if (compacted == 0 || rest > 0) && !crate::tiny::words().1 {
            return Err(
                "compactions ran in the wrong half of a round, or did not run at all".into()
            );
        }
        pairs.push((with, without));
    }
    let ratio = stats::estimate(&stats::log_ratios(pairs)).ok_or("too few rounds")?;
    let ratio = ratio.map(f64::exp);
    println!(
        "p99.9 while compacting over without: {:.2} [{:.2}, {:.2}], n = {}",
        ratio.centre, ratio.low, ratio.high, ratio.rounds
    );
    Ok(())
}

/// Copies a data directory by hard links.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut snapshot = Command::new(program());
    snapshot.args(["db", "snapshot"]).args([from, to]).stdout(Stdio::null());
    let status = snapshot.status()?;
    if status.success() { Ok(()) } else { Err("the data could not be copied".into()) }
}
