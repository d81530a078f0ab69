//! Draws the progress, the keys and the help.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tare_lab::campaign::Stage;
use tare_lab::record::Phase;
use tare_report::clean;
use tare_std::units::thousands;

use super::DrawContext;
use super::text::{columns, fit, put, put_right, rule};
use crate::live::lines::minutes;
use crate::live::screen::state::{Status, View};

const KEYS: [(&str, &str); 7] = [
    ("q, Ctrl-C", "stop after the running slice; the record is kept"),
    ("m", "show costs in server CPU per operation or in throughput"),
    ("Tab, ← →", "show the next or previous workload"),
    ("↑ ↓", "scroll the environments or the doubts"),
    ("d", "show all doubts with advice"),
    ("?", "show this help; Escape closes it"),
    ("Ctrl-L", "redraw the screen"),
];

/// Draws three rows: study and stage, progress, the running slice. Returns their number.
pub(super) fn draw(context: &DrawContext<'_>, area: Rect, buffer: &mut Buffer) -> u16 {
    let (state, theme, y) = (context.state, context.theme, area.y);
    let stage = stage(context);
    let room = area.width.saturating_sub(columns(&stage) + 2);
    let name = fit(&clean(&state.name), room / 2);
    let after = put(buffer, area, area.x, y, &name, theme.accent());
    let title = fit(&clean(&state.title), room.saturating_sub(columns(&name) + 2));
    put(buffer, area, after + 2, y, &title, theme.dim());
    let style = if state.stopping { theme.warning() } else { theme.bold() };
    put_right(buffer, area, area.x, y, &stage, style);

    let progress = progress(context);
    let after = put(buffer, area, area.x, y + 1, &progress, theme.bold());
    let spent = format!("{} of {}", minutes(context.now), minutes(state.budget));
    put_right(buffer, area, after, y + 1, &spent, theme.dim());
    let bar = area.width.saturating_sub(after - area.x + columns(&spent) + 4).min(60);
    let share = context.now.as_secs_f64() / state.budget.as_secs_f64().max(1e-3);
    let x = area.right().saturating_sub(columns(&spent) + bar + 1);
    put(buffer, area, x, y + 1, &gauge(share, bar), theme.accent());

    let now = now(context);
    put(buffer, area, area.x, y + 2, &now, theme.accent());
    3
}

/// Draws two rows, for a small terminal. Returns their number.
pub(super) fn short(context: &DrawContext<'_>, area: Rect, buffer: &mut Buffer) -> u16 {
    let first = format!("{}: {}", clean(&context.state.name), stage(context));
    put(buffer, area, area.x, area.y, &first, context.theme.bold());
    put(buffer, area, area.x, area.y + 1, &progress(context), context.theme.accent());
    2
}

fn stage(context: &DrawContext<'_>) -> String {
    let state = context.state;
    let up = |status: &Status| !matches!(status, Status::Waiting | Status::Starting);
    let text = match state.stage {
        Stage::Starting => {
            let up = state.environments.iter().filter(|one| up(&one.status)).count();
            format!("starting environments, {up} of {}", state.environments.len())
        }
        Stage::WarmingUp => match state.left(context.now) {
            Some(left) => format!("warming up, {} left", minutes(left)),
            None => "warming up".to_string(),
        },
        Stage::Climbing => "finding the load that saturates the baseline".to_string(),
        Stage::ChoosingWindow => "choosing the length of slices".to_string(),
        Stage::Calibrating => "finding the baseline's capacity".to_string(),
        Stage::Measuring => "measuring".to_string(),
        Stage::SamplingStacks => "sampling stacks".to_string(),
        Stage::Tracing => "tracing".to_string(),
        Stage::TearingDown => "removing environments".to_string(),
    };
    match (state.stopping, state.stage) {
        (true, Stage::TearingDown) => "stopped: removing environments".to_string(),
        (true, _) => "stopping after this slice".to_string(),
        (false, _) => text,
    }
}

fn progress(context: &DrawContext<'_>) -> String {
    let state = context.state;
    if state.round == 0 {
        return format!("at most {} rounds", state.rounds_expected);
    }
    let extra = matches!(state.stage, Stage::SamplingStacks | Stage::Tracing);
    let at_most = if extra { "" } else { "at most " };
    let left = state.left(context.now).filter(|_| state.stage != Stage::TearingDown);
    let left = left.map_or_else(String::new, |left| format!(", {} left", minutes(left)));
    format!("round {} of {at_most}{}{left}", state.round, state.rounds_expected)
}

fn now(context: &DrawContext<'_>) -> String {
    let state = context.state;
    if let Some(now) = &state.now {
        let phase = match now.phase {
            Phase::Capacity => "at capacity",
            Phase::Latency => "at the fixed rate",
            Phase::Traced => "traced, at the fixed rate",
            Phase::Slo => "search for the capacity under the objective",
        };
        return format!("▶ {}, {}, {phase}", clean(&now.environment), clean(&now.workload));
    }
    let busy = state.environments.iter().find_map(|one| match &one.status {
        Status::Starting => Some(format!("▶ starting {}", clean(&one.name))),
        Status::Populating { workload, done, all } => Some(format!(
            "▶ {}: {} of {} rows of {}",
            clean(&one.name),
            thousands(*done),
            thousands(*all),
            clean(workload)
        )),
        _ => None,
    });
    busy.unwrap_or_default()
}

/// Returns a bar of this width, filled by a share of 0 to 1.
fn gauge(share: f64, width: u16) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the width")]
    let full = (share.clamp(0.0, 1.0) * f64::from(width)).round() as usize;
    "█".repeat(full) + &"░".repeat(usize::from(width) - full)
}

/// Draws one row with the keys of the current view.
pub(super) fn keys(context: &DrawContext<'_>, area: Rect, buffer: &mut Buffer) {
    let several = context.state.workloads.len() > 1;
    let mut words = vec!["q stop", "m metric", "d doubts", "↑↓ scroll", "? help"];
    if several {
        words.insert(2, "Tab workload");
    }
    if context.state.view != View::Costs {
        words = vec!["Esc back", "q stop"];
    }
    put(buffer, area, area.x, area.y, &words.join("  "), context.theme.dim());
}

pub(super) fn help(context: &DrawContext<'_>, area: Rect, buffer: &mut Buffer) {
    rule(area, area.y, "Keys", context.theme, buffer);
    let mut y = area.y + 1;
    for (key, what) in KEYS {
        put(buffer, area, area.x + 2, y, key, context.theme.bold());
        put(buffer, area, area.x + 14, y, what, ratatui::style::Style::new());
        y += 1;
    }
    let words = [
        "Keys are read between slices: this screen does nothing while one is measured.",
        "A second Ctrl-C ends the program at once; tare clean removes the rest.",
    ];
    for line in words {
        y += 1;
        put(buffer, area, area.x + 2, y, line, context.theme.dim());
    }
}

/// Returns the status of an environment without a cost, such as `starting` or `12 of 100 rows`.
pub(super) fn status(status: &Status) -> String {
    match status {
        Status::Waiting => "waiting".to_string(),
        Status::Starting => "starting".to_string(),
        Status::Populating { done, all, .. } => {
            format!("{} of {} rows", thousands(*done), thousands(*all))
        }
        Status::Ready { after_ns: None } => "ready".to_string(),
        Status::Ready { after_ns: Some(ns) } => {
            format!("ready in {} ms", Duration::from_nanos(*ns).as_millis())
        }
        Status::LeftOut { reason } => format!("left out: {}", clean(reason)),
    }
}
