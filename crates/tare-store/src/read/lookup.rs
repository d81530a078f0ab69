//! Looks a partition up in a table. The filter comes first: where the partition is not in the
//! table, it nearly always spares the rest.

use std::rc::Rc;

use std::collections::VecDeque;

use super::ReadError;
use super::stored::Stored;
use crate::cache::Cache;
use crate::row_source::{Source, Step};
use crate::table::{BlockSource, Cursor, Start, Table};

/// Tables whose filters are asked together.
pub(super) const TOGETHER: usize = 8;

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

/// The verdicts of the try before, which ended because a block was missing. A table never changes,
/// so that the next try for the same row need not check it again.
#[derive(Debug, Default)]
pub(crate) struct LookupMemo {
    /// Verdicts of this try, in the order of its lookups.
    tables: VecDeque<(u64, TableVerdict)>,
    /// Verdicts of the try before that were not taken yet.
    before: VecDeque<(u64, TableVerdict)>,
}

#[derive(Debug)]
enum TableVerdict {
    Denied,
    FalsePositive,
    /// The filter lets it through; the cursor holds the index block for the position. In a box,
    /// because most verdicts are others, and all are moved at every try.
    Likely(Box<Stored>),
}

impl LookupMemo {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.tables.clear();
        self.before.clear();
    }

    /// Begins the next try for the same row.
    #[inline]
    pub(super) fn begin_try(&mut self) {
        self.before.clear();
        std::mem::swap(&mut self.tables, &mut self.before);
    }

    /// Whether the try before has left no verdict for the tables that come next.
    #[inline]
    pub(super) fn knows_nothing(&self) -> bool {
        self.before.is_empty()
    }

    /// Takes the verdict of the try before. Tables are looked up in the same order in every try, so
    /// it is the first one, unless tables have come or gone in between.
    #[inline]
    fn recall(&mut self, file: u64) -> Option<TableVerdict> {
        let at = self.before.iter().position(|(known, _)| *known == file)?;
        self.before.drain(..at);
        self.before.pop_front().map(|(_, verdict)| verdict)
    }

    /// Notes that the filter of a table excludes the partition.
    #[inline]
    pub(super) fn deny(&mut self, table: &Table, lookups: &mut Lookups) {
        self.absent(table.file(), TableVerdict::Denied, lookups);
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
        let mut stored = match self.recall(file) {
            Some(TableVerdict::Likely(stored)) => *stored,
            Some(verdict) => return Ok(self.absent(file, verdict, lookups)),
            None => match table.may_contain(token, blocks)? {
                None => return Ok(Lookup::Missing),
                Some(false) => return Ok(self.absent(file, TableVerdict::Denied, lookups)),
                Some(true) => Stored::new(Cursor::new(Rc::clone(table))),
            },
        };
        // A new cursor begins here.
        if stored.find_on(token, key, start, blocks)? == Step::Missing {
            self.tables.push_back((file, TableVerdict::Likely(Box::new(stored))));
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
        self.tables.push_back((file, verdict));
        Lookup::Absent
    }
}

/// Which of these tables do not have a token, by those of their filters that are in memory. One
/// table after the other would wait for memory each time.
#[inline]
pub(super) fn denied(tables: &[Rc<Table>], token: i64, cache: &mut Cache) -> [bool; TOGETHER] {
    let mut at = [None; TOGETHER];
    for (at, table) in at.iter_mut().zip(tables) {
        *at = table.filter_for(token);
    }
    cache.check_each(at, |block| block.denies(token))
}
