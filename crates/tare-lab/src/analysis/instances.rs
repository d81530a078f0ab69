//! Several instances of a system in one environment: what each of them did, how evenly the load was
//! served, and how throughput and CPU time grow with their number.
//!
//! Method: the driver of each instance counts its own operations in every slice, and the CPU time
//! of each instance is read at the edges. A figure of one instance is its median over the valid
//! slices. Evenness is computed in every slice, and its median is taken, because instances that
//! take turns look even once their slices are averaged. Two numbers of instances are compared as
//! any two environments are, over the rounds of both.

use serde::{Deserialize, Serialize};
use tare_stats::median;

use super::{Analysis, Interval, PairCosts, pair_costs};
use crate::environment::EnvironmentSpec;
use crate::layer::Layer;
use crate::probe::names;
use crate::record::{Phase, Record, Slice};

/// What the instances of one environment did under one workload, at capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceFigures {
    pub environment: String,
    pub workload: String,
    /// In the order of their start; at least two.
    pub instances: Vec<OneInstance>,
    /// Jain's index of the operations of the instances, 1/n to 1: (sum x)^2 / (n sum x^2); R. Jain,
    /// D. Chiu, W. Hawe, A Quantitative Measure of Fairness and Discrimination, DEC-TR-301 (1984).
    /// Median over slices.
    pub fairness: f64,
    /// Operations of the slowest instance over those of the median one. Median over slices.
    pub slowest_over_median: f64,
    /// p99 of the instance that has the highest, in ns: response time at the fixed rate, or else
    /// service time at capacity. Median over slices.
    pub worst_p99_ns: Option<f64>,
    /// Whether `worst_p99_ns` is at the fixed rate.
    pub is_at_rate: bool,
}

/// One instance, as medians over slices at capacity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneInstance {
    pub operations_per_s: f64,
    /// CPU time per operation in µs; `None` if its CPU time is not known.
    pub cpu_us: Option<f64>,
    /// Service time, in ns.
    pub p99_ns: Option<f64>,
}

/// Environments that differ in the number of instances alone, under one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    pub workload: String,
    /// By rising number of instances; at least two.
    pub points: Vec<ScalingPoint>,
}

/// One number of instances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalingPoint {
    pub environment: String,
    pub instances: u32,
    /// Operations/s of all instances.
    pub throughput_per_s: Option<Interval>,
    /// CPU time per operation in µs.
    pub cpu_us: Option<Interval>,
    /// Operations/s over those of the least number, from the rounds of both; `None` for that.
    pub times: Option<Interval>,
    /// The costs against the number before; `None` for the least number.
    pub step: Option<PairCosts>,
}

/// An environment against the one that has the baseline's layers and as many instances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SameNumber {
    pub workload: String,
    pub instances: u32,
    pub environment: String,
    pub against: String,
    pub costs: PairCosts,
}

impl ScalingPoint {
    /// Returns the throughput over that which `least` instances with their throughput each would
    /// give: 1 is a perfect gain.
    pub fn efficiency(&self, least: u32) -> Option<f64> {
        self.times.map(|times| times.value * f64::from(least.max(1)) / f64::from(self.instances))
    }
}

/// Returns what the instances of each environment did, by workload in the order of the study.
/// Environments with one instance have no figures here.
pub fn instance_figures(record: &Record) -> Vec<InstanceFigures> {
    let names = || record.environments.iter().filter(|one| !one.control).map(|one| &one.spec.name);
    let workloads = record.study.workloads.iter();
    workloads
        .flat_map(|workload| names().filter_map(|name| figures_of(record, &workload.name, name)))
        .collect()
}

fn figures_of(record: &Record, workload: &str, environment: &str) -> Option<InstanceFigures> {
    let of = |phase| {
        let slices = record.slices.iter().filter(move |slice| {
            slice.void.is_none()
                && slice.phase == phase
                && slice.workload == workload
                && slice.environment == environment
        });
        slices.collect::<Vec<&Slice>>()
    };
    let (capacity, at_rate) = (of(Phase::Capacity), of(Phase::Latency));
    let [_, p99, _] = names::INSTANCE_LATENCIES;
    let served: Vec<Vec<f64>> =
        capacity.iter().map(|slice| all(slice, names::INSTANCE_OPERATIONS)).collect();
    let count = served.iter().map(Vec::len).max().filter(|count| *count > 1)?;
    let instances =
        (0..count).map(|number| one_instance(&capacity, number)).collect::<Option<_>>()?;
    let worst = |slices: &[&Slice]| {
        let worst = slices.iter().filter_map(|slice| all(slice, p99).into_iter().reduce(f64::max));
        median(worst)
    };
    let (response, service) = (worst(&at_rate), worst(&capacity));
    Some(InstanceFigures {
        environment: environment.to_string(),
        workload: workload.to_string(),
        instances,
        fairness: median(served.iter().filter_map(|one| jain(one)))?,
        slowest_over_median: median(served.iter().filter_map(|one| slowest_over_median(one)))?,
        worst_p99_ns: response.or(service),
        is_at_rate: response.is_some(),
    })
}

/// Returns a figure of every instance in a slice.
fn all(slice: &Slice, figure: &str) -> Vec<f64> {
    (0..).map_while(|number| value(slice, number, figure)).collect()
}

fn value(slice: &Slice, number: usize, figure: &str) -> Option<f64> {
    let name = names::of_instance(number, figure);
    slice.counters.iter().find(|counter| counter.name == name).map(|counter| counter.value)
}

fn one_instance(slices: &[&Slice], number: usize) -> Option<OneInstance> {
    let [_, p99, _] = names::INSTANCE_LATENCIES;
    let middle =
        |of: &dyn Fn(&Slice) -> Option<f64>| median(slices.iter().filter_map(|slice| of(slice)));
    let per_s = |slice: &Slice| {
        Some(value(slice, number, names::INSTANCE_OPERATIONS)? / seconds(slice.window_ns)?)
    };
    let cpu_us = |slice: &Slice| {
        let per_s = per_s(slice).filter(|per_s| *per_s > 0.0)?;
        // The CPU time is that between the readings, which may be longer than the window.
        let span = seconds(slice.account_ns.unwrap_or(slice.window_ns))?;
        Some(value(slice, number, names::INSTANCE_CPU)? / 1e3 / (per_s * span))
    };
    Some(OneInstance {
        operations_per_s: middle(&per_s)?,
        cpu_us: middle(&cpu_us),
        p99_ns: middle(&|slice| value(slice, number, p99)),
    })
}

/// Returns a time in s, if it is longer than 0.
fn seconds(ns: u64) -> Option<f64> {
    (ns > 0).then(|| std::time::Duration::from_nanos(ns).as_secs_f64())
}

/// Returns Jain's index, or `None` if nothing was served.
fn jain(served: &[f64]) -> Option<f64> {
    let sum: f64 = served.iter().sum();
    let squares: f64 = served.iter().map(|one| one * one).sum();
    let count = served.iter().map(|_| 1.0).sum::<f64>();
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

fn slowest_over_median(served: &[f64]) -> Option<f64> {
    let slowest = served.iter().copied().reduce(f64::min)?;
    median(served.iter().copied()).filter(|middle| *middle > 0.0).map(|middle| slowest / middle)
}

/// Returns the environments of a record that differ in the number of instances alone, by workload
/// in the order of the study.
pub fn scaling(record: &Record, analysis: &Analysis) -> Vec<Scaling> {
    let mut families: Vec<Vec<&EnvironmentSpec>> = Vec::new();
    let here = record.environments.iter().filter(|one| !one.control && one.left_out.is_none());
    for spec in here.map(|one| &one.spec).filter(|spec| spec.instances.is_some()) {
        match families.iter_mut().find(|family| differ_in_instances(family[0], spec)) {
            Some(family) => family.push(spec),
            None => families.push(vec![spec]),
        }
    }
    for family in &mut families {
        family.sort_by_key(|spec| spec.instances);
        family.dedup_by_key(|spec| spec.instances);
    }
    families.retain(|family| family.len() > 1);
    let workloads = record.study.workloads.iter();
    workloads
        .flat_map(|workload| {
            families.iter().map(|family| one_scaling(record, analysis, &workload.name, family))
        })
        .collect()
}

/// Returns each environment against the one that has the baseline's layers and as many instances,
/// by workload in the order of the study. Empty if all of these are the baseline itself.
pub fn same_numbers(record: &Record) -> Vec<SameNumber> {
    let Some(baseline) = record.study.baseline_environment() else { return Vec::new() };
    let here = record.environments.iter().filter(|one| !one.control && one.left_out.is_none());
    let (family, others): (Vec<&EnvironmentSpec>, Vec<&EnvironmentSpec>) = here
        .map(|one| &one.spec)
        .filter(|spec| spec.instances.is_some())
        .partition(|spec| differ_in_instances(baseline, spec));
    let pairs: Vec<(&EnvironmentSpec, &EnvironmentSpec)> = others
        .iter()
        .filter_map(|spec| Some((*spec, *family.iter().find(|of| of.instances == spec.instances)?)))
        .collect();
    if pairs.iter().all(|(_, against)| against.name == baseline.name) {
        return Vec::new();
    }
    let of = |workload: &str, (spec, against): &(&EnvironmentSpec, &EnvironmentSpec)| {
        Some(SameNumber {
            workload: workload.to_string(),
            instances: spec.instances.unwrap_or(1),
            environment: spec.name.clone(),
            against: against.name.clone(),
            costs: pair_costs(record, workload, &spec.name, &against.name)?,
        })
    };
    let workloads = record.study.workloads.iter();
    workloads
        .flat_map(|workload| pairs.iter().filter_map(move |pair| of(&workload.name, pair)))
        .collect()
}

fn differ_in_instances(one: &EnvironmentSpec, other: &EnvironmentSpec) -> bool {
    Layer::ALL.iter().all(|layer| *layer == Layer::Instances || !layer.differs(one, other))
}

fn one_scaling(
    record: &Record,
    analysis: &Analysis,
    workload: &str,
    family: &[&EnvironmentSpec],
) -> Scaling {
    let first = family[0];
    let point = |(index, spec): (usize, &&EnvironmentSpec)| {
        let found = analysis.findings.iter().find(|finding| {
            finding.workload == workload && finding.environment == spec.name && !finding.control
        });
        let before = index.checked_sub(1).map(|before| family[before]);
        let step = before.and_then(|to| pair_costs(record, workload, &spec.name, &to.name));
        let times = pair_costs(record, workload, &spec.name, &first.name);
        ScalingPoint {
            environment: spec.name.clone(),
            instances: spec.instances.unwrap_or(1),
            throughput_per_s: found.and_then(|finding| finding.throughput_per_s),
            cpu_us: found.and_then(|finding| finding.server_cpu_us),
            times: times.and_then(|pair| pair.throughput).map(|cost| ratio(&cost.percent)),
            step,
        }
    };
    Scaling {
        workload: workload.to_string(),
        points: family.iter().enumerate().map(point).collect(),
    }
}

/// Returns a loss in percent as the ratio of what is left.
fn ratio(loss: &Interval) -> Interval {
    let left = |percent: f64| 1.0 - percent / 100.0;
    let Interval { value, low, high, rounds } = *loss;
    Interval { value: left(value), low: left(high), high: left(low), rounds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equal_shares_and_falls_to_one_in_n() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[9.0, 0.0, 0.0]), Some(1.0 / 3.0));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(slowest_over_median(&[4.0, 1.0, 2.0]), Some(0.5));
    }

    #[test]
    fn a_loss_is_the_ratio_of_what_is_left() {
        let loss = Interval { value: -150.0, low: -160.0, high: -140.0, rounds: 9 };
        let Interval { value, low, high, rounds } = ratio(&loss);
        assert_eq!((value, low, high, rounds), (2.5, 2.4, 2.6, 9));
    }
}
