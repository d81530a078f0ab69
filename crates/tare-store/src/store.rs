//! The store of one shard: tables in memory over a commit log.

use std::collections::BTreeMap;

use crate::entry::{KEY_BYTES_MAX, Mutation};
use crate::log::{CommitLog, LogError, Ticket};
use crate::memtable::{Table, partition_bytes};
use crate::recovery::{Recovered, RecoveryError, recover};
use crate::segments::Segments;

/// What bounds a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Reckoned bytes of all rows, beyond which writes are refused.
    pub memory_bytes: usize,
    /// Bytes that may wait for the commit log.
    pub pending_bytes: usize,
    /// Size of a commit log segment.
    pub segment_bytes: u64,
}

/// Why a write was refused. Nothing of it was kept.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(
        "the shard holds {used_bytes} bytes of rows and its limit is {limit_bytes}; this version \
         keeps all rows in memory, give it more or truncate a table"
    )]
    MemoryFull { used_bytes: usize, limit_bytes: usize },
    #[error("a key of {bytes} bytes is too long; the limit is {KEY_BYTES_MAX}")]
    KeyTooLong { bytes: usize },
    #[error(transparent)]
    Log(#[from] LogError),
}

/// One shard's data.
#[derive(Debug)]
pub struct Store {
    tables: BTreeMap<u32, Table>,
    log: CommitLog,
    limits: Limits,
    used_bytes: usize,
    scratch: Vec<u8>,
}

impl Store {
    /// Recovers a shard from its segments. Entries of tables that `is_live` denies (dropped or
    /// truncated) are passed over.
    pub fn open(
        segments: &mut impl Segments,
        limits: Limits,
        is_live: impl Fn(u32) -> bool,
    ) -> Result<(Self, Recovered), RecoveryError> {
        let mut memory = Memory::default();
        let recovered = recover(segments, |mutation| {
            if is_live(mutation.table) {
                memory.apply(mutation);
            }
        })?;
        let log = CommitLog::new(
            recovered.next_segment,
            recovered.next_sequence,
            limits.segment_bytes,
            limits.pending_bytes,
        );
        let Memory { tables, used_bytes, scratch } = memory;
        Ok((Self { tables, log, limits, used_bytes, scratch }, recovered))
    }

    /// Writes one row: first into the log, then into memory. When it may be acknowledged is the
    /// caller's policy: at once, or when the log's durable mark has passed the ticket.
    #[inline]
    pub fn write(&mut self, mutation: &Mutation<'_>) -> Result<Ticket, WriteError> {
        let key_bytes = mutation.key.len().max(mutation.clustering.len());
        if key_bytes > KEY_BYTES_MAX {
            return Err(WriteError::KeyTooLong { bytes: key_bytes });
        }
        if self.used_bytes > self.limits.memory_bytes {
            let limit_bytes = self.limits.memory_bytes;
            return Err(WriteError::MemoryFull { used_bytes: self.used_bytes, limit_bytes });
        }
        let ticket = self.log.append(mutation)?;
        let table = self.tables.entry(mutation.table).or_default();
        let Mutation { token, key, clustering, cells, .. } = *mutation;
        let grown = table.apply(token, key, clustering, cells, &mut self.scratch);
        self.used_bytes = self.used_bytes.saturating_add_signed(grown);
        Ok(ticket)
    }

    /// A table's rows; `None` if nothing was ever written to it.
    #[inline]
    pub fn table(&self, table: u32) -> Option<&Table> {
        self.tables.get(&table)
    }

    /// Forgets the tables that `is_live` denies.
    pub fn retain(&mut self, is_live: impl Fn(u32) -> bool) {
        let before = self.tables.len();
        self.tables.retain(|&table, _| is_live(table));
        if self.tables.len() == before {
            return;
        }
        let partitions = self.tables.values().flat_map(Table::iter);
        self.used_bytes = partitions.map(partition_bytes).sum();
    }

    /// Reckoned bytes of all rows.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    pub fn log(&self) -> &CommitLog {
        &self.log
    }

    pub fn log_mut(&mut self) -> &mut CommitLog {
        &mut self.log
    }
}

#[derive(Default)]
struct Memory {
    tables: BTreeMap<u32, Table>,
    used_bytes: usize,
    scratch: Vec<u8>,
}

impl Memory {
    fn apply(&mut self, mutation: &Mutation<'_>) {
        let Mutation { table, token, key, clustering, cells } = *mutation;
        let table = self.tables.entry(table).or_default();
        let grown = table.apply(token, key, clustering, cells, &mut self.scratch);
        self.used_bytes = self.used_bytes.saturating_add_signed(grown);
    }
}

#[cfg(test)]
mod tests;
