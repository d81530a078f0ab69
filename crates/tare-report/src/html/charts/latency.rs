//! Latency at the fixed rate: by percentile, and the whole distribution.

use std::collections::BTreeMap;

use serde_json::json;
use tare_lab::analysis::Latency;

use super::plot::{Line, Plot, number};
use super::{Drawn, Rows, as_f64, short_time};
use crate::histogram::{Responses, curve};
use crate::html::svg::{Anchor, Scale, Svg};
use tare_std::units::{nanoseconds, thousands};

type Read = fn(&Latency) -> f64;

/// The percentiles of figure 2 of "The Cost of Containerization for Your Scylla".
const ROWS: [(&str, Read); 4] = [
    ("average", |l| l.mean_ns),
    ("p95", |l| as_f64(l.p95_ns)),
    ("p99", |l| as_f64(l.p99_ns)),
    ("p99.9", |l| as_f64(l.p999_ns)),
];

/// The smallest and the largest value of one of [`ROWS`] in a single block.
fn spread(responses: Option<&Responses>, row: usize) -> Option<(f64, f64)> {
    let values = || responses.into_iter().flat_map(|r| r.by_block.iter().map(|(_, at)| at[row]));
    let low = values().reduce(f64::min)?;
    Some((low, values().fold(low, f64::max)))
}

/// Response time at the fixed rate: one row per percentile, one lane per environment, with a line
/// from the smallest to the largest value in a single block.
pub(in crate::html) fn percentiles(
    drawn: &[Drawn<'_>],
    responses: &[Option<Responses>],
    id: &str,
) -> Option<String> {
    const PITCH: f64 = 11.0;
    let shown: Vec<(&Drawn<'_>, &Latency, Option<&Responses>)> = drawn
        .iter()
        .zip(responses)
        .filter_map(|(d, r)| {
            let latency = d.finding.response.as_ref().filter(|l| l.count > 0)?;
            Some((d, latency, r.as_ref()))
        })
        .collect();
    let values = || {
        shown.iter().flat_map(|(_, l, r)| {
            ROWS.iter().enumerate().flat_map(|(row, (_, read))| {
                let (low, high) = spread(*r, row).unwrap_or((read(l), read(l)));
                [read(l), low.max(1.0), high]
            })
        })
    };
    let low = values().reduce(f64::min)?;
    let high = values().fold(low, f64::max);
    let description = shown
        .iter()
        .map(|(d, l, _)| {
            let of = |(name, read): &(&str, Read)| format!("{name} {}", nanoseconds(read(l)));
            format!("{}: {}", d.name(), ROWS.iter().map(of).collect::<Vec<_>>().join(", "))
        })
        .collect::<Vec<_>>()
        .join(". ");
    let lane = as_f64(shown.len()) * PITCH + 8.0;
    let title = "Response time at the fixed rate, grouped by percentile";
    let mut chart =
        Rows::new(id, (title, &description), Scale::log(low * 0.9, high * 1.1), ROWS.len(), lane);
    let scale = chart.scale;
    chart.axis(ROWS.len(), &short_time, "response time from the intended start, logarithmic");
    for (row, (name, read)) in ROWS.into_iter().enumerate() {
        let middle = chart.label(name, "");
        let top = middle - lane / 2.0 + 8.0;
        for (index, (one, latency, responses)) in shown.iter().enumerate() {
            let (x, y) = (scale.x(read(latency)), top + as_f64(index) * PITCH);
            one.begin(&mut chart.svg);
            chart.svg.line(scale.x(low * 0.9), y, x, y, "stem");
            let mut text = format!(
                "{name} {}, of {} operations",
                nanoseconds(read(latency)),
                thousands(latency.count)
            );
            if let Some((from, to)) = spread(*responses, row) {
                let class = format!("spread {}", one.look.class);
                chart.svg.line(scale.x(from), y, scale.x(to), y, &class);
                let blocks = responses.map_or(0, |r| r.by_block.len());
                let (from, to) = (nanoseconds(from), nanoseconds(to));
                text.push_str(&format!("; {from} to {to} in single blocks ({blocks})"));
            }
            chart.svg.mark(x, y, one.look.shape, 4.5, one.look.class, &text);
            chart.svg.end_group();
        }
    }
    Some(chart.svg.finish())
}

/// The whole distribution: latency over how rare it is, the x axis in nines.
pub(in crate::html) fn distribution(
    drawn: &[Drawn<'_>],
    responses: &[Option<Responses>],
    id: &str,
) -> Option<Plot> {
    const HEIGHT: f64 = 430.0;
    const FLOOR: f64 = HEIGHT - 40.0;
    let curves: Vec<(&Drawn<'_>, &Responses)> =
        drawn.iter().zip(responses).filter_map(|(d, r)| r.as_ref().map(|r| (d, r))).collect();
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
    // Positions above 0 sort like their bits.
    let mut places: BTreeMap<u64, f64> = BTreeMap::new();
    for point in all() {
        places.insert(point.nines.to_bits(), point.nines);
    }
    let mut lines = Vec::new();
    for ((one, responses), points) in curves.iter().zip(&points) {
        let look = one.look;
        let line: Vec<(f64, f64)> =
            points.iter().map(|p| (x.x(p.nines), at(p.latency_ns))).collect();
        one.begin(&mut svg);
        svg.polyline(&line, &format!("curve {}", look.class), "");
        if let Some((end_x, end_y)) = line.last() {
            let text = format!(
                "maximum {} of {} operations",
                nanoseconds(as_f64(responses.merged.max())),
                thousands(responses.merged.len())
            );
            svg.mark(*end_x, *end_y, look.shape, 4.5, look.class, &text);
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
