//! The order of the slices.

use tare_lab::record::{Phase, Record, Slice};

use super::{Rows, as_f64};
use crate::figures::in_order;
use crate::html::svg::Scale;

/// Draws the time of each slice: one row per environment, time to the right.
pub(in crate::html) fn order(record: &Record, id: &str) -> Option<String> {
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
            "When each environment was under load. In every round each environment runs once per phase, in random order.",
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
                (None, Phase::Latency | Phase::Traced | Phase::Slo) => latency.push((x, width)),
                (Some(why), _) => {
                    let text = format!(
                        "round {}, position {}: {}, void: {why}",
                        slice.round, slice.position, slice.workload
                    );
                    chart.svg.rect(x, y - 6.0, width, 12.0, "slice-void", &text);
                }
            }
        }
        chart.svg.rects(&capacity, y - 6.0, 12.0, "slice-capacity");
        chart.svg.rects(&latency, y - 6.0, 12.0, "slice-latency");
    }
    Some(chart.svg.finish())
}
