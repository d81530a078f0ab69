//! The newest costs of a history as one table of GitHub-flavoured Markdown: a row per environment
//! and workload, in the newest record of each study that has it.

use super::{CostPoint, Entry, Figure, Group, History};
use crate::escape::markdown as escape;
use crate::figures::{CostFormat, cost, utc};
use crate::markdown::table_of;

const HEAD: [&str; 9] = [
    "study",
    "system",
    "workload",
    "environment",
    "CPU cost [95 %]",
    "throughput lost [95 %]",
    "longer p99 at the rate [95 %]",
    "doubts",
    "day",
];
const FIGURES: [Figure; 3] = [Figure::ServerCpu, Figure::Throughput, Figure::P99];

/// The table, then the doubts about whole records. `page` returns what the name of a record links
/// to. Costs in bold are claimed: they are beyond the noise of the record's A/A control, which is
/// in the table too.
pub fn markdown(history: &History, page: impl Fn(&str) -> String) -> String {
    let mut rows = Vec::new();
    let mut records: Vec<&Entry> = Vec::new();
    for group in &history.groups {
        for (workload, environment) in places(group) {
            let Some((record, cells)) = newest(group, workload, environment) else { continue };
            if !records.contains(&record) {
                records.push(record);
            }
            let study = format!("[{}]({})", escape(&group.study), page(&record.name));
            let mut row = vec![study, escape(&record.system), escape(workload)];
            row.push(name(group, workload, environment));
            row.extend(cells);
            row.push(record.doubts_about(environment, workload).join(", "));
            row.push(utc(record.started_unix_ms).chars().take(10).collect());
            rows.push(row);
        }
    }
    let mut text = table_of(&HEAD, &rows) + "\n";
    for record in records {
        let doubts = record.doubts_about_all();
        if !doubts.is_empty() {
            let study = escape(&record.study);
            text += &format!("\nDoubts about the whole of {study}: {}.\n", doubts.join(", "));
        }
    }
    text
}

/// Workloads and environments, each once, in the order of the newest record.
fn places(group: &Group) -> Vec<(&str, &str)> {
    let mut places = Vec::new();
    for series in &group.series {
        let place = (series.workload.as_str(), series.environment.as_str());
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// The newest record that has a figure of this environment, and all its figures.
fn newest<'g>(
    group: &'g Group,
    workload: &str,
    environment: &str,
) -> Option<(&'g Entry, Vec<String>)> {
    let points = |at: usize| {
        FIGURES.map(|figure| {
            let mut all = group.series.iter();
            let found = all.find(|one| {
                (one.metric, one.workload.as_str(), one.environment.as_str())
                    == (figure, workload, environment)
            });
            found.and_then(|series| series.costs.get(at)?.as_ref())
        })
    };
    let at = (0..group.records.len()).rev().find(|at| points(*at).iter().any(Option::is_some))?;
    Some((&group.records[at], points(at).map(cell).into()))
}

fn cell(point: Option<&CostPoint>) -> String {
    let Some(point) = point else { return "-".to_string() };
    let text = cost(&point.cost, point.verdict, CostFormat::Short);
    if point.is_claimed() { format!("**{text}**") } else { text }
}

fn name(group: &Group, workload: &str, environment: &str) -> String {
    let is_control = group
        .series
        .iter()
        .any(|one| one.control && one.workload == workload && one.environment == environment);
    let name = escape(environment);
    if is_control { format!("{name} (A/A)") } else { name }
}
