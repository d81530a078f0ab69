//! Several instances: what a further one adds, and whether one of them gets less than the others.

use tare_lab::analysis::{Scaling, instance_figures, scaling};

use super::super::facts::Facts;
use super::super::{Evidence, Kind, Rule, Statement, words};
use crate::figures::{clean, rate, rounds};
use crate::headline::Metric;
use crate::instances::{knee, times};
use tare_std::units::significant;

/// The slowest instance is reported below this share of the median one.
const SLOWEST_SHARE: f64 = 0.8;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "scaling",
        title: "What a further instance adds",
        kind: Kind::Cost,
        data: "the throughput of environments that differ in the number of instances alone, each against the one with the fewest, over \
               the rounds of both",
        condition: "at least one number of instances has a throughput that is claimed to differ from that of the fewest",
        sentence: "{most} instances: {times} times the throughput of {least} ({efficiency} of {perfect} times). {knee}",
        details: "{points}.",
        advice: "{advice}",
        expected: "",
        expected_from: "",
        apply: scales,
    },
    Rule {
        id: "instances_unequal",
        title: "One instance gets less",
        kind: Kind::Caution,
        data: "the operations of each instance in every slice at capacity",
        condition: "the slowest instance does less than 0.8 of the median one, as the median over slices",
        sentence: "{environment}: the slowest instance does {share} of the median one. Give each its own CPUs.",
        details: "operations/s of each: {each}; Jain's index {fairness}.",
        advice: "Instances that share CPUs get what the scheduler gives them. cpu = \"pinned\" with a core for each, or a quota, \
                 divides the CPUs.",
        expected: "",
        expected_from: "",
        apply: unequal,
    },
];

fn scales(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let all = scaling(facts.record, facts.analysis);
    all.iter().filter_map(|one| one_scaling(rule, facts, one)).collect()
}

fn one_scaling(rule: &Rule, facts: &Facts<'_>, scaling: &Scaling) -> Option<Statement> {
    let first = scaling.points.first()?;
    let differs = |name: &str| {
        let names = [name, first.environment.as_str()];
        let costs =
            tare_lab::analysis::pair_costs(facts.record, &scaling.workload, names[0], names[1])?;
        let cost = costs.throughput?;
        facts.claim(&scaling.workload, names, Metric::Throughput, &cost).then_some(())
    };
    scaling.points[1..].iter().find_map(|point| differs(&point.environment))?;
    let knee = knee(facts.analysis, scaling);
    let (told, last) = match knee {
        Some(at) if at > 0 => (&scaling.points[at], scaling.points.get(at + 1)),
        _ => (scaling.points.last()?, None),
    };
    let ratio = told.times?;
    let (text, advice) = match (knee, last) {
        (Some(0), _) => (
            "No further instance adds any.".to_string(),
            "Run one instance, or give further ones CPUs of their own.".to_string(),
        ),
        (Some(_), Some(next)) => (
            format!("{} add nothing.", next.instances),
            format!("Run {} instances here; more of them share what there is.", told.instances),
        ),
        _ => (
            "Every further instance adds some.".to_string(),
            "Weigh more instances: the largest number still adds throughput.".to_string(),
        ),
    };
    let point = |point: &tare_lab::analysis::ScalingPoint| {
        let cpu =
            point.cpu_us.map(|us| format!(", {}", words::us_plain(us.value))).unwrap_or_default();
        let per_s = point.throughput_per_s.map_or("-".into(), |of| rate(of.value));
        format!("{}: {per_s} op/s{cpu} per operation", point.instances)
    };
    let values = [
        ("most", told.instances.to_string()),
        ("least", first.instances.to_string()),
        ("times", times(ratio.value)),
        ("efficiency", words::share(told.efficiency(first.instances)?)),
        ("perfect", significant(f64::from(told.instances) / f64::from(first.instances), 3)),
        ("knee", text),
        ("points", scaling.points.iter().map(point).collect::<Vec<_>>().join("; ")),
        ("advice", advice),
    ];
    let names: Vec<&str> = scaling.points.iter().map(|point| point.environment.as_str()).collect();
    let doubts = facts.doubts(&scaling.workload, &names);
    let n = rounds(ratio.rounds);
    Some(
        rule.statement(&values)
            .with_effect(&scaling.workload, 100.0 * (ratio.value - 1.0))
            .confidence(words::confidence(&ratio, ("ratio", "times"), &n, None, doubts))
            .with_evidence([Evidence::at("instances", "instances")]),
    )
}

fn unequal(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let figures = instance_figures(facts.record);
    let unequal = figures.iter().filter(|one| one.slowest_over_median < SLOWEST_SHARE);
    unequal
        .map(|one| {
            let each: Vec<String> =
                one.instances.iter().map(|instance| rate(instance.operations_per_s)).collect();
            let values = [
                ("environment", words::quoted(&one.environment)),
                ("share", words::share(one.slowest_over_median)),
                ("each", clean(&each.join(", "))),
                ("fairness", significant(one.fairness, 3)),
            ];
            let doubts = facts.doubts(&one.workload, &[&one.environment]);
            rule.statement(&values)
                .with_effect(&one.workload, 100.0 * (1.0 - one.slowest_over_median))
                .confidence(words::without_interval("Median over slices", doubts))
                .with_evidence([Evidence::at("instances", "instances")])
        })
        .collect()
}
