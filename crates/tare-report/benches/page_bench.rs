//! `cargo bench -p tare-report --bench page_bench`
//!
//! The time from a long record to its page: ten hours of 1,000 trials in 50 environments, measured
//! in the lab's fake world. Prints the times of reading the file, the analysis and the page, five
//! times, and the size of the page. The promise is less than 2 s in all, and less than 20 MB. As a
//! test (`cargo test --bench page_bench`) it writes the page of a short record once.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the bench")]

#[path = "../tests/fake_world/mod.rs"]
mod fake_world;

use std::time::{Duration, Instant};

use tare_lab::analysis::analyse;
use tare_lab::fake::spec;
use tare_lab::record::{Record, read_stacks};

/// With the A/A control there are 50 environments; ten rounds of two phases make 1,000 slices.
const GIVEN: usize = 49;
const ROUNDS: u32 = 10;
const WINDOW: Duration = Duration::from_secs(36);

fn main() {
    let tiny = !std::env::args().any(|argument| argument == "--bench");
    let (given, rounds, passes) = if tiny { (3, 2, 1) } else { (GIVEN, ROUNDS, 5) };
    let environment = |number: usize| {
        let ratio = 100 + number;
        let runtime = format!("fake:cpu={}.{:02}", ratio / 100, ratio % 100);
        spec(&format!("variant {number}"), &runtime)
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.tare");
    fake_world::measure(&path, (0..given).map(environment).collect(), rounds, WINDOW);
    let bytes = std::fs::metadata(&path).unwrap().len();
    for pass in 0..passes {
        let started = Instant::now();
        let record = Record::read(&path).unwrap();
        let stacks = read_stacks(&path).unwrap();
        let read = started.elapsed();
        let analysis = analyse(&record);
        let analysed = started.elapsed();
        let page = tare_report::html::page(&record, &analysis, &stacks);
        let drawn = started.elapsed();
        if pass == 0 {
            println!(
                "{} slices in {} environments, {bytes} bytes of record, {} bytes of page",
                record.slices.len(),
                record.environments.len(),
                page.len()
            );
        }
        println!(
            "{:.3} s: read {:.3} s, analysis {:.3} s, page {:.3} s",
            drawn.as_secs_f64(),
            read.as_secs_f64(),
            (analysed - read).as_secs_f64(),
            (drawn - analysed).as_secs_f64()
        );
    }
}
