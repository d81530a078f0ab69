//! The newest costs of a history as one table of GitHub-flavoured Markdown: a row per environment
//! and workload, in the newest record of each study that has it.

use super::{CostPoint, Entry, Figure, Group, History, Series};
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
        for place in places(group) {
            let Some((record, cells)) = newest(group, place) else { continue };
            if !records.contains(&record) {
                records.push(record);
            }
            let study = format!("[{}]({})", escape(&group.study), page(&record.name));
            let role = if place.control { " (A/A)" } else { "" };
            let environment = escape(&place.environment) + role;
            let mut row = vec![study, escape(&record.system), escape(&place.workload), environment];
            row.extend(cells);
            row.push(record.doubts_about(&place.environment, &place.workload).join(", "));
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

/// One series of each workload and environment, in the order of the newest record.
fn places(group: &Group) -> Vec<&Series> {
    let mut places: Vec<&Series> = Vec::new();
    for series in &group.series {
        if !places.iter().any(|place| is_same_place(place, series)) {
            places.push(series);
        }
    }
    places
}

fn is_same_place(a: &Series, b: &Series) -> bool {
    a.workload == b.workload && a.environment == b.environment
}

/// The newest record that has a figure of this environment, and all its figures.
fn newest<'g>(group: &'g Group, place: &Series) -> Option<(&'g Entry, Vec<String>)> {
    let points = |at: usize| {
        FIGURES.map(|figure| {
            let mut all = group.series.iter();
            let found = all.find(|one| one.metric == figure && is_same_place(one, place));
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
