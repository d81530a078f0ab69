//! Draws the state onto a buffer of any size. Pure.
//!
//! Layout from the top: progress, costs, the last slices of each environment, doubts, the last
//! lines of the run, the keys. If not everything fits, lists are cut: costs start with the control
//! and then the highest, and scroll. Below 60 columns or 16 rows there is a short form.

mod costs;
mod doubts;
mod header;
mod slices;
mod text;

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use tare_report::cost_chart::{CostChart, Verdict};

use super::state::{Environment, State, View};
use text::{put, rule};

/// Rows from which each doubt has its advice below it.
const ROWS_FOR_ADVICE: u16 = 32;

/// Least rows of the slices, heading included, if not everything fits.
const SLICES_MIN: u16 = 4;

/// The styles. With or without colour, signs and weight carry the same information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Theme {
    pub(super) colour: bool,
}

impl Theme {
    fn with(self, style: Style, colour: Color) -> Style {
        if self.colour { style.fg(colour) } else { style }
    }

    fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn accent(self) -> Style {
        self.with(self.bold(), Color::Cyan)
    }

    fn warning(self) -> Style {
        self.with(self.bold(), Color::Yellow)
    }

    /// Returns the style of a cost, as in the report: red for a claimed loss, green for a gain, dim
    /// for neither.
    fn verdict(self, verdict: Verdict) -> Style {
        match verdict {
            Verdict::Loss => self.with(self.bold(), Color::Red),
            Verdict::Gain => self.with(self.bold(), Color::Green),
            Verdict::Baseline => Style::new(),
            Verdict::Unknown | Verdict::NotClaimed => self.dim(),
        }
    }
}

/// What every part of the screen needs.
struct DrawContext<'a> {
    state: &'a State,
    /// Time since the start of the study.
    now: Duration,
    theme: Theme,
    chart: Option<CostChart>,
    /// Indices of the environments in the order of the study.
    rows: Vec<usize>,
    /// Width of the column of names.
    names: u16,
}

impl<'a> DrawContext<'a> {
    fn new(state: &'a State, now: Duration, theme: Theme, width: u16) -> Self {
        let workload = state.workloads.get(state.shown).map_or("", String::as_str);
        let chart = state
            .analysis
            .as_ref()
            .map(|analysis| tare_report::cost_chart::cost_chart(analysis, workload, state.metric));
        let rows = (0..state.environments.len()).collect();
        let names = state.environments.iter().map(|one| text::columns(&text::name(one)));
        let names = names.max().unwrap_or(0).clamp(8, (width / 3).clamp(8, 32));
        Self { state, now, theme, chart, rows, names }
    }

    /// Returns the environments that fit into these rows, and how many are hidden. If not all fit,
    /// the control comes first, then the highest costs, from the scroll position on.
    fn cut(&self, rows: u16) -> (Vec<usize>, usize) {
        let (rows, all) = (usize::from(rows), self.rows.len());
        if all <= rows {
            return (self.rows.clone(), 0);
        }
        let mut order = self.rows.clone();
        order.sort_by(|a, b| self.rank(*b).total_cmp(&self.rank(*a)));
        // The last row shows the number of hidden ones.
        let shown = rows.saturating_sub(1);
        let from = self.state.scroll.min(all - shown);
        (order[from..from + shown].to_vec(), all - shown)
    }

    /// Returns the sort key if not all environments fit; the highest comes first.
    fn rank(&self, index: usize) -> f64 {
        let name = &self.state.environments[index].name;
        let rows = self.chart.iter().flat_map(|chart| &chart.rows);
        match rows.into_iter().find(|row| row.environment == *name) {
            Some(row) if row.control => f64::INFINITY,
            Some(row) if row.verdict == Verdict::Baseline => f64::MIN,
            Some(row) => row.cost.map_or(-1e9, |cost| cost.value),
            None => f64::NEG_INFINITY,
        }
    }
}

/// Draws the whole screen.
pub(super) fn draw(state: &State, now: Duration, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let context = DrawContext::new(state, now, theme, area.width);
    let mut rest = area;
    if area.width < 60 || area.height < 16 {
        let rows = header::short(&context, rest, buffer);
        take(&mut rest, rows);
        costs::short(&context, rest, buffer);
        return;
    }
    let rows = header::draw(&context, rest, buffer);
    take(&mut rest, rows);
    let footer = Rect { y: rest.bottom() - 1, height: 1, ..rest };
    header::keys(&context, footer, buffer);
    rest.height -= 1;
    match state.view {
        View::Costs => draw_costs(&context, rest, buffer),
        View::Doubts => doubts::all(&context, rest, buffer),
        View::Help => header::help(&context, rest, buffer),
    }
}

/// Splits rows off the top of an area, and returns them.
fn take(area: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    let taken = Rect { height: rows, ..*area };
    area.y += rows;
    area.height -= rows;
    taken
}

fn draw_costs(context: &DrawContext<'_>, area: Rect, buffer: &mut Buffer) {
    let mut rest = area;
    let all = u16::try_from(context.rows.len()).unwrap_or(u16::MAX);
    let advice = area.height + 3 >= ROWS_FOR_ADVICE;
    let lines = match area.height {
        0..20 => 0,
        20..28 => 1,
        _ => 4,
    };
    let doubted = u16::try_from(context.state.doubts().len()).unwrap_or(u16::MAX).max(1);
    let per_doubt = if advice { 2 } else { 1 };
    let doubts = 1 + doubted.saturating_mul(per_doubt).min(area.height / 7 * per_doubt).max(1);
    let lists = area.height.saturating_sub(doubts + lines);
    // Costs have a heading of two rows, slices one of one row. Costs have priority over slices.
    let measured = context.state.environments.iter().any(Environment::has_slices);
    let slices_min = if measured { SLICES_MIN } else { 0 };
    let chart = all.saturating_add(2).min(lists.saturating_sub(slices_min).max(5));
    let slices = if measured { all.saturating_add(1) } else { 0 };
    let slices = slices.min(lists.saturating_sub(chart));
    costs::draw(context, take(&mut rest, chart), buffer);
    slices::draw(context, take(&mut rest, slices), buffer);
    // Rows that the lists do not need go to doubts, then to lines.
    let spare = rest.height.saturating_sub(doubts + lines);
    let doubts = doubts + spare.min(doubted.saturating_mul(per_doubt).saturating_sub(doubts - 1));
    doubts::newest(context, take(&mut rest, doubts), advice, buffer);
    log(context, rest, buffer);
}

/// Draws the last lines of the run.
fn log(context: &DrawContext<'_>, area: Rect, buffer: &mut Buffer) {
    let rows = usize::from(area.height);
    if rows == 0 {
        return;
    }
    let heading = rows > 1;
    let lines: Vec<&str> = context.state.lines().rev().take(rows - usize::from(heading)).collect();
    if lines.is_empty() {
        return;
    }
    let mut y = area.y;
    if heading {
        rule(area, y, "Lines", context.theme, buffer);
        y += 1;
    }
    for line in lines.iter().rev() {
        put(buffer, area, area.x + 2, y, &tare_report::clean(line), context.theme.dim());
        y += 1;
    }
}
