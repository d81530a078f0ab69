//! A comparison as CSV: one line per figure and record, ready to pivot in a spreadsheet.

use tare_lab::analysis::{Cost, Interval};
use tare_stats::law::Verdict;

use super::{Comparison, Ratio};
use crate::csv_table::CsvTable;
use crate::headline::Metric;

const COLUMNS: [&str; 12] = [
    "record",
    "name",
    "workload",
    "environment",
    "figure",
    "unit",
    "value",
    "low",
    "high",
    "blocks",
    "found",
    "verdict",
];

/// Figures, costs and differences, a header line first. Lines end in CR LF; a missing bound is
/// empty. `found`: the interval excludes no difference; `verdict`: a `tare_stats::law::Verdict`.
pub fn csv(comparison: &Comparison<'_>) -> String {
    let mut table = CsvTable::new(COLUMNS);
    let mut add = |at: usize,
                   place: (&str, &str),
                   figure: &str,
                   unit: &str,
                   i: &Interval,
                   found: Option<bool>,
                   verdict: Option<Verdict>| {
        let number = |x: f64| if x.is_finite() { x.to_string() } else { String::new() };
        let fields = [
            super::letter(at),
            comparison.sides[at].name.to_string(),
            place.0.to_string(),
            place.1.to_string(),
            figure.to_string(),
            unit.to_string(),
            number(i.value),
            number(i.low),
            number(i.high),
            i.rounds.to_string(),
            found.map(|found| found.to_string()).unwrap_or_default(),
            verdict.map(|verdict| verdict.name().to_string()).unwrap_or_default(),
        ];
        table.row(fields);
    };
    for row in &comparison.costs {
        let place = (row.workload, row.environment);
        let (cost_name, difference_name) = match row.metric {
            Metric::ServerCpu => ("server_cpu_cost", "server_cpu_cost_over_first"),
            Metric::Throughput => ("throughput_cost", "throughput_cost_over_first"),
        };
        for (at, own) in row.costs.iter().enumerate() {
            let mut cost = |name: &str, of: &Cost, verdict: Option<Verdict>| {
                add(at, place, name, "percent", &of.percent, Some(of.found), verdict);
            };
            if let Some(own) = own {
                cost(cost_name, own, row.verdicts[at]);
            }
            if let Some(difference) = &row.differences_to_first[at] {
                cost(difference_name, &difference.cost, Some(difference.verdict));
            }
        }
    }
    for row in &comparison.figures {
        let place = (row.workload, row.environment);
        for (at, figures) in row.records.iter().enumerate() {
            let Some(f) = figures else { continue };
            for (name, unit, interval) in [
                ("throughput", "op/s", &f.throughput_per_s),
                ("throughput_per_cpu", "op/s", &f.throughput_per_s_per_cpu),
                ("bandwidth", "B/s", &f.bandwidth_bytes_per_s),
                ("server_cpu", "us/op", &f.server_cpu_us),
                ("operations_per_money", "op", &f.operations_per_money),
                ("p99_over_baseline", "ratio", &f.p99_over_baseline),
            ] {
                if let Some(interval) = interval {
                    add(at, place, name, unit, interval, None, None);
                }
            }
            for (name, ratio) in [
                ("throughput_vs_first", &f.throughput_vs_first),
                ("throughput_per_cpu_vs_first", &f.throughput_per_cpu_vs_first),
                ("server_cpu_vs_first", &f.server_cpu_vs_first),
                ("p99_vs_first", &f.p99_vs_first),
                ("operations_per_money_vs_first", &f.operations_per_money_vs_first),
            ] {
                if let Some(Ratio { interval, found }) = ratio {
                    add(at, place, name, "ratio", interval, Some(*found), None);
                }
            }
            #[expect(clippy::cast_precision_loss, reason = "a latency, far below 2^53 ns")]
            let exact = f.p99_ns.map(|ns| unbounded(ns as f64));
            #[expect(clippy::cast_precision_loss, reason = "a latency, far below 2^53 ns")]
            let closed = f.closed_loop_p99_ns.map(|ns| unbounded(ns as f64));
            for (name, unit, value) in [
                ("p99", "ns", f.p99.or(exact)),
                ("closed_loop_p99", "ns", closed),
                ("rate", "op/s", f.rate_per_s.map(unbounded)),
            ] {
                if let Some(value) = value {
                    add(at, place, name, unit, &value, None, None);
                }
            }
        }
    }
    resources(comparison, &mut add);
    table.finish()
}

/// Adds a line: record, workload and environment, figure, unit, value, found, verdict.
type Add<'a> =
    &'a mut dyn FnMut(usize, (&str, &str), &str, &str, &Interval, Option<bool>, Option<Verdict>);

/// What the machines have and cost, and what the layers keep of it.
#[expect(clippy::cast_precision_loss, reason = "bytes and CPUs of a machine")]
fn resources(comparison: &Comparison<'_>, add: Add<'_>) {
    for (at, machine) in comparison.machines.iter().enumerate() {
        for (name, unit, value) in [
            ("machine_cpus", "CPUs", Some(machine.cpus as f64)),
            ("machine_interrupt_cpus", "CPUs", Some(machine.interrupt_cpus as f64)),
            ("machine_memory", "B", machine.memory_bytes.map(|bytes| bytes as f64)),
            ("price_per_cpu", "money/h", machine.price_per_cpu_hour),
            ("price_per_gib", "money/h", machine.price_per_gib_hour),
        ] {
            if let Some(value) = value {
                add(at, ("", ""), name, unit, &unbounded(value), None, None);
            }
        }
    }
    for row in &comparison.kept {
        let place = (row.workload, row.environment);
        for (at, kept) in row.records.iter().enumerate() {
            let Some(kept) = kept else { continue };
            for (name, unit, value) in [
                ("layer_cpus", "CPUs", kept.layer_cpus),
                ("memory_kept", "B", kept.memory_bytes.map(|bytes| unbounded(bytes as f64))),
                ("share_kept", "share", Some(unbounded(kept.share))),
                ("money_kept", "money/h", kept.money_per_hour.map(unbounded)),
            ] {
                if let Some(value) = value {
                    add(at, place, name, unit, &value, None, None);
                }
            }
        }
    }
}

/// A figure that has no interval.
fn unbounded(value: f64) -> Interval {
    Interval { value, low: f64::NAN, high: f64::NAN, rounds: 0 }
}
