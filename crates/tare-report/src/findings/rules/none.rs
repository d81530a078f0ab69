//! Effects that were not found, and the smallest that would have been detected.

use super::super::effects::{Effect, Source};
use super::super::facts::Facts;
use super::super::{Kind, Rule, Statement, words};
use crate::figures::{micros, rounds};
use crate::headline::{Metric, noise};
use tare_stats::law::is_informative;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "layers_not_found",
        title: "Layers without an effect",
        kind: Kind::Nothing,
        data: "the effects of single layers",
        condition: "a layer's effect is a claim neither in CPU nor in throughput",
        sentence: "No effect found: {layers}.",
        details: "",
        advice: "These layers need no change for speed. A smaller effect than the bound would not have been detected.",
        expected: "",
        expected_from: "",
        apply: layers_not_found,
    },
    Rule {
        id: "nothing_found",
        title: "No cost found",
        kind: Kind::Nothing,
        data: "every cost against the baseline, the A/A control",
        condition: "no environment's cost above 0 in server CPU or throughput is a claim",
        sentence: "No cost found against {baseline}. Smallest detectable in every environment: {smallest}.",
        details: "",
        advice: "For smaller costs use more rounds, a larger --budget or a quieter host.",
        expected: "",
        expected_from: "",
        apply: nothing_found,
    },
    Rule {
        id: "few_blocks",
        title: "Too few rounds",
        kind: Kind::Caution,
        data: "the number of rounds with a pair",
        condition: "there are fewer than 7 rounds",
        sentence: "Only {n}: too few for narrow intervals. Measure longer.",
        details: "",
        advice: "Use a larger --budget or more --rounds; tare weigh --resume FILE.tare continues this record.",
        expected: "",
        expected_from: "",
        apply: few_blocks,
    },
];

fn layers_not_found(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut statements = Vec::new();
    for (_, workload) in facts.workloads() {
        let none: Vec<&Effect> = facts
            .effects
            .iter()
            .filter(|one| one.workload == workload && !one.cpu_claimed && !one.throughput_claimed)
            .filter(|one| one.us.is_some_and(|us| us.is_bounded()))
            .collect();
        let Some(first) = none.first() else { continue };
        let one = |effect: &&Effect| {
            let within = effect.us.map_or(0.0, |us| us.low.abs().max(us.high.abs()));
            let noise = if effect.found { ", within the A/A control's noise" } else { "" };
            format!(
                "{} ({}, within {} \u{b5}s per operation{noise})",
                effect.kind.name,
                crate::figures::clean(&effect.change),
                micros(within)
            )
        };
        let layers: Vec<String> = none.iter().map(one).collect();
        let evidence = none.iter().map(|effect| match effect.source {
            Source::Pair => facts.costs_evidence(workload, &[&effect.with, &effect.without]),
            Source::Share { .. } => facts.shares_evidence(workload, effect.kind.layer.name()),
        });
        let n = rounds(first.us.map_or(0, |us| us.rounds));
        let text = format!("95 % intervals over {n}");
        statements.push(
            rule.statement(&[("layers", words::list(&layers))])
                .with_effect(workload, 0.0)
                .confidence(words::without_interval(text, Vec::new()))
                .with_evidence(evidence.collect::<Vec<_>>()),
        );
    }
    statements
}

fn nothing_found(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut statements = Vec::new();
    for (_, workload) in facts.workloads() {
        let compared: Vec<_> = facts.compared(workload).collect();
        let any = compared.iter().any(|finding| {
            Metric::ALL.into_iter().any(|metric| {
                metric
                    .cost(finding)
                    .is_some_and(|cost| cost.percent.value > 0.0 && facts.claimed(finding, metric))
            })
        });
        if any || compared.is_empty() {
            continue;
        }
        // A claim exceeds the half-width of its own interval and the control's noise.
        let smallest = |metric: Metric| {
            let noise = noise(facts.analysis, workload, metric)?;
            let halves = compared.iter().map(|finding| {
                let percent = metric.cost(finding).map(|cost| cost.percent);
                percent.map_or(f64::INFINITY, |percent| (percent.high - percent.low) / 2.0)
            });
            let least = halves.fold(noise, f64::max);
            least.is_finite().then_some(least)
        };
        let known = Metric::ALL.map(|metric| (metric, smallest(metric)));
        if known.iter().all(|(_, least)| least.is_none()) {
            continue;
        }
        let telling = known.iter().filter_map(|(metric, least)| {
            let least = least.filter(|least| is_informative(*least))?;
            Some(format!("{least:.1} % in {}", metric.of_what()))
        });
        let parts: Vec<String> = telling.collect();
        let values = [
            ("baseline", words::quoted(&facts.record.study.baseline)),
            (
                "smallest",
                if parts.is_empty() { "not known yet".into() } else { words::list(&parts) },
            ),
        ];
        let names: Vec<&str> = compared.iter().map(|one| one.environment.as_str()).collect();
        let n = rounds(facts.analysis.rounds);
        let text =
            format!("the larger of the A/A control's noise and of each interval's half-width, {n}");
        statements.push(
            rule.statement(&values)
                .with_effect(workload, 0.0)
                .confidence(words::without_interval(text, facts.doubts(workload, &names)))
                .with_evidence([facts.costs_evidence(workload, &names[..1])]),
        );
    }
    statements
}

fn few_blocks(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    if facts.analysis.rounds >= tare_stats::ROUNDS_MIN {
        return Vec::new();
    }
    let doubts = facts.doubt_number("few_blocks").into_iter().collect();
    vec![
        rule.statement(&[("n", rounds(facts.analysis.rounds))])
            .confidence(words::without_interval("certain", doubts))
            .with_evidence(facts.doubt_evidence("few_blocks")),
    ]
}
