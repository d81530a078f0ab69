//! The store of one shard: tables in memory over a commit log.

use std::rc::Rc;

use crate::entry::{
    self, Entries, KEY_BYTES_MAX, Mutation, Mutations, encode_entry, payload_bytes,
};
use crate::io::{Completion, Files, Now, Op};
use crate::log::{CommitLog, LogError, LogLimits, Ticket};
use crate::memtable::Memtable;
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
    /// Entries that were read from the log.
    pub entries: u64,
    /// Where the log was cut, if it was.
    pub torn: Option<TornTail>,
}

/// One shard's data.
#[derive(Debug)]
pub struct Store {
    /// What is written now.
    pub(crate) memory: Memtable,
    /// What was written before and is not in a table yet; the newest first.
    pub(crate) frozen: Vec<Rc<Memtable>>,
    /// The part of a row that a reader is shown.
    pub(crate) part: Vec<u8>,
    log: CommitLog,
    limits: Limits,
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
        let mut memory = Memtable::default();
        let mut recovered = Recovered::default();
        let replayed = recover(files, 0, |_, _, entries| {
            for entry in Entries::new(entries).flatten() {
                let live = |mutation: &Mutation<'_>| schema(mutation.table).is_some();
                entry.filter(live).for_each(|mutation| memory.apply(&mutation));
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
        Ok((Self { memory, frozen: Vec::new(), part: Vec::new(), log, limits }, recovered))
    }

    /// Writes mutations, of which after a crash all are there or none: first into the log, as one
    /// entry, then into memory. When they may be acknowledged is the caller's policy: at once, or
    /// when [`Self::durable`] has passed the ticket.
    #[inline]
    pub fn write(&mut self, mutations: &[Mutation<'_>]) -> Result<Ticket, WriteError> {
        for mutation in mutations {
            let bytes = mutation.longest_key_bytes();
            if bytes > KEY_BYTES_MAX {
                return Err(WriteError::KeyTooLong { bytes });
            }
        }
        self.check_room()?;
        let length = entry::bytes(payload_bytes(mutations));
        let ticket = self.log.append(length, |out| encode_entry(mutations, out))?;
        mutations.iter().for_each(|mutation| self.memory.apply(mutation));
        Ok(ticket)
    }

    /// Writes mutations that [`entry::encode_payload`] has encoded.
    pub fn write_payload(&mut self, payload: &[u8]) -> Result<Ticket, WriteError> {
        self.check_room()?;
        let length = entry::bytes(payload.len());
        let ticket = self.log.append(length, |out| entry::encode_encoded(payload, out))?;
        Mutations::new(payload).for_each(|mutation| self.memory.apply(&mutation));
        Ok(ticket)
    }

    #[inline]
    fn check_room(&self) -> Result<(), WriteError> {
        let (used_bytes, limit_bytes) = (self.used_bytes(), self.limits.memtable_bytes);
        if used_bytes > limit_bytes {
            return Err(WriteError::MemoryFull { used_bytes, limit_bytes });
        }
        Ok(())
    }

    /// Forgets the tables that `schema` has no options for, and takes over those of the others.
    pub fn schema(&mut self, schema: impl Fn(u32) -> Option<TableOptions>) {
        self.memory.retain(|table| schema(table).is_some());
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

    /// Bytes of memory that rows occupy, overwritten ones included.
    #[inline]
    pub fn used_bytes(&self) -> usize {
        self.memory.bytes() + self.frozen.iter().map(|memtable| memtable.bytes()).sum::<usize>()
    }
}

#[cfg(test)]
mod disk;
#[cfg(test)]
mod tests;
