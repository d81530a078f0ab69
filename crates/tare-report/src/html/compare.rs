//! A comparison of records as one self-contained page, in the style of a record's page.

use minijinja::Value;
use serde::Serialize;
use tare_lab::analysis::{Cost, Interval};

use super::charts::COLOURS;
use super::document::{self, Document};
use super::svg::{Scale, Shape, Svg, TextAnchor, swatch};
use crate::compare::{
    Comparison, ComparisonTable, CostRow, Figures, METHOD, letter, money, sentences, tables,
};
use crate::figures::{clean, interval_or_noise, percent, rate, shorten, with_interval};
use crate::headline::{Metric, capital, cost_title, extent, headline};

/// Pixels of a row's label, of one record's lane in it, and of the axis below.
const LABEL: f64 = 20.0;
const LANE: f64 = 15.0;
const AXIS: f64 = 36.0;

/// The page of a comparison.
pub fn comparison(comparison: &Comparison<'_>) -> String {
    document::render("compare.html", View::new(comparison))
}

#[derive(Serialize)]
struct View {
    document: Document,
    records: Vec<RecordView>,
    found: Vec<String>,
    warnings: Vec<String>,
    charts: Vec<ChartView>,
    sheets: Vec<TableView>,
    method: &'static str,
    letters: Vec<String>,
    differing: Vec<FactView>,
    equal: Vec<FactView>,
    only: Vec<(String, Vec<bool>)>,
    version: &'static str,
}

#[derive(Serialize)]
struct RecordView {
    swatch: Value,
    letter: String,
    name: String,
    place: String,
    headline: String,
}

#[derive(Serialize)]
struct ChartView {
    title: String,
    note: &'static str,
    svg: Value,
}

#[derive(Serialize)]
struct TableView {
    title: String,
    head: Vec<String>,
    words: usize,
    /// Text and class of each cell.
    rows: Vec<Vec<(String, &'static str)>>,
}

#[derive(Serialize)]
struct FactView {
    name: String,
    values: Vec<String>,
}

impl View {
    fn new(of: &Comparison<'_>) -> View {
        let fact = |fact: &crate::compare::Fact| FactView {
            name: clean(&format!("{}, {}", fact.section, fact.key)),
            values: fact
                .values
                .iter()
                .map(|v| v.as_deref().map_or_else(|| "\u{2013}".to_string(), clean))
                .collect(),
        };
        let letters: Vec<String> = (0..of.sides.len()).map(letter).collect();
        let title = format!("{} records compared", of.sides.len());
        View {
            document: Document::new(title, env!("CARGO_PKG_VERSION").to_string(), &[]),
            records: (0..of.sides.len()).map(|at| RecordView::new(of, at)).collect(),
            found: sentences(of),
            warnings: of.warnings.iter().map(|warning| capital(&clean(&warning.text))).collect(),
            charts: charts(of),
            sheets: tables(of).iter().map(TableView::new).collect(),
            method: METHOD,
            letters,
            differing: of.differing.iter().map(fact).collect(),
            equal: of.equal.iter().map(fact).collect(),
            only: of.only_in_some.iter().map(|(name, has)| (clean(name), has.clone())).collect(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

impl RecordView {
    fn new(of: &Comparison<'_>, at: usize) -> RecordView {
        let side = &of.sides[at];
        RecordView {
            swatch: Value::from_safe_string(swatch(Shape::nth(at), colour(at))),
            letter: letter(at),
            name: clean(side.name),
            place: clean(&of.place(at)),
            headline: headline(side.record, side.analysis).replace(" %", "\u{a0}%"),
        }
    }
}

impl TableView {
    fn new(sheet: &ComparisonTable) -> TableView {
        let cell = |(at, entry): (usize, &crate::compare::Entry)| {
            let class = match (at < sheet.words, entry.claimed) {
                (true, _) => "text",
                (false, true) => "differs",
                (false, false) => "",
            };
            (clean(&entry.text), class)
        };
        TableView {
            title: clean(&sheet.title),
            head: sheet.head.iter().map(|text| clean(text)).collect(),
            words: sheet.words,
            rows: sheet.rows.iter().map(|row| row.iter().enumerate().map(cell).collect()).collect(),
        }
    }
}

fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

fn charts(of: &Comparison<'_>) -> Vec<ChartView> {
    let mut workloads: Vec<&str> = of.figures.iter().map(|row| row.workload).collect();
    workloads.dedup();
    let mut charts = Vec::new();
    for (at, workload) in workloads.into_iter().enumerate() {
        for metric in Metric::ALL {
            charts.extend(costs(of, workload, metric, at));
        }
        charts.extend(bars(
            of,
            workload,
            &format!("per-cpu-{at}"),
            "Operations/s per CPU of the system",
            "op/s per CPU",
            |f| f.throughput_per_s_per_cpu,
        ));
        let unit = format!("operations per {}", money(of));
        let title = format!("Operations per {}", money(of));
        charts.extend(bars(of, workload, &format!("per-money-{at}"), &title, &unit, |f| {
            f.operations_per_money
        }));
    }
    charts
}

/// A chart with one row per environment and one lane per record.
struct ChartRows {
    svg: Svg,
    scale: Scale,
    records: usize,
    row: usize,
}

impl ChartRows {
    fn new(
        id: &str,
        title: &str,
        texts: &[String],
        scale: Scale,
        rows: usize,
        records: usize,
    ) -> ChartRows {
        let height = count(rows) * (LABEL + count(records) * LANE) + AXIS;
        let description =
            format!("One row per environment, one mark per record. {}", texts.join(". "));
        ChartRows { svg: Svg::new(id, height, title, &clean(&description)), scale, records, row: 0 }
    }

    fn axis(&mut self, rows: usize, form: &dyn Fn(f64) -> String, unit: &str) {
        let bottom = count(rows) * (LABEL + count(self.records) * LANE);
        for tick in self.scale.ticks(4) {
            let x = self.scale.x(tick);
            self.svg.line(x, 0.0, x, bottom, if tick == 0.0 { "zero" } else { "grid" });
            self.svg.text(x, bottom + 14.0, TextAnchor::Middle, "tick", &form(tick));
        }
        self.svg.text(100.0, bottom + 31.0, TextAnchor::End, "tick", unit);
    }

    /// Starts a row and returns the y of its first lane.
    fn label(&mut self, text: &str) -> f64 {
        let top = count(self.row) * (LABEL + count(self.records) * LANE);
        self.row += 1;
        self.svg.text(0.0, top + 15.0, TextAnchor::Start, "label", &shorten(&clean(text), 40));
        top + LABEL + LANE / 2.0
    }

    fn interval(&mut self, interval: &Interval, y: f64, at: usize) {
        if interval.is_bounded() {
            let (from, to) = (self.scale.x(interval.low), self.scale.x(interval.high));
            self.svg.line(from, y, to, y, &format!("interval {}", colour(at)));
            for end in [from, to] {
                self.svg.line(end, y - 4.0, end, y + 4.0, &format!("end {}", colour(at)));
            }
        }
    }
}

/// Draws the dot and interval of each record's cost.
fn costs(of: &Comparison<'_>, workload: &str, metric: Metric, id: usize) -> Option<ChartView> {
    let rows: Vec<_> =
        of.costs.iter().filter(|row| row.metric == metric && row.workload == workload).collect();
    rows.first()?;
    let known = || rows.iter().flat_map(|row| row.costs.iter().copied().flatten());
    let known = || known().filter(|cost: &&Cost| cost.percent.value.is_finite());
    let (low, high) = extent(known(), std::iter::empty());
    let (name, unit) = match metric {
        Metric::ServerCpu => ("cpu", "% more CPU per operation than its own baseline"),
        Metric::Throughput => ("lost", "% of its own baseline's throughput lost"),
    };
    let title = cost_title(metric);
    let each = |row: &CostRow<'_>, at: usize, cost: &Cost| {
        format!("{} {}", letter(at), interval_or_noise(cost, row.verdicts[at]))
    };
    let texts: Vec<String> = rows
        .iter()
        .map(|row| {
            let records = row.costs.iter().enumerate();
            let each: Vec<String> =
                records.filter_map(|(at, cost)| Some(each(row, at, (*cost)?))).collect();
            format!("{}: {}", row.environment, each.join(", "))
        })
        .collect();
    let id = format!("{name}-{id}");
    let mut chart =
        ChartRows::new(&id, title, &texts, Scale::linear(low, high), rows.len(), of.sides.len());
    chart.axis(rows.len(), &|tick| format!("{}\u{202f}%", percent(tick).replace(".0", "")), unit);
    for row in rows {
        let top = chart.label(row.environment);
        for (at, cost) in row.costs.iter().enumerate() {
            let Some(cost) = cost.filter(|cost| cost.percent.value.is_finite()) else { continue };
            let y = top + count(at) * LANE;
            chart.interval(&cost.percent, y, at);
            let (x, text) = (chart.scale.x(cost.percent.value), each(row, at, cost));
            chart.svg.mark(x, y, Shape::nth(at), 4.5, colour(at), &text);
        }
    }
    Some(ChartView {
        title: format!("{title}: {}", clean(workload)),
        note: "Each against its own record's baseline, with its 95\u{a0}% interval.",
        svg: Value::from_safe_string(chart.svg.finish()),
    })
}

/// Draws a bar with its interval for each record.
fn bars(
    of: &Comparison<'_>,
    workload: &str,
    id: &str,
    title: &str,
    unit: &str,
    figure: impl Fn(&Figures) -> Option<Interval>,
) -> Option<ChartView> {
    let rows: Vec<_> =
        of.figures.iter().filter(|row| row.workload == workload && !row.control).collect();
    let value = |figures: &Option<Figures>| figures.as_ref().and_then(&figure);
    let all = rows.iter().flat_map(|row| row.records.iter().filter_map(value));
    let most = all
        .flat_map(|i| [i.value, if i.is_bounded() { i.high } else { i.value }])
        .filter(|x| x.is_finite())
        .fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let each = |at: usize, i: &Interval| format!("{} {}", letter(at), with_interval(i, rate));
    let texts: Vec<String> = rows
        .iter()
        .map(|row| {
            let records = row.records.iter().enumerate();
            let each: Vec<String> =
                records.filter_map(|(at, f)| Some(each(at, &value(f)?))).collect();
            format!("{}: {}", row.environment, each.join(", "))
        })
        .collect();
    let mut chart =
        ChartRows::new(id, title, &texts, Scale::linear(0.0, most), rows.len(), of.sides.len());
    chart.axis(rows.len(), &rate, unit);
    for row in rows {
        let top = chart.label(row.environment);
        for (at, figures) in row.records.iter().enumerate() {
            let Some(interval) = value(figures) else { continue };
            let y = top + count(at) * LANE;
            let (from, to) = (chart.scale.x(0.0), chart.scale.x(interval.value));
            let class = format!("dot {}", colour(at));
            chart.svg.rect(from, y - 5.0, to - from, 10.0, &class, &each(at, &interval));
            chart.interval(&interval, y, at);
        }
    }
    Some(ChartView {
        title: format!("{title}: {}", clean(workload)),
        note: "At capacity, closed loop, with its 95\u{a0}% interval over the rounds of its own run.",
        svg: Value::from_safe_string(chart.svg.finish()),
    })
}

#[expect(clippy::cast_precision_loss, reason = "rows and records of a chart")]
fn count(number: usize) -> f64 {
    number as f64
}
