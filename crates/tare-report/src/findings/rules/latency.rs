//! Response times at the fixed rate: the percentile that grew, whether stalls or a longer path
//! explain it, and likely causes.

use tare_lab::analysis::{CounterFinding, Finding, Interval, OverBaseline, PERCENTS, THROTTLED_NS};
use tare_lab::record::Phase;
use tare_stats::merged::BEYOND_MIN;
use tare_std::units::nanoseconds;

use super::super::facts::Facts;
use super::super::{Evidence, Kind, Rule, Statement, words};
use crate::figures::rounds;
use crate::tails::{self, claimed, factor, name, noise, over_baseline, percentile, time};

const MEDIAN: f64 = 50.0;
const DATA: &str = "the percentiles of response time at the fixed rate over the baseline's, each with \
    its interval; the A/A control's of the same percentile";
const BESIDE: &str =
    "the percentiles of response time over the baseline's; counters at the fixed rate";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "latency_tail",
        title: "Slow tail",
        kind: Kind::Cost,
        data: DATA,
        condition: "a percentile above the median is a claimed rise, and the interval of its ratio lies above the median's; of several \
                    environments the one with the largest",
        sentence: "{percentile} latency: {ratio} in {environment} ({times}). Look for stalls.",
        details: "{here} against {there} in {baseline} at the same rate; the median {median}.{others}",
        advice: "Usual causes: a CPU quota, other processes on its CPUs, interrupts, a slow flush of the disk. tare report FILE \
                 --counters shows throttled_ns, system_run_queue_wait_ns and the longest disk operations at the fixed rate; tare \
                 weigh --stacks --stack-kinds off-cpu shows where it waits.",
        expected: "",
        expected_from: "",
        apply: tail,
    },
    Rule {
        id: "latency_shift",
        title: "Every operation takes longer",
        kind: Kind::Cost,
        data: DATA,
        condition: "the median is a claimed rise, no higher percentile grew by clearly more, and latency_waits does not apply; of \
                    several environments the one with the largest",
        sentence: "Median latency: {ratio} in {environment} ({times}). Shorten the path.",
        details: "{difference} more than {baseline} at the same rate.{others}",
        advice: "Every operation is slower: the path is longer. Use docker run --network host, no userland proxy, no sandbox; tare \
                 explain names the layer that takes the CPU time.",
        expected: "",
        expected_from: "",
        apply: shift,
    },
    Rule {
        id: "latency_waits",
        title: "Every operation waits for CPU time",
        kind: Kind::Cost,
        data: BESIDE,
        condition: "the median is a claimed rise, no higher percentile grew by clearly more, and throttled_ns or \
                    system_run_queue_wait_ns stands out of the baseline's at the fixed rate; of several environments the one \
                    with the largest",
        sentence: "Median latency: {ratio} in {environment} ({times}) while {seen}. Give it more CPU time.",
        details: "{difference} more than {baseline} at the same rate.{others}",
        advice: "Operations wait for CPU time, which a shorter path does not give. Raise the quota (docker run --cpus, Kubernetes: \
                 limits.cpu), run fewer databases on these CPUs, or assign CPUs to each (--cpuset-cpus LIST).",
        expected: "",
        expected_from: "",
        apply: waits,
    },
    cause(
        "tail_throttled",
        "Slow operations and a CPU quota",
        "the counter throttled_ns stands out of the baseline's at the fixed rate, and a percentile above the median is a claimed \
         rise",
        "Raise the quota (docker run --cpus, Kubernetes: limits.cpu) or assign whole CPUs (--cpuset-cpus LIST). A database that has \
         used up its quota stops until the next period, which begins every 100 ms unless the study sets another.",
    ),
    cause(
        "tail_run_queue",
        "Slow operations and waits for a CPU",
        "the counter system_run_queue_wait_ns stands out of the baseline's at the fixed rate, and a percentile above the median is \
         a claimed rise",
        "Dedicate CPUs to the database: docker run --cpuset-cpus LIST, which tare tune flags --for docker chooses, and keep \
         interrupts off them (tare tune apply --only interrupts).",
    ),
    cause(
        "tail_disk",
        "Slow operations and a slow disk",
        "the longest read, write or flush of the disk stands out of the baseline's at the fixed rate, and a percentile above the \
         median is a claimed rise",
        "tare disk DIR measures the device below saturation. Put the data on a volume (-v) of a device that nothing else writes \
         to.",
    ),
    cause(
        "tail_retransmits",
        "Slow operations and lost segments",
        "a counter of retransmits or of their timers stands out of the baseline's at the fixed rate, and a percentile above the \
         median is a claimed rise",
        "A retransmitted segment waits for its timer, 200 ms or more. Look for drops (counters system_net_in_drops, \
         system_tcp_backlog_drops); tare tune plan --only network sets queues and rings.",
    ),
    cause(
        "tail_proxy",
        "Slow operations and a process in the path",
        "a process that the layer adds (a userland proxy, a sentry) takes CPU time at the fixed rate, and a percentile above the \
         median is a claimed rise",
        "Every operation waits twice for that process to be scheduled. Connect to the container's or the host's address instead of \
         127.0.0.1, or set \"userland-proxy\": false; for a sandbox, run the database under runc.",
    ),
    Rule {
        id: "latency_not_found",
        title: "No latency difference",
        kind: Kind::Nothing,
        data: DATA,
        condition: "no percentile of any environment is a claim, up or down",
        sentence: "No difference in latency found. Smallest detectable in every environment: {smallest}.",
        details: "",
        advice: "For smaller differences use more rounds, a larger --budget or a quieter host; latencies suffer most from other load.",
        expected: "",
        expected_from: "",
        apply: not_found,
    },
    Rule {
        id: "percentile_not_told",
        title: "Too few operations for a percentile",
        kind: Kind::Caution,
        data: "the operations that took longer than each percentile of response time",
        condition: "fewer than 10 did, in some environment",
        sentence: "{percentile} latency: not reported in {places}; {beyond} of {count} operations took longer, and 10 are needed.",
        details: "",
        advice: "Use more rounds, a longer window or a higher rate_per_s.",
        expected: "",
        expected_from: "",
        apply: not_reported,
    },
];

/// A rule for a rise and a possible cause seen together; these rules differ only in their advice.
const fn cause(
    id: &'static str,
    title: &'static str,
    condition: &'static str,
    advice: &'static str,
) -> Rule {
    Rule {
        id,
        title,
        kind: Kind::Caution,
        data: BESIDE,
        condition,
        sentence: "{percentile} latency: {ratio} in {environment} while {seen}. Likely cause, not proven.",
        details: "{here} against {there} in {baseline} at the same rate.",
        advice,
        expected: "",
        expected_from: "",
        apply: beside,
    }
}

/// A claimed rise of one percentile.
#[derive(Clone, Copy)]
struct Rise<'f> {
    finding: &'f Finding,
    percent: f64,
    over: &'f OverBaseline,
}

impl Rise<'_> {
    /// Whether its interval is above the median's.
    fn beyond_median(&self) -> bool {
        over_baseline(self.finding, MEDIAN)
            .is_some_and(|median| self.over.ratio.low > median.ratio.high)
    }
}

/// The claimed rise of one percentile in an environment.
fn rise<'f>(facts: &Facts<'_>, finding: &'f Finding, percent: f64) -> Option<Rise<'f>> {
    let over = claimed(facts.analysis, finding, percent)?;
    (over.ratio.value > 1.0).then_some(Rise { finding, percent, over })
}

/// The percentile above the median with the largest rise.
fn largest<'f>(facts: &Facts<'_>, finding: &'f Finding) -> Option<Rise<'f>> {
    let above = PERCENTS.into_iter().filter(|percent| *percent > MEDIAN);
    let rises = above.filter_map(|percent| rise(facts, finding, percent));
    rises.max_by(|a, b| a.over.ratio.value.total_cmp(&b.over.ratio.value))
}

/// The rises, the largest first.
fn sorted(mut rises: Vec<Rise<'_>>) -> Vec<Rise<'_>> {
    rises.sort_by(|a, b| b.over.ratio.value.total_cmp(&a.over.ratio.value));
    rises
}

fn tail(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let of = |(_, workload): (usize, &str)| {
        let rises = facts.compared(workload).filter_map(|finding| largest(facts, finding));
        let rises = sorted(rises.filter(Rise::beyond_median).collect());
        let first = rises.first()?;
        let median = match over_baseline(first.finding, MEDIAN) {
            Some(median) if median.found && median.ratio.value > 1.0 => {
                let longer = "every operation is slower, and some stall";
                format!("{}: {longer}", times(&median.ratio))
            }
            _ => "does not rise: some operations stall, the others are not slower".to_string(),
        };
        Some(statement(rule, facts, first, &rises[1..], [("median", median)]))
    };
    facts.workloads().filter_map(of).collect()
}

/// The rises of the median in environments where no higher percentile grew by clearly more, the
/// largest first. `waits`: of those where operations wait for CPU time, else of the others.
fn shifts<'f>(facts: &'f Facts<'_>, workload: &'f str, waits: bool) -> Vec<Rise<'f>> {
    let stalls =
        |finding: &Finding| largest(facts, finding).is_some_and(|rise| rise.beyond_median());
    let findings = facts
        .compared(workload)
        .filter(|finding| !stalls(finding) && waits == wait_for_cpu_time(facts, finding).is_some());
    sorted(findings.filter_map(|finding| rise(facts, finding, MEDIAN)).collect())
}

/// What at the fixed rate shows that operations wait for CPU time.
fn wait_for_cpu_time(facts: &Facts<'_>, finding: &Finding) -> Option<Cause> {
    ["tail_throttled", "tail_run_queue"].iter().find_map(|rule| seen(rule, facts, finding))
}

fn shift(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let of = |(_, workload): (usize, &str)| {
        let rises = shifts(facts, workload, false);
        let first = rises.first()?;
        let difference = time(&first.over.difference_ns);
        Some(statement(rule, facts, first, &rises[1..], [("difference", difference)]))
    };
    facts.workloads().filter_map(of).collect()
}

fn waits(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let of = |(_, workload): (usize, &str)| {
        let rises = shifts(facts, workload, true);
        let first = rises.first()?;
        let (words, evidence) = wait_for_cpu_time(facts, first.finding)?;
        let own = [("difference", time(&first.over.difference_ns)), ("seen", words)];
        Some(statement(rule, facts, first, &rises[1..], own).with_evidence([evidence]))
    };
    facts.workloads().filter_map(of).collect()
}

/// A possible cause of a rise: text and evidence.
type Cause = (String, Evidence);

fn beside(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let of = |(_, workload): (usize, &str)| {
        let rises = sorted(facts.compared(workload).filter_map(|f| largest(facts, f)).collect());
        let found = rises.iter().find_map(|rise| Some((rise, seen(rule.id, facts, rise.finding)?)));
        let (rise, (words, evidence)) = found?;
        Some(statement(rule, facts, rise, &[], [("seen", words)]).with_evidence([evidence]))
    };
    facts.workloads().filter_map(of).collect()
}

fn seen(rule: &str, facts: &Facts<'_>, finding: &Finding) -> Option<Cause> {
    let counted = |names: &[&str], words: &str| {
        let (counter, difference) =
            names.iter().find_map(|name| stands_out(facts, finding, name))?;
        let figure = crate::counters::difference_text(&difference, true);
        let per = if counter.level { "" } else { " per operation" };
        let text = format!("{words} ({}: {figure}{per})", counter.name);
        Some((text, facts.counter_evidence(&counter.name)))
    };
    match rule {
        "tail_throttled" => {
            let words = "the CPU quota throttles it";
            counted(&[THROTTLED_NS], words).or_else(|| throttled_alone(facts, finding, words))
        }
        "tail_run_queue" => {
            counted(&["system_run_queue_wait_ns"], "its threads wait longer for a CPU")
        }
        "tail_disk" => counted(
            &["disk_flush_latency_ns_max", "disk_write_latency_ns_max", "disk_read_latency_ns_max"],
            "the disk's longest operation takes longer",
        ),
        "tail_retransmits" => counted(
            &[
                "system_tcp_timeouts",
                "client_tcp_timeouts",
                "system_tcp_retransmits",
                "client_tcp_retransmits",
            ],
            "TCP segments are retransmitted",
        ),
        _ => process(facts, finding),
    }
}

/// Throttled time in an environment whose baseline has no quota to compare with.
fn throttled_alone(facts: &Facts<'_>, finding: &Finding, words: &str) -> Option<Cause> {
    let of = |environment: &str| {
        let environment = environment.to_string();
        facts.counters.iter().find(move |one| {
            one.name == THROTTLED_NS
                && one.phase == Phase::Latency
                && one.workload == finding.workload
                && one.environment == environment
        })
    };
    let value = of(&finding.environment)?.value;
    let alone = of(&facts.record.study.baseline).is_none() && value.is_bounded() && value.low > 0.0;
    let text = format!(
        "{words} ({THROTTLED_NS}: {} per operation)",
        crate::counters::difference_text(&value, true)
    );
    alone.then(|| (text, facts.counter_evidence(THROTTLED_NS)))
}

/// A counter at the fixed rate that is more than the baseline's, beyond the control.
fn stands_out<'a>(
    facts: &'a Facts<'_>,
    finding: &Finding,
    name: &str,
) -> Option<(&'a CounterFinding, Interval)> {
    let found = facts.counters.iter().find(|one| {
        one.stands_out
            && one.phase == Phase::Latency
            && one.workload == finding.workload
            && one.environment == finding.environment
            && one.name == name
    })?;
    Some((found, found.difference.filter(|difference| difference.low > 0.0)?))
}

/// Beginnings of the names of a layer's parts that are the kernel's own work, not a process in the
/// path: they come from probes (`kernel_threads`, `nvme_work`).
const OF_THE_KERNEL: [&str; 2] = ["kernel ", "nvme "];

/// A process that the layer adds and that works at the fixed rate, in every round.
fn process(facts: &Facts<'_>, finding: &Finding) -> Option<Cause> {
    let slices: Vec<_> = facts
        .record
        .slices
        .iter()
        .filter(|slice| {
            slice.phase == Phase::Latency
                && slice.workload == finding.workload
                && slice.environment == finding.environment
                && slice.void.is_none()
        })
        .collect();
    let parts = slices.first()?.layer_cpu_ns.iter();
    let processes =
        parts.filter(|(name, _)| !OF_THE_KERNEL.iter().any(|begin| name.starts_with(begin)));
    let (part, _) = processes.max_by_key(|(_, ns)| *ns)?;
    let works = |slice: &&tare_lab::record::Slice| {
        slice.layer_cpu_ns.iter().any(|(name, ns)| name == part && *ns > 0)
    };
    let text = format!("every operation passes the {}", crate::figures::clean(part));
    slices.iter().all(works).then(|| {
        let row = [finding.environment.as_str()];
        (text, facts.costs_evidence(&finding.workload, &row))
    })
}

fn not_found(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let of = |(index, workload): (usize, &str)| {
        let ratios = |percent: f64| {
            facts.compared(workload).filter_map(move |f| Some((f, over_baseline(f, percent)?)))
        };
        let claims = |percent: &f64| {
            ratios(*percent).any(|(f, _)| claimed(facts.analysis, f, *percent).is_some())
        };
        if PERCENTS.iter().any(claims) {
            return None;
        }
        // A claim exceeds the half-width of its own interval and the control's.
        let smallest = |percent: f64| {
            let halves = ratios(percent).map(|(_, over)| (over.ratio.high / over.ratio.low).sqrt());
            let own = halves.reduce(f64::max)?;
            let least = own.max(noise(facts.analysis, workload, percent).unwrap_or(1.0));
            least.is_finite().then(|| format!("{} times the {}", factor(least), name(percent)))
        };
        let least: Vec<String> = [MEDIAN, 99.0].into_iter().filter_map(smallest).collect();
        let (first, over) = ratios(MEDIAN).next().filter(|_| !least.is_empty())?;
        let n = rounds(over.ratio.rounds);
        let text =
            format!("the larger of the A/A control's noise and of each interval's half-width, {n}");
        let names: Vec<&str> = facts.compared(workload).map(|f| f.environment.as_str()).collect();
        Some(
            rule.statement(&[("smallest", words::list(&least))])
                .with_effect(workload, 0.0)
                .confidence(words::without_interval(text, facts.doubts(workload, &names)))
                .with_evidence([evidence(index, &first.environment)]),
        )
    };
    facts.workloads().filter_map(of).collect()
}

fn not_reported(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let of = |(index, workload): (usize, &str)| {
        let ours = || facts.analysis.findings.iter().filter(move |f| f.workload == workload);
        let lacking = |percent: f64| {
            let few = |f: &&Finding| percentile(f, percent).is_some_and(|one| one.ns.is_none());
            let few: Vec<&Finding> = ours().filter(few).collect();
            (!few.is_empty()).then_some((percent, few))
        };
        let (percent, few) = PERCENTS.into_iter().find_map(lacking)?;
        let fewest = few.iter().min_by_key(|f| percentile(f, percent).map(|one| one.beyond))?;
        let count = fewest.response.as_ref()?.count;
        let beyond = percentile(fewest, percent)?.beyond;
        debug_assert!(beyond < BEYOND_MIN, "or it would be reported");
        let all = few.len() == ours().filter(|f| f.response.is_some()).count();
        let places = match (all, few.as_slice()) {
            (true, _) => "any environment".to_string(),
            (false, [one]) => words::quoted(&one.environment),
            (false, some) => format!("{} environments", some.len()),
        };
        let values = [
            ("percentile", name(percent)),
            ("places", places),
            ("count", tare_std::units::thousands(count)),
            ("beyond", if beyond == 0 { "none".to_string() } else { beyond.to_string() }),
        ];
        Some(
            rule.statement(&values)
                .with_effect(workload, 0.0)
                .confidence(words::without_interval("certain: operations are counted", Vec::new()))
                .with_evidence([evidence(index, &fewest.environment)]),
        )
    };
    facts.workloads().filter_map(of).collect()
}

/// A statement about a rise, with the same rise in other environments.
fn statement<'n>(
    rule: &Rule,
    facts: &Facts<'_>,
    rise: &Rise<'_>,
    others: &[Rise<'_>],
    own: impl IntoIterator<Item = (&'n str, String)>,
) -> Statement {
    const NAMED: usize = 3;
    let (finding, workload) = (rise.finding, rise.finding.workload.as_str());
    let baseline = facts.record.study.baseline.as_str();
    let time_of = |environment: &str| {
        let finding = facts.finding(workload, environment);
        let ns = finding.and_then(|f| percentile(f, rise.percent)?.ns);
        ns.map_or_else(|| "not reported".to_string(), |ns| time(&ns))
    };
    let bare = |environment: &str| {
        let finding = facts.finding(workload, environment);
        let ns = finding.and_then(|f| percentile(f, rise.percent)?.ns);
        ns.map_or_else(|| "not reported".to_string(), |ns| nanoseconds(ns.value))
    };
    let also = others.iter().take(NAMED).map(|other| {
        let (name, place) = (name(other.percent), words::quoted(&other.finding.environment));
        format!("{place} ({name} {})", times(&other.over.ratio))
    });
    let also: Vec<String> = also.collect();
    let also =
        if also.is_empty() { String::new() } else { format!(" Also in {}.", words::list(&also)) };
    let mut values = vec![
        ("percentile", name(rise.percent)),
        ("environment", words::quoted(&finding.environment)),
        ("baseline", words::quoted(baseline)),
        ("ratio", format!("{}\u{d7}", factor(rise.over.ratio.value))),
        ("times", format!("{} against {}", bare(&finding.environment), bare(baseline))),
        ("here", time_of(&finding.environment)),
        ("there", time_of(baseline)),
        ("others", also),
    ];
    values.extend(own);
    let index = facts.workloads().find(|(_, name)| *name == workload).map_or(0, |(at, _)| at);
    let names: Vec<&str> = [baseline, &finding.environment].to_vec();
    let control = facts.analysis.findings.iter().find(|f| f.control && f.workload == workload);
    let control = control.map(|control| {
        format!("the A/A control: {}", tails::ratio(facts.analysis, control, rise.percent))
    });
    let ratio = &rise.over.ratio;
    let (unit, n) = (("ratio", "times"), rounds(ratio.rounds));
    let sure = words::confidence(ratio, unit, &n, control, facts.doubts(workload, &names));
    rule.statement(&values)
        .with_effect(workload, 100.0 * (ratio.value - 1.0))
        .confidence(sure)
        .with_evidence([evidence(index, &finding.environment)])
}

/// `4.1 [3.2, 5.2] times`.
fn times(ratio: &Interval) -> String {
    format!("{} [{}, {}] times", factor(ratio.value), factor(ratio.low), factor(ratio.high))
}

/// The row of an environment in the table of latencies.
fn evidence(workload: usize, row: &str) -> Evidence {
    let row = crate::figures::clean(row);
    Evidence::at(format!("latencies-{workload}"), format!("latencies of \"{row}\""))
}
