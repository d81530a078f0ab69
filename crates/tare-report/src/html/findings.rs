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
    /// Whether it is on the first screen.
    at_a_glance: bool,
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
            at_a_glance: false,
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
    let mut views: Vec<FindingView> = statements.iter().enumerate().map(one).collect();
    choose(&mut views);
    views
}

/// Findings on the first screen.
const GLANCE: usize = 3;

/// Chooses the first findings, each of another rule if there are enough: a study with many
/// workloads has the same finding for each.
fn choose(views: &mut [FindingView]) {
    let is_first = |index: usize| views[..index].iter().all(|f| f.rule != views[index].rule);
    let (mut chosen, others): (Vec<usize>, Vec<usize>) =
        (0..views.len()).partition(|i| is_first(*i));
    chosen.extend(others);
    for index in chosen.into_iter().take(GLANCE) {
        views[index].at_a_glance = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn first_screen_has_three_findings_of_different_rules() {
        for (record, analysis) in [fixture::quick(), fixture::sweep()] {
            let statements = crate::findings::statements(&record, &analysis, &[]);
            let views = views(&statements, true);
            let shown: Vec<&str> = views.iter().filter(|f| f.at_a_glance).map(|f| f.rule).collect();
            let mut different = shown.clone();
            different.dedup();
            assert_eq!((shown.len(), different.len()), (GLANCE, GLANCE), "{shown:?}");
            assert!(views[0].at_a_glance, "the first finding is the most important");
        }
        assert!(views(&[], false).is_empty());
    }
}
