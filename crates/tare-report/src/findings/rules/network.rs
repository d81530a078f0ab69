//! The path of a packet: the proxy's own CPU time, and TCP retransmits.

use std::collections::BTreeMap;

use tare_lab::analysis::{Interval, crosses_network_card};
use tare_lab::record::Phase;
use tare_stats::estimate;

use super::super::effects::Effect;
use super::super::facts::Facts;
use super::super::{Evidence, Kind, Rule, Statement, words};
use super::fabrics::TARGET;
use crate::figures::rounds;

const RETRANSMITS: [&str; 2] = ["system_tcp_retransmits", "client_tcp_retransmits"];
/// One in ten thousand operations; a lower rate has no visible effect.
const RETRANSMITS_MIN: f64 = 1e-4;
/// A process that takes less of the CPU time, in percent, is not what an environment costs.
const PROCESS_MIN_PERCENT: f64 = 1.0;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "layer_process",
        title: "Process added by a layer",
        kind: Kind::Cost,
        data: "the CPU time of the processes that a layer adds outside the system (a userland proxy, a sentry), at capacity, \
                   by round",
        condition: "its CPU time per operation is above the baseline's by at least 1 % of the environment's, and no two environments separate its layer",
        sentence: "{part}: {figure} CPU per operation in {environment}. {action}",
        details: "",
        advice: "{advice}",
        expected: "at least {us}, the process's own CPU time, without the wakeups and copies that it causes elsewhere",
        expected_from: "the measured CPU time of that process with its interval",
        apply: layer_process,
    },
    Rule {
        id: "retransmits",
        title: "TCP retransmits",
        kind: Kind::Caution,
        data: "the counters system_tcp_retransmits and client_tcp_retransmits at capacity",
        condition: "the counter exceeds the baseline's beyond the noise and is above 1 in 10,000 operations",
        sentence: "TCP retransmits: {count} per operation in {environment} against {baseline}. Look for drops.",
        details: "",
        advice: "The counters system_net_in_drops and system_tcp_backlog_drops show drops. {knobs}",
        expected: "",
        expected_from: "",
        apply: retransmits,
    },
];

fn layer_process(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut statements = Vec::new();
    for (_, workload) in facts.workloads() {
        let separated = |effect: &Effect| {
            effect.workload == workload
                && ["published_by_proxy", "sandbox", "injected", "virtual_machine"]
                    .contains(&effect.kind.rule)
        };
        if facts.effects.iter().any(separated) {
            continue;
        }
        // Report the first environment, in the order of the study, that has such a process.
        let found = facts.compared(workload).find_map(|finding| {
            let (part, us) = account(facts, workload, &finding.environment)?;
            let percent = 100.0 * us.value / finding.server_cpu_us.as_ref()?.value;
            (percent >= PROCESS_MIN_PERCENT).then_some((
                finding.environment.as_str(),
                part,
                us,
                percent,
            ))
        });
        let Some((environment, part, us, size)) = found else { continue };
        let values = [
            ("part", crate::headline::capital(&crate::figures::clean(&part))),
            ("environment", words::quoted(environment)),
            ("us", words::us(&us)),
            ("figure", words::us_plain(us.value)),
            ("action", advice(&part)[0].to_string()),
            ("advice", advice(&part)[1].to_string()),
        ];
        let doubts = facts.doubts(workload, &[environment]);
        let unit = ("us_per_operation", "\u{b5}s");
        statements.push(
            rule.statement(&values)
                .with_effect(workload, size)
                .confidence(words::confidence(&us, unit, &rounds(us.rounds), None, doubts))
                .with_evidence([facts.costs_evidence(workload, &[environment])]),
        );
    }
    statements
}

/// Advice on a process that a layer adds: in a few words, and in full.
fn advice(part: &str) -> [&'static str; 2] {
    match part {
        "userland proxy" => [
            "Bypass the proxy.",
            "Connect to the container's or the host's address instead of 127.0.0.1, or set \"userland-proxy\": false in \
             /etc/docker/daemon.json.",
        ],
        "sidecar" => [
            "Take the proxy out of the path.",
            "Leave the pods of the database out of the mesh, or the database's port out of its proxy.",
        ],
        "sentry" => [
            "Use runc for the database.",
            "Run the database under runc: docker run --runtime runc.",
        ],
        _ => [
            "Measure its layer alone.",
            "Weigh an environment without the layer that adds it (tare explain) before you change anything.",
        ],
    }
}

/// The most expensive process that a layer adds, in µs per operation at capacity over rounds: what
/// it uses beyond the same part of the baseline, where kernel threads work too.
fn account(facts: &Facts<'_>, workload: &str, environment: &str) -> Option<(String, Interval)> {
    let before = parts(facts, workload, &facts.record.study.baseline);
    let added = parts(facts, workload, environment).into_iter();
    // That of an NVMe target has a rule of its own.
    let added = added.filter(|(part, _)| *part != TARGET).filter_map(|(part, mut values)| {
        let baseline = before.get(part).and_then(|values| estimate(values));
        let baseline = baseline.map_or(0.0, |found| found.centre);
        values.iter_mut().for_each(|us| *us -= baseline);
        let figure = Interval::from(estimate(&values)?);
        (figure.is_bounded() && figure.low > 0.0).then(|| (part.to_string(), figure))
    });
    added.max_by(|a, b| a.1.value.total_cmp(&b.1.value))
}

/// The CPU time of each process of the layers of an environment, in µs per operation of each slice.
fn parts<'r>(facts: &Facts<'r>, workload: &str, environment: &str) -> BTreeMap<&'r str, Vec<f64>> {
    let slices = facts.record.slices.iter().filter(|slice| {
        slice.environment == environment
            && slice.workload == workload
            && slice.phase == Phase::Capacity
            && slice.void.is_none()
            && slice.operations > 0
    });
    let mut parts: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for slice in slices {
        for (part, cpu_ns) in &slice.layer_cpu_ns {
            let us = *cpu_ns as f64 / 1e3 / slice.operations as f64;
            parts.entry(part).or_default().push(us);
        }
    }
    parts
}

/// Returns which knobs may help against drops, on the path that the load takes.
fn knobs(facts: &Facts<'_>) -> &'static str {
    match crosses_network_card(facts.record) {
        true => {
            "tare tune plan --only network sets queues and rings, --only limits the backlogs of net.core."
        }
        false => {
            "The load crosses no network card, so that queues and rings of cards do not matter; tare tune plan --only limits \
             sets the backlogs of net.core."
        }
    }
}

fn retransmits(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut statements = Vec::new();
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
            ("count", crate::counters::difference_text(&difference, true)),
            ("baseline", words::quoted(&facts.record.study.baseline)),
            ("name", name.to_string()),
            ("knobs", knobs(facts).to_string()),
        ];
        let doubts = facts.doubts(workload, &[environment]);
        let unit = ("per_operation", "per operation");
        let evidence: Evidence = facts.counter_evidence(name);
        statements.push(
            rule.statement(&values)
                .with_effect(workload, 100.0 * difference.value)
                .confidence(words::confidence(
                    &difference,
                    unit,
                    &rounds(difference.rounds),
                    None,
                    doubts,
                ))
                .with_evidence([evidence]),
        );
    }
    statements
}
