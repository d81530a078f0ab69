//! The interface of a source of rows: a memtable or a table on disk.

use crate::cells::Deletion;
use crate::entry::RangeTombstone;
use crate::table::TableError;

/// The result of a step. If a block is missing, the source keeps its position.
pub(crate) use crate::table::Step;

/// Why rows cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Table(#[from] TableError),
}

/// A position in a source. A source has partitions in order of (token, key), and in each partition
/// range tombstones, and rows in order of their clustering keys. `B` provides its blocks.
pub trait Source<B> {
    /// Token and key of the current partition; `None` past the last.
    fn partition(&self) -> Option<(i64, &[u8])>;

    /// Clustering key and cells of the current row; `None` past the partition's last row.
    fn row(&self) -> Option<(&[u8], &[u8])>;

    /// The strongest range tombstone of the partition over a clustering key.
    fn covering(&self, clustering: &[u8]) -> Option<Deletion>;

    /// Calls `each` with the range tombstones of the partition, in order; none overlap.
    fn ranges(&self, each: &mut dyn FnMut(RangeTombstone<'_>));

    /// Moves within the partition to the first row of `[from, to)`. With `reversed` it moves to the
    /// last row, and [`Source::next_row`] goes backwards from there. Rows outside the range may
    /// follow.
    fn seek(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        reversed: bool,
        blocks: &mut B,
    ) -> Result<Step, ReadError>;

    /// Moves to the next row of the partition.
    fn next_row(&mut self, blocks: &mut B) -> Result<Step, ReadError>;

    /// Moves to the first row of the next partition.
    fn next_partition(&mut self, blocks: &mut B) -> Result<Step, ReadError>;
}
