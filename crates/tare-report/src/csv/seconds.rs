//! The seconds of long windows as CSV, one line per second.

use tare_lab::record::{Record, Slice};

use crate::csv_table::CsvTable;

const COLUMNS: [&str; 16] = [
    "slice",
    "block",
    "environment",
    "workload",
    "phase",
    "void",
    "second",
    "operations",
    "mean_ns",
    "max_ns",
    "reads",
    "read_mean_ns",
    "read_max_ns",
    "writes",
    "write_mean_ns",
    "write_max_ns",
];

/// Every second of every slice that has any, a header line first. Lines end in CR LF. What was not
/// recorded is empty.
pub fn seconds(record: &Record) -> String {
    let mut out = CsvTable::new(COLUMNS);
    for slice in &record.slices {
        let count = slice.seconds.load.len().max(slice.seconds.disks.len());
        (0..count).for_each(|second| out.row(row(slice, second)));
    }
    out.finish()
}

fn row(slice: &Slice, second: usize) -> Vec<String> {
    let load = slice.seconds.load.get(second).map(|one| [one.operations, one.mean_ns, one.max_ns]);
    let disks = slice.seconds.disks.get(second).map(|one| {
        [
            one.reads,
            one.read_mean_ns,
            one.read_max_ns,
            one.writes,
            one.write_mean_ns,
            one.write_max_ns,
        ]
    });
    let mut row = vec![
        slice.id.to_string(),
        slice.round.to_string(),
        slice.environment.clone(),
        slice.workload.clone(),
        slice.phase.name().to_string(),
        slice.void.clone().unwrap_or_default(),
        second.to_string(),
    ];
    row.extend(texts(load));
    row.extend(texts(disks));
    row
}

fn texts<const N: usize>(figures: Option<[u64; N]>) -> [String; N] {
    figures.map_or_else(
        || std::array::from_fn(|_| String::new()),
        |all| all.map(|one| one.to_string()),
    )
}
