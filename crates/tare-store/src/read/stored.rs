//! A table on disk as a source of rows.

use super::ReadError;
use crate::cells::Deletion;
use crate::entry::RangeTombstone;
use crate::row_source::{Source, Step};
use crate::table::{BlockSource, Cursor, Start};

/// A position in a table.
#[derive(Debug)]
pub struct Stored {
    cursor: Cursor,
    reversed: bool,
    /// Number of bytes left at the begin of each range tombstone of the partition.
    ranges: Vec<usize>,
    /// Whether the cursor is before the rows of its partition because a block was missing.
    entering: bool,
}

impl Stored {
    /// A source that has no position yet.
    pub fn new(cursor: Cursor) -> Self {
        Self { cursor, reversed: false, ranges: Vec::new(), entering: false }
    }

    /// Moves to the first row of the first partition at or after (token, key).
    pub fn open(
        &mut self,
        token: i64,
        key: &[u8],
        blocks: &mut impl BlockSource,
    ) -> Result<Step, ReadError> {
        if !self.entering && self.cursor.seek_partition(token, key, blocks)? == Step::Missing {
            return Ok(Step::Missing);
        }
        self.enter(blocks)
    }

    /// Moves to a row of one partition, if the table has it: `Source::partition` tells.
    pub fn find(
        &mut self,
        token: i64,
        key: &[u8],
        start: Start<'_>,
        blocks: &mut impl BlockSource,
    ) -> Result<Step, ReadError> {
        self.reversed = matches!(start, Start::Before(_));
        let step = self.cursor.find(token, key, start, blocks)?;
        self.index_ranges();
        Ok(step)
    }

    /// Continues the last [`Self::find`], with the same arguments, after a block was missing.
    pub fn find_on(
        &mut self,
        token: i64,
        key: &[u8],
        start: Start<'_>,
        blocks: &mut impl BlockSource,
    ) -> Result<Step, ReadError> {
        let step = self.cursor.find_on(token, key, start, blocks)?;
        self.index_ranges();
        Ok(step)
    }

    /// Moves to the first row of the cursor's partition.
    fn enter(&mut self, blocks: &mut impl BlockSource) -> Result<Step, ReadError> {
        self.reversed = false;
        self.entering = true;
        let step = self.cursor.seek_row(Start::From(&[]), blocks)?;
        self.entering = step == Step::Missing;
        self.index_ranges();
        Ok(step)
    }

    fn index_ranges(&mut self) {
        self.ranges.clear();
        let mut ranges = self.cursor.ranges();
        let mut left = ranges.left();
        while ranges.next().is_some() {
            self.ranges.push(left);
            left = ranges.left();
        }
    }
}

impl<B: BlockSource> Source<B> for Stored {
    fn partition(&self) -> Option<(i64, &[u8])> {
        self.cursor.partition()
    }

    fn row(&self) -> Option<(&[u8], &[u8])> {
        self.cursor.row()
    }

    fn covering(&self, clustering: &[u8]) -> Option<Deletion> {
        if self.ranges.is_empty() {
            return None;
        }
        // Ranges do not overlap, so only the last one that begins early enough may cover the key.
        let all = self.cursor.ranges();
        let range = |left: usize| all.with_left(left).next();
        let begins = |&left: &usize| range(left).is_some_and(|range| range.from <= clustering);
        let last = self.ranges[..self.ranges.partition_point(begins)].last()?;
        let reaches = |range: &RangeTombstone<'_>| range.to.is_none_or(|to| clustering < to);
        range(*last).filter(reaches).map(|range| range.deletion())
    }

    fn ranges(&self, each: &mut dyn FnMut(RangeTombstone<'_>)) {
        self.cursor.ranges().for_each(each);
    }

    fn seek(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        reversed: bool,
        blocks: &mut B,
    ) -> Result<Step, ReadError> {
        let start = if reversed { Start::Before(to) } else { Start::From(from) };
        let step = self.cursor.seek_row(start, blocks)?;
        self.reversed = reversed;
        Ok(step)
    }

    fn next_row(&mut self, blocks: &mut B) -> Result<Step, ReadError> {
        let step = match self.reversed {
            false => self.cursor.advance(blocks)?,
            true => self.cursor.retreat(blocks)?,
        };
        Ok(step)
    }

    fn next_partition(&mut self, blocks: &mut B) -> Result<Step, ReadError> {
        if !self.entering && self.cursor.next_partition(blocks)? == Step::Missing {
            return Ok(Step::Missing);
        }
        self.enter(blocks)
    }
}
