//! Writes the counters in the text format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write;

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
    "Time from the begin of the turn in which a request was taken to the end of the turn in which it was answered, on the shard that owns the row",
);
/// Gauges of the whole process: name, help.
const PROCESS: [(&str, &str); 3] = [
    ("tare_db_info", "Version and I/O engine of the server; always 1"),
    ("tare_db_resident_bytes", "Resident bytes of the process"),
    ("tare_db_memory_bytes", "Bytes of memory that --memory gives to all shards together"),
];

/// Writes all metrics.
pub fn render(about: &ServerInfo, metrics: &Metrics) -> String {
    let mut out = String::with_capacity(16 << 10);
    // Writing into a string cannot fail.
    let _ = write(&mut out, about, metrics);
    out
}

fn write(out: &mut String, about: &ServerInfo, metrics: &Metrics) -> std::fmt::Result {
    let [info, resident, memory] = PROCESS;
    let ServerInfo { version, io_engine, resident_bytes, memory_bytes } = about;
    head(out, info, "gauge")?;
    writeln!(out, "{}{{version=\"{version}\",io_engine=\"{io_engine}\"}} 1", info.0)?;
    head(out, resident, "gauge")?;
    writeln!(out, "{} {resident_bytes}", resident.0)?;
    head(out, memory, "gauge")?;
    writeln!(out, "{} {memory_bytes}", memory.0)?;
    let accounts: Vec<_> = metrics.shards.iter().map(|account| account.to_words()).collect();
    for (index, field) in FIELDS.iter().enumerate() {
        let name = field.full_name();
        head(out, (&name, field.help), field.type_name())?;
        for (shard, account) in accounts.iter().enumerate() {
            let value = field.value(account[index]);
            writeln!(out, "{name}{{shard=\"{shard}\"}} {value}")?;
        }
    }
    let name = LATENCY.0;
    head(out, LATENCY, "histogram")?;
    for (shard, histograms) in metrics.latencies.iter().enumerate() {
        for (operation, histogram) in Operation::ALL.iter().zip(histograms) {
            let labels = format!("shard=\"{shard}\",operation=\"{}\"", operation.name());
            let mut below = 0;
            for (bucket, count) in histogram.counts.iter().take(BUCKETS).enumerate() {
                below += count;
                let bound = bound_us(bucket) as f64 / 1e6;
                writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}")?;
            }
            let all = histogram.count();
            writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {all}")?;
            writeln!(out, "{name}_sum{{{labels}}} {}", histogram.sum_ns as f64 / 1e9)?;
            writeln!(out, "{name}_count{{{labels}}} {all}")?;
        }
    }
    Ok(())
}

fn head(out: &mut String, (name, help): (&str, &str), kind: &str) -> std::fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
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

*Written by a test from the program's own list (`SNAPSHOTS=overwrite cargo test -p tare-db metrics`).*

`tare db --metrics ADDRESS:PORT` serves them over HTTP at `/metrics`, in the text format of Prometheus. The
address has to be a loopback one unless `--insecure` is given: there is no authentication. All but the
first three have the label `shard`; the histogram also has `operation` (`read`, `write`).

The same counters are in the file `metrics` of the data directory, as shared memory, where `tare weigh` reads them
without disturbing the server.

| metric | type | what |
|---|---|---|
";
