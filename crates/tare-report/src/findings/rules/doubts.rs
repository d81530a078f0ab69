//! Doubts that affect so many slices that they are findings.

use tare_lab::analysis::Finding;
use tare_lab::doubt::Doubt;

use super::super::claim_filter::OFTEN;
use super::super::facts::Facts;
use super::super::{Evidence, Kind, Rule, Statement, words};
use crate::headline::Metric;

const DATA: &str = "the doubts of the slices, by environment";
const OFTEN_WORDS: &str = "the doubt affects at least a quarter of the slices of an environment";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "client_saturated",
        title: "Client saturated",
        kind: Kind::Caution,
        data: "the doubt client_saturated, and which costs in throughput are claimed",
        condition: "the doubt affects at least a quarter of the slices of the baseline or of an environment whose loss of \
                    throughput is a claim",
        sentence: "Client saturated: {share} in use in {places}. {bound}.",
        details: "",
        advice: "Give the client more CPUs ([cpus] client in the study), or threads if one of them is the limit, or the system fewer CPUs. CPU per \
                 operation is still valid.",
        expected: "",
        expected_from: "",
        apply: client_saturated,
    },
    Rule {
        id: "neither_saturated",
        title: "Too little load",
        kind: Kind::Caution,
        data: DATA,
        condition: OFTEN_WORDS,
        sentence: "Too little load: {share} in {places}. Throughput is that of a round trip.",
        details: "",
        advice: "Write load = \"saturate\" instead of in_flight, or raise the clients or threads of the load tool until throughput \
                 stops growing. No loss or gain of throughput is claimed until then; CPU per operation is still valid.",
        expected: "",
        expected_from: "",
        apply: neither_saturated,
    },
    Rule {
        id: "strangers",
        title: "Other processes on the CPUs",
        kind: Kind::Caution,
        data: DATA,
        condition: OFTEN_WORDS,
        sentence: "Other processes: {share} of the CPUs in {places}. Stop them and repeat.",
        details: "",
        advice: "top shows them. Until then trust CPU per operation before throughput, and shares of the layer cpu least.",
        expected: "",
        expected_from: "",
        apply: strangers,
    },
    Rule {
        id: "steal",
        title: "Steal time",
        kind: Kind::Caution,
        data: DATA,
        condition: OFTEN_WORDS,
        sentence: "Steal time: {share} of the CPUs in {places}. Trust CPU before throughput.",
        details: "",
        advice: "The hypervisor gave this time to other guests. Repeat at a quieter time or on a dedicated host.",
        expected: "",
        expected_from: "",
        apply: steal,
    },
    Rule {
        id: "rate_not_reached",
        title: "Fixed rate not reached",
        kind: Kind::Caution,
        data: DATA,
        condition: OFTEN_WORDS,
        sentence: "Fixed rate missed: {share} in {places}. These latencies are of an overloaded system.",
        details: "",
        advice: "Lower latency_share or rate_per_s of the workload before you compare latencies.",
        expected: "",
        expected_from: "",
        apply: rate_not_reached,
    },
    Rule {
        id: "errors",
        title: "Failed operations",
        kind: Kind::Void,
        data: DATA,
        condition: "operations failed in any slice that counts",
        sentence: "Failed operations: {share} in {places}. Do not use these figures.",
        details: "",
        advice: "Read the system's log. A failed operation is often cheaper than a good one.",
        expected: "",
        expected_from: "",
        apply: errors,
    },
    Rule {
        id: "not_in_force",
        title: "Layer not in force",
        kind: Kind::Void,
        data: "the layers as read back in each slice",
        condition: "a slice is void because a layer was not in force",
        sentence: "Layer not in force: {share} in {places}. Those slices do not count.",
        details: "",
        advice: "tare doctor lists what this host supports.",
        expected: "",
        expected_from: "",
        apply: not_in_force,
    },
];

/// The environments that a doubt affects in at least a given share of their slices, and the worst
/// doubt.
struct Affected<'f> {
    worst: Doubt,
    findings: Vec<&'f Finding>,
    most: f64,
}

fn affected<'f>(facts: &'f Facts<'_>, kind: &str, least: f64) -> Option<Affected<'f>> {
    let mut affected: Option<Affected<'f>> = None;
    for finding in &facts.analysis.findings {
        let Some((doubt, often)) = facts.doubt(finding, kind) else { continue };
        if often < least {
            continue;
        }
        match &mut affected {
            None => {
                affected = Some(Affected { worst: doubt, findings: vec![finding], most: often })
            }
            Some(affected) => {
                affected.findings.push(finding);
                affected.most = affected.most.max(often);
                if size(&doubt) > size(&affected.worst) {
                    affected.worst = doubt;
                }
            }
        }
    }
    affected
}

fn size(doubt: &Doubt) -> f64 {
    match doubt {
        Doubt::Steal { share } | Doubt::Strangers { share } => *share,
        Doubt::ClientSaturated { share, busiest_thread_share } => {
            Doubt::client_use(*share, *busiest_thread_share)
        }
        Doubt::NeitherSaturated { system_share, .. } => 1.0 - system_share,
        Doubt::RateNotReached { asked_per_s, reached_per_s } => 1.0 - reached_per_s / asked_per_s,
        _ => 0.0,
    }
}

/// `30 %`, or `30 % (at worst 60 %)`: the median of the slices that the doubt affects, and the
/// worst.
fn usual(facts: &Facts<'_>, affected: &Affected<'_>) -> String {
    let names: Vec<&str> = affected.findings.iter().map(|one| one.environment.as_str()).collect();
    let kind = affected.worst.kind();
    let worst = words::share(size(&affected.worst));
    let middle = facts
        .median_of_doubt(&names, |doubt| (doubt.kind() == kind).then(|| size(doubt)))
        .map(words::share);
    match middle {
        Some(middle) if middle != worst => format!("{middle} (at worst {worst})"),
        _ => worst,
    }
}

/// `all 8 environments`, or their names.
fn places(facts: &Facts<'_>, findings: &[&Finding]) -> String {
    let mut names: Vec<&str> = findings.iter().map(|one| one.environment.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let ran = facts.record.environments.iter().filter(|one| one.left_out.is_none()).count();
    match names.len() {
        all if all == ran && all > 1 => format!("all {all} environments"),
        many if many > 3 => format!("{many} of {ran} environments"),
        _ => words::list(&names.iter().map(|name| words::quoted(name)).collect::<Vec<_>>()),
    }
}

fn apply(
    rule: &Rule,
    facts: &Facts<'_>,
    kind: &str,
    least: f64,
    share: impl Fn(&Affected<'_>) -> String,
) -> Vec<Statement> {
    let Some(affected) = affected(facts, kind, least) else { return Vec::new() };
    let values = [("places", places(facts, &affected.findings)), ("share", share(&affected))];
    vec![finish(facts, rule.statement(&values), kind, &affected)]
}

fn finish(
    facts: &Facts<'_>,
    statement: Statement,
    kind: &str,
    affected: &Affected<'_>,
) -> Statement {
    let often = format!("in up to {} of an environment's slices", words::share(affected.most));
    let doubts = facts.doubt_number(kind).into_iter().collect();
    let evidence: Option<Evidence> = facts.doubt_evidence(kind);
    let workload = affected.findings.first().map_or("", |finding| finding.workload.as_str());
    let several = affected.findings.iter().any(|finding| finding.workload != workload);
    let mut statement =
        statement.confidence(words::without_interval(often, doubts)).with_evidence(evidence);
    statement.workload = (!several).then(|| crate::figures::clean(workload));
    statement.size = 100.0 * size(&affected.worst);
    statement
}

fn client_saturated(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let Some(mut affected) = affected(facts, "client_saturated", OFTEN) else { return Vec::new() };
    let loses = |finding: &Finding| {
        let cost = finding.throughput_cost.as_ref();
        facts.claimed(finding, Metric::Throughput)
            && cost.is_some_and(|cost| cost.percent.value > 0.0)
    };
    let baseline = affected.findings.iter().any(|finding| finding.baseline || finding.control);
    affected.findings.retain(|finding| finding.baseline || finding.control || loses(finding));
    if affected.findings.is_empty() {
        return Vec::new();
    }
    let bound = match baseline {
        true => "The baseline could do more, so losses of throughput are lower bounds",
        false => "The client may cause part of the loss of throughput",
    };
    let of = match affected.worst {
        Doubt::ClientSaturated { busiest_thread_share: Some(_), .. } => {
            "of the one CPU that its busiest thread can use"
        }
        _ => "of its CPUs",
    };
    let share = format!("{} {of}", usual(facts, &affected));
    let values = [
        ("share", share),
        ("places", places(facts, &affected.findings)),
        ("bound", bound.to_string()),
    ];
    vec![finish(facts, rule.statement(&values), "client_saturated", &affected)]
}

fn neither_saturated(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    apply(rule, facts, "neither_saturated", OFTEN, |affected| match affected.worst {
        Doubt::NeitherSaturated { system_share, client_share } => format!(
            "{} of the system's CPUs and {} of the client's busy",
            words::share(system_share),
            words::share(client_share)
        ),
        _ => affected.worst.text(),
    })
}

fn strangers(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    apply(rule, facts, "strangers", OFTEN, |affected| usual(facts, affected))
}

fn steal(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    apply(rule, facts, "steal", OFTEN, |affected| usual(facts, affected))
}

fn rate_not_reached(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    apply(rule, facts, "rate_not_reached", OFTEN, |affected| match &affected.worst {
        Doubt::RateNotReached { asked_per_s, reached_per_s } => {
            format!("at worst {reached_per_s:.0} of {asked_per_s:.0} operations/s")
        }
        other => other.text(),
    })
}

fn errors(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    apply(rule, facts, "operation_errors", 0.0, |affected| {
        crate::figures::clean(&affected.worst.text())
    })
}

fn not_in_force(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    apply(rule, facts, "layer_not_in_force", 0.0, |affected| {
        crate::figures::clean(&affected.worst.text())
    })
}
