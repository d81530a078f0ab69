//! `cargo bench -p tare --bench history`
//!
//! The time from 1,000 records to their history: 40 rounds in eight environments each, made by
//! copies of a record of the fake world whose start, kernel and costs differ. Prints the times of
//! `tare history` for its terminal text and its page, five times, and the size of the page. The
//! promise is less than 2 s, and less than 5 MB. As a test it reads 12 records once.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

mod tiny;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rusqlite::{Connection, params};
use tare_std::rng::Rng;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const DAY_MS: i64 = 86_400_000;
/// Copies of one measured record.
const COPIES: i64 = 100;

fn main() -> Result<()> {
    let (_, is_test) = tiny::words();
    let (records, rounds, passes) = if is_test { (12, 5, 1) } else { (1_000, 40, 5) };
    let folder = tempfile::tempdir()?;
    for day in 0..records {
        make(folder.path(), day, rounds)?;
    }
    let bytes: u64 = std::fs::read_dir(folder.path())?
        .map(|entry| Ok(entry?.metadata()?.len()))
        .sum::<Result<u64>>()?;
    println!("{records} records of {rounds} rounds, {} MB", bytes / 1_000_000);
    for _ in 0..passes {
        let text = run(folder.path(), &["history", "."])?;
        let page = run(folder.path(), &["history", ".", "--html", "all.html", "--last", "1"])?;
        let size = std::fs::metadata(folder.path().join("all.html"))?.len();
        println!("text {text:.2} s, page {page:.2} s, {:.2} MB", size as f64 / 1e6);
    }
    Ok(())
}

/// Makes the record of a day.
fn make(folder: &Path, day: i64, rounds: i64) -> Result<()> {
    let path = folder.join(format!("{day:04}.tare"));
    if day % COPIES == 0 {
        let (rounds, seed, file) =
            (rounds.to_string(), day.to_string(), path.display().to_string());
        run(folder, &["weigh", "fake", "--rounds", &rounds, "--seed", &seed, "-o", &file])?;
        std::fs::remove_file(path.with_extension("html"))?;
    } else {
        std::fs::copy(folder.join(format!("{:04}.tare", day / COPIES * COPIES)), &path)?;
    }
    let record = Connection::open(&path)?;
    record.pragma_update(None, "synchronous", "OFF")?;
    let sql = "UPDATE record SET started_unix_ms = started_unix_ms + ?, seed = ?";
    record.execute(
        sql,
        params![day % COPIES * DAY_MS + day / COPIES * COPIES * DAY_MS, day.to_string()],
    )?;
    let kernel = format!("6.{}.0", day / 90);
    record.execute("INSERT INTO host_facts VALUES ('kernel', 'release', ?)", [kernel])?;
    let mut rng = Rng::new(u64::try_from(day)?);
    let environments: i64 =
        record.query_row("SELECT COUNT(*) FROM environments", [], |row| row.get(0))?;
    for environment in 0..environments {
        let factor = 1.0 + 0.01 * rng.normal();
        let sql = "UPDATE slices SET system_cpu_ns = CAST(system_cpu_ns * ?1 AS INTEGER), \
                   busy_ns = CAST(busy_ns * ?1 AS INTEGER) \
                   WHERE environment = ?2";
        record.execute(sql, params![factor, environment])?;
    }
    Ok(())
}

/// Runs the program and returns the time in seconds.
fn run(folder: &Path, arguments: &[&str]) -> Result<f64> {
    let started = Instant::now();
    let output =
        Command::new(env!("CARGO_BIN_EXE_tare")).args(arguments).current_dir(folder).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(started.elapsed().as_secs_f64())
}
