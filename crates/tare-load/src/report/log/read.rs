//! Reads the HdrHistogram logs of any tool, such as Tare, cassandra-stress and YCSB.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry, Tag};

use crate::report::histogram::{self, DecodeError, Histogram};

/// A timestamp that is this much smaller than the log's start counts from that start
/// (`HistogramLogReader`).
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Why a log could not be read. Lines count from 1.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("line {line} is not part of an HdrHistogram log")]
    Line { line: usize },
    #[error("cannot read the interval in line {line}")]
    Interval { line: usize, source: DecodeError },
}

/// One interval of one tag. Its histogram stays encoded, so that hours of them fit into memory.
#[derive(Clone, Copy, Debug)]
pub struct Interval<'t> {
    pub line: usize,
    /// Empty if the log has no tags.
    pub tag: &'t str,
    /// Since 1970 if the log tells when it began, otherwise from its start.
    pub begin: Duration,
    pub length: Duration,
    /// The largest value, in the tool's own unit.
    pub max: f64,
    encoded: &'t str,
}

impl Interval<'_> {
    /// Returns when it ended, on the clock of `begin`.
    pub fn end(&self) -> Duration {
        self.begin.saturating_add(self.length)
    }

    /// Decodes its histogram, in the tool's unit.
    pub fn histogram(&self) -> Result<Histogram, LogError> {
        let line = self.line;
        let bytes = STANDARD.decode(self.encoded).map_err(|_| LogError::Line { line })?;
        histogram::decode(&bytes).map_err(|source| LogError::Interval { line, source })
    }
}

/// Returns the intervals of a log, in its order.
///
/// # Errors
/// If a line is not part of such a log or is incomplete; the error names the first one.
pub fn intervals(text: &str) -> Result<Vec<Interval<'_>>, LogError> {
    let (mut start, mut base) = (None, None);
    let mut intervals = Vec::new();
    for (line, text) in (1..).zip(text.split_inclusive('\n')) {
        if text.trim().is_empty() {
            continue;
        }
        for entry in IntervalLogIterator::new(text.as_bytes()) {
            match entry.map_err(|_| LogError::Line { line })? {
                LogEntry::StartTime(time) => start = Some(time),
                LogEntry::BaseTime(time) => base = Some(time),
                LogEntry::Interval(interval) => {
                    let stamp = interval.start_timestamp();
                    let relative = start.filter(|start| stamp.saturating_add(YEAR) < *start);
                    let begin = base.or(relative).unwrap_or_default().checked_add(stamp);
                    intervals.push(Interval {
                        line,
                        tag: interval.tag().as_ref().map_or("", Tag::as_str),
                        begin: begin.ok_or(LogError::Line { line })?,
                        length: interval.duration(),
                        max: interval.max(),
                        encoded: interval.encoded_histogram(),
                    });
                }
            }
        }
    }
    Ok(intervals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_count_from_the_base_or_the_start() {
        let begins = |head: &str, stamp: &str| {
            let text = format!("{head}\n\"StartTimestamp\",\"...\"\n\n{stamp},1.000,2.000,AAAA\n");
            let begins: Vec<f64> =
                intervals(&text).unwrap().iter().map(|one| one.begin.as_secs_f64()).collect();
            begins
        };
        let start = "#[StartTime: 1700000000.500 (seconds since epoch)]";
        assert_eq!(begins(start, "2.250"), [1_700_000_002.75]);
        assert_eq!(begins(start, "1700000003.0"), [1_700_000_003.0]);
        let base = format!("{start}\n#[BaseTime: 1600000000.0 (seconds since epoch)]");
        assert_eq!(begins(&base, "2.0"), [1_600_000_002.0]);
        assert_eq!(begins("# no word of when", "2.0"), [2.0]);
    }

    #[test]
    fn broken_log_is_refused_with_its_line() {
        let huge = "#[BaseTime: 18446744073709551615.9 (s)]\n18446744073709551615.9,1.0,1.0,AAAA\n";
        for (text, line) in [
            ("garbage\n", 1),
            ("# fine\nTag=A\n", 2),
            ("Tag=A,x,1.0,1.0,HIST\n", 1),
            ("-1.0,1.0,1.0,HIST\n", 1),
            ("\n\n1.0,1.0,1.0,TORN", 3),
            (huge, 2),
        ] {
            let expect = format!("line {line} is not part of an HdrHistogram log");
            assert_eq!(intervals(text).unwrap_err().to_string(), expect, "{text}");
        }
        for encoded in ["!!", "SElTVA=="] {
            let text = format!("1.0,1.0,1.0,{encoded}\n");
            assert!(intervals(&text).unwrap()[0].histogram().is_err(), "{encoded}");
        }
    }
}
