//! Statistics of a store, for metrics.

/// Gauges of one store, and counters since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of the active memtable.
    pub memtable_bytes: u64,
    /// Bytes of memtables that are being flushed.
    pub frozen_bytes: u64,
    pub frozen_memtables: u64,
    pub cache_bytes: u64,
    pub cache_limit_bytes: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub cache_evictions: u64,
    /// Number of table files.
    pub tables: u64,
    /// Bytes of table files on disk.
    pub table_bytes: u64,
    /// Bytes of table files that stay in memory, in addition to the cache.
    pub table_resident_bytes: u64,
    pub flushes: u64,
    pub flushed_bytes: u64,
    /// Compactions that succeeded.
    pub compactions: u64,
    pub compactions_running: u64,
    pub compacted_bytes_read: u64,
    pub compacted_bytes_written: u64,
    /// Blocks that were read from disk for a waiting read.
    pub blocks_fetched: u64,
    /// Index and filter blocks among them.
    pub index_blocks_fetched: u64,
    pub filter_blocks_fetched: u64,
    pub fetched_bytes: u64,
    /// Lookups of a partition in a table file by result: excluded by the filter (or the range of
    /// tokens); found; false positives of the filter.
    pub lookups_denied: u64,
    pub lookups_found: u64,
    pub lookups_in_vain: u64,
    pub log_pending_bytes: u64,
    pub log_written_bytes: u64,
    /// Segments of the log that are needed.
    pub log_segments: u64,
    /// 1 while nothing can be flushed or compacted because the disk is full.
    pub disk_full: u64,
    /// Table files that a compaction could not read.
    pub unreadable_tables: u64,
    /// 1 if the store refuses all writes because an operation has failed.
    pub poisoned: u64,
}

impl Statistics {
    /// Bytes written to disk per byte of the log, to which every write goes once: the log itself,
    /// flushes and compactions.
    pub fn write_amplification(&self) -> f64 {
        let written = self.log_written_bytes + self.flushed_bytes + self.compacted_bytes_written;
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let ratio = written as f64 / self.log_written_bytes.max(1) as f64;
        ratio
    }
}
