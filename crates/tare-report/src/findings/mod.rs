//! Findings: the conclusions from a record in sentences, each written by one rule. A sentence leads
//! with its figure and ends with a few words of advice; details, confidence and expected gain
//! follow.
//!
//! Method: a [`Rule`] reads the record, its analysis, the shares of an explanation, sampled stacks,
//! counters and doubts (`facts`), and reports where its condition holds. Its sentences are
//! templates in a table, from which `docs/reference/findings.md` is generated. An expected gain is
//! always a measured figure with its interval.
//!
//! Limits: a rule sees only the record. A cause without a rule is not named, and two layers that no
//! environment separates are not distinguished.

mod claim_filter;
pub(crate) mod effects;
pub(crate) mod facts;
mod layer_changes;
mod layer_costs;
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
pub use layer_costs::{LayerCost, layer_costs, separates};
pub(crate) use show::{details, markdown, sentence, terminal};

/// Kinds of statements, in the order in which reports list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Some or all claims of the record are void.
    Void,
    /// A cost and its source.
    Cost,
    /// A change that reduced a cost.
    #[serde(rename = "returned")]
    Gain,
    /// A reason to trust a figure less.
    Caution,
    /// An effect that was looked for and not found.
    Nothing,
}

/// One rule: a row of `docs/reference/findings.md`.
#[expect(missing_debug_implementations, reason = "a row of a static table, with a function in it")]
pub struct Rule {
    pub id: &'static str,
    pub title: &'static str,
    pub kind: Kind,
    /// The data that the rule reads.
    pub data: &'static str,
    /// When the rule reports, in words.
    pub condition: &'static str,
    /// The sentence: the figure first, then a few words of advice. It is the title of the finding.
    /// Parts in braces are replaced.
    pub sentence: &'static str,
    /// Intervals, environments and context below the sentence; empty if there are none.
    pub details: &'static str,
    /// The advice in full, with the flag or the knob.
    pub advice: &'static str,
    /// The gain that the advice is expected to bring; empty where none can be stated.
    pub expected: &'static str,
    /// The source of the expected figure; empty where there is none.
    pub expected_from: &'static str,
    apply: fn(&Rule, &Facts<'_>) -> Vec<Statement>,
}

/// Every rule, grouped by subject.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    rules::ALL.iter().flat_map(|group| group.iter())
}

/// The figure behind a statement, its interval, and the doubts about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Confidence {
    /// The figure that the statement rests on, with its 95 % interval.
    pub figure: Option<Interval>,
    /// Unit of the figure: `us_per_operation`, `percent`.
    pub unit: Option<&'static str>,
    /// Distance of the figure from 0 in half-widths of its interval: above 1 the interval excludes
    /// 0.
    pub from_zero: Option<f64>,
    /// Numbers of the record's doubts about it.
    pub doubts: Vec<usize>,
    /// The confidence as text.
    pub text: String,
    /// The start of `text` that holds the interval, up to its sample.
    #[serde(skip)]
    interval: Option<String>,
}

/// The place on the page that shows the figures of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Anchor on the page, without its `#`; `None` where the page does not show it.
    pub anchor: Option<String>,
    /// The rows or figures in that place.
    pub name: String,
}

/// One finding. Names in it have no control characters and are not escaped.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Statement {
    /// Id of the rule that made the statement.
    pub rule: &'static str,
    /// Title of the rule, the same for every record.
    pub title: &'static str,
    pub kind: Kind,
    /// The workload; `None` where the statement is about the whole record.
    pub workload: Option<String>,
    /// The sentence: the figure, and a few words of advice.
    pub text: String,
    /// Intervals, environments and context.
    pub details: Option<String>,
    #[serde(rename = "sureness")]
    pub confidence: Confidence,
    pub advice: String,
    pub expected: Option<String>,
    pub evidence: Vec<Evidence>,
    /// Size of the effect in percent; it orders the statements of one kind.
    #[serde(skip)]
    size: f64,
}

impl Rule {
    /// A statement from the rule's templates and the values of their parts.
    fn statement(&self, values: &[(&str, String)]) -> Statement {
        let expected = words::fill(self.expected, values);
        let details = words::fill(self.details, values);
        Statement {
            rule: self.id,
            title: self.title,
            kind: self.kind,
            workload: None,
            text: words::fill(self.sentence, values),
            details: (!details.is_empty()).then_some(details),
            confidence: Confidence::default(),
            advice: words::fill(self.advice, values),
            expected: (!expected.is_empty()).then_some(expected),
            evidence: Vec::new(),
            size: 0.0,
        }
    }
}

impl Statement {
    fn with_effect(mut self, workload: &str, size: f64) -> Self {
        self.workload = Some(crate::figures::clean(workload));
        self.size = if size.is_finite() { size.abs() } else { 0.0 };
        self
    }

    fn confidence(mut self, confidence: Confidence) -> Self {
        self.confidence = confidence;
        self
    }

    fn with_evidence(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }
}

impl Evidence {
    fn at(anchor: impl Into<String>, name: impl Into<String>) -> Self {
        Self { anchor: Some(anchor.into()), name: name.into() }
    }
}

/// Every statement about a record in the order of its kinds, the largest effect first.
pub fn statements(record: &Record, analysis: &Analysis, stacks: &[StackSlice]) -> Vec<Statement> {
    statements_by(record, analysis, stacks, Plan::of_record(record).as_ref())
}

/// Like [`statements`], for an explanation whose plan is not in the record.
pub fn statements_by(
    record: &Record,
    analysis: &Analysis,
    stacks: &[StackSlice],
    plan: Option<&Plan>,
) -> Vec<Statement> {
    if analysis.rounds == 0 {
        return Vec::new();
    }
    let facts = Facts::new(record, analysis, stacks, plan);
    let mut statements: Vec<Statement> =
        all().flat_map(|rule| (rule.apply)(rule, &facts)).collect();
    // The sort is stable: statements of one kind and size keep the order of the table.
    statements.sort_by(|a, b| a.kind.cmp(&b.kind).then(b.size.total_cmp(&a.size)));
    statements
}
