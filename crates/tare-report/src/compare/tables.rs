//! The tables of a comparison as text, for the terminal, Markdown and the page.

use tare_lab::analysis::{Cost, Interval};
use tare_stats::law::Verdict;

use super::{Comparison, CostRow, Difference, Figures, Ratio, letter};
use crate::figures::{CostFormat, cost, latency, micros, rate, with_interval};
use crate::headline::Metric;
use crate::tails;

/// A table with a title. Every row has as many cells as the heading.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ComparisonTable {
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<Entry>>,
    /// The number of cells from the left that are text, not figures.
    pub(crate) words: usize,
}

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) text: String,
    /// Whether it is a claim: found, and beyond the noise.
    pub(crate) claimed: bool,
}

impl Entry {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), claimed: false }
    }

    fn missing() -> Self {
        Self::plain("-")
    }
}

/// Costs by each metric, then the figures of each machine by workload.
pub(crate) fn tables(comparison: &Comparison<'_>) -> Vec<ComparisonTable> {
    let costs = Metric::ALL.into_iter().filter_map(|metric| costs(comparison, metric));
    let mut workloads: Vec<&str> = comparison.figures.iter().map(|row| row.workload).collect();
    workloads.dedup();
    costs.chain(workloads.into_iter().flat_map(|workload| figures(comparison, workload))).collect()
}

fn costs(comparison: &Comparison<'_>, metric: Metric) -> Option<ComparisonTable> {
    let rows: Vec<&CostRow<'_>> =
        comparison.costs.iter().filter(|row| row.metric == metric).collect();
    let first = rows.first()?;
    let several = rows.iter().any(|row| row.workload != first.workload);
    let records = 0..comparison.sides.len();
    let mut head = vec!["environment".to_string()];
    head.extend(records.clone().map(|index| format!("{} [95 %]", letter(index))));
    head.extend(records.skip(1).map(|index| format!("{} over A [95 %]", letter(index))));
    let row = |row: &&CostRow<'_>| {
        let mut cells =
            vec![Entry::plain(name(row.environment, row.workload, several, row.control))];
        cells.extend(row.costs.iter().zip(&row.verdicts).map(|(c, verdict)| match c {
            Some(c) => judged(c, *verdict),
            None => Entry::missing(),
        }));
        cells.extend(row.differences_to_first.iter().skip(1).map(difference));
        cells
    };
    Some(ComparisonTable {
        title: match metric {
            Metric::ServerCpu => "Cost in server CPU per operation".to_string(),
            Metric::Throughput => "Throughput lost".to_string(),
        },
        head,
        rows: rows.iter().map(row).collect(),
        words: 1,
    })
}

fn name(environment: &str, workload: &str, several: bool, control: bool) -> String {
    let workload = if several { format!(", {workload}") } else { String::new() };
    let control = if control { " (A/A)" } else { "" };
    format!("{environment}{workload}{control}")
}

fn difference(difference: &Option<Difference>) -> Entry {
    match difference {
        None => Entry::missing(),
        Some(d) => judged(&d.cost, Some(d.verdict)),
    }
}

fn judged(of: &Cost, verdict: Option<Verdict>) -> Entry {
    let claimed = verdict.is_some_and(Verdict::is_claim);
    Entry { text: cost(of, verdict, CostFormat::Short), claimed }
}

/// Throughput, response time and CPU time of each machine.
fn figures(comparison: &Comparison<'_>, workload: &str) -> [ComparisonTable; 3] {
    let priced = comparison.prices.iter().any(Option::is_some);
    let words = |heads: &[&str]| heads.iter().map(|head| (*head).to_string()).collect::<Vec<_>>();
    let does = words(&["op/s [95 %]", "op/s per CPU [95 %]", "vs A"]);
    let waits = words(&["p99 at the rate [95 %]", "vs A", "over its own baseline's [95 %]"]);
    let mut takes = words(&["server CPU, µs/op [95 %]", "vs A"]);
    if priced {
        takes.extend([format!("op per {} [95 %]", money(comparison)), "vs A".to_string()]);
    }
    let sheet = |title: &str, columns: Vec<String>, cells: &dyn Fn(&Figures) -> Vec<Entry>| {
        let mut rows = Vec::new();
        for row in comparison.figures.iter().filter(|row| row.workload == workload) {
            let label = name(row.environment, workload, false, row.control);
            for (at, figures) in row.records.iter().enumerate() {
                let Some(figures) = figures else { continue };
                let mut row = vec![Entry::plain(label.clone()), Entry::plain(letter(at))];
                row.extend(cells(figures));
                rows.push(row);
            }
        }
        let head = words(&["environment", "record"]).into_iter().chain(columns).collect();
        ComparisonTable { title: format!("{title}: {workload}"), head, rows, words: 2 }
    };
    [
        sheet("Throughput of each machine", does, &|figures| {
            vec![
                interval(&figures.throughput_per_s, rate),
                interval(&figures.throughput_per_s_per_cpu, rate),
                ratio(&figures.throughput_per_cpu_vs_first),
            ]
        }),
        sheet("Response time", waits, &|figures| {
            let over = figures.p99_over_baseline;
            vec![p99(figures), ratio(&figures.p99_vs_first), interval(&over, tails::factor)]
        }),
        sheet("CPU time", takes, &|figures| {
            let mut cells =
                vec![interval(&figures.server_cpu_us, micros), ratio(&figures.server_cpu_vs_first)];
            if priced {
                cells.push(interval(&figures.operations_per_money, rate));
                cells.push(ratio(&figures.operations_per_money_vs_first));
            }
            cells
        }),
    ]
}

fn p99(figures: &Figures) -> Entry {
    let Some(ns) = figures.p99_ns else { return Entry::missing() };
    let at = figures.rate_per_s.map(|at| format!(" at {}", rate(at))).unwrap_or_default();
    let other = if figures.same_rate_as_first { "" } else { ", another rate" };
    let text = figures.p99.as_ref().map_or_else(|| latency(ns), tails::time);
    Entry::plain(format!("{text}{at}{other}"))
}

fn interval(interval: &Option<Interval>, form: fn(f64) -> String) -> Entry {
    interval.as_ref().map_or_else(Entry::missing, |i| Entry::plain(with_interval(i, form)))
}

/// `1.23× [1.20, 1.26]`.
fn ratio(ratio: &Option<Ratio>) -> Entry {
    let two = |value: f64| format!("{value:.2}");
    ratio.as_ref().map_or_else(Entry::missing, |ratio| Entry {
        text: with_interval(&ratio.interval, two) + "×",
        claimed: ratio.found,
    })
}

/// The currency, if all prices have the same one.
pub(crate) fn money(comparison: &Comparison<'_>) -> String {
    let mut known = comparison.prices.iter().flatten().map(|price| price.currency.as_str());
    let first = known.next().unwrap_or_default();
    if !first.is_empty() && known.all(|other| other == first) {
        first.to_string()
    } else {
        "unit of money".to_string()
    }
}
