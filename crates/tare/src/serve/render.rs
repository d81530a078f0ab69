//! Renders the page from the record, at a limited rate.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use tare_lab::analysis::analyse;
use tare_lab::record::{Record, RecordError, logs_of, read_stacks};

use super::page::SharedPage;

/// Rendering takes at most one part in this many of the time.
const TIME_PART: u32 = 20;
/// Least time between two renderings.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Renders pages, and limits the time that this takes.
#[derive(Debug, Default)]
pub(super) struct PageRenderer {
    next: Option<Instant>,
}

impl PageRenderer {
    /// Returns whether the next page may be rendered now.
    pub(super) fn is_due(&self) -> bool {
        self.next.is_none_or(|next| Instant::now() >= next)
    }

    /// Renders and publishes the page of a record. A record that cannot be read yet leaves the old
    /// page.
    pub(super) fn render(&mut self, path: &Path, shared: &SharedPage) {
        let started = Instant::now();
        if let Ok((page, ended)) = page(path) {
            shared.publish(page, ended);
        }
        self.next = Some(Instant::now() + INTERVAL_MIN.max(started.elapsed() * TIME_PART));
    }
}

fn page(path: &Path) -> Result<(String, bool), RecordError> {
    let record = Record::read(path)?;
    let stacks = read_stacks(path)?;
    let ended = record.header.ended_unix_ms.is_some();
    Ok((tare_report::html::page(&record, &analyse(&record), &stacks), ended))
}

/// Returns sizes and modification times of a record's file and of its SQLite log, which change with
/// the record.
pub(super) fn stamp(path: &Path) -> Option<Vec<(u64, SystemTime)>> {
    let [log, _] = logs_of(path);
    let of = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.len(), metadata.modified().ok()?))
    };
    let stamps: Vec<_> = [path, &log].into_iter().filter_map(of).collect();
    (!stamps.is_empty()).then_some(stamps)
}
