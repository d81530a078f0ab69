//! The charts of the page, one function each. All are drawn from the record and its analysis alone.

use hdrhistogram::Histogram;
use tare_lab::analysis::{Analysis, Finding};
use tare_lab::record::{Phase, Record, Slice};

use super::svg::{Anchor, Scale, Shape, Svg};
use crate::figures::{
    Room, cost, in_order, percent, percent_interval, rate, role, shorten, with_interval,
};
use crate::headline::{Metric, claimed, extent, noise};
use crate::histogram::{curve, response};
use tare_std::units::{nanoseconds, significant, thousands};

/// How an environment is drawn everywhere on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Class of the style sheet: `base`, `control`, or `c1` to `c6`.
    pub(super) class: &'static str,
    pub(super) shape: Shape,
}

const COLOURS: [&str; 6] = ["c1", "c2", "c3", "c4", "c5", "c6"];

/// Looks in the order of the findings: the baseline and its control keep theirs.
pub(super) fn looks(findings: &[&Finding]) -> Vec<Look> {
    let mut next = 0;
    let look = |finding: &&Finding| {
        if finding.baseline {
            return Look { class: "base", shape: Shape::Circle };
        }
        if finding.control {
            return Look { class: "control", shape: Shape::Diamond };
        }
        next += 1;
        Look {
            class: COLOURS[(next - 1) % COLOURS.len()],
            shape: Shape::nth(next + (next - 1) / 6),
        }
    };
    findings.iter().map(look).collect()
}

/// Rows of a chart: a label line above, a lane of marks below.
struct Rows {
    svg: Svg,
    scale: Scale,
    lane: f64,
    row: usize,
}

const LABEL: f64 = 20.0;
const AXIS: f64 = 34.0;

impl Rows {
    fn new(
        id: &str,
        (title, description): (&str, &str),
        scale: Scale,
        rows: usize,
        lane: f64,
    ) -> Rows {
        let height = as_f64(rows) * (LABEL + lane) + AXIS;
        Rows { svg: Svg::new(id, height, title, description), scale, lane, row: 0 }
    }

    fn bottom(&self, rows: usize) -> f64 {
        as_f64(rows) * (LABEL + self.lane)
    }

    fn axis(&mut self, rows: usize, form: &dyn Fn(f64) -> String, unit: &str) {
        let bottom = self.bottom(rows);
        for tick in self.scale.ticks(5) {
            let x = self.scale.x(tick);
            self.svg.line(x, 0.0, x, bottom, if tick == 0.0 { "zero" } else { "grid" });
            self.svg.text(x, bottom + 14.0, Anchor::Middle, "tick", &form(tick));
        }
        self.svg.text(100.0, bottom + 30.0, Anchor::End, "tick", unit);
    }

    /// Starts the next row and returns the y of its lane's middle.
    fn label(&mut self, label: &str, figure: &str) -> f64 {
        let top = as_f64(self.row) * (LABEL + self.lane);
        self.row += 1;
        self.svg.text(0.0, top + 15.0, Anchor::Start, "label", &shorten(label, 30));
        self.svg.text(100.0, top + 15.0, Anchor::End, "figure", figure);
        top + LABEL + self.lane / 2.0
    }
}

/// Dot and interval per environment, zero, the band of the A/A control, and published costs of
/// another machine as hollow diamonds (for throughput, which is what they were published for).
pub(super) fn ladder(
    record: &Record,
    analysis: &Analysis,
    findings: &[&Finding],
    metric: Metric,
    id: &str,
) -> Option<String> {
    let rows: Vec<&&Finding> = findings
        .iter()
        .filter(|f| metric.cost(f).is_some_and(|c| c.percent.value.is_finite()))
        .collect();
    let first = rows.first()?;
    let noise = noise(analysis, &first.workload, metric);
    let published = |finding: &Finding| {
        let of = |p: &&tare_lab::study::PublishedCost| p.environment == finding.environment;
        record.study.published.iter().find(of).filter(|_| metric == Metric::Throughput)
    };
    let published_costs =
        rows.iter().filter_map(|f| published(f)).map(|p| p.throughput_cost_percent);
    let costs = rows.iter().filter_map(|f| metric.cost(f));
    let (low, high) = extent(costs, noise.into_iter().chain(published_costs));
    let (title, unit) = match metric {
        Metric::ServerCpu => {
            ("Cost in server CPU per operation", "% more CPU per operation than the baseline")
        }
        Metric::Throughput => ("Cost in throughput", "% of the baseline's throughput lost"),
    };
    let mut said: Vec<String> = Vec::new();
    for finding in &rows {
        if let Some(c) = metric.cost(finding) {
            said.push(format!("{}: {}", finding.environment, cost(c, Room::Full)));
        }
    }
    let description = format!("One row per environment. {}", said.join(". "));
    let mut chart =
        Rows::new(id, (title, &description), Scale::linear(low, high), rows.len(), 22.0);
    let (bottom, scale) = (chart.bottom(rows.len()), chart.scale);
    if let Some(noise) = noise {
        let (from, to) = (scale.x(-noise), scale.x(noise));
        let text = format!("A/A noise: within {noise:.1} %");
        chart.svg.rect(from, 0.0, to - from, bottom, "band", &text);
    }
    chart.axis(rows.len(), &|tick| format!("{}\u{202f}%", percent(tick).replace(".0", "")), unit);
    for finding in rows {
        let Some(c) = metric.cost(finding) else { continue };
        let claim = claimed(analysis, finding, metric);
        let class = match (claim, c.percent.value > 0.0) {
            (true, true) => "loss",
            (true, false) => "gain",
            _ => "none",
        };
        let label = match role(finding) {
            Some(role) => format!("{} \u{2013} {role}", shorten(&finding.environment, 20)),
            None => finding.environment.clone(),
        };
        let y = chart.label(&label, &cost(c, Room::Short));
        if let Some(other) = published(finding) {
            let text = format!(
                "published for another machine: {} % ({})",
                percent(other.throughput_cost_percent),
                other.source
            );
            let x = scale.x(other.throughput_cost_percent);
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
        let text = format!(
            "{}: {}, {} blocks",
            finding.environment,
            percent_interval(&interval),
            interval.blocks
        );
        let shape = if finding.control { Shape::Square } else { Shape::Circle };
        chart.svg.mark(scale.x(interval.value), y, shape, 5.0, class, &text);
    }
    Some(chart.svg.finish())
}

/// Every block's throughput as a dot, the figure with its interval as a bar.
pub(super) fn throughput(
    record: &Record,
    findings: &[&Finding],
    looks: &[Look],
    id: &str,
) -> Option<String> {
    let workload = &findings.first()?.workload;
    let slices: Vec<&Slice> = record
        .slices
        .iter()
        .filter(|s| s.phase == Phase::Capacity && s.workload == *workload && s.window_ns > 0)
        .collect();
    let per_s = |s: &Slice| as_f64(s.operations) / (as_f64(s.window_ns) / 1e9);
    let high = slices.iter().map(|s| per_s(s)).fold(0.0f64, f64::max);
    if high <= 0.0 {
        return None;
    }
    let description = findings
        .iter()
        .filter_map(|f| {
            f.throughput_per_s
                .as_ref()
                .map(|t| format!("{}: {}/s", f.environment, with_interval(t, rate)))
        })
        .collect::<Vec<_>>()
        .join(". ");
    let mut chart = Rows::new(
        id,
        ("Throughput per environment, every block a dot", &description),
        Scale::linear(0.0, high),
        findings.len(),
        30.0,
    );
    let scale = chart.scale;
    chart.axis(
        findings.len(),
        &|tick| if tick == 0.0 { "0".into() } else { trim_rate(tick) },
        "operations per second, closed loop",
    );
    for (finding, look) in findings.iter().zip(looks) {
        let figure = finding
            .throughput_per_s
            .as_ref()
            .map_or_else(|| "-".to_string(), |t| format!("{}/s", with_interval(t, rate)));
        let y = chart.label(&finding.environment, &figure);
        for slice in slices.iter().filter(|s| s.environment == finding.environment) {
            let jitter = f64::from((slice.block * 7) % 11) * 1.4 - 5.0;
            let text = format!("block {}: {} op/s", slice.block, rate(per_s(slice)));
            let (x, y) = (scale.x(per_s(slice)), y + jitter);
            match &slice.void {
                None => chart.svg.dot(x, y, 3.0, &format!("dot {}", look.class), &text),
                Some(reason) => {
                    let text = format!("{text}, void: {reason}");
                    chart.svg.mark(x, y, Shape::Cross, 3.0, "void", &text);
                }
            }
        }
        if let Some(t) = finding.throughput_per_s {
            if t.low.is_finite() && t.high.is_finite() {
                chart.svg.line(scale.x(t.low), y, scale.x(t.high), y, "median");
            }
            let x = scale.x(t.value);
            chart.svg.line(x, y - 12.0, x, y + 12.0, "median");
        }
    }
    Some(chart.svg.finish())
}

/// Response time at the fixed rate: one row per percentile, one lane per environment.
pub(super) fn percentiles(findings: &[&Finding], looks: &[Look], id: &str) -> Option<String> {
    type Read = fn(&tare_lab::analysis::Latency) -> f64;
    let rows: [(&str, Read); 5] = [
        ("mean", |l| l.mean_ns),
        ("p50", |l| as_f64(l.p50_ns)),
        ("p95", |l| as_f64(l.p95_ns)),
        ("p99", |l| as_f64(l.p99_ns)),
        ("p99.9", |l| as_f64(l.p999_ns)),
    ];
    let shown: Vec<(&&Finding, &Look, &tare_lab::analysis::Latency)> = findings
        .iter()
        .zip(looks)
        .filter_map(|(f, look)| f.response.as_ref().filter(|r| r.count > 0).map(|r| (f, look, r)))
        .collect();
    let values = || shown.iter().flat_map(|(_, _, l)| rows.iter().map(|(_, read)| read(l)));
    let low = values().reduce(f64::min)?;
    let high = values().fold(low, f64::max);
    let description = shown
        .iter()
        .map(|(f, _, l)| {
            format!(
                "{}: p50 {}, p99 {}, p99.9 {}",
                f.environment,
                nanoseconds(as_f64(l.p50_ns)),
                nanoseconds(as_f64(l.p99_ns)),
                nanoseconds(as_f64(l.p999_ns))
            )
        })
        .collect::<Vec<_>>()
        .join(". ");
    let lane = as_f64(shown.len()) * 11.0 + 8.0;
    let title = "Response time at the fixed rate, grouped by percentile";
    let mut chart =
        Rows::new(id, (title, &description), Scale::log(low * 0.9, high * 1.1), rows.len(), lane);
    let scale = chart.scale;
    chart.axis(rows.len(), &short_time, "response time from the intended start, logarithmic");
    for (name, read) in rows {
        let middle = chart.label(name, "");
        let top = middle - lane / 2.0 + 8.0;
        for (index, (finding, look, latency)) in shown.iter().enumerate() {
            let (x, y) = (scale.x(read(latency)), top + as_f64(index) * 11.0);
            chart.svg.line(scale.x(low * 0.9), y, x, y, "stem");
            let text = format!("{}, {name}: {}", finding.environment, nanoseconds(read(latency)));
            chart.svg.mark(x, y, look.shape, 4.5, look.class, &text);
        }
    }
    Some(chart.svg.finish())
}

/// The whole distribution: latency over how rare it is, the x axis in nines.
pub(super) fn distribution(
    record: &Record,
    findings: &[&Finding],
    looks: &[Look],
    id: &str,
) -> Option<String> {
    const HEIGHT: f64 = 430.0;
    const FLOOR: f64 = HEIGHT - 40.0;
    let curves: Vec<(&&Finding, &Look, Histogram<u64>)> = findings
        .iter()
        .zip(looks)
        .filter_map(|(f, look)| response(record, &f.environment, &f.workload).map(|h| (f, look, h)))
        .collect();
    let points: Vec<_> = curves.iter().map(|(_, _, h)| curve(h)).collect();
    let all = || points.iter().flatten();
    let low = all().map(|p| p.latency_ns).reduce(f64::min)?;
    let high = all().map(|p| p.latency_ns).fold(low, f64::max);
    let nines = all().map(|p| p.nines).fold(1.0f64, f64::max);
    let (x, y) = (Scale::linear(0.0, nines).after(12.0), Scale::log(low * 0.8, high * 1.2));
    let at = |latency: f64| FLOOR - y.share(latency) * (FLOOR - 16.0);
    let description = curves
        .iter()
        .map(|(f, _, h)| {
            format!(
                "{}: {} operations, maximum {}",
                f.environment,
                thousands(h.len()),
                nanoseconds(as_f64(h.max()))
            )
        })
        .collect::<Vec<_>>()
        .join(". ");
    let mut svg = Svg::new(id, HEIGHT, "Full distribution of response times", &description);
    for tick in y.ticks(5) {
        svg.line(0.0, at(tick), 100.0, at(tick), "grid");
        svg.text(0.0, at(tick) - 3.0, Anchor::Start, "tick", &short_time(tick));
    }
    for nine in 0..=7u32 {
        if f64::from(nine) > nines + 1e-9 {
            break;
        }
        let label = match nine {
            0 => "0 %".to_string(),
            1 => "90 %".to_string(),
            2 => "99 %".to_string(),
            n => format!("99.{} %", "9".repeat(n as usize - 2)),
        };
        let at_x = x.x(f64::from(nine));
        svg.line(at_x, 8.0, at_x, FLOOR, "grid");
        svg.text(at_x, FLOOR + 15.0, Anchor::Middle, "tick", &label);
    }
    svg.text(100.0, FLOOR + 33.0, Anchor::End, "tick", "percentile, one step per nine");
    for ((finding, look, _), points) in curves.iter().zip(&points) {
        let line: Vec<(f64, f64)> =
            points.iter().map(|p| (x.x(p.nines), at(p.latency_ns))).collect();
        svg.polyline(&line, &format!("curve {}", look.class), &finding.environment);
        if let Some((end_x, end_y)) = line.last() {
            svg.mark(*end_x, *end_y, look.shape, 4.5, look.class, &finding.environment);
        }
    }
    Some(svg.finish())
}

/// When each slice ran: one row per environment, time to the right.
pub(super) fn order(record: &Record, id: &str) -> Option<String> {
    let start = record.slices.iter().map(|s| s.started_unix_ms).min()?;
    let end = record.slices.iter().map(|s| s.started_unix_ms + s.window_ns / 1_000_000).max()?;
    let names: Vec<&str> = in_order(record)
        .into_iter()
        .map(|e| e.spec.name.as_str())
        .filter(|name| record.slices.iter().any(|s| s.environment == *name))
        .collect();
    let seconds = as_f64(end.saturating_sub(start)) / 1e3;
    let mut chart = Rows::new(
        id,
        (
            "Order of slices",
            "When each environment was under load. In every block each environment runs once per phase, in random order.",
        ),
        Scale::linear(0.0, seconds),
        names.len(),
        14.0,
    );
    let scale = chart.scale;
    chart.axis(names.len(), &|tick| format!("{tick:.0} s"), "since the first slice");
    for name in names {
        let own: Vec<&Slice> = record.slices.iter().filter(|s| s.environment == name).collect();
        let void = own.iter().filter(|s| s.void.is_some()).count();
        let figure = match void {
            0 => format!("{} slices", own.len()),
            _ => format!("{} slices, {void} void", own.len()),
        };
        let y = chart.label(name, &figure);
        let (mut capacity, mut latency) = (Vec::new(), Vec::new());
        for slice in own {
            let from = as_f64(slice.started_unix_ms.saturating_sub(start)) / 1e3;
            let to = from + as_f64(slice.window_ns) / 1e9;
            let x = scale.x(from);
            let width = (scale.x(to) - x).max(0.12);
            match (&slice.void, slice.phase) {
                (None, Phase::Capacity) => capacity.push((x, width)),
                (None, Phase::Latency | Phase::Traced) => latency.push((x, width)),
                (Some(why), _) => {
                    let text = format!(
                        "block {}, position {}: {}, void: {why}",
                        slice.block, slice.position, slice.workload
                    );
                    chart.svg.rect(x, y - 6.0, width, 12.0, "slice-void", &text);
                }
            }
        }
        chart.svg.blocks(&capacity, y - 6.0, 12.0, "slice-capacity");
        chart.svg.blocks(&latency, y - 6.0, 12.0, "slice-latency");
    }
    Some(chart.svg.finish())
}

/// `80k`, `2.5M`: a round tick without trailing zeros.
fn trim_rate(per_s: f64) -> String {
    match per_s {
        x if x >= 1e6 => format!("{}M", x / 1e6),
        x if x >= 1e3 => format!("{}k", x / 1e3),
        x => significant(x, 1),
    }
}

/// `200 µs`, `5 ms`: a round tick.
fn short_time(ns: f64) -> String {
    match ns {
        x if x < 999.5 => format!("{x:.0} ns"),
        x if x < 999.5e3 => format!("{:.0} µs", x / 1e3),
        x if x < 999.5e6 => format!("{:.0} ms", x / 1e6),
        x => format!("{:.0} s", x / 1e9),
    }
}

/// Counts and times as coordinates.
trait Approximate {
    fn approximate(self) -> f64;
}
impl Approximate for u64 {
    #[expect(clippy::cast_precision_loss, reason = "a picture")]
    fn approximate(self) -> f64 {
        self as f64
    }
}
impl Approximate for usize {
    #[expect(clippy::cast_precision_loss, reason = "a picture")]
    fn approximate(self) -> f64 {
        self as f64
    }
}
fn as_f64(number: impl Approximate) -> f64 {
    number.approximate()
}
