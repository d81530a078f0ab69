//! Drawing the page from the record, not too often.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use tare_lab::analysis::analyse;
use tare_lab::record::{Record, RecordError, read_stacks};

use super::answer::Desk;

/// Drawing takes at most one part in so many of the time.
const PART: u32 = 20;
/// And comes no oftener.
const APART: Duration = Duration::from_secs(1);

/// Keeps how long drawing takes.
#[derive(Debug, Default)]
pub(super) struct Easel {
    next: Option<Instant>,
}

impl Easel {
    pub(super) fn may_draw(&self) -> bool {
        self.next.is_none_or(|next| Instant::now() >= next)
    }

    /// Draws the record as it is now and lays the page on the desk. One that cannot be read yet
    /// leaves what lies there.
    pub(super) fn draw(&mut self, path: &Path, desk: &Desk) {
        let began = Instant::now();
        if let Ok((page, ended)) = page(path) {
            desk.lay(page, ended);
        }
        self.next = Some(Instant::now() + APART.max(began.elapsed() * PART));
    }
}

fn page(path: &Path) -> Result<(String, bool), RecordError> {
    let record = Record::read(path)?;
    let stacks = read_stacks(path)?;
    let ended = record.header.ended_unix_ms.is_some();
    Ok((tare_report::html::page(&record, &analyse(&record), &stacks), ended))
}

/// What changes when a record does: size and time of the file and of SQLite's log beside it.
pub(super) fn stamp(path: &Path) -> Option<Vec<(u64, SystemTime)>> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let of = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.len(), metadata.modified().ok()?))
    };
    let stamps: Vec<_> = [path, Path::new(&log)].into_iter().filter_map(of).collect();
    (!stamps.is_empty()).then_some(stamps)
}
