//! A load tool's output in one form for all tools.

use tare_load::histogram::{self, DecodeError, Histogram};
use tare_load::log::LogError;

/// What a tool printed and logged. Counts are those of the cut if one was asked for and the tool's
/// output can be cut, as each parser documents.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Successful operations by kind, in the tool's names.
    pub(crate) operations: Vec<(String, u64)>,
    /// Failed operations by kind, in the whole run.
    pub(crate) errors: Vec<(String, u64)>,
    /// The run time that the tool reports, in ns.
    pub(crate) elapsed_ns: u64,
    /// Service time, from the send, in ns.
    pub(crate) service: Option<Histogram>,
    /// Response time, from when the operation was due, in ns; open loop only.
    pub(crate) response: Option<Histogram>,
}

/// The part of a run that is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WindowCut {
    /// Its edges, in seconds since 1970.
    pub(crate) unix_s: (f64, f64),
    /// Its edges by the tool's own lines, in seconds since its start.
    pub(crate) tool_s: Option<(f64, f64)>,
}

/// Why an output cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("it reports nothing of {what}; did it end early, or is it another version?")]
    Missing { what: &'static str },
    #[error("its line {line:?} is not of the form {form}")]
    Line { line: String, form: &'static str },
    #[error("its report is not what this version reads")]
    Json(#[from] serde_json::Error),
    #[error("its log is not what this version reads")]
    Log(#[from] LogError),
    #[error("its report holds a histogram that cannot be read")]
    Histogram(#[from] DecodeError),
    #[error(
        "it says {said} {what} in one place and {counted} in another; part of its report was lost"
    )]
    Disagrees { what: &'static str, said: u64, counted: u64 },
}

impl Outcome {
    /// Returns the number of operations of all kinds.
    pub(crate) fn total(&self) -> u64 {
        self.operations.iter().map(|(_, count)| count).sum()
    }
}

/// Shortens a line for a message.
pub(crate) fn shown(line: &str) -> String {
    line.trim().chars().take(120).collect()
}

/// Returns the error of a line in the wrong format.
pub(crate) fn bad(line: &str, form: &'static str) -> OutputError {
    OutputError::Line { line: shown(line), form }
}

/// Reads a number with or without thousands separators.
pub(crate) fn whole(text: &str) -> Option<u64> {
    text.trim().replace(',', "").parse().ok()
}

/// Returns seconds as ns; `None` for an invalid time.
pub(crate) fn ns(seconds: f64) -> Option<u64> {
    let time = std::time::Duration::try_from_secs_f64(seconds).ok()?;
    u64::try_from(time.as_nanos()).ok()
}

/// Adds a histogram of another shape. Its values times `unit_ns` are ns.
pub(crate) fn add(into: &mut Histogram, from: &Histogram, unit_ns: u64) {
    for value in from.iter_recorded() {
        let ns = value.value_iterated_to().saturating_mul(unit_ns);
        into.saturating_record_n(ns, value.count_since_last_iteration());
    }
}

/// Returns a histogram from points of a distribution, (operations that took at most this long, ns).
/// Values between two points count as the slower one: exact at the points, too slow between them.
pub(crate) fn of_points(mut points: Vec<(u64, u64)>) -> Histogram {
    points.sort_unstable_by_key(|(count, ns)| (*ns, *count));
    let (mut histogram, mut counted) = (histogram::new(), 0);
    for (count, ns) in points {
        if count > counted {
            histogram.saturating_record_n(ns, count - counted);
            counted = count;
        }
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_of_points_is_exact_at_them() {
        let histogram = of_points(vec![(100, 9_000), (50, 1_000), (99, 5_000), (99, 7_000)]);
        assert_eq!(histogram.len(), 100);
        let at = |quantile| histogram.value_at_quantile(quantile);
        assert_eq!((at(0.5), at(0.51), at(0.99)), (1_000, 5_003, 5_003));
        assert_eq!(histogram.max(), histogram.highest_equivalent(9_000));
        assert!(of_points(Vec::new()).is_empty());
    }

    #[test]
    fn histograms_of_other_units_are_added_in_ns() {
        let mut theirs = Histogram::new(3).unwrap();
        theirs.record_n(250, 3).unwrap();
        let mut ours = histogram::new();
        add(&mut ours, &theirs, 1_000);
        assert_eq!((ours.len(), ours.max()), (3, ours.highest_equivalent(250_000)));
    }
}
