//! Disturbances of the CPUs: throttling by a quota, interrupts, page faults; and waits, which CPU
//! time does not show.

use tare_lab::analysis::{Interval, crosses_network_card};
use tare_lab::doubt::Doubt;
use tare_lab::layer::Cpu;
use tare_lab::record::{Phase, Slice};
use tare_stats::estimate;

use super::super::facts::{Facts, interval};
use super::super::{Confidence, Kind, Rule, Statement, words};
use crate::figures::rounds;
use crate::headline::Metric;
use crate::interrupts::interrupt_cpus as interrupt_cpus_of;

/// Lowest rate of device interrupts on the system's CPUs that is reported.
const DEVICE_INTERRUPTS_PER_S: f64 = 500.0;
/// Counter names of the kernel's own interrupts; all others belong to devices.
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
const INTERRUPT_CPUS_BUSY: &str = "interrupt_cpus_busy_share";
const INTERRUPT_CPUS_SOFTIRQ: &str = "interrupt_cpus_softirq_share";
/// How busy interrupt CPUs are before they limit the network or the disks, in percent. The rest is
/// for bursts: interrupts come in batches that wait for each other.
const INTERRUPT_CPUS_BUSY_PERCENT: f64 = 80.0;
/// What a finding about device interrupts adds where the load crosses no network card.
const OTHER_TRAFFIC: &str =
    " The load crosses no network card, so that the interrupts of one are of other traffic.";
/// Smallest increase in page faults per operation that is reported.
const PAGE_FAULTS_MIN: f64 = 0.01;
const PAGE_FAULTS: [&str; 2] = ["system_page_faults_major", "system_page_faults_minor"];
const MEMORY: &str = "page faults and memory";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "throttled",
        title: "Throttled by its CPU quota",
        kind: Kind::Cost,
        data: "the doubt throttled: the time for which the quota throttled the environment (throttled_ns), by slice",
        condition: "the quota throttled it for more than 1 % of the time in at least a quarter of its slices",
        sentence: "CPU quota: up to {share} of the time throttled in {environment}, in {often} of its slices. Raise the quota.",
        details: "",
        advice: "Raise docker run --cpus (Kubernetes: limits.cpu), or assign whole CPUs (--cpuset-cpus LIST), which are \
                 never taken away in the middle of an operation.",
        expected: "{back}",
        expected_from: "the measured effect of the quota where an environment differs in it alone; otherwise none",
        apply: throttled,
    },
    Rule {
        id: "device_interrupts",
        title: "Device interrupts on the system's CPUs",
        kind: Kind::Caution,
        data: "the counters interrupts_{source}_cpu{N} and cpu{N}_interrupt_share of the system's CPUs, in the baseline at \
                   capacity",
        condition: "devices interrupt the system's CPUs more than 500 times a second",
        sentence: "Device interrupts: {rate} per second on the CPUs of {environment}, most from {source}. Move them away.",
        details: "{share}",
        advice: "tare tune apply --only interrupts moves them; tare tune prove measures the gain first.{path}",
        expected: "{back}",
        expected_from: "the measured share of time in interrupts and softirqs on those CPUs, as an upper bound",
        apply: device_interrupts,
    },
    Rule {
        id: "interrupt_cpus",
        title: "Interrupt CPUs at their limit",
        kind: Kind::Caution,
        data: "the counters interrupt_cpus_busy_share and interrupt_cpus_softirq_share at capacity, in the environment where these \
               CPUs are busiest",
        condition: "the CPUs that are kept for interrupts, and run neither system nor client, are busy for more than 80 % of their \
                    time, and the interval lies above that",
        sentence: "Interrupt CPUs: {busy} busy in {environment}, {softirq} in softirqs. Give interrupts more CPUs.",
        details: "",
        advice: "They limit {what} before the database does. tare tune apply --ratio N (a smaller N) or \
                 --irq-cpus LIST gives interrupts more CPUs. tare weigh --stacks --stack-kinds interrupt-cpus shows what they do.",
        expected: "",
        expected_from: "",
        apply: interrupt_cpus,
    },
    Rule {
        id: "page_faults",
        title: "Page faults",
        kind: Kind::Caution,
        data: "the counters system_page_faults_minor and _major at capacity; stacks: page faults and memory",
        condition: "the counter exceeds the baseline's by more than 0.01 per operation, beyond the noise",
        sentence: "Page faults: {count} per operation in {environment} against {baseline}. Allocate memory at the start.",
        details: "",
        advice: "Let the database lock or pre-touch its memory when it starts, and give it enough (docker run --memory). tare \
                 tune plan --only memory sets transparent huge pages.",
        expected: "{back}",
        expected_from: "the measured difference of page faults and memory in the stacks; none without stacks",
        apply: page_faults,
    },
    Rule {
        id: "waits",
        title: "More throughput lost than CPU explains",
        kind: Kind::Cost,
        data: "throughput and server CPU per operation of the environment that loses the most throughput",
        condition: "the loss of throughput is a claim, and its interval lies above the loss that the CPU cost alone would cause in a \
                    system limited by its CPUs",
        sentence: "{environment}: {lost} of throughput lost, of which its CPU per operation explains {explained}. Look for waits.",
        details: "",
        advice: "The counters system_run_queue_wait_ns, system_switches_voluntary, throttled_ns and the pressures show waits \
                 (tare report FILE --counters). Dedicated CPUs (--cpuset-cpus) and interrupts on other CPUs (tare tune apply \
                 --only interrupts) shorten most of them.",
        expected: "",
        expected_from: "",
        apply: waits,
    },
];

fn throttled(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut statements = Vec::new();
    for finding in facts.analysis.findings.iter().filter(|one| !one.control) {
        let Some((Doubt::Throttled { share }, often)) = facts.doubt(finding, "throttled") else {
            continue;
        };
        if often < 0.25 {
            continue;
        }
        let (workload, environment) = (finding.workload.as_str(), finding.environment.as_str());
        let alone = facts.effects.iter().find(|effect| {
            effect.kind.rule == "cpu_quota"
                && effect.workload == workload
                && effect.with == environment
        });
        let back = alone.and_then(|effect| effect.throughput).map_or(String::new(), |lost| {
            format!("{} of the throughput, the effect of the quota alone", words::loss(&lost))
        });
        let values = [
            ("environment", words::quoted(environment)),
            ("share", words::share(share)),
            ("often", words::share(often)),
            ("back", back),
        ];
        let n = format!("counted by the kernel, over {} slices", finding.slices);
        statements.push(
            rule.statement(&values)
                .with_effect(workload, 100.0 * share)
                .confidence(words::without_interval(n, facts.doubts(workload, &[environment])))
                .with_evidence([facts.counter_evidence("throttled_ns")])
                .with_evidence(facts.doubt_evidence("throttled")),
        );
    }
    statements
}

fn device_interrupts(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let baseline = facts.record.study.baseline.as_str();
    let pinned = facts.environment(baseline).is_some_and(|one| one.spec.cpu == Cpu::Pinned);
    let cpus: Vec<String> =
        facts.record.cpu_plan.system.iter().map(|cpu| format!("cpu{cpu}")).collect();
    let mut statements = Vec::new();
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
            format!("{} of these CPUs' time is in interrupts and softirqs.", percent(busy))
        });
        let back = busy
            .as_ref()
            .map_or(String::new(), |busy| format!("at most {} of these CPUs' time", percent(busy)));
        let values = [
            ("rate", crate::figures::rate(rate.value)),
            ("environment", words::quoted(baseline)),
            ("share", share),
            ("source", crate::figures::clean(&source)),
            ("path", if crosses_network_card(facts.record) { "" } else { OTHER_TRAFFIC }.into()),
            ("back", back),
        ];
        let unit = ("per_second", "per second");
        let n = format!("{} slices", rate.rounds);
        let doubts = facts.doubts(workload, &[baseline]);
        statements.push(
            rule.statement(&values)
                .with_effect(workload, busy.map_or(0.0, |busy| busy.value))
                .confidence(words::confidence(&rate, unit, &n, None, doubts))
                .with_evidence([facts.counter_evidence(&format!("interrupts_{source}"))]),
        );
    }
    statements
}

fn interrupt_cpus(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut statements = Vec::new();
    for (_, workload) in facts.workloads().filter(|_| interrupt_cpus_are_apart(facts)) {
        let share = |environment: &str, name: &str| {
            let slices = facts.record.slices.iter().filter(|slice| {
                slice.environment == environment
                    && slice.workload == workload
                    && slice.phase == Phase::Capacity
                    && slice.void.is_none()
            });
            let counters = slices.flat_map(|slice| &slice.counters);
            let shares: Vec<f64> =
                counters.filter(|one| one.name == name).map(|one| 100.0 * one.value).collect();
            estimate(&shares).map(Interval::from).filter(Interval::is_bounded)
        };
        let environments = facts.record.environments.iter().map(|one| one.spec.name.as_str());
        let busy = environments
            .filter_map(|name| Some((name, share(name, INTERRUPT_CPUS_BUSY)?)))
            .filter(|(_, busy)| busy.low > INTERRUPT_CPUS_BUSY_PERCENT);
        let Some((environment, busy)) = busy.max_by(|a, b| a.1.value.total_cmp(&b.1.value)) else {
            continue;
        };
        let softirq = share(environment, INTERRUPT_CPUS_SOFTIRQ).map_or(0.0, |one| one.value);
        let values = [
            ("environment", words::quoted(environment)),
            ("busy", words::percent_size(busy.value)),
            ("softirq", words::percent_size(softirq)),
            ("what", limited(facts).to_string()),
        ];
        let n = format!("{} slices", busy.rounds);
        let doubts = facts.doubts(workload, &[environment]);
        statements.push(
            rule.statement(&values)
                .with_effect(workload, busy.value)
                .confidence(words::confidence(&busy, ("percent", "%"), &n, None, doubts))
                .with_evidence([facts.counter_evidence(INTERRUPT_CPUS_BUSY)]),
        );
    }
    statements
}

/// Returns what busy interrupt CPUs limit.
fn limited(facts: &Facts<'_>) -> &'static str {
    match crosses_network_card(facts.record) {
        true => "the network or the disks",
        false => "the disks (the load crosses no network card, so that packets are other traffic)",
    }
}

/// Whether the CPUs kept for interrupts run neither system nor client. A list of the user may name
/// CPUs that do, which are busy with them.
fn interrupt_cpus_are_apart(facts: &Facts<'_>) -> bool {
    let plan = &facts.record.cpu_plan;
    interrupt_cpus_of(facts.record)
        .is_none_or(|cpus| cpus.is_disjoint(&plan.system) && cpus.is_disjoint(&plan.client))
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
    let mut statements = Vec::new();
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
            ("count", crate::counters::difference_text(&difference, true)),
            ("baseline", words::quoted(baseline)),
            ("name", name.to_string()),
            ("back", back),
        ];
        let unit = ("per_operation", "per operation");
        let doubts = facts.doubts(workload, &[environment]);
        let statement = rule
            .statement(&values)
            .with_effect(workload, difference.value)
            .confidence(words::confidence(
                &difference,
                unit,
                &rounds(difference.rounds),
                None,
                doubts,
            ))
            .with_evidence([facts.counter_evidence(name)]);
        statements.push(match row {
            Some(_) => {
                statement.with_evidence([facts.stacks_evidence(baseline, environment, MEMORY)])
            }
            None => statement,
        });
    }
    statements
}

fn waits(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut statements = Vec::new();
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
            ("lost", words::percent_size(lost.value)),
            ("explained", format!("at most {:.1} %", takes(cpu.high))),
        ];
        let doubts = facts.doubts(workload, &[environment]);
        let confidence: Confidence =
            words::confidence(&lost, ("percent", "%"), &rounds(lost.rounds), None, doubts);
        statements.push(
            rule.statement(&values)
                .with_effect(workload, lost.value - takes(cpu.high))
                .confidence(confidence)
                .with_evidence([facts.costs_evidence(workload, &[environment])]),
        );
    }
    statements
}
