//! Writes the counters in the text format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write;

use tare_std::prometheus::Exposition;

use super::{BUCKETS, FIELDS, Metrics, Operation, bound_us};

/// Facts about the server as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerInfo {
    pub version: String,
    /// The I/O engine: `io_uring` or `epoll`.
    pub io_engine: String,
    /// Bytes of the process that are in memory.
    pub resident_bytes: u64,
    /// Bytes of `--memory`.
    pub memory_bytes: u64,
}

/// Name and help of the histograms of latencies.
const LATENCY: (&str, &str) = (
    "tare_db_latency_seconds",
    "Time from the start of the loop iteration that takes a request to the end of the iteration that answers it, on the shard that owns the row",
);
/// Gauges of the whole process: name, help.
const PROCESS: [(&str, &str); 3] = [
    ("tare_db_info", "Version and I/O engine of the server; always 1"),
    ("tare_db_resident_bytes", "Resident bytes of the process"),
    ("tare_db_memory_bytes", "Bytes of memory that --memory gives to all shards together"),
];

/// Writes all metrics.
pub fn render(about: &ServerInfo, metrics: &Metrics) -> String {
    let mut out = Exposition::default();
    let [info, resident, memory] = PROCESS;
    out.family(info.0, "gauge", info.1);
    out.sample(&[("version", &about.version), ("io_engine", &about.io_engine)], 1);
    for ((name, help), bytes) in [(resident, about.resident_bytes), (memory, about.memory_bytes)] {
        out.family(name, "gauge", help);
        out.sample(&[], bytes);
    }
    let accounts: Vec<_> = metrics.shards.iter().map(|account| account.to_words()).collect();
    for (index, field) in FIELDS.iter().enumerate() {
        out.family(&field.full_name(), field.type_name(), field.help);
        for (shard, account) in accounts.iter().enumerate() {
            out.sample(&[("shard", &shard.to_string())], field.value(account[index]));
        }
    }
    out.family(LATENCY.0, "histogram", LATENCY.1);
    for (shard, histograms) in metrics.latencies.iter().enumerate() {
        let shard = shard.to_string();
        for (operation, histogram) in Operation::ALL.iter().zip(histograms) {
            let labels = [("shard", shard.as_str()), ("operation", operation.name())];
            let mut bucket = |bound: &str, count: u64| {
                let [shard, operation] = labels;
                out.sample_of("_bucket", &[shard, operation, ("le", bound)], count);
            };
            let mut below = 0;
            for (index, count) in histogram.counts.iter().take(BUCKETS).enumerate() {
                below += count;
                bucket(&(bound_us(index) as f64 / 1e6).to_string(), below);
            }
            let all = histogram.count();
            bucket("+Inf", all);
            out.sample_of("_sum", &labels, histogram.sum_ns as f64 / 1e9);
            out.sample_of("_count", &labels, all);
        }
    }
    out.text()
}

/// The page of the reference that lists all metrics.
pub fn page() -> String {
    let mut out = String::from(PAGE_HEAD);
    let mut row = |name: &str, kind: &str, help: &str| {
        // A pipe would end the cell.
        let help = help.replace('|', "\\|");
        let _ = writeln!(out, "| `{name}` | {kind} | {help} |");
    };
    for (name, help) in PROCESS {
        row(name, "gauge", help);
    }
    for field in FIELDS {
        row(&field.full_name(), field.type_name(), field.help);
    }
    row(LATENCY.0, "histogram", LATENCY.1);
    out
}

const PAGE_HEAD: &str = "\
# Metrics of the reference database

*A test generates this page from the program's list (`SNAPSHOTS=overwrite cargo test -p tare-db metrics`).*

`tare db --metrics ADDRESS:PORT` serves these metrics over HTTP at `/metrics`, in the text format of Prometheus. There
is no authentication, so the address must be a loopback address unless `--insecure` is given. All metrics except the
first three have the label `shard`; the histogram also has `operation` (`read`, `write`).

The file `metrics` of the data directory has the same counters in shared memory, where `tare weigh` reads them
without disturbing the server.

| metric | type | meaning |
|---|---|---|
";
