//! Figures over a number: one line per environment, with an interval at every point.

use super::SeriesStyle;
use crate::axes::is_log;
use crate::html::svg::{Scale, Shape, Svg, TextAnchor};

/// Pixels of the chart, and of its axis below.
const HEIGHT: f64 = 300.0;
const AXIS: f64 = 41.0;
const TOP: f64 = 14.0;
/// Room for the labels of the vertical axis, in percent of the width.
const LEFT: f64 = 13.0;
/// Points of several lines at one value are drawn next to each other within this width, in percent.
const BESIDE: f64 = 2.4;
/// The largest figure over the smallest from which a vertical scale is logarithmic.
const LOG_RATIO: f64 = 25.0;
/// Width of a character of a tick label in percent, on a phone.
const CHARACTER: f64 = 2.1;

/// A figure at one value of the axis.
#[derive(Debug)]
pub(in crate::html) struct LinePoint {
    pub(in crate::html) x: f64,
    pub(in crate::html) value: f64,
    /// The ends of its interval.
    pub(in crate::html) ends: Option<(f64, f64)>,
    /// Drawn hollow: a difference that is not beyond the noise.
    pub(in crate::html) hollow: bool,
    pub(in crate::html) text: String,
}

/// The line of one environment, or of one load.
#[derive(Debug)]
pub(in crate::html) struct LineSeries<'a> {
    pub(in crate::html) e: usize,
    pub(in crate::html) name: &'a str,
    pub(in crate::html) style: SeriesStyle,
    pub(in crate::html) points: Vec<LinePoint>,
}

/// The horizontal axis: its values as the study has them, and its unit.
#[derive(Debug)]
pub(in crate::html) struct LineAxis<'a> {
    pub(in crate::html) ticks: &'a [(f64, String)],
    pub(in crate::html) unit: String,
}

/// The vertical axis.
pub(in crate::html) struct Height<'a> {
    pub(in crate::html) form: &'a dyn Fn(f64) -> String,
    /// Whether 0 belongs on the scale and has a line, as for costs.
    pub(in crate::html) zero: bool,
    /// Whether a wide range may be logarithmic.
    pub(in crate::html) may_be_log: bool,
    /// Ends beyond which an interval is cut off. `None`: 0 and twice the largest figure, because
    /// the interval of few rounds can be many times as long as the figures.
    pub(in crate::html) ends: Option<(f64, f64)>,
    /// Width in pixels, for a file of a fixed size.
    pub(in crate::html) width: Option<f64>,
}

/// Draws the lines. `band` has the ends of a shaded band at each value of the axis.
pub(in crate::html) fn draw(
    (id, title): (&str, &str),
    axis: &LineAxis<'_>,
    height: &Height<'_>,
    series: &[LineSeries<'_>],
    band: &[(f64, f64, f64)],
) -> Option<String> {
    let points = || series.iter().flat_map(|one| &one.points);
    let low = points().map(|point| point.value).reduce(f64::min)?;
    let high = points().map(|point| point.value).fold(low, f64::max);
    let log = height.may_be_log && low > 0.0 && high / low > LOG_RATIO;
    let ends = || points().filter_map(|point| point.ends).chain(band.iter().map(|b| (b.1, b.2)));
    let allowed = height.ends.unwrap_or((0.0, 2.0 * high.max(0.0)));
    let cut = |value: f64| value.clamp(allowed.0, allowed.1);
    let low = ends().fold(low, |low, (end, _)| low.min(cut(end)));
    let high = ends().fold(high, |high, (_, end)| high.max(cut(end)));
    let up = match log {
        true => Scale::log(low.max(1.0) * 0.9, high * 1.1),
        false if height.zero => Scale::linear(low.min(0.0), high.max(0.0)),
        false => Scale::linear(0.0, high),
    };
    let texts = series.iter().map(|one| {
        let all: Vec<&str> = one.points.iter().map(|point| point.text.as_str()).collect();
        format!("{}: {}", one.name, all.join(", "))
    });
    let mut svg = Svg::new(id, HEIGHT, title, &texts.collect::<Vec<_>>().join(". "));
    if let Some(width) = height.width {
        svg = svg.with_width(width);
    }
    let floor = HEIGHT - AXIS;
    let y = |value: f64| floor - up.share(value) * (floor - TOP);
    let across = Across::new(axis);
    if let Some(area) = area(band, &across, &y, allowed) {
        svg.polyline(&area, "band", "A/A noise");
    }
    for tick in up.ticks(5) {
        let class = if tick == 0.0 && height.zero { "zero" } else { "grid" };
        svg.line(0.0, y(tick), 100.0, y(tick), class);
        svg.text(0.0, y(tick) - 3.0, TextAnchor::Start, "tick", &(height.form)(tick));
    }
    across.draw(&mut svg, axis, floor, log);
    let count = super::as_f64(series.len());
    let step = (BESIDE / count).min(0.5);
    for (index, one) in series.iter().enumerate() {
        let beside = (super::as_f64(index) - (count - 1.0) / 2.0) * step;
        let place = |point: &LinePoint| (across.x(point.x) + beside, y(point.value));
        let line: Vec<(f64, f64)> = one.points.iter().map(place).collect();
        svg.begin_group(one.e, &one.style.name(), one.name);
        svg.polyline(&line, &format!("curve {}", one.style.class), "");
        for point in &one.points {
            let (x, middle) = place(point);
            if let Some((low, high)) = point.ends {
                whisker(&mut svg, x, (low, high), &y, allowed, one.style.class);
            }
            let class = match point.hollow {
                true => format!("{} open", one.style.class),
                false => one.style.class.to_string(),
            };
            svg.mark(x, middle, one.style.shape, 4.0, &class, &point.text);
        }
        svg.end_group();
    }
    Some(svg.finish())
}

/// A vertical interval. An end that is cut off has no cap.
fn whisker(
    svg: &mut Svg,
    x: f64,
    (low, high): (f64, f64),
    y: &dyn Fn(f64) -> f64,
    (least, most): (f64, f64),
    class: &str,
) {
    let cut = |value: f64| y(value.clamp(least, most));
    svg.line(x, cut(low), x, cut(high), &format!("end {class}"));
    for end in [low, high].into_iter().filter(|end| (least..=most).contains(end)) {
        svg.line(x - 0.6, y(end), x + 0.6, y(end), &format!("end {class}"));
    }
}

/// The outline of the band, there above and back below.
fn area(
    band: &[(f64, f64, f64)],
    across: &Across,
    y: &dyn Fn(f64) -> f64,
    (least, most): (f64, f64),
) -> Option<Vec<(f64, f64)>> {
    let above = band.iter().map(|(x, _, high)| (across.x(*x), y(high.min(most))));
    let below = band.iter().rev().map(|(x, low, _)| (across.x(*x), y(low.max(least))));
    (band.len() > 1).then(|| above.chain(below).collect())
}

/// Positions on the horizontal axis.
struct Across {
    log: bool,
    scale: Scale,
}

impl Across {
    fn new(axis: &LineAxis<'_>) -> Self {
        let values: Vec<f64> = axis.ticks.iter().map(|(value, _)| *value).collect();
        let log = is_log(&values);
        let of = |value: Option<&f64>| {
            let value = value.copied().unwrap_or_default();
            if log { value.log2() } else { value }
        };
        let scale = Scale::linear(of(values.first()), of(values.last())).after(LEFT);
        Self { log, scale }
    }

    fn x(&self, value: f64) -> f64 {
        self.scale.x(if self.log { value.log2() } else { value })
    }

    /// Draws a line at each value, and its label where it has room next to the one before.
    fn draw(&self, svg: &mut Svg, axis: &LineAxis<'_>, floor: f64, is_up_log: bool) {
        let mut free = 0.0;
        for (value, label) in axis.ticks {
            let x = self.x(*value);
            svg.line(x, TOP - 6.0, x, floor, "grid");
            let half = CHARACTER * super::as_f64(label.chars().count()) / 2.0;
            if x - half >= free {
                svg.text(x, floor + 18.0, TextAnchor::Middle, "tick", label);
                free = x + half + CHARACTER;
            }
        }
        let scale = match (self.log, is_up_log) {
            (true, true) => "; both axes logarithmic",
            (true, false) => ", logarithmic",
            (false, true) => "; vertical axis logarithmic",
            (false, false) => "",
        };
        svg.text(100.0, floor + 36.0, TextAnchor::End, "tick", &format!("{}{scale}", axis.unit));
    }
}

/// The swatch shape and colour of the `index`th line where lines are no environments.
pub(in crate::html) fn nth_style(index: usize) -> SeriesStyle {
    SeriesStyle { class: super::COLOURS[index % super::COLOURS.len()], shape: Shape::nth(index) }
}
