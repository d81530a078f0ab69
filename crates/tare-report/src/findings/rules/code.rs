//! The code in which a cost arises, by sampled stacks.

use super::super::facts::{Facts, interval};
use super::super::{Kind, Rule, Statement, words};
use crate::figures::rounds;

/// Subsystems that a statement names.
const NAMED: usize = 4;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "code",
    title: "Code that costs",
    kind: Kind::Cost,
    data: "stacks by subsystem of the environment with the largest claimed cost, less those of the baseline",
    condition: "both have stacks, and the differences of their sum and of at least one subsystem exclude 0",
    sentence: "CPU per operation in {environment}: {rows}. Look at the functions.",
    details: "{measured}; {sum} in all, against {baseline}. It is the CPU time per operation of system, layer and client at one \
              fixed rate.",
    advice: "tare report FILE --stacks --to {environment} names the functions; --flamegraph OUT.html draws both environments and their \
             difference.",
    expected: "",
    expected_from: "",
    apply: code,
}];

fn code(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let baseline = facts.record.study.baseline.as_str();
    let mut statements = Vec::new();
    for (_, workload) in facts.workloads() {
        let sampled = |name: &str| facts.profile(workload, baseline, name);
        let costliest = facts.costliest(workload).map(|finding| finding.environment.as_str());
        let Some((environment, profile)) = costliest.and_then(|name| Some((name, sampled(name)?)))
        else {
            continue;
        };
        if !profile.total().difference.found() {
            continue;
        }
        let rows = profile.subsystems();
        let found: Vec<_> = rows.iter().filter(|row| row.difference.found()).collect();
        if found.is_empty() {
            continue;
        }
        let one = |row: &&&crate::stacks::Row| {
            format!(
                "{} in {}",
                words::signed_us(&interval(&row.difference, profile.rounds())),
                row.name
            )
        };
        let brief = |row: &&&crate::stacks::Row| {
            let us = interval(&row.difference, profile.rounds()).value;
            format!("{} in {}", words::us_change(us), row.name)
        };
        let measured: Vec<String> = found.iter().take(NAMED).map(|row| one(&row)).collect();
        let rows: Vec<String> = found.iter().take(NAMED).map(|row| brief(&row)).collect();
        let sum = interval(&profile.total().difference, profile.rounds());
        let total = profile.total().from.us;
        let names: Vec<&str> = found.iter().take(NAMED).map(|row| row.name.as_str()).collect();
        let values = [
            ("environment", words::quoted(environment)),
            ("baseline", words::quoted(baseline)),
            ("rows", words::list(&rows)),
            ("measured", words::list(&measured)),
            ("sum", words::signed_us(&sum)),
        ];
        let first = interval(&found[0].difference, profile.rounds());
        let n = rounds(first.rounds);
        let unit = ("us_per_operation", "\u{b5}s for the first");
        statements.push(
            rule.statement(&values)
                .with_effect(workload, 100.0 * first.value / total)
                .confidence(words::confidence(
                    &first,
                    unit,
                    &n,
                    None,
                    facts.doubts(workload, &[environment]),
                ))
                .with_evidence([facts.stacks_evidence(baseline, environment, &names.join(", "))]),
        );
    }
    statements
}
