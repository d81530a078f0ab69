//! Conclusions in sentences, each made by one rule that can be read: what costs, how sure, what to
//! do about it, and what that is expected to give back. No rule, no sentence.
//!
//! Method: a [`Rule`] looks at the record, its analysis, the shares of an explanation, sampled
//! stacks, counters and doubts (`facts`), and speaks where its condition holds. Its words are
//! templates in the table itself, so that `docs/reference/findings.md`, which is made from the table,
//! shows what is said. An expectation is always a figure that was measured, with its interval.
//!
//! Limits: a rule knows only what the record holds. A cause for which there is no rule is not named,
//! and two layers that no environment separates are not told apart.

pub(crate) mod effects;
pub(crate) mod facts;
mod gate;
mod reference;
mod rules;
mod show;
#[cfg(test)]
mod tests;
mod words;

use serde::Serialize;
use tare_lab::ablation::Plan;
use tare_lab::analysis::{Analysis, Interval};
use tare_lab::record::Record;
use tare_lab::stacks::StackSlice;

use facts::Facts;
pub(crate) use show::{details, markdown, sentence, terminal};

/// What kind of thing a rule says, in the order in which statements are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Some or all claims of the record are void.
    Void,
    /// A cost and what it comes from.
    Cost,
    /// Something that gave back a part of a cost.
    Returned,
    /// What makes a figure less than it seems.
    Caution,
    /// What was looked for and not found.
    Nothing,
}

/// One rule: a row of `docs/reference/findings.md`.
#[expect(missing_debug_implementations, reason = "a row of a static table, with a function in it")]
pub struct Rule {
    pub id: &'static str,
    pub title: &'static str,
    pub kind: Kind,
    /// The data that the rule reads.
    pub looks_at: &'static str,
    /// When it speaks, in words.
    pub condition: &'static str,
    /// The sentence; parts in braces are filled in.
    pub sentence: &'static str,
    /// What to do, with the flag or the knob.
    pub advice: &'static str,
    /// What the advice is expected to give back; empty where nothing is expected of it.
    pub expected: &'static str,
    /// Where the expected figure comes from; empty where there is none.
    pub expected_from: &'static str,
    speak: fn(&Rule, &Facts<'_>) -> Vec<Statement>,
}

/// Every rule, by what it is about.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    rules::ALL.iter().flat_map(|group| group.iter())
}

/// How sure a statement is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sureness {
    /// The figure that the statement rests on, with its 95 % interval.
    pub figure: Option<Interval>,
    /// Unit of the figure: `us_per_operation`, `percent`.
    pub unit: Option<&'static str>,
    /// Distance of the figure from 0 in half-widths of its interval: above 1 the interval excludes 0.
    pub from_zero: Option<f64>,
    /// Numbers of the record's doubts that touch it.
    pub doubts: Vec<usize>,
    /// All of it in words.
    pub text: String,
}

/// Where a statement can be checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Anchor on the page, without its `#`; `None` where the page does not show it.
    pub anchor: Option<String>,
    /// Names of the rows or figures there.
    pub name: String,
}

/// One conclusion. Names in it have lost their control characters and are not escaped.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Statement {
    /// Id of the rule that speaks.
    pub rule: &'static str,
    pub title: &'static str,
    pub kind: Kind,
    /// The workload it is about; `None`: all of the record.
    pub workload: Option<String>,
    /// What costs, and how much.
    pub text: String,
    pub sureness: Sureness,
    pub advice: String,
    pub expected: Option<String>,
    pub evidence: Vec<Evidence>,
    /// For the order among its kind: percent of the figure that it is about.
    #[serde(skip)]
    size: f64,
}

impl Rule {
    /// The rule's words with their parts filled in.
    fn say(&self, values: &[(&str, String)]) -> Statement {
        let expected = words::fill(self.expected, values);
        Statement {
            rule: self.id,
            title: self.title,
            kind: self.kind,
            workload: None,
            text: words::fill(self.sentence, values),
            sureness: Sureness::default(),
            advice: words::fill(self.advice, values),
            expected: (!expected.is_empty()).then_some(expected),
            evidence: Vec::new(),
            size: 0.0,
        }
    }
}

impl Statement {
    fn about(mut self, workload: &str, size: f64) -> Self {
        self.workload = Some(crate::figures::clean(workload));
        self.size = if size.is_finite() { size.abs() } else { 0.0 };
        self
    }

    fn sure(mut self, sureness: Sureness) -> Self {
        self.sureness = sureness;
        self
    }

    fn see(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }
}

impl Evidence {
    fn at(anchor: impl Into<String>, name: impl Into<String>) -> Self {
        Self { anchor: Some(anchor.into()), name: name.into() }
    }
}

/// Everything that the rules say of a record, what voids it first, then the largest costs.
pub fn statements(record: &Record, analysis: &Analysis, stacks: &[StackSlice]) -> Vec<Statement> {
    statements_by(record, analysis, stacks, Plan::of_record(record).as_ref())
}

/// The same for a record that is explained by a plan which it does not hold itself.
pub fn statements_by(
    record: &Record,
    analysis: &Analysis,
    stacks: &[StackSlice],
    plan: Option<&Plan>,
) -> Vec<Statement> {
    if analysis.blocks == 0 {
        return Vec::new();
    }
    let facts = Facts::new(record, analysis, stacks, plan);
    let mut said: Vec<Statement> = all().flat_map(|rule| (rule.speak)(rule, &facts)).collect();
    // Stable: rules that say the same kind keep the table's order where their sizes are equal.
    said.sort_by(|a, b| a.kind.cmp(&b.kind).then(b.size.total_cmp(&a.size)));
    said
}
