//! What tuning the host gave back, where a study weighed it.

use super::super::facts::Facts;
use super::super::{Evidence, Kind, Rule, Statement, words};
use crate::headline::{Metric, blocks};
use tare_lab::analysis::tuning::Gain;
use tare_stats::law::TuningVerdict;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "tuning_helps",
        title: "Tuning the host gives something back",
        kind: Kind::Returned,
        looks_at: "every environment with a tuned host against the one that differs in nothing else",
        condition: "it gains in one figure, as a claim, and loses in none, and its groups hurt under no workload",
        sentence: "Tuning the host ({groups}) gives back {gain}.",
        advice: "tare tune apply{only} makes it so, journalled; tare tune persist keeps it over a reboot, tare tune revert \
                 takes it back.",
        expected: "{gain}, as measured here",
        expected_from: "the measured gain with its interval",
        speak: helps,
    },
    Rule {
        id: "tuning_hurts",
        title: "Tuning the host costs something",
        kind: Kind::Caution,
        looks_at: "every environment with a tuned host against the one that differs in nothing else",
        condition: "it loses in one figure, as a claim",
        sentence: "Tuning the host ({groups}) costs {gain}.",
        advice: "Leave these groups out: tare tune apply --except {groups}.",
        expected: "",
        expected_from: "",
        speak: hurts,
    },
    Rule {
        id: "tuning_not_proven",
        title: "Tuning that is not proven to help",
        kind: Kind::Nothing,
        looks_at: "every environment with a tuned host against the one that differs in nothing else",
        condition: "no group of knobs gains or loses beyond the noise",
        sentence: "No help of tuning the host is proven ({groups}): what it gives or takes is within the noise.",
        advice: "Do not apply it for this database's sake. A longer run (tare tune prove --budget) finds smaller gains.",
        expected: "",
        expected_from: "",
        speak: not_proven,
    },
];

fn helps(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let Some(proof) = &facts.proof else { return Vec::new() };
    let helpful = proof.gains.iter().filter(|gain| gain.verdict == TuningVerdict::Helps);
    let helpful = helpful.filter(|gain| proof.proven.contains(&gain.groups));
    helpful.filter_map(|gain| say(rule, facts, gain, true)).collect()
}

fn hurts(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let Some(proof) = &facts.proof else { return Vec::new() };
    let bad = |gain: &&Gain| matches!(gain.verdict, TuningVerdict::Hurts | TuningVerdict::Mixed);
    proof.gains.iter().filter(bad).filter_map(|gain| say(rule, facts, gain, false)).collect()
}

fn say(rule: &Rule, facts: &Facts<'_>, gain: &Gain, good: bool) -> Option<Statement> {
    let groups = match gain.groups.as_str() {
        "all" => "all groups".to_string(),
        groups => crate::figures::clean(groups),
    };
    let only = match gain.groups.as_str() {
        "all" => String::new(),
        groups => format!(" --only {}", crate::figures::clean(groups).replace('+', ",")),
    };
    let pair = [gain.environment.as_str(), gain.against.as_str()];
    let (mut parts, mut first) = (Vec::new(), None);
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
        parts.push(match metric {
            Metric::ServerCpu => format!("{} of server CPU per operation", words::loss(&figure)),
            Metric::Throughput => format!("{} of the throughput", words::loss(&figure)),
        });
    }
    let figure = first?;
    let values = [("groups", groups), ("gain", words::list(&parts)), ("only", only)];
    let doubts = facts.doubts(&gain.workload, &[&gain.environment, &gain.against]);
    let n = blocks(figure.blocks);
    Some(
        rule.say(&values)
            .about(&gain.workload, figure.value)
            .sure(words::sureness(&figure, ("percent", "%"), &n, None, doubts))
            .see([Evidence::at(
                "tuning",
                format!("gain of {}", crate::figures::clean(&gain.groups)),
            )]),
    )
}

fn not_proven(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let Some(proof) = &facts.proof else { return Vec::new() };
    let none = |gain: &Gain| gain.verdict == TuningVerdict::NotProven;
    if proof.gains.is_empty() || !proof.gains.iter().all(none) {
        return Vec::new();
    }
    let mut groups: Vec<String> = Vec::new();
    for gain in &proof.gains {
        let name = crate::figures::clean(&gain.groups);
        if !groups.contains(&name) {
            groups.push(name);
        }
    }
    vec![
        rule.say(&[("groups", groups.join(", "))])
            .sure(words::plainly("each gain's interval stands in the table", Vec::new()))
            .see([Evidence::at("tuning", "every gain")]),
    ]
}
