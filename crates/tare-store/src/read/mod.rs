//! Reading rows: merged over all sources, without what is dead, expired or hidden.
//!
//! Reads are restartable. A read that meets a block that is not in memory ends in
//! [`End::Missing`]; [`Pins`] has noted the block and will hold it when it has come. The caller
//! keeps what it was shown and reads on after the last row of it, with the same pins, which also
//! know what was passed over without being shown. A read that has looked at many rows ends in
//! [`End::Paused`], so that others are not held up by rows that are dead.
//!
//! A partition that only the active memtable knows is walked without an allocation and without
//! copying: only rows of which a part is dead are copied, into a buffer that is kept.

mod lookup;
pub mod merge;
mod point;
pub mod source;
mod sources;
pub mod stored;
mod walk;

use std::ops::ControlFlow;

use crate::cache::{Cached, Pins};
use crate::store::Store;
use crate::table::TableError;
pub(crate) use lookup::{LookupMemo, Lookups};
use sources::Sources;

/// Why rows cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Clustering keys from `from` up to and without `to`; without `to` up to the partition's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice<'a> {
    pub from: &'a [u8],
    pub to: Option<&'a [u8]>,
}

impl Slice<'_> {
    /// All keys.
    pub const ALL: Self = Self { from: &[], to: None };
}

/// Turns a prefix of clustering keys into the least key above all that start with it, which is the
/// end of their slice. False if there is none: the slice has no end.
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
    /// Ascending, and none overlap; also where the rows are wanted in reverse.
    pub slices: &'a [Slice<'a>],
    /// From the greatest clustering key down.
    pub reversed: bool,
    /// The row after which to go on, in the direction of the read.
    pub after: Option<&'a [u8]>,
    /// What has expired by then is not seen, in seconds since the Unix epoch.
    pub now_s: u32,
}

impl<'a> PartitionRead<'a> {
    /// The same, but also after another row.
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
    /// Empty where the table has no clustering columns.
    pub clustering: &'a [u8],
    /// The columns that will be looked at, ascending; `None` for all. Others may be lacking in the
    /// answer: then sources that can only have older cells of these need not be asked.
    pub columns: Option<&'a [u16]>,
    /// As in [`PartitionRead`].
    pub now_s: u32,
}

/// A walk through the partitions of a table. It moves as it goes: to go on, give it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    pub table: u32,
    /// What comes before it has been passed.
    pub position: Position,
    /// The last token.
    pub to_token: i64,
    /// As in [`PartitionRead`].
    pub now_s: u32,
    /// Rows and partitions to look at in one call, dead ones too, so that others are not held up.
    pub steps: u32,
}

/// A place in a table: rows of the partition after the clustering key, then what follows. Without
/// a clustering key: the whole partition, or if there is none of this key, what follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub token: i64,
    pub key: Vec<u8>,
    pub clustering: Option<Vec<u8>>,
}

impl Position {
    /// Before every partition of a token.
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

    /// Moves behind the partition: no key stands between a key and the same with a zero appended.
    pub fn pass_partition(&mut self) {
        self.key.push(0);
        self.clustering = None;
    }
}

/// A row that is alive. Its cells, at least one, are those that can be seen (see [`crate::cells`]).
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
    /// There is no more.
    Done,
    /// The visitor has had enough.
    Stopped,
    /// Blocks are not in memory: go on when they are.
    Missing,
    /// Many rows were looked at: go on whenever it suits.
    Paused,
}

/// What a visitor of a scan wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Row,
    /// The first row of the next partition.
    Partition,
    Stop,
}

impl Store {
    /// Shows the rows of one partition in clustering order.
    #[inline]
    pub fn read(
        &mut self,
        read: &PartitionRead<'_>,
        pins: &mut Pins,
        visit: impl FnMut(Row<'_>) -> ControlFlow<()>,
    ) -> Result<End, ReadError> {
        self.with_sources(read.table, pins, |sources, blocks, scratch| {
            sources.read(read, blocks, scratch, visit)
        })
    }

    /// Shows one row, if it is there.
    #[inline]
    pub fn read_row(
        &mut self,
        read: &RowRead<'_>,
        pins: &mut Pins,
        visit: impl FnOnce(Row<'_>),
    ) -> Result<End, ReadError> {
        self.with_sources(read.table, pins, |sources, blocks, scratch| {
            sources.read_row(read, blocks, scratch, visit)
        })
    }

    /// Shows the rows of a table in order of (token, key, clustering key).
    pub fn scan(
        &mut self,
        scan: &mut Scan,
        pins: &mut Pins,
        visit: impl FnMut(Row<'_>) -> Next,
    ) -> Result<End, ReadError> {
        self.with_sources(scan.table, pins, |sources, blocks, scratch| {
            sources.scan(scan, blocks, scratch, visit)
        })
    }

    /// Reads, and has fetched what is missing.
    #[inline]
    fn with_sources(
        &mut self,
        table: u32,
        pins: &mut Pins,
        read: impl FnOnce(&Sources<'_>, &mut Cached<'_>, &mut Scratch) -> Result<End, ReadError>,
    ) -> Result<End, ReadError> {
        let tables = self.sorted.get(&table).map_or(&[][..], Vec::as_slice);
        let sources = Sources { active: &self.memory, frozen: &self.frozen, tables };
        let end = read(&sources, &mut Cached { cache: &mut self.cache, pins }, &mut self.scratch)?;
        if end == End::Missing {
            self.fetch(pins);
        }
        Ok(end)
    }
}

/// Buffers of reads, kept from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The part of a row that is shown.
    part: Vec<u8>,
    /// A row's cells so far, and with those of one more source.
    cells: Vec<u8>,
    merged: Vec<u8>,
    /// Rows that this call has looked at, and the clustering key of the last.
    looked: u32,
    passed: Vec<u8>,
    memo: LookupMemo,
    /// Since the start.
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
