//! The tables of a comparison as text, for the terminal, Markdown and the page.

use tare_lab::analysis::{Cost, Interval};
use tare_stats::law::Verdict;

use tare_std::units::significant;

use super::resources::GIB;
use super::{Comparison, CostRow, Difference, Figures, MachineResources, Ratio, letter};
use crate::bandwidth;
use crate::figures::{CostFormat, cost, latency, micros, rate, with_interval};
use crate::headline::{Metric, cost_title};
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

/// The machines, costs by each metric, the figures of each machine by workload, and what the layers
/// keep.
pub(crate) fn tables(comparison: &Comparison<'_>) -> Vec<ComparisonTable> {
    let costs = Metric::ALL.into_iter().filter_map(|metric| costs(comparison, metric));
    let mut workloads: Vec<&str> = comparison.figures.iter().map(|row| row.workload).collect();
    workloads.dedup();
    let figures = workloads.iter().flat_map(|workload| {
        disk(comparison, workload).into_iter().chain(figures(comparison, workload))
    });
    let kept = workloads.iter().filter_map(|workload| kept(comparison, workload));
    std::iter::once(machines(comparison)).chain(costs).chain(figures).chain(kept).collect()
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
        title: cost_title(metric).to_string(),
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

/// CPUs, memory and price of each machine.
fn machines(comparison: &Comparison<'_>) -> ComparisonTable {
    let priced = comparison.prices.iter().any(Option::is_some);
    let mut head = vec!["record", "CPUs", "of the system", "for interrupts", "memory"];
    if priced {
        head.extend(["per h", "per CPU and h", "per GiB and h"]);
    }
    let row = |(at, machine): (usize, &MachineResources)| {
        let price = comparison.prices[at].as_ref();
        let money = |value: Option<f64>| {
            let unit = price.map_or("", |price| price.currency.as_str());
            let text = value.map(|value| format!("{} {unit}", significant(value, 3)));
            text.map_or_else(Entry::missing, |text| Entry::plain(text.trim_end()))
        };
        let mut row = vec![
            Entry::plain(letter(at)),
            Entry::plain(machine.cpus.to_string()),
            Entry::plain(machine.system_cpus.to_string()),
            Entry::plain(machine.interrupt_cpus.to_string()),
            machine.memory_bytes.map_or_else(Entry::missing, |bytes| Entry::plain(memory(bytes))),
        ];
        if priced {
            row.push(money(machine.price_per_hour));
            row.push(money(machine.price_per_cpu_hour));
            row.push(money(machine.price_per_gib_hour));
        }
        row
    };
    ComparisonTable {
        title: "Machines".to_string(),
        head: head.into_iter().map(String::from).collect(),
        rows: comparison.machines.iter().enumerate().map(row).collect(),
        words: 1,
    }
}

/// Operations, bandwidth and latency of loads whose operations have one size.
fn disk(comparison: &Comparison<'_>, workload: &str) -> Option<ComparisonTable> {
    let rows = || comparison.figures.iter().filter(|row| row.workload == workload);
    let sized = |figures: &Figures| figures.bandwidth_bytes_per_s.is_some();
    rows().flat_map(|row| &row.records).flatten().find(|figures| sized(figures))?;
    let columns = ["op/s [95 %]", "bandwidth [95 %]", "vs A", "p99 at capacity"];
    let head = ["environment", "record"].into_iter().chain(columns).map(String::from).collect();
    let mut lines = Vec::new();
    for row in rows() {
        for (at, figures) in row.records.iter().enumerate() {
            let Some(figures) = figures else { continue };
            let waited = figures.closed_loop_p99_ns;
            lines.push(vec![
                Entry::plain(name(row.environment, workload, false, row.control)),
                Entry::plain(letter(at)),
                interval(&figures.throughput_per_s, rate),
                interval(&figures.bandwidth_bytes_per_s, bandwidth::text),
                ratio(&figures.throughput_vs_first),
                waited.map_or_else(Entry::missing, |ns| Entry::plain(latency(ns))),
            ]);
        }
    }
    Some(ComparisonTable { title: format!("Disk: {workload}"), head, rows: lines, words: 2 })
}

/// What the layers keep of the machines; `None` if no layer keeps anything under this workload.
fn kept(comparison: &Comparison<'_>, workload: &str) -> Option<ComparisonTable> {
    let priced = comparison.prices.iter().any(Option::is_some);
    let mut head = vec![
        "environment".to_string(),
        "record".to_string(),
        "CPUs at capacity [95 %]".to_string(),
        "memory".to_string(),
        "of the machine".to_string(),
    ];
    if priced {
        head.push(format!("{} per h", money(comparison)));
    }
    let mut rows = Vec::new();
    for row in comparison.kept.iter().filter(|row| row.workload == workload) {
        for (at, kept) in row.records.iter().enumerate() {
            let Some(kept) = kept else { continue };
            let digits = |value: f64| significant(value, 3);
            let mut cells = vec![
                Entry::plain(row.environment),
                Entry::plain(letter(at)),
                interval(&kept.layer_cpus, digits),
                kept.memory_bytes.map_or_else(Entry::missing, |bytes| Entry::plain(memory(bytes))),
                Entry::plain(format!("{:.1} %", kept.share * 100.0)),
            ];
            if priced {
                cells.push(
                    kept.money_per_hour
                        .map_or_else(Entry::missing, |money| Entry::plain(significant(money, 3))),
                );
            }
            rows.push(cells);
        }
    }
    let title = format!("Kept by the layers: {workload}");
    (!rows.is_empty()).then_some(ComparisonTable { title, head, rows, words: 2 })
}

/// `24.7 GiB`.
fn memory(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let bytes = bytes as f64;
    match bytes >= GIB {
        true => format!("{} GiB", significant(bytes / GIB, 3)),
        false => format!("{} MiB", significant(bytes / GIB * 1024.0, 3)),
    }
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
