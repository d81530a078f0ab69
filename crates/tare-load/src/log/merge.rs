//! The logs of several loaders as one, without loss: every count of every interval is in it.
//!
//! Intervals of one tag that lie over each other by half or more become one. What cannot be added
//! without loss (histograms of another precision) is refused.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry, Tag};
use serde::Serialize;

use super::Span;
use crate::histogram::{self, DecodeError, Histogram, Quantiles};

/// Why logs could not be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    #[error("cannot read the log {path}", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("line {line} of {path} is not of an HdrHistogram log", path = .path.display())]
    Line { path: PathBuf, line: usize },
    #[error("cannot read the interval in line {line} of {path}", path = .path.display())]
    Interval { path: PathBuf, line: usize, source: DecodeError },
    #[error("there is no interval in {path}", path = .path.display())]
    Empty { path: PathBuf },
    #[error(
        "line {line} of {path} counts {found}, the lines before {expected}; merge only logs of one \
         tool", path = .path.display()
    )]
    Precision { path: PathBuf, line: usize, found: String, expected: String },
    #[error("cannot write the merged log")]
    Write { source: io::Error },
}

/// What was merged.
#[derive(Clone, Debug, Serialize)]
pub struct Merged {
    pub logs: usize,
    pub intervals_read: usize,
    pub intervals_written: usize,
    pub tags: Vec<TagReport>,
}

/// All times under a tag.
#[derive(Clone, Debug, Serialize)]
pub struct TagReport {
    /// Empty where the logs have none.
    pub tag: String,
    #[serde(flatten)]
    pub quantiles: Quantiles,
}

/// An interval as it was read, its histogram still encoded: an hour of them fits into memory.
struct Logged {
    path: usize,
    line: usize,
    tag: String,
    /// Since the epoch, where the log says when it began; else from its start.
    begin_s: f64,
    length_s: f64,
    max: f64,
    encoded: String,
}

/// Merges the logs at `paths` into `out`.
///
/// # Errors
/// Names the file and line that is no part of an HdrHistogram log or cannot be added without loss.
pub fn merge(paths: &[PathBuf], out: &mut dyn Write) -> Result<Merged, MergeError> {
    let mut intervals = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        let text = std::fs::read_to_string(path)
            .map_err(|source| MergeError::Read { path: path.clone(), source })?;
        let before = intervals.len();
        read(&text, path, number, &mut intervals)?;
        if intervals.len() == before {
            return Err(MergeError::Empty { path: path.clone() });
        }
    }
    let intervals_read = intervals.len();
    let start_s = intervals.iter().map(|one| one.begin_s).fold(f64::INFINITY, f64::min);
    let mut lengths: Vec<f64> = intervals.iter().map(|one| one.length_s).collect();
    lengths.sort_by(f64::total_cmp);
    let grid_s = lengths.get(lengths.len() / 2).copied().unwrap_or(1.0).max(0.001);
    let mut groups: BTreeMap<(i64, String), Vec<Logged>> = BTreeMap::new();
    for interval in intervals {
        #[expect(clippy::cast_possible_truncation, reason = "a number of intervals")]
        let place = ((interval.begin_s - start_s) / grid_s).round() as i64;
        groups.entry((place, interval.tag.clone())).or_default().push(interval);
    }
    let write = |out: &mut dyn Write, text: &str| {
        out.write_all(text.as_bytes()).map_err(|source| MergeError::Write { source })
    };
    write(out, &super::head(UNIX_EPOCH + Duration::from_secs_f64(start_s.max(0.0))))?;
    let mut totals: BTreeMap<String, Histogram> = BTreeMap::new();
    let mut unit = None;
    let intervals_written = groups.len();
    for ((_, tag), group) in groups {
        let mut sum: Option<Histogram> = None;
        let (mut begin_s, mut end_s, mut max) = (f64::INFINITY, 0.0f64, 0.0f64);
        for interval in group {
            let histogram = interval.decode(paths, &mut unit)?;
            begin_s = begin_s.min(interval.begin_s);
            end_s = end_s.max(interval.begin_s + interval.length_s);
            max = max.max(interval.max);
            add(&mut sum, histogram);
        }
        let Some(sum) = sum else { continue };
        let span = Span {
            begin: Duration::from_secs_f64((begin_s - start_s).max(0.0)),
            length: Duration::from_secs_f64((end_s - begin_s).max(0.0)),
        };
        let text = super::line(&tag, span, max, &sum);
        // A log without tags stays one.
        write(out, if tag.is_empty() { &text["Tag=,".len()..] } else { &text })?;
        let mut total = totals.remove(&tag);
        add(&mut total, sum);
        totals.extend(total.map(|total| (tag, total)));
    }
    out.flush().map_err(|source| MergeError::Write { source })?;
    let tags = totals
        .iter()
        .map(|(tag, total)| TagReport { tag: tag.clone(), quantiles: Quantiles::of(total) });
    Ok(Merged { logs: paths.len(), intervals_read, intervals_written, tags: tags.collect() })
}

/// Adds a histogram of the same unit and precision; the range grows as it must.
fn add(sum: &mut Option<Histogram>, mut histogram: Histogram) {
    match sum {
        None => {
            histogram.auto(true);
            *sum = Some(histogram);
        }
        Some(sum) => sum.add(&histogram).expect("a histogram that grows takes every value"),
    }
}

impl Logged {
    /// Decodes the histogram. Those before say the unit and precision that it must have.
    fn decode(
        &self,
        paths: &[PathBuf],
        unit: &mut Option<(u64, u8)>,
    ) -> Result<Histogram, MergeError> {
        let path = || paths.get(self.path).cloned().unwrap_or_default();
        let line = self.line;
        let bytes =
            STANDARD.decode(&self.encoded).map_err(|_| MergeError::Line { path: path(), line })?;
        let histogram = histogram::decode(&bytes).map_err(|source| MergeError::Interval {
            path: path(),
            line,
            source,
        })?;
        let found = (histogram.low(), histogram.sigfig());
        let expected = *unit.get_or_insert(found);
        if found != expected {
            let text = |(low, digits)| format!("from {low} in {digits} digits");
            let (found, expected) = (text(found), text(expected));
            return Err(MergeError::Precision { path: path(), line, found, expected });
        }
        Ok(histogram)
    }
}

/// Reads the intervals of a log.
fn read(
    text: &str,
    path: &Path,
    number: usize,
    intervals: &mut Vec<Logged>,
) -> Result<(), MergeError> {
    let (mut start_s, mut base_s) = (None, None);
    for (line, text) in (1..).zip(text.lines()) {
        // The legend is for spreadsheets; this reader knows none.
        if text.starts_with('"') || text.trim().is_empty() {
            continue;
        }
        let text = format!("{text}\n");
        for entry in IntervalLogIterator::new(text.as_bytes()) {
            match entry.map_err(|_| MergeError::Line { path: path.into(), line })? {
                LogEntry::StartTime(time) => start_s = Some(time.as_secs_f64()),
                LogEntry::BaseTime(time) => base_s = Some(time.as_secs_f64()),
                LogEntry::Interval(interval) => {
                    let stamp_s = interval.start_timestamp().as_secs_f64();
                    // As HistogramLogReader does: without a base time, a stamp more than a year
                    // before the start is relative to it.
                    let base_s = match (base_s, start_s) {
                        (Some(base_s), _) => base_s,
                        (None, Some(start_s)) if stamp_s < start_s - 365.0 * 86_400.0 => start_s,
                        (None, _) => 0.0,
                    };
                    intervals.push(Logged {
                        path: number,
                        line,
                        tag: interval.tag().as_ref().map_or("", Tag::as_str).into(),
                        begin_s: base_s + stamp_s,
                        length_s: interval.duration().as_secs_f64(),
                        max: interval.max(),
                        encoded: interval.encoded_histogram().into(),
                    });
                }
            }
        }
    }
    Ok(())
}
