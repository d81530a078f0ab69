//! The gain of host tuning in a record: every environment with a tuned host against the one that
//! differs in nothing else, paired within the rounds.
//!
//! [`tare_lab::analysis::tuning`] finds the gains, and [`tare_stats::law`] decides what is proven.

use serde::Serialize;
use tare_lab::analysis::claims::judge_cost;
use tare_lab::analysis::tuning::{self, Gain};
use tare_lab::analysis::{Analysis, Cost, Metric};
use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::Host;
use tare_lab::record::Record;
use tare_stats::law::{TuningVerdict, Verdict};

use crate::figures::{CostFormat, clean, cost as cost_text};
use crate::layout::{Paint, Style, grid, paragraph};

/// Section of a record's host facts that `tare tune prove` writes.
pub const FACTS: &str = tare_lab::record::TUNING_FACTS;
/// Key of the fact that names the environment whose tuning was tested. Only such records have a
/// sentence about the remaining cost.
pub const FACT_OF: &str = "proof of";
/// Prefix of the keys of settings that were not weighed; the value is the reason.
pub const FACT_NOT_WEIGHED: &str = "not weighed: ";
/// Key of the fact that names the tunings in force on a host from before the study, whose
/// environments with a tuned host were therefore left out.
pub const FACT_TUNED_ALREADY: &str = "tuned before the study";

/// The cost of an environment against the baseline after all tuning.
#[derive(Clone, Debug, Serialize)]
pub struct RemainingCost {
    pub workload: String,
    pub environment: String,
    pub baseline: String,
    pub cpu: Option<Cost>,
    pub cpu_verdict: Option<Verdict>,
    pub throughput: Option<Cost>,
    pub throughput_verdict: Option<Verdict>,
    /// Whether neither cost is a claim.
    pub nothing: bool,
    /// Layers that still differ from the baseline's.
    pub layers: Vec<String>,
    /// The sentence for reports.
    pub text: String,
}

/// The gains of host tuning in a record.
#[derive(Clone, Debug, Serialize)]
pub struct Proof {
    pub gains: Vec<Gain>,
    /// Groups that are proven to help.
    pub proven: Vec<String>,
    /// Settings that were planned and not weighed, with the reason.
    pub not_weighed: Vec<(String, String)>,
    pub remains: Vec<RemainingCost>,
    /// Whether an environment with a tuned host ran, with or without a valid round.
    #[serde(skip)]
    is_tuned: bool,
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
        let tuned: Vec<&EnvironmentSpec> = tuning::tuned(record).collect();
        let asked = facts().any(|fact| fact.key == FACT_OF);
        if tuned.is_empty() && !asked {
            return None;
        }
        let gains = tuning::gains(record, analysis);
        let not_weighed = facts().filter_map(|fact| {
            let what = fact.key.strip_prefix(FACT_NOT_WEIGHED)?;
            Some((what.to_string(), fact.value.clone()))
        });
        let last = tuned.iter().find(|spec| spec.host == Host::Tuned).or(specs.last()).copied();
        let remains = match last.filter(|spec| asked && spec.name != record.study.baseline) {
            Some(spec) => remains(record, analysis, spec),
            None => Vec::new(),
        };
        let proven = tuning::proven(&gains);
        let (not_weighed, is_tuned) = (not_weighed.collect(), !tuned.is_empty());
        Some(Self { gains, proven, not_weighed, remains, is_tuned })
    }
}

fn remains(record: &Record, analysis: &Analysis, spec: &EnvironmentSpec) -> Vec<RemainingCost> {
    let baseline = record.study.baseline.as_str();
    let base = record.study.environments.iter().find(|one| one.name == baseline);
    let layers = base.map_or_else(Vec::new, |base| differing_layers(spec, base));
    let several = record.study.workloads.len() > 1;
    let findings = analysis.findings.iter().filter(|one| one.environment == spec.name);
    let one = |finding: &tare_lab::analysis::Finding| {
        let cpu = finding.cpu_cost().cloned();
        let throughput = finding.throughput_cost.clone();
        let judged = |metric, cost: &Option<Cost>| {
            cost.as_ref().map(|cost| {
                judge_cost(analysis, &finding.workload, [&spec.name, baseline], metric, cost)
            })
        };
        let verdicts = [judged(Metric::ServerCpu, &cpu), judged(Metric::Throughput, &throughput)];
        let mut remains = RemainingCost {
            workload: finding.workload.clone(),
            environment: spec.name.clone(),
            baseline: baseline.to_string(),
            cpu,
            cpu_verdict: verdicts[0],
            throughput,
            throughput_verdict: verdicts[1],
            nothing: !verdicts
                .iter()
                .flatten()
                .any(|verdict| verdict.is_claim() || *verdict == Verdict::Withheld),
            layers: layers.clone(),
            text: String::new(),
        };
        remains.text = sentence(&remains, several);
        remains
    };
    findings.map(one).collect()
}

/// Layers in which an environment differs from the baseline, as text.
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
    add(spec.confinement != base.confinement, "rights or memory".to_string());
    add(spec.limits != base.limits, "a memory limit".to_string());
    layers
}

fn sentence(remains: &RemainingCost, several: bool) -> String {
    let of = |cost: &Option<Cost>, verdict: Option<Verdict>| {
        let cost = cost.as_ref().map(|cost| cost_text(cost, verdict, CostFormat::Full));
        cost.unwrap_or_else(|| "not known".to_string())
    };
    let place = if several { format!(" ({})", clean(&remains.workload)) } else { String::new() };
    let name = clean(&remains.environment);
    let cpu = of(&remains.cpu, remains.cpu_verdict);
    let throughput = of(&remains.throughput, remains.throughput_verdict);
    let figures = format!("CPU per operation {cpu}; throughput lost {throughput}");
    let layers = match remains.layers.is_empty() {
        true => "no layer".to_string(),
        false => remains.layers.join(", "),
    };
    let baseline = clean(&remains.baseline);
    let costs = [&remains.cpu, &remains.throughput];
    let is_known = costs.into_iter().flatten().any(|cost| cost.percent.is_bounded());
    match remains.nothing {
        true if !is_known => format!(
            "Remaining cost of \"{name}\"{place} against {baseline}: not known, too few rounds. Layers \
             that still differ: {layers}."
        ),
        true => format!(
            "Remaining cost of \"{name}\"{place} against {baseline}: none found. {figures}. \
             Layers that still differ: {layers}."
        ),
        false => format!(
            "Remaining cost of \"{name}\"{place} against {baseline}: {figures}. \
             Layers that still differ: {layers}."
        ),
    }
}

/// The head and the rows of the table of gains.
pub(crate) fn table(proof: &Proof) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let several = proof.gains.iter().any(|gain| gain.workload != proof.gains[0].workload);
    let cost = |cost: &Option<Cost>, verdict| {
        cost.as_ref().map_or("-".to_string(), |cost| cost_text(cost, verdict, CostFormat::Short))
    };
    let row = |gain: &Gain| {
        let mut cells = vec![label(gain)];
        cells.extend(several.then(|| clean(&gain.workload)));
        cells.extend([
            cost(&gain.cpu, gain.cpu_verdict),
            cost(&gain.throughput, gain.throughput_verdict),
            verdict(gain),
        ]);
        cells
    };
    let mut head = vec!["groups or knobs"];
    head.extend(several.then_some("workload"));
    head.extend(["CPU per operation", "throughput lost", "verdict"]);
    (head, proof.gains.iter().map(row).collect())
}

/// The caption of the table of gains.
pub(crate) fn caption(proof: &Proof) -> String {
    match proof.gains.first() {
        None if proof.is_tuned => {
            "No gain is known: no round has a valid slice both with the tuning and without it."
                .to_string()
        }
        None => {
            "No host tuning was weighed: a system under this load would notice none of the plan's changes."
                .to_string()
        }
        Some(gain) => format!(
            "Against \"{}\" on the host as found, paired within the rounds; below 0 is a gain.{}",
            clean(&gain.against),
            match proof.gains.iter().any(|gain| !gain.on_top_of.is_empty()) {
                true => " \"On top of\": against the environment that has those alone.",
                false => "",
            }
        ),
    }
}

/// Returns what a gain is of: `rps+rfs on top of interrupts`.
pub(crate) fn label(gain: &Gain) -> String {
    match gain.on_top_of.as_str() {
        "" => clean(&gain.groups),
        below => format!("{} on top of {}", clean(&gain.groups), clean(below)),
    }
}

/// One sentence for each setting that was not weighed and for each remaining cost.
pub(crate) fn sentences(proof: &Proof) -> Vec<String> {
    let not_weighed = proof.not_weighed.iter();
    let not_weighed =
        not_weighed.map(|(what, why)| format!("Not weighed: {} ({}).", clean(what), clean(why)));
    not_weighed.chain(proof.remains.iter().map(|remains| remains.text.clone())).collect()
}

/// Terminal lines: the gains, settings that were not weighed, the remaining cost.
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

/// Returns whether a gain has an interval, which takes a few rounds.
pub(crate) fn is_known(gain: &Gain) -> bool {
    let costs = [&gain.cpu, &gain.throughput];
    costs.into_iter().flatten().any(|cost| cost.percent.is_bounded())
}

fn verdict(gain: &Gain) -> String {
    match gain.verdict {
        TuningVerdict::NotProven if !is_known(gain) => "not known yet: too few rounds",
        TuningVerdict::Helps => "helps",
        TuningVerdict::Hurts => "hurts",
        TuningVerdict::Mixed => "gains in one, loses in the other: not proven",
        TuningVerdict::NotProven => "no help beyond the noise: not proven",
    }
    .to_string()
}

#[cfg(test)]
mod tests;
