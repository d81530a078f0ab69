//! Which version of a row must be there at least: what `--verify` calls a stale row from.
//!
//! Every write of a verified load has its time of writing as its version, so that the server keeps
//! the one with the greatest, whatever order they arrive in. The table here remembers for each row
//! the greatest version that was acknowledged. It does not grow: there is one entry for so many
//! rows, exact while there are no more rows than entries; beyond, an entry is the most recently
//! written of its rows, and nothing is claimed of the others.
//!
//! An entry is one word: version since the table's beginning, what was done, and which row.

use std::sync::atomic::{AtomicU64, Ordering};

/// Most entries: 8 MiB. The fewest leave room for 2^38 rows before two look alike.
const ENTRIES_MAX: u64 = 1 << 20;
const ENTRIES_MIN: u64 = 1 << 16;
const ROW_BITS: u32 = 22;
const VERSION_BITS: u32 = 40;
const DONE_BITS: u32 = 2;

/// What must be found of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExpectedVersion {
    /// Nothing is known.
    #[default]
    Unknown,
    /// This version or a later one.
    Written(u64),
    /// A deletion of it was sent and not answered: anything.
    Open,
    /// It was deleted: no row, or one that is later than this.
    Deleted(u64),
}

/// What was done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteState {
    Written = 1,
    DeleteSent = 2,
    Deleted = 3,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Versions {
    base: u64,
    entries: Box<[AtomicU64]>,
}

impl Versions {
    /// For so many rows; versions are greater than `base`.
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

    /// Remembers what was done, unless something later is known of this entry's rows.
    #[inline]
    pub(crate) fn note(&self, row: u64, version: u64, done: WriteState) {
        let since = version.saturating_sub(self.base);
        let (entry, tag) = self.entry(row);
        if since >= 1 << VERSION_BITS {
            return;
        }
        let word = (since << DONE_BITS | done as u64) << ROW_BITS | tag;
        // The version stands in the highest bits, so the greater word is the later one.
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
    fn the_latest_counts_and_others_are_forgotten() {
        let versions = Versions::with_entries(4, 100);
        assert_eq!(versions.expected(1), ExpectedVersion::Unknown);
        versions.note(1, 107, WriteState::Written);
        versions.note(1, 105, WriteState::Deleted);
        assert_eq!(versions.expected(1), ExpectedVersion::Written(107));
        versions.note(1, 109, WriteState::DeleteSent);
        assert_eq!(versions.expected(1), ExpectedVersion::Open);
        versions.note(1, 109, WriteState::Deleted);
        assert_eq!(versions.expected(1), ExpectedVersion::Deleted(109));
        // Row 5 has the same entry.
        versions.note(5, 108, WriteState::Written);
        assert_eq!(versions.expected(5), ExpectedVersion::Unknown);
        versions.note(5, 110, WriteState::Written);
        assert_eq!(
            (versions.expected(5), versions.expected(1)),
            (ExpectedVersion::Written(110), ExpectedVersion::Unknown)
        );
    }

    proptest! {
        /// Whatever is claimed of a row is the latest that was noted of it.
        #[test]
        fn nothing_false_is_claimed(
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
