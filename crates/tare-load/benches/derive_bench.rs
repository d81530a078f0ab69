//! What the client spends on an operation besides sending it: deriving key and row, recording a
//! time. Prints ns each; `cargo bench --package tare-load`. Asserts nothing.

use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use tare_lab::study::{KeyDistribution, WorkloadSpec};
use tare_load::histogram;
use tare_load::keys::Operations;
use tare_load::rows::{KeyType, Row, Shape};

fn main() -> io::Result<()> {
    // Without the flag of `cargo bench` this is a test, with tiny inputs.
    let turns = if std::env::args().any(|argument| argument == "--bench") { 3_000_000 } else { 10 };
    let mut out = io::stdout().lock();
    let mut tell = |name: &str, mut one: Box<dyn FnMut(u64)>| {
        let begin = Instant::now();
        (0..turns).for_each(&mut *one);
        let ns = begin.elapsed().as_secs_f64() * 1e9 / turns as f64;
        writeln!(out, "{name}: {ns:.1} ns")
    };
    let Ok(shape) = Shape::new(KeyType::Bigint, 5, 60) else { return Ok(()) };
    let mut bytes = Vec::with_capacity(300);
    tell(
        "row of 5 x 60 bytes",
        Box::new(move |key| {
            bytes.clear();
            let row = Row::new(&shape, 1, key);
            (0..5).for_each(|column| row.write_column(column, &mut bytes));
            black_box(&bytes);
        }),
    )?;
    let gaussian = KeyDistribution::Gaussian { mean_share: 0.5, deviation_share: 1.0 / 6.0 };
    for (name, keys) in [("uniform key", KeyDistribution::Uniform), ("gaussian key", gaussian)] {
        let operations = Operations::new(&workload(keys), 1);
        let derive = move |index| {
            black_box(operations.derive(index));
        };
        tell(name, Box::new(derive))?;
    }
    let mut times = histogram::new();
    tell("recorded time", Box::new(move |n| histogram::record(&mut times, 20_000 + n % 90_000)))
}

fn workload(keys: KeyDistribution) -> WorkloadSpec {
    WorkloadSpec {
        name: "bench".into(),
        write_share: 0.5,
        rows: 1_000_000,
        columns: 5,
        column_bytes: 60,
        keys,
        connections: 8,
        in_flight: 64,
        latency_share: 0.0,
        rate_per_s: None,
        options: Vec::new(),
    }
}
