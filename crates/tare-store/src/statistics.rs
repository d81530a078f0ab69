//! What a store holds and has done, for metrics.

/// Gauges and, since the start, counters of one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Of the memtable that is written.
    pub memtable_bytes: u64,
    /// Of memtables that are being flushed.
    pub frozen_bytes: u64,
    pub frozen_memtables: u64,
    pub cache_bytes: u64,
    pub cache_limit_bytes: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub cache_evictions: u64,
    /// Table files.
    pub tables: u64,
    /// On disk.
    pub table_bytes: u64,
    /// What stays of them in memory, beside the cache.
    pub table_resident_bytes: u64,
    pub flushes: u64,
    pub flushed_bytes: u64,
    /// That ended well.
    pub compactions: u64,
    pub compactions_running: u64,
    pub compacted_bytes_read: u64,
    pub compacted_bytes_written: u64,
    /// Blocks that were read from disk because a reader waited for them.
    pub blocks_fetched: u64,
    /// Of these: of the index, and of filters.
    pub index_blocks_fetched: u64,
    pub filter_blocks_fetched: u64,
    pub fetched_bytes: u64,
    /// Lookups of a partition in a table file: told by its filter (or its tokens) that it is not
    /// there; found; let through by the filter in vain.
    pub lookups_denied: u64,
    pub lookups_found: u64,
    pub lookups_in_vain: u64,
    pub log_pending_bytes: u64,
    pub log_written_bytes: u64,
    /// Segments that are needed.
    pub log_segments: u64,
    /// 1 while nothing can be flushed or compacted because there is no room on the disk.
    pub disk_full: u64,
    /// Table files that could not be read when they were to be compacted.
    pub unreadable_tables: u64,
    /// 1 if writes are refused for good because something failed.
    pub poisoned: u64,
}

impl Statistics {
    /// Bytes written to disk per byte of the log, which every write goes to once: the log itself,
    /// flushes and compactions.
    pub fn write_amplification(&self) -> f64 {
        let written = self.log_written_bytes + self.flushed_bytes + self.compacted_bytes_written;
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let ratio = written as f64 / self.log_written_bytes.max(1) as f64;
        ratio
    }
}
