//! Draws the doubts, the newest first, with their number and advice.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use tare_report::clean;
use tare_report::terminal::paragraph;

use super::DrawContext;
use super::text::{put, rule};
use crate::live::screen::state::DoubtEntry;

/// Draws the newest doubts that fit, each in one line, with `advice` in two.
pub(super) fn newest(context: &DrawContext<'_>, area: Rect, advice: bool, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let doubts = context.state.doubts();
    let rows = area.height - 1;
    let fit = usize::from(if advice { rows / 2 } else { rows });
    let heading = match doubts.len() {
        0 => "Doubts: none so far".to_string(),
        all if all > fit => format!("Doubts: {fit} of {all}, newest first (d shows all)"),
        _ => "Doubts, newest first (d shows what to do)".to_string(),
    };
    rule(area, area.y, &heading, context.theme, buffer);
    let mut y = area.y + 1;
    for doubt in doubts.iter().take(fit) {
        put(buffer, area, area.x, y, "!", context.theme.warning());
        put(buffer, area, area.x + 2, y, &words(doubt), Style::new());
        y += 1;
        if advice {
            put(buffer, area, area.x + 4, y, doubt.doubt.advice(), context.theme.dim());
            y += 1;
        }
    }
}

/// Draws all doubts with advice, wrapped, from the scroll position on.
pub(super) fn all(context: &DrawContext<'_>, area: Rect, buffer: &mut Buffer) {
    let doubts = context.state.doubts();
    rule(area, area.y, &format!("Doubts: {}", doubts.len()), context.theme, buffer);
    let width = area.width.saturating_sub(4);
    let mut y = area.y + 1;
    for doubt in doubts.iter().skip(context.state.scroll) {
        put(buffer, area, area.x, y, "!", context.theme.warning());
        for line in paragraph(&words(doubt), "", width) {
            put(buffer, area, area.x + 2, y, &line, Style::new());
            y += 1;
        }
        for line in paragraph(doubt.doubt.advice(), "", width) {
            put(buffer, area, area.x + 4, y, &line, context.theme.dim());
            y += 1;
        }
        if y >= area.bottom() {
            break;
        }
    }
}

/// Most names of a doubt; the others are counted.
const NAMES_MAX: usize = 3;

fn words(entry: &DoubtEntry) -> String {
    let names = &entry.environments;
    let mut place = names.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMES_MAX {
        place += &format!(" and {} more", names.len() - NAMES_MAX);
    }
    if !place.is_empty() {
        place += ": ";
    }
    let count = entry.count as usize;
    let times =
        if count > names.len().max(1) { format!(" ({count} times)") } else { String::new() };
    clean(&format!("{place}{}{times}", entry.doubt.text()))
}
