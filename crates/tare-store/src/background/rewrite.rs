//! Merges the rows of several sources into one new table, for flushes and compactions.

use crate::cells::{self, Purge};
use crate::read::merge::{Merge, Ranges};
use crate::row_source::{ReadError, Source, Step};
use crate::table::TableWriter;

/// Cost of a partition in addition to its rows, as bytes of rows.
const PARTITION_BYTES: usize = 64;

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More rows follow.
    Paused,
    /// A block is missing; the source has noted it.
    Missing,
    /// All rows have been written.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// At the first row of a partition that has not been written yet.
    Partition,
    /// At a row that has not been written, or after the last row of the partition.
    Row,
    /// At a row that has been written.
    Written,
    /// After the last row of a partition.
    End,
}

#[derive(Debug)]
pub(crate) struct Rewrite<S, B> {
    merge: Merge<S, B>,
    purge: Purge,
    ranges: Ranges,
    row: Vec<u8>,
    at: At,
}

impl<S: Source<B>, B> Rewrite<S, B> {
    /// The sources must be at their first rows.
    pub(crate) fn new(sources: Vec<S>, purge: Purge) -> Self {
        let merge = Merge::new(sources);
        Self { merge, purge, ranges: Ranges::default(), row: Vec::new(), at: At::Partition }
    }

    /// Writes about so many bytes of rows. After [`Progress::Missing`] the next step continues at
    /// the same place.
    pub(crate) fn step(
        &mut self,
        blocks: &mut B,
        writer: &mut TableWriter,
        bytes: usize,
    ) -> Result<Progress, ReadError> {
        let mut left = bytes;
        loop {
            if left == 0 {
                return Ok(Progress::Paused);
            }
            match self.at {
                At::Partition => {
                    let Some((token, key)) = self.merge.partition() else {
                        return Ok(Progress::Done);
                    };
                    self.merge.ranges_into(&mut self.ranges);
                    self.ranges.retain(|deletion| !self.purge.allows(deletion));
                    writer.partition(token, key, self.ranges.iter());
                    left = left.saturating_sub(PARTITION_BYTES + key.len());
                    self.at = At::Row;
                }
                At::Row => {
                    let Some((clustering, cells)) = self.merge.row() else {
                        self.at = At::End;
                        continue;
                    };
                    let covering = self.merge.covering(clustering);
                    cells::compact(cells, covering, &self.purge, &mut self.row);
                    if !self.row.is_empty() {
                        writer.row(clustering, &self.row);
                    }
                    left = left.saturating_sub(clustering.len() + cells.len());
                    self.at = At::Written;
                }
                At::Written => {
                    if self.merge.next_row(blocks)? == Step::Missing {
                        return Ok(Progress::Missing);
                    }
                    self.at = At::Row;
                }
                At::End => {
                    if self.merge.next_partition(blocks)? == Step::Missing {
                        return Ok(Progress::Missing);
                    }
                    self.at = At::Partition;
                }
            }
        }
    }
}
