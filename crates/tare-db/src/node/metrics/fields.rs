//! The counters of a shard: one list, from which the mapped file, the Prometheus text and its
//! documentation are made.

use tare_store::Statistics;

/// How to read a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value only grows.
    Counter,
    /// The value only grows. It is in ns and shown in seconds.
    Seconds,
    /// The value is the current one.
    Gauge,
    /// The value is the current one. It is in ns and shown in seconds.
    GaugeSeconds,
    /// The value is the current one. It is in millionths and shown as a share of 1.
    Share,
}

/// A field, as documentation and dashboards need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in Prometheus, without the unit of seconds and `_total`.
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
}

macro_rules! fields {
    ($($name:ident, $shown:literal, $kind:ident, $help:literal;)*) => {
        /// The counters of one shard since the server started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ShardMetrics {
            $(#[doc = $help] pub $name: u64,)*
        }

        /// The fields in the order of the file.
        pub const FIELDS: &[Field] =
            &[$(Field { name: $shown, kind: Kind::$kind, help: $help },)*];

        impl ShardMetrics {
            pub(super) fn to_words(self) -> [u64; FIELDS.len()] {
                [$(self.$name,)*]
            }

            pub(super) fn from_words(words: &[u64; FIELDS.len()]) -> Self {
                let [$($name,)*] = *words;
                Self { $($name,)* }
            }
        }
    };
}

/// The fields before this one are published at every iteration, the others every 100 ms.
pub(super) const HOT: usize = 8;

fields! {
    busy_ns, "busy", Seconds, "Wall-clock time of loop iterations with work; it includes time in which other threads had the CPU";
    idle_poll_ns, "idle_poll", Seconds, "Time of loop iterations without work, while polling";
    sleep_ns, "sleep", Seconds, "Time in the system call that waits, when not polling; the kernel also sends and receives in this call, so the CPU time of the threads shows the load of a sleeping server";
    writes, "writes", Counter, "Rows written for clients of this shard";
    reads, "reads", Counter, "SELECT statements answered for clients of this shard";
    disk_reads, "disk_reads", Counter, "Reads that waited for blocks from the disk";
    errors, "errors", Counter, "Requests answered with an error";
    connections, "connections", Gauge, "Open connections";
    utilisation_ppm, "reactor_utilisation_ratio", Share, "Share of the last second or more in which the loop was busy";
    cpu_wait_ns, "cpu_wait", Seconds, "Time that the shard's thread was ready to run and waited for a CPU";
    cpu_ns, "cpu", Seconds, "CPU time of the shard's thread";
    refused_connections, "refused_connections", Counter, "Connections closed at once because there were too many";
    overloaded, "overloaded", Counter, "Requests answered Overloaded";
    connection_bytes, "connection_bytes", Gauge, "Bytes of unhandled requests and of answers that clients have not taken";
    queue_messages, "queue_messages", Gauge, "Messages that wait for room in a sibling's queue";
    queue_durable, "queue_durable", Gauge, "Writes that wait until they are durable";
    queue_scans, "queue_scans", Gauge, "Scans under way at this shard";
    queue_held_up, "queue_held_up", Gauge, "Connections whose requests wait for room";
    queue_parked, "queue_parked_reads", Gauge, "Reads that wait for blocks from the disk, or for their turn to ask for them";
    parked, "parked_reads", Counter, "Waits of reads for blocks from the disk; a read may wait several times";
    queue_files, "queue_file_operations", Gauge, "Operations on files under way";
    file_operations, "file_operations", Counter, "Operations on files that have ended";
    file_errors, "file_errors", Counter, "Operations on files that have failed";
    stalls, "stalls", Counter, "Loop iterations that took longer than --stall-threshold";
    stalled_ns, "stalled", Seconds, "Time of loop iterations that were stalls";
    stall_ns_max, "stall_longest_seconds", GaugeSeconds, "The longest stall";
    memory_bytes_max, "memory_limit_bytes", Gauge, "The shard's part of --memory";
    memtable_bytes, "memtable_bytes", Gauge, "Bytes of the active memtable";
    frozen_bytes, "frozen_memtable_bytes", Gauge, "Bytes of memtables that are being flushed";
    frozen_memtables, "frozen_memtables", Gauge, "Memtables that are being flushed";
    cache_bytes, "cache_bytes", Gauge, "Bytes of table blocks in the cache";
    cache_bytes_max, "cache_limit_bytes", Gauge, "Greatest size of the cache in bytes";
    cache_hits, "cache_hits", Counter, "Blocks that were found in the cache";
    cache_misses, "cache_misses", Counter, "Blocks that were not found in the cache";
    cache_evictions, "cache_evictions", Counter, "Blocks that were evicted from the cache";
    tables, "table_files", Gauge, "Table files";
    table_bytes, "table_bytes", Gauge, "Bytes of table files on disk";
    table_resident_bytes, "table_resident_bytes", Gauge, "Bytes of table files that stay in memory, in addition to the cache";
    flushes, "flushes", Counter, "Memtables that were written to tables";
    flushed_bytes, "flushed_bytes", Counter, "Bytes written by flushes";
    compactions, "compactions", Counter, "Compactions that succeeded";
    compactions_running, "compactions_running", Gauge, "Compactions under way";
    compacted_bytes_read, "compaction_read_bytes", Counter, "Bytes read by compactions";
    compacted_bytes_written, "compaction_written_bytes", Counter, "Bytes written by compactions";
    blocks_fetched, "blocks_fetched", Counter, "Blocks read from disk for a waiting read";
    index_blocks_fetched, "index_blocks_fetched", Counter, "Index blocks read from disk for a waiting read";
    filter_blocks_fetched, "filter_blocks_fetched", Counter, "Filter blocks read from disk for a waiting read";
    fetched_bytes, "fetched_bytes", Counter, "Bytes of blocks read from disk for a waiting read";
    lookups_denied, "lookups_denied", Counter, "Lookups of a partition in a table file that the filter excluded";
    lookups_found, "lookups_found", Counter, "Lookups of a partition in a table file that found it";
    lookups_in_vain, "lookups_in_vain", Counter, "Lookups of a partition in a table file that did not find it although the filter let them through";
    log_pending_bytes, "log_pending_bytes", Gauge, "Bytes that wait for the commit log";
    log_written_bytes, "log_written_bytes", Counter, "Bytes written to the commit log";
    log_segments, "log_segments", Gauge, "Segments of the commit log that are needed";
    disk_full, "disk_full", Gauge, "1 while nothing can be flushed or compacted because the disk is full";
    unreadable_tables, "unreadable_tables", Gauge, "Table files that a compaction could not read";
    poisoned, "poisoned", Gauge, "1 if the shard refuses all writes because a write or a sync has failed";
}

impl ShardMetrics {
    /// Copies the statistics of the store.
    pub(crate) fn take_over(&mut self, of: &Statistics) {
        self.memtable_bytes = of.memtable_bytes;
        self.frozen_bytes = of.frozen_bytes;
        self.frozen_memtables = of.frozen_memtables;
        self.cache_bytes = of.cache_bytes;
        self.cache_bytes_max = of.cache_limit_bytes;
        self.cache_hits = of.cache_hits;
        self.cache_misses = of.cache_misses;
        self.cache_evictions = of.cache_evictions;
        self.tables = of.tables;
        self.table_bytes = of.table_bytes;
        self.table_resident_bytes = of.table_resident_bytes;
        self.flushes = of.flushes;
        self.flushed_bytes = of.flushed_bytes;
        self.compactions = of.compactions;
        self.compactions_running = of.compactions_running;
        self.compacted_bytes_read = of.compacted_bytes_read;
        self.compacted_bytes_written = of.compacted_bytes_written;
        self.blocks_fetched = of.blocks_fetched;
        self.index_blocks_fetched = of.index_blocks_fetched;
        self.filter_blocks_fetched = of.filter_blocks_fetched;
        self.fetched_bytes = of.fetched_bytes;
        self.lookups_denied = of.lookups_denied;
        self.lookups_found = of.lookups_found;
        self.lookups_in_vain = of.lookups_in_vain;
        self.log_pending_bytes = of.log_pending_bytes;
        self.log_written_bytes = of.log_written_bytes;
        self.log_segments = of.log_segments;
        self.disk_full = of.disk_full;
        self.unreadable_tables = of.unreadable_tables;
        self.poisoned = of.poisoned;
    }
}

impl Field {
    /// The name with its prefix and, where there is one, its unit.
    pub fn full_name(&self) -> String {
        let end = match self.kind {
            Kind::Counter => "_total",
            Kind::Seconds => "_seconds_total",
            Kind::Gauge | Kind::GaugeSeconds | Kind::Share => "",
        };
        format!("tare_db_{}{end}", self.name)
    }

    /// The type as Prometheus names it.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Counter | Kind::Seconds => "counter",
            Kind::Gauge | Kind::GaugeSeconds | Kind::Share => "gauge",
        }
    }

    pub(super) fn value(&self, word: u64) -> String {
        match self.kind {
            Kind::Counter | Kind::Gauge => word.to_string(),
            Kind::Seconds | Kind::GaugeSeconds => (word as f64 / 1e9).to_string(),
            Kind::Share => (word as f64 / 1e6).to_string(),
        }
    }
}
