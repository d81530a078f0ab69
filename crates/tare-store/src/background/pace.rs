//! The schedule of flushes and compactions: how much of them should be done by the time that the
//! active memtable is as full as it is.
//!
//! A table whose rows come faster than they are compacted has ever more files, until its flushes
//! wait for a whole compaction, and writes for the flush: some seconds. With a schedule each write
//! waits for its own part of the work instead. While nobody writes, nothing more becomes due.

/// From this many times the files that a table compacts together on, its compactions have a
/// schedule.
const FROM: f64 = 3.0;
/// Bytes that compactions are to write for each byte of memory, for each further time the files.
/// Rows are rewritten 2 to 4 times in all, so a table has four to five times the files.
const BYTES_PER_TIME: f64 = 2.5;
/// A flush should have written everything when the next memtable is half full, because syncing
/// takes time too.
const FLUSHED_BY: f64 = 0.5;

/// The share of its schedule that a flush has done; below 1 it is behind.
pub(super) fn flush(progress: f64, filled: f64) -> f64 {
    share(progress, filled / FLUSHED_BY)
}

/// The schedule of compactions while one memtable fills.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    memtable_bytes: usize,
    /// Bytes that compactions had written before.
    compacted_bytes: u64,
}

impl Pace {
    /// A schedule for a memtable that will have as many bytes as the one before.
    pub(super) fn new(memtable_bytes: usize, compacted_bytes: u64) -> Self {
        Self { memtable_bytes, compacted_bytes }
    }

    /// The share of their schedule that compactions have done, given the bytes that they have
    /// written since the start and how many times the files that it compacts together a table has;
    /// below 1 they are behind.
    pub(super) fn compactions(&self, written_bytes: u64, times: f64, filled: f64) -> f64 {
        let done = written_bytes.saturating_sub(self.compacted_bytes);
        let done = super::ratio(usize::try_from(done).unwrap_or(usize::MAX), self.memtable_bytes);
        share(done, BYTES_PER_TIME * (times - FROM).max(0.0) * filled)
    }
}

/// A part of what is due. All is done where nothing is due.
fn share(done: f64, due: f64) -> f64 {
    if due > 0.0 { done / due } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flush_is_due_when_the_memtable_is_half_full() {
        assert!(flush(0.1, 0.0) > 1.0);
        assert!(flush(0.49, 0.25) < 1.0 && flush(0.51, 0.25) > 1.0);
    }

    #[test]
    fn compactions_are_due_as_rows_come_and_files_are_many() {
        let pace = Pace::new(100, 1000);
        assert!(pace.compactions(1000, 3.0, 0.9) > 1.0, "few files");
        assert!(pace.compactions(1000, 5.0, 0.0) > 1.0, "nobody writes");
        // Five times the files, half full: 2.5 * 2 * 0.5 times the memtable.
        assert!(pace.compactions(1249, 5.0, 0.5) < 1.0);
        assert!(pace.compactions(1251, 5.0, 0.5) > 1.0);
    }
}
