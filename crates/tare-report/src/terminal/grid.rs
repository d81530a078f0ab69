//! A plain table: columns that align, cells that wrap where the terminal is narrow.

use comfy_table::{Cell, ContentArrangement, LineStyle, Table, TableStyle};

use super::{Paint, Style};

/// A table with a line above and below its head. Text loses its control characters.
pub fn grid(head: &[&str], rows: &[Vec<String>], style: Style) -> String {
    let paint = Paint(style);
    let rule = LineStyle::none().fill(paint.glyph('─')).junction(paint.glyph('─'));
    let mut table = Table::new();
    table
        .load_style(TableStyle::new().top_border(rule).header_separator(rule).bottom_border(rule))
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(style.width)
        .set_header(head.iter().map(|text| Cell::new(paint.plain(text))));
    for row in rows {
        table.add_row(row.iter().map(|text| Cell::new(paint.plain(text))));
    }
    let lines = table.lines().map(|line| line.trim_end().to_string());
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_cells_wrap() {
        let rows = vec![
            vec!["rps".to_string(), "a sentence that is too long for the column".to_string()],
            vec!["scheduler".to_string(), "short\u{1b}[0m".to_string()],
        ];
        let text = grid(&["knob", "why"], &rows, Style::new(false, 40));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.lines().any(|line| line.trim_start().starts_with("scheduler")), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
}
