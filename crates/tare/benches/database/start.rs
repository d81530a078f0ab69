//! Measures the time from the start of the process until it answers.

use crate::server::{ROW_BYTES, Server, cpus, scratch};
use crate::{Result, median, rounds};

const ROUNDS: usize = 5;

pub(crate) fn run(size_mib: u64) -> Result<()> {
    let (server_cpu, client_cpu) = cpus()?;
    let cpu = server_cpu.to_string();
    let scratch = scratch()?;
    let mut empty = Vec::new();
    for round in 0..rounds(ROUNDS) {
        let data = scratch.path().join(format!("empty-{round}"));
        let server = Server::start(&data, &cpu, &[])?;
        println!("{:<40}{:>10.1} ms", "empty", ms(&server));
        empty.push(ms(&server));
        server.stop()?;
    }
    println!("{:<40}{:>10.1} ms (median)", "empty", median(empty));

    let rows = (size_mib << 20) / ROW_BYTES;
    let data = scratch.path().join("data");
    // With this much memory nothing is flushed, so all rows are in the log.
    let memory = format!("{}M", size_mib * 5);
    let server = Server::start(&data, &cpu, &["--memory", &memory])?;
    server.populate(client_cpu, rows)?;
    server.kill()?;
    let log = bytes_of(&data, "log")?;
    let mut after = Vec::new();
    for _ in 0..rounds(ROUNDS) {
        let server = Server::start(&data, &cpu, &["--memory", &memory])?;
        println!("after kill -9, {:>6} MiB of commit log  {:>10.1} ms", log >> 20, ms(&server));
        after.push(ms(&server));
        server.kill()?;
    }
    println!(
        "after kill -9, {:>6} MiB of commit log  {:>10.1} ms (median)",
        log >> 20,
        median(after)
    );

    let server = Server::start(&data, &cpu, &["--memory", "256M"])?;
    server.populate(client_cpu, rows)?;
    server.stop()?;
    let tables = bytes_of(&data, "table")?;
    let mut with = Vec::new();
    for _ in 0..rounds(ROUNDS) {
        let server = Server::start(&data, &cpu, &["--memory", "256M"])?;
        println!("{:>6} MiB of tables, stopped before   {:>10.1} ms", tables >> 20, ms(&server));
        with.push(ms(&server));
        server.stop()?;
    }
    println!(
        "{:>6} MiB of tables, stopped before   {:>10.1} ms (median)",
        tables >> 20,
        median(with)
    );
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
