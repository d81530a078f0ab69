//! The store of one shard: tables in memory over a commit log.

use std::collections::BTreeMap;

use crate::entry::{Entries, KEY_BYTES_MAX, Mutation};
use crate::io::{Completion, Files, Now, Op};
use crate::log::{CommitLog, LogError, LogLimits, Ticket};
use crate::memtable::{Table, partition_bytes};
use crate::options::{Limits, TableOptions};
use crate::recovery::{RecoveryError, TornTail, recover};

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

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Log(#[from] RecoveryError),
}

/// What went wrong with an operation, as far as others have to know: what waits to become durable
/// has to be told that it will not.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Log(#[from] LogError),
}

/// What opening a store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Mutations that were read from the log.
    pub entries: u64,
    /// Where the log was cut, if it was.
    pub torn: Option<TornTail>,
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
    /// Recovers a shard from its files. Rows of tables for which `schema` has no options (dropped
    /// or truncated ones) are passed over.
    pub fn open(
        files: &mut impl Files,
        limits: Limits,
        schema: impl Fn(u32) -> Option<TableOptions>,
        _now: Now,
    ) -> Result<(Self, Recovered), OpenError> {
        let mut memory = Memory::default();
        let mut recovered = Recovered::default();
        let replayed = recover(files, 0, |_, _, entries| {
            for mutation in Entries::new(entries).flatten() {
                if schema(mutation.table).is_some() {
                    memory.apply(&mutation);
                }
                recovered.entries += 1;
            }
            Ok::<_, OpenError>(())
        })?;
        let log_limits = LogLimits {
            segment_bytes: limits.segment_bytes,
            pending_bytes: limits.pending_bytes,
            durability: limits.durability,
        };
        let log = CommitLog::new(
            replayed.next_segment,
            replayed.next_sequence,
            replayed.closed,
            log_limits,
        );
        recovered.torn = replayed.torn;
        let Memory { tables, used_bytes, scratch } = memory;
        Ok((Self { tables, log, limits, used_bytes, scratch }, recovered))
    }

    /// Writes one row: first into the log, then into memory. When it may be acknowledged is the
    /// caller's policy: at once, or when [`Self::durable`] has passed the ticket.
    #[inline]
    pub fn write(&mut self, mutation: &Mutation<'_>) -> Result<Ticket, WriteError> {
        let key_bytes = mutation.key.len().max(mutation.clustering.len());
        if key_bytes > KEY_BYTES_MAX {
            return Err(WriteError::KeyTooLong { bytes: key_bytes });
        }
        if self.used_bytes > self.limits.memtable_bytes {
            let limit_bytes = self.limits.memtable_bytes;
            return Err(WriteError::MemoryFull { used_bytes: self.used_bytes, limit_bytes });
        }
        let encode = |out: &mut [u8]| mutation.encode_entry(out);
        let ticket = self.log.append(mutation.entry_bytes(), encode)?;
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

    /// Forgets the tables that `schema` has no options for, and takes over those of the others.
    pub fn schema(&mut self, schema: impl Fn(u32) -> Option<TableOptions>) {
        let before = self.tables.len();
        self.tables.retain(|&table, _| schema(table).is_some());
        if self.tables.len() == before {
            return;
        }
        let partitions = self.tables.values().flat_map(Table::iter);
        self.used_bytes = partitions.map(partition_bytes).sum();
    }

    /// The next operation to be carried out, if there is any: to be asked until there is none.
    pub fn next_op(&mut self, now: Now) -> Option<Op> {
        self.log.next_op(now)
    }

    /// When [`Self::next_op`] has to be asked again though nothing else has happened, in ns of
    /// [`Now::monotonic_ns`].
    pub fn next_due_ns(&self) -> Option<u64> {
        self.log.next_due_ns()
    }

    /// Takes an operation back that has been carried out.
    pub fn complete(&mut self, completion: Completion, now: Now) -> Result<(), StoreError> {
        Ok(self.log.complete(completion, now)?)
    }

    /// Writes whose ticket is below this are on stable storage.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.log.durable()
    }

    /// Begins a clean end: all operations that follow make everything durable and close the log.
    /// Writes are not expected any more.
    pub fn close(&mut self) {
        self.log.close();
    }

    /// Whether the end has come: there are no further operations.
    pub fn is_closed(&self) -> bool {
        self.log.is_closed()
    }

    /// Whether a failure has made the store refuse all writes, for good.
    pub fn is_poisoned(&self) -> bool {
        self.log.is_poisoned()
    }

    /// Reckoned bytes of all rows in memory.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
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
mod disk;
#[cfg(test)]
mod tests;
