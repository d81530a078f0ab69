//! Prints the arithmetic of the headline cost, so that a reader can repeat it.

use std::fmt::Write as _;

use tare_std::units::{significant, thousands};

use super::cells::{Cell, Cells, Series};
use super::{Comparison, Cost, Finding};
use crate::record::{Phase, Record};

/// Returns the lines, or none if nothing can be compared.
pub(super) fn lines(record: &Record, cells: &Cells, findings: &[Finding]) -> Vec<String> {
    headline(findings)
        .map(|finding| of_finding(record, cells, findings, finding))
        .unwrap_or_default()
}

/// Returns the largest cost in server CPU per operation that was found. If none was, returns the
/// first environment of the study that is neither the baseline nor its control.
fn headline(findings: &[Finding]) -> Option<&Finding> {
    let others = || findings.iter().filter(|f| !f.baseline && !f.control && f.cpu_cost().is_some());
    let percent = |finding: &Finding| finding.cpu_cost().map_or(0.0, |cost| cost.percent.value);
    let found = others().filter(|f| f.cpu_cost().is_some_and(|c| c.found && c.percent.value > 0.0));
    found.max_by(|a, b| percent(a).total_cmp(&percent(b))).or_else(|| others().next())
}

fn of_finding(
    record: &Record,
    cells: &Cells,
    findings: &[Finding],
    finding: &Finding,
) -> Vec<String> {
    let baseline = record.study.baseline.as_str();
    let phase = match finding.server_cpu_cost {
        Some(_) => Phase::Capacity,
        None => Phase::Latency,
    };
    let comparison = |phase, environment| {
        Comparison::new(cells, &finding.workload, phase, environment, baseline)
    };
    let here = comparison(phase, &finding.environment);
    let server = |cell: &Cell| cell.server_cpu_us(here.busy);
    let mut lines = Vec::new();
    let time = if here.busy && here.here.polls() { "busy CPU time" } else { "CPU time" };
    let load = match phase {
        Phase::Capacity => "at capacity",
        _ => "at the fixed rate",
    };
    lines.push(format!(
        "{} against {baseline}, {}: server {time} per operation {load}",
        finding.environment, finding.workload
    ));
    if let Some(cost) = finding.cpu_cost() {
        lines.extend(ratio_line(
            &here,
            server,
            |us| format!("{} µs", significant(us, 4)),
            " per operation",
        ));
        lines.push(cost_line(cost));
    }
    lines.extend(parts_line(&finding.environment, here.here, here.busy));
    lines.extend(parts_line(baseline, here.baseline, here.busy));
    if let Some(cost) = &finding.throughput_cost {
        let capacity = comparison(Phase::Capacity, finding.environment.as_str());
        let per_second = |rate: f64| format!("{}/s", whole(rate));
        let line = ratio_line(&capacity, Cell::throughput_per_s, per_second, "");
        lines.extend(line.map(|line| format!("throughput: {line}")));
        lines.push(cost_line(cost));
    }
    let control = findings.iter().find(|f| f.control && f.workload == finding.workload);
    if let Some(control) = control {
        let again = comparison(phase, &control.environment);
        let server = |cell: &Cell| cell.server_cpu_us(again.busy);
        let line = ratio_line(&again, server, |us| format!("{} µs", significant(us, 4)), "");
        lines.extend(line.map(|line| format!("A/A, {}: {line}", control.environment)));
    }
    lines
}

/// Formats `14.82 µs / 11.33 µs = 1.308 per operation (paired over 31 rounds: 1.305; 95 % [1.290,
/// 1.330])`: the quotient of the two figures over the paired rounds, then the estimate from the
/// ratio of each round.
fn ratio_line(
    comparison: &Comparison<'_>,
    figure: impl Fn(&Cell) -> f64 + Copy,
    unit: impl Fn(f64) -> String,
    what: &str,
) -> Option<String> {
    let ratio = comparison.estimate(figure)?.map(f64::exp);
    let level = |side: fn((f64, f64)) -> f64| {
        let pairs = comparison.here.pairs(comparison.baseline);
        let figures = pairs.map(|(here, base)| (side((figure(here), figure(base))), 1.0));
        Some(tare_stats::estimate(&tare_stats::log_ratios(figures))?.centre.exp())
    };
    let (here, base) = (level(|pair| pair.0)?, level(|pair| pair.1)?);
    let mut line = format!("{} / {} = {:.3}{what}", unit(here), unit(base), here / base);
    let rounds = ratio.rounds;
    if ratio.high.is_finite() && ratio.low > 0.0 {
        let _ = write!(
            line,
            " (paired over {rounds} rounds: {:.3}; 95 % [{:.3}, {:.3}])",
            ratio.centre, ratio.low, ratio.high
        );
    } else {
        let _ = write!(line, " (one pair: no interval)");
    }
    Some(line)
}

fn cost_line(cost: &Cost) -> String {
    let percent = cost.percent;
    let bounds = format!("95 % [{:.1}, {:.1}]", percent.low, percent.high);
    match (cost.found, percent.is_bounded()) {
        (_, false) => "cost: unknown after one round".to_string(),
        (true, true) => format!("cost: {:.1} %, {bounds}", percent.value),
        (false, true) => {
            format!("no difference found (within {:.1} %), {bounds}", cost.within_percent)
        }
    }
}

/// Formats `native: 20.11 µs of the system - 8.78 µs idle polling + 2.10 µs userland proxy`. `None`
/// for a single part. The parts are means over all operations of the environment.
fn parts_line(environment: &str, series: &Series, busy: bool) -> Option<String> {
    let layers = series.layers();
    let polls = busy && series.polls();
    if layers.is_empty() && !polls {
        return None;
    }
    let mean = |part: &dyn Fn(&Cell) -> f64| significant(series.mean_per_operation(part), 4);
    let mut line = format!("{environment}: {} µs of the system", mean(&Cell::system_cpu_us));
    if polls {
        let _ = write!(line, " - {} µs idle polling by its own account", mean(&Cell::idle_poll_us));
    }
    for layer in layers {
        let _ = write!(line, " + {} µs {layer}", mean(&|cell| cell.layer_cpu_us(layer)));
    }
    let _ = write!(line, " = {} µs (means)", mean(&|cell| cell.server_cpu_us(busy)));
    Some(line)
}

fn whole(rate: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate of operations"
    )]
    let rate = rate.round() as u64;
    thousands(rate)
}
