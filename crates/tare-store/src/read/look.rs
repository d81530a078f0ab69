//! Looking for a partition in a table: the filter first, which spares the rest nearly always where the
//! partition is not there.

use std::rc::Rc;

use super::ReadError;
use super::source::{Source, Step};
use super::stored::Stored;
use crate::table::{BlockSource, Cursor, Start, Table};

/// What became of it.
#[derive(Debug)]
pub(super) enum Looked {
    /// A block is missing and has been noted.
    Missing,
    Absent,
    There(Stored),
}

/// In how many tables partitions were looked for, by what became of it. Reads that had to wait are
/// counted once, when they went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lookups {
    /// The filter, or the table's tokens, said that it is not there.
    pub(crate) denied: u64,
    /// The filter let it through, and it was there.
    pub(crate) found: u64,
    /// The filter let it through in vain.
    pub(crate) in_vain: u64,
}

impl Lookups {
    #[inline]
    pub(crate) fn add(&mut self, more: Self) {
        self.denied += more.denied;
        self.found += more.found;
        self.in_vain += more.in_vain;
    }
}

/// What a try to read has learnt from tables before a block was missing. A table never changes, so that
/// the next try for the same row need not ask again.
#[derive(Debug, Default)]
pub(crate) struct Learnt {
    tables: Vec<(u64, Verdict)>,
}

#[derive(Debug)]
enum Verdict {
    Denied,
    InVain,
    /// The filter lets it through; the cursor holds the index block that says where to look.
    Likely(Stored),
}

impl Learnt {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.tables.clear();
    }

    /// Goes to a row of a partition in a table, from where the try before has come to.
    #[inline]
    pub(super) fn look<B: BlockSource>(
        &mut self,
        table: &Rc<Table>,
        (token, key): (i64, &[u8]),
        start: Start<'_>,
        blocks: &mut B,
        lookups: &mut Lookups,
    ) -> Result<Looked, ReadError> {
        let file = table.file();
        let known = self.tables.iter().position(|(known, _)| *known == file);
        let mut stored = match known.map(|at| self.tables.swap_remove(at).1) {
            Some(Verdict::Denied) => return Ok(self.absent(file, Verdict::Denied, lookups)),
            Some(Verdict::InVain) => return Ok(self.absent(file, Verdict::InVain, lookups)),
            Some(Verdict::Likely(stored)) => stored,
            None => match table.may_contain(token, blocks)? {
                None => return Ok(Looked::Missing),
                Some(false) => return Ok(self.absent(file, Verdict::Denied, lookups)),
                Some(true) => Stored::new(Cursor::new(Rc::clone(table))),
            },
        };
        // One that stands nowhere yet begins with it.
        if stored.find_on(token, key, start, blocks)? == Step::Missing {
            self.tables.push((file, Verdict::Likely(stored)));
            return Ok(Looked::Missing);
        }
        if Source::<B>::partition(&stored).is_none() {
            return Ok(self.absent(file, Verdict::InVain, lookups));
        }
        lookups.found += 1;
        Ok(Looked::There(stored))
    }

    #[inline]
    fn absent(&mut self, file: u64, verdict: Verdict, lookups: &mut Lookups) -> Looked {
        match verdict {
            Verdict::Denied => lookups.denied += 1,
            _ => lookups.in_vain += 1,
        }
        self.tables.push((file, verdict));
        Looked::Absent
    }
}
