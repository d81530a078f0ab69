//! A walk through a memtable in order, from any position. A cursor keeps numbers and no borrows, so
//! that with an `Rc<Memtable>` a walk can be interrupted; meanwhile nothing may be applied.

use std::ops::Deref;

use super::arena::Handle;
use super::directory::PartitionPosition;
use super::tree::{Tree, TreePosition};
use super::{Memtable, Rows};
use crate::cells::Deletion;
use crate::entry::RangeTombstone;
use crate::row_source::{ReadError, Source, Step};

/// A position among the rows of one table; `M` is `&Memtable` or `Rc<Memtable>`.
#[derive(Clone, Debug)]
pub struct Cursor<M> {
    memtable: M,
    table: usize,
    partition: Option<PartitionPosition>,
    row: RowPosition,
    ranges: Option<Tree>,
    reversed: bool,
}

/// The position of a cursor in its partition.
#[derive(Clone, Copy, Debug)]
enum RowPosition {
    End,
    /// The row of a partition with a single row.
    Single(Handle),
    Row(TreePosition),
}

impl<M: Deref<Target = Memtable>> Cursor<M> {
    /// A cursor at the first row of a table.
    pub fn new(memtable: M, table: u32) -> Self {
        Self::from(memtable, table, i64::MIN, &[])
    }

    /// A cursor at the first row of the first partition that is not before (token, key).
    pub fn from(memtable: M, table: u32, token: i64, key: &[u8]) -> Self {
        let memory = &memtable.memory;
        let index = memtable.index(table);
        let first = index.and_then(|index| {
            memtable.tables[index].directory.first_from(&memory.buckets, &memory.arena, token, key)
        });
        Self::at_position(memtable, index.unwrap_or(0), first)
    }

    /// A cursor at the first row of one partition; `None` if there is no such partition.
    #[inline]
    pub fn at(memtable: M, table: u32, token: i64, key: &[u8]) -> Option<Self> {
        let memory = &memtable.memory;
        let index = memtable.index(table)?;
        let directory = &memtable.tables[index].directory;
        let position = directory.find(&memory.buckets, &memory.arena, token, key).ok()?;
        Some(Self::at_position(memtable, index, Some(position)))
    }

    #[inline]
    fn at_position(memtable: M, table: usize, partition: Option<PartitionPosition>) -> Self {
        let mut cursor = Self {
            memtable,
            table,
            partition,
            row: RowPosition::End,
            ranges: None,
            reversed: false,
        };
        cursor.enter();
        cursor
    }

    /// Moves to the first row of the partition.
    #[inline]
    fn enter(&mut self) {
        let memory = &self.memtable.memory;
        let rows = self.partition.map(|position| position.partition(&memory.buckets).rows);
        (self.row, self.ranges) = match rows.map(Rows::unpack) {
            None => (RowPosition::End, None),
            Some(Rows::Single(cells)) => (RowPosition::Single(cells), None),
            Some(Rows::Multi(number)) => {
                let multi_row = memory.multi_row.get(number);
                (
                    RowPosition::Row(multi_row.rows.seek(&memory.nodes, &memory.arena, &[])),
                    multi_row.ranges,
                )
            }
        };
        self.reversed = false;
    }

    /// Token and key of the partition.
    #[inline]
    pub fn partition(&self) -> Option<(i64, &[u8])> {
        let memory = &self.memtable.memory;
        let partition = self.partition?.partition(&memory.buckets);
        Some((partition.token, memory.arena.get(partition.key)))
    }

    /// Clustering key and cells of the row.
    #[inline]
    pub fn row(&self) -> Option<(&[u8], &[u8])> {
        let memory = &self.memtable.memory;
        match self.row {
            RowPosition::End => None,
            RowPosition::Single(cells) => Some((&[], memory.arena.get(cells))),
            RowPosition::Row(position) => {
                let (key, cells) = position.entry(&memory.nodes)?;
                Some((memory.arena.get(key), memory.arena.get(Handle(cells))))
            }
        }
    }

    /// Moves to the next row of the partition, or to the previous one if the cursor is reversed.
    #[inline]
    pub fn next_row(&mut self) {
        let nodes = &self.memtable.memory.nodes;
        self.row = match self.row {
            RowPosition::Row(position) if self.reversed => {
                RowPosition::Row(position.previous(nodes))
            }
            RowPosition::Row(position) => RowPosition::Row(position.next(nodes)),
            RowPosition::Single(_) | RowPosition::End => RowPosition::End,
        };
    }

    /// Moves to the first row of the next partition.
    pub fn next_partition(&mut self) {
        let buckets = &self.memtable.memory.buckets;
        let table = self.memtable.tables.get(self.table);
        self.partition = match (self.partition, table) {
            (Some(position), Some(table)) => table.directory.next(buckets, position),
            _ => None,
        };
        self.enter();
    }

    /// Moves within the partition to the first row of a range, or with `reversed` to the last one.
    #[inline]
    pub fn seek(&mut self, from: &[u8], to: Option<&[u8]>, reversed: bool) {
        let memory = &self.memtable.memory;
        let rows = self.partition.map(|position| position.partition(&memory.buckets).rows);
        self.reversed = reversed;
        self.row = match rows.map(Rows::unpack) {
            None => RowPosition::End,
            // The only row has the empty key, which is in the range if the range starts there.
            Some(Rows::Single(cells)) => {
                let inside = from.is_empty() && to.is_none_or(|to| !to.is_empty());
                if inside { RowPosition::Single(cells) } else { RowPosition::End }
            }
            Some(Rows::Multi(number)) => {
                let rows = memory.multi_row.get(number).rows;
                RowPosition::Row(match (reversed, to) {
                    (false, _) => rows.seek(&memory.nodes, &memory.arena, from),
                    (true, None) => rows.last(&memory.nodes),
                    (true, Some(to)) => {
                        rows.seek(&memory.nodes, &memory.arena, to).previous(&memory.nodes)
                    }
                })
            }
        };
    }

    /// Moves to one row of the partition. Returns its cells and the range tombstone over it.
    #[inline]
    pub fn find_row(&mut self, clustering: &[u8]) -> (Option<&[u8]>, Option<Deletion>) {
        self.seek(clustering, None, false);
        let cells = self.row().filter(|(found, _)| *found == clustering).map(|(_, cells)| cells);
        (cells, self.covering(clustering))
    }

    /// The range tombstone of the partition over a clustering key.
    #[inline]
    pub fn covering(&self, clustering: &[u8]) -> Option<Deletion> {
        let ranges = self.ranges.as_ref()?;
        let memory = &self.memtable.memory;
        memory.deletion(memory.in_force(ranges, clustering))
    }

    /// Calls `each` with the range tombstones of the partition, in order; none overlap.
    pub fn ranges(&self, mut each: impl FnMut(RangeTombstone<'_>)) {
        let Some(ranges) = self.ranges else { return };
        let memory = &self.memtable.memory;
        let mut position = ranges.seek(&memory.nodes, &memory.arena, &[]);
        while let Some((from, value)) = position.entry(&memory.nodes) {
            // Neighbours with the same deletion are one range.
            let mut next = position.next(&memory.nodes);
            while let Some((_, same)) = next.entry(&memory.nodes)
                && memory.deletion(same) == memory.deletion(value)
            {
                next = next.next(&memory.nodes);
            }
            let to = next.entry(&memory.nodes).map(|(key, _)| memory.arena.get(key));
            if let Some(Deletion { timestamp, deleted_s }) = memory.deletion(value) {
                let from = memory.arena.get(from);
                each(RangeTombstone { from, to, timestamp, deleted_s });
            }
            position = next;
        }
    }
}

impl<B, M: Deref<Target = Memtable>> Source<B> for Cursor<M> {
    fn partition(&self) -> Option<(i64, &[u8])> {
        Cursor::partition(self)
    }

    fn row(&self) -> Option<(&[u8], &[u8])> {
        Cursor::row(self)
    }

    fn covering(&self, clustering: &[u8]) -> Option<Deletion> {
        Cursor::covering(self, clustering)
    }

    fn ranges(&self, each: &mut dyn FnMut(RangeTombstone<'_>)) {
        Cursor::ranges(self, each);
    }

    fn seek(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        reversed: bool,
        _: &mut B,
    ) -> Result<Step, ReadError> {
        Cursor::seek(self, from, to, reversed);
        Ok(Step::Ready)
    }

    fn next_row(&mut self, _: &mut B) -> Result<Step, ReadError> {
        Cursor::next_row(self);
        Ok(Step::Ready)
    }

    fn next_partition(&mut self, _: &mut B) -> Result<Step, ReadError> {
        Cursor::next_partition(self);
        Ok(Step::Ready)
    }
}
