//! A comparison as terminal text.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use super::{Comparison, ComparisonTable, METHOD, letter, sentences, tables};
use crate::figures::shorten;
use crate::headline::headline;
use crate::layout::{Paint, Style, paragraph};

/// Characters of a name in a table.
const NAME: usize = 34;
/// Characters of one record's value in a list of facts.
const VALUE: usize = 60;

/// The comparison as terminal text.
pub fn terminal(comparison: &Comparison<'_>, style: Style) -> String {
    let paint = Paint(style);
    let mut out: Vec<String> = Vec::new();
    for (index, side) in comparison.sides.iter().enumerate() {
        out.push(paint.bold(&paint.plain(&format!("{}. {}", letter(index), side.name))));
        let place = paint.plain(&comparison.place(index));
        let sentence = paint.plain(&headline(side.record, side.analysis));
        for text in [place, sentence] {
            let lines = paragraph(&text, "", style.width.saturating_sub(3));
            out.extend(lines.iter().map(|line| format!("   {line}")));
        }
    }
    paint.list(&mut out, "Found", sentences(comparison));
    let warnings = comparison.warnings.iter().map(|warning| warning.text.clone()).collect();
    paint.list(&mut out, "Warnings", warnings);
    for sheet in tables(comparison) {
        out.push(String::new());
        out.push(paint.bold(&paint.plain(&sheet.title)));
        out.push(table(&sheet, paint));
    }
    out.push(String::new());
    out.extend(paragraph(&paint.plain(METHOD), "", style.width));
    let only = comparison.only_in_some.iter().map(|(environment, has)| {
        let letters: Vec<String> =
            has.iter().enumerate().filter(|(_, has)| **has).map(|(at, _)| letter(at)).collect();
        format!("{environment}: {}", letters.join(", "))
    });
    paint.list(&mut out, "Only in some records", only.collect());
    let differing = comparison.differing.iter().map(|fact| {
        let each = fact.values.iter().enumerate().map(|(at, value)| {
            format!("{} {}", letter(at), shorten(value.as_deref().unwrap_or("absent"), VALUE))
        });
        format!("{}, {}: {}", fact.section, fact.key, each.collect::<Vec<_>>().join(" | "))
    });
    paint.list(&mut out, "Hosts and studies differ in", differing.collect());
    if !comparison.equal.is_empty() {
        out.push(
            paint.plain(&format!("  and are equal in {} facts (--json)", comparison.equal.len())),
        );
    }
    out.join("\n") + "\n"
}

fn table(sheet: &ComparisonTable, paint: Paint) -> String {
    let rule = LineStyle::none().fill(paint.glyph('─')).junction(paint.glyph('─'));
    let mut table = Table::new();
    table.load_style(TableStyle::new().top_border(rule).header_separator(rule).bottom_border(rule));
    let cell = |index: usize, text: &str| {
        let words = index < sheet.words;
        let text = if words { shorten(text, NAME) } else { text.to_string() };
        let alignment = if words { CellAlignment::Left } else { CellAlignment::Right };
        Cell::new(paint.plain(&text)).set_alignment(alignment)
    };
    table.set_header(sheet.head.iter().enumerate().map(|(index, text)| cell(index, text)));
    let mut last = "";
    for row in &sheet.rows {
        // A name equal to the one above is not repeated.
        let name = row.first().map_or("", |entry| entry.text.as_str());
        let same = name == std::mem::replace(&mut last, name);
        let text = |(index, entry): (usize, &super::Entry)| match same && index == 0 {
            true => cell(index, ""),
            false => cell(index, &entry.text),
        };
        table.add_row(row.iter().enumerate().map(text));
    }
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(paint.0.width.max(40));
    table.lines().map(|line| line.trim_end().to_string()).collect::<Vec<_>>().join("\n")
}
