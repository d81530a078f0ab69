//! Merges the logs of several loaders into one without loss: it has every count of every interval.
//!
//! Intervals of one tag that overlap by half or more become one. Histograms of different precision
//! cannot be added without loss and are refused.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::Span;
use super::read::{Interval, LogError, intervals};
use crate::report::histogram::{DecodeError, Histogram, Quantiles};

/// Why logs could not be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    #[error("cannot read the log {path}", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("line {line} of {path} is not part of an HdrHistogram log", path = .path.display())]
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

/// The result of a merge.
#[derive(Clone, Debug, Serialize)]
pub struct Merged {
    pub logs: usize,
    pub intervals_read: usize,
    pub intervals_written: usize,
    pub tags: Vec<TagReport>,
}

/// The distribution of all values with one tag.
#[derive(Clone, Debug, Serialize)]
pub struct TagReport {
    /// Empty if the logs have no tags.
    pub tag: String,
    #[serde(flatten)]
    pub quantiles: Quantiles,
}

/// Merges the logs at `paths` into `out`.
///
/// ```
/// use tare_load::log;
///
/// let error = log::merge(&["/nowhere/load.hdr".into()], &mut Vec::new()).unwrap_err();
/// assert_eq!(error.to_string(), "cannot read the log /nowhere/load.hdr");
/// ```
///
/// # Errors
/// If a file is not an HdrHistogram log or cannot be added without loss; the error names file and
/// line.
pub fn merge(paths: &[PathBuf], out: &mut dyn Write) -> Result<Merged, MergeError> {
    let mut texts = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(path)
            .map_err(|source| MergeError::Read { path: path.clone(), source })?;
        texts.push((path, text));
    }
    let mut all = Vec::new();
    for (path, text) in &texts {
        let found = intervals(text).map_err(|error| MergeError::of(path, error))?;
        if found.is_empty() {
            return Err(MergeError::Empty { path: path.to_path_buf() });
        }
        all.extend(found.into_iter().map(|interval| (path.as_path(), interval)));
    }
    let intervals_read = all.len();
    let start = all.iter().map(|(_, one)| one.begin).min().unwrap_or_default();
    let mut lengths: Vec<Duration> = all.iter().map(|(_, one)| one.length).collect();
    lengths.sort_unstable();
    let grid = lengths.get(lengths.len() / 2).copied().unwrap_or_default();
    let grid_s = grid.as_secs_f64().max(0.001);
    let mut groups: BTreeMap<(u64, &str), Vec<(&Path, Interval<'_>)>> = BTreeMap::new();
    for (path, interval) in all {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of intervals"
        )]
        let place = ((interval.begin - start).as_secs_f64() / grid_s).round() as u64;
        groups.entry((place, interval.tag)).or_default().push((path, interval));
    }
    let write = |out: &mut dyn Write, text: &str| {
        out.write_all(text.as_bytes()).map_err(|source| MergeError::Write { source })
    };
    write(out, &super::head(start))?;
    let mut totals: BTreeMap<&str, Histogram> = BTreeMap::new();
    let mut unit = None;
    let intervals_written = groups.len();
    for ((_, tag), group) in groups {
        let mut sum: Option<Histogram> = None;
        let (mut begin, mut end, mut max) = (Duration::MAX, Duration::ZERO, 0.0f64);
        for (path, interval) in group {
            add(&mut sum, decoded(path, &interval, &mut unit)?);
            begin = begin.min(interval.begin);
            end = end.max(interval.end());
            max = max.max(interval.max);
        }
        let Some(sum) = sum else { continue };
        let span = Span { begin: begin - start, length: end - begin };
        let text = super::line(tag, span, max, &sum);
        // A log without tags stays one.
        write(out, if tag.is_empty() { &text["Tag=,".len()..] } else { &text })?;
        let mut total = totals.remove(tag);
        add(&mut total, sum);
        totals.extend(total.map(|total| (tag, total)));
    }
    out.flush().map_err(|source| MergeError::Write { source })?;
    let tags = totals
        .iter()
        .map(|(tag, total)| TagReport { tag: (*tag).into(), quantiles: Quantiles::of(total) });
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

/// Returns the histogram of an interval. It must have the unit and precision of those before.
fn decoded(
    path: &Path,
    interval: &Interval<'_>,
    unit: &mut Option<(u64, u8)>,
) -> Result<Histogram, MergeError> {
    let histogram = interval.histogram().map_err(|error| MergeError::of(path, error))?;
    let found = (histogram.low(), histogram.sigfig());
    let expected = *unit.get_or_insert(found);
    if found != expected {
        let text = |(low, digits)| format!("from {low} in {digits} digits");
        let (found, expected) = (text(found), text(expected));
        let (path, line) = (path.into(), interval.line);
        return Err(MergeError::Precision { path, line, found, expected });
    }
    Ok(histogram)
}

impl MergeError {
    /// Names the log of an error.
    fn of(path: &Path, error: LogError) -> Self {
        let path = path.into();
        match error {
            LogError::Line { line } => Self::Line { path, line },
            LogError::Interval { line, source } => Self::Interval { path, line, source },
        }
    }
}
