//! Doubts that touch so much of a record that they belong among its conclusions.

use tare_lab::analysis::Finding;
use tare_lab::doubt::Doubt;

use super::super::facts::Facts;
use super::super::gate::OFTEN;
use super::super::{Evidence, Kind, Rule, Statement, words};
use crate::headline::Metric;

const LOOKS_AT: &str = "the doubts of the slices, by environment";
const OFTEN_WORDS: &str = "the doubt touches at least a quarter of the slices of an environment";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "client_saturated",
        title: "The client was saturated",
        kind: Kind::Caution,
        looks_at: "the doubt client_saturated, and which costs in throughput are claimed",
        condition: "the doubt touches at least a quarter of the slices of the baseline or of an environment whose loss of \
                    throughput is a claim",
        sentence: "The client used {share} of its CPUs in {places}, so it may be what was measured: {bound}.",
        advice: "Give the client more CPUs ([cpus] client in the study) or the system fewer; CPU per operation stands as it is.",
        expected: "",
        expected_from: "",
        speak: client_saturated,
    },
    Rule {
        id: "strangers",
        title: "Others used the CPUs",
        kind: Kind::Caution,
        looks_at: LOOKS_AT,
        condition: OFTEN_WORDS,
        sentence: "Processes outside the study used {share} of the CPUs in {places}.",
        advice: "Stop what else runs here (top shows it) and repeat; until then believe CPU per operation before throughput, \
                 and shares of the layer cpu least.",
        expected: "",
        expected_from: "",
        speak: strangers,
    },
    Rule {
        id: "steal",
        title: "The hypervisor took CPU time",
        kind: Kind::Caution,
        looks_at: LOOKS_AT,
        condition: OFTEN_WORDS,
        sentence: "The hypervisor gave {share} of the CPUs' time to others in {places}.",
        advice: "Believe CPU per operation before throughput, and repeat at a quieter time or on a host of your own \
                 (dedicated or bare metal).",
        expected: "",
        expected_from: "",
        speak: steal,
    },
    Rule {
        id: "rate_not_reached",
        title: "Latencies of an overloaded system",
        kind: Kind::Caution,
        looks_at: LOOKS_AT,
        condition: OFTEN_WORDS,
        sentence: "The fixed rate was not reached in {places} ({share}): these latencies are those of an overloaded system.",
        advice: "Lower latency_share or rate_per_s of the workload, and compare latencies only then.",
        expected: "",
        expected_from: "",
        speak: rate_not_reached,
    },
    Rule {
        id: "errors",
        title: "Operations failed",
        kind: Kind::Void,
        looks_at: LOOKS_AT,
        condition: "operations failed in any slice that counts",
        sentence: "Operations failed in {places}: {share}.",
        advice: "Read the system's log first. A failed operation is often cheaper than a good one, so do not use these \
                 figures until none fails.",
        expected: "",
        expected_from: "",
        speak: errors,
    },
    Rule {
        id: "not_in_force",
        title: "A layer was not in force",
        kind: Kind::Void,
        looks_at: "the layers as read back in each slice",
        condition: "a slice is void because a layer was not in force",
        sentence: "A layer that was asked for was not in force in {places}: {share}. Those slices do not count.",
        advice: "tare doctor says what this host can do.",
        expected: "",
        expected_from: "",
        speak: not_in_force,
    },
];

/// The environments that a doubt touches in at least so much of their slices, and the doubt where
/// it is worst.
struct Seen<'f> {
    worst: Doubt,
    findings: Vec<&'f Finding>,
    most: f64,
}

fn seen<'f>(facts: &'f Facts<'_>, kind: &str, least: f64) -> Option<Seen<'f>> {
    let mut seen: Option<Seen<'f>> = None;
    for finding in &facts.analysis.findings {
        let Some((doubt, often)) = facts.doubt(finding, kind) else { continue };
        if often < least {
            continue;
        }
        match &mut seen {
            None => seen = Some(Seen { worst: doubt, findings: vec![finding], most: often }),
            Some(seen) => {
                seen.findings.push(finding);
                seen.most = seen.most.max(often);
                if size(&doubt) > size(&seen.worst) {
                    seen.worst = doubt;
                }
            }
        }
    }
    seen
}

fn size(doubt: &Doubt) -> f64 {
    match doubt {
        Doubt::Steal { share } | Doubt::Strangers { share } | Doubt::ClientSaturated { share } => {
            *share
        }
        Doubt::RateNotReached { asked_per_s, reached_per_s } => 1.0 - reached_per_s / asked_per_s,
        _ => 0.0,
    }
}

/// `30 %`, or `30 % (at worst 60 %)`: the middle of the slices that it touches, and the worst.
fn usual(facts: &Facts<'_>, seen: &Seen<'_>) -> String {
    let names: Vec<&str> = seen.findings.iter().map(|one| one.environment.as_str()).collect();
    let kind = seen.worst.kind();
    let worst = words::share(size(&seen.worst));
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

fn speak(
    rule: &Rule,
    facts: &Facts<'_>,
    kind: &str,
    least: f64,
    share: impl Fn(&Seen<'_>) -> String,
) -> Vec<Statement> {
    let Some(seen) = seen(facts, kind, least) else { return Vec::new() };
    let values = [("places", places(facts, &seen.findings)), ("share", share(&seen))];
    vec![finish(facts, rule.say(&values), kind, &seen)]
}

fn finish(facts: &Facts<'_>, statement: Statement, kind: &str, seen: &Seen<'_>) -> Statement {
    let often = format!("seen in up to {} of an environment's slices", words::share(seen.most));
    let doubts = facts.mark(kind).into_iter().collect();
    let evidence: Option<Evidence> = facts.doubt_evidence(kind);
    let workload = seen.findings.first().map_or("", |finding| finding.workload.as_str());
    let several = seen.findings.iter().any(|finding| finding.workload != workload);
    let mut statement = statement.sure(words::plainly(often, doubts)).see(evidence);
    statement.workload = (!several).then(|| crate::figures::clean(workload));
    statement.size = 100.0 * size(&seen.worst);
    statement
}

fn client_saturated(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let Some(mut seen) = seen(facts, "client_saturated", OFTEN) else { return Vec::new() };
    let loses = |finding: &Finding| {
        let cost = finding.throughput_cost.as_ref();
        facts.claimed(finding, Metric::Throughput)
            && cost.is_some_and(|cost| cost.percent.value > 0.0)
    };
    let baseline = seen.findings.iter().any(|finding| finding.baseline || finding.control);
    seen.findings.retain(|finding| finding.baseline || finding.control || loses(finding));
    if seen.findings.is_empty() {
        return Vec::new();
    }
    let bound = match baseline {
        true => "the baseline could do more, so that losses of throughput are lower bounds",
        false => "part of the loss of throughput there may be the client's",
    };
    let share = usual(facts, &seen);
    let values =
        [("share", share), ("places", places(facts, &seen.findings)), ("bound", bound.to_string())];
    vec![finish(facts, rule.say(&values), "client_saturated", &seen)]
}

fn strangers(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    speak(rule, facts, "strangers", OFTEN, |seen| usual(facts, seen))
}

fn steal(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    speak(rule, facts, "steal", OFTEN, |seen| usual(facts, seen))
}

fn rate_not_reached(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    speak(rule, facts, "rate_not_reached", OFTEN, |seen| match &seen.worst {
        Doubt::RateNotReached { asked_per_s, reached_per_s } => {
            format!("at worst {reached_per_s:.0} of {asked_per_s:.0} operations/s")
        }
        other => other.text(),
    })
}

fn errors(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    speak(rule, facts, "operation_errors", 0.0, |seen| crate::figures::clean(&seen.worst.text()))
}

fn not_in_force(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    speak(rule, facts, "layer_not_in_force", 0.0, |seen| crate::figures::clean(&seen.worst.text()))
}
