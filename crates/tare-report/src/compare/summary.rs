//! The findings of a comparison in sentences.
//!
//! A difference is claimed only if its interval excludes 0 and it is beyond the noise of both A/A
//! controls. For each later record and metric the largest claimed difference is named, or else the
//! largest difference that could have been missed. With prices, operations per unit of money in the
//! baseline are compared.

use super::{Comparison, CostRow, Difference, FiguresRow, letter};
use crate::figures::{clean, percent_interval};
use crate::headline::Metric;

pub(crate) fn sentences(comparison: &Comparison<'_>) -> Vec<String> {
    let mut sentences = Vec::new();
    for at in 1..comparison.sides.len() {
        for metric in Metric::ALL {
            sentences.extend(of_metric(comparison, at, metric));
        }
        sentences.extend(
            comparison
                .figures
                .iter()
                .filter(|row| row.baseline)
                .filter_map(|row| of_money(row, at)),
        );
    }
    sentences
}

fn of_metric(comparison: &Comparison<'_>, at: usize, metric: Metric) -> Option<String> {
    let rows = comparison.costs.iter().filter(|row| row.metric == metric && !row.control);
    let differences: Vec<(&CostRow<'_>, &Difference)> =
        rows.filter_map(|row| Some((row, row.differences_to_first[at].as_ref()?))).collect();
    let size = |d: &Difference| d.cost.percent.value.abs();
    let claims = differences.iter().filter(|(_, d)| d.claimed());
    let count = claims.clone().count();
    let what = metric.of_what();
    let (name, all) = (letter(at), differences.len());
    if let Some((row, difference)) = claims.max_by(|a, b| size(a.1).total_cmp(&size(b.1))) {
        return Some(format!(
            "{name} against A, cost in {what}: {count} of {all} differ, most that of \"{}\" ({}): {}",
            clean(row.environment),
            clean(row.workload),
            percent_interval(&difference.cost.percent)
        ));
    }
    let within = differences.iter().map(|(_, d)| d.cost.within_percent).fold(0.0, f64::max);
    match all {
        0 => None,
        _ if !within.is_finite() => {
            Some(format!("{name} against A, cost in {what}: too few rounds to tell"))
        }
        _ => Some(format!(
            "{name} against A, cost in {what}: no difference found (within {within:.1} %)"
        )),
    }
}

fn of_money(row: &FiguresRow<'_>, at: usize) -> Option<String> {
    let ratio = row.records[at].as_ref()?.operations_per_money_vs_first?;
    let interval = ratio.interval;
    let times = format!("{:.2} [{:.2}, {:.2}]", interval.value, interval.low, interval.high);
    let (name, workload) = (letter(at), clean(row.workload));
    Some(match ratio.found {
        true => format!(
            "{name} does {times} times as many operations for the same money as A in the baseline ({workload})"
        ),
        false => format!(
            "no difference found in operations for the same money between {name} and A in the baseline ({workload}): {times} times"
        ),
    })
}
