//! Divides the memory that a server may use, and reacts when a part of it is used up.
//!
//! `--memory` is the total. Of each shard's share, the fixed buffers of its reactor come first;
//! [`SHARES`] divides the rest. The store keeps to its part. This module counts what connections
//! hold; above their limit, requests are answered `Overloaded`. The process may be larger by its
//! program and by memory that the allocator cannot return (an estimate of 32 MiB).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tare_store::Limits;

use crate::node::config::Durability;
use crate::node::environment::{Bytes, Environment, Line};
use crate::node::metrics::resident_bytes;

#[allow(unsafe_code, reason = "mallopt(3) has no safe interface")]
mod heap;

pub(crate) use heap::tune as tune_heap;

/// Parts of a shard's memory in percent: memtables, block cache, log and background work,
/// connections.
pub(crate) const SHARES: [u64; 4] = [40, 35, 15, 10];
/// Buffers of one shard's reactor: receive buffers and rings.
const REACTOR_BYTES: u64 = 5 << 20;
/// The least memory that a shard can work with.
pub const SHARD_BYTES_MIN: u64 = 32 << 20;
/// Assumed memory of a waiting read, mostly blocks, and the number of such reads.
const PARKED_BYTES: usize = 32 << 10;
const PARKED_MAX: usize = 4096;
/// Assumed memory of a read that has not begun: its key and what it asks for.
const QUEUED_BYTES: usize = 1 << 10;
/// Assumed memory of a connection at least: its state here, in the reactor and in the kernel.
const CONNECTION_BYTES: usize = 4 << 10;

/// The memory that one shard may use, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// The total.
    pub(crate) total_bytes: usize,
    pub(crate) memtable_bytes: usize,
    pub(crate) cache_bytes: usize,
    /// Memory for entries that wait for the log, and for flush and compaction.
    pub(crate) log_bytes: usize,
    /// Memory for requests and answers under way.
    pub(crate) connection_bytes: usize,
    /// Reads that may wait for blocks of tables. Each holds the blocks that it has.
    pub(crate) waiting_reads_max: usize,
    /// Reads that may wait until they begin.
    pub(crate) queued_reads_max: usize,
    /// Connections that the shard serves.
    pub(crate) connections_max: usize,
}

/// Why a server cannot have the memory that was requested.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error(
        "cannot use {} of memory: the limit is {} ({file}), and the kernel would kill the \
         server above it; ask for less (--memory)", Bytes(*asked_bytes), Bytes(*limit_bytes)
    )]
    AboveLimit { asked_bytes: u64, limit_bytes: u64, file: String },
    #[error(
        "{} of memory is too little for {shards} shards, which need {} each; give it more \
         (--memory) or ask for fewer (--smp)", Bytes(*memory_bytes), Bytes(SHARD_BYTES_MIN)
    )]
    TooLittle { memory_bytes: u64, shards: usize },
}

/// The memory of a server: the requested size, or half of what the environment leaves.
pub(crate) fn memory_bytes(
    asked: Option<u64>,
    environment: &Environment,
    shards: usize,
) -> Result<u64, MemoryError> {
    let limit = environment.memory_limit.as_ref();
    let memory_bytes = match (asked, limit) {
        (Some(asked_bytes), Some(limit)) if asked_bytes > limit.bytes => {
            let (limit_bytes, file) = (limit.bytes, limit.file.display().to_string());
            return Err(MemoryError::AboveLimit { asked_bytes, limit_bytes, file });
        }
        (Some(asked), _) => asked,
        (None, limit) => {
            let found = [environment.memory_available_bytes, limit.map(|limit| limit.bytes)];
            found.into_iter().flatten().min().unwrap_or(1 << 30) / 2
        }
    };
    if memory_bytes / (shards as u64) < SHARD_BYTES_MIN {
        return Err(MemoryError::TooLittle { memory_bytes, shards });
    }
    Ok(memory_bytes)
}

impl Budget {
    /// One shard's part of a server's memory and of its open files.
    pub(crate) fn new(memory_bytes: u64, shards: usize, open_files_max: Option<u64>) -> Self {
        let shards = shards as u64;
        let shard_bytes = memory_bytes / shards;
        let rest = shard_bytes.saturating_sub(REACTOR_BYTES);
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let [memtable_bytes, cache_bytes, log_bytes, connection_bytes] =
            SHARES.map(|percent| size(rest / 100 * percent));
        // Half of the descriptors are for files and for connections that are refused.
        let descriptors = size(open_files_max.unwrap_or(u64::MAX) / 2 / shards);
        Self {
            total_bytes: size(shard_bytes),
            memtable_bytes,
            cache_bytes,
            log_bytes,
            connection_bytes,
            waiting_reads_max: (cache_bytes / 4 / PARKED_BYTES).clamp(16, PARKED_MAX),
            queued_reads_max: (connection_bytes / 2 / QUEUED_BYTES).max(16),
            connections_max: (connection_bytes / CONNECTION_BYTES).min(descriptors).max(1),
        }
    }

    /// The limits of the shard's store.
    pub(crate) fn limits(&self, durability: Durability, segment_bytes: u64) -> Limits {
        Limits {
            memtable_bytes: self.memtable_bytes,
            cache_bytes: self.cache_bytes,
            background_bytes: self.log_bytes / 2,
            pending_bytes: self.pending_bytes(),
            segment_bytes,
            durability: durability.for_store(),
        }
    }

    /// The part of the log's memory that entries may wait in.
    #[inline]
    pub(crate) fn pending_bytes(&self) -> usize {
        self.log_bytes / 2
    }

    /// The line of the log about memory: what was found, and what follows.
    pub(crate) fn line(&self, memory_bytes: u64, environment: &Environment) -> Line {
        let found = match (&environment.memory_limit, environment.memory_available_bytes) {
            (Some(limit), _) => {
                format!("limit of {} ({})", Bytes(limit.bytes), limit.file.display())
            }
            (None, Some(available)) => format!("{} available, no limit", Bytes(available)),
            (None, None) => "unknown".into(),
        };
        let [memtables, cache, log, connections] = SHARES;
        let effect = format!(
            "{} in all: memtables {memtables} %, cache {cache} %, log and background {log} %, \
             connections {connections} %, at most {} a shard",
            Bytes(memory_bytes),
            self.connections_max
        );
        Line::new("memory", found, effect)
    }
}

/// Returns how many bytes of rows a server of these shards keeps in memory: the cache of blocks,
/// and half of the memtables, which are between empty and full.
pub fn row_bytes_in_memory(memory_bytes: u64, shards: usize) -> u64 {
    let budget = Budget::new(memory_bytes, shards.max(1), None);
    (budget.cache_bytes + budget.memtable_bytes / 2) as u64 * shards.max(1) as u64
}

/// The excess of the process over its memory, as the main thread measures it.
#[derive(Debug, Default)]
pub(crate) struct Resident {
    excess_bytes: AtomicUsize,
    trimmed_ns: AtomicU64,
}

/// Memory that does not count: the program, the threads' stacks, the allocator's slack.
const RESIDENT_BYTES_OVER: u64 = 12 << 20;
/// The excess from which the allocator has to return memory, and how often.
const TRIM_BYTES: u64 = 12 << 20;
const TRIM_NS: u64 = 10_000_000_000;

impl Resident {
    /// Measures the excess. If smaller caches have not helped, the allocator has to return memory.
    pub(crate) fn measure(&self, memory_bytes: u64, now_ns: u64) {
        let most = memory_bytes.saturating_add(RESIDENT_BYTES_OVER);
        let excess = resident_bytes().saturating_sub(most);
        self.excess_bytes.store(usize::try_from(excess).unwrap_or(usize::MAX), Ordering::Relaxed);
        let trimmed_ns = self.trimmed_ns.load(Ordering::Relaxed);
        if excess > TRIM_BYTES && now_ns.saturating_sub(trimmed_ns) > TRIM_NS {
            self.trimmed_ns.store(now_ns, Ordering::Relaxed);
            heap::trim();
        }
    }

    pub(crate) fn excess_bytes(&self) -> usize {
        self.excess_bytes.load(Ordering::Relaxed)
    }
}

/// The size of a shard's cache that keeps the process within its memory.
#[derive(Debug, Default)]
pub(crate) struct CacheTarget {
    less_bytes: usize,
}

impl CacheTarget {
    /// Adapts to the excess of this shard. Returns the new limit if it changes. The cache shrinks
    /// at once, to an eighth of its share at least, and grows again in small steps.
    pub(crate) fn adapt(&mut self, excess_bytes: usize, share_bytes: usize) -> Option<usize> {
        let less_bytes = match excess_bytes {
            0 => self.less_bytes.saturating_sub(share_bytes / 256),
            excess => (self.less_bytes + excess).min(share_bytes / 8 * 7),
        };
        if less_bytes == self.less_bytes {
            return None;
        }
        self.less_bytes = less_bytes;
        Some(share_bytes - less_bytes)
    }
}

/// The memory that the connections of one shard hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionMemory {
    bytes: usize,
    /// The most that they have held since the simulator asked.
    #[cfg(feature = "simulation")]
    pub(crate) peak_bytes: usize,
}

impl ConnectionMemory {
    /// Replaces what one connection held before by what it holds now.
    #[inline]
    pub(crate) fn change(&mut self, before: usize, now: usize) {
        self.bytes = (self.bytes + now).saturating_sub(before);
        #[cfg(feature = "simulation")]
        {
            self.peak_bytes = self.peak_bytes.max(self.bytes);
        }
    }

    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::environment::MemoryLimit;

    fn environment(limit: Option<u64>, available: Option<u64>) -> Environment {
        let cpus = tare_std::cpus::CpuSet::parse_list("0").unwrap();
        let mut found = Environment::below(std::path::Path::new("/nonexistent"), cpus);
        found.memory_limit =
            limit.map(|bytes| MemoryLimit { bytes, file: "/cg/memory.max".into() });
        found.memory_available_bytes = available;
        found
    }

    #[test]
    fn memory_is_half_of_what_is_left_by_default() {
        let check = |asked, limit, available, expect| {
            let memory = memory_bytes(asked, &environment(limit, available), 1).unwrap();
            assert_eq!(memory, expect);
        };
        check(None, None, Some(8 << 30), 4 << 30);
        check(None, Some(2 << 30), Some(8 << 30), 1 << 30);
        check(None, None, None, 512 << 20);
        check(Some(1 << 30), Some(1 << 30), Some(1 << 20), 1 << 30);
    }

    #[test]
    fn too_much_and_too_little_memory_are_refused() {
        let found = environment(Some(1 << 30), None);
        let error = memory_bytes(Some(2 << 30), &found, 1).unwrap_err();
        let MemoryError::AboveLimit { asked_bytes, limit_bytes, file } = error else {
            panic!("{error}");
        };
        assert_eq!((asked_bytes, limit_bytes, &*file), (2 << 30, 1 << 30, "/cg/memory.max"));
        let error = memory_bytes(Some(63 << 20), &found, 2).unwrap_err();
        let MemoryError::TooLittle { memory_bytes, shards } = error else { panic!("{error}") };
        assert_eq!((memory_bytes, shards), (63 << 20, 2));
    }

    #[test]
    fn shares_of_all_shards_fit_into_the_total() {
        for (memory, shards) in [(256u64 << 20, 1), (256 << 20, 4), (64 << 30, 256)] {
            let budget = Budget::new(memory, shards, Some(1024));
            let parts = budget.memtable_bytes
                + budget.cache_bytes
                + budget.log_bytes
                + budget.connection_bytes;
            assert!(parts as u64 * shards as u64 + REACTOR_BYTES <= memory);
            assert!(budget.connections_max >= 1 && budget.connections_max <= 512);
        }
    }

    #[test]
    fn cache_shrinks_with_an_excess_and_grows_back() {
        let mut target = CacheTarget::default();
        assert_eq!(target.adapt(0, 2560), None);
        assert_eq!(target.adapt(100, 2560), Some(2460));
        assert_eq!(target.adapt(50, 2560), Some(2410));
        assert_eq!(target.adapt(0, 2560), Some(2420));
        assert_eq!(target.adapt(10_000, 2560), Some(320));
        assert_eq!(target.adapt(10_000, 2560), None);
    }

    #[test]
    fn memory_of_connections_is_counted() {
        let mut held = ConnectionMemory::default();
        held.change(0, 100);
        held.change(0, 50);
        held.change(100, 0);
        assert_eq!(held.bytes(), 50);
    }
}
