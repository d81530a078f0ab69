//! Several instances: what a further one adds, and whether one of them gets less than the others.

use tare_lab::analysis::{
    Cost, Interval, Scaling, ScalingPoint, instance_figures, pair_costs, scaling,
};

use super::super::facts::Facts;
use super::super::{Evidence, Kind, Rule, Statement, words};
use crate::figures::{clean, rate, rounds};
use crate::headline::{Metric, is_claim};
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
        id: "scaling_none",
        title: "Further instances add nothing",
        kind: Kind::Nothing,
        data: "as above",
        condition: "no number of instances has a throughput that differs from that of the fewest beyond the noise, whether or not \
                    doubts allow to claim it",
        sentence: "{more} instances have the throughput of {least}, within {within}.",
        details: "{points}.",
        advice: "One instance already uses what there is. Give further ones CPUs of their own, or run one.",
        expected: "",
        expected_from: "",
        apply: adds_nothing,
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

/// Returns whether a number of instances has a throughput that differs from that of the fewest, as
/// `claims` decides.
fn differs(
    facts: &Facts<'_>,
    scaling: &Scaling,
    claims: impl Fn([&str; 2], &Cost) -> bool,
) -> bool {
    let Some(first) = scaling.points.first() else { return false };
    scaling.points[1..].iter().any(|point| {
        let names = [point.environment.as_str(), first.environment.as_str()];
        let costs = pair_costs(facts.record, &scaling.workload, names[0], names[1]);
        let cost = costs.and_then(|costs| costs.throughput);
        cost.is_some_and(|cost| claims(names, &cost))
    })
}

/// Returns every number of instances with its figures.
fn points(scaling: &Scaling) -> String {
    let point = |point: &ScalingPoint| {
        let cpu = point.cpu_us.map(|us| format!(", {}", words::us_plain(us.value)));
        let per_s = point.throughput_per_s.map_or("-".into(), |of| rate(of.value));
        format!("{}: {per_s} op/s{} per operation", point.instances, cpu.unwrap_or_default())
    };
    scaling.points.iter().map(point).collect::<Vec<_>>().join("; ")
}

fn names(scaling: &Scaling) -> Vec<&str> {
    scaling.points.iter().map(|point| point.environment.as_str()).collect()
}

fn one_scaling(rule: &Rule, facts: &Facts<'_>, scaling: &Scaling) -> Option<Statement> {
    let claims = |names: [&str; 2], cost: &Cost| {
        facts.claim(&scaling.workload, names, Metric::Throughput, cost)
    };
    let first = scaling.points.first().filter(|_| differs(facts, scaling, claims))?;
    let knee = knee(facts.analysis, scaling);
    let next = knee.and_then(|at| scaling.points.get(at + 1));
    // With no gain at all, the sentence is about the largest number.
    let told = match knee {
        Some(at) if at > 0 => &scaling.points[at],
        _ => scaling.points.last()?,
    };
    let ratio = told.times?;
    let (text, advice) = match (knee, next) {
        (Some(at), Some(next)) if at > 0 => (
            format!("{} add nothing more.", next.instances),
            format!("Run {} instances here; more of them share what there is.", told.instances),
        ),
        (Some(_), _) => (
            format!("{} instances already add nothing.", scaling.points[1].instances),
            format!("Run {}, or give further ones CPUs of their own.", first.instances),
        ),
        _ => (
            "Every further number adds some.".to_string(),
            "Weigh more instances: the largest number still adds throughput.".to_string(),
        ),
    };
    let values = [
        ("most", told.instances.to_string()),
        ("least", first.instances.to_string()),
        ("times", times(ratio.value)),
        ("efficiency", words::share(told.efficiency(first.instances)?)),
        ("perfect", significant(f64::from(told.instances) / f64::from(first.instances), 3)),
        ("knee", text),
        ("points", points(scaling)),
        ("advice", advice),
    ];
    let doubts = facts.doubts(&scaling.workload, &names(scaling));
    let n = rounds(ratio.rounds);
    Some(
        rule.statement(&values)
            .with_effect(&scaling.workload, 100.0 * (ratio.value - 1.0))
            .confidence(words::confidence(&ratio, ("ratio", "times"), &n, None, doubts))
            .with_evidence([Evidence::at("instances", "instances")]),
    )
}

fn adds_nothing(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let all = scaling(facts.record, facts.analysis);
    let nothing = |one: &Scaling| {
        let (first, others) = one.points.split_first()?;
        let ratios: Vec<Interval> = others.iter().filter_map(|point| point.times).collect();
        let away = |ratio: &Interval| (ratio.low - 1.0).abs().max((ratio.high - 1.0).abs());
        let within = ratios.iter().map(away).filter(|away| away.is_finite()).reduce(f64::max)?;
        // A difference that doubts forbid to claim is no equality.
        let beyond_noise = |names: [&str; 2], cost: &Cost| {
            is_claim(facts.analysis, &one.workload, names, Metric::Throughput, cost)
        };
        if differs(facts, one, beyond_noise) {
            return None;
        }
        let more: Vec<String> = others.iter().map(|point| point.instances.to_string()).collect();
        let values = [
            ("more", words::list(&more)),
            ("least", first.instances.to_string()),
            ("within", words::share(within)),
            ("points", points(one)),
        ];
        let doubts = facts.doubts(&one.workload, &names(one));
        Some(
            rule.statement(&values)
                .with_effect(&one.workload, 100.0 * within)
                .confidence(words::without_interval("Intervals of all numbers", doubts))
                .with_evidence([Evidence::at("instances", "instances")]),
        )
    };
    all.iter().filter_map(nothing).collect()
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
