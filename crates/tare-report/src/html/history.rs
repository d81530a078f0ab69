//! The history of records as one self-contained page: a chart of each metric over time, what
//! changed between the records, and a table of all figures.
//!
//! The horizontal axis is the order of the records, not their dates, so that a pause takes no room.
//! Up to [`MARKED`] records each have a mark with its interval; beyond, a series is a line with a
//! band. So a page of 1,000 records stays below 5 MB.

use minijinja::Value;
use serde::Serialize;

use super::charts::{COLOURS, as_f64};
use super::document::{self, Document};
use super::svg::{Scale, Shape, Svg, TextAnchor, swatch};
use crate::figures::{clean, interval_or_noise, percent, shorten};
use crate::headline::capital;
use crate::history::{CostPoint, Group, History, METHOD, Series, facts_text, minute};

/// Most records that have marks with tooltips.
const MARKED: usize = 120;
/// Most sentences above a single group.
const SENTENCES: usize = 3;
/// Most steps that have a number on a chart.
const NUMBERED: usize = 60;
/// Pixels of a chart's plot and of what is above and below it.
const PLOT: f64 = 240.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 22.0;
/// Percent of the width for the labels of the vertical axis.
const LABELS: f64 = 6.0;
/// Characters of a name in a legend or the head of a table.
const NAME: usize = 40;

/// The page of a history.
pub fn history(history: &History) -> String {
    document::render("history.html", View::new(history))
}

#[derive(Serialize)]
struct View {
    document: Document,
    found: Vec<String>,
    groups: Vec<GroupView>,
    unread: Vec<String>,
    copies: Vec<String>,
    method: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
struct GroupView {
    title: String,
    about: String,
    found: Vec<String>,
    charts: Vec<ChartView>,
    /// Number, time, fact, old and new value.
    steps: Vec<[String; 5]>,
    head: Vec<String>,
    rows: Vec<RowView>,
}

#[derive(Serialize)]
struct ChartView {
    title: String,
    note: String,
    legend: Vec<(Value, String)>,
    svg: Value,
}

#[derive(Serialize)]
struct RowView {
    started: String,
    /// Text and class.
    cells: Vec<(String, &'static str)>,
    tare: String,
    kernel: String,
    tuning: String,
    name: String,
}

impl View {
    fn new(of: &History) -> Self {
        let records = of.records();
        let title = format!("{records} record{} over time", if records == 1 { "" } else { "s" });
        let several = of.groups.len() > 1;
        let found = of.groups.iter().flat_map(|group| {
            let sentences = group.sentences().into_iter();
            let shown = sentences.take(if several { 1 } else { SENTENCES });
            let place =
                if several { format!("{}: ", clean(&group.title())) } else { String::new() };
            shown.map(move |sentence| capital(&format!("{place}{sentence}")))
        });
        let copies = of.copies.iter();
        Self {
            document: Document::new(title, env!("CARGO_PKG_VERSION").to_string(), &[]),
            found: found.take(6).collect(),
            groups: of
                .groups
                .iter()
                .enumerate()
                .map(|(at, group)| GroupView::new(at, group, !several && shown_above(group)))
                .collect(),
            unread: of.unreadable.iter().map(|one| clean(&one.reason)).collect(),
            copies: copies
                .map(|(copy, of)| clean(&format!("{copy} is a copy of {of} and counts once")))
                .collect(),
            method: METHOD,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

impl GroupView {
    /// `brief`: the header of the page has all sentences.
    fn new(index: usize, group: &Group, brief: bool) -> Self {
        let numbers = numbers(group);
        let charts = group
            .series
            .chunk_by(|a, b| a.workload == b.workload && a.metric == b.metric)
            .enumerate()
            .filter_map(|(at, all)| chart(group, all, &numbers, &format!("h{index}-{at}")));
        let steps = group.steps.iter().enumerate().flat_map(|(at, facts)| {
            let number = numbers[at];
            let since = minute(group.records[at].started_unix_ms);
            facts.iter().map(move |fact| {
                let value = |value: &Option<String>| {
                    let text = value.as_deref().unwrap_or("\u{2013}");
                    clean(&shorten(text, 200))
                };
                [
                    number.map(|number| number.to_string()).unwrap_or_default(),
                    since.clone(),
                    clean(&format!("{}, {}", fact.section, fact.key)),
                    value(&fact.from),
                    value(&fact.to),
                ]
            })
        });
        let several = group.series.windows(2).any(|pair| pair[0].workload != pair[1].workload);
        let head = group.series.iter().map(|one| {
            let what = one.metric.heading();
            let name = clean(&shorten(&one.environment, NAME));
            let workload =
                if several { format!(" ({})", clean(&one.workload)) } else { String::new() };
            format!("{name}{workload}, {what}")
        });
        Self {
            title: clean(&group.title()),
            about: about(group),
            found: if brief { Vec::new() } else { group.sentences() },
            charts: charts.collect(),
            steps: steps.collect(),
            head: head.collect(),
            rows: (0..group.records.len()).map(|at| row(group, at)).collect(),
        }
    }
}

/// Whether the header of a page has all sentences of its only group.
fn shown_above(group: &Group) -> bool {
    group.claimed().len() <= SENTENCES
}

/// Number and span of the records, and what the newest ran on.
fn about(group: &Group) -> String {
    let (Some(first), Some(newest)) = (group.records.first(), group.records.last()) else {
        return String::new();
    };
    let mut words = vec![
        format!(
            "{} records from {} to {} UTC, against {}",
            group.records.len(),
            minute(first.started_unix_ms),
            minute(newest.started_unix_ms),
            clean(&group.baseline)
        ),
        format!("newest: tare {}", clean(&newest.tare_version)),
    ];
    words.extend(newest.kernel.iter().map(|kernel| format!("kernel {}", clean(kernel))));
    words.extend(newest.versions.iter().map(|(_, version)| clean(&shorten(version, 60))));
    words.push(format!("host {}", clean(&newest.tuning)));
    words.join(", ")
}

/// The number of each step with changed facts.
fn numbers(group: &Group) -> Vec<Option<usize>> {
    let mut count = 0;
    let mut number = |facts: &Vec<_>| {
        (!facts.is_empty()).then(|| {
            count += 1;
            count
        })
    };
    group.steps.iter().map(&mut number).collect()
}

fn row(group: &Group, at: usize) -> RowView {
    let record = &group.records[at];
    let cell = |series: &Series| match &series.costs[at] {
        None => ("\u{2013}".to_string(), "none"),
        Some(point) => {
            let text = interval_or_noise(&point.cost, point.verdict);
            match (series.claimed_change(at), point.is_claimed()) {
                (Some(_), _) => (format!("\u{25cf} {text}"), "differs"),
                (None, true) => (text, ""),
                (None, false) => (text, "none"),
            }
        }
    };
    RowView {
        started: minute(record.started_unix_ms),
        cells: group.series.iter().map(cell).collect(),
        tare: clean(&record.tare_version),
        kernel: record.kernel.as_deref().map(clean).unwrap_or_default(),
        tuning: clean(&record.tuning),
        name: clean(&record.name),
    }
}

/// The horizontal and vertical scales of a chart.
struct Axes {
    x: Scale,
    y: Scale,
}

impl Axes {
    fn x(&self, at: usize) -> f64 {
        self.x.x(as_f64(at))
    }

    fn y(&self, value: f64) -> f64 {
        TOP + PLOT * (1.0 - self.y.share(value))
    }
}

fn chart(group: &Group, all: &[Series], numbers: &[Option<usize>], id: &str) -> Option<ChartView> {
    let first = all.first()?;
    let values = all.iter().flat_map(|one| one.costs.iter().flatten()).flat_map(bounds);
    let (low, high) = values.fold((0.0_f64, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)));
    let margin = (high - low).max(1.0) * 0.04;
    let newest = group.records.len().saturating_sub(1);
    let axes = Axes {
        x: Scale::linear(-0.5, as_f64(newest) + 0.5).after(LABELS),
        y: Scale::linear(low - margin, high + margin),
    };
    let unit = format!("{}, against {}", first.metric.unit(), clean(&group.baseline));
    let title = format!("{}: {}", first.metric.title(), clean(&first.workload));
    let described = all.iter().map(description).collect::<Vec<_>>().join(". ");
    let mut svg = Svg::new(id, TOP + PLOT + BOTTOM, &title, &described);
    frame(&mut svg, &axes, group, numbers);
    for (index, series) in all.iter().enumerate() {
        draw(&mut svg, &axes, group, series, index);
    }
    let legend = all.iter().enumerate().map(|(index, series)| {
        let name = clean(&shorten(&series.environment, NAME));
        let role = if series.control { " (A/A control)" } else { "" };
        let mark = swatch(Shape::nth(index), class(series, index));
        (Value::from_safe_string(mark), format!("{name}{role}"))
    });
    Some(ChartView {
        title,
        note: format!(
            "{unit}, in the order of the records, with 95\u{a0}% intervals. Dashed: a fact changed, by \
             its number below. A ringed mark: the cost changed."
        ),
        legend: legend.collect(),
        svg: Value::from_safe_string(svg.finish()),
    })
}

fn description(series: &Series) -> String {
    let known = || series.costs.iter().flatten();
    let value = |point: &CostPoint| interval_or_noise(&point.cost, point.verdict);
    let ends = known().next().zip(known().last());
    let ends = ends.map(|(first, last)| format!("{} to {}", value(first), value(last)));
    format!("{}: {}", clean(&series.environment), ends.unwrap_or_default())
}

fn bounds(point: &CostPoint) -> Vec<f64> {
    let interval = &point.cost.percent;
    let bounds = if interval.is_bounded() && interval.high - interval.low < 200.0 {
        vec![interval.low, interval.high]
    } else {
        Vec::new()
    };
    let all = bounds.into_iter().chain([interval.value]);
    all.filter(|x| x.is_finite() && x.abs() < 1e5).collect()
}

/// Draws the axes, the steps and the dates.
fn frame(svg: &mut Svg, axes: &Axes, group: &Group, numbers: &[Option<usize>]) {
    for tick in axes.y.ticks(5) {
        let y = axes.y(tick);
        svg.line(LABELS, y, 100.0, y, if tick == 0.0 { "zero" } else { "grid" });
        let text = format!("{}\u{202f}%", percent(tick).replace(".0", ""));
        svg.text(LABELS - 0.6, y + 4.0, TextAnchor::End, "tick", &text);
    }
    let steps: Vec<(usize, usize)> =
        numbers.iter().enumerate().filter_map(|(at, number)| Some((at, (*number)?))).collect();
    for (at, number) in &steps {
        let x = axes.x.x(as_f64(*at) - 0.5);
        let facts = facts_text(&group.steps[*at]);
        svg.bar(x, TOP, TOP + PLOT, "reference", &format!("{number}: {facts}"));
        if steps.len() <= NUMBERED {
            svg.text(x, TOP - 5.0, TextAnchor::Middle, "tick", &number.to_string());
        }
    }
    let newest = group.records.len().saturating_sub(1);
    let mut shown = vec![(0, TextAnchor::Start)];
    if newest >= 4 {
        shown.push((newest / 2, TextAnchor::Middle));
    }
    if newest > 0 {
        shown.push((newest, TextAnchor::End));
    }
    for (at, anchor) in shown {
        let date: String = minute(group.records[at].started_unix_ms).chars().take(10).collect();
        svg.text(axes.x(at), TOP + PLOT + 16.0, anchor, "tick", &date);
    }
}

fn class(series: &Series, index: usize) -> &'static str {
    if series.control { "control" } else { COLOURS[index % COLOURS.len()] }
}

fn draw(svg: &mut Svg, axes: &Axes, group: &Group, series: &Series, index: usize) {
    let class = class(series, index);
    let points: Vec<(usize, &CostPoint)> = series
        .costs
        .iter()
        .enumerate()
        .filter_map(|(at, point)| Some((at, point.as_ref()?)))
        .filter(|(_, point)| point.cost.percent.value.is_finite())
        .collect();
    let line = |of: &dyn Fn(&CostPoint) -> f64| -> Vec<(f64, f64)> {
        points.iter().map(|(at, point)| (axes.x(*at), axes.y(of(point)))).collect()
    };
    let name = clean(&series.environment);
    svg.polyline(&line(&|point| point.cost.percent.value), &format!("curve {class}"), &name);
    let marked = group.records.len() <= MARKED;
    if !marked {
        for bound in [
            line(&|point| point.cost.percent.low.max(-1e5)),
            line(&|point| point.cost.percent.high.min(1e5)),
        ] {
            svg.polyline(&bound, &format!("curve bound {class}"), &name);
        }
    }
    for (at, point) in &points {
        let (x, interval) = (axes.x(*at), &point.cost.percent);
        let changed = series.claimed_change(*at);
        if !marked && changed.is_none() {
            continue;
        }
        let y = axes.y(interval.value);
        if marked && interval.is_bounded() {
            svg.line(x, axes.y(interval.low), x, axes.y(interval.high), &format!("spread {class}"));
        }
        let mut text = format!(
            "{name}, {}: {}",
            minute(group.records[*at].started_unix_ms),
            interval_or_noise(&point.cost, point.verdict)
        );
        if let Some(change) = changed {
            let step = crate::figures::percent_interval(&change.percent);
            text += &format!("; changed here by {step}");
            svg.mark(x, y, Shape::Circle, 9.0, "hollow", &text);
        }
        svg.mark(x, y, Shape::nth(index), 4.0, class, &text);
    }
}
