//! `cargo bench -p tare --bench database -- PART [SIZE MiB] [SECONDS] [program=PROGRAM]`
//!
//! Measures `tare db` with data larger than its memory, on the disk of the build directory. Every
//! part prints its raw figures first. The parts are:
//!
//! - `reads`: uncached random reads of one row, compared with fio on the same file system, in
//!   interleaved rounds.
//! - `compact`: latency of reads with and without compactions under way.
//! - `inserts`: throughput over time while tables are flushed and compacted, stalls, write
//!   amplification, resident set. In place of SECONDS it takes the server's `--memory`.
//! - `sustained`: inserts at 80 % of capacity for SECONDS / 60 minutes: throughput, latency and
//!   write amplification of every minute.
//! - `start`: start-up time when empty, after `kill -9` with a commit log of 1.5 GB, and with
//!   tables of 10 GB. SIZE is that of the rows in each.
//! - `shards`: CPU time per operation of two shards against one.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

mod compact;
mod inserts;
mod reads;
mod server;
mod shards;
mod start;
mod sustained;
#[path = "../tiny/mod.rs"]
mod tiny;

/// Size of the data in a test.
const TINY_MIB: u64 = 8;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let (words, tiny) = tiny::words();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    match words.first().map(String::as_str) {
        Some("reads") => reads::run(number(1).unwrap_or(1280), number(2).unwrap_or(3)),
        Some("compact") => compact::run(number(1).unwrap_or(1280), number(2).unwrap_or(5)),
        Some("inserts") => {
            let memory = words.get(2).map_or(inserts::MEMORY, |word| word);
            inserts::run(number(1).unwrap_or(10_240), memory)
        }
        Some("sustained") => sustained::run(number(2).unwrap_or(1_800) / 60),
        Some("start") => start::run(
            number(1).unwrap_or(start::LOG_ROWS_MIB),
            number(1).unwrap_or(start::TABLE_ROWS_MIB),
        ),
        Some("shards") => shards::run(number(2).unwrap_or(3)),
        None if tiny => {
            reads::run(TINY_MIB, 1)?;
            compact::run(TINY_MIB, 1)?;
            inserts::run(TINY_MIB, inserts::MEMORY)?;
            sustained::run(2)?;
            start::run(TINY_MIB, TINY_MIB)?;
            shards::run(1)
        }
        _ => {
            println!(
                "skipped: database: name a part: reads, compact, inserts, sustained, start or shards"
            );
            Ok(())
        }
    }
}

/// Returns the rounds of a part: two in a test, because an interval needs two.
fn rounds(wanted: usize) -> usize {
    if tiny::words().1 { 2 } else { wanted }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
