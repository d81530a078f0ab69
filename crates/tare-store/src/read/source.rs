//! What a merge needs of a source of rows: a memtable or a table on disk.

use super::ReadError;
use crate::cells::Deletion;
use crate::entry::RangeTombstone;

/// How a step of a source ended: where a block is missing the source stands where it stood.
pub use crate::table::Step;

/// A place in a source, which has partitions in order of (token, key), and in each its range
/// tombstones and its rows in order of their clustering keys. `B` is where its blocks come from.
pub trait Source<B> {
    /// Token and key of the partition it stands in; `None` past the last.
    fn partition(&self) -> Option<(i64, &[u8])>;

    /// Clustering key and cells of the row it stands at; `None` past the partition's last.
    fn row(&self) -> Option<(&[u8], &[u8])>;

    /// The strongest range tombstone of the partition over a clustering key.
    fn covering(&self, clustering: &[u8]) -> Option<Deletion>;

    /// Calls `each` with the range tombstones of the partition, in order; none overlap.
    fn ranges(&self, each: &mut dyn FnMut(RangeTombstone<'_>));

    /// Within the partition: to the first row of `[from, to)`; with `reversed` to the last one, and
    /// [`Source::next_row`] goes backwards from there. It may go on past the range.
    fn seek(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        reversed: bool,
        blocks: &mut B,
    ) -> Result<Step, ReadError>;

    /// To the next row of the partition.
    fn next_row(&mut self, blocks: &mut B) -> Result<Step, ReadError>;

    /// To the first row of the next partition, from wherever it stands in this one.
    fn next_partition(&mut self, blocks: &mut B) -> Result<Step, ReadError>;
}
