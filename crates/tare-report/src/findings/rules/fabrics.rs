//! What the target of NVMe over fabrics takes of the machine that serves the storage.

use tare_lab::analysis::Interval;
use tare_lab::record::Phase;
use tare_stats::estimate;

use super::super::facts::Facts;
use super::super::{Kind, Rule, Statement, words};
use crate::figures::rounds;

/// The name of the target's part of a layer, from the counter `layer_cpu_nvme_target_ns`.
pub(super) const TARGET: &str = "nvme target";

pub(super) const RULES: &[Rule] = &[Rule {
    id: "nvme_target",
    title: "CPU time of the NVMe target",
    kind: Kind::Cost,
    data: "the counter layer_cpu_nvme_target_ns at capacity, over the rounds; the CPUs of the host that the study may use",
    condition: "the target of an environment runs on this host, and the interval of its CPU time lies above 0",
    sentence: "NVMe target: {share} of this machine's CPU time in {environment}, {us} per operation. Count it for the storage.",
    details: "{shares} of the time of {cpus}.",
    advice: "The server's CPU time per operation includes it, because target and database share this machine. On a machine of its \
             own the target takes that time there. It is that of its kernel threads: softirqs of other tasks, where much of \
             the network's work is done, are missing, so that the whole is more.",
    expected: "",
    expected_from: "",
    apply: nvme_target,
}];

fn nvme_target(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let plan = &facts.record.cpu_plan;
    let cpus = plan.all.union(&plan.interrupts).len().max(1);
    let mut statements = Vec::new();
    for (_, workload) in facts.workloads() {
        for finding in facts.compared(workload) {
            let environment = finding.environment.as_str();
            let Some([share, us]) = account(facts, workload, environment, cpus) else { continue };
            let percent = |share: f64| tare_std::units::significant(100.0 * share, 2);
            let [value, low, high] = [share.value, share.low, share.high].map(percent);
            let count = if cpus == 1 { "1 CPU".to_string() } else { format!("{cpus} CPUs") };
            let values = [
                ("share", words::share(share.value)),
                ("environment", words::quoted(environment)),
                ("us", words::us_plain(us.value)),
                ("shares", format!("{value} % [{low}, {high}]")),
                ("cpus", count),
            ];
            let unit = ("us_per_operation", "\u{b5}s");
            let doubts = facts.doubts(workload, &[environment]);
            statements.push(
                rule.statement(&values)
                    .with_effect(workload, 100.0 * share.value)
                    .confidence(words::confidence(&us, unit, &rounds(us.rounds), None, doubts))
                    .with_evidence([facts.costs_evidence(workload, &[environment])]),
            );
        }
    }
    statements
}

/// The target's CPU time at capacity over the rounds: as a share of all CPUs' time, and in µs per
/// operation.
fn account(
    facts: &Facts<'_>,
    workload: &str,
    environment: &str,
    cpus: usize,
) -> Option<[Interval; 2]> {
    let slices = facts.record.slices.iter().filter(|slice| {
        slice.environment == environment
            && slice.workload == workload
            && slice.phase == Phase::Capacity
            && slice.void.is_none()
            && slice.operations > 0
            && slice.window_ns > 0
    });
    let (mut shares, mut us) = (Vec::new(), Vec::new());
    for slice in slices {
        let part = slice.layer_cpu_ns.iter().find(|(part, _)| part == TARGET);
        let Some((_, ns)) = part else { continue };
        shares.push(*ns as f64 / (slice.window_ns as f64 * cpus as f64));
        us.push(*ns as f64 / 1e3 / slice.operations as f64);
    }
    let [share, us] = [estimate(&shares)?, estimate(&us)?].map(Interval::from);
    (us.is_bounded() && us.low > 0.0).then_some([share, us])
}
