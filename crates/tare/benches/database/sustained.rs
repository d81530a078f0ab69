//! Inserts at 80 % of capacity for many minutes while the store flushes and compacts: throughput,
//! latency from when an operation was due, and bytes written to disk for each byte of rows, minute
//! by minute. Every write replaces one of the rows that were written before, so that the disk does
//! not fill. Keys are uniform.

use std::time::Duration;

use crate::server::{ROW_BYTES, Server, cpus, errors, figure, printed, scratch};
use crate::{Result, tiny};

const MEMORY: &str = "256M";
/// The rate as a share of what a closed loop gets in the last of some minutes. In the first ones
/// compactions fall behind, so that more rows are written than the store can take for long.
const RATE_SHARE: f64 = 0.8;
const CAPACITY_MINUTES: u64 = 5;
/// Total size of the rows.
const ROWS_MIB: u64 = 10_240;

pub(crate) fn run(minutes: u64) -> Result<()> {
    let (server_cpu, client_cpu) = cpus()?;
    let scratch = scratch()?;
    let data = scratch.path().join("data");
    let server = Server::start(&data, &server_cpu.to_string(), &["--memory", MEMORY])?;
    let tiny = tiny::words().1;
    let rows = (if tiny { crate::TINY_MIB } else { ROWS_MIB } << 20) / ROW_BYTES;
    let minute = if tiny { 1 } else { 60 };
    println!("keys uniform over {rows} rows of {ROW_BYTES} B, --memory {MEMORY}, one shard");
    let load = |pace: &[&str]| -> Result<Vec<u8>> {
        let seconds = format!("{minute}s");
        let words = ["--operation", "write", "--keys", "uniform", "--lead-in", "0s"];
        let mut load = server.load(client_cpu, rows, &words);
        printed(load.args(["--duration", &seconds]).args(pace))
    };
    server.populate(client_cpu, rows)?;
    let mut capacity = 0.0;
    for at in 0..CAPACITY_MINUTES {
        capacity = figure(&load(&["--in-flight", "64"])?, "throughput_per_s")?;
        println!("closed loop, 64 in flight, minute {at}: {capacity:.0}/s");
    }
    let rate = (capacity * RATE_SHARE).round();
    println!("capacity {capacity:.0}/s, the last of these; {rate:.0}/s from here on");
    println!(
        "{:>6}{:>10}{:>10}{:>10}{:>10}{:>9}{:>8}{:>8}{:>15}",
        "minute",
        "rows/s",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "dropped",
        "failed",
        "tables",
        "written/byte"
    );
    let (mut per_minute, mut tails, mut total) = (Vec::new(), Vec::new(), (0, 0));
    for at in 0..minutes {
        let before = (server.metrics()?.writes, server.written_bytes()?);
        let output = load(&["--rate", &rate.to_string()])?;
        let (metrics, written) = (server.metrics()?, server.written_bytes()? - before.1);
        let inserted = (metrics.writes - before.0) * ROW_BYTES;
        let us = |name: &str| figure(&output, name).map(|ns| ns / 1e3);
        let (per_s, p999) = (figure(&output, "throughput_per_s")?, us("response/p999_ns")?);
        println!(
            "{at:>6}{per_s:>10.0}{:>10.0}{:>10.0}{p999:>10.0}{:>9.0}{:>8}{:>8}{:>15.2}",
            us("response/p50_ns")?,
            us("response/p99_ns")?,
            figure(&output, "dropped")?,
            errors(&output)?.0,
            metrics.tables,
            written as f64 / inserted.max(1) as f64
        );
        per_minute.push(per_s);
        tails.push(p999);
        total = (total.0 + inserted, total.1 + written);
    }
    // What is still to be compacted was not written yet.
    let before = server.written_bytes()?;
    let rested = server.wait_idle(Duration::from_secs(900))?;
    total.1 += server.written_bytes()? - before;
    let (first, last) = (per_minute.first(), per_minute.last());
    let (first, last) = first.zip(last).ok_or("no minute was measured")?;
    tails.sort_by(f64::total_cmp);
    println!(
        "last minute over the first: {:.3}; p99.9 of a minute {:.0} to {:.0} µs; compactions ended {:.1} s later",
        last / first,
        tails.first().ok_or("no minute was measured")?,
        tails.last().ok_or("no minute was measured")?,
        rested.as_secs_f64()
    );
    println!(
        "written to disk: {:.2} bytes per byte of rows (log, flushes, compactions)",
        total.1 as f64 / total.0.max(1) as f64
    );
    Ok(())
}
