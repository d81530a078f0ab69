//! What the CPU's own counters show: more instructions, more misses.

use tare_lab::analysis::{CounterFinding, Interval};
use tare_lab::record::Phase;

use super::super::facts::Facts;
use super::super::{Kind, Rule, Statement, words};
use crate::figures::rounds;

/// Smallest increase that is reported, as a share of the baseline's value.
const INCREASE_MIN: f64 = 0.1;

/// A counter, its name in a sentence, and what to do.
const COUNTERS: [(&str, &str, &str); 3] = [
    ("system_dtlb_misses", "TLB misses", "Use huge pages, or fewer pages"),
    ("system_llc_misses", "Cache misses", "Keep other programs off its cache"),
    ("system_instructions", "Instructions", "Look for code that was added"),
];

pub(super) const RULES: &[Rule] = &[Rule {
    id: "hardware_counters",
    title: "More instructions or misses per operation",
    kind: Kind::Caution,
    data: "the counters system_instructions, system_llc_misses and system_dtlb_misses of the traced slices (tare weigh --pmu), of \
           the environment and counter that rise most",
    condition: "the counter exceeds the baseline's by more than 10 %, beyond the noise",
    sentence: "{what}: {count} per operation in {environment} against {baseline} (+{share}). {advice}.",
    details: "",
    advice: "Misses of the TLB: huge pages (tare tune plan --only memory), also for the memory of a guest. Misses of the cache: CPUs \
             with a cache of their own (--cpuset-cpus). Instructions: tare weigh --stacks shows the code.",
    expected: "",
    expected_from: "",
    apply: hardware_counters,
}];

fn hardware_counters(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let baseline = facts.record.study.baseline.as_str();
    let mut statements = Vec::new();
    for (_, workload) in facts.workloads() {
        let traced = |environment: &str, name: &str| -> Option<&CounterFinding> {
            facts.counters.iter().find(|one| {
                one.phase == Phase::Traced
                    && one.workload == workload
                    && one.environment == environment
                    && one.name == name
            })
        };
        let risen = facts.compared(workload).flat_map(|finding| {
            COUNTERS.iter().filter_map(|counter| {
                let found = traced(&finding.environment, counter.0).filter(|one| one.stands_out)?;
                let of_baseline = traced(baseline, counter.0)?.value.value;
                let difference: Interval = found.difference?;
                let share = difference.value / of_baseline;
                let much = of_baseline > 0.0 && share > INCREASE_MIN;
                much.then_some((finding.environment.as_str(), counter, difference, share))
            })
        });
        let most = risen.max_by(|a, b| a.3.total_cmp(&b.3));
        let Some((environment, (name, what, advice), difference, share)) = most else { continue };
        let values = [
            ("what", (*what).to_string()),
            ("count", crate::counters::difference_text(&difference, true)),
            ("environment", words::quoted(environment)),
            ("baseline", words::quoted(baseline)),
            ("share", words::share(share)),
            ("advice", (*advice).to_string()),
        ];
        let unit = ("per_operation", "per operation");
        let doubts = facts.doubts(workload, &[environment]);
        let n = rounds(difference.rounds);
        statements.push(
            rule.statement(&values)
                .with_effect(workload, 100.0 * share)
                .confidence(words::confidence(&difference, unit, &n, None, doubts))
                .with_evidence([facts.counter_evidence(name)]),
        );
    }
    statements
}
