//! The section of the findings ([`crate::findings`]), each with links to its evidence.

use minijinja::Value;
use serde::Serialize;

use super::svg::escape;
use crate::findings::{Evidence, Kind, Statement, details, sentence};

#[derive(Serialize)]
pub(super) struct FindingView {
    /// Id of the element, for links.
    anchor: String,
    rule: &'static str,
    sentence: String,
    /// `loss`, `gain` or `none`, like the class of a cost.
    class: &'static str,
    details: Vec<(&'static str, Value)>,
    evidence: Vec<Evidence>,
}

impl FindingView {
    fn new(index: usize, statement: &Statement, several: bool) -> Self {
        Self {
            anchor: format!("finding-{}", index + 1),
            rule: statement.rule,
            sentence: sentence(statement, several).replace(" %", "\u{a0}%"),
            class: match statement.kind {
                Kind::Void | Kind::Cost => "loss",
                Kind::Gain => "gain",
                Kind::Caution | Kind::Nothing => "none",
            },
            details: details(statement)
                .into_iter()
                .map(|(label, text)| (label, with_whole_options(&text)))
                .collect(),
            evidence: statement.evidence.clone(),
        }
    }
}

/// Escapes a text and keeps a line from breaking inside an option such as `--network`.
fn with_whole_options(text: &str) -> Value {
    let word = |word: &str| match word.starts_with("--") {
        true => format!("<span class=\"whole\">{}</span>", escape(word)),
        false => escape(word),
    };
    Value::from_safe_string(text.split(' ').map(word).collect::<Vec<_>>().join(" "))
}

pub(super) fn views(statements: &[Statement], several: bool) -> Vec<FindingView> {
    let one = |(index, statement)| FindingView::new(index, statement, several);
    statements.iter().enumerate().map(one).collect()
}
