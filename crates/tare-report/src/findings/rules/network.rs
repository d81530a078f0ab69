//! The path of a packet: the proxy's own CPU time, and segments sent again.

use tare_lab::analysis::Interval;
use tare_lab::record::Phase;
use tare_stats::estimate;

use super::super::effects::Effect;
use super::super::facts::Facts;
use super::super::{Evidence, Kind, Rule, Statement, words};
use crate::headline::blocks;

const RETRANSMITS: [&str; 2] = ["system_tcp_retransmits", "client_tcp_retransmits"];
/// One in ten thousand operations; below, nobody waits for it.
const RETRANSMITS_MIN: f64 = 1e-4;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "layer_process",
        title: "A process that the layer adds",
        kind: Kind::Cost,
        looks_at: "the CPU accounts of the processes that a layer adds outside the system (a userland proxy, a sentry), at \
                   capacity, by block",
        condition: "its CPU time per operation is above 0 in the record, and no two environments tell its layer apart",
        sentence: "{part} of {environment} takes {us} of CPU per operation by its own account.",
        advice: "{advice}",
        expected: "at least {us}: the process's own CPU time; the wakeups and copies that it causes elsewhere are not in it",
        expected_from: "the measured CPU time of that process with its interval",
        speak: layer_process,
    },
    Rule {
        id: "retransmits",
        title: "TCP segments sent again",
        kind: Kind::Caution,
        looks_at: "the counters system_tcp_retransmits and client_tcp_retransmits at capacity",
        condition: "the counter stands out of the baseline's and is above 1 in 10,000 operations",
        sentence: "{environment} sends TCP segments again: {count} per operation against {baseline} ({name}).",
        advice: "Look for drops: counters system_net_in_drops and system_tcp_backlog_drops; then tare tune plan --only \
                 network (queues, rings) and limits (net.core backlogs).",
        expected: "",
        expected_from: "",
        speak: retransmits,
    },
];

fn layer_process(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut said = Vec::new();
    for (_, workload) in facts.workloads() {
        let told_apart = |effect: &Effect| {
            effect.workload == workload
                && ["published_by_proxy", "sandbox", "injected", "virtual_machine"]
                    .contains(&effect.rule.id)
        };
        if facts.effects.iter().any(told_apart) {
            continue;
        }
        // The environments with one in the order of the study; the first speaks for all.
        let found = facts.compared(workload).find_map(|finding| {
            let (part, us) = account(facts, workload, &finding.environment)?;
            Some((finding.environment.as_str(), part, us))
        });
        let Some((environment, part, us)) = found else { continue };
        let whole = facts.finding(workload, environment).and_then(|f| f.server_cpu_us);
        let size = whole.map_or(0.0, |whole| 100.0 * us.value / whole.value);
        let values = [
            ("part", crate::headline::capital(&format!("the {}", crate::figures::clean(&part)))),
            ("environment", words::quoted(environment)),
            ("us", words::us(&us)),
            ("advice", advice(&part).to_string()),
        ];
        let doubts = facts.doubts(workload, &[environment]);
        let unit = ("us_per_operation", "\u{b5}s");
        said.push(
            rule.say(&values)
                .about(workload, size)
                .sure(words::sureness(&us, unit, &blocks(us.blocks), None, doubts))
                .see([facts.costs_evidence(workload, &[environment])]),
        );
    }
    said
}

/// What can be done about a process that a layer adds.
fn advice(part: &str) -> &'static str {
    match part {
        "userland proxy" => {
            "Connect to the container's or the host's address instead of 127.0.0.1, or set \"userland-proxy\": false in \
             /etc/docker/daemon.json."
        }
        "sentry" => "Run the database under runc: docker run --runtime runc.",
        _ => {
            "Weigh an environment without the layer that adds it (tare explain) before you change anything."
        }
    }
}

/// The dearest part that a layer adds, µs per operation at capacity over blocks.
fn account(facts: &Facts<'_>, workload: &str, environment: &str) -> Option<(String, Interval)> {
    let slices = facts.record.slices.iter().filter(|slice| {
        slice.environment == environment
            && slice.workload == workload
            && slice.phase == Phase::Capacity
            && slice.void.is_none()
            && slice.operations > 0
    });
    let mut parts: std::collections::BTreeMap<&str, Vec<f64>> = std::collections::BTreeMap::new();
    for slice in slices {
        for (part, cpu_ns) in &slice.layer_cpu_ns {
            let us = *cpu_ns as f64 / 1e3 / slice.operations as f64;
            parts.entry(part).or_default().push(us);
        }
    }
    let parts = parts.into_iter().filter_map(|(part, values)| {
        let figure = Interval::from(estimate(&values)?);
        (figure.is_bounded() && figure.low > 0.0).then(|| (part.to_string(), figure))
    });
    parts.max_by(|a, b| a.1.value.total_cmp(&b.1.value))
}

fn retransmits(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut said = Vec::new();
    for (_, workload) in facts.workloads() {
        let found = facts.compared(workload).flat_map(|finding| {
            RETRANSMITS.iter().filter_map(|name| {
                let (counter, difference) =
                    facts.stands_out(workload, &finding.environment, name)?;
                let much = difference.value > 0.0 && counter.value.value > RETRANSMITS_MIN;
                much.then_some((finding.environment.as_str(), *name, difference))
            })
        });
        let most = found.max_by(|a, b| a.2.value.total_cmp(&b.2.value));
        let Some((environment, name, difference)) = most else { continue };
        let values = [
            ("environment", words::quoted(environment)),
            ("count", crate::counters::said(&difference, true)),
            ("baseline", words::quoted(&facts.record.study.baseline)),
            ("name", name.to_string()),
        ];
        let doubts = facts.doubts(workload, &[environment]);
        let unit = ("per_operation", "per operation");
        let evidence: Evidence = facts.counter_evidence(name);
        said.push(
            rule.say(&values)
                .about(workload, 100.0 * difference.value)
                .sure(words::sureness(&difference, unit, &blocks(difference.blocks), None, doubts))
                .see([evidence]),
        );
    }
    said
}
