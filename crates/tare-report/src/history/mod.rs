//! The history of many records: the cost of each environment over time, where it changed, and what
//! changed on the host and in the study at that step.
//!
//! Records of one study and baseline on one host form a group, in the order of their starts. A
//! series is one environment under one workload by one metric. Its change points come from
//! [`tare_stats::change`]; a change is claimed only beyond the noise of the A/A controls on both
//! sides.
//!
//! An [`Entry`] has what a history shows of a record, so that the records themselves need not stay
//! in memory.

mod csv;
mod entry;
mod figure;
mod json;
mod markdown;
mod prometheus;
mod series;
mod terminal;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::figures::{clean, percent_interval, utc};

pub use self::csv::csv;
pub use entry::{Entry, FactChange};
pub use figure::Figure;
pub use json::json;
pub use markdown::markdown;
pub use prometheus::prometheus;
pub use series::{CostChange, CostPoint, Series};
pub use terminal::terminal;

pub(crate) const METHOD: &str = "A change is a step of the mean between at least three records on each side, found by optimal partitioning and Student's t with at most one false change in 100 series, and claimed only beyond the noise of the A/A controls. Its interval is 95 %. A cost in brackets is not claimed by its own record.";

/// Most facts of a step in a sentence or a line; the number of the others follows.
const FACTS_NAMED: usize = 4;

/// A file without figures, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    pub name: String,
    pub reason: String,
}

/// Records of one study and baseline on one host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    pub study: String,
    pub baseline: String,
    /// `None` if the records have no host name.
    pub host: Option<String>,
    /// In the order of time.
    pub records: Vec<Entry>,
    /// What differs between a record and the one before it: as many as there are records, the first
    /// without a change.
    pub steps: Vec<Vec<FactChange>>,
    pub series: Vec<Series>,
    /// More percentiles of response times, in which no changes are looked for.
    pub percentiles: Vec<Series>,
}

/// The history of a set of records, from which every format is written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct History {
    /// By study and host.
    pub groups: Vec<Group>,
    pub unreadable: Vec<Unreadable>,
    /// Copies of a record that is in a group: the name of the copy and of that record.
    pub copies: Vec<(String, String)>,
}

impl History {
    /// Groups the records and finds the changes. The order of the entries does not matter.
    pub fn new(mut entries: Vec<Entry>, unreadable: Vec<Unreadable>) -> Self {
        let key = |one: &Entry| (one.study.clone(), one.host.clone(), one.baseline.clone());
        entries.sort_by_key(|one| (key(one), one.started_unix_ms, one.seed, one.name.clone()));
        let mut groups: Vec<Group> = Vec::new();
        let mut copies = Vec::new();
        for entry in entries {
            let same = |group: &&mut Group| {
                group.study == entry.study
                    && group.host == entry.host
                    && group.baseline == entry.baseline
            };
            let Some(group) = groups.last_mut().filter(same) else {
                groups.push(Group {
                    study: entry.study.clone(),
                    baseline: entry.baseline.clone(),
                    host: entry.host.clone(),
                    records: vec![entry],
                    steps: Vec::new(),
                    series: Vec::new(),
                    percentiles: Vec::new(),
                });
                continue;
            };
            match group.records.iter().rev().find(|one| one.is_same_run(&entry)) {
                Some(first) => copies.push((entry.name, first.name.clone())),
                None => group.records.push(entry),
            }
        }
        for group in &mut groups {
            group.steps = entry::steps(&group.records);
            (group.series, group.percentiles) = series::all(&group.records);
        }
        Self { groups, unreadable, copies }
    }

    /// Number of records in all groups.
    pub fn records(&self) -> usize {
        self.groups.iter().map(|group| group.records.len()).sum()
    }

    /// Whether any change is claimed: a cost that rose, or any.
    pub fn has_claimed_change(&self, only_rise: bool) -> bool {
        let changes = self.groups.iter().flat_map(|group| &group.series).flat_map(|s| &s.changes);
        changes
            .filter(|change| change.verdict.is_claim())
            .any(|change| !only_rise || change.percent.value > 0.0)
    }
}

impl Group {
    /// All series, those with changes first.
    pub(crate) fn all_series(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().chain(&self.percentiles)
    }

    /// `quick` or `quick on HOST`.
    pub(crate) fn title(&self) -> String {
        match &self.host {
            Some(host) => format!("{} on {host}", self.study),
            None => self.study.clone(),
        }
    }

    /// The claimed changes, the newest first, and the largest of one record first.
    pub(crate) fn claimed(&self) -> Vec<(&Series, &CostChange)> {
        let mut found: Vec<(&Series, &CostChange)> = self
            .series
            .iter()
            .flat_map(|series| series.changes.iter().map(move |change| (series, change)))
            .filter(|(_, change)| change.verdict.is_claim())
            .collect();
        found.sort_by(|(_, a), (_, b)| {
            let size = |change: &CostChange| change.percent.value.abs();
            b.at.cmp(&a.at).then(size(b).total_cmp(&size(a)))
        });
        found
    }

    /// Each claimed change as a sentence, or that none was found.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let found = self.claimed();
        if found.is_empty() {
            return vec![self.no_change()];
        }
        let sentence = |(series, change): (&Series, &CostChange)| {
            let since = self.records.get(change.at).map_or(0, |record| record.started_unix_ms);
            let mut text = format!(
                "\"{}\" ({}): cost in {} changed by {} at {} ({} records before, {} since)",
                clean(&series.environment),
                clean(&series.workload),
                series.metric.of_what(),
                percent_interval(&change.percent),
                minute(since),
                change.before,
                change.after
            );
            match self.steps.get(change.at).map(|facts| facts_text(facts)) {
                Some(facts) if !facts.is_empty() => text += &format!("; changed there: {facts}"),
                _ => text += "; no recorded fact of host or study changed there",
            }
            text
        };
        found.into_iter().map(sentence).collect()
    }

    fn no_change(&self) -> String {
        let count = self.series.iter().filter(|series| !series.control).count();
        if self.records.len() < 2 * tare_stats::change::RECORDS_MIN {
            return format!(
                "{} of the {} records that a change needs (three on each side); `tare compare` \
                 compares single records",
                self.records.len(),
                2 * tare_stats::change::RECORDS_MIN
            );
        }
        let least = self.series.iter().filter(|series| !series.control);
        let least = least.filter_map(|series| series.least_step_percent).reduce(f64::max);
        let within = least.map(|least| {
            format!(" (a step of {least:.1} % in the newest three is found half the time)")
        });
        format!(
            "no change found in {count} series of {} records{}",
            self.records.len(),
            within.unwrap_or_default()
        )
    }
}

/// The facts of a step in a few words.
pub(crate) fn facts_text(facts: &[FactChange]) -> String {
    let mut words: Vec<String> = facts.iter().take(FACTS_NAMED).map(FactChange::text).collect();
    if facts.len() > FACTS_NAMED {
        words.push(format!("and {} more facts", facts.len() - FACTS_NAMED));
    }
    words.join(", ")
}

/// `2026-11-21 02:49` from milliseconds since 1970, in UTC.
pub(crate) fn minute(unix_ms: u64) -> String {
    utc(unix_ms).chars().take(16).collect()
}
