//! The chart of `tare disk --chart`: rates over operations in flight, and latency over the load.

use tare_std::units::{nanoseconds, significant};

use super::charts::lines::{Height, LineAxis, LinePoint, LineSeries, draw, nth_style};
use super::charts::{as_f64, short_time, trim_rate};
use super::standalone::{File, page};
use super::svg::swatch;
use crate::figures::rate;

/// A figure with the ends of its interval, if it has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskFigure {
    pub value: f64,
    pub ends: Option<(f64, f64)>,
}

/// The latency of a load below saturation, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskLatency {
    /// Share of the saturated rate, in percent.
    pub percent: f64,
    pub p50: DiskFigure,
    pub p99: DiskFigure,
}

/// One load of a disk.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskLoad {
    pub name: String,
    /// Random loads are shown in operations per second, sequential ones in bytes.
    pub random: bool,
    pub block_bytes: u32,
    /// Operations in flight and operations per second of each step of the climb, once each.
    pub climb: Vec<(usize, f64)>,
    pub saturation_depth: usize,
    /// Operations per second at the saturation depth, over all rounds.
    pub saturated: DiskFigure,
    pub latencies: Vec<DiskLatency>,
}

/// All loads of a disk.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskChart {
    pub title: String,
    pub loads: Vec<DiskLoad>,
}

const WIDTH: f64 = 1040.0;
/// Width of a chart, its place, and the height of a row with its title.
const CHART: f64 = 480.0;
const LEFT: f64 = 24.0;
const GAP: f64 = 32.0;
const ROW: f64 = 356.0;
const TOP: f64 = 76.0;

impl DiskChart {
    /// The charts as an SVG file.
    pub fn svg(&self) -> String {
        let mut file = File::new(WIDTH, TOP + 2.0 * ROW + 28.0, &self.title);
        file.text((LEFT, 30.0), 17.0, "label", &self.title);
        let note = "Rates: closed loop; a hollow mark is one step of the climb, a full one the \
                    figure over all rounds at the saturation depth.";
        file.text((LEFT, 50.0), 12.0, "soft", note);
        for (column, random) in [(0.0, true), (1.0, false)] {
            let x = LEFT + column * (CHART + GAP);
            let loads: Vec<&DiskLoad> =
                self.loads.iter().filter(|load| load.random == random).collect();
            let kind = if random { "Random" } else { "Sequential" };
            let unit = if random { "operations per second" } else { "bytes per second" };
            let rates = format!("{kind}: {unit} over operations in flight");
            place(&mut file, (x, TOP), &rates, rate_chart(&loads, random));
            let latency = format!("{kind}: latency over the load");
            place(&mut file, (x, TOP + ROW), &latency, latency_chart(&loads, random));
        }
        let note = "Latency: open loop, from the intended start. Vertical lines are 95 % \
                    intervals. 1 MB = 1,000,000 bytes.";
        file.text((LEFT, TOP + 2.0 * ROW + 12.0), 12.0, "soft", note);
        file.finish()
    }

    /// The charts as an HTML page.
    pub fn html(&self) -> String {
        page(&self.title, &self.svg())
    }
}

/// A chart with its title and a legend.
fn place(file: &mut File, (x, y): (f64, f64), title: &str, chart: Option<(Vec<String>, String)>) {
    file.text((x, y + 14.0), 14.0, "label", title);
    let Some((names, chart)) = chart else {
        return file.text((x, y + 40.0), 12.0, "soft", "not measured");
    };
    let mut at = x;
    for (index, name) in names.iter().enumerate() {
        let style = nth_style(index);
        let mark = swatch(style.shape, style.class);
        file.raw(&format!("<g transform=\"translate({at} {})\">{mark}</g>", y + 21.0));
        file.text((at + 18.0, y + 33.0), 12.0, "", name);
        at += 34.0 + 7.0 * as_f64(name.chars().count());
    }
    file.chart((x, y + 42.0), (CHART, ROW - 50.0), 1.0, &chart);
}

fn figure(x: f64, of: DiskFigure, hollow: bool, text: String) -> LinePoint {
    LinePoint { x, value: of.value, ends: of.ends, hollow, text }
}

/// The steps of the climb, and the figure at the saturation depth in place of its step.
fn rate_points(load: &DiskLoad, random: bool) -> Vec<LinePoint> {
    let factor = if random { 1.0 } else { f64::from(load.block_bytes) };
    let step = |at: usize, of: DiskFigure, hollow| {
        let value = of.value * factor;
        let ends = of.ends.map(|(low, high)| (low * factor, high * factor));
        let text = match random {
            true => format!("{at} in flight: {} /s", rate(value)),
            false => format!("{at} in flight: {} MB/s", significant(value / 1e6, 3)),
        };
        figure(as_f64(at), DiskFigure { value, ends }, hollow, text)
    };
    let climbed = load.climb.iter().filter(|(at, _)| *at != load.saturation_depth);
    let mut points: Vec<LinePoint> = climbed
        .map(|(at, value)| step(*at, DiskFigure { value: *value, ends: None }, true))
        .collect();
    points.push(step(load.saturation_depth, load.saturated, false));
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

fn rate_chart<'a>(loads: &[&'a DiskLoad], random: bool) -> Option<(Vec<String>, String)> {
    let mut depths: Vec<usize> = loads.iter().flat_map(|l| l.climb.iter().map(|s| s.0)).collect();
    depths.extend(loads.iter().map(|load| load.saturation_depth));
    depths.sort_unstable();
    depths.dedup();
    let ticks: Vec<(f64, String)> = depths.iter().map(|at| (as_f64(*at), at.to_string())).collect();
    let line = |(e, load): (usize, &&'a DiskLoad)| {
        let points = rate_points(load, random);
        LineSeries { e, name: load.name.as_str(), style: nth_style(e), points }
    };
    let series: Vec<LineSeries<'_>> = loads.iter().enumerate().map(line).collect();
    let bytes = |value: f64| match value {
        0.0 => "0".to_string(),
        x if x < 1e9 => format!("{} MB/s", x / 1e6),
        x => format!("{} GB/s", x / 1e9),
    };
    let form: &dyn Fn(f64) -> String = if random { &trim_rate } else { &bytes };
    let height = Height { form, zero: false, may_be_log: false, ends: None, width: Some(CHART) };
    let axis = LineAxis { ticks: &ticks, unit: "operations in flight".into() };
    let id = if random { "random-rate" } else { "sequential-rate" };
    let chart = draw((id, "Rate over operations in flight"), &axis, &height, &series, &[])?;
    Some((loads.iter().map(|load| load.name.clone()).collect(), chart))
}

/// Picks a quantile.
type Quantile = fn(&DiskLatency) -> DiskFigure;

/// The name of a load without its kind, which the title of the chart has.
fn short(load: &DiskLoad) -> &str {
    load.name.split_once(' ').map_or(load.name.as_str(), |(_, rest)| rest)
}

fn latency_chart(loads: &[&DiskLoad], random: bool) -> Option<(Vec<String>, String)> {
    let mut percents: Vec<f64> =
        loads.iter().flat_map(|load| load.latencies.iter().map(|one| one.percent)).collect();
    percents.sort_by(f64::total_cmp);
    percents.dedup();
    let ticks: Vec<(f64, String)> = percents.iter().map(|at| (*at, format!("{at:.0} %"))).collect();
    let kinds: [(&str, Quantile); 2] = [("p50", |one| one.p50), ("p99", |one| one.p99)];
    let named: Vec<(String, &DiskLoad, Quantile)> = loads
        .iter()
        .flat_map(|load| kinds.map(|(name, of)| (format!("{} {name}", short(load)), *load, of)))
        .collect();
    let series: Vec<LineSeries<'_>> = named
        .iter()
        .enumerate()
        .map(|(e, (name, load, of))| {
            let point = |one: &DiskLatency| {
                let figure_of = of(one);
                let text = format!("{:.0} %: {}", one.percent, nanoseconds(figure_of.value));
                figure(one.percent, figure_of, false, text)
            };
            let points = load.latencies.iter().map(point).collect();
            LineSeries { e, name, style: nth_style(e), points }
        })
        .collect();
    let height =
        Height { form: &short_time, zero: false, may_be_log: true, ends: None, width: Some(CHART) };
    let axis = LineAxis { ticks: &ticks, unit: "of the saturated rate".into() };
    let id = if random { "random-latency" } else { "sequential-latency" };
    let chart = draw((id, "Latency over the load"), &axis, &height, &series, &[])?;
    Some((named.iter().map(|(name, ..)| name.clone()).collect(), chart))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(name: &str, random: bool) -> DiskLoad {
        let figure = |value: f64| DiskFigure { value, ends: Some((value * 0.9, value * 1.1)) };
        let latency = |percent: f64| {
            let (p50, p99) = (figure(percent * 2e3), figure(percent * 3e4));
            DiskLatency { percent, p50, p99 }
        };
        DiskLoad {
            name: name.into(),
            random,
            block_bytes: if random { 4096 } else { 1 << 20 },
            climb: vec![(1, 9e3), (2, 17e3), (4, 30e3), (8, 31e3)],
            saturation_depth: 4,
            saturated: figure(29.5e3),
            latencies: vec![latency(50.0), latency(80.0)],
        }
    }

    #[test]
    fn rates_and_latencies_are_lines_with_intervals() {
        let loads = vec![load("random read", true), load("<b>write", true), load("read", false)];
        let chart = DiskChart { title: "/data & more".into(), loads };
        let svg = chart.svg();
        // Two rates and four latencies of random loads, one and two of sequential ones.
        assert_eq!(svg.matches("class=\"curve ").count(), 9);
        assert_eq!(svg.matches(" open\"").count(), 9, "three steps of each climb are hollow");
        assert!(svg.contains("operations in flight, logarithmic"), "{svg}");
        assert!(svg.contains("/data &amp; more") && svg.contains("&lt;b&gt;write"));
        assert!(!svg.contains("<b>") && !svg.contains("var(") && !svg.contains("NaN"));
        assert!(chart.html().starts_with("<!DOCTYPE html>"));
    }

    #[test]
    fn read_only_and_empty_measurements_have_a_file() {
        let chart = DiskChart { title: "disk".into(), loads: Vec::new() };
        assert_eq!(chart.svg().matches("not measured").count(), 4);
    }
}
