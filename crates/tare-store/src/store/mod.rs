//! The store of one shard: memtables over a commit log, and tables on disk.

mod opening;
mod reads;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub use opening::{OpenError, Recovered};

use crate::background::{self, Background, Edit, StoreView, TableFiles, Urgency};
use crate::cache::Cache;
use crate::entry::{self, KEY_BYTES_MAX, Mutation, Mutations, encode_entry, payload_bytes};
use crate::fetch::Fetches;
use crate::io::{Completion, Now, Op, Owner};
use crate::log::{CommitLog, LogError, Ticket};
use crate::memtable::Memtable;
use crate::options::{Limits, TableOptions};
use crate::read::{Pins, Scratch};
use crate::statistics::Statistics;

/// The active memtable is flushed when it has this part of the memory for all memtables: one in
/// this many.
const FREEZE_AT: usize = 2;
/// The active memtable is also flushed when the log is this many times as long as the memory of all
/// memtables, which bounds the time of a recovery.
const LOG_MAX: u64 = 2;
/// The least number of segments for such a flush.
const LOG_SEGMENTS_MIN: u64 = 8;

/// Why a write was refused. No part of it was kept.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("memtables hold {used_bytes} bytes and may hold {limit_bytes}: {why}")]
    MemoryFull { used_bytes: usize, limit_bytes: usize, why: String },
    #[error("a key of {bytes} bytes is too long; the limit is {KEY_BYTES_MAX}")]
    KeyTooLong { bytes: usize },
    #[error(transparent)]
    Log(#[from] LogError),
}

/// A failure of an operation after which pending writes will not become durable.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Log(#[from] LogError),
}

/// The data of one shard.
#[derive(Debug)]
pub struct Store {
    /// The active memtable.
    pub(crate) memory: Memtable,
    /// Memtables that are not in a table yet, newest first.
    pub(crate) frozen: Vec<Rc<Memtable>>,
    pub(crate) table_files: TableFiles,
    pub(crate) cache: Cache,
    pub(crate) scratch: Scratch,
    fetches: Fetches,
    options: BTreeMap<u32, TableOptions>,
    log: CommitLog,
    background: Background,
    limits: Limits,
    /// Tables that have been dropped since the store was opened.
    gone: BTreeSet<u32>,
    /// The latest time that the host has passed.
    now: Now,
    closing: Closing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    No,
    /// The rows in memory stay in the log.
    Requested,
    /// The rows in memory are being written to tables.
    Flushes,
}

impl Store {
    /// Writes mutations, first into the log as one entry, then into memory. After a crash all of
    /// them are there or none. The caller decides when to acknowledge: at once, or when
    /// [`Self::durable`] has passed the ticket.
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
        self.freeze_if_full();
        Ok(ticket)
    }

    /// Writes mutations that [`entry::encode_payload`] has encoded.
    pub fn write_payload(&mut self, payload: &[u8]) -> Result<Ticket, WriteError> {
        self.check_room()?;
        let length = entry::bytes(payload.len());
        let ticket = self.log.append(length, |out| entry::encode_encoded(payload, out))?;
        Mutations::new(payload).for_each(|mutation| self.memory.apply(&mutation));
        self.freeze_if_full();
        Ok(ticket)
    }

    #[inline]
    fn check_room(&self) -> Result<(), WriteError> {
        if self.used_bytes() > self.limits.memtable_bytes {
            return Err(self.memory_full());
        }
        Ok(())
    }

    #[cold]
    fn memory_full(&self) -> WriteError {
        let why = match self.background.full() {
            Some(why) => format!("they cannot be flushed ({why}); make room on the disk"),
            None => "the disk is too slow for flushing them; send less".into(),
        };
        let (used_bytes, limit_bytes) = (self.used_bytes(), self.limits.memtable_bytes);
        WriteError::MemoryFull { used_bytes, limit_bytes, why }
    }

    #[inline]
    fn freeze_if_full(&mut self) {
        if self.memory.bytes() >= self.limits.memtable_bytes / FREEZE_AT && self.frozen.is_empty() {
            self.freeze();
        }
    }

    /// Freezes the active memtable, so that it is written to tables; new rows go into a new
    /// memtable.
    fn freeze(&mut self) {
        let log_sequence = self.log.cut();
        self.freeze_below(log_sequence);
    }

    fn freeze_below(&mut self, log_sequence: u64) {
        let memtable = Rc::new(std::mem::take(&mut self.memory));
        self.frozen.insert(0, Rc::clone(&memtable));
        self.background.flush(memtable, log_sequence);
    }

    /// Sets the tables that exist, with their options. Tables that were set before and are missing
    /// now have been dropped or truncated: their rows are dropped and their files removed.
    pub fn schema(&mut self, options: BTreeMap<u32, TableOptions>) {
        let before = std::mem::replace(&mut self.options, options);
        let is_gone = |table: &u32| !self.options.contains_key(table);
        let gone: BTreeSet<u32> = before.into_keys().filter(is_gone).collect();
        if gone.is_empty() {
            return;
        }
        self.gone.extend(&gone);
        self.memory.retain(|table| !gone.contains(&table));
        let dropped = gone.iter().filter_map(|table| self.table_files.remove(table)).flatten();
        let dropped: Vec<_> = dropped.collect();
        self.background.drop_tables(dropped, &gone);
        self.go_on_closing();
    }

    /// Begins to read the blocks that a read has noted which ended in
    /// [`crate::read::End::Missing`]. The read can be tried again when [`Pins::is_ready`].
    pub(crate) fn fetch(&mut self, pins: &mut Pins) {
        let tables = || self.table_files.values().flatten();
        self.fetches.fetch(pins, |file| tables().find(|table| table.file() == file).cloned());
    }

    /// The next operation to carry out, if there is one. The host calls this until it returns
    /// `None`. Operations that clients wait for come first.
    pub fn next_op(&mut self, now: Now) -> Option<Op> {
        self.now = self.now.max(now);
        if let Some(op) = self.log.next_op(now).or_else(|| self.fetches.next_op()) {
            return Some(op);
        }
        if self.log.is_poisoned() {
            return None;
        }
        self.background.install_flush();
        self.background.next_op(now, self.fetches.is_busy())
    }

    /// The time at which to call [`Self::next_op`] and [`Self::urgency`] again even if nothing else
    /// has happened, in ns of [`Now::monotonic_ns`].
    pub fn next_due_ns(&self) -> Option<u64> {
        match (self.log.next_due_ns(), self.background.next_due_ns()) {
            (Some(log), Some(background)) => Some(log.min(background)),
            (log, background) => log.or(background),
        }
    }

    /// Takes the completion of an operation.
    pub fn complete(&mut self, completion: Completion, now: Now) -> Result<(), StoreError> {
        self.now = self.now.max(now);
        match completion.id.owner() {
            Owner::LogWrite | Owner::LogSegment | Owner::LogRemoval | Owner::LogTrim => {
                self.log.complete(completion, now)?;
            }
            Owner::Fetch => self.fetches.complete(completion, &mut self.cache),
            Owner::Flush | Owner::Compaction | Owner::Manifest | Owner::TableRemoval => {
                match self.background.complete(completion, now) {
                    Ok(edits) if edits.is_empty() => self.go_on_closing(),
                    Ok(edits) => self.apply_edits(edits),
                    Err(why) => return Err(self.log.poison(why).into()),
                }
            }
        }
        Ok(())
    }

    /// Takes the numbers, as given to [`Pins::wait_as`], of the reads that waited for a block that
    /// has come since the last time. A read that waited for several is there several times.
    pub fn take_woken(&mut self) -> impl Iterator<Item = usize> {
        self.fetches.take_woken()
    }

    fn apply_edits(&mut self, mut edits: Vec<Edit>) {
        for edit in &mut edits {
            for &file in &edit.remove {
                self.table_files
                    .values_mut()
                    .for_each(|tables| tables.retain(|t| t.file() != file));
            }
            for table in edit.add.drain(..) {
                if self.gone.contains(&table.footer().table) {
                    self.background.retire(vec![table]);
                    continue;
                }
                let tables = self.table_files.entry(table.footer().table).or_default();
                let latest = |table: &Rc<_>| std::cmp::Reverse(latest(table));
                let at = tables.partition_point(|other| latest(other) <= latest(&table));
                tables.insert(at, table);
            }
            if let Some(flushed) = edit.memtable.take() {
                self.frozen.retain(|memtable| !Rc::ptr_eq(memtable, &flushed));
            }
            if let Some(sequence) = edit.log_sequence {
                self.log.release(sequence);
            }
        }
        self.table_files.retain(|_, tables| !tables.is_empty());
        self.background.settle(edits, &self.table_files);
        self.freeze_if_full();
        self.go_on_closing();
    }

    /// Changes the number of bytes of blocks that stay in memory.
    pub fn set_cache_bytes(&mut self, bytes: usize) {
        self.cache.set_limit(bytes);
    }

    /// The urgency of [`Self::work`].
    pub fn urgency(&self) -> Urgency {
        if self.log.is_poisoned() {
            return Urgency::None;
        }
        if self.frozen.is_empty() && self.is_log_long() {
            return Urgency::Background;
        }
        self.background.urgency(&self.view(), self.filled())
    }

    /// How full the active memtable is: at 1 it is frozen, if no other one is being flushed.
    fn filled(&self) -> f64 {
        background::ratio(self.memory.bytes(), self.limits.memtable_bytes / FREEZE_AT)
    }

    /// Whether rows in memory are being written to tables, or wait until a compaction has ended.
    pub fn is_flushing(&self) -> bool {
        !self.frozen.is_empty()
    }

    /// Does one slice of flushing and compacting, of about 100 µs. Returns false if there is
    /// nothing to do until an operation ends or a write comes. While there are requests, the host
    /// should give it the share of its time that [`Self::urgency`] asks for, and all of its time
    /// when idle.
    pub fn work(&mut self, now: Now) -> bool {
        self.now = self.now.max(now);
        if self.log.is_poisoned() {
            return false;
        }
        if self.frozen.is_empty() && self.closing == Closing::No && self.is_log_long() {
            self.freeze();
        }
        let filled = self.filled();
        let Self { table_files, options, gone, memory, frozen, now, .. } = self;
        let memtables = [Some(&*memory), frozen.first().map(|memtable| &**memtable)];
        let view = StoreView { table_files, options, gone, memtables, now: *now };
        self.background.step(&view, filled)
    }

    fn view(&self) -> StoreView<'_> {
        let frozen = self.frozen.first().map(|memtable| &**memtable);
        let Self { table_files, options, gone, memory, now, .. } = self;
        StoreView { table_files, options, gone, memtables: [Some(memory), frozen], now: *now }
    }

    /// Whether a recovery of the log would take long.
    fn is_log_long(&self) -> bool {
        let segments = self.log.segments();
        let bytes = segments.saturating_mul(self.limits.segment_bytes);
        let most = (self.limits.memtable_bytes as u64).saturating_mul(LOG_MAX);
        segments > LOG_SEGMENTS_MIN && bytes > most && !self.memory.is_empty()
    }

    /// Writes whose ticket is below this are on stable storage.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.log.durable()
    }

    /// Begins a clean stop: aborts compactions, writes the rows in memory to tables if `flush` is
    /// set, and makes the log durable and closes it. No writes may follow. The host continues with
    /// [`Self::next_op`] and [`Self::work`] until [`Self::is_closed`].
    pub fn close(&mut self, flush: bool) {
        self.closing = if flush { Closing::Flushes } else { Closing::Requested };
        self.background.stop();
        self.go_on_closing();
    }

    /// Closes the log when nothing needs it any more.
    fn go_on_closing(&mut self) {
        if self.closing == Closing::Flushes && self.frozen.is_empty() && !self.memory.is_empty() {
            self.freeze();
        }
        if self.closing != Closing::No && self.background.is_idle() {
            self.log.close();
        }
    }

    /// Whether the stop is complete: there are no further operations.
    pub fn is_closed(&self) -> bool {
        self.log.is_closed() && self.background.is_idle()
    }

    /// Whether a failure has made the store refuse all writes for good.
    pub fn is_poisoned(&self) -> bool {
        self.log.is_poisoned()
    }

    /// Bytes of memory that rows occupy, including overwritten ones.
    #[inline]
    pub fn used_bytes(&self) -> usize {
        self.memory.bytes() + self.frozen.iter().map(|memtable| memtable.bytes()).sum::<usize>()
    }

    /// Bytes that wait for the commit log.
    #[inline]
    pub fn log_pending_bytes(&self) -> usize {
        self.log.pending_bytes()
    }

    /// The statistics of the store.
    pub fn statistics(&self) -> Statistics {
        let cache = self.cache.statistics();
        let tables = || self.table_files.values().flatten();
        let counters = self.background.counters();
        let (fetched, lookups) = (self.fetches.counts(), self.scratch.lookups);
        Statistics {
            memtable_bytes: self.memory.bytes() as u64,
            frozen_bytes: self.frozen.iter().map(|memtable| memtable.bytes() as u64).sum(),
            frozen_memtables: self.frozen.len() as u64,
            cache_bytes: cache.bytes as u64,
            cache_limit_bytes: cache.limit_bytes as u64,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            cache_evictions: cache.evictions,
            tables: tables().count() as u64,
            table_bytes: tables().map(|table| table.file_bytes()).sum(),
            table_resident_bytes: tables().map(|table| table.resident_bytes() as u64).sum(),
            flushes: counters.flushes,
            flushed_bytes: counters.flushed_bytes,
            compactions: counters.compactions,
            compactions_running: self.background.compactions() as u64,
            compacted_bytes_read: counters.compacted_bytes_read,
            compacted_bytes_written: counters.compacted_bytes_written,
            blocks_fetched: fetched.blocks,
            index_blocks_fetched: fetched.index_blocks,
            filter_blocks_fetched: fetched.filter_blocks,
            fetched_bytes: fetched.bytes,
            lookups_denied: lookups.denied,
            lookups_found: lookups.found,
            lookups_in_vain: lookups.false_positives,
            log_pending_bytes: self.log.pending_bytes() as u64,
            log_written_bytes: self.log.written_bytes(),
            log_segments: self.log.segments(),
            disk_full: u64::from(self.background.full().is_some()),
            unreadable_tables: self.background.unreadable() as u64,
            poisoned: u64::from(self.log.is_poisoned()),
        }
    }

    /// The number of table files of each size of one table, smallest size first.
    pub fn tables_of_size(&self, table: u32) -> Vec<usize> {
        let tables = self.table_files.get(&table).into_iter().flatten();
        background::sizes(tables.map(|table| table.file_bytes()))
    }
}

fn latest(table: &crate::table::Table) -> i64 {
    table.statistics().timestamp_max
}

#[cfg(test)]
mod disk;
#[cfg(test)]
mod tests;
