//! The newest costs of a history and their last change, for the textfile collector of
//! node_exporter, in the form of [`crate::prometheus`]. There are no timestamps of samples, which
//! the collector refuses, so older records are not exported.

use tare_lab::analysis::Interval;

use super::{Group, History, Series};
use crate::prometheus::Figures;

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// All metrics of a history. Lines end in LF.
#[expect(clippy::cast_precision_loss, reason = "counts and times are far below 2^53")]
pub fn prometheus(history: &History) -> String {
    let mut out = Figures::default();
    out.gauge("tare_history_records", "Records of a study on a host.");
    for group in &history.groups {
        out.sample(&labels(group), group.records.len() as f64);
    }
    out.gauge("tare_history_unreadable_records", "Files that could not be read.");
    out.sample(&[], history.unreadable.len() as f64);
    out.gauge(
        "tare_history_newest_timestamp_seconds",
        "Start of the newest record, in seconds since 1970.",
    );
    for group in &history.groups {
        if let Some(newest) = group.records.last() {
            out.sample(&labels(group), newest.started_unix_ms as f64 / 1e3);
        }
    }
    out.gauge(
        "tare_history_cost_ratio",
        "Cost in the newest record that has it, as a share of 1; above 0 is a loss. of: server_cpu, throughput, p50, p95, p99 or p99.9. 95 % interval by bound.",
    );
    let percentiles = history
        .groups
        .iter()
        .flat_map(|group| group.percentiles.iter().map(move |series| (group, series)));
    for (group, series) in all(history).chain(percentiles) {
        if let Some(newest) = series.costs.iter().flatten().last() {
            bounds(&mut out, labels_of(group, series), &newest.cost.percent);
        }
    }
    out.gauge("tare_history_changes", "Claimed changes of the cost over all records.");
    for (group, series) in all(history) {
        let claimed = series.changes.iter().filter(|change| change.verdict.is_claim());
        out.sample(&labels_of(group, series), claimed.count() as f64);
    }
    out.gauge(
        "tare_history_last_change_ratio",
        "The last claimed change: the new cost over the old one, as a share of 1. 95 % interval by bound. Absent without a change.",
    );
    for (group, series) in all(history) {
        if let Some(change) = last(series) {
            bounds(&mut out, labels_of(group, series), &change.percent);
        }
    }
    out.gauge(
        "tare_history_last_change_timestamp_seconds",
        "Start of the first record after the last claimed change, in seconds since 1970.",
    );
    for (group, series) in all(history) {
        if let Some(change) = last(series) {
            let since = group.records[change.at].started_unix_ms as f64 / 1e3;
            out.sample(&labels_of(group, series), since);
        }
    }
    out.text()
}

fn all(history: &History) -> impl Iterator<Item = (&Group, &Series)> {
    let of = |group| -> Vec<(&Group, &Series)> {
        let group: &Group = group;
        group.series.iter().map(|series| (group, series)).collect()
    };
    history.groups.iter().flat_map(of)
}

fn last(series: &Series) -> Option<&super::CostChange> {
    series.changes.iter().rev().find(|change| change.verdict.is_claim())
}

fn labels(group: &Group) -> Labels<'_> {
    vec![
        ("study", group.study.as_str()),
        ("host", group.host.as_deref().unwrap_or_default()),
        ("baseline", &group.baseline),
    ]
}

fn labels_of<'a>(group: &'a Group, series: &'a Series) -> Labels<'a> {
    let mut labels = labels(group);
    labels.extend([
        ("workload", series.workload.as_str()),
        ("environment", series.environment.as_str()),
        ("of", series.metric.name()),
    ]);
    labels
}

fn bounds(out: &mut Figures, labels: Labels<'_>, percent: &Interval) {
    let mut bound = |name: &'static str, value: f64| {
        let mut labels = labels.clone();
        labels.push(("bound", name));
        out.sample(&labels, value / 100.0);
    };
    bound("value", percent.value);
    if percent.is_bounded() {
        bound("lower", percent.low);
        bound("upper", percent.high);
    }
}
