//! Measures the time from the start of the process until it answers.

use tare_host::page_cache::drop_pages;

use crate::server::{ROW_BYTES, Server, cpus, scratch};
use crate::{Result, median, rounds};

const ROUNDS: usize = 5;

/// Size of the rows whose commit log has 1.5 GB, in MiB.
pub(crate) const LOG_ROWS_MIB: u64 = 915;
/// Size of the rows whose tables have 10 GB, in MiB.
pub(crate) const TABLE_ROWS_MIB: u64 = 6_400;

/// Measures with rows of these sizes in the commit log and in tables.
pub(crate) fn run(log_mib: u64, tables_mib: u64) -> Result<()> {
    empty()?;
    after_kill(log_mib)?;
    with_tables(tables_mib)
}

fn empty() -> Result<()> {
    let cpu = cpus()?.0.to_string();
    let scratch = scratch()?;
    let mut empty = Vec::new();
    for round in 0..rounds(ROUNDS) {
        let data = scratch.path().join(format!("empty-{round}"));
        let server = Server::start(&data, &cpu, &[])?;
        println!("{:<54}{:>10.1} ms", "empty", ms(&server));
        empty.push(ms(&server));
        server.stop()?;
    }
    println!("{:<54}{:>10.1} ms (median)", "empty", median(empty));
    Ok(())
}

fn after_kill(size_mib: u64) -> Result<()> {
    let (server_cpu, client_cpu) = cpus()?;
    let (cpu, rows) = (server_cpu.to_string(), (size_mib << 20) / ROW_BYTES);
    let scratch = scratch()?;
    let data = scratch.path().join("data");
    // With this much memory nothing is flushed, so all rows are in the log.
    let memory = format!("{}M", size_mib * 5);
    let server = Server::start(&data, &cpu, &["--memory", &memory])?;
    server.populate(client_cpu, rows)?;
    server.kill()?;
    let log = bytes_of(&data, "log")?;
    // The database writes past the page cache, so that the first start reads the disk.
    for from_disk in [true, false] {
        let label = if from_disk { "from the disk" } else { "from the page cache" };
        let label = format!("after kill -9, {} MiB of log {label}", log >> 20);
        let mut after = Vec::new();
        for _ in 0..rounds(ROUNDS) {
            if from_disk {
                drop_pages(&data)?;
            }
            let server = Server::start(&data, &cpu, &["--memory", &memory])?;
            println!("{label:<54}{:>10.1} ms", ms(&server));
            after.push(ms(&server));
            server.kill()?;
        }
        println!("{label:<54}{:>10.1} ms (median)", median(after));
    }
    Ok(())
}

fn with_tables(size_mib: u64) -> Result<()> {
    let (server_cpu, client_cpu) = cpus()?;
    let (cpu, rows) = (server_cpu.to_string(), (size_mib << 20) / ROW_BYTES);
    let scratch = scratch()?;
    let data = scratch.path().join("data");
    let server = Server::start(&data, &cpu, &["--memory", "256M"])?;
    server.populate(client_cpu, rows)?;
    server.stop()?;
    let tables = bytes_of(&data, "table")?;
    let label = format!("{} MiB of tables, stopped before", tables >> 20);
    let mut with = Vec::new();
    for _ in 0..rounds(ROUNDS) {
        let server = Server::start(&data, &cpu, &["--memory", "256M"])?;
        println!("{label:<54}{:>10.1} ms", ms(&server));
        with.push(ms(&server));
        server.stop()?;
    }
    println!("{label:<54}{:>10.1} ms (median)", median(with));
    Ok(())
}

fn ms(server: &Server) -> f64 {
    server.ready.as_secs_f64() * 1e3
}

/// Returns the bytes of the first shard's files with this extension.
fn bytes_of(data: &std::path::Path, extension: &str) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(data.join("shard-0"))? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|found| found == extension) {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}
