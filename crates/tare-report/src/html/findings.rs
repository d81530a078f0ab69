//! The section of the findings ([`crate::findings`]), each with links to its evidence.

use serde::Serialize;

use crate::findings::{Evidence, Kind, Statement, details, sentence};

#[derive(Serialize)]
pub(super) struct FindingView {
    /// Id of the element, for links.
    anchor: String,
    rule: &'static str,
    sentence: String,
    /// `loss`, `gain` or `none`, like the class of a cost.
    class: &'static str,
    details: Vec<(&'static str, String)>,
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
            details: details(statement),
            evidence: statement.evidence.clone(),
        }
    }
}

pub(super) fn views(statements: &[Statement], several: bool) -> Vec<FindingView> {
    let one = |(index, statement)| FindingView::new(index, statement, several);
    statements.iter().enumerate().map(one).collect()
}
