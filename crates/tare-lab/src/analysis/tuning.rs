//! Gains from tuning the host: compares every environment on a tuned host with the one that differs
//! only in the host layer, paired within the rounds. An environment that adds knobs to those of
//! another is compared with that too. [`tare_stats::law`] decides what is proven.

use serde::Serialize;
use tare_stats::law::{self, TuningVerdict, Verdict};

use super::claims::judge_cost;
use super::{Analysis, Cost, Metric, pair_costs};
use crate::environment::EnvironmentSpec;
use crate::record::Record;

/// A tuned host against the host as found, under one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Gain {
    pub workload: String,
    pub environment: String,
    pub against: String,
    /// `all`, or groups of knobs and knobs: `disk`, `disk+network`.
    pub groups: String,
    /// The groups and knobs that both environments have. Empty against the host as found.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub on_top_of: String,
    /// Server CPU per operation; below 0 is a gain.
    pub cpu: Option<Cost>,
    pub cpu_verdict: Option<Verdict>,
    /// Operations/s at capacity; below 0 is a gain.
    pub throughput: Option<Cost>,
    pub throughput_verdict: Option<Verdict>,
    pub verdict: TuningVerdict,
}

/// Returns the environments of a record that ran, without the control.
fn ran(record: &Record) -> impl Iterator<Item = &EnvironmentSpec> {
    let ran = record.environments.iter().filter(|one| one.left_out.is_none() && !one.control);
    ran.map(|one| &one.spec)
}

/// Returns the environments of a record that ran on a tuned host.
pub fn tuned(record: &Record) -> impl Iterator<Item = &EnvironmentSpec> {
    ran(record).filter(|spec| !spec.host.is_as_is())
}

/// Returns the gains of all tuned environments under all workloads.
pub fn gains(record: &Record, analysis: &Analysis) -> Vec<Gain> {
    let mut gains = Vec::new();
    for workload in &record.study.workloads {
        for spec in tuned(record) {
            let twin = ran(record)
                .find(|other| other.host.is_as_is() && differs_in_host_alone(spec, other));
            let twins = twin.into_iter().chain(step_below(record, spec));
            gains.extend(
                twins.filter_map(|twin| gain(record, analysis, &workload.name, spec, twin)),
            );
        }
    }
    gains
}

/// Returns the groups that are proven to help.
pub fn proven(gains: &[Gain]) -> Vec<String> {
    let verdicts: Vec<(&str, TuningVerdict)> =
        gains.iter().map(|gain| (gain.groups.as_str(), gain.verdict)).collect();
    law::proven(&verdicts).into_iter().map(String::from).collect()
}

/// Returns whether `other` is the same environment on a host with other settings, or as found.
fn differs_in_host_alone(tuned: &EnvironmentSpec, other: &EnvironmentSpec) -> bool {
    let like = EnvironmentSpec {
        name: other.name.clone(),
        host: other.host.clone(),
        optional: other.optional,
        ..tuned.clone()
    };
    like == *other && tuned.host != other.host
}

/// Returns the environment to which this one adds groups or knobs and nothing else; of several the
/// one with the most, and of those the first of the study.
fn step_below<'r>(record: &'r Record, tuned: &EnvironmentSpec) -> Option<&'r EnvironmentSpec> {
    let names = tuned.host.groups();
    let is_part = |other: &&EnvironmentSpec| {
        let part = other.host.groups();
        !part.is_empty()
            && part.len() < names.len()
            && part.iter().all(|name| names.contains(name))
            && differs_in_host_alone(tuned, other)
    };
    let below = ran(record).filter(is_part);
    below.reduce(
        |best, one| {
            if one.host.groups().len() > best.host.groups().len() { one } else { best }
        },
    )
}

fn gain(
    record: &Record,
    analysis: &Analysis,
    workload: &str,
    spec: &EnvironmentSpec,
    other: &EnvironmentSpec,
) -> Option<Gain> {
    let twin = other.name.as_str();
    let pair = pair_costs(record, workload, &spec.name, twin)?;
    let judged = |metric, cost: &Option<Cost>| {
        cost.as_ref().map(|cost| judge_cost(analysis, workload, [&spec.name, twin], metric, cost))
    };
    let added = spec.host.groups().iter().filter(|name| !other.host.groups().contains(name));
    let added: Vec<String> = added.cloned().collect();
    let cpu_verdict = judged(Metric::ServerCpu, &pair.cpu);
    let throughput_verdict = judged(Metric::Throughput, &pair.throughput);
    Some(Gain {
        workload: workload.to_string(),
        environment: spec.name.clone(),
        against: twin.to_string(),
        groups: match added.as_slice() {
            [] => "all".to_string(),
            groups => groups.join("+"),
        },
        on_top_of: other.host.groups().join("+"),
        verdict: TuningVerdict::of(cpu_verdict.into_iter().chain(throughput_verdict)),
        cpu: pair.cpu,
        cpu_verdict,
        throughput: pair.throughput,
        throughput_verdict,
    })
}
