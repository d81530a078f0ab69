//! Tracks which version of a row a read must find: `--verify` detects stale rows with it.
//!
//! Every write of a verified load uses its write time as its version, so the server keeps the
//! largest, whatever the order of arrival. This table remembers the largest acknowledged version of
//! each row. Its size is fixed: it is exact while there are no more rows than entries. Beyond that
//! an entry holds the most recently written of its rows, and nothing is claimed of the others.
//!
//! An entry is one word: the version since the table's beginning, the kind of write, and the row.

use std::sync::atomic::{AtomicU64, Ordering};

/// The most entries: 8 MiB. The fewest leave room for 2^38 rows before two look alike.
const ENTRIES_MAX: u64 = 1 << 20;
const ENTRIES_MIN: u64 = 1 << 16;
const ROW_BITS: u32 = 22;
const VERSION_BITS: u32 = 40;
const DONE_BITS: u32 = 2;

/// What a read of a row must find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExpectedVersion {
    /// Anything: nothing is known of the row.
    #[default]
    Unknown,
    /// This version or a later one.
    Written(u64),
    /// Anything: a deletion was sent and not answered yet.
    Open,
    /// No row, or one that is later than this deletion.
    Deleted(u64),
}

/// The last write of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteState {
    Written = 1,
    DeleteSent = 2,
    Deleted = 3,
}

/// The largest acknowledged version of each row, in a table of fixed size.
#[derive(Debug)]
pub(crate) struct Versions {
    base: u64,
    entries: Box<[AtomicU64]>,
}

impl Versions {
    /// Returns a table for this number of rows. Versions are greater than `base`.
    pub(crate) fn new(rows: u64, base: u64) -> Self {
        Self::with_entries(rows.clamp(ENTRIES_MIN, ENTRIES_MAX), base)
    }

    fn with_entries(count: u64, base: u64) -> Self {
        Self { base, entries: (0..count).map(|_| AtomicU64::new(0)).collect() }
    }

    #[inline]
    fn entry(&self, row: u64) -> (&AtomicU64, u64) {
        let count = self.entries.len() as u64;
        let index = usize::try_from(row % count).unwrap_or_default();
        (&self.entries[index], (row / count) & ((1 << ROW_BITS) - 1))
    }

    /// Remembers a write, unless the entry knows of a later one.
    #[inline]
    pub(crate) fn note(&self, row: u64, version: u64, done: WriteState) {
        let since = version.saturating_sub(self.base);
        let (entry, tag) = self.entry(row);
        if since >= 1 << VERSION_BITS {
            return;
        }
        let word = (since << DONE_BITS | done as u64) << ROW_BITS | tag;
        // The version is in the highest bits, so the larger word is the later write.
        entry.fetch_max(word, Ordering::AcqRel);
    }

    /// Returns what a read that is sent now must find.
    #[inline]
    pub(crate) fn expected(&self, row: u64) -> ExpectedVersion {
        let (entry, tag) = self.entry(row);
        let word = entry.load(Ordering::Acquire);
        if word == 0 || word & ((1 << ROW_BITS) - 1) != tag {
            return ExpectedVersion::Unknown;
        }
        let word = word >> ROW_BITS;
        let version = self.base + (word >> DONE_BITS);
        match word & ((1 << DONE_BITS) - 1) {
            1 => ExpectedVersion::Written(version),
            2 => ExpectedVersion::Open,
            _ => ExpectedVersion::Deleted(version),
        }
    }

    /// Returns whether every row has an entry of its own.
    pub(crate) fn is_exact(&self, rows: u64) -> bool {
        rows <= self.entries.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn latest_write_replaces_older_ones() {
        let versions = Versions::with_entries(4, 100);
        assert_eq!(versions.expected(1), ExpectedVersion::Unknown);
        versions.note(1, 107, WriteState::Written);
        versions.note(1, 105, WriteState::Deleted);
        assert_eq!(versions.expected(1), ExpectedVersion::Written(107));
        versions.note(1, 109, WriteState::DeleteSent);
        assert_eq!(versions.expected(1), ExpectedVersion::Open);
        versions.note(1, 109, WriteState::Deleted);
        assert_eq!(versions.expected(1), ExpectedVersion::Deleted(109));
        // Row 5 shares this entry.
        versions.note(5, 108, WriteState::Written);
        assert_eq!(versions.expected(5), ExpectedVersion::Unknown);
        versions.note(5, 110, WriteState::Written);
        assert_eq!(
            (versions.expected(5), versions.expected(1)),
            (ExpectedVersion::Written(110), ExpectedVersion::Unknown)
        );
    }

    proptest! {
        /// Every claim about a row is its latest noted version.
        #[test]
        fn expected_versions_are_correct(
            entries in 1u64..20, notes in prop::collection::vec((0u64..40, 1u64..1_000), 0..200),
        ) {
            let versions = Versions::with_entries(entries, 7);
            let mut latest: HashMap<u64, u64> = HashMap::new();
            for (row, version) in notes {
                versions.note(row, 7 + version, WriteState::Written);
                let known = latest.entry(row).or_default();
                *known = version.max(*known);
                for row in 0..40 {
                    match versions.expected(row) {
                        ExpectedVersion::Unknown => {}
                        ExpectedVersion::Written(expected) => prop_assert_eq!(expected, 7 + latest[&row]),
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                prop_assert!(entries < 40 || versions.expected(row) != ExpectedVersion::Unknown);
            }
        }
    }
}
