//! The shares of an explanation as CSV: one line for each layer, each interaction and the whole.

use tare_lab::ablation::{Plan, Verdict, explain};
use tare_lab::analysis::Interval;
use tare_lab::record::Record;

use crate::csv_table::CsvTable;

const HEAD: [&str; 12] = [
    "workload",
    "kind",
    "name",
    "change",
    "us_per_operation",
    "us_per_operation_low",
    "us_per_operation_high",
    "blocks",
    "percent_of_from",
    "percent_of_whole",
    "verdict",
    "probability",
];

/// The fields of one line other than its interval.
#[derive(Default)]
struct Row<'a> {
    kind: &'static str,
    name: String,
    change: &'a str,
    of_from: Option<f64>,
    of_whole: Option<f64>,
    verdict: &'static str,
    probability: Option<f64>,
}

/// `kind` is `share`, `interaction` or `whole`; the shares of a workload add up to its whole. A
/// missing figure is empty. Lines end in CR LF.
pub fn csv(record: &Record, plan: &Plan) -> String {
    let mut table = CsvTable::new(HEAD);
    for workload in &record.study.workloads {
        let Some(found) = explain(record, plan, &workload.name) else { continue };
        let mut add = |us: &Interval, row: Row<'_>| {
            table.row(fields(&workload.name, us, row));
        };
        for share in &found.shares {
            add(
                &share.us,
                Row {
                    kind: "share",
                    name: share.name.clone(),
                    change: &share.what,
                    of_from: Some(share.percent_of_from),
                    of_whole: share.percent_of_whole,
                    verdict: verdict(share.verdict),
                    ..Row::default()
                },
            );
        }
        for one in &found.interactions {
            add(
                &one.us,
                Row {
                    kind: "interaction",
                    name: format!("{} with {}", one.first, one.second),
                    verdict: if one.named { "named" } else { "not_named" },
                    probability: Some(one.probability),
                    ..Row::default()
                },
            );
        }
        add(
            &found.whole_us,
            Row {
                kind: "whole",
                name: format!("{} against {}", plan.to, plan.from),
                of_from: Some(100.0 * found.whole_us.value / found.from_us.value),
                verdict: verdict(found.whole),
                ..Row::default()
            },
        );
    }
    table.finish()
}

fn fields(workload: &str, us: &Interval, row: Row<'_>) -> [String; 12] {
    let figure = |value: f64| if value.is_finite() { format!("{value:.4}") } else { String::new() };
    let optional = |value: Option<f64>| value.map_or_else(String::new, figure);
    [
        workload.to_string(),
        row.kind.to_string(),
        row.name,
        row.change.to_string(),
        figure(us.value),
        figure(us.low),
        figure(us.high),
        us.rounds.to_string(),
        optional(row.of_from),
        optional(row.of_whole),
        row.verdict.to_string(),
        optional(row.probability),
    ]
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Costs => "costs",
        Verdict::Saves => "gives_back",
        Verdict::WithinNoise => "within_noise",
        Verdict::NotFound => "not_found",
    }
}
