//! Measures what an operation costs the client besides sending: deriving key and row, comparing a
//! row, recording a time. Prints ns for each; `cargo bench --package tare-load`. Asserts nothing.

use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use tare_load::histogram;
use tare_load::keys::{FORMS, Keys};
use tare_load::rows::{KeyType, Shape};
use tare_load::workload::{Workload, shipped};
use tare_load::{Operations, Part};

fn main() -> io::Result<()> {
    // Without the flag of `cargo bench` this is a test, with tiny inputs.
    let turns = if std::env::args().any(|argument| argument == "--bench") { 3_000_000 } else { 10 };
    let mut out = io::stdout().lock();
    let mut tell = |name: &str, one: &mut dyn FnMut(u64)| {
        let begin = Instant::now();
        (0..turns).for_each(one);
        let ns = begin.elapsed().as_secs_f64() * 1e9 / turns as f64;
        writeln!(out, "{name}: {ns:.1} ns")
    };
    let shape = Shape { key_type: KeyType::Bigint, columns: 5, column_bytes: 60 };
    let Ok(plain) = Workload::plain(shape, 1_000_000, 0.5, Keys::Uniform) else { return Ok(()) };
    let mut rows = vec![("5 x 60 bytes".to_string(), plain.clone())];
    for name in ["mixed", "ycsb-a", "key-value-1024"] {
        let read = shipped::find(name).and_then(|shipped| shipped.read().ok());
        rows.extend(read.map(|workload| (workload.name.clone(), workload)));
    }
    for (name, workload) in &rows {
        let mut bytes = Vec::with_capacity(2_000);
        for version in [0, 1_700_000_000_000_000] {
            let what = if version == 0 { "" } else { ", with a version" };
            tell(&format!("row of {name}{what}"), &mut |row| {
                bytes.clear();
                workload.append_row(1, row, version, &mut bytes);
                black_box(&bytes);
            })?;
        }
        let mut cells = Vec::new();
        workload.append_cells(1, 7, 1_700_000_000_000_000, &mut cells);
        tell(&format!("comparison of a row of {name}"), &mut |_| {
            black_box(workload.is_row(1, 7, black_box(&cells).iter().map(Vec::as_slice)));
        })?;
    }
    for form in FORMS {
        let name = form.split(':').next().unwrap_or(form);
        let Ok(keys) = name.parse::<Keys>() else { continue };
        let mut workload = plain.clone();
        workload.set_keys(keys);
        let operations = Operations::new(&workload, 1, Part::ALL);
        tell(&format!("operation with {name} key"), &mut |index| {
            black_box(operations.row(index));
        })?;
    }
    let mut times = histogram::new();
    tell("recorded time", &mut |n| histogram::record(&mut times, 20_000 + n % 90_000))
}
