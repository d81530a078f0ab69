//! Reading rows: merged over all sources, without what is dead, expired or hidden.
//!
//! Reads are restartable. A read that meets a block that is not in memory ends in
//! [`End::Missing`]; [`Pins`] has noted the block and will hold it when it has come. The caller
//! keeps what it was shown and reads on after the last row of it.
//!
//! A partition that only the active memtable knows is walked without an allocation and without
//! copying: only rows of which a part is dead are copied, into a buffer that is kept.

pub mod merge;
pub mod source;
pub mod stored;

use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;

use crate::cache::Pins;
use crate::cells::{self, Shown};
use crate::memtable::{Cursor, Memtable};
use crate::store::Store;
use merge::Merge;
use source::{Source, Step};

/// Why rows cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{file} is damaged at offset {offset}: {what}; restore the file from a snapshot")]
    Damaged { file: String, offset: u64, what: &'static str },
    #[error(transparent)]
    Table(#[from] crate::table::TableError),
    #[error("cannot read {file} at offset {offset}")]
    Io { file: String, offset: u64, source: io::Error },
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

/// A row that is alive. Its cells, at least one, are those that can be seen (see [`cells`]).
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
    /// A scan has taken its steps: go on whenever it suits.
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
        let sources = Sources { active: &self.memory, frozen: &self.frozen };
        let end = sources.read(read, &mut self.part, visit)?;
        if end == End::Missing {
            self.fetch(pins);
        }
        Ok(end)
    }

    /// Shows the rows of a table in order of (token, key, clustering key).
    pub fn scan(
        &mut self,
        scan: &mut Scan,
        _pins: &mut Pins,
        visit: impl FnMut(Row<'_>) -> Next,
    ) -> Result<End, ReadError> {
        let sources = Sources { active: &self.memory, frozen: &self.frozen };
        sources.scan(scan, &mut self.part, visit)
    }
}

/// Where the rows of a shard are.
struct Sources<'s> {
    active: &'s Memtable,
    frozen: &'s [Rc<Memtable>],
}

impl<'s> Sources<'s> {
    #[inline]
    fn read(
        &self,
        read: &PartitionRead<'_>,
        part: &mut Vec<u8>,
        visit: impl FnMut(Row<'_>) -> ControlFlow<()>,
    ) -> Result<End, ReadError> {
        let at = |memtable: &'s Memtable| Cursor::at(memtable, read.table, read.token, read.key);
        let active = at(self.active);
        if self.frozen.is_empty() {
            let Some(mut active) = active else { return Ok(End::Done) };
            return walk(&mut active, &mut (), read, part, visit);
        }
        let frozen = self.frozen.iter().filter_map(|memtable| at(memtable));
        let mut merge = Merge::new(active.into_iter().chain(frozen).collect());
        walk(&mut merge, &mut (), read, part, visit)
    }

    fn scan(
        &self,
        scan: &mut Scan,
        part: &mut Vec<u8>,
        visit: impl FnMut(Row<'_>) -> Next,
    ) -> Result<End, ReadError> {
        let Position { token, key, .. } = &scan.position;
        let from = |memtable: &'s Memtable| Cursor::from(memtable, scan.table, *token, key);
        let frozen = self.frozen.iter().map(|memtable| from(memtable));
        let mut merge = Merge::new(std::iter::once(from(self.active)).chain(frozen).collect());
        walk_all(&mut merge, &mut (), scan, part, visit)
    }
}

/// Shows the rows of the partition in which a source stands.
#[inline]
fn walk<B>(
    source: &mut impl Source<B>,
    blocks: &mut B,
    read: &PartitionRead<'_>,
    part: &mut Vec<u8>,
    mut visit: impl FnMut(Row<'_>) -> ControlFlow<()>,
) -> Result<End, ReadError> {
    let PartitionRead { token, key, slices, reversed, after, now_s, .. } = *read;
    for index in 0..slices.len() {
        let slice = slices[if reversed { slices.len() - 1 - index } else { index }];
        let (mut from, mut to) = (slice.from, slice.to);
        match after {
            Some(after) if reversed && to.is_none_or(|to| after < to) => to = Some(after),
            Some(after) if !reversed && after > from => from = after,
            _ => {}
        }
        if to.is_some_and(|to| to <= from) {
            continue;
        }
        if source.seek(from, to, reversed, blocks)? == Step::Missing {
            return Ok(End::Missing);
        }
        while let Some((clustering, cells)) = source.row() {
            let is_outside = match reversed {
                false => to.is_some_and(|to| clustering >= to),
                true => clustering < from,
            };
            if is_outside {
                break;
            }
            if after != Some(clustering) {
                let covering = source.covering(clustering);
                let shown = match cells::show(cells, covering, now_s, part) {
                    Shown::Whole => cells,
                    Shown::Part => &part[..],
                    Shown::Nothing => &[],
                };
                let row = Row { token, key, clustering, cells: shown };
                if !shown.is_empty() && visit(row).is_break() {
                    return Ok(End::Stopped);
                }
            }
            if source.next_row(blocks)? == Step::Missing {
                return Ok(End::Missing);
            }
        }
    }
    Ok(End::Done)
}

/// Shows the rows of all partitions from the one on in which a source stands.
fn walk_all<B>(
    source: &mut impl Source<B>,
    blocks: &mut B,
    scan: &mut Scan,
    part: &mut Vec<u8>,
    mut visit: impl FnMut(Row<'_>) -> Next,
) -> Result<End, ReadError> {
    let mut steps = scan.steps;
    let Scan { position, to_token, now_s, .. } = scan;
    loop {
        let Some((token, key)) = source.partition() else { return Ok(End::Done) };
        if token > *to_token {
            return Ok(End::Done);
        }
        let is_resumed =
            position.clustering.is_some() && (token, key) == (position.token, &position.key[..]);
        if !is_resumed {
            position.enter(token, key);
        }
        if let Some(after) = &position.clustering
            && source.seek(after, None, false, blocks)? == Step::Missing
        {
            return Ok(End::Missing);
        }
        while let Some((clustering, cells)) = source.row() {
            if steps == 0 {
                return Ok(End::Paused);
            }
            if position.clustering.as_deref() != Some(clustering) {
                steps -= 1;
                position.pass_row(clustering);
                let covering = source.covering(clustering);
                let shown = match cells::show(cells, covering, *now_s, part) {
                    Shown::Whole => cells,
                    Shown::Part => &part[..],
                    Shown::Nothing => &[],
                };
                let row =
                    Row { token: position.token, key: &position.key, clustering, cells: shown };
                let next = if shown.is_empty() { Next::Row } else { visit(row) };
                match next {
                    Next::Row => {}
                    Next::Partition => break,
                    Next::Stop => return Ok(End::Stopped),
                }
            }
            if source.next_row(blocks)? == Step::Missing {
                return Ok(End::Missing);
            }
        }
        position.pass_partition();
        if steps == 0 {
            return Ok(End::Paused);
        }
        steps -= 1;
        if source.next_partition(blocks)? == Step::Missing {
            return Ok(End::Missing);
        }
    }
}

#[cfg(test)]
mod tests;
