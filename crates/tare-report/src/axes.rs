//! Workloads that differ in one number: jobs, block size, requests in flight. Charts draw them as
//! lines over that number instead of bars next to each other.
//!
//! Method: workloads are a sweep of a setting if they agree in everything but its value and there
//! are at least [`VALUES_MIN`] values. It makes no difference whether the study wrote them as a
//! `[[sweep]]` or one by one, so records of every version have their axes.

use std::collections::BTreeMap;

use serde_json::Value;
use tare_lab::study::{Study, WorkloadSpec};
use tare_std::units::parse_bytes;

/// The fewest values of an axis. Two workloads often differ in one number by chance, as reads and
/// writes do in `write_share`.
const VALUES_MIN: usize = 3;
/// Two rates are enough: a study does not have them by chance.
const RATES_MIN: usize = 2;

/// Settings without influence on which workloads are alike.
const NOT_COMPARED: [&str; 4] = ["name", "load", "rate_only", "slo"];

/// One value of an axis and the workload that has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AxisPoint<'s> {
    pub(crate) value: f64,
    /// The value as the study has it, such as `64k`.
    pub(crate) text: String,
    pub(crate) workload: &'s str,
}

/// A setting with a number in several workloads that agree in everything else.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis<'s> {
    /// Name of the setting, such as `numjobs`.
    pub(crate) setting: String,
    /// Name of the workload that comes first in the study, which a sweep copies.
    pub(crate) workload: &'s str,
    /// Every workload of the axis; of two with the same value one is a point.
    pub(crate) workloads: Vec<&'s str>,
    /// In ascending order.
    pub(crate) points: Vec<AxisPoint<'s>>,
}

impl Axis<'_> {
    /// The setting in words, where its name in the study is an abbreviation.
    pub(crate) fn label(&self) -> String {
        match self.setting.as_str() {
            "numjobs" => "jobs".to_string(),
            "bs" => "block size".to_string(),
            "iodepth" => "queue depth".to_string(),
            "in_flight" => "requests in flight".to_string(),
            "rate_per_s" => "rate, op/s".to_string(),
            name => name.replace('_', " "),
        }
    }
}

/// Whether ascending values belong on a logarithmic scale: they are powers of two, or the largest
/// is many times the smallest.
pub(crate) fn is_log(values: &[f64]) -> bool {
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return false };
    let is_power_of_two = |value: &f64| value.log2().fract().abs() < 1e-9;
    *first > 0.0 && (values.iter().all(is_power_of_two) || last / first >= 16.0)
}

/// The axes of a study, in the order of their first workloads.
pub(crate) fn axes(study: &Study) -> Vec<Axis<'_>> {
    let settings: Vec<BTreeMap<String, String>> = study.workloads.iter().map(settings).collect();
    let mut found: Vec<Axis<'_>> = Vec::new();
    // The name of a setting and everything else about the workload, per axis in `found`.
    let mut kinds: Vec<(String, BTreeMap<String, String>)> = Vec::new();
    for (workload, own) in study.workloads.iter().zip(&settings) {
        for (name, text) in own {
            let Some(value) = number(text) else { continue };
            let mut rest = own.clone();
            rest.remove(name);
            let kind = (name.clone(), rest);
            let point = AxisPoint { value, text: text.clone(), workload: &workload.name };
            match kinds.iter().position(|known| *known == kind) {
                Some(at) => {
                    found[at].workloads.push(&workload.name);
                    found[at].points.push(point);
                }
                None => {
                    kinds.push(kind);
                    found.push(Axis {
                        setting: name.clone(),
                        workload: &workload.name,
                        workloads: vec![&workload.name],
                        points: vec![point],
                    });
                }
            }
        }
    }
    for axis in &mut found {
        axis.points.sort_by(|a, b| a.value.total_cmp(&b.value));
        axis.points.dedup_by(|a, b| a.value.total_cmp(&b.value).is_eq());
    }
    let least = |axis: &Axis<'_>| match axis.setting.as_str() {
        "rate_per_s" => RATES_MIN,
        _ => VALUES_MIN,
    };
    found.retain(|axis| axis.points.len() >= least(axis));
    found
}

/// A plain number, or a size such as `64k`.
fn number(text: &str) -> Option<f64> {
    let plain = text.parse().ok().filter(|value: &f64| value.is_finite());
    plain.or_else(|| parse_bytes(text).ok().map(|bytes| bytes as f64))
}

/// Everything that makes two workloads different, as text.
fn settings(workload: &WorkloadSpec) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let Ok(Value::Object(fields)) = serde_json::to_value(workload) else { return settings };
    for (name, value) in fields {
        match value {
            _ if NOT_COMPARED.contains(&name.as_str()) || name == "options" => {}
            // A climb finds another number for each workload.
            _ if name == "in_flight" && workload.load.saturate.is_some() => {}
            Value::Object(inner) => settings.extend(
                inner.into_iter().map(|(key, value)| (format!("{name}.{key}"), text(&value))),
            ),
            value => {
                settings.insert(name, text(&value));
            }
        }
    }
    settings.extend(workload.options.iter().cloned());
    settings
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), short),
        other => other.to_string(),
    }
}

/// `8` for a whole number, which JSON may have as `8.0`.
fn short(number: f64) -> String {
    format!("{number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn sweeps_of_a_study_are_axes() {
        let (record, _) = fixture::sweep();
        let found = axes(&record.study);
        let shown: Vec<(String, &str, Vec<&str>)> = found
            .iter()
            .map(|axis| {
                let texts = axis.points.iter().map(|point| point.text.as_str()).collect();
                (axis.label(), axis.workload, texts)
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("block size".to_string(), "random read", vec!["4k", "16k", "64k", "256k", "1M"]),
                ("jobs".to_string(), "random read", vec!["1", "2", "4", "8", "24", "64"]),
            ]
        );
        assert_eq!(found[1].workloads.len(), 6);
        assert_eq!(found[1].points[2].workload, "random read", "the copied workload is a point");
    }

    #[test]
    fn different_workloads_have_no_axis() {
        let (record, _) = fixture::two_workloads();
        assert_eq!(axes(&record.study), []);
    }

    #[test]
    fn only_wide_ranges_and_powers_of_two_are_logarithmic() {
        for (values, expect) in [
            (vec![1.0, 2.0, 4.0], true),
            (vec![10.0, 20.0, 30.0], false),
            (vec![1.0, 3.0, 24.0], true),
            (vec![0.0, 0.5, 1.0], false),
            (vec![0.25, 0.5, 1.0], true),
            (vec![], false),
        ] {
            assert_eq!(is_log(&values), expect, "{values:?}");
        }
    }
}
