//! Looks a partition up in a table. The filter comes first: where the partition is not in the
//! table, it nearly always spares the rest.

use std::rc::Rc;

use super::ReadError;
use super::stored::Stored;
use crate::row_source::{Source, Step};
use crate::table::{BlockSource, Cursor, Start, Table};

/// The result of a lookup.
#[derive(Debug)]
pub(super) enum Lookup {
    /// A block is missing; the pins have noted it.
    Missing,
    Absent,
    Found(Stored),
}

/// Number of lookups by their result. A read that had to wait counts once, when it has succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lookups {
    /// The filter, or the range of the table's tokens, excluded the partition.
    pub(crate) denied: u64,
    /// The filter let the lookup through, and the partition was there.
    pub(crate) found: u64,
    /// The filter let the lookup through, but the partition was not there.
    pub(crate) false_positives: u64,
}

impl Lookups {
    #[inline]
    pub(crate) fn add(&mut self, more: Self) {
        self.denied += more.denied;
        self.found += more.found;
        self.false_positives += more.false_positives;
    }
}

/// The verdicts of an earlier try, which ended because a block was missing. A table never changes,
/// so that the next try for the same row need not check it again.
#[derive(Debug, Default)]
pub(crate) struct LookupMemo {
    tables: Vec<(u64, TableVerdict)>,
}

#[derive(Debug)]
enum TableVerdict {
    Denied,
    FalsePositive,
    /// The filter lets it through; the cursor holds the index block for the position.
    Likely(Stored),
}

impl LookupMemo {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.tables.clear();
    }

    /// Goes to a row of a partition in a table, from the position of the earlier try.
    #[inline]
    pub(super) fn find<B: BlockSource>(
        &mut self,
        table: &Rc<Table>,
        (token, key): (i64, &[u8]),
        start: Start<'_>,
        blocks: &mut B,
        lookups: &mut Lookups,
    ) -> Result<Lookup, ReadError> {
        let file = table.file();
        let known = self.tables.iter().position(|(known, _)| *known == file);
        let mut stored = match known.map(|at| self.tables.swap_remove(at).1) {
            Some(TableVerdict::Denied) => {
                return Ok(self.absent(file, TableVerdict::Denied, lookups));
            }
            Some(TableVerdict::FalsePositive) => {
                return Ok(self.absent(file, TableVerdict::FalsePositive, lookups));
            }
            Some(TableVerdict::Likely(stored)) => stored,
            None => match table.may_contain(token, blocks)? {
                None => return Ok(Lookup::Missing),
                Some(false) => return Ok(self.absent(file, TableVerdict::Denied, lookups)),
                Some(true) => Stored::new(Cursor::new(Rc::clone(table))),
            },
        };
        // A new cursor begins here.
        if stored.find_on(token, key, start, blocks)? == Step::Missing {
            self.tables.push((file, TableVerdict::Likely(stored)));
            return Ok(Lookup::Missing);
        }
        if Source::<B>::partition(&stored).is_none() {
            return Ok(self.absent(file, TableVerdict::FalsePositive, lookups));
        }
        lookups.found += 1;
        Ok(Lookup::Found(stored))
    }

    #[inline]
    fn absent(&mut self, file: u64, verdict: TableVerdict, lookups: &mut Lookups) -> Lookup {
        match verdict {
            TableVerdict::Denied => lookups.denied += 1,
            _ => lookups.false_positives += 1,
        }
        self.tables.push((file, verdict));
        Lookup::Absent
    }
}
