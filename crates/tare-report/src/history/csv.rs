//! A history in the form of CSV that Apache Otava imports: a row per record, a column of time,
//! columns of text (Otava's attributes) and columns of numbers (its metrics).
//!
//! A metric is a ratio to the baseline, 1.05 for 5 % more CPU per operation, because Otava compares
//! means as percentages of each other, which says nothing about costs near 0. A record without the
//! metric has `nan`, which Otava reads as a number.

use super::{Figure, Group, History};
use crate::csv_table::CsvTable;

const ATTRIBUTES: [&str; 7] = ["record", "study", "host", "tare", "kernel", "versions", "tuning"];

/// The history as CSV, a header line first. Lines end in CR LF. Times are as Otava's own examples
/// write them: `2026.11.21 02:49:58 +0000`.
pub fn csv(history: &History) -> String {
    let mut metrics: Vec<String> = Vec::new();
    for series in history.groups.iter().flat_map(Group::all_series) {
        let name = name(&series.workload, &series.environment, series.metric);
        if !metrics.contains(&name) {
            metrics.push(name);
        }
    }
    let head = ["time"].into_iter().chain(ATTRIBUTES);
    let mut table = CsvTable::new(head.chain(metrics.iter().map(String::as_str)));
    for group in &history.groups {
        for (at, record) in group.records.iter().enumerate() {
            let versions: Vec<String> =
                record.versions.iter().map(|(key, value)| format!("{key}: {value}")).collect();
            let mut row = vec![
                time(record.started_unix_ms),
                record.name.clone(),
                record.study.clone(),
                record.host.clone().unwrap_or_default(),
                record.tare_version.clone(),
                record.kernel.clone().unwrap_or_default(),
                versions.join("; "),
                record.tuning.clone(),
            ];
            row.extend(metrics.iter().map(|metric| {
                let series = group
                    .all_series()
                    .find(|one| name(&one.workload, &one.environment, one.metric) == *metric);
                let cost = series.and_then(|series| series.costs.get(at)?.as_ref());
                let ratio = series.zip(cost).map(|(series, cost)| match series.metric {
                    Figure::Throughput => 1.0 - cost.cost.percent.value / 100.0,
                    _ => 1.0 + cost.cost.percent.value / 100.0,
                });
                ratio.map_or_else(|| "nan".to_string(), |ratio| format!("{ratio:.6}"))
            }));
            table.row(row);
        }
    }
    table.finish()
}

fn name(workload: &str, environment: &str, metric: Figure) -> String {
    format!("{workload}/{environment}/{}_ratio", metric.name())
}

fn time(unix_ms: u64) -> String {
    crate::figures::utc(unix_ms).replace('-', ".").replace(" UTC", " +0000")
}
