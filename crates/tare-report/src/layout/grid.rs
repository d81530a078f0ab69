//! A plain table: columns that align, cells that wrap where the terminal is narrow.

use comfy_table::{Cell, ContentArrangement, LineStyle, Table, TableStyle};

use super::{Paint, Style};

/// A table in pieces, so that a caller can put text below each row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowsApart {
    /// The head with the lines above and below it.
    pub head: String,
    /// Each row, of one or more lines.
    pub rows: Vec<String>,
}

/// A table with a line above and below its head. Text loses its control characters.
pub fn grid(head: &[&str], rows: &[Vec<String>], style: Style) -> String {
    let mut text = Vec::new();
    for line in table(head, rows, style, true).lines() {
        text.push(line.trim_end().to_string());
    }
    text.join("\n") + "\n"
}

/// The same table as [`grid`], in pieces.
pub fn rows_apart(head: &[&str], rows: &[Vec<String>], style: Style) -> RowsApart {
    // A line between all rows shows where each ends, however many lines its cells take.
    let paint = Paint(style);
    let mut apart = table(head, rows, style, false);
    let between = LineStyle::none().fill('\u{1}').junction('\u{1}');
    apart.load_style(TableStyle::new().header_separator(rule(paint)).row_separator(between));
    let mut pieces = RowsApart::default();
    let mut row = String::new();
    let mut in_head = true;
    for line in apart.lines() {
        let line = line.trim_end();
        if line.starts_with('\u{1}') {
            pieces.rows.push(std::mem::take(&mut row));
            continue;
        }
        let piece = if in_head { &mut pieces.head } else { &mut row };
        piece.push_str(line);
        piece.push('\n');
        if line.starts_with(paint.glyph('─')) {
            in_head = false;
        }
    }
    if !rows.is_empty() {
        pieces.rows.push(row);
    }
    pieces
}

fn rule(paint: Paint) -> LineStyle {
    LineStyle::none().fill(paint.glyph('─')).junction(paint.glyph('─'))
}

fn table(head: &[&str], rows: &[Vec<String>], style: Style, framed: bool) -> Table {
    let paint = Paint(style);
    let rule = rule(paint);
    let mut lines = TableStyle::new().header_separator(rule);
    if framed {
        lines = lines.top_border(rule).bottom_border(rule);
    }
    let mut table = Table::new();
    table
        .load_style(lines)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(style.width)
        .set_header(head.iter().map(|text| Cell::new(paint.plain(text))));
    for row in rows {
        table.add_row(row.iter().map(|text| Cell::new(paint.plain(text))));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        vec![
            vec!["rps".to_string(), "a sentence that is too long for the column".to_string()],
            vec!["scheduler".to_string(), "short\u{1b}[0m".to_string()],
        ]
    }

    #[test]
    fn columns_align_and_cells_wrap() {
        let text = grid(&["knob", "why"], &rows(), Style::new(false, 40));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.lines().any(|line| line.trim_start().starts_with("scheduler")), "{text}");
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn rows_come_apart_where_they_end() {
        let pieces = rows_apart(&["knob", "why"], &rows(), Style::new(false, 40));
        assert_eq!(pieces.rows.len(), 2, "{pieces:?}");
        assert!(pieces.rows[0].contains("rps") && pieces.rows[0].lines().count() == 2);
        assert!(pieces.rows[1].contains("scheduler"));
        assert!(pieces.head.contains("knob") && !pieces.head.contains("rps"));
    }
}
