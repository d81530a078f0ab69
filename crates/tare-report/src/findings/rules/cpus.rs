//! Who else is on the CPUs: quotas that hold back, interrupts, page faults; and what CPU time does
//! not show.

use tare_lab::analysis::Interval;
use tare_lab::doubt::Doubt;
use tare_lab::layer::Cpu;
use tare_lab::record::{Phase, Slice};
use tare_stats::estimate;

use super::super::facts::{Facts, interval};
use super::super::{Kind, Rule, Statement, Sureness, words};
use crate::headline::{Metric, blocks};

/// Interrupts of devices on the system's CPUs below this rate disturb nobody.
const DEVICE_INTERRUPTS_PER_S: f64 = 500.0;
/// Interrupts that the kernel sends itself, by their counters' names; every other one is a device's.
const OF_THE_KERNEL: &[&str] = &[
    "loc",
    "res",
    "cal",
    "tlb",
    "nmi",
    "pmi",
    "iwi",
    "rtr",
    "trm",
    "thr",
    "dfr",
    "mce",
    "mcp",
    "spu",
    "err",
    "mis",
    "pin",
    "npi",
    "piw",
    "hyp",
    "hre",
    "hvs",
    "rescheduling",
    "function_call",
];
/// Page faults more than the baseline's, per operation, that are worth a sentence.
const PAGE_FAULTS_MIN: f64 = 0.01;
const PAGE_FAULTS: [&str; 2] = ["system_page_faults_major", "system_page_faults_minor"];
const MEMORY: &str = "page faults and memory";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "throttled",
        title: "Held back by its CPU quota",
        kind: Kind::Cost,
        looks_at: "the doubt throttled: the time for which the quota held the environment back (throttled_ns), by slice",
        condition: "the quota held it back for more than 1 % of the time in at least a quarter of its slices",
        sentence: "The CPU quota held {environment} back for up to {share} of the time, in {often} of its slices.",
        advice: "Raise the quota (docker run --cpus, Kubernetes: limits.cpu), or give whole CPUs instead (--cpuset-cpus \
                 LIST), which are not taken away in the middle of an operation.",
        expected: "{back}",
        expected_from: "the measured effect of the quota where an environment differs in it alone; else nothing is expected",
        speak: throttled,
    },
    Rule {
        id: "device_interrupts",
        title: "Devices interrupt the system's CPUs",
        kind: Kind::Caution,
        looks_at: "the counters interrupts_{source}_cpu{N} and cpu{N}_interrupt_share of the system's CPUs, in the baseline at \
                   capacity",
        condition: "devices interrupt the system's CPUs more than 500 times a second",
        sentence: "Devices interrupt the system's CPUs {rate} times a second in {environment}{share}; the most by {source}.",
        advice: "Move them away: tare tune apply --only interrupts, or tare tune prove, which weighs it first.",
        expected: "{back}",
        expected_from: "the measured share of time in interrupts and softirqs on those CPUs, as an upper bound",
        speak: device_interrupts,
    },
    Rule {
        id: "page_faults",
        title: "Page faults",
        kind: Kind::Caution,
        looks_at: "the counters system_page_faults_minor and _major at capacity; stacks: page faults and memory",
        condition: "the counter stands out of the baseline's by more than 0.01 per operation",
        sentence: "{environment} takes {count} page faults per operation against {baseline} ({name}).",
        advice: "Let the database take its memory once, at its start (lock or pre-touch it), with enough of it (docker run \
                 --memory); tare tune plan --only memory sets transparent huge pages.",
        expected: "{back}",
        expected_from: "the measured difference of page faults and memory in the stacks; without stacks nothing is expected",
        speak: page_faults,
    },
    Rule {
        id: "waits",
        title: "More throughput lost than CPU explains",
        kind: Kind::Cost,
        looks_at: "throughput and server CPU per operation of the environment that loses the most throughput",
        condition: "the loss of throughput is a claim, and its interval lies above what the cost in CPU alone would take from a \
                    system that is limited by its CPUs",
        sentence: "{environment} loses {lost} of the throughput, more than its CPU per operation explains ({explained}): it \
                   waits for something.",
        advice: "Look at what it waits for: counters system_run_queue_wait_ns, system_switches_voluntary, throttled_ns and the \
                 pressures (tare report FILE --counters). CPUs of its own (--cpuset-cpus) and interrupts elsewhere (tare \
                 tune apply --only interrupts) shorten most waits.",
        expected: "",
        expected_from: "",
        speak: waits,
    },
];

fn throttled(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut said = Vec::new();
    for finding in facts.analysis.findings.iter().filter(|one| !one.control) {
        let Some((Doubt::Throttled { share }, often)) = facts.doubt(finding, "throttled") else {
            continue;
        };
        if often < 0.25 {
            continue;
        }
        let (workload, environment) = (finding.workload.as_str(), finding.environment.as_str());
        let alone = facts.effects.iter().find(|effect| {
            effect.rule.id == "cpu_quota"
                && effect.workload == workload
                && effect.with == environment
        });
        let back = alone.and_then(|effect| effect.throughput).map_or(String::new(), |lost| {
            format!("{} of the throughput, what the quota alone takes", words::loss(&lost))
        });
        let values = [
            ("environment", words::quoted(environment)),
            ("share", words::share(share)),
            ("often", words::share(often)),
            ("back", back),
        ];
        let n = format!("the kernel's own account, over {} slices", finding.slices);
        said.push(
            rule.say(&values)
                .about(workload, 100.0 * share)
                .sure(words::plainly(n, facts.doubts(workload, &[environment])))
                .see([facts.counter_evidence("throttled_ns")])
                .see(facts.doubt_evidence("throttled")),
        );
    }
    said
}

fn device_interrupts(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let baseline = facts.record.study.baseline.as_str();
    let pinned = facts.environment(baseline).is_some_and(|one| one.spec.cpu == Cpu::Pinned);
    let cpus: Vec<String> =
        facts.record.cpu_plan.system.iter().map(|cpu| format!("cpu{cpu}")).collect();
    let mut said = Vec::new();
    for (_, workload) in facts.workloads().filter(|_| pinned) {
        let slices: Vec<&Slice> = facts
            .record
            .slices
            .iter()
            .filter(|one| {
                one.environment == baseline
                    && one.workload == workload
                    && one.phase == Phase::Capacity
                    && one.void.is_none()
                    && one.window_ns > 0
            })
            .collect();
        // `interrupts_{source}_cpu{N}`; the sums `interrupts_cpu{N}` have no source.
        let source_of = |name: &str| {
            let (source, cpu) = name.strip_prefix("interrupts_")?.rsplit_once("_cpu")?;
            let ours = cpus.iter().any(|known| known[3..] == *cpu);
            (ours && !OF_THE_KERNEL.contains(&source)).then(|| source.to_string())
        };
        let rates: Vec<f64> = slices
            .iter()
            .map(|slice| {
                let of = slice.counters.iter().filter(|one| source_of(&one.name).is_some());
                of.map(|one| one.value).sum::<f64>() * 1e9 / slice.window_ns as f64
            })
            .collect();
        let Some(rate) = estimate(&rates).map(Interval::from) else { continue };
        let much = rate.is_bounded() && rate.low > DEVICE_INTERRUPTS_PER_S;
        let mut by_source: std::collections::BTreeMap<String, f64> =
            std::collections::BTreeMap::new();
        for counter in slices.iter().flat_map(|slice| &slice.counters) {
            if let Some(source) = source_of(&counter.name) {
                *by_source.entry(source).or_default() += counter.value;
            }
        }
        let most = by_source.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((source, _)) = most.filter(|_| much) else { continue };
        let busy = interrupt_share(&slices, &cpus);
        let percent = |x: &Interval| format!("{:.1} % [{:.1}, {:.1}]", x.value, x.low, x.high);
        let share = busy.as_ref().map_or(String::new(), |busy| {
            format!(", which spend {} of their time in interrupts and softirqs", percent(busy))
        });
        let back = busy
            .as_ref()
            .map_or(String::new(), |busy| format!("at most {} of these CPUs' time", percent(busy)));
        let values = [
            ("rate", crate::figures::rate(rate.value)),
            ("environment", words::quoted(baseline)),
            ("share", share),
            ("source", crate::figures::clean(&source)),
            ("back", back),
        ];
        let unit = ("per_second", "per second");
        let n = format!("{} slices", rate.blocks);
        let doubts = facts.doubts(workload, &[baseline]);
        said.push(
            rule.say(&values)
                .about(workload, busy.map_or(0.0, |busy| busy.value))
                .sure(words::sureness(&rate, unit, &n, None, doubts))
                .see([facts.counter_evidence(&format!("interrupts_{source}"))]),
        );
    }
    said
}

/// Mean share of their time that CPUs spend in interrupts and softirqs, in percent.
fn interrupt_share(slices: &[&Slice], cpus: &[String]) -> Option<Interval> {
    let names: Vec<String> = cpus.iter().map(|cpu| format!("{cpu}_interrupt_share")).collect();
    let shares: Vec<f64> = slices
        .iter()
        .filter_map(|slice| {
            let of: Vec<f64> = slice
                .counters
                .iter()
                .filter(|one| names.contains(&one.name))
                .map(|one| one.value)
                .collect();
            let n = of.len() as f64;
            (n > 0.0).then(|| 100.0 * of.iter().sum::<f64>() / n)
        })
        .collect();
    estimate(&shares).map(Interval::from).filter(Interval::is_bounded)
}

fn page_faults(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let baseline = facts.record.study.baseline.as_str();
    let mut said = Vec::new();
    for (_, workload) in facts.workloads() {
        let found = facts.compared(workload).flat_map(|finding| {
            PAGE_FAULTS.iter().filter_map(|name| {
                let (_, difference) = facts.stands_out(workload, &finding.environment, name)?;
                let much = difference.value > PAGE_FAULTS_MIN;
                much.then_some((finding.environment.as_str(), *name, difference))
            })
        });
        let most = found.max_by(|a, b| a.2.value.total_cmp(&b.2.value));
        let Some((environment, name, difference)) = most else { continue };
        let row = facts.profile(workload, baseline, environment).and_then(|profile| {
            let row = facts.subsystem(&profile, MEMORY)?;
            Some(interval(&row.difference, profile.rounds()))
        });
        let back = row.filter(|row| row.value > 0.0).map_or(String::new(), |row| {
            format!("{} per operation, their time in the stacks", words::us(&row))
        });
        let values = [
            ("environment", words::quoted(environment)),
            ("count", crate::counters::said(&difference, true)),
            ("baseline", words::quoted(baseline)),
            ("name", name.to_string()),
            ("back", back),
        ];
        let unit = ("per_operation", "per operation");
        let doubts = facts.doubts(workload, &[environment]);
        let statement = rule
            .say(&values)
            .about(workload, difference.value)
            .sure(words::sureness(&difference, unit, &blocks(difference.blocks), None, doubts))
            .see([facts.counter_evidence(name)]);
        said.push(match row {
            Some(_) => statement.see([facts.stacks_evidence(baseline, environment, MEMORY)]),
            None => statement,
        });
    }
    said
}

fn waits(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut said = Vec::new();
    for (_, workload) in facts.workloads() {
        let claims = facts.compared(workload).filter_map(|finding| {
            let lost = finding.throughput_cost.as_ref()?.percent;
            let claim = facts.claimed(finding, Metric::Throughput) && lost.value > 0.0;
            claim.then_some((finding, lost))
        });
        let most = claims.max_by(|a, b| a.1.value.total_cmp(&b.1.value));
        let Some((finding, lost)) = most else { continue };
        let Some(cpu) = finding.server_cpu_cost.as_ref().map(|cost| cost.percent) else { continue };
        // A system limited by its CPUs does 1 / (1 + cost) of the operations.
        let takes = |percent: f64| 100.0 * (1.0 - 1.0 / (1.0 + percent.max(0.0) / 100.0));
        if !lost.is_bounded() || !cpu.is_bounded() || lost.low <= takes(cpu.high) {
            continue;
        }
        let environment = finding.environment.as_str();
        let values = [
            ("environment", words::quoted(environment)),
            ("lost", words::loss(&lost)),
            ("explained", format!("at most {:.1} %", takes(cpu.high))),
        ];
        let doubts = facts.doubts(workload, &[environment]);
        let sure: Sureness =
            words::sureness(&lost, ("percent", "%"), &blocks(lost.blocks), None, doubts);
        said.push(
            rule.say(&values)
                .about(workload, lost.value - takes(cpu.high))
                .sure(sure)
                .see([facts.costs_evidence(workload, &[environment])]),
        );
    }
    said
}
