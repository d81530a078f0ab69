//! The measured effect of host tuning.

use super::super::facts::Facts;
use super::super::{Evidence, Kind, Rule, Statement, words};
use crate::figures::{clean, rounds};
use crate::headline::Metric;
use crate::prove::{is_known, label};
use tare_lab::analysis::tuning::Gain;
use tare_stats::law::TuningVerdict;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "tuning_helps",
        title: "Host tuning helps",
        kind: Kind::Gain,
        data: "every environment with a tuned host against the one that differs in nothing else",
        condition: "it gains in one figure, as a claim, loses in none, and its groups hurt under no workload",
        sentence: "Host tuning ({groups}): {change}. Apply it.",
        details: "",
        advice: "tare tune apply{only} applies and journals it, tare tune persist keeps it over a reboot, tare tune revert \
                 restores the old settings.",
        expected: "{gain}, as measured here",
        expected_from: "the measured gain with its interval",
        apply: helps,
    },
    Rule {
        id: "tuning_hurts",
        title: "Host tuning hurts",
        kind: Kind::Caution,
        data: "every environment with a tuned host against the one that differs in nothing else",
        condition: "it loses in one figure, as a claim",
        sentence: "Host tuning ({groups}): {change}. Leave that out.",
        details: "costs {gain}.",
        advice: "tare tune apply --except {listed} leaves them out.",
        expected: "",
        expected_from: "",
        apply: hurts,
    },
    Rule {
        id: "tuning_not_proven",
        title: "Host tuning without a proven gain",
        kind: Kind::Nothing,
        data: "every environment with a tuned host against the one that differs in nothing else",
        condition: "groups of knobs and knobs that gain or lose nothing beyond the noise under any workload; all together are \
                    listed only if none of them gains or loses",
        sentence: "Host tuning ({groups}): no effect beyond the noise. Do not apply it for this database.",
        details: "",
        advice: "A longer run (tare tune prove --budget) finds smaller gains.",
        expected: "",
        expected_from: "",
        apply: not_proven,
    },
];

fn helps(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let Some(proof) = &facts.proof else { return Vec::new() };
    let helpful = proof.gains.iter().filter(|gain| gain.verdict == TuningVerdict::Helps);
    let helpful = helpful.filter(|gain| proof.proven.contains(&gain.groups));
    helpful.filter_map(|gain| statement(rule, facts, gain, true)).collect()
}

fn hurts(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let Some(proof) = &facts.proof else { return Vec::new() };
    let bad = |gain: &&Gain| matches!(gain.verdict, TuningVerdict::Hurts | TuningVerdict::Mixed);
    proof.gains.iter().filter(bad).filter_map(|gain| statement(rule, facts, gain, false)).collect()
}

fn statement(rule: &Rule, facts: &Facts<'_>, gain: &Gain, good: bool) -> Option<Statement> {
    let groups = match gain.groups.as_str() {
        "all" => "all groups".to_string(),
        _ => label(gain),
    };
    let listed = clean(&gain.groups).replace('+', ",");
    let only = match (gain.groups.as_str(), gain.on_top_of.as_str()) {
        ("all", _) => String::new(),
        (_, "") => format!(" --only {listed}"),
        (_, below) => format!(" --only {},{listed}", clean(below).replace('+', ",")),
    };
    let pair = [gain.environment.as_str(), gain.against.as_str()];
    let (mut parts, mut brief, mut first) = (Vec::new(), Vec::new(), None);
    for (metric, cost) in [(Metric::ServerCpu, &gain.cpu), (Metric::Throughput, &gain.throughput)] {
        let Some(cost) = cost else { continue };
        let right_way = (cost.percent.value < 0.0) == good;
        if !right_way || !facts.claim(&gain.workload, pair, metric, cost) {
            continue;
        }
        let figure = match good {
            true => words::mirrored(&cost.percent),
            false => cost.percent,
        };
        first = first.or(Some(figure));
        let value = cost.percent.value;
        brief.push(match metric {
            Metric::ServerCpu => format!("{} CPU per operation", words::percent_change(value)),
            Metric::Throughput => words::throughput(value, brief.is_empty()),
        });
        parts.push(match metric {
            Metric::ServerCpu => format!("{} of server CPU per operation", words::loss(&figure)),
            Metric::Throughput => format!("{} of the throughput", words::loss(&figure)),
        });
    }
    let figure = first?;
    let values = [
        ("groups", groups),
        ("listed", listed),
        ("gain", words::list(&parts)),
        ("change", brief.join(", ")),
        ("only", only),
    ];
    let doubts = facts.doubts(&gain.workload, &[&gain.environment, &gain.against]);
    let n = rounds(figure.rounds);
    Some(
        rule.statement(&values)
            .with_effect(&gain.workload, figure.value)
            .confidence(words::confidence(&figure, ("percent", "%"), &n, None, doubts))
            .with_evidence([Evidence::at("tuning", format!("gain of {}", label(gain)))]),
    )
}

fn not_proven(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let Some(proof) = &facts.proof else { return Vec::new() };
    let is_none = |gain: &&Gain| gain.verdict == TuningVerdict::NotProven && is_known(gain);
    let is_found = |gain: &&Gain| gain.verdict != TuningVerdict::NotProven;
    let found: Vec<String> = proof.gains.iter().filter(is_found).map(label).collect();
    let mut groups: Vec<String> = Vec::new();
    for gain in proof.gains.iter().filter(is_none) {
        let name = label(gain);
        let together = gain.groups == "all" && !found.is_empty();
        if !together && !found.contains(&name) && !groups.contains(&name) {
            groups.push(name);
        }
    }
    if groups.is_empty() {
        return Vec::new();
    }
    vec![
        rule.statement(&[("groups", groups.join(", "))])
            .confidence(words::without_interval(
                "the table has the interval of each gain",
                Vec::new(),
            ))
            .with_evidence([Evidence::at("tuning", "every gain")]),
    ]
}
