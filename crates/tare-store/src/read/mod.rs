//! Reads rows: merged over all sources, without dead, expired or hidden data.
//!
//! Reads are restartable. A read that needs a block that is not in memory ends in [`End::Missing`];
//! [`Pins`] has noted the block and will hold it when it has come. The caller keeps the rows that
//! it has and reads on after the last of them, with the same pins, which also know the invisible
//! rows that the read has passed. A read that has visited many rows ends in [`End::Paused`], so
//! that dead rows do not hold up other reads.
//!
//! A partition that only the active memtable has is read without allocations and copies; only rows
//! of which a part is dead are copied, into a reused buffer.

mod lookup;
pub mod merge;
mod pins;
mod point;
mod sources;
pub mod stored;
mod walk;

pub use crate::row_source::ReadError;
pub(crate) use lookup::{LookupMemo, Lookups};
pub use pins::{Cached, Fetch, Pins};
pub(crate) use sources::Sources;

/// Clustering keys from `from`, inclusive, to `to`, exclusive; without `to` to the partition's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice<'a> {
    pub from: &'a [u8],
    pub to: Option<&'a [u8]>,
}

impl Slice<'_> {
    /// All keys.
    pub const ALL: Self = Self { from: &[], to: None };
}

/// Turns a prefix of clustering keys into the least key above all keys with the prefix, which is
/// the end of their slice. Returns false if there is none: the slice has no end.
///
/// ```
/// let mut prefix = vec![1, 0xff];
/// assert!(tare_store::read::successor(&mut prefix));
/// assert_eq!(prefix, [2]);
/// assert!(!tare_store::read::successor(&mut vec![0xff]));
/// ```
pub fn successor(prefix: &mut Vec<u8>) -> bool {
    while let Some(last) = prefix.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return true;
        }
        prefix.pop();
    }
    false
}

/// A read of one partition.
#[derive(Clone, Copy, Debug)]
pub struct PartitionRead<'a> {
    pub table: u32,
    pub token: i64,
    pub key: &'a [u8],
    /// Slices, ascending, without overlap, even if the read is reversed.
    pub slices: &'a [Slice<'a>],
    /// Whether to read from the greatest clustering key down.
    pub reversed: bool,
    /// The row after which to go on, in the direction of the read.
    pub after: Option<&'a [u8]>,
    /// The time of the read, in seconds since the Unix epoch; data that has expired by then is
    /// invisible.
    pub now_s: u32,
}

impl<'a> PartitionRead<'a> {
    /// The same read, after both rows.
    #[inline]
    fn after_too(&self, passed: Option<&'a [u8]>) -> Self {
        let after = match (self.after, passed) {
            (Some(after), Some(passed)) if self.reversed => Some(after.min(passed)),
            (Some(after), Some(passed)) => Some(after.max(passed)),
            (after, passed) => after.or(passed),
        };
        Self { after, ..*self }
    }
}

/// A read of one row by its whole key.
#[derive(Clone, Copy, Debug)]
pub struct RowRead<'a> {
    pub table: u32,
    pub token: i64,
    pub key: &'a [u8],
    /// The clustering key; empty if the table has no clustering columns.
    pub clustering: &'a [u8],
    /// The columns that the caller needs, ascending; `None` for all. The row may lack other
    /// columns, so that sources with only older cells of these columns can be skipped.
    pub columns: Option<&'a [u16]>,
    /// The time of the read, as in [`PartitionRead`].
    pub now_s: u32,
}

/// A walk through the partitions of a table. Each call moves its position; to go on, pass it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    pub table: u32,
    /// Everything before it has been visited.
    pub position: Position,
    /// The last token, inclusive.
    pub to_token: i64,
    /// The time of the read, as in [`PartitionRead`].
    pub now_s: u32,
    /// Number of rows and partitions that one call may visit, including dead ones, so that others
    /// are not held up.
    pub steps: u32,
}

/// A position in a table: the rows of the partition after the clustering key, then what follows.
/// Without a clustering key: the whole partition, or what follows if no partition has this key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub token: i64,
    pub key: Vec<u8>,
    pub clustering: Option<Vec<u8>>,
}

impl Position {
    /// The position before every partition of a token.
    pub fn at_token(token: i64) -> Self {
        Self { token, key: Vec::new(), clustering: None }
    }

    fn enter(&mut self, token: i64, key: &[u8]) {
        self.token = token;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.clustering = None;
    }

    fn pass_row(&mut self, clustering: &[u8]) {
        let passed = self.clustering.get_or_insert_default();
        passed.clear();
        passed.extend_from_slice(clustering);
    }

    /// Moves after the partition: no key lies between a key and the same key with a zero appended.
    pub fn pass_partition(&mut self) {
        self.key.push(0);
        self.clustering = None;
    }
}

/// A visible row. Its cells, at least one, are the visible ones (see [`crate::cells`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    pub token: i64,
    pub key: &'a [u8],
    pub clustering: &'a [u8],
    pub cells: &'a [u8],
}

/// How a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// There are no more rows.
    Done,
    /// The visitor has stopped the read.
    Stopped,
    /// Blocks are not in memory; the read can go on when they are.
    Missing,
    /// Many rows were visited; the read can go on at any time.
    Paused,
}

/// Where a scan goes after a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Row,
    /// The first row of the next partition.
    Partition,
    Stop,
}

/// Buffers that reads use again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The visible part of a row.
    part: Vec<u8>,
    /// A row's cells so far, and those merged with one more source.
    cells: Vec<u8>,
    merged: Vec<u8>,
    /// Number of rows that this call has visited, and the clustering key of the last one.
    looked: u32,
    passed: Vec<u8>,
    memo: LookupMemo,
    /// Lookups since the start.
    pub(crate) lookups: Lookups,
}

impl Scratch {
    fn pass(&mut self, clustering: &[u8]) {
        self.looked += 1;
        self.passed.clear();
        self.passed.extend_from_slice(clustering);
    }
}

#[cfg(test)]
mod tests;
