//! The cost of each environment: one row with a dot and its interval.

use tare_lab::analysis::claims::verdict;
use tare_lab::analysis::{Analysis, Finding};
use tare_lab::record::Record;
use tare_stats::law::Verdict;

use super::{Rows, Series};
use crate::figures::{CostFormat, cost, has_place, percent, percent_interval, role, shorten};
use crate::headline::{Metric, extent, telling_noise};
use crate::html::svg::{Scale, Shape};
use crate::relations;

/// Height of a lane.
const LANE: f64 = 22.0;

/// The height of a chart of this many environments.
pub(in crate::html) fn costs_height(rows: usize) -> f64 {
    super::as_f64(rows) * (super::LABEL + LANE) + super::AXIS
}

/// Draws the dot and interval of each environment, zero, and the band of the A/A control. Published
/// costs of throughput are hollow diamonds.
pub(in crate::html) fn costs(
    record: &Record,
    analysis: &Analysis,
    series: &[Series<'_>],
    metric: Metric,
    id: &str,
) -> Option<String> {
    let rows: Vec<&Series<'_>> =
        series.iter().filter(|d| metric.cost(d.finding).is_some_and(has_place)).collect();
    let workload = &rows.first()?.finding.workload;
    let noise = telling_noise(analysis, workload, metric);
    let published = |finding: &Finding| {
        let mark = relations::mark(record, &finding.environment, &finding.workload);
        mark.filter(|_| metric == Metric::Throughput)
    };
    let published_costs = rows.iter().filter_map(|d| published(d.finding)).map(|(cost, _)| cost);
    let costs = rows.iter().filter_map(|d| metric.cost(d.finding));
    let (low, high) = extent(costs, noise.into_iter().chain(published_costs));
    let (title, unit, what) = match metric {
        Metric::ServerCpu => (
            "Cost in server CPU per operation",
            "% more CPU per operation than the baseline",
            "server CPU per operation",
        ),
        Metric::Throughput => {
            ("Cost in throughput", "% of the baseline's throughput lost", "throughput lost")
        }
    };
    let mut texts: Vec<String> = Vec::new();
    for row in &rows {
        if let Some(c) = metric.cost(row.finding) {
            let verdict = verdict(analysis, row.finding, metric);
            texts.push(format!("{}: {}", row.name(), cost(c, verdict, CostFormat::Full)));
        }
    }
    let description = format!("One row per environment. {}", texts.join(". "));
    let mut chart =
        Rows::new(id, (title, &description), Scale::linear(low, high), rows.len(), LANE);
    let (bottom, scale) = (chart.bottom(rows.len()), chart.scale);
    if let Some(noise) = noise {
        let (from, to) = (scale.x(-noise), scale.x(noise));
        let text = format!("A/A noise: within {noise:.1} %");
        chart.svg.rect(from, 0.0, to - from, bottom, "band", &text);
    }
    chart.axis(rows.len(), &|tick| format!("{}\u{202f}%", percent(tick).replace(".0", "")), unit);
    for row in rows {
        let finding = row.finding;
        let Some(c) = metric.cost(finding) else { continue };
        let verdict = verdict(analysis, finding, metric);
        let claim = verdict.is_some_and(Verdict::is_claim);
        let class = match (claim, c.percent.value > 0.0) {
            (true, true) => "loss",
            (true, false) => "gain",
            _ => "none",
        };
        let label = match role(finding) {
            Some(role) => format!("{} \u{2013} {role}", shorten(&finding.environment, 20)),
            None => finding.environment.clone(),
        };
        let y = chart.label(&label, &cost(c, verdict, CostFormat::Short));
        row.begin(&mut chart.svg);
        if let Some((other, of)) = published(finding) {
            let text =
                format!("published for another machine: {} % ({})", percent(other), of.source);
            let x = scale.x(other);
            chart.svg.mark(x, y, Shape::Diamond, 6.0, "hollow", &text);
        }
        let interval = c.percent;
        if interval.low.is_finite() && interval.high.is_finite() {
            let (from, to) = (scale.x(interval.low), scale.x(interval.high));
            chart.svg.line(from, y, to, y, &format!("interval {class}"));
            let whole = |end: &f64| *end >= low && *end <= high;
            for end in [interval.low, interval.high].iter().filter(|end| whole(end)) {
                let end = scale.x(*end);
                chart.svg.line(end, y - 5.0, end, y + 5.0, &format!("end {class}"));
            }
        }
        let note = if claim { "" } else { "; not beyond the noise" };
        let text = format!(
            "{} {what}, 95 % interval of {} rounds{note}",
            percent_interval(&interval),
            interval.rounds
        );
        let shape = if finding.control { Shape::Square } else { Shape::Circle };
        chart.svg.mark(scale.x(interval.value), y, shape, 5.0, class, &text);
        chart.svg.end_group();
    }
    Some(chart.svg.finish())
}
