//! Doubts as they come: the newest first, how often, and what to do.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use tare_report::clean;
use tare_report::terminal::paragraph;

use super::Scene;
use super::text::{put, rule};
use crate::live::screen::state::Doubted;

/// The newest doubts in so many rows, each in one line, with advice in a second one if asked.
pub(super) fn newest(scene: &Scene<'_>, area: Rect, advice: bool, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let doubts = scene.state.doubts();
    let rows = area.height - 1;
    let fit = usize::from(if advice { rows / 2 } else { rows });
    let heading = match doubts.len() {
        0 => "Doubts: none so far".to_string(),
        all if all > fit => format!("Doubts: {fit} of {all}, the newest first (d shows all)"),
        _ => "Doubts, the newest first (d shows what to do)".to_string(),
    };
    rule(area, area.y, &heading, scene.theme, buffer);
    let mut y = area.y + 1;
    for doubt in doubts.iter().take(fit) {
        put(buffer, area, area.x, y, "!", scene.theme.warning());
        put(buffer, area, area.x + 2, y, &words(doubt), Style::new());
        y += 1;
        if advice {
            put(buffer, area, area.x + 4, y, doubt.doubt.advice(), scene.theme.dim());
            y += 1;
        }
    }
}

/// All doubts with advice, wrapped, from where the list is scrolled to.
pub(super) fn all(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let doubts = scene.state.doubts();
    rule(area, area.y, &format!("Doubts: {}", doubts.len()), scene.theme, buffer);
    let width = area.width.saturating_sub(4);
    let mut y = area.y + 1;
    for doubt in doubts.iter().skip(scene.state.scroll) {
        put(buffer, area, area.x, y, "!", scene.theme.warning());
        for line in paragraph(&words(doubt), "", width) {
            put(buffer, area, area.x + 2, y, &line, Style::new());
            y += 1;
        }
        for line in paragraph(doubt.doubt.advice(), "", width) {
            put(buffer, area, area.x + 4, y, &line, scene.theme.dim());
            y += 1;
        }
        if y >= area.bottom() {
            break;
        }
    }
}

/// Names that are told of a doubt; the others are counted.
const NAMES_MAX: usize = 3;

fn words(doubted: &Doubted) -> String {
    let names = &doubted.environments;
    let mut place = names.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMES_MAX {
        place += &format!(" and {} more", names.len() - NAMES_MAX);
    }
    if !place.is_empty() {
        place += ": ";
    }
    let count = doubted.count as usize;
    let times =
        if count > names.len().max(1) { format!(" ({count} times)") } else { String::new() };
    clean(&format!("{place}{}{times}", doubted.doubt.text()))
}
