//! Draws text onto a buffer, cut to its columns.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;
use tare_report::clean;

use super::Theme;
use crate::live::screen::state::Environment;

/// Returns the width of a text in columns.
pub(super) fn columns(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

/// Cuts a text to a width, with an ellipsis at the end if something was cut.
pub(super) fn fit(text: &str, width: u16) -> String {
    if columns(text) <= width {
        return text.to_string();
    }
    let mut short = String::new();
    for c in text.chars() {
        short.push(c);
        if columns(&short) >= width {
            short.pop();
            break;
        }
    }
    if width > 0 {
        short.push('…');
    }
    short
}

/// Draws a text at a column of an area, cut at the right edge. Returns the column after it.
pub(super) fn put(
    buffer: &mut Buffer,
    area: Rect,
    x: u16,
    y: u16,
    text: &str,
    style: Style,
) -> u16 {
    let area = area.intersection(buffer.area);
    if y < area.y || y >= area.bottom() || x < area.x || x >= area.right() {
        return x;
    }
    let room = area.right() - x;
    let (after, _) = buffer.set_stringn(x, y, fit(text, room), usize::from(room), style);
    after
}

/// Draws a text that ends at the right edge, but starts no further left than `from`.
pub(super) fn put_right(
    buffer: &mut Buffer,
    area: Rect,
    from: u16,
    y: u16,
    text: &str,
    style: Style,
) {
    let x = area.right().saturating_sub(columns(text));
    put(buffer, area, x.max(from), y, text, style);
}

/// Draws the heading of a part: a line with words on it.
pub(super) fn rule(area: Rect, y: u16, words: &str, theme: Theme, buffer: &mut Buffer) {
    let line = "─".repeat(usize::from(area.width));
    put(buffer, area, area.x, y, &line, theme.dim());
    let words = format!(" {} ", fit(words, area.width.saturating_sub(6)));
    put(buffer, area, area.x + 2, y, &words, theme.bold());
}

/// Returns the name of an environment without control characters.
pub(super) fn name(environment: &Environment) -> String {
    clean(&environment.name)
}
