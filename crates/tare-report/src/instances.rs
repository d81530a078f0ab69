//! Several instances in one environment, as every text, the page and JSON have them: what each did,
//! how even they were, and what a further instance adds.

use serde::Serialize;
use tare_lab::analysis::{
    Analysis, Cost, InstanceFigures, Interval, SameNumber, Scaling, ScalingPoint, claims,
    instance_figures, same_numbers, scaling,
};
use tare_lab::record::Record;
use tare_std::units::{nanoseconds, significant};

use crate::figures::{CostFormat, clean, cost, micros, rate, with_interval};
use crate::headline::{Metric, is_claim};

/// What is above each table.
pub(crate) const CAPTION: &str = "Each instance at capacity, as medians over slices (fairness is 1 if \
                                  all do the same, and one over their number if one does all):";
pub(crate) const SCALING_CAPTION: &str =
    "Environments that differ in the number of instances alone, over the rounds of both:";

/// The head of the table of instances.
pub(crate) const HEAD: [&str; 6] = [
    "environment",
    "op/s of each instance",
    "fairness (Jain)",
    "slowest / median",
    "CPU of each, µs/op",
    "p99 of the worst",
];

/// The head of the table of numbers of instances.
pub(crate) const SCALING_HEAD: [&str; 6] = [
    "instances",
    "environment",
    "throughput, op/s [95 %]",
    "times the first [95 %]",
    "efficiency",
    "server CPU, µs/op [95 %]",
];

/// The head of the table of equal numbers, whose costs are losses.
pub(crate) const SAME_CAPTION: &str =
    "Each against the baseline's layers with as many instances, over the rounds of both:";
pub(crate) const SAME_HEAD: [&str; 5] = [
    "instances",
    "environment",
    "against",
    "cost in server CPU [95 %]",
    "cost in throughput [95 %]",
];

/// The tables of one workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct InstanceTables {
    pub(crate) workload: String,
    pub(crate) instances: Vec<InstanceFigures>,
    pub(crate) scaling: Vec<Scaling>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) same_numbers: Vec<SameNumber>,
}

/// Returns the tables of each workload that has any, in the order of the study.
pub(crate) fn tables(record: &Record, analysis: &Analysis) -> Vec<InstanceTables> {
    let (figures, scalings) = (instance_figures(record), scaling(record, analysis));
    let same = same_numbers(record);
    let of = |workload: &str| InstanceTables {
        workload: workload.to_string(),
        instances: figures.iter().filter(|one| one.workload == workload).cloned().collect(),
        scaling: scalings.iter().filter(|one| one.workload == workload).cloned().collect(),
        same_numbers: same.iter().filter(|one| one.workload == workload).cloned().collect(),
    };
    let all = record.study.workloads.iter().map(|workload| of(&workload.name));
    all.filter(|one| !one.instances.is_empty() || !one.scaling.is_empty()).collect()
}

impl InstanceTables {
    /// The rows under [`HEAD`].
    pub(crate) fn instance_rows(&self) -> Vec<Vec<String>> {
        self.instances.iter().map(instance_row).collect()
    }

    /// The rows under [`SCALING_HEAD`] of each group of environments.
    pub(crate) fn scaling_rows(&self) -> Vec<Vec<Vec<String>>> {
        let rows = |one: &Scaling| {
            let least = one.points.first().map_or(1, |point| point.instances);
            one.points.iter().map(|point| scaling_row(point, least)).collect()
        };
        self.scaling.iter().map(rows).collect()
    }

    /// The rows under [`SAME_HEAD`].
    pub(crate) fn same_rows(&self, analysis: &Analysis) -> Vec<Vec<String>> {
        self.same_numbers.iter().map(|one| same_row(one, analysis)).collect()
    }
}

fn instance_row(of: &InstanceFigures) -> Vec<String> {
    let each = |text: &dyn Fn(usize) -> Option<String>| {
        let texts: Option<Vec<String>> = (0..of.instances.len()).map(text).collect();
        texts.map_or_else(|| "-".to_string(), |texts| texts.join(", "))
    };
    let phase = if of.is_at_rate { "at the rate" } else { "at capacity" };
    vec![
        clean(&of.environment),
        each(&|number| Some(rate(of.instances[number].operations_per_s))),
        format!("{:.3}", of.fairness),
        significant(of.slowest_over_median, 3),
        each(&|number| of.instances[number].cpu_us.map(micros)),
        of.worst_p99_ns.map_or("-".into(), |ns| format!("{} {phase}", nanoseconds(ns))),
    ]
}

fn scaling_row(point: &ScalingPoint, least: u32) -> Vec<String> {
    let figure = |interval: Option<&Interval>, form: fn(f64) -> String| {
        interval.map_or("-".to_string(), |interval| with_interval(interval, form))
    };
    let efficiency = point.efficiency(least);
    vec![
        point.instances.to_string(),
        clean(&point.environment),
        figure(point.throughput_per_s.as_ref(), rate),
        figure(point.times.as_ref(), times),
        efficiency.map_or("-".into(), |share| format!("{} %", significant(100.0 * share, 2))),
        figure(point.cpu_us.as_ref(), micros),
    ]
}

fn same_row(of: &SameNumber, analysis: &Analysis) -> Vec<String> {
    let names = [of.environment.as_str(), of.against.as_str()];
    let figure = |found: Option<&Cost>, metric: Metric| {
        found.map_or("-".to_string(), |found| {
            let verdict = claims::judge_cost(analysis, &of.workload, names, metric, found);
            cost(found, Some(verdict), CostFormat::Short)
        })
    };
    vec![
        of.instances.to_string(),
        clean(&of.environment),
        clean(&of.against),
        figure(of.costs.cpu.as_ref(), Metric::ServerCpu),
        figure(of.costs.throughput.as_ref(), Metric::Throughput),
    ]
}

/// Formats a ratio: `2.91`.
pub(crate) fn times(ratio: f64) -> String {
    significant(ratio, 3)
}

/// Returns the position of the last point before one that adds no throughput beyond the noise:
/// `None` if every further number of instances adds some, or the first one adds none.
pub(crate) fn knee(analysis: &Analysis, scaling: &Scaling) -> Option<usize> {
    let adds = |index: usize| {
        let (point, before) = (&scaling.points[index], &scaling.points[index - 1]);
        let cost = point.step.as_ref()?.throughput.as_ref()?;
        let names = [point.environment.as_str(), before.environment.as_str()];
        let claim = is_claim(analysis, &scaling.workload, names, Metric::Throughput, cost);
        Some(claim && cost.percent.value < 0.0)
    };
    let first = (1..scaling.points.len()).find(|index| adds(*index) == Some(false))?;
    Some(first - 1)
}

#[cfg(test)]
mod tests {
    use tare_lab::analysis::analyse;

    use super::*;
    use crate::fixture;

    #[test]
    fn equal_numbers_are_compared() {
        let (mut record, analysis) = fixture::instances();
        assert!(tables(&record, &analysis)[0].same_numbers.is_empty(), "one family");
        let mut boxed =
            record.environments.iter().find(|one| one.spec.name == "two").cloned().unwrap();
        boxed.spec.name = "boxed".into();
        boxed.spec.runtime = "oci:runc".into();
        record.study.environments.push(boxed.spec.clone());
        record.environments.push(boxed);
        let of_two = record.slices.iter().filter(|slice| slice.environment == "two");
        let mut slices: Vec<_> = of_two.cloned().collect();
        for slice in &mut slices {
            slice.environment = "boxed".into();
            slice.operations /= 2;
        }
        record.slices.extend(slices);
        let analysis = analyse(&record);
        let rows = tables(&record, &analysis)[0].same_rows(&analysis);
        let row: Vec<&str> = rows[0].iter().map(String::as_str).collect();
        assert_eq!((rows.len(), &row[..3]), (1, &["2", "boxed", "two"][..]));
        // Half the throughput of two processes, although nearly all of that of one.
        assert!(row[3].starts_with("+100.0 %") && row[4].starts_with("+50.0 %"), "{row:?}");
    }
}
