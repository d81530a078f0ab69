//! Latency at the fixed rate: by percentile, and as a distribution.

use std::collections::BTreeMap;

use serde_json::json;
use tare_lab::analysis::{Interval, Latency};

use super::plot::{Line, Plot, number};
use super::{Rows, Series, as_f64, short_time};
use crate::histogram::{Responses, curve};
use crate::html::svg::{Scale, Svg, TextAnchor};
use crate::tails::time;
use tare_std::units::{nanoseconds, thousands};

/// A row: its name, its index in [`Responses::by_round`], and its percentile.
type Row = (&'static str, usize, Option<f64>);

/// The rows of figure 2 of "The Cost of Containerization for Your Scylla".
const ROWS: [Row; 4] = [
    ("average", 0, None),
    ("p95", 1, Some(95.0)),
    ("p99", 2, Some(99.0)),
    ("p99.9", 3, Some(99.9)),
];

/// The figure of a row over all rounds.
fn figure(latency: &Latency, (_, at, _): Row) -> f64 {
    [latency.mean_ns, as_f64(latency.p95_ns), as_f64(latency.p99_ns), as_f64(latency.p999_ns)][at]
}

/// The interval of a row, if it has bounds.
fn interval(latency: &Latency, (_, _, percent): Row) -> Option<Interval> {
    latency.percentile(percent?)?.ns.filter(Interval::is_bounded)
}

/// The smallest and the largest value of a row in a single round.
fn spread(responses: Option<&Responses>, (_, at, _): Row) -> Option<(f64, f64)> {
    let values = || responses.into_iter().flat_map(|r| r.by_round.iter().map(|(_, of)| of[at]));
    let low = values().reduce(f64::min)?;
    Some((low, values().fold(low, f64::max)))
}

/// The ends of the scale: every figure and single round, and the intervals unless they are so wide
/// that the rest would become unreadable.
fn extent(shown: &[Shown<'_, '_>]) -> Option<(f64, f64)> {
    let all = || shown.iter().flat_map(|one| ROWS.map(|row| (one, row)));
    let values = || {
        all().flat_map(|((_, latency, responses), row)| {
            let of = figure(latency, row);
            let (low, high) = spread(*responses, row).unwrap_or((of, of));
            [of, low.max(1.0), high]
        })
    };
    let low = values().reduce(f64::min)?;
    let high = values().fold(low, f64::max);
    let intervals = || all().filter_map(|((_, latency, _), row)| interval(latency, row));
    Some((
        intervals().fold(low, |least, i| least.min(i.low.max(low / ROOM))),
        intervals().fold(high, |most, i| most.max(i.high.min(high * ROOM))),
    ))
}

/// The factor by which an interval may exceed every measured value.
const ROOM: f64 = 2.0;

type Shown<'d, 'r> = (&'d Series<'r>, &'d Latency, Option<&'d Responses>);

/// Draws response time at the fixed rate: one row per percentile, one lane per environment, with
/// the interval of each percentile and a faint line over the range of the single rounds.
pub(in crate::html) fn percentiles(
    series: &[Series<'_>],
    responses: &[Option<Responses>],
    id: &str,
) -> Option<String> {
    const PITCH: f64 = 11.0;
    let shown: Vec<Shown<'_, '_>> = series
        .iter()
        .zip(responses)
        .filter_map(|(d, r)| {
            let latency = d.finding.response.as_ref().filter(|l| l.count > 0)?;
            Some((d, latency, r.as_ref()))
        })
        .collect();
    let (low, high) = extent(&shown)?;
    let time_text = |latency: &Latency, row: Row| match interval(latency, row) {
        Some(i) => format!("{} {}", row.0, time(&i)),
        None => format!("{} {}", row.0, nanoseconds(figure(latency, row))),
    };
    let description = shown
        .iter()
        .map(|(d, l, _)| format!("{}: {}", d.name(), ROWS.map(|row| time_text(l, row)).join(", ")))
        .collect::<Vec<_>>()
        .join(". ");
    let lane = as_f64(shown.len()) * PITCH + 8.0;
    let title = "Response time at the fixed rate, grouped by percentile";
    let mut chart =
        Rows::new(id, (title, &description), Scale::log(low * 0.9, high * 1.1), ROWS.len(), lane);
    let scale = chart.scale;
    chart.axis(ROWS.len(), &short_time, "response time from the intended start, logarithmic");
    for row in ROWS {
        let middle = chart.label(row.0, "");
        let top = middle - lane / 2.0 + 8.0;
        for (index, (one, latency, responses)) in shown.iter().enumerate() {
            let of = figure(latency, row);
            let (x, y) = (scale.x(of), top + as_f64(index) * PITCH);
            let style = one.style;
            one.begin(&mut chart.svg);
            chart.svg.line(scale.x(low * 0.9), y, x, y, "stem");
            let count = thousands(latency.count);
            let mut text = format!("{}, of {count} operations", time_text(latency, row));
            if row
                .2
                .is_some_and(|percent| latency.percentile(percent).is_some_and(|p| p.ns.is_none()))
            {
                text.push_str("; no interval: too few of them took longer");
            }
            if let Some((from, to)) = spread(*responses, row) {
                chart.svg.line(
                    scale.x(from),
                    y,
                    scale.x(to),
                    y,
                    &format!("spread {}", style.class),
                );
                let blocks = responses.map_or(0, |r| r.by_round.len());
                let (from, to) = (nanoseconds(from), nanoseconds(to));
                text.push_str(&format!("; {from} to {to} in single rounds ({blocks})"));
            }
            if let Some(i) = interval(latency, row) {
                let inside = |ns: f64| scale.x(ns.clamp(low, high));
                let (from, to) = (inside(i.low), inside(i.high));
                chart.svg.line(from, y, to, y, &format!("interval {}", style.class));
                for (end, ns) in [(from, i.low), (to, i.high)] {
                    // An end that is cut off has no cap.
                    if (low..=high).contains(&ns) {
                        let class = format!("end {}", style.class);
                        chart.svg.line(end, y - 4.0, end, y + 4.0, &class);
                    }
                }
            }
            chart.svg.mark(x, y, style.shape, 4.5, style.class, &text);
            chart.svg.end_group();
        }
    }
    Some(chart.svg.finish())
}

/// Draws the distribution: latency by percentile, the x axis in nines.
pub(in crate::html) fn distribution(
    series: &[Series<'_>],
    responses: &[Option<Responses>],
    id: &str,
) -> Option<Plot> {
    const HEIGHT: f64 = 430.0;
    const FLOOR: f64 = HEIGHT - 40.0;
    let curves: Vec<(&Series<'_>, &Responses)> =
        series.iter().zip(responses).filter_map(|(d, r)| r.as_ref().map(|r| (d, r))).collect();
    let points: Vec<_> = curves.iter().map(|(_, r)| curve(&r.merged)).collect();
    let all = || points.iter().flatten();
    let low = all().map(|p| p.latency_ns).reduce(f64::min)?;
    let high = all().map(|p| p.latency_ns).fold(low, f64::max);
    let nines = all().map(|p| p.nines).fold(1.0f64, f64::max);
    let (x, y) = (Scale::linear(0.0, nines).after(12.0), Scale::log(low * 0.8, high * 1.2));
    let at = |latency: f64| FLOOR - y.share(latency) * (FLOOR - 16.0);
    let description = curves
        .iter()
        .map(|(d, r)| {
            format!(
                "{}: {} operations, maximum {}",
                d.name(),
                thousands(r.merged.len()),
                nanoseconds(as_f64(r.merged.max()))
            )
        })
        .collect::<Vec<_>>()
        .join(". ");
    let title = "Full distribution of response times";
    let mut svg = Svg::new(id, HEIGHT, title, &description);
    for tick in y.ticks(5) {
        svg.line(0.0, at(tick), 100.0, at(tick), "grid");
        svg.text(0.0, at(tick) - 3.0, TextAnchor::Start, "tick", &short_time(tick));
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
        svg.text(at_x, FLOOR + 15.0, TextAnchor::Middle, "tick", &label);
    }
    svg.text(100.0, FLOOR + 33.0, TextAnchor::End, "tick", "percentile, one step per nine");
    // Floats above 0 sort like their bits.
    let mut places: BTreeMap<u64, f64> = BTreeMap::new();
    for point in all() {
        places.insert(point.nines.to_bits(), point.nines);
    }
    let mut lines = Vec::new();
    for ((one, responses), points) in curves.iter().zip(&points) {
        let style = one.style;
        let line: Vec<(f64, f64)> =
            points.iter().map(|p| (x.x(p.nines), at(p.latency_ns))).collect();
        one.begin(&mut svg);
        svg.polyline(&line, &format!("curve {}", style.class), "");
        if let Some((end_x, end_y)) = line.last() {
            let text = format!(
                "maximum {} of {} operations",
                nanoseconds(as_f64(responses.merged.max())),
                thousands(responses.merged.len())
            );
            svg.mark(*end_x, *end_y, style.shape, 4.5, style.class, &text);
        }
        svg.end_group();
        let known: BTreeMap<u64, f64> =
            points.iter().map(|p| (p.nines.to_bits(), p.latency_ns)).collect();
        let y = places.keys().map(|place| known.get(place).copied()).collect();
        lines.push(Line { of: one, y, extremes: None }.as_json());
    }
    let x: Vec<serde_json::Value> = places.values().map(|nines| number(*nines)).collect();
    let data = json!({
        "title": title, "x": x, "x_unit": "nines", "unit": "ns", "log": true, "height": 420,
        "lines": lines,
    });
    Some(Plot::new(svg.finish(), &data))
}
