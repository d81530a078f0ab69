//! A comparison in GitHub-flavoured Markdown, with text from records escaped.

use super::{Comparison, ComparisonTable, METHOD, letter, sentences, tables};
use crate::escape::markdown as escape;
use crate::figures::shorten;

/// Characters of one record's value in the table of facts.
const VALUE: usize = 80;

/// The comparison as Markdown. Lines end in LF.
pub fn markdown(comparison: &Comparison<'_>) -> String {
    let mut blocks = vec!["### Records compared".to_string()];
    let records = comparison.sides.iter().enumerate().map(|(at, side)| {
        let place = comparison.place(at);
        format!("- **{}** {}: {}", letter(at), escape(side.name), escape(&place))
    });
    blocks.push(records.collect::<Vec<_>>().join("\n"));
    list(&mut blocks, "Found:", sentences(comparison));
    let warnings = comparison.warnings.iter().map(|warning| warning.text.clone()).collect();
    list(&mut blocks, "Warnings:", warnings);
    for sheet in tables(comparison) {
        blocks.push(format!("**{}**", escape(&sheet.title)));
        blocks.push(table(&sheet));
    }
    if !comparison.differing.is_empty() {
        blocks.push("**Hosts and studies differ in**".to_string());
        let mut lines = vec![line(
            ["fact".to_string()].into_iter().chain((0..comparison.sides.len()).map(letter)),
        )];
        lines.push(line(std::iter::repeat_n(":--".to_string(), comparison.sides.len() + 1)));
        for fact in &comparison.differing {
            let name = escape(&format!("{}, {}", fact.section, fact.key));
            let values = fact
                .values
                .iter()
                .map(|value| escape(&shorten(value.as_deref().unwrap_or("absent"), VALUE)));
            lines.push(line([name].into_iter().chain(values)));
        }
        blocks.push(lines.join("\n"));
    }
    blocks.push(escape(METHOD));
    blocks.join("\n\n") + "\n"
}

fn list(blocks: &mut Vec<String>, title: &str, items: Vec<String>) {
    if !items.is_empty() {
        blocks.push(title.to_string());
        let items: Vec<String> = items.iter().map(|item| format!("- {}", escape(item))).collect();
        blocks.push(items.join("\n"));
    }
}

fn table(sheet: &ComparisonTable) -> String {
    let mut lines = vec![line(sheet.head.iter().map(|text| escape(text)))];
    let rule = |index: usize| if index < sheet.words { ":--" } else { "--:" }.to_string();
    lines.push(line((0..sheet.head.len()).map(rule)));
    for row in &sheet.rows {
        lines.push(line(row.iter().map(|entry| match entry.claimed {
            true => format!("**{}**", escape(&entry.text)),
            false => escape(&entry.text),
        })));
    }
    lines.join("\n")
}

fn line(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
}
