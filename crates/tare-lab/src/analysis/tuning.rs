//! Gains from tuning the host: compares every environment on a tuned host with the one that differs
//! only in the host layer, paired within the rounds. [`tare_stats::law`] decides what is proven.

use serde::Serialize;
use tare_stats::law::{self, TuningVerdict, Verdict};

use super::claims::judge_cost;
use super::{Analysis, Cost, Metric, pair_costs};
use crate::environment::EnvironmentSpec;
use crate::layer::Host;
use crate::record::Record;

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
            let Some(twin) = ran(record).find(|other| differs_in_host_alone(spec, other)) else {
                continue;
            };
            gains.extend(gain(record, analysis, &workload.name, spec, &twin.name));
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

/// Returns whether `other` is the same environment on the host as found.
fn differs_in_host_alone(tuned: &EnvironmentSpec, other: &EnvironmentSpec) -> bool {
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
    let pair = pair_costs(record, workload, &spec.name, twin)?;
    let judged = |metric, cost: &Option<Cost>| {
        cost.as_ref().map(|cost| judge_cost(analysis, workload, [&spec.name, twin], metric, cost))
    };
    let cpu_verdict = judged(Metric::ServerCpu, &pair.cpu);
    let throughput_verdict = judged(Metric::Throughput, &pair.throughput);
    Some(Gain {
        workload: workload.to_string(),
        environment: spec.name.clone(),
        against: twin.to_string(),
        groups: match spec.host.groups() {
            [] => "all".to_string(),
            groups => groups.join("+"),
        },
        verdict: TuningVerdict::of(cpu_verdict.into_iter().chain(throughput_verdict)),
        cpu: pair.cpu,
        cpu_verdict,
        throughput: pair.throughput,
        throughput_verdict,
    })
}
