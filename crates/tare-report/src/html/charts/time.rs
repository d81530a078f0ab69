//! Charts over time: throughput, p99, and counters of disk and interrupts, by round.
//!
//! A point is one round of one environment, at the start of the round; a void slice is a gap. Many
//! rounds share columns: the line is their median, with a band from the smallest to the largest
//! value, so that no outlier disappears.

use std::collections::{BTreeMap, HashMap};

use minijinja::Value;
use serde::Serialize;
use serde_json::json;
use tare_lab::record::{Phase, Slice};

use super::plot::{Line, Plot, as_data, number};
use super::{Series, as_f64, per_s, short_time, trim_rate};
use crate::histogram::Responses;
use crate::html::svg::{Scale, Svg, TextAnchor};

/// Most columns of a chart over time; a screen cannot show more.
const COLUMNS_MAX: usize = 400;
/// Most points of a chart. A chart of many environments gets fewer columns.
const POINTS_MAX: usize = 10_000;

/// The columns of a chart over time.
pub(super) struct Columns {
    /// Start of each column, in seconds since the first slice of the workload, or since the
    /// beginning of a window.
    x: Vec<f64>,
    /// The column of each round, or of each second of a window.
    place: HashMap<u32, usize>,
    per_column: usize,
    /// What a column has one of: `round` or `second`.
    of: &'static str,
}

impl Columns {
    /// `None` with fewer than two rounds of the phase.
    fn of(series: &[Series<'_>], phase: Phase) -> Option<Self> {
        let mut starts: BTreeMap<u32, u64> = BTreeMap::new();
        for slice in series.iter().flat_map(|d| d.of(phase)) {
            let start = starts.entry(slice.round).or_insert(slice.started_unix_ms);
            *start = slice.started_unix_ms.min(*start);
        }
        if starts.len() < 2 {
            return None;
        }
        let first = *starts.values().min()?;
        let per_column = starts.len().div_ceil(columns_max(series.len()));
        let (mut x, mut place) = (Vec::new(), HashMap::new());
        for (number, (block, start)) in starts.iter().enumerate() {
            if number % per_column == 0 {
                x.push(as_f64(start.saturating_sub(first)) / 1e3);
            }
            place.insert(*block, x.len() - 1);
        }
        // If the clock was set back, the axis must still rise.
        for at in 1..x.len() {
            x[at] = x[at].max(x[at - 1] + 1e-3);
        }
        Some(Self { x, place, per_column, of: "round" })
    }

    /// The seconds of a window. `None` with fewer than two.
    pub(super) fn of_seconds(seconds: u32, lines: usize) -> Option<Self> {
        if seconds < 2 {
            return None;
        }
        let per_column = usize::try_from(seconds).ok()?.div_ceil(columns_max(lines));
        let place = (0..seconds).zip((0..).map(|second: usize| second / per_column)).collect();
        let x = (0..seconds).step_by(per_column).map(f64::from).collect();
        Some(Self { x, place, per_column, of: "second" })
    }

    /// An environment's values by round, or by second, as a line.
    pub(super) fn line<'d, 'r>(
        &self,
        of: &'d Series<'r>,
        values: impl Iterator<Item = (u32, f64)>,
    ) -> Line<'d, 'r> {
        let mut columns: Vec<Vec<f64>> = vec![Vec::new(); self.x.len()];
        for (block, value) in values {
            if let Some(place) = self.place.get(&block) {
                columns[*place].push(value);
            }
        }
        for column in &mut columns {
            column.sort_by(f64::total_cmp);
        }
        let y = columns.iter().map(|c| c.get(c.len() / 2).copied()).collect();
        let share_columns = columns.iter().any(|column| column.len() > 1);
        let extremes = share_columns.then(|| {
            let low = columns.iter().map(|c| c.first().copied()).collect();
            let high = columns.iter().map(|c| c.last().copied()).collect();
            (low, high)
        });
        Line { of, y, extremes }
    }

    fn seconds(&self) -> Vec<serde_json::Value> {
        self.x.iter().map(|x| number(*x)).collect()
    }

    /// The note on what a column holds.
    fn note(&self, share_columns: bool) -> String {
        let band = "the line is their median, the band their smallest and largest.";
        match (self.per_column, self.of) {
            (1, of) if !share_columns => format!("One point per {of}."),
            (1, of) => format!("The rounds share each {of}: {band}"),
            (several, of) => format!("{several} {of}s share a column: {band}"),
        }
    }
}

/// Returns the most columns of a chart of so many lines.
fn columns_max(lines: usize) -> usize {
    (POINTS_MAX / lines.max(1)).clamp(100, COLUMNS_MAX)
}

/// A chart and the note on its columns.
pub(in crate::html) type Noted = (Plot, String);

pub(super) fn chart(
    id: &str,
    (title, axis): (&str, &str),
    (unit, form): (&str, &dyn Fn(f64) -> String),
    columns: &Columns,
    lines: &[Line<'_, '_>],
) -> Option<Noted> {
    let high = lines.iter().flat_map(|l| l.y.iter().flatten()).copied().fold(0.0f64, f64::max);
    if high <= 0.0 {
        return None;
    }
    let still = still(id, (title, axis), form, columns, lines, high);
    let data = json!({
        "title": title, "x": columns.seconds(), "x_unit": "s", "unit": unit,
        "per_column": columns.per_column,
        "lines": lines.iter().map(Line::as_json).collect::<Vec<_>>(),
    });
    let share_columns = lines.iter().any(|line| line.extremes.is_some());
    Some((Plot::new(still, &data), columns.note(share_columns)))
}

fn still(
    id: &str,
    (title, axis): (&str, &str),
    form: &dyn Fn(f64) -> String,
    columns: &Columns,
    lines: &[Line<'_, '_>],
    high: f64,
) -> String {
    const HEIGHT: f64 = 300.0;
    const FLOOR: f64 = HEIGHT - 40.0;
    let end = columns.x.last().copied().unwrap_or(1.0);
    let (x, y) = (Scale::linear(0.0, end).after(10.0), Scale::linear(0.0, high * 1.05));
    let at = |value: f64| FLOOR - y.share(value) * (FLOOR - 16.0);
    let texts: Vec<String> = lines
        .iter()
        .filter_map(|line| {
            let mut known: Vec<f64> = line.y.iter().flatten().copied().collect();
            known.sort_by(f64::total_cmp);
            let (first, last) = (known.first()?, known.last()?);
            let middle = known[known.len() / 2];
            let name = line.of.name();
            Some(format!("{name}: {} to {}, median {}", form(*first), form(*last), form(middle)))
        })
        .collect();
    let mut svg = Svg::new(id, HEIGHT, title, &texts.join(". "));
    for tick in y.ticks(4) {
        svg.line(0.0, at(tick), 100.0, at(tick), if tick == 0.0 { "zero" } else { "grid" });
        svg.text(0.0, at(tick) - 3.0, TextAnchor::Start, "tick", &form(tick));
    }
    for tick in x.ticks(6) {
        svg.text(x.x(tick), FLOOR + 15.0, TextAnchor::Middle, "tick", &format!("{tick:.0} s"));
    }
    svg.text(100.0, FLOOR + 33.0, TextAnchor::End, "tick", axis);
    for line in lines {
        let style = line.of.style;
        line.of.begin(&mut svg);
        let places = columns.x.iter().zip(&line.y);
        let mut stretch: Vec<(f64, f64)> = Vec::new();
        for (second, value) in places.chain(std::iter::once((&0.0, &None))) {
            match value {
                Some(value) => stretch.push((x.x(*second), at(*value))),
                None if stretch.len() > 1 => {
                    svg.polyline(&stretch, &format!("curve {}", style.class), "");
                    stretch.clear();
                }
                None => stretch.clear(),
            }
        }
        let last = columns.x.iter().zip(&line.y).rev().find_map(|(x, y)| y.map(|y| (x, y)));
        if let Some((second, value)) = last {
            svg.mark(x.x(*second), at(value), style.shape, 4.5, style.class, "");
        }
        svg.end_group();
    }
    svg.finish()
}

/// A tick of throughput: `80k op/s`.
pub(super) fn per_s_tick(per_s: f64) -> String {
    format!("{} op/s", trim_rate((per_s * 10.0).round() / 10.0))
}

/// Draws operations per second of every round.
pub(in crate::html) fn throughput_over_time(series: &[Series<'_>], id: &str) -> Option<Noted> {
    let columns = Columns::of(series, Phase::Capacity)?;
    let counts = |s: &&Slice| s.void.is_none();
    let of = |d: &Series<'_>| {
        let own: Vec<(u32, f64)> =
            d.of(Phase::Capacity).filter(counts).map(|s| (s.round, per_s(s))).collect();
        own
    };
    let lines: Vec<Line<'_, '_>> =
        series.iter().map(|d| columns.line(d, of(d).into_iter())).collect();
    let words = ("Throughput over time", "time since the first slice");
    chart(id, words, ("rate", &per_s_tick), &columns, &lines)
}

/// Draws p99 of response time of every round, at the fixed rate.
pub(in crate::html) fn p99_over_time(
    series: &[Series<'_>],
    responses: &[Option<Responses>],
    id: &str,
) -> Option<Noted> {
    let columns = Columns::of(series, Phase::Latency)?;
    let lines: Vec<Line<'_, '_>> = series
        .iter()
        .zip(responses)
        .filter_map(|(d, r)| {
            r.as_ref()
                .map(|r| columns.line(d, r.by_round.iter().map(|(block, at)| (*block, at[2]))))
        })
        .collect();
    let words = ("99th percentile of response time, over time", "time since the first slice");
    chart(id, words, ("ns", &short_time), &columns, &lines)
}

/// Computes a figure from a counter's value in a slice and the seconds of the slice.
type Form = fn(f64, f64) -> f64;

/// The unit and form of a counter that is drawn over time: disk, interrupts and other load.
fn over_time(name: &str) -> Option<(&'static str, Form)> {
    let as_it_is: Form = |value, _| value;
    let per_second: Form = |value, seconds| value / seconds;
    let cpus: Form = |value, seconds| value / 1e9 / seconds;
    // The dozens of counters of the disk's histogram are in the table only.
    let disk = name.starts_with("disk_") && !name.contains("_up_to_");
    let interrupts = name.ends_with("_interrupt_share") || name == "interrupts";
    let others = ["softirq_ns", "steal_ns", "cpu_pressure_some_ns", "io_pressure_some_ns"];
    if !(disk || interrupts || others.contains(&name)) {
        return None;
    }
    Some(match name {
        n if n.ends_with("_share") => ("share", as_it_is),
        n if n.ends_with("_ns_mean") || n.ends_with("_ns_max") => ("ns", as_it_is),
        n if n.ends_with("_mean") => ("rate", as_it_is),
        n if n.ends_with("_bytes") => ("bytes", per_second),
        n if n.ends_with("_ns") => ("share", cpus),
        _ => ("rate", per_second),
    })
}

/// The counters of [`over_time`] in every round at capacity. The reader chooses one.
pub(in crate::html) fn counters_over_time(series: &[Series<'_>]) -> Option<CountersOverTime> {
    let columns = Columns::of(series, Phase::Capacity)?;
    let mut names: Vec<&str> = Vec::new();
    for slice in series.iter().filter_map(|d| d.of(Phase::Capacity).next()) {
        for counter in &slice.counters {
            if over_time(&counter.name).is_some() && !names.contains(&counter.name.as_str()) {
                names.push(&counter.name);
            }
        }
    }
    let mut choices = Vec::new();
    let mut rows = Vec::new();
    for name in names {
        let Some((unit, form)) = over_time(name) else { continue };
        let value = |slice: &Slice| {
            let counter = slice.counters.iter().find(|c| c.name == name)?;
            let value = form(counter.value, as_f64(slice.window_ns) / 1e9);
            (slice.void.is_none() && value.is_finite()).then_some((slice.round, value))
        };
        let values: Vec<Vec<(u32, f64)>> =
            series.iter().map(|d| d.of(Phase::Capacity).filter_map(value).collect()).collect();
        if values.iter().flatten().all(|(_, value)| *value == 0.0) {
            continue;
        }
        let lines: Vec<serde_json::Value> = series
            .iter()
            .zip(&values)
            .map(|(d, own)| columns.line(d, own.iter().copied()).as_json())
            .collect();
        let label = match unit {
            "bytes" | "rate" if !name.ends_with("_mean") => format!("{name} per second"),
            "share" if name.ends_with("_ns") => format!("{name}, share of the time"),
            _ => name.to_string(),
        };
        choices
            .push(json!({ "name": crate::figures::clean(&label), "unit": unit, "lines": lines }));
        rows.push((
            crate::figures::clean(&label),
            values.iter().map(|v| spread(unit, v)).collect(),
        ));
    }
    if choices.is_empty() {
        return None;
    }
    let data = json!({
        "title": "Counters over time", "x": columns.seconds(), "x_unit": "s",
        "per_column": columns.per_column, "choices": choices,
    });
    Some(CountersOverTime {
        rows,
        data: as_data(&data),
        note: columns.note(columns.per_column > 1),
    })
}

/// Counters over time: a table of their ranges, and the figures for the script.
#[derive(Debug, Serialize)]
pub(in crate::html) struct CountersOverTime {
    /// A counter with its median and extremes in each environment.
    rows: Vec<(String, Vec<String>)>,
    data: Value,
    note: String,
}

/// `median (smallest to largest)`.
fn spread(unit: &str, values: &[(u32, f64)]) -> String {
    let mut sorted: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    sorted.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
        return "\u{2013}".to_string();
    };
    let form = |value: f64| match unit {
        "share" => format!("{:.1} %", value * 100.0),
        "ns" => tare_std::units::nanoseconds(value),
        "bytes" => format!("{}B", crate::figures::rate(value)),
        _ => crate::figures::rate(value),
    };
    format!("{} ({} to {})", form(sorted[sorted.len() / 2]), form(*first), form(*last))
}
