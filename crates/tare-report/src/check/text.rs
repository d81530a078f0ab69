//! A gate as lines, Markdown and JSON.

use serde_json::{Value, json};
use tare_stats::law::BudgetVerdict;

use super::{Check, CheckedCost};
use crate::escape::markdown as escape;
use crate::layout::{Paint, Style};

/// `schema_version` of the JSON of a gate.
const SCHEMA_VERSION: u32 = 1;

/// One line per cost, and a line that counts them.
pub fn lines(check: &Check, style: Style) -> String {
    let paint = Paint(style);
    let mut out: Vec<String> = check.costs.iter().map(|cost| paint.plain(&line(cost))).collect();
    out.push(paint.bold(&paint.plain(&summary(check))));
    out.join("\n") + "\n"
}

/// `within     container default (write): cpu +24.1 % [23.2, 25.0], budget cpu <= 30 %`
fn line(cost: &CheckedCost) -> String {
    let detail = cost.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
    format!("{:<9}  {}{detail}", cost.word(), sentence(cost))
}

/// The place, the figure and the budget.
pub(super) fn sentence(cost: &CheckedCost) -> String {
    format!(
        "{} ({}): {}{} {}, budget {}",
        cost.environment,
        cost.workload,
        cost.figure.name(),
        if cost.rise { " rise" } else { "" },
        cost.value_text(),
        cost.limit_text()
    )
}

/// The sentence, and why the cost is undecided.
pub(super) fn statement(cost: &CheckedCost) -> String {
    let detail = cost.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("{}{detail}", sentence(cost))
}

pub(super) fn summary(check: &Check) -> String {
    let beyond = check.count(|verdict| verdict == BudgetVerdict::Beyond);
    let undecided = check.count(BudgetVerdict::is_undecided);
    let within = check.costs.len() - beyond - undecided;
    let against =
        check.against.as_ref().map(|name| format!(", against {name}")).unwrap_or_default();
    format!(
        "{beyond} beyond, {undecided} undecided, {within} within after {} of {}{against}",
        crate::figures::rounds(check.rounds),
        check.study
    )
}

/// The gate in GitHub-flavoured Markdown, with text from records escaped.
pub fn markdown(check: &Check) -> String {
    let mut out = vec![
        format!("### tare check: {}", escape(&summary(check))),
        String::new(),
        "| | environment | workload | figure | budget | |".to_string(),
        "| :-- | :-- | :-- | --: | --: | :-- |".to_string(),
    ];
    for cost in &check.costs {
        let word = match cost.verdict {
            BudgetVerdict::Beyond => "**beyond**",
            _ => cost.word(),
        };
        out.push(format!(
            "| {word} | {} | {} | {} | {} | {} |",
            escape(&cost.environment),
            escape(&cost.workload),
            escape(&cost.value_text()),
            escape(&cost.limit_text()),
            escape(&cost.detail().unwrap_or_default())
        ));
    }
    out.join("\n") + "\n"
}

/// The gate as JSON. Schema: `docs/reference/record-json.md`.
pub fn json(check: &Check) -> String {
    let costs: Vec<Value> = check
        .costs
        .iter()
        .map(|cost| {
            let mut value = json!(cost);
            value["text"] = json!(line(cost).trim());
            value
        })
        .collect();
    let document = json!({
        "schema": "tare-check",
        "schema_version": SCHEMA_VERSION,
        "study": check.study,
        "against": check.against,
        "blocks": check.rounds,
        "exceeded": check.is_exceeded(),
        "undecided": check.is_undecided(),
        "costs": costs,
    });
    format!("{document:#}")
}
