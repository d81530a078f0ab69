//! The limits of a store and the options of its tables. The store knows no schema: a table is a
//! number.

use crate::log::Durability;
use crate::table::WriterOptions;

/// The limits of a store, and when it makes writes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all memtables, including frozen ones, above which writes are refused.
    pub memtable_bytes: usize,
    /// Bytes of table blocks that are kept in memory.
    pub cache_bytes: usize,
    /// Bytes that flushes and compactions may hold at a time, approximately.
    pub background_bytes: usize,
    /// Bytes that may wait for the commit log.
    pub pending_bytes: usize,
    /// Size of a commit log segment.
    pub segment_bytes: u64,
    pub durability: Durability,
}

/// The options of one table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableOptions {
    /// How long a deletion is kept, in seconds, so that it meets the data that it deletes.
    pub gc_grace_s: u32,
    /// Least and greatest number of tables of a similar size that are compacted together.
    pub compaction_min: usize,
    pub compaction_max: usize,
    /// Whether blocks are compressed where that makes them smaller.
    pub compression: bool,
    /// Share of lookups of absent keys that the bloom filter lets pass.
    pub bloom_false_positives: f64,
}

impl TableOptions {
    /// How many files of a similar size are compacted together at least.
    pub(crate) fn compaction_least(&self) -> usize {
        self.compaction_min.max(2)
    }

    /// The options in the form that the writer of a table file needs.
    pub(crate) fn for_writer(&self, file: u64, table: u32, chunk_bytes: usize) -> WriterOptions {
        WriterOptions {
            file,
            table,
            chunk_bytes,
            compression: self.compression,
            filter_false_positives: self.bloom_false_positives,
        }
    }
}

impl Default for TableOptions {
    /// The defaults of Cassandra's table options.
    fn default() -> Self {
        Self {
            gc_grace_s: 864_000,
            compaction_min: 4,
            compaction_max: 32,
            compression: true,
            bloom_false_positives: 0.01,
        }
    }
}
