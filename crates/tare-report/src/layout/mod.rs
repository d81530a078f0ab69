//! Text laid out in the columns of a terminal: wrapping, padding, tables, colour and ASCII.

mod grid;

use tare_lab::analysis::Cost;
use unicode_width::UnicodeWidthStr;

use crate::figures::clean;
pub use grid::{RowsApart, grid, rows_apart};

/// How to write for a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Use ANSI colours.
    pub colour: bool,
    /// Columns that a line may take; below 80 lines may wrap.
    pub width: u16,
    /// Keep to ASCII: `|-o-|` instead of `├─●─┤`. Other characters in names become `?`.
    pub ascii: bool,
}

impl Style {
    /// A style with Unicode figures.
    pub fn new(colour: bool, width: u16) -> Style {
        Style { colour, width, ascii: false }
    }
}

/// Widest line of prose: longer ones are hard to read on any terminal.
const PARAGRAPH_COLUMNS: usize = 120;
/// Widest line of a list, whose items read best on one line each.
const ITEM_COLUMNS: usize = 180;

/// Returns the columns that a text takes on a terminal. Comfy-table measures its cells with the
/// same crate, so that prose and tables agree.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// Shortens a text to a width in columns, with `…` at its end. Characters of East Asian scripts
/// take two columns.
pub(crate) fn shorten_to(text: &str, width: usize) -> String {
    let text = clean(text);
    if columns(&text) <= width {
        return text;
    }
    let mut short = String::new();
    for c in text.chars() {
        short.push(c);
        if columns(&short) + 1 > width {
            short.pop();
            break;
        }
    }
    short.push('\u{2026}');
    short
}

/// Pads a text with blanks to a width in columns.
pub(crate) fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(columns(text));
    format!("{text}{}", " ".repeat(missing))
}

/// Wraps a text at blanks. Every line after the first starts with the indent.
pub fn paragraph(text: &str, indent: &str, width: u16) -> Vec<String> {
    wrapped(text, indent, usize::from(width).clamp(20, PARAGRAPH_COLUMNS))
}

fn wrapped(text: &str, indent: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let (mut used, mut fresh) = (0, true);
    for word in text.split_whitespace() {
        let wide = columns(word);
        if !fresh && used + 1 + wide > room {
            lines.push(std::mem::replace(&mut line, indent.to_string()));
            used = indent.len();
        } else if !fresh {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += wide;
        fresh = false;
    }
    if !line.trim().is_empty() {
        lines.push(line);
    }
    lines
}

/// A list item: a mark in front, and the wrapped lines below it indented.
pub(crate) fn numbered(mark: &str, text: &str, width: u16) -> Vec<String> {
    let (first, indent) = if mark.is_empty() {
        ("  ".to_string(), 4)
    } else {
        (format!("  {mark} "), mark.len() + 3)
    };
    let room = usize::from(width).saturating_sub(first.len()).clamp(20, ITEM_COLUMNS);
    let mut lines = wrapped(text, &" ".repeat(indent - first.len()), room).into_iter();
    let mut out: Vec<String> =
        lines.next().map(|line| format!("{first}{line}")).into_iter().collect();
    out.extend(lines.map(|line| format!("{}{line}", " ".repeat(first.len()))));
    out
}

/// Writes text in a [`Style`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint(pub(crate) Style);

impl Paint {
    /// The text without control characters, in ASCII if the style requires it.
    pub(crate) fn plain(self, text: &str) -> String {
        let text = clean(text);
        if !self.0.ascii || text.is_ascii() {
            return text;
        }
        let mut plain = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '\u{2212}' => plain.push('-'),
                '\u{b1}' => plain.push_str("+/-"),
                'µ' => plain.push('u'),
                '×' => plain.push('x'),
                '→' => plain.push_str("->"),
                '\u{2026}' => plain.push('~'),
                c => plain.push(self.glyph(c)),
            }
        }
        plain
    }

    /// One character of a chart.
    pub(crate) fn glyph(self, c: char) -> char {
        if !self.0.ascii || c.is_ascii() {
            return c;
        }
        match c {
            '─' => '-',
            '│' => ':',
            '├' | '┤' => '|',
            '●' => 'o',
            '░' => '.',
            '◀' => '<',
            '▶' => '>',
            _ => '?',
        }
    }

    /// Adds a title and its items, each as an indented paragraph; nothing without items.
    pub(crate) fn list(self, out: &mut Vec<String>, title: &str, items: Vec<String>) {
        if items.is_empty() {
            return;
        }
        out.push(String::new());
        out.push(self.bold(title));
        out.extend(items.iter().flat_map(|item| self.indented(item)));
    }

    /// The lines of a paragraph that is indented by two columns.
    pub(crate) fn indented(self, text: &str) -> Vec<String> {
        let lines = paragraph(&self.plain(text), "  ", self.0.width.saturating_sub(2));
        lines.iter().map(|line| format!("  {line}")).collect()
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.ansi("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.ansi("2", text)
    }

    /// A cost in its colour: red for a claimed loss, green for a claimed gain, dim for neither.
    pub(crate) fn cost(self, text: &str, cost: Option<&Cost>, claimed: bool) -> String {
        match cost {
            Some(cost) if claimed && cost.percent.value > 0.0 => self.ansi("31", text),
            Some(_) if claimed => self.ansi("32", text),
            _ => self.dim(text),
        }
    }

    fn ansi(self, code: &str, text: &str) -> String {
        if self.0.colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_string()
        }
    }
}
