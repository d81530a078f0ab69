//! Throughput per environment: the figure and every round.

use tare_lab::record::{Phase, Slice};

use super::{Rows, Series, as_f64, per_s, trim_rate};
use crate::figures::{rate, with_interval};
use crate::html::svg::{Scale, Shape};

/// Rounds of one environment above which a histogram replaces the dots, which would overlap.
const DOTS_MAX: usize = 150;
/// Columns of that histogram over the whole scale.
const COLUMNS: usize = 120;
const LANE: f64 = 30.0;

/// Draws the throughput of every round as a dot, or of many rounds as a histogram, and the figure
/// with its interval as a bar. The second value is whether it drew a histogram.
pub(in crate::html) fn throughput(series: &[Series<'_>], id: &str) -> Option<(String, bool)> {
    let slices = || series.iter().flat_map(|d| d.of(Phase::Capacity));
    let high = slices().map(per_s).fold(0.0f64, f64::max);
    if high <= 0.0 {
        return None;
    }
    let description = series
        .iter()
        .filter_map(|d| {
            let figure = d.finding.throughput_per_s.as_ref()?;
            Some(format!("{}: {}/s", d.name(), with_interval(figure, rate)))
        })
        .collect::<Vec<_>>()
        .join(". ");
    let title = "Throughput per environment, every round a dot";
    let mut chart =
        Rows::new(id, (title, &description), Scale::linear(0.0, high), series.len(), LANE);
    let scale = chart.scale;
    chart.axis(
        series.len(),
        &|tick| if tick == 0.0 { "0".into() } else { trim_rate(tick) },
        "operations per second, closed loop",
    );
    let mut folded = false;
    for one in series {
        let throughput = one.finding.throughput_per_s;
        let figure = throughput
            .as_ref()
            .map_or_else(|| "-".to_string(), |t| format!("{}/s", with_interval(t, rate)));
        let y = chart.label(one.name(), &figure);
        one.begin(&mut chart.svg);
        let own: Vec<&Slice> = one.of(Phase::Capacity).collect();
        if own.len() > DOTS_MAX {
            folded = true;
            histogram(&mut chart, &own, y, high, &format!("dot {}", one.style.class));
        } else {
            for slice in own {
                dot(&mut chart, slice, y, one.style.class);
            }
        }
        if let Some(t) = throughput {
            if t.low.is_finite() && t.high.is_finite() {
                chart.svg.line(scale.x(t.low), y, scale.x(t.high), y, "median");
            }
            let x = scale.x(t.value);
            let text = format!(
                "{} op/s, the middle of {} rounds with its 95 % interval",
                with_interval(&t, rate),
                t.rounds
            );
            chart.svg.bar(x, y - 12.0, y + 12.0, "median", &text);
        }
        chart.svg.end_group();
    }
    Some((chart.svg.finish(), folded))
}

fn dot(chart: &mut Rows, slice: &Slice, y: f64, class: &str) {
    let jitter = f64::from((slice.round * 7) % 11) * 1.4 - 5.0;
    let text = format!("round {}: {} op/s", slice.round, rate(per_s(slice)));
    let (x, y) = (chart.scale.x(per_s(slice)), y + jitter);
    match &slice.void {
        None => chart.svg.dot(x, y, 3.0, &format!("dot {class}"), &text),
        Some(reason) => {
            let text = format!("{text}, void: {reason}");
            chart.svg.mark(x, y, Shape::Cross, 3.0, "void", &text);
        }
    }
}

/// Counts the valid rounds in each column of the scale.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of the scale, 0 to 1"
)]
fn histogram(chart: &mut Rows, slices: &[&Slice], y: f64, high: f64, class: &str) {
    let mut counts = vec![0usize; COLUMNS];
    for slice in slices.iter().filter(|s| s.void.is_none()) {
        let column = (per_s(slice) / high * as_f64(COLUMNS)) as usize;
        counts[column.min(COLUMNS - 1)] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let wide = high / as_f64(COLUMNS);
    for (column, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
        let (from, to) = (as_f64(column) * wide, as_f64(column + 1) * wide);
        let tall = (LANE - 4.0) * as_f64(count) / as_f64(most);
        let text = format!("{count} rounds of {} to {} op/s", rate(from), rate(to));
        let (x, end) = (chart.scale.x(from), chart.scale.x(to));
        chart.svg.rect(x, y + LANE / 2.0 - tall, end - x, tall, class, &text);
    }
}
