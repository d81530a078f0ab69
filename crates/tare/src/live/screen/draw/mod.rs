//! The state as a picture: a pure function onto a buffer of any size.
//!
//! Layout from the top: what runs and how far it is, the ladder of costs, the last slices of each
//! environment, doubts, the last lines of the run, the keys. Where not everything fits, lists are
//! cut: costs show the control and then the worst first, and scroll. Below 60 columns or 16 rows
//! there is a short form.

mod doubts;
mod header;
mod ladder;
mod slices;
mod text;

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use tare_report::cost_chart::{CostChart, Verdict};

use super::state::{Environment, State, View};
use text::{put, rule};

/// Rows from which advice stands below each doubt.
const ROWS_FOR_ADVICE: u16 = 32;

/// Rows of the slices, the heading among them, that the ladder leaves where not everything fits.
const SLICES_MIN: u16 = 4;

/// How things are marked: by colour, and always by a sign or by weight too.
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

    /// Costs as the report paints them: red for a claimed loss, green for a gain, dim for neither.
    fn verdict(self, verdict: Verdict) -> Style {
        match verdict {
            Verdict::Loss => self.with(self.bold(), Color::Red),
            Verdict::Gain => self.with(self.bold(), Color::Green),
            Verdict::Baseline => Style::new(),
            Verdict::Unknown | Verdict::NotClaimed => self.dim(),
        }
    }
}

/// What every part of the picture needs.
struct Scene<'a> {
    state: &'a State,
    /// Since the study began.
    now: Duration,
    theme: Theme,
    ladder: Option<CostChart>,
    /// Environments in the order of the study, by their index.
    rows: Vec<usize>,
    /// Columns of the names.
    names: u16,
}

impl<'a> Scene<'a> {
    fn new(state: &'a State, now: Duration, theme: Theme, width: u16) -> Self {
        let workload = state.workloads.get(state.shown).map_or("", String::as_str);
        let ladder = state
            .analysis
            .as_ref()
            .map(|analysis| tare_report::cost_chart::cost_chart(analysis, workload, state.metric));
        let rows = (0..state.environments.len()).collect();
        let names = state.environments.iter().map(|one| text::columns(&text::name(one)));
        let names = names.max().unwrap_or(0).clamp(8, (width / 3).clamp(8, 32));
        Self { state, now, theme, ladder, rows, names }
    }

    /// The environments in so few rows: all of them as they are, or the control and then the worst
    /// first from where the list is scrolled to, and how many are not shown.
    fn cut(&self, rows: u16) -> (Vec<usize>, usize) {
        let (rows, all) = (usize::from(rows), self.rows.len());
        if all <= rows {
            return (self.rows.clone(), 0);
        }
        let mut order = self.rows.clone();
        order.sort_by(|a, b| self.rank(*b).total_cmp(&self.rank(*a)));
        // The last row says how many more there are.
        let shown = rows.saturating_sub(1);
        let from = self.state.scroll.min(all - shown);
        (order[from..from + shown].to_vec(), all - shown)
    }

    /// Higher comes first where not all fit.
    fn rank(&self, index: usize) -> f64 {
        let name = &self.state.environments[index].name;
        let rungs = self.ladder.iter().flat_map(|ladder| &ladder.rows);
        match rungs.into_iter().find(|rung| rung.environment == *name) {
            Some(rung) if rung.control => f64::INFINITY,
            Some(rung) if rung.verdict == Verdict::Baseline => f64::MIN,
            Some(rung) => rung.cost.map_or(-1e9, |cost| cost.value),
            None => f64::NEG_INFINITY,
        }
    }
}

/// Draws everything.
pub(super) fn draw(state: &State, now: Duration, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let scene = Scene::new(state, now, theme, area.width);
    let mut rest = area;
    if area.width < 60 || area.height < 16 {
        let rows = header::short(&scene, rest, buffer);
        take(&mut rest, rows);
        ladder::short(&scene, rest, buffer);
        return;
    }
    let rows = header::draw(&scene, rest, buffer);
    take(&mut rest, rows);
    let footer = Rect { y: rest.bottom() - 1, height: 1, ..rest };
    header::keys(&scene, footer, buffer);
    rest.height -= 1;
    match state.view {
        View::Costs => costs(&scene, rest, buffer),
        View::Doubts => doubts::all(&scene, rest, buffer),
        View::Help => header::help(&scene, rest, buffer),
    }
}

/// Takes rows from the top of an area.
fn take(area: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    let taken = Rect { height: rows, ..*area };
    area.y += rows;
    area.height -= rows;
    taken
}

fn costs(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let mut rest = area;
    let all = u16::try_from(scene.rows.len()).unwrap_or(u16::MAX);
    let advice = area.height + 3 >= ROWS_FOR_ADVICE;
    let lines = match area.height {
        0..20 => 0,
        20..28 => 1,
        _ => 4,
    };
    let doubted = u16::try_from(scene.state.doubts().len()).unwrap_or(u16::MAX).max(1);
    let per_doubt = if advice { 2 } else { 1 };
    let doubts = 1 + doubted.saturating_mul(per_doubt).min(area.height / 7 * per_doubt).max(1);
    let lists = area.height.saturating_sub(doubts + lines);
    // The ladder has a heading of two rows, the slices one of one. All costs before all slices.
    let measured = scene.state.environments.iter().any(Environment::has_slices);
    let slices_min = if measured { SLICES_MIN } else { 0 };
    let ladder = all.saturating_add(2).min(lists.saturating_sub(slices_min).max(5));
    let slices = if measured { all.saturating_add(1) } else { 0 };
    let slices = slices.min(lists.saturating_sub(ladder));
    ladder::draw(scene, take(&mut rest, ladder), buffer);
    slices::draw(scene, take(&mut rest, slices), buffer);
    // What the lists do not need is for doubts, then for lines.
    let spare = rest.height.saturating_sub(doubts + lines);
    let doubts = doubts + spare.min(doubted.saturating_mul(per_doubt).saturating_sub(doubts - 1));
    doubts::newest(scene, take(&mut rest, doubts), advice, buffer);
    log(scene, rest, buffer);
}

/// The last lines of the run.
fn log(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let rows = usize::from(area.height);
    if rows == 0 {
        return;
    }
    let heading = rows > 1;
    let lines: Vec<&str> = scene.state.lines().rev().take(rows - usize::from(heading)).collect();
    if lines.is_empty() {
        return;
    }
    let mut y = area.y;
    if heading {
        rule(area, y, "Lines", scene.theme, buffer);
        y += 1;
    }
    for line in lines.iter().rev() {
        put(buffer, area, area.x + 2, y, &tare_report::clean(line), scene.theme.dim());
        y += 1;
    }
}
