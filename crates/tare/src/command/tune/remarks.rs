//! What stands below the lines of a table: sentences with labels, and notes.

use tare_report::terminal::{Style, paragraph};

/// Columns of spaces in front of a label.
const KNOB: usize = 22;

/// Columns of a label.
const LABEL: usize = 6;

/// Returns a note as an indented paragraph.
pub(super) fn noted(note: &str, style: Style) -> String {
    paragraph(&format!("note: {note}"), "  ", style.width).join("\n") + "\n"
}

/// Returns a sentence with its label, below a line of a table.
pub(super) fn explained(label: &str, sentence: &str, style: Style) -> String {
    let room = style.width.saturating_sub(u16::try_from(KNOB + LABEL).unwrap_or(0));
    below(label, &paragraph(sentence, "", room))
}

/// Returns lines with a label as they are, below a line of a table.
pub(super) fn below(label: &str, lines: &[String]) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let label = if index == 0 { label } else { "" };
        text += format!("{:KNOB$}{label:<LABEL$}{line}", "").trim_end();
        text.push('\n');
    }
    text
}
