//! A position in a table file: finds partitions and rows, and moves from one to the next.

use std::rc::Rc;

use super::block::Block;
use super::block::BlockAt;
use super::data::{Data, Piece, Ranges, ranges_of};
use super::index::{Index, Position};
use super::source::BlockSource;
use super::{Damage, Kind, Table, TableError};

/// The result of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    Ready,
    /// A block is missing and has been noted. The cursor keeps its position; call again when the
    /// block has come.
    Missing,
}

/// The row of a partition to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// The first row at or after a clustering key.
    From(&'a [u8]),
    /// The last row before a clustering key, or the last row of all.
    Before(Option<&'a [u8]>),
}

/// The position of a data block: an index block, and an entry of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BlockPosition {
    leaf: usize,
    entry: usize,
}

/// A data block, its position, and its index block.
#[derive(Clone, Debug)]
struct CurrentBlock {
    position: BlockPosition,
    leaf: Rc<Block>,
    block: Rc<Block>,
}

/// A partition of a table, and a row in it. The cursor holds their blocks, so that they cannot
/// leave memory.
#[derive(Debug)]
pub struct Cursor {
    table: Rc<Table>,
    /// The index block used last.
    leaf: Option<(usize, Rc<Block>)>,
    current: Option<CurrentBlock>,
    piece: usize,
    row: Option<usize>,
    /// The block in which the current partition begins, if it has range tombstones.
    head: Option<Rc<Block>>,
    read_ahead: usize,
    /// The target of [`Self::find`] when a data block was missing.
    going: Option<(BlockPosition, BlockAt)>,
}

/// Unwraps a block that is in memory, or returns that it is missing.
macro_rules! ready {
    ($found:expr) => {
        match $found? {
            Some(found) => found,
            None => return Ok(Step::Missing),
        }
    };
}

impl Cursor {
    /// A cursor without a position.
    pub fn new(table: Rc<Table>) -> Self {
        let (leaf, current, row, head, going) = (None, None, None, None, None);
        Self { table, leaf, current, piece: 0, row, head, read_ahead: 0, going }
    }

    /// Makes the cursor announce this many further blocks when a data block is missing.
    pub fn with_read_ahead(self, blocks: usize) -> Self {
        Self { read_ahead: blocks, ..self }
    }

    pub fn table(&self) -> &Rc<Table> {
        &self.table
    }

    /// Moves to a row of one partition if the table has it. It reads at most one index block, one
    /// data block, and the block in which the partition begins if that has range tombstones.
    /// [`Table::may_contain`] excludes most tables without the partition before.
    /// [`Self::partition`] tells whether the partition exists, [`Self::row`] whether the row does.
    pub fn find(
        &mut self,
        token: i64,
        key: &[u8],
        start: Start<'_>,
        source: &mut impl BlockSource,
    ) -> Result<Step, TableError> {
        let clustering = clustering_of(start);
        let target = Position { token, key, clustering };
        let Some(position) = ready!(self.locate(&target, source)) else {
            self.leave();
            return Ok(Step::Ready);
        };
        let Some(current) = self.fetch(position, source)? else {
            let leaf = self.leaf.as_ref().filter(|(leaf, _)| *leaf == position.leaf);
            let at =
                leaf.map(|(_, leaf)| self.table.block_at(index(leaf).position(position.entry)));
            self.going = at.map(|at| (position, at));
            return Ok(Step::Missing);
        };
        self.arrive(current, (token, key), start, source)
    }

    /// Continues the last [`Self::find`], with the same arguments, after a block was missing. A
    /// missing data block is not located again.
    pub fn find_on(
        &mut self,
        token: i64,
        key: &[u8],
        start: Start<'_>,
        source: &mut impl BlockSource,
    ) -> Result<Step, TableError> {
        let going = self.going.take().zip(self.leaf.as_ref());
        let Some(((position, at), leaf)) = going.filter(|((to, _), leaf)| to.leaf == leaf.0) else {
            return self.find(token, key, start, source);
        };
        let leaf = Rc::clone(&leaf.1);
        let Some(block) = self.table.get(at, Kind::Data, source)? else {
            self.going = Some((position, at));
            return Ok(Step::Missing);
        };
        self.arrive(CurrentBlock { position, leaf, block }, (token, key), start, source)
    }

    /// Enters a partition if the only block that may have it does.
    fn arrive(
        &mut self,
        current: CurrentBlock,
        (token, key): (i64, &[u8]),
        start: Start<'_>,
        source: &mut impl BlockSource,
    ) -> Result<Step, TableError> {
        let Ok(piece) = data(&current.block).find(token, key) else {
            self.leave();
            return Ok(Step::Ready);
        };
        self.enter(current, piece, Some(start), source)
    }

    /// Moves to the first partition at or after (token, key), before its rows.
    pub fn seek_partition(
        &mut self,
        token: i64,
        key: &[u8],
        source: &mut impl BlockSource,
    ) -> Result<Step, TableError> {
        let target = Position { token, key, clustering: Some(&[]) };
        let position =
            ready!(self.locate(&target, source)).unwrap_or(BlockPosition { leaf: 0, entry: 0 });
        let current = ready!(self.fetch(position, source));
        match data(&current.block).find(token, key) {
            Ok(piece) => self.enter(current, piece, None, source),
            Err(piece) => self.enter_or_next(current, piece, source),
        }
    }

    /// Moves to the partition after the current one, before its rows, however many rows lie
    /// between.
    pub fn next_partition(&mut self, source: &mut impl BlockSource) -> Result<Step, TableError> {
        loop {
            let Some(current) = self.current.clone() else { return Ok(Step::Ready) };
            if self.piece + 1 < data(&current.block).pieces() {
                return self.enter(current, self.piece + 1, None, source);
            }
            let Some(next) = self.next_position(&current) else {
                self.leave();
                return Ok(Step::Ready);
            };
            if !self.continues(&current, next) {
                let current = ready!(self.fetch(next, source));
                return self.enter(current, 0, None, source);
            }
            // Skip all blocks that continue the partition, to the last of them.
            let Piece { token, key, .. } = data(&current.block).piece(self.piece);
            let target = Position { token, key, clustering: None };
            let position = ready!(self.locate(&target, source)).unwrap_or(next).max(next);
            let last = ready!(self.fetch(position, source));
            let Ok(piece) = data(&last.block).find(token, key) else {
                return Err(self.damaged(position, "it does not continue the partition before"));
            };
            (self.current, self.piece, self.row) = (Some(last), piece, None);
        }
    }

    /// Token and key of the current partition.
    #[inline]
    pub fn partition(&self) -> Option<(i64, &[u8])> {
        let current = self.current.as_ref()?;
        let piece = data(&current.block).piece(self.piece);
        Some((piece.token, piece.key))
    }

    /// The range tombstones of the current partition.
    pub fn ranges(&self) -> Ranges<'_> {
        let found = self.partition().zip(self.head.as_ref()).and_then(|((token, key), head)| {
            let data = data(head);
            data.find(token, key).ok().map(|piece| data.ranges(piece))
        });
        ranges_of(found.unwrap_or_default())
    }

    /// Moves to a row of the current partition, from any row of it.
    pub fn seek_row(
        &mut self,
        start: Start<'_>,
        source: &mut impl BlockSource,
    ) -> Result<Step, TableError> {
        let Some(current) = self.current.clone() else { return Ok(Step::Ready) };
        let held = Rc::clone(&current.block);
        let here = data(&held);
        let piece = here.piece(self.piece);
        // Most partitions lie in one block.
        if !piece.continued && self.piece + 1 < here.pieces() {
            return self.enter_row(current, self.piece, start, source);
        }
        let Piece { token, key, .. } = piece;
        let target = Position { token, key, clustering: clustering_of(start) };
        let position = ready!(self.locate(&target, source)).unwrap_or(current.position);
        let current = ready!(self.fetch(position, source));
        let found = data(&current.block).find(token, key);
        let piece = found.map_err(|_| {
            self.damaged(position, "a partition is not at its position in the index")
        })?;
        self.enter_row(current, piece, start, source)
    }

    /// Clustering key and cells of the current row; `None` if there is no row.
    #[inline]
    pub fn row(&self) -> Option<(&[u8], &[u8])> {
        let current = self.current.as_ref()?;
        Some(data(&current.block).row(self.piece, self.row?))
    }

    /// Moves to the next row of the partition.
    #[inline]
    pub fn advance(&mut self, source: &mut impl BlockSource) -> Result<Step, TableError> {
        let Some((current, row)) = self.current.as_ref().zip(self.row) else {
            return Ok(Step::Ready);
        };
        if row + 1 < data(&current.block).rows_of(self.piece).end {
            self.row = Some(row + 1);
            return Ok(Step::Ready);
        }
        let next = ready!(self.continuation(current.clone(), self.piece, source));
        if let Some(next) = &next {
            self.piece = 0;
            self.current = Some(next.clone());
        }
        self.row = next.map(|_| 0);
        Ok(Step::Ready)
    }

    /// Moves to the previous row of the partition.
    #[inline]
    pub fn retreat(&mut self, source: &mut impl BlockSource) -> Result<Step, TableError> {
        let Some((current, row)) = self.current.as_ref().zip(self.row) else {
            return Ok(Step::Ready);
        };
        if row > data(&current.block).rows_of(self.piece).start {
            self.row = Some(row - 1);
            return Ok(Step::Ready);
        }
        self.before(current.clone(), self.piece, source)
    }

    /// Removes the position.
    fn leave(&mut self) {
        (self.current, self.row, self.head) = (None, None, None);
    }

    /// Enters a piece, or the first piece of the next block if this block has no such piece.
    fn enter_or_next(
        &mut self,
        current: CurrentBlock,
        piece: usize,
        source: &mut impl BlockSource,
    ) -> Result<Step, TableError> {
        if piece < data(&current.block).pieces() {
            return self.enter(current, piece, None, source);
        }
        let Some(next) = self.next_position(&current) else {
            self.leave();
            return Ok(Step::Ready);
        };
        let current = ready!(self.fetch(next, source));
        self.enter(current, 0, None, source)
    }

    /// Makes a piece the current one, with the block that has the range tombstones.
    fn enter(
        &mut self,
        current: CurrentBlock,
        piece: usize,
        start: Option<Start<'_>>,
        source: &mut impl BlockSource,
    ) -> Result<Step, TableError> {
        let held = Rc::clone(&current.block);
        let Piece { token, key, continued, has_ranges } = data(&held).piece(piece);
        let head = match (has_ranges, continued) {
            (false, _) => None,
            (true, false) => Some(Rc::clone(&current.block)),
            (true, true) => {
                let target = Position { token, key, clustering: Some(&[]) };
                let position = ready!(self.locate(&target, source)).unwrap_or(current.position);
                Some(ready!(self.fetch(position, source)).block)
            }
        };
        match start {
            Some(start) => {
                if self.enter_row(current, piece, start, source)? == Step::Missing {
                    return Ok(Step::Missing);
                }
            }
            None => (self.current, self.piece, self.row) = (Some(current), piece, None),
        }
        self.head = head;
        Ok(Step::Ready)
    }

    /// Makes a row of a piece, or of its neighbour in the partition, the current one.
    fn enter_row(
        &mut self,
        current: CurrentBlock,
        piece: usize,
        start: Start<'_>,
        source: &mut impl BlockSource,
    ) -> Result<Step, TableError> {
        let held = Rc::clone(&current.block);
        let here = data(&held);
        let rows = here.rows_of(piece);
        match start {
            Start::From(clustering) => {
                let row = here.row_from(piece, clustering);
                if row < rows.end {
                    (self.current, self.piece, self.row) = (Some(current), piece, Some(row));
                    return Ok(Step::Ready);
                }
                let next = ready!(self.continuation(current.clone(), piece, source));
                self.row = next.as_ref().map(|_| 0);
                self.piece = if next.is_some() { 0 } else { piece };
                self.current = Some(next.unwrap_or(current));
                Ok(Step::Ready)
            }
            Start::Before(to) => {
                let end = to.map_or(rows.end, |to| here.row_from(piece, to));
                if end > rows.start {
                    (self.current, self.piece, self.row) = (Some(current), piece, Some(end - 1));
                    return Ok(Step::Ready);
                }
                self.before(current, piece, source)
            }
        }
    }

    /// The block that continues the partition of a piece, if there is one.
    fn continuation(
        &mut self,
        current: CurrentBlock,
        piece: usize,
        source: &mut impl BlockSource,
    ) -> Result<Option<Option<CurrentBlock>>, TableError> {
        if piece + 1 < data(&current.block).pieces() {
            return Ok(Some(None));
        }
        let Some(position) =
            self.next_position(&current).filter(|next| self.continues(&current, *next))
        else {
            return Ok(Some(None));
        };
        let Some(next) = self.fetch(position, source)? else { return Ok(None) };
        let Piece { token, key, .. } = data(&current.block).piece(piece);
        let found = data(&next.block).piece(0);
        if !found.continued || (found.token, found.key) != (token, key) {
            return Err(self.damaged(position, "it does not continue the partition before"));
        }
        Ok(Some(Some(next)))
    }

    /// Makes the last row before a piece of the same partition the current one; there is none if
    /// the piece is the partition's first.
    fn before(
        &mut self,
        current: CurrentBlock,
        piece: usize,
        source: &mut impl BlockSource,
    ) -> Result<Step, TableError> {
        if !data(&current.block).piece(piece).continued {
            (self.current, self.piece, self.row) = (Some(current), piece, None);
            return Ok(Step::Ready);
        }
        let position = ready!(self.position_before(current.position, source));
        let before = ready!(self.fetch(position, source));
        let here = data(&before.block);
        let last = here.pieces() - 1;
        let Piece { token, key, .. } = data(&current.block).piece(piece);
        let found = here.piece(last);
        if (found.token, found.key) != (token, key) {
            return Err(self.damaged(position, "the begin of the partition is missing"));
        }
        let rows = here.rows_of(last);
        self.row = rows.end.checked_sub(1).filter(|row| rows.contains(row));
        (self.current, self.piece) = (Some(before), last);
        Ok(Step::Ready)
    }

    /// The only data block that may have a position; the inner option is empty if the position is
    /// below all blocks.
    fn locate(
        &mut self,
        target: &Position<'_>,
        source: &mut impl BlockSource,
    ) -> Result<Option<Option<BlockPosition>>, TableError> {
        let Some(leaf) = self.table.top.index().find(target) else { return Ok(Some(None)) };
        let Some(block) = self.index_of(leaf, source)? else { return Ok(None) };
        Ok(Some(index(&block).find(target).map(|entry| BlockPosition { leaf, entry })))
    }

    /// Reads an index block.
    fn index_of(
        &mut self,
        leaf: usize,
        source: &mut impl BlockSource,
    ) -> Result<Option<Rc<Block>>, TableError> {
        let current = self.current.as_ref().map(|current| (current.position.leaf, &current.leaf));
        let used = self.leaf.as_ref().map(|(leaf, block)| (*leaf, block));
        if let Some((_, block)) = current.into_iter().chain(used).find(|(held, _)| *held == leaf) {
            return Ok(Some(Rc::clone(block)));
        }
        let at = self.table.block_at(self.table.top.index().position(leaf));
        let block = self.table.get(at, Kind::Index, source)?;
        if let Some(block) = &block {
            self.leaf = Some((leaf, Rc::clone(block)));
        }
        Ok(block)
    }

    /// Reads a data block. If it is missing, announces the blocks after it.
    fn fetch(
        &mut self,
        position: BlockPosition,
        source: &mut impl BlockSource,
    ) -> Result<Option<CurrentBlock>, TableError> {
        if let Some(current) = &self.current
            && current.position == position
        {
            return Ok(Some(current.clone()));
        }
        let Some(leaf) = self.index_of(position.leaf, source)? else { return Ok(None) };
        let index = index(&leaf);
        let at = self.table.block_at(index.position(position.entry));
        let block = self.table.get(at, Kind::Data, source)?;
        if block.is_none() {
            for entry in (position.entry + 1..index.len()).take(self.read_ahead) {
                let at = self.table.block_at(index.position(entry));
                self.table.check_place(at)?;
                source.expect(at);
            }
            return Ok(None);
        }
        Ok(block.map(|block| CurrentBlock { position, leaf, block }))
    }

    /// The position of the next data block, if there is one.
    fn next_position(&self, current: &CurrentBlock) -> Option<BlockPosition> {
        let BlockPosition { leaf, entry } = current.position;
        if entry + 1 < index(&current.leaf).len() {
            return Some(BlockPosition { leaf, entry: entry + 1 });
        }
        let more = leaf + 1 < self.table.top.index().len();
        more.then_some(BlockPosition { leaf: leaf + 1, entry: 0 })
    }

    /// Whether the block after the current one continues a partition: only then its separator has a
    /// clustering key. The top has the separator of the first block of an index block too.
    fn continues(&self, current: &CurrentBlock, next: BlockPosition) -> bool {
        let separator = if next.leaf == current.position.leaf {
            index(&current.leaf).separator(next.entry)
        } else {
            self.table.top.index().separator(next.leaf)
        };
        separator.clustering != Some(&[])
    }

    /// The position of the previous data block, which must exist.
    fn position_before(
        &mut self,
        position: BlockPosition,
        source: &mut impl BlockSource,
    ) -> Result<Option<BlockPosition>, TableError> {
        if let Some(entry) = position.entry.checked_sub(1) {
            return Ok(Some(BlockPosition { entry, ..position }));
        }
        let Some(leaf) = position.leaf.checked_sub(1) else {
            return Err(self.damaged(position, "the first block continues a partition"));
        };
        let Some(block) = self.index_of(leaf, source)? else { return Ok(None) };
        Ok(Some(BlockPosition { leaf, entry: index(&block).len() - 1 }))
    }

    /// Damage at a data block if its position is known, or else at its index block.
    fn damaged(&self, position: BlockPosition, what: &'static str) -> TableError {
        let leaf = self.leaf.as_ref().filter(|(leaf, _)| *leaf == position.leaf);
        let at: BlockAt = match leaf {
            Some((_, block)) => self.table.block_at(index(block).position(position.entry)),
            None => self.table.block_at(self.table.top.index().position(position.leaf)),
        };
        at.damaged(Damage::Structure(what))
    }
}

/// The clustering key that a start looks up in the index.
fn clustering_of(start: Start<'_>) -> Option<&[u8]> {
    match start {
        Start::From(clustering) => Some(clustering),
        Start::Before(to) => to,
    }
}

/// The contents of a data block. The caller has checked its kind.
#[inline]
fn data(block: &Block) -> Data<'_> {
    Data::of(block.contents()).expect("the block was checked")
}

/// The contents of an index block. The caller has checked its kind.
#[inline]
fn index(block: &Block) -> Index<'_> {
    Index::of(block.contents()).expect("the block was checked")
}
