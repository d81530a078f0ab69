//! Draws the last slices of each environment: throughput and p99 as sparklines on a common scale.

use std::collections::VecDeque;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Sparkline, Widget};
use tare_report::{latency, rate};

use super::DrawContext;
use super::text::{put, rule};
use crate::live::screen::state::Series;

/// Width of a figure: `1.24M op/s`, `1.84 ms`.
const FIGURE: u16 = 10;
/// Most columns of a sparkline.
const SPARK_MAX: u16 = 60;

pub(super) fn draw(context: &DrawContext<'_>, area: Rect, buffer: &mut Buffer) {
    if area.height < 2 {
        return;
    }
    let state = context.state;
    let series = |index: usize| {
        state.environments[index].series.get(state.shown).cloned().unwrap_or_default()
    };
    let all: Vec<Series> = context.rows.iter().map(|index| series(*index)).collect();
    let at_rate = all.iter().any(|one| !one.response_ns_p99.is_empty());
    let what = if at_rate { "p99 at the fixed rate" } else { "p99" };
    rule(area, area.y, &format!("Last slices: throughput, {what}"), context.theme, buffer);

    let used = 2 + context.names + 2 * (FIGURE + 2) + 1;
    let spark = (area.width.saturating_sub(used) / 2).min(SPARK_MAX);
    let p99 = |one: &Series| -> VecDeque<f64> {
        let source = if at_rate { &one.response_ns_p99 } else { &one.service_ns_p99 };
        source.iter().map(|ns| *ns as f64).collect()
    };
    let recent = |values: &VecDeque<f64>| newest(values, spark);
    let throughput_max = highest(all.iter().map(|one| recent(&one.throughput_per_s)));
    let p99_max = highest(all.iter().map(|one| recent(&p99(one))));

    let rows = usize::from(area.height - 1);
    let mut shown = context.rows.clone();
    if shown.len() > rows {
        // The running environment is always shown, then those whose costs come first.
        let (order, _) = context.cut(area.height);
        let runs = |index: &usize| {
            state.now.as_ref().is_some_and(|now| state.environments[*index].name == now.environment)
        };
        shown.retain(|index| runs(index));
        shown.extend(order.into_iter().filter(|index| !runs(index)));
        shown.truncate(rows);
    }
    for (y, index) in (area.y + 1..).zip(shown) {
        context.name(&state.environments[index], area, y, buffer);
        let one = &all[index];
        let p99 = p99(one);
        let parts = [
            (&one.throughput_per_s, throughput_max, throughput(one.throughput_per_s.back())),
            (&p99, p99_max, p99.back().map_or_else(String::new, |ns| p99_text(*ns))),
        ];
        let mut x = area.x + 2 + context.names + 2;
        for (values, max, figure) in parts {
            let place = Rect { x, y, width: spark, height: 1 }.intersection(area);
            sparkline(&recent(values), max, context.theme.accent(), place, buffer);
            put(buffer, area, x + spark + 1, y, &figure, Style::new());
            x += spark + 1 + FIGURE + 2;
        }
    }
}

fn throughput(per_s: Option<&f64>) -> String {
    per_s.map_or_else(String::new, |per_s| format!("{} op/s", rate(*per_s)))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was a u64")]
fn p99_text(ns: f64) -> String {
    latency(ns as u64)
}

/// Returns the newest values that fit into a width.
fn newest(values: &VecDeque<f64>, width: u16) -> Vec<f64> {
    let skipped = values.len().saturating_sub(usize::from(width));
    values.iter().skip(skipped).copied().collect()
}

/// Returns the top of the scale: the highest value, limited to four times the median, so that one
/// stall does not flatten the rest.
fn highest(all: impl Iterator<Item = Vec<f64>>) -> f64 {
    let mut values: Vec<f64> = all.flatten().collect();
    values.sort_by(f64::total_cmp);
    let median = values.get(values.len() / 2).copied().unwrap_or(1.0);
    values.last().copied().unwrap_or(1.0).min(4.0 * median)
}

/// Draws a sparkline from zero to `max`, in thousandths.
fn sparkline(values: &[f64], max: f64, style: Style, area: Rect, buffer: &mut Buffer) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
    let scaled: Vec<u64> =
        values.iter().map(|value| (1000.0 * value / max).clamp(0.0, 1000.0) as u64).collect();
    Sparkline::default().data(scaled).max(1000).style(style).render(area, buffer);
}
