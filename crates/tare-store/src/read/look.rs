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

/// Goes to a row of a partition in a table.
#[inline]
pub(super) fn look<B: BlockSource>(
    table: &Rc<Table>,
    (token, key): (i64, &[u8]),
    start: Start<'_>,
    blocks: &mut B,
    lookups: &mut Lookups,
) -> Result<Looked, ReadError> {
    match table.may_contain(token, blocks)? {
        None => return Ok(Looked::Missing),
        Some(false) => {
            lookups.denied += 1;
            return Ok(Looked::Absent);
        }
        Some(true) => {}
    }
    let mut stored = Stored::new(Cursor::new(Rc::clone(table)));
    if stored.find(token, key, start, blocks)? == Step::Missing {
        return Ok(Looked::Missing);
    }
    if Source::<B>::partition(&stored).is_none() {
        lookups.in_vain += 1;
        return Ok(Looked::Absent);
    }
    lookups.found += 1;
    Ok(Looked::There(stored))
}
