//! Statements of an explanation beyond its shares: interactions, and costs that no single layer
//! explains.

use tare_lab::ablation::Verdict;
use tare_lab::layer::Layer;

use super::super::facts::Facts;
use super::super::{Evidence, Kind, Rule, Statement, words};
use crate::figures::{clean, micros, rounds};
use crate::headline::Metric;

/// Smallest part of the whole that is reported.
const NOT_ATTRIBUTED_SHARE: f64 = 0.1;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "interaction",
        title: "Interaction of two layers",
        kind: Kind::Cost,
        data: "the interactions of an explanation: how much more two layers add together than each alone, over the orders",
        condition: "the interaction is improbable by chance (below 5 % by Holm's correction over all pairs) and beyond the noise \
                    of the A/A control",
        sentence: "{first} with {second}: {change} CPU per operation beyond the sum of both alone. Change them together.",
        details: "together they cost {us} {more} than each alone; the gain of removing one depends on the other.",
        advice: "Change {first} and {second} together, or weigh the single change: tare weigh with an environment for it.",
        expected: "",
        expected_from: "",
        apply: interaction,
    },
    Rule {
        id: "not_attributed",
        title: "Unattributed cost",
        kind: Kind::Caution,
        data: "the shares of an explanation against the whole difference",
        condition: "the whole is a claim, and the claimed shares miss more than a tenth of it and more than the control's noise",
        sentence: "Unattributed: {rest} of {whole} CPU per operation between {from} and {to}. Measure longer.",
        details: "no single layer of these exceeds the noise: {layers}.",
        advice: "Run tare explain with a larger --budget: the intervals of these shares narrow with the number of rounds.",
        expected: "",
        expected_from: "",
        apply: not_attributed,
    },
    Rule {
        id: "not_taken_apart",
        title: "Unexplained cost",
        kind: Kind::Cost,
        data: "the environment with the largest claimed cost, the layers in which it differs from the baseline, and the \
                   environments that would separate them",
        condition: "the cost is a claim, the environment differs in several layers, and neither an explanation nor a pair of \
                    environments separates any of them",
        sentence: "{environment}: {cost}. Run tare explain to attribute it.",
        details: "{measured}. It differs from {baseline} in several layers: {layers}.",
        advice: "tare explain STUDY --to NAME measures the environments between the two.",
        expected: "",
        expected_from: "",
        apply: not_taken_apart,
    },
];

fn interaction(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut statements = Vec::new();
    for found in &facts.explanations {
        for one in found.interactions.iter().filter(|one| one.named) {
            let (first, second) = (clean(&one.first), clean(&one.second));
            let (more, us) = match one.us.value > 0.0 {
                true => ("more", one.us),
                false => ("less", words::mirrored(&one.us)),
            };
            let values = [
                ("first", first),
                ("second", second),
                ("more", more.to_string()),
                ("us", words::us(&us)),
                ("change", words::us_change(one.us.value)),
            ];
            let p = format!("p = {:.3} over all pairs", one.probability.max(0.001));
            let unit = ("us_per_operation", "\u{b5}s");
            let doubts = facts.doubts_of_explanation(&found.workload);
            let n = rounds(one.us.rounds);
            let row = format!("{} with {}", one.first, one.second);
            statements.push(
                rule.statement(&values)
                    .with_effect(&found.workload, 100.0 * one.us.value / found.from_us.value)
                    .confidence(words::confidence(&one.us, unit, &n, Some(p), doubts))
                    .with_evidence([facts.shares_evidence(&found.workload, &row)]),
            );
        }
    }
    statements
}

fn not_attributed(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let Some(plan) = &facts.plan else { return Vec::new() };
    let mut statements = Vec::new();
    for found in &facts.explanations {
        let is_claim = |verdict: Verdict| matches!(verdict, Verdict::Costs | Verdict::Saves);
        let claims = found.shares.iter().filter(|share| is_claim(share.verdict));
        let rest = found.whole_us.value - claims.map(|share| share.us.value).sum::<f64>();
        let whole = found.whole_us.value.abs();
        let least = (NOT_ATTRIBUTED_SHARE * whole).max(found.noise_us.unwrap_or(0.0));
        if !is_claim(found.whole) || rest.abs() <= least {
            continue;
        }
        let others = found.shares.iter().filter(|share| !is_claim(share.verdict));
        let layers: Vec<String> = others
            .map(|share| format!("{} ({})", clean(&share.name), words::signed_us(&share.us)))
            .collect();
        let values = [
            ("whole", words::us_plain(found.whole_us.value)),
            ("from", words::quoted(&plan.from)),
            ("to", words::quoted(&plan.to)),
            ("rest", format!("{} \u{b5}s", micros(rest).replace('-', "\u{2212}"))),
            ("layers", words::list(&layers)),
        ];
        let unit = ("us_per_operation", "\u{b5}s for the whole");
        let doubts = facts.doubts_of_explanation(&found.workload);
        let n = rounds(found.whole_us.rounds);
        statements.push(
            rule.statement(&values)
                .with_effect(&found.workload, 100.0 * rest / found.from_us.value)
                .confidence(words::confidence(&found.whole_us, unit, &n, None, doubts))
                .with_evidence([facts.shares_evidence(&found.workload, "every layer")]),
        );
    }
    statements
}

fn not_taken_apart(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let baseline = facts.record.study.baseline.as_str();
    let Some(base) = facts.environment(baseline) else { return Vec::new() };
    let mut statements = Vec::new();
    for (_, workload) in facts.workloads() {
        let Some(finding) = facts.costliest(workload) else { continue };
        let Some(here) = facts.environment(&finding.environment) else { continue };
        let layers = tare_lab::ablation::changes(&base.spec, &here.spec);
        let apart = |layer: Layer| {
            facts.effects.iter().any(|one| one.workload == workload && one.kind.layer == layer)
        };
        let explained = facts.explanations.iter().any(|found| found.workload == workload);
        if layers.len() < 2 || explained || layers.iter().any(|change| apart(change.layer)) {
            continue;
        }
        let (mut brief, mut measured) = (Vec::new(), Vec::new());
        for metric in Metric::ALL {
            let Some(cost) = metric.cost(finding) else { continue };
            if !facts.claimed(finding, metric) || cost.percent.value <= 0.0 {
                continue;
            }
            let percent = words::loss(&cost.percent);
            match metric {
                Metric::ServerCpu => {
                    brief.push(format!(
                        "{} CPU per operation",
                        words::percent_change(cost.percent.value)
                    ));
                    measured.push(format!("{percent} server CPU per operation"));
                }
                Metric::Throughput => {
                    brief.push(words::throughput(cost.percent.value, brief.is_empty()));
                    measured.push(format!("{percent} of the throughput"));
                }
            }
        }
        let layers: Vec<String> = layers
            .iter()
            .map(|one| format!("{} ({} \u{2192} {})", one.layer, clean(&one.from), clean(&one.to)))
            .collect();
        let metric = Metric::ALL
            .into_iter()
            .find_map(|metric| metric.cost(finding).filter(|_| facts.claimed(finding, metric)));
        let Some(cost) = metric else { continue };
        let values = [
            ("environment", words::quoted(&finding.environment)),
            ("cost", brief.join(", ")),
            ("measured", words::list(&measured)),
            ("baseline", words::quoted(baseline)),
            ("layers", words::list(&layers)),
        ];
        let doubts = facts.doubts(workload, &[&finding.environment]);
        let n = rounds(cost.percent.rounds);
        let evidence: Evidence = facts.costs_evidence(workload, &[&finding.environment]);
        statements.push(
            rule.statement(&values)
                .with_effect(workload, cost.percent.value)
                .confidence(words::confidence(&cost.percent, ("percent", "%"), &n, None, doubts))
                .with_evidence([evidence]),
        );
    }
    statements
}
