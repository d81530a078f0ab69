//! Draws the costs with their intervals on a common scale, with zero and the noise of the A/A
//! control.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tare_report::cost_chart::{CostChart, CostChartRow, Verdict};
use tare_report::{Metric, clean, percent};

use super::DrawContext;
use super::header::status;
use super::text::{columns, fit, name, put, rule};
use crate::live::screen::state::Environment;

/// Columns of the text after a bar.
const WORDS_MAX: u16 = 30;
const WORDS_MIN: u16 = 12;
const SCALE_MAX: u16 = 100;

pub(super) fn draw(context: &DrawContext<'_>, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    rule(area, area.y, &heading(context), context.theme, buffer);
    let (shown, hidden) = context.cut(area.height.saturating_sub(2));
    let words = context
        .rows
        .iter()
        .filter_map(|index| context.cost_row(&context.state.environments[*index]));
    let words = words.map(|row| columns(&cost_text(row))).max().unwrap_or(0);
    let words = words.clamp(WORDS_MIN, WORDS_MAX.min(area.width / 3 + 4));
    let from = area.x + 2 + context.names + 2;
    let scale = area.width.saturating_sub(2 + context.names + 2 + words + 2).min(SCALE_MAX);
    if let Some(chart) = &context.chart {
        put(buffer, area, from, area.y + 1, &axis(chart, scale), context.theme.dim());
    }
    let mut y = area.y + 2;
    for index in shown {
        let environment = &context.state.environments[index];
        context.name(environment, area, y, buffer);
        match (&context.chart, context.cost_row(environment)) {
            (Some(chart), Some(row)) => {
                let style = context.theme.verdict(row.verdict);
                for (at, c) in (0..scale).zip(bar(chart, row, scale)) {
                    let style = if "░│".contains(c) { context.theme.dim() } else { style };
                    put(buffer, area, from + at, y, c.encode_utf8(&mut [0; 4]), style);
                }
                put(buffer, area, from + scale + 2, y, &cost_text(row), style);
            }
            _ => {
                put(buffer, area, from, y, &status(&environment.status), context.theme.dim());
            }
        }
        y += 1;
    }
    if hidden > 0 {
        let more = format!("and {hidden} more; highest first (↑ ↓)");
        put(buffer, area, area.x + 2, y, &more, context.theme.dim());
    }
}

/// Draws one row of text per environment.
pub(super) fn short(context: &DrawContext<'_>, area: Rect, buffer: &mut Buffer) {
    let (shown, hidden) = context.cut(area.height);
    let mut y = area.y;
    for index in shown {
        let environment = &context.state.environments[index];
        context.name(environment, area, y, buffer);
        let x = area.x + 2 + context.names + 1;
        match context.cost_row(environment) {
            Some(row) => {
                put(buffer, area, x, y, &cost_text(row), context.theme.verdict(row.verdict))
            }
            None => put(buffer, area, x, y, &status(&environment.status), context.theme.dim()),
        };
        y += 1;
    }
    if hidden > 0 {
        put(buffer, area, area.x + 2, y, &format!("and {hidden} more"), context.theme.dim());
    }
}

impl DrawContext<'_> {
    fn cost_row(&self, environment: &Environment) -> Option<&CostChartRow> {
        let mut rows = self.chart.iter().flat_map(|chart| &chart.rows);
        rows.find(|row| row.environment == environment.name)
    }

    /// Draws the name of an environment, marked while its slice runs.
    pub(super) fn name(&self, environment: &Environment, area: Rect, y: u16, buffer: &mut Buffer) {
        let now = self.state.now.as_ref();
        let runs = now.is_some_and(|now| now.environment == environment.name);
        if runs {
            put(buffer, area, area.x, y, "▶", self.theme.accent());
        }
        let style = if runs { self.theme.accent() } else { ratatui::style::Style::new() };
        put(buffer, area, area.x + 2, y, &fit(&name(environment), self.names), style);
    }
}

fn cost_text(row: &CostChartRow) -> String {
    let tag = if row.control { "A/A " } else { "" };
    format!("{tag}{}", row.text)
}

fn heading(context: &DrawContext<'_>) -> String {
    let what = match context.state.metric {
        Metric::ServerCpu => "Server CPU per operation, cost in %",
        Metric::Throughput => "Throughput lost, in %",
    };
    let noise = context.chart.as_ref().and_then(|chart| chart.noise);
    let noise =
        noise.map_or_else(String::new, |noise| format!(" (░ A/A noise, within {noise:.1} %)"));
    let workloads = &context.state.workloads;
    let of = match workloads.get(context.state.shown) {
        Some(workload) if workloads.len() > 1 => format!("{}: ", clean(workload)),
        _ => String::new(),
    };
    format!("{of}{what}{noise}")
}

fn axis(chart: &CostChart, scale: u16) -> String {
    let mut axis: Vec<char> = vec![' '; usize::from(scale)];
    let mut put = |text: &str, at: usize| {
        let length = text.chars().count();
        let from = at.min(axis.len().saturating_sub(length));
        let to = (from + length).min(axis.len());
        if axis[from.saturating_sub(1)..(to + 1).min(axis.len())].iter().all(|c| *c == ' ') {
            axis.splice(from..to, text.chars().take(to - from));
        }
    };
    put("0", column(chart, 0.0, scale));
    put(&percent(chart.high), usize::from(scale));
    put(&percent(chart.low), 0);
    axis.into_iter().collect()
}

fn bar(chart: &CostChart, row: &CostChartRow, scale: u16) -> Vec<char> {
    let mut bar: Vec<char> = vec![' '; usize::from(scale)];
    if scale == 0 {
        return bar;
    }
    let at = |percent: f64| column(chart, percent, scale);
    if let Some(noise) = chart.noise {
        bar[at(-noise)..=at(noise)].fill('░');
    }
    bar[at(0.0)] = '│';
    if row.verdict == Verdict::Baseline {
        bar[at(0.0)] = '◆';
    }
    let Some(cost) = row.cost else { return bar };
    let (low, high) = (at(cost.low), at(cost.high));
    if cost.is_bounded() && low < high {
        bar[low..=high].fill('─');
        bar[low] = '├';
        bar[high] = '┤';
    }
    bar[at(cost.value)] = '●';
    bar
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the columns of the scale"
)]
fn column(chart: &CostChart, percent: f64, scale: u16) -> usize {
    let last = f64::from(scale.saturating_sub(1));
    let share = (percent - chart.low) / (chart.high - chart.low);
    (share * last).round().clamp(0.0, last) as usize
}
