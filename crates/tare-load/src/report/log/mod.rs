//! HdrHistogram logs: the log format version 1.3 with one interval per second, tagged by operation
//! and by response or service time, such as `read-response`. The tools of HdrHistogram,
//! cassandra-stress and YCSB read and write the same format. Format: HdrHistogram/HdrHistogram,
//! `HistogramLogWriter` and `HistogramLogReader`.
//!
//! Times count in ns; interval maxima are in ms, as cassandra-stress writes them. The head has the
//! lines of version 1.3, which hdrhistogram's own writer does not write; a merged log keeps maxima
//! in the unit of its parts, which that writer cannot be given.

mod merge;
mod read;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::error::LoadError;
use crate::report::histogram::{self, Histogram};
use crate::report::stats::Stats;

pub use merge::{MergeError, Merged, TagReport, merge};
pub use read::{Interval, LogError, intervals};

/// The begin and length of an interval.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// Counted from the start of the log.
    begin: Duration,
    length: Duration,
}

/// Returns the head of a log whose intervals count from `start`, given as time since 1970.
fn head(start: Duration) -> String {
    let start = start.as_secs_f64();
    format!(
        "#[Logged by tare load {}]\n\
         #[Histogram log format version 1.3]\n\
         #[BaseTime: {start:.3} (seconds since epoch)]\n\
         #[StartTime: {start:.3} (seconds since epoch)]\n\
         \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns the line of an interval. The tag has no commas or blanks.
fn line(tag: &str, span: Span, max: f64, histogram: &Histogram) -> String {
    format!(
        "Tag={tag},{:.3},{:.3},{max:.3},{}\n",
        span.begin.as_secs_f64(),
        span.length.as_secs_f64(),
        STANDARD.encode(histogram::encode(histogram)),
    )
}

/// A log while it is written. It has only whole lines: when the disk is full, the incomplete line
/// is removed and the log ends there.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    whole_bytes: u64,
    failed: Option<io::Error>,
}

impl Log {
    /// Creates the file, so that a bad path is an error before the load.
    pub(crate) fn create(path: &Path) -> Result<Self, LoadError> {
        let file = File::create(path)
            .map_err(|source| LoadError::HistogramLog { path: path.into(), source })?;
        Ok(Self { path: path.into(), file, whole_bytes: 0, failed: None })
    }

    /// Writes the head. Intervals count from `start`.
    pub(crate) fn begin(&mut self, start: SystemTime) {
        self.write(&head(start.duration_since(UNIX_EPOCH).unwrap_or_default()));
    }

    /// Writes the counts of a stretch, for each kind of operation.
    pub(crate) fn stretch(&mut self, begin: Duration, stats: &Stats, kinds: &[&str]) {
        let span = Span { begin, length: Duration::from_nanos(stats.window_ns()) };
        for (kind, latency) in kinds.iter().zip(&stats.latencies) {
            for (time, histogram) in
                [("response", &latency.response), ("service", &latency.service)]
            {
                if let Some(histogram) = histogram {
                    let max_ms = histogram.max() as f64 / 1e6;
                    self.write(&line(&format!("{kind}-{time}"), span, max_ms, histogram));
                }
            }
        }
    }

    /// Syncs the log to disk. Returns why it is incomplete, if it is.
    pub(crate) fn finish(mut self) -> Result<(), LoadError> {
        let synced = match self.failed.take() {
            Some(error) => Err(error),
            None => self.file.sync_all(),
        };
        let path = self.path;
        synced.map_err(|source| LoadError::HistogramLog { path, source })
    }

    fn write(&mut self, text: &str) {
        if self.failed.is_some() {
            return;
        }
        match self.file.write_all(text.as_bytes()) {
            Ok(()) => self.whole_bytes += text.len() as u64,
            Err(error) => {
                // If this fails too, the log ends with half a line, which readers refuse.
                let _ = self.file.set_len(self.whole_bytes);
                self.failed = Some(error);
            }
        }
    }
}

#[cfg(test)]
mod tests;
