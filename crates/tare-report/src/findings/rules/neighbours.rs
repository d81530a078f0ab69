//! What of a neighbour gets through to the system, and how.

use tare_lab::analysis::{Interval, risen_counters};
use tare_lab::layer::{Neighbour, NeighbourKind};
use tare_lab::record::Phase;

use super::super::effects::{Effect, of_neighbours};
use super::super::facts::Facts;
use super::super::{Evidence, Kind, Rule, Statement, words};
use super::layers::{back, confidence, cost, measured};
use crate::figures::clean;

const DATA: &str = "each environment with neighbours against the first that differs only in having none, paired within \
    the rounds; counters of the same two at capacity";

/// A way from a neighbour to the system: counters of which one has risen, and the words for it.
const CHANNELS: &[(&[&str], &str)] = &[
    (&[RUN_QUEUE], "It waits for a CPU."),
    (DISK_LATENCIES, "Its disk answers later."),
    (&["system_page_faults_major"], "It reads pages back that were evicted."),
    (&["system_llc_misses"], "It misses the last-level cache more often."),
    (&["softirq_ns"], "More softirq time is spent for each of its operations."),
];

const DISK_LATENCIES: &[&str] =
    &["disk_read_latency_ns_mean", "disk_write_latency_ns_mean", "disk_flush_latency_ns_mean"];

/// The time that the system's threads were ready to run and waited for a CPU.
const RUN_QUEUE: &str = "system_run_queue_wait_ns";

/// More CPU time for an operation without more waiting for a CPU.
const SLOWER: &str = "Its instructions take longer: caches, memory or a core are shared.";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "neighbours",
        title: "Cost of a neighbour",
        kind: Kind::Cost,
        data: DATA,
        condition: "the cost in server CPU or throughput is a claim. A channel is named if one of its counters has risen \
                    beyond the control's (the disk only for a neighbour that uses one); if none has and CPU time per operation rose while the wait for a CPU, which was \
                    counted, did not, the instructions take longer",
        sentence: "{neighbours} of {environment}: {cost}.{channel}",
        details: "{measured} ({environment} against {without}).{counters}",
        advice: "Compare the environments with this neighbour: the one that loses least isolates best. Against waiting for a CPU \
                 help CPUs of one's own (cpu = \"pinned\" on CPUs that no other container may use); against shared caches and \
                 memory another NUMA node or host; against a busy disk a device of one's own.",
        expected: "up to {back} (measured without the neighbour)",
        expected_from: "the measured difference between the two environments, with its interval",
        apply: costs,
    },
    Rule {
        id: "neighbours_contained",
        title: "Neighbour without an effect",
        kind: Kind::Nothing,
        data: DATA,
        condition: "the effect of the neighbours is a claim neither in CPU nor in throughput, and it has an interval",
        sentence: "No effect found of {neighbours} on {environment}.",
        details: "server CPU per operation {interval} against {without}",
        advice: "A smaller effect would not have been detected. The neighbour used CPU time in every slice that counts \
                 (neighbour_cpu_ns).",
        expected: "",
        expected_from: "",
        apply: contained,
    },
];

/// `Neighbour "burner" (cpu, same CPUs)`, or several in a list.
fn named(facts: &Facts<'_>, environment: &str) -> String {
    let spec = facts.environment(environment).map(|one| &one.spec);
    let all = spec.map(|spec| spec.neighbours.as_slice()).unwrap_or_default();
    let one = |one: &Neighbour| {
        let system = one.system.as_ref().map(|system| format!(" {}", clean(&system.name)));
        let kind = format!("{}{}", one.kind, system.unwrap_or_default());
        format!("{} ({kind}, {})", words::quoted(&one.name), one.placement)
    };
    let names: Vec<String> = all.iter().map(one).collect();
    let word = if names.len() == 1 { "Neighbour" } else { "Neighbours" };
    format!("{word} {}", words::list(&names))
}

/// The channels that the counters show: their words, and the counters with their rise.
fn channels(facts: &Facts<'_>, effect: &Effect) -> (String, Vec<(&'static str, Interval)>) {
    let (with, without) = (effect.with.as_str(), effect.without.as_str());
    // Answers of a disk also wait for a CPU, so the disk is named for neighbours that use one.
    let uses_disk = |one: &Neighbour| {
        let kinds = [NeighbourKind::Command, NeighbourKind::System];
        one.kind.uses_disk() || kinds.contains(&one.kind)
    };
    let on_disk =
        facts.environment(with).is_some_and(|one| one.spec.neighbours.iter().any(uses_disk));
    let names = CHANNELS.iter().filter(|(names, _)| on_disk || *names != DISK_LATENCIES);
    let names: Vec<&'static str> = names.flat_map(|(names, _)| *names).copied().collect();
    let risen = risen_counters(facts.record, &effect.workload, with, without, &names);
    let has = |names: &[&str]| risen.iter().any(|(name, _)| names.contains(name));
    let mut text: String = CHANNELS
        .iter()
        .filter(|(names, _)| has(names))
        .map(|(_, words)| format!(" {words}"))
        .collect();
    let rose = effect.cpu_claimed && effect.percent.is_some_and(|percent| percent.value > 0.0);
    if text.is_empty() && rose && counted(facts, effect, RUN_QUEUE) {
        text = format!(" {SLOWER}");
    }
    (text, risen)
}

/// Whether every environment of an effect has a counter at capacity.
fn counted(facts: &Facts<'_>, effect: &Effect, name: &str) -> bool {
    [&effect.with, &effect.without].iter().all(|environment| {
        facts.record.slices.iter().any(|slice| {
            slice.phase == Phase::Capacity
                && slice.workload == effect.workload
                && slice.environment == **environment
                && slice.counters.iter().any(|one| one.name == name)
        })
    })
}

fn costs(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut statements = Vec::new();
    for (_, workload) in facts.workloads() {
        let effects = of_neighbours(facts.record, facts.analysis, workload);
        for effect in effects.iter().filter(|effect| effect.costs()) {
            let (channel, risen) = channels(facts, effect);
            let one = |(name, difference): &(&str, Interval)| {
                let text = crate::counters::difference_text(difference, true);
                format!("{} {text}{}", clean(name), unit(name))
            };
            let counters = match risen.is_empty() {
                true => String::new(),
                false => {
                    let rose: Vec<String> = risen.iter().map(one).collect();
                    format!(" Counters: {}.", words::list(&rose))
                }
            };
            let values = [
                ("neighbours", named(facts, &effect.with)),
                ("environment", words::quoted(&effect.with)),
                ("without", words::quoted(&effect.without)),
                ("cost", cost(effect)),
                ("channel", channel),
                ("measured", measured(effect, false)),
                ("counters", counters),
                ("back", back(effect)),
            ];
            let evidence = risen.iter().map(|(name, _)| facts.counter_evidence(name));
            statements.push(
                rule.statement(&values)
                    .with_effect(workload, effect.size())
                    .confidence(confidence(facts, effect))
                    .with_evidence([costs_evidence(facts, effect)])
                    .with_evidence(evidence),
            );
        }
    }
    statements
}

fn contained(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut statements = Vec::new();
    for (_, workload) in facts.workloads() {
        let effects = of_neighbours(facts.record, facts.analysis, workload);
        let none = effects.iter().filter(|one| !one.cpu_claimed && !one.throughput_claimed);
        for effect in none {
            let Some(us) = effect.us.filter(Interval::is_bounded) else { continue };
            let values = [
                ("neighbours", named(facts, &effect.with).replacen("Neigh", "neigh", 1)),
                ("environment", words::quoted(&effect.with)),
                ("without", words::quoted(&effect.without)),
                ("interval", words::us(&us)),
            ];
            let doubts = facts.doubts(workload, &[&effect.with, &effect.without]);
            let n = crate::figures::rounds(us.rounds);
            let unit = ("us_per_operation", "\u{b5}s");
            statements.push(
                rule.statement(&values)
                    .with_effect(workload, 0.0)
                    .confidence(words::confidence(&us, unit, &n, None, doubts))
                    .with_evidence([costs_evidence(facts, effect)]),
            );
        }
    }
    statements
}

fn costs_evidence(facts: &Facts<'_>, effect: &Effect) -> Evidence {
    facts.costs_evidence(&effect.workload, &[&effect.with, &effect.without])
}

fn unit(name: &str) -> &'static str {
    if name.ends_with("_mean") { "" } else { " per operation" }
}
