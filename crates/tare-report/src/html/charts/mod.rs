//! The charts of the page, one file per question.
//!
//! A chart with few marks is an SVG ([`costs`](mod@costs), [`throughput`], [`percentiles`],
//! [`order`], [`interrupts`](fn@interrupts)): it prints, needs no script, and works with screen
//! readers. Figures over a number are lines ([`Sweep`], [`climb`]). A dense chart is a
//! [`Plot`]: an SVG and the same figures as data, from which the script draws a chart that can be
//! zoomed and read off.

mod by_second;
mod costs;
mod dots;
pub(super) mod groups;
mod instances;
mod interrupts;
mod latency;
pub(super) mod lines;
mod order;
mod plot;
mod sweep;
mod time;

use tare_lab::analysis::Finding;
use tare_lab::record::{Phase, Record, Slice};

use super::svg::{Scale, Shape, Svg, TextAnchor};
use crate::figures::shorten;
use tare_std::units::significant;

pub(super) use by_second::{OfSecond, by_second};
pub(super) use costs::{costs, costs_height};
pub(super) use dots::throughput;
pub(super) use instances::{OverInstances, over_instances, stacked};
pub(super) use interrupts::{CPUS_MAX, interrupts};
pub(super) use latency::{distribution, percentiles};
pub(super) use order::order;
pub(super) use plot::{Plot, as_data};
pub(super) use sweep::{Sweep, climb};
pub(super) use time::{
    CountersOverTime, Noted, counters_over_time, p99_over_time, throughput_over_time,
};

/// Colour and shape of an environment in every chart of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeriesStyle {
    /// Class of the style sheet: `base`, `control`, or `c1` to `c6`.
    pub(super) class: &'static str,
    pub(super) shape: Shape,
}

impl SeriesStyle {
    /// Class and shape in one name.
    pub(super) fn name(self) -> String {
        format!("{} {}", self.class, self.shape.name())
    }
}

pub(super) const COLOURS: [&str; 6] = ["c1", "c2", "c3", "c4", "c5", "c6"];

/// The style of each finding. The baseline and its control always have the same ones.
pub(super) fn series_styles(findings: &[&Finding]) -> Vec<SeriesStyle> {
    let mut next = 0;
    let style = |finding: &&Finding| {
        if finding.baseline {
            return SeriesStyle { class: "base", shape: Shape::Circle };
        }
        if finding.control {
            return SeriesStyle { class: "control", shape: Shape::Diamond };
        }
        next += 1;
        SeriesStyle {
            class: COLOURS[(next - 1) % COLOURS.len()],
            shape: Shape::nth(next + (next - 1) / 6),
        }
    };
    findings.iter().map(style).collect()
}

/// An environment under a workload: its finding, its style, and its slices.
#[derive(Debug)]
pub(super) struct Series<'r> {
    /// Its number in the legend.
    pub(super) e: usize,
    pub(super) finding: &'r Finding,
    pub(super) style: SeriesStyle,
    pub(super) slices: Vec<&'r Slice>,
}

impl<'r> Series<'r> {
    /// Every environment of a workload, in the order of its findings.
    pub(super) fn all(record: &'r Record, findings: &[&'r Finding]) -> Vec<Series<'r>> {
        let mut all = Self::without_slices(findings);
        let places: std::collections::HashMap<&str, usize> =
            findings.iter().enumerate().map(|(e, f)| (f.environment.as_str(), e)).collect();
        let workload = findings.first().map(|f| f.workload.as_str());
        for slice in record.slices.iter().filter(|s| Some(s.workload.as_str()) == workload) {
            if let Some(e) = places.get(slice.environment.as_str()) {
                all[*e].slices.push(slice);
            }
        }
        all
    }

    /// Environments alone, for charts of findings.
    pub(super) fn without_slices(findings: &[&'r Finding]) -> Vec<Series<'r>> {
        let styled = findings.iter().zip(series_styles(findings)).enumerate();
        styled
            .map(|(e, (finding, style))| Series { e, finding, style, slices: Vec::new() })
            .collect()
    }

    fn name(&self) -> &'r str {
        &self.finding.environment
    }

    /// Its slices of a phase, including void ones.
    fn of(&self, phase: Phase) -> impl Iterator<Item = &'r Slice> {
        self.slices.iter().copied().filter(move |s| s.phase == phase && s.window_ns > 0)
    }

    fn begin(&self, svg: &mut Svg) {
        svg.begin_group(self.e, &self.style.name(), self.name());
    }
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
            self.svg.text(x, bottom + 14.0, TextAnchor::Middle, "tick", &form(tick));
        }
        self.svg.text(100.0, bottom + 30.0, TextAnchor::End, "tick", unit);
    }

    /// Starts the next row and returns the y of its lane's middle.
    fn label(&mut self, label: &str, figure: &str) -> f64 {
        let top = as_f64(self.row) * (LABEL + self.lane);
        self.row += 1;
        self.svg.text(0.0, top + 15.0, TextAnchor::Start, "label", &shorten(label, 30));
        self.svg.text(100.0, top + 15.0, TextAnchor::End, "figure", figure);
        top + LABEL + self.lane / 2.0
    }
}

/// Operations per second of a slice.
fn per_s(slice: &Slice) -> f64 {
    as_f64(slice.operations) / (as_f64(slice.window_ns) / 1e9)
}

/// `80k`, `2.5M`: a round tick without trailing zeros.
pub(super) fn trim_rate(per_s: f64) -> String {
    match per_s {
        x if x >= 1e6 => format!("{}M", x / 1e6),
        x if x >= 1e3 => format!("{}k", x / 1e3),
        x => significant(x, 1),
    }
}

/// `200 µs`, `5 ms`: a round tick.
pub(super) fn short_time(ns: f64) -> String {
    match ns {
        0.0 => "0".to_string(),
        x if x < 999.5 => format!("{x:.0} ns"),
        x if x < 999.5e3 => format!("{:.0} µs", x / 1e3),
        x if x < 999.5e6 => format!("{:.0} ms", x / 1e6),
        x => format!("{:.0} s", x / 1e9),
    }
}

/// Counts and times as coordinates.
pub(super) trait Approximate {
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
pub(super) fn as_f64(number: impl Approximate) -> f64 {
    number.approximate()
}
