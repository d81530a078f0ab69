//! Findings as terminal text and as Markdown. The page has its own template, and JSON holds the
//! data.

use super::Statement;
use crate::escape::markdown as escape;
use crate::headline::capital;
use crate::layout::{Paint, paragraph};

/// The lines below the sentence of a statement: a label and its text. They add to the sentence and
/// do not repeat each other: a confidence interval that is among the measured figures is not
/// printed again.
pub(crate) fn details(statement: &Statement) -> Vec<(&'static str, String)> {
    let Statement { details: measured, confidence, .. } = statement;
    let repeats = |interval: &String| {
        let bounds = interval.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        bounds.zip(measured.as_ref()).is_some_and(|((bounds, _), text)| text.contains(bounds))
    };
    let confidence = match confidence.interval.as_ref().filter(|interval| repeats(interval)) {
        Some(interval) => confidence.text.replacen(interval, "", 1).trim_start().to_string(),
        None => confidence.text.clone(),
    };
    let mut details = Vec::new();
    details.extend(measured.as_deref().map(|text| ("Measured", capital(text))));
    details.push(("Confidence", format!("{}.", capital(&confidence))));
    details.push(("What to do", statement.advice.clone()));
    let expected = statement.expected.as_deref();
    details.extend(expected.map(|text| ("Expected gain", format!("{}.", capital(text)))));
    details
}

/// The names of the evidence on one line.
pub(crate) fn evidence(statement: &Statement) -> String {
    let names: Vec<&str> = statement.evidence.iter().map(|one| one.name.as_str()).collect();
    names.join("; ")
}

/// The sentence, behind the name of its workload if the study has several.
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
