//! The newest rows of a shard, of all its tables, in memory: those that were written since the last
//! flush.
//!
//! Rows are ordered by (table, token, partition key, clustering key): a directory per table finds
//! the partition, a B+ tree per partition its rows; a partition without clustering columns points
//! to its one row directly. Range tombstones are boundaries in a second tree: each holds the
//! deletion from there to the next boundary.
//!
//! Everything lies in an arena that is freed as a whole. A value that a longer one replaces stays
//! there until then and counts ([`Memtable::bytes`]).

mod arena;
mod cursor;
mod directory;
mod tree;

pub use cursor::Cursor;

use crate::cells::{self, Deletion};
use crate::entry::{Change, Mutation, RangeTombstone};
use arena::{Arena, Handle, Slab};
use directory::{Bucket, Directory, Partition, PartitionPosition};
use tree::{Nodes, Tree, TreePosition};

const DELETION_BYTES: usize = 12;
/// The value of a boundary from which on nothing is deleted.
const NOTHING: u32 = u32::MAX;

/// The rows of all tables of a shard that were written in one period.
#[derive(Debug, Default)]
pub struct Memtable {
    memory: Storage,
    /// Tables, ascending by number.
    tables: Vec<TableRows>,
    scratch: Vec<u8>,
}

/// The rows of one table.
#[derive(Debug)]
struct TableRows {
    table: u32,
    directory: Directory,
    partitions: u64,
    timestamp_min: i64,
}

/// The memory that all tables share.
#[derive(Debug, Default)]
struct Storage {
    arena: Arena,
    nodes: Nodes,
    buckets: Slab<Bucket>,
    multi_row: Slab<MultiRow>,
}

/// A partition with clustering keys or range tombstones.
#[derive(Clone, Copy, Debug)]
struct MultiRow {
    /// Cells by clustering key.
    rows: Tree,
    /// A [`Deletion`] or [`NOTHING`] by boundary.
    ranges: Option<Tree>,
}

/// The position of a partition's rows, in 32 bits.
#[derive(Clone, Copy, Debug)]
enum Rows {
    /// The cells of the only row, which has an empty clustering key.
    Single(Handle),
    Multi(u32),
}

impl Rows {
    const MANY: u32 = 1 << 31;

    fn pack(self) -> u32 {
        match self {
            Self::Single(cells) => cells.0,
            Self::Multi(number) => number | Self::MANY,
        }
    }

    #[inline]
    fn unpack(packed: u32) -> Self {
        match packed & Self::MANY {
            0 => Self::Single(Handle(packed)),
            _ => Self::Multi(packed & !Self::MANY),
        }
    }
}

impl Memtable {
    /// Applies one mutation. Neither order nor repetition matters.
    pub fn apply(&mut self, mutation: &Mutation<'_>) {
        let index = self.index_or_insert(mutation.table);
        let table = &mut self.tables[index];
        let timestamp_min = match &mutation.change {
            Change::Row { cells, .. } => cells::iter(cells).map(|cell| cell.timestamp).min(),
            Change::Range(range) => Some(range.timestamp),
        };
        table.timestamp_min = table.timestamp_min.min(timestamp_min.unwrap_or(i64::MAX));
        let memory = &mut self.memory;
        let Mutation { token, key, .. } = *mutation;
        let found = table.directory.find(&memory.buckets, &memory.arena, token, key);
        match (&mutation.change, found) {
            (Change::Row { clustering, cells }, Ok(position)) => {
                memory.merge_row(position, clustering, cells, &mut self.scratch);
            }
            (Change::Range(range), Ok(position)) => memory.cover(position, range),
            (change, Err(_)) => {
                table.partitions += 1;
                let key = memory.arena.put(key);
                let rows = memory.new_rows(change, &mut self.scratch).pack();
                let partition = Partition { token, key, rows };
                table.directory.insert(&mut memory.buckets, &memory.arena, partition);
            }
        }
    }

    /// Bytes in use, including garbage.
    #[inline]
    pub fn bytes(&self) -> usize {
        let Storage { arena, nodes, buckets, multi_row } = &self.memory;
        let directories: usize = self.tables.iter().map(|table| table.directory.bytes()).sum();
        arena.bytes() + nodes.bytes() + buckets.bytes() + multi_row.bytes() + directories
    }

    /// Whether no table has rows or tombstones.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The numbers of the tables that have rows or tombstones, ascending.
    pub fn tables(&self) -> impl Iterator<Item = u32> {
        self.tables.iter().map(|table| table.table)
    }

    /// Number of partitions of a table.
    pub fn partitions(&self, table: u32) -> u64 {
        self.index(table).map_or(0, |index| self.tables[index].partitions)
    }

    /// A lower bound of the timestamps of the table's cells and tombstones; `i64::MAX` if it has
    /// none.
    pub fn timestamp_min(&self, table: u32) -> i64 {
        self.index(table).map_or(i64::MAX, |index| self.tables[index].timestamp_min)
    }

    /// Drops the tables for which `is_live` returns false. Their bytes are freed when no table is
    /// left, or with the memtable.
    pub fn retain(&mut self, is_live: impl Fn(u32) -> bool) {
        self.tables.retain(|table| is_live(table.table));
        if self.tables.is_empty() {
            *self = Self::default();
        }
    }

    #[inline]
    fn index(&self, table: u32) -> Option<usize> {
        self.tables.binary_search_by_key(&table, |known| known.table).ok()
    }

    #[inline]
    fn index_or_insert(&mut self, table: u32) -> usize {
        match self.tables.binary_search_by_key(&table, |known| known.table) {
            Ok(index) => index,
            Err(index) => {
                let directory = Directory::new(&mut self.memory.buckets);
                let rows = TableRows { table, directory, partitions: 0, timestamp_min: i64::MAX };
                self.tables.insert(index, rows);
                index
            }
        }
    }
}

impl Storage {
    /// The rows of a new partition.
    fn new_rows(&mut self, change: &Change<'_>, scratch: &mut Vec<u8>) -> Rows {
        match change {
            Change::Row { clustering: [], cells } => Rows::Single(self.put_row(cells, scratch)),
            Change::Row { clustering, cells } => {
                let mut rows = Tree::new(&mut self.nodes);
                let key = self.arena.put(clustering);
                let cells = self.put_row(cells, scratch);
                rows.insert(&mut self.nodes, &self.arena, key, cells.0);
                Rows::Multi(self.multi_row.push(MultiRow { rows, ranges: None }))
            }
            Change::Range(range) => {
                let rows = Tree::new(&mut self.nodes);
                let number = self.multi_row.push(MultiRow { rows, ranges: None });
                self.cover_multi_row(number, range);
                Rows::Multi(number)
            }
        }
    }

    /// Stores a new row, without the cells that its own deletion hides.
    #[inline]
    fn put_row(&mut self, cells: &[u8], scratch: &mut Vec<u8>) -> Handle {
        if cells::deletion(cells).is_none() {
            return self.arena.put(cells);
        }
        cells::merge(cells, &[], scratch);
        self.arena.put(scratch)
    }

    fn merge_row(
        &mut self,
        position: PartitionPosition,
        clustering: &[u8],
        cells: &[u8],
        scratch: &mut Vec<u8>,
    ) {
        match Rows::unpack(position.partition(&self.buckets).rows) {
            Rows::Single(old) if clustering.is_empty() => {
                let new = self.merge_cells(old, cells, scratch);
                if new != old {
                    position.set_rows(&mut self.buckets, Rows::Single(new).pack());
                }
            }
            Rows::Single(_) => {
                let number = self.make_multi_row(position);
                self.merge_multi_row(number, clustering, cells, scratch);
            }
            Rows::Multi(number) => self.merge_multi_row(number, clustering, cells, scratch),
        }
    }

    fn merge_multi_row(
        &mut self,
        number: u32,
        clustering: &[u8],
        cells: &[u8],
        scratch: &mut Vec<u8>,
    ) {
        let mut rows = self.multi_row.get(number).rows;
        let position = rows.seek(&self.nodes, &self.arena, clustering);
        match position.entry(&self.nodes) {
            Some((key, old)) if self.arena.get(key) == clustering => {
                let new = self.merge_cells(Handle(old), cells, scratch);
                if new.0 != old {
                    position.set(&mut self.nodes, new.0);
                }
            }
            _ => {
                let key = self.arena.put(clustering);
                let cells = self.put_row(cells, scratch);
                rows.insert(&mut self.nodes, &self.arena, key, cells.0);
                self.multi_row.get_mut(number).rows = rows;
            }
        }
    }

    #[inline]
    fn merge_cells(&mut self, old: Handle, cells: &[u8], scratch: &mut Vec<u8>) -> Handle {
        cells::merge(self.arena.get(old), cells, scratch);
        self.arena.replace(old, scratch)
    }

    /// Converts a partition of one row into one with a tree.
    fn make_multi_row(&mut self, position: PartitionPosition) -> u32 {
        match Rows::unpack(position.partition(&self.buckets).rows) {
            Rows::Multi(number) => number,
            Rows::Single(cells) => {
                let mut rows = Tree::new(&mut self.nodes);
                let key = self.arena.put(&[]);
                rows.insert(&mut self.nodes, &self.arena, key, cells.0);
                let number = self.multi_row.push(MultiRow { rows, ranges: None });
                position.set_rows(&mut self.buckets, Rows::Multi(number).pack());
                number
            }
        }
    }

    fn cover(&mut self, position: PartitionPosition, range: &RangeTombstone<'_>) {
        let number = self.make_multi_row(position);
        self.cover_multi_row(number, range);
    }

    /// Adds a range tombstone to the boundaries of a partition.
    fn cover_multi_row(&mut self, number: u32, range: &RangeTombstone<'_>) {
        if range.to.is_some_and(|to| to <= range.from) {
            return;
        }
        let mut ranges = match self.multi_row.get(number).ranges {
            Some(ranges) => ranges,
            None => Tree::new(&mut self.nodes),
        };
        self.bound(&mut ranges, range.from);
        if let Some(to) = range.to {
            self.bound(&mut ranges, to);
        }
        self.multi_row.get_mut(number).ranges = Some(ranges);
        let new = range.deletion();
        let value = self.put_deletion(new).0;
        let mut position = ranges.seek(&self.nodes, &self.arena, range.from);
        while let Some((key, old)) = position.entry(&self.nodes) {
            if range.to.is_some_and(|to| self.arena.get(key) >= to) {
                return;
            }
            if self.deletion(old) < Some(new) {
                position.set(&mut self.nodes, value);
            }
            position = position.next(&self.nodes);
        }
    }

    /// Adds a boundary unless it exists, without a change of what is deleted there.
    fn bound(&mut self, ranges: &mut Tree, key: &[u8]) {
        if ranges.get(&self.nodes, &self.arena, key).is_none() {
            let value = self.in_force(ranges, key);
            let key = self.arena.put(key);
            ranges.insert(&mut self.nodes, &self.arena, key, value);
        }
    }

    /// The value of the last boundary at or before a key.
    fn in_force(&self, ranges: &Tree, key: &[u8]) -> u32 {
        let position = ranges.seek(&self.nodes, &self.arena, key);
        let before = |position: TreePosition| position.previous(&self.nodes).entry(&self.nodes);
        match position.entry(&self.nodes) {
            Some((found, value)) if self.arena.get(found) == key => value,
            _ => before(position).map_or(NOTHING, |(_, value)| value),
        }
    }

    fn put_deletion(&mut self, deletion: Deletion) -> Handle {
        let mut bytes = [0; DELETION_BYTES];
        bytes[..8].copy_from_slice(&deletion.timestamp.to_le_bytes());
        bytes[8..].copy_from_slice(&deletion.deleted_s.to_le_bytes());
        self.arena.put(&bytes)
    }

    /// The deletion that belongs to a boundary's value.
    fn deletion(&self, value: u32) -> Option<Deletion> {
        if value == NOTHING {
            return None;
        }
        let (timestamp, rest) = self.arena.get(Handle(value)).split_first_chunk()?;
        Some(Deletion {
            timestamp: i64::from_le_bytes(*timestamp),
            deleted_s: u32::from_le_bytes(*rest.first_chunk()?),
        })
    }
}

#[cfg(test)]
mod tests;
