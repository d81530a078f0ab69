//! What tuning the host gained, from a record alone: every environment with a tuned host against
//! the one that differs from it in nothing else, paired within the blocks.
//!
//! The rules:
//! 1. A gain or a loss is claimed as a cost is: its interval excludes 0 and its size is beyond the
//!    noise of the A/A control in the same workload and metric.
//! 2. A tuning helps if it gains in one metric and loses in none, hurts if it loses in one and gains
//!    in none. Anything else is not proven.
//! 3. Over several workloads, it is proven if it helps in one and hurts in none.
//!
//! Limits: with many groups chance finds a gain in one of them more often than one time in twenty;
//! rule 1 makes that rarer and not impossible.

use serde::Serialize;
use tare_lab::analysis::{Analysis, Cost, between};
use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::Host;
use tare_lab::record::Record;

use crate::figures::{Room, clean, cost as cost_text, percent_interval};
use crate::headline::{Metric, is_claim};
use crate::terminal::{Paint, Style, grid, paragraph};

/// Section of a record's host facts in which `tare tune prove` says what it did.
pub const FACTS: &str = "tune";
/// Key of the fact that names the environment whose tuning was proven: only such records have a
/// sentence about what remains.
pub const FACT_OF: &str = "proof of";
/// Keys of facts that say what was not weighed begin with it; the value is the reason.
pub const FACT_NOT_WEIGHED: &str = "not weighed: ";

/// What a tuning did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Helps,
    Hurts,
    /// It gains in one metric and loses in the other.
    Mixed,
    /// No difference beyond the noise.
    NotProven,
}

/// A tuned host against the host as found, under one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Gain {
    pub workload: String,
    pub environment: String,
    pub against: String,
    /// `all`, or the groups of knobs: `disk`, `disk+network`.
    pub groups: String,
    /// Server CPU per operation; below 0 is a gain.
    pub cpu: Option<Cost>,
    /// Operations/s at capacity; below 0 is a gain.
    pub throughput: Option<Cost>,
    pub verdict: Verdict,
}

/// What an environment costs against the baseline after everything was applied.
#[derive(Clone, Debug, Serialize)]
pub struct Remains {
    pub workload: String,
    pub environment: String,
    pub baseline: String,
    pub cpu: Option<Cost>,
    pub throughput: Option<Cost>,
    /// Neither can be told from 0.
    pub nothing: bool,
    /// Layers that still differ from the baseline's.
    pub layers: Vec<String>,
    /// The sentence.
    pub text: String,
}

/// A record seen as a proof of tuning.
#[derive(Clone, Debug, Serialize)]
pub struct Proof {
    pub gains: Vec<Gain>,
    /// Groups that are proven to help: rule 3.
    pub proven: Vec<String>,
    /// What was planned and not weighed, and why.
    pub not_weighed: Vec<(String, String)>,
    pub remains: Vec<Remains>,
}

impl Proof {
    /// `None` when no environment of the record has a tuned host and none was to be proven.
    pub fn of(record: &Record, analysis: &Analysis) -> Option<Self> {
        let facts = || record.host.iter().filter(|fact| fact.section == FACTS);
        let specs: Vec<&EnvironmentSpec> = record
            .environments
            .iter()
            .filter(|one| one.left_out.is_none() && !one.control)
            .map(|one| &one.spec)
            .collect();
        let tuned: Vec<&EnvironmentSpec> =
            specs.iter().copied().filter(|spec| !spec.host.is_as_is()).collect();
        let asked = facts().any(|fact| fact.key == FACT_OF);
        if tuned.is_empty() && !asked {
            return None;
        }
        let mut gains = Vec::new();
        for workload in &record.study.workloads {
            for spec in &tuned {
                let Some(twin) = specs.iter().find(|other| is_twin(spec, other)) else { continue };
                gains.extend(gain(record, analysis, &workload.name, spec, &twin.name));
            }
        }
        let not_weighed = facts().filter_map(|fact| {
            let what = fact.key.strip_prefix(FACT_NOT_WEIGHED)?;
            Some((what.to_string(), fact.value.clone()))
        });
        let last = tuned.iter().find(|spec| spec.host == Host::Tuned).or(specs.last()).copied();
        let remains = match last.filter(|spec| asked && spec.name != record.study.baseline) {
            Some(spec) => remains(record, analysis, spec),
            None => Vec::new(),
        };
        let proven = proven(&gains);
        Some(Self { gains, proven, not_weighed: not_weighed.collect(), remains })
    }
}

/// Differs in the host alone.
fn is_twin(tuned: &EnvironmentSpec, other: &EnvironmentSpec) -> bool {
    let like = EnvironmentSpec {
        name: other.name.clone(),
        host: Host::AsIs,
        optional: other.optional,
        ..tuned.clone()
    };
    like == *other
}

fn gain(
    record: &Record,
    analysis: &Analysis,
    workload: &str,
    spec: &EnvironmentSpec,
    twin: &str,
) -> Option<Gain> {
    let pair = between(record, workload, &spec.name, twin)?;
    let signs = [
        sign(analysis, workload, Metric::ServerCpu, pair.cpu.as_ref()),
        sign(analysis, workload, Metric::Throughput, pair.throughput.as_ref()),
    ];
    let verdict = match (signs.contains(&-1), signs.contains(&1)) {
        (true, false) => Verdict::Helps,
        (false, true) => Verdict::Hurts,
        (true, true) => Verdict::Mixed,
        (false, false) => Verdict::NotProven,
    };
    Some(Gain {
        workload: workload.to_string(),
        environment: spec.name.clone(),
        against: twin.to_string(),
        groups: match spec.host.groups() {
            [] => "all".to_string(),
            groups => groups.join("+"),
        },
        cpu: pair.cpu,
        throughput: pair.throughput,
        verdict,
    })
}

/// -1: a gain that may be claimed, 1: a loss, 0: neither.
fn sign(analysis: &Analysis, workload: &str, metric: Metric, cost: Option<&Cost>) -> i8 {
    let Some(cost) = cost else { return 0 };
    match is_claim(analysis, workload, metric, cost) {
        false => 0,
        true if cost.percent.value < 0.0 => -1,
        true => 1,
    }
}

fn proven(gains: &[Gain]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for gain in gains.iter().filter(|gain| gain.verdict == Verdict::Helps) {
        let harmless = |other: &&Gain| {
            other.groups == gain.groups && matches!(other.verdict, Verdict::Hurts | Verdict::Mixed)
        };
        if !names.contains(&gain.groups) && !gains.iter().any(|other| harmless(&other)) {
            names.push(gain.groups.clone());
        }
    }
    names
}

fn remains(record: &Record, analysis: &Analysis, spec: &EnvironmentSpec) -> Vec<Remains> {
    let baseline = record.study.baseline.as_str();
    let base = record.study.environments.iter().find(|one| one.name == baseline);
    let layers = base.map_or_else(Vec::new, |base| differing_layers(spec, base));
    let several = record.study.workloads.len() > 1;
    let findings = analysis.findings.iter().filter(|one| one.environment == spec.name);
    let one = |finding: &tare_lab::analysis::Finding| {
        let cpu = finding.cpu_cost().cloned();
        let throughput = finding.throughput_cost.clone();
        let sign = |metric, cost: Option<&Cost>| sign(analysis, &finding.workload, metric, cost);
        let beyond = [
            sign(Metric::ServerCpu, cpu.as_ref()) != 0,
            sign(Metric::Throughput, throughput.as_ref()) != 0,
        ];
        let mut remains = Remains {
            workload: finding.workload.clone(),
            environment: spec.name.clone(),
            baseline: baseline.to_string(),
            cpu,
            throughput,
            nothing: beyond == [false, false],
            layers: layers.clone(),
            text: String::new(),
        };
        remains.text = sentence(&remains, beyond, several);
        remains
    };
    findings.map(one).collect()
}

/// Layers of an environment that are not as the baseline's, in words.
fn differing_layers(spec: &EnvironmentSpec, base: &EnvironmentSpec) -> Vec<String> {
    let mut layers = Vec::new();
    let mut add = |differs: bool, text: String| {
        if differs {
            layers.push(text);
        }
    };
    add(spec.runtime != base.runtime, format!("the runtime {}", spec.runtime));
    add(spec.network != base.network, format!("network {}", spec.network));
    add(spec.cpu != base.cpu, format!("cpu {}", spec.cpu));
    add(spec.security != base.security, format!("the seccomp filter ({})", spec.security));
    add(spec.cgroup != base.cgroup, format!("a cgroup ({})", spec.cgroup));
    add(spec.limits != base.limits, "a memory limit".to_string());
    layers
}

/// `beyond`: whether CPU and throughput are beyond the noise of the control.
fn sentence(remains: &Remains, beyond: [bool; 2], several: bool) -> String {
    let of = |cost: &Option<Cost>, beyond: bool| {
        cost.as_ref().map_or("not known".to_string(), |cost| match (cost.found, beyond) {
            (true, true) => percent_interval(&cost.percent),
            (true, false) => {
                format!("{}, within the noise of the A/A control", percent_interval(&cost.percent))
            }
            (false, _) => cost_text(cost, Room::Full),
        })
    };
    let place = if several { format!(" ({})", clean(&remains.workload)) } else { String::new() };
    let name = clean(&remains.environment);
    let cpu = of(&remains.cpu, beyond[0]);
    let throughput = of(&remains.throughput, beyond[1]);
    let figures = format!("CPU per operation {cpu}; throughput lost {throughput}");
    let layers = match remains.layers.is_empty() {
        true => "no layer".to_string(),
        false => remains.layers.join(", "),
    };
    let baseline = clean(&remains.baseline);
    match remains.nothing {
        true => format!(
            "What remains of \"{name}\"{place} against {baseline} cannot be told from zero: {figures}. \
             Still between them: {layers}."
        ),
        false => format!(
            "What remains of \"{name}\"{place} against {baseline}: {figures}. \
             It comes from what is still between them: {layers}."
        ),
    }
}

/// The head and the rows of the table of gains.
pub(crate) fn table(proof: &Proof) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let several = proof.gains.iter().any(|gain| gain.workload != proof.gains[0].workload);
    let cost = |cost: &Option<Cost>| {
        cost.as_ref().map_or("-".to_string(), |cost| cost_text(cost, Room::Short))
    };
    let row = |gain: &Gain| {
        let mut cells = vec![clean(&gain.groups)];
        cells.extend(several.then(|| clean(&gain.workload)));
        cells.extend([cost(&gain.cpu), cost(&gain.throughput), verdict(gain)]);
        cells
    };
    let mut head = vec!["groups"];
    head.extend(several.then_some("workload"));
    head.extend(["CPU per operation", "throughput lost", "verdict"]);
    (head, proof.gains.iter().map(row).collect())
}

/// What the table compares.
pub(crate) fn caption(proof: &Proof) -> String {
    match proof.gains.first() {
        None => {
            "No host tuning was weighed: nothing that the plan changes here would be noticed by \
                 a running system."
                .to_string()
        }
        Some(gain) => format!(
            "Against \"{}\" on the host as found, paired within the blocks; below 0 is a gain.",
            clean(&gain.against)
        ),
    }
}

/// What was not weighed, and what remains: a sentence each.
pub(crate) fn sentences(proof: &Proof) -> Vec<String> {
    let not_weighed = proof.not_weighed.iter();
    let not_weighed =
        not_weighed.map(|(what, why)| format!("Not weighed: {} ({}).", clean(what), clean(why)));
    not_weighed.chain(proof.remains.iter().map(|remains| remains.text.clone())).collect()
}

/// The proof as lines of terminal text: the gains, what was not weighed, what remains.
pub(crate) fn lines(proof: &Proof, style: Style) -> Vec<String> {
    let paint = Paint(style);
    let mut lines = paragraph(&paint.plain(&caption(proof)), "", style.width);
    if !proof.gains.is_empty() {
        let (head, rows) = table(proof);
        lines.extend(grid(&head, &rows, style).lines().map(str::to_string));
    }
    for sentence in sentences(proof) {
        lines.extend(paragraph(&paint.plain(&sentence), "", style.width));
    }
    lines
}

fn verdict(gain: &Gain) -> String {
    match gain.verdict {
        Verdict::Helps => "helps",
        Verdict::Hurts => "hurts",
        Verdict::Mixed => "gains in one, loses in the other: not proven",
        Verdict::NotProven => "no help beyond the noise: not proven",
    }
    .to_string()
}

#[cfg(test)]
mod tests;
