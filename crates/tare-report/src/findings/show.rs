//! Statements as terminal text and as Markdown. The page has its own section, and JSON holds the
//! data.

use super::Statement;
use crate::escape::markdown as escape;
use crate::layout::{Paint, paragraph};

/// The lines below the sentence of a statement: a label and its text.
pub(crate) fn details(statement: &Statement) -> Vec<(&'static str, String)> {
    let measured = statement.details.as_deref().map(crate::headline::capital);
    let mut details: Vec<_> = measured.map(|text| ("Measured", text)).into_iter().collect();
    details.extend([
        ("Confidence", format!("{}.", crate::headline::capital(&statement.confidence.text))),
        ("What to do", statement.advice.clone()),
    ]);
    if let Some(expected) = &statement.expected {
        details.push(("Expected gain", format!("{}.", crate::headline::capital(expected))));
    }
    details
}

/// Names of the evidence, as one line.
pub(crate) fn evidence(statement: &Statement) -> String {
    let names: Vec<&str> = statement.evidence.iter().map(|one| one.name.as_str()).collect();
    names.join("; ")
}

/// The sentence, with its workload where there are several.
pub(crate) fn sentence(statement: &Statement, several: bool) -> String {
    match &statement.workload {
        Some(workload) if several => format!("{workload}: {}", statement.text),
        _ => statement.text.clone(),
    }
}

/// Terminal lines below a heading; empty without statements.
pub(crate) fn terminal(statements: &[Statement], several: bool, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, statement) in statements.iter().enumerate() {
        if index == 0 {
            lines.extend([String::new(), paint.bold("Findings")]);
        }
        let number = format!("{:>2}. ", index + 1);
        let width = paint.0.width.saturating_sub(6);
        let sentence = paint.plain(&sentence(statement, several));
        for (at, line) in paragraph(&sentence, "", width).into_iter().enumerate() {
            let lead = if at == 0 { number.as_str() } else { "    " };
            lines.push(paint.bold(&format!("{lead}{line}")));
        }
        let mut details = details(statement);
        if !statement.evidence.is_empty() {
            details.push(("See", format!("{}. Rule: {}.", evidence(statement), statement.rule)));
        }
        for (word, text) in details {
            let text = paint.plain(&format!("{word}: {text}"));
            let text = paragraph(&text, "", width.saturating_sub(2));
            lines.extend(text.into_iter().map(|line| format!("      {line}")));
        }
    }
    lines
}

/// A Markdown list; `None` without statements.
pub(crate) fn markdown(statements: &[Statement], several: bool) -> Option<String> {
    let item = |(index, statement): (usize, &Statement)| {
        let mut lines =
            vec![format!("{}. **{}**", index + 1, escape(&sentence(statement, several)))];
        for (word, text) in details(statement) {
            lines.push(format!("   - {word}: {}", escape(&text)));
        }
        lines.join("\n")
    };
    let items: Vec<String> = statements.iter().enumerate().map(item).collect();
    (!items.is_empty()).then(|| items.join("\n"))
}
