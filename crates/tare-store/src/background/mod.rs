//! The background work of a store: flushes and compactions, in slices, and the manifest that puts
//! their tables into force.
//!
//! One memtable is flushed at a time; several compactions run at the same time, so that small ones
//! do not wait for a large one. Everything is bounded: slices, operations under way, chunks that
//! wait to be written.

mod compaction;
mod flush;
mod install;
mod output;
mod pace;
mod rewrite;
mod tiers;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use crate::cells::Purge;
use crate::chunk::{ALIGNMENT, Chunk};
use crate::io::{Completion, FileId, Now, Op, OpId, OpKind, Owner};
use crate::manifest::Manifest;
use crate::memtable::Memtable;
use crate::options::TableOptions;
use crate::table::Table;
use compaction::{AbortReason, Compaction};
use flush::Flush;
pub(crate) use install::Edit;
use install::Installer;
use pace::Pace;
pub(crate) use tiers::sizes;

/// Bytes of rows that one slice of work merges and writes, which takes about 100 µs.
const STEP_BYTES: usize = 16 << 10;
/// How long background work waits before it tries a full disk again, in ns.
const RETRY_NS: u64 = 1_000_000_000;
/// Compactions that may run at the same time, and the memory that each should have.
const COMPACTIONS_MAX: usize = 3;
const COMPACTION_BYTES: usize = 8 << 20;
/// A further compaction has at most this part of the bytes of any running one.
const SMALLER: u64 = 4;
/// Operations of compactions that may be under way.
const OPS_MAX: usize = 4;
const OPS_MAX_READERS: usize = 1;
/// Fill level of the active memtable at which writes are about to be refused.
const CRITICAL: f64 = 0.8;
/// From this many times the files that a table compacts together on, its compaction is urgent: at
/// rest it has fewer.
const MANY: f64 = 4.0;
/// From this many times on, flushes wait for its compaction, and writes for the flushes. Otherwise
/// writes could go on at a rate at which compaction never catches up, and reads would ask ever more
/// files.
const TOO_MANY: f64 = 6.0;

/// The urgency of a slice of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// There is nothing to do until an operation ends or a write comes.
    None,
    /// Work should get a share of the CPU, for example a quarter while there are requests.
    Background,
    /// Work falls behind, and reads become slow: it should get half of the CPU.
    Urgent,
    /// Writes are about to be refused, or come faster than they are compacted: work should get
    /// nearly all of the CPU, so that writers wait instead.
    Critical,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpFailure {
    /// The disk is full; the operation may succeed later.
    Full(String),
    /// Nothing can be promised any more.
    Broken(String),
}

impl From<io::Error> for OpFailure {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match error.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => Self::Full(error.to_string()),
            _ => Self::Broken(error.to_string()),
        }
    }
}

impl OpFailure {
    /// The result of an operation. A write of too few bytes counts as a failure.
    fn of(completion: Completion) -> Result<(), Self> {
        let wanted = completion.chunk.as_ref().map_or(0, Chunk::len);
        match completion.result {
            Ok(length) if length < wanted => Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The division of the memory for background work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryShares {
    /// Size of a chunk to write; several may wait for each file.
    chunk_bytes: usize,
    compactions: usize,
    /// Bytes that all inputs of one compaction are read at a time. The blocks that come out of them
    /// take as much again, and more if they were compressed.
    read_bytes: usize,
}

impl MemoryShares {
    fn new(bytes: usize) -> Self {
        let compactions = (bytes / COMPACTION_BYTES).clamp(1, COMPACTIONS_MAX);
        let chunk_bytes = (bytes / 32).next_multiple_of(ALIGNMENT).clamp(32 << 10, 256 << 10);
        let read_bytes = (bytes / compactions / 6).clamp(256 << 10, 4 << 20);
        Self { chunk_bytes, compactions, read_bytes }
    }
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) flushes: u64,
    pub(crate) flushed_bytes: u64,
    pub(crate) compactions: u64,
    pub(crate) compacted_bytes_read: u64,
    pub(crate) compacted_bytes_written: u64,
}

/// The table files in force, by table; for each table, the file with the latest timestamp comes
/// first.
pub(crate) type TableFiles = BTreeMap<u32, Vec<Rc<Table>>>;

/// The state of the rest of the store that background work needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreView<'a> {
    pub(crate) table_files: &'a TableFiles,
    pub(crate) options: &'a BTreeMap<u32, TableOptions>,
    /// Tables that have been dropped.
    pub(crate) gone: &'a BTreeSet<u32>,
    /// All memtables.
    pub(crate) memtables: [Option<&'a Memtable>; 2],
    pub(crate) now: Now,
}

impl StoreView<'_> {
    /// The options of a table, or `None` if it was dropped. An unknown table has not been dropped.
    fn options_of(&self, table: u32) -> Option<TableOptions> {
        let exists = !self.gone.contains(&table);
        exists.then(|| self.options.get(&table).copied().unwrap_or_default())
    }

    /// How many times the files that a table compacts together it has; 0 if it was dropped.
    fn times_files(&self, table: u32) -> f64 {
        let files = self.table_files.get(&table).map_or(0, Vec::len);
        self.options_of(table).map_or(0.0, |options| ratio(files, options.compaction_least()))
    }
}

#[derive(Debug)]
pub(crate) struct Background {
    installer: Installer,
    next_file: u64,
    flush: Option<Flush>,
    compactions: Vec<Compaction>,
    /// Tables that may need a compaction; they are checked when they change.
    unsettled: BTreeSet<u32>,
    /// Tables whose compaction cannot begin before another one has ended.
    postponed: BTreeSet<u32>,
    /// Files that a compaction could not read. They are not compacted again.
    unreadable: BTreeSet<u64>,
    /// Files that are not in force. They are removed when nobody uses them any more.
    retired: Vec<Rc<Table>>,
    leftovers: Vec<u64>,
    /// Why the disk has no room: set by a failure, cleared by the next success.
    full: Option<String>,
    /// Time of the next try on a full disk, if there was none since the failure.
    retry_ns: Option<u64>,
    counters: Counters,
    shares: MemoryShares,
    /// Whether compactions may begin and go on.
    compacts: bool,
    pace: Pace,
}

impl Background {
    /// Background work on the tables of a manifest. It begins no compactions before
    /// [`Self::start`].
    pub(crate) fn new(manifest: Manifest, next_file: u64, bytes: usize) -> Self {
        let unsettled = manifest.tables.iter().map(|listed| listed.table).collect();
        Self {
            installer: Installer::new(manifest),
            next_file,
            flush: None,
            compactions: Vec::new(),
            unsettled,
            postponed: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            retired: Vec::new(),
            leftovers: Vec::new(),
            full: None,
            retry_ns: None,
            counters: Counters::default(),
            shares: MemoryShares::new(bytes),
            compacts: false,
            pace: Pace::default(),
        }
    }

    /// Begins to flush a memtable.
    ///
    /// # Panics
    /// Panics if a memtable is being flushed.
    pub(crate) fn flush(&mut self, memtable: Rc<Memtable>, log_sequence: u64) {
        assert!(self.flush.is_none(), "one memtable is flushed at a time");
        self.pace = Pace::new(memtable.bytes(), self.counters().compacted_bytes_written);
        self.flush = Some(Flush::new(memtable, log_sequence));
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.counters;
        for compaction in &self.compactions {
            let (read, written) = compaction.bytes();
            counters.compacted_bytes_read += read;
            counters.compacted_bytes_written += written;
        }
        counters
    }

    /// Why nothing can be written, if the disk is full.
    pub(crate) fn full(&self) -> Option<&str> {
        self.full.as_deref()
    }

    /// Number of table files that compactions could not read.
    pub(crate) fn unreadable(&self) -> usize {
        self.unreadable.len()
    }

    /// Groups of the log below this are in tables.
    pub(crate) fn log_sequence(&self) -> u64 {
        self.installer.log_sequence()
    }

    pub(crate) fn edit(&mut self, edit: Edit) {
        self.installer.edit(edit);
    }

    pub(crate) fn compactions(&self) -> usize {
        self.compactions.len()
    }

    /// Allows compactions.
    pub(crate) fn start(&mut self) {
        self.compacts = true;
    }

    /// Begins no more compactions and aborts those that run.
    pub(crate) fn stop(&mut self) {
        self.compacts = false;
        self.abandon(|_| true);
    }

    fn abandon(&mut self, which: impl Fn(u32) -> bool) {
        for compaction in &mut self.compactions {
            if which(compaction.table()) {
                compaction.abandon();
            }
        }
        // None of them can have failed since the last operation ended.
        let _ = self.end_compactions(Now::default());
    }

    /// Whether all work has ended, and all edits are in force.
    pub(crate) fn is_idle(&self) -> bool {
        self.flush.is_none() && self.compactions.is_empty() && self.installer.is_idle()
    }

    /// Forgets tables that have been dropped. Their files are removed when a manifest without them
    /// is in force.
    pub(crate) fn drop_tables(&mut self, dropped: Vec<Rc<Table>>, gone: &BTreeSet<u32>) {
        self.abandon(|table| gone.contains(&table));
        self.retire(dropped);
    }

    /// Removes table files from the manifest, and then the files.
    pub(crate) fn retire(&mut self, tables: Vec<Rc<Table>>) {
        if tables.is_empty() {
            return;
        }
        let remove = tables.iter().map(|table| table.file()).collect();
        self.installer.edit(Edit { retired: tables, remove, ..Edit::default() });
    }

    /// The urgency of a slice, given the fill level of the active memtable, 0 to 1. A flush should
    /// have written everything when the next memtable is half full, because syncing takes time too.
    pub(crate) fn urgency(&self, view: &StoreView<'_>, filled: f64) -> Urgency {
        if self.waits_for_space(view.now) {
            return Urgency::None;
        }
        let flush_waits = self.flush_waits(view);
        if self.compactions_lag(view, filled) < 1.0 {
            return Urgency::Critical;
        }
        if let Some(flush) = self.flush.as_ref().filter(|flush| !flush_waits && flush.can_step()) {
            return match pace::flush(flush.progress(), filled) {
                _ if filled > CRITICAL => Urgency::Critical,
                done if done < 1.0 => Urgency::Urgent,
                _ => Urgency::Background,
            };
        }
        if !self.compacts {
            return Urgency::None;
        }
        match self.compactions.iter().find(|compaction| compaction.can_step()) {
            Some(_) if flush_waits && filled > CRITICAL => Urgency::Critical,
            Some(compaction) if view.times_files(compaction.table()) >= MANY => Urgency::Urgent,
            Some(_) => Urgency::Background,
            None if self.unsettled.is_empty() => Urgency::None,
            None => Urgency::Background,
        }
    }

    /// Does one slice of work. Returns false if there was nothing to do.
    pub(crate) fn step(&mut self, view: &StoreView<'_>, filled: f64) -> bool {
        if self.waits_for_space(view.now) {
            return false;
        }
        self.retry_ns = None;
        let waits = self.flush_waits(view);
        let lag = self.compactions_lag(view, filled);
        if let Some(flush) = self.flush.as_mut().filter(|flush| !waits && flush.can_step())
            && (lag >= 1.0 || pace::flush(flush.progress(), filled) <= lag)
        {
            flush.step(|table| view.options_of(table), &mut self.next_file, self.shares);
            return true;
        }
        if !self.compacts {
            return false;
        }
        // The smallest one comes first, because it makes room for the next flush.
        let able = self.compactions.iter_mut().filter(|compaction| compaction.can_step());
        if let Some(compaction) = able.min_by_key(|compaction| compaction.input_bytes()) {
            compaction.step();
            return true;
        }
        self.begin_compaction(view)
    }

    /// Whether the flush waits, because a table has too many files and is being compacted. On a
    /// full disk it does not: it needs less room than the compaction.
    fn flush_waits(&self, view: &StoreView<'_>) -> bool {
        self.flush.is_some()
            && self.full.is_none()
            && self
                .compactions
                .iter()
                .any(|compaction| view.times_files(compaction.table()) >= TOO_MANY)
    }

    /// The share of their schedule that compactions have done, for the table that has the most
    /// files of those that can go on; below 1 they are behind. On a full disk nothing is due: a
    /// flush needs less room.
    fn compactions_lag(&self, view: &StoreView<'_>, filled: f64) -> f64 {
        if self.full.is_some() {
            return f64::INFINITY;
        }
        let able = self.compactions.iter().filter(|compaction| compaction.can_step());
        let times = able.map(|compaction| view.times_files(compaction.table()));
        let times = times.fold(0.0, f64::max);
        self.pace.compactions(self.counters().compacted_bytes_written, times, filled)
    }

    /// Whether the disk is full and it is too early to try again.
    fn waits_for_space(&self, now: Now) -> bool {
        self.retry_ns.is_some_and(|retry_ns| now.monotonic_ns < retry_ns)
    }

    fn begin_compaction(&mut self, view: &StoreView<'_>) -> bool {
        let Some(&table) = self.unsettled.first() else { return false };
        let tables = view.table_files.get(&table).map_or(&[][..], Vec::as_slice);
        // The inputs of a compaction that has ended remain until the manifest changes. If they were
        // compacted again, their rows would be in two tables, and tombstones that are purged from
        // the one would not hide what they must in the other.
        let running = self.compactions.iter().flat_map(|c| c.inputs().iter().map(|t| t.file()));
        let busy: BTreeSet<u64> = running.chain(self.installer.leaving()).collect();
        let free = |table: &&Rc<Table>| {
            !busy.contains(&table.file()) && !self.unreadable.contains(&table.file())
        };
        let options = view.options_of(table);
        let candidates = tables.iter().filter(free).cloned().collect();
        let picked =
            options.and_then(|options| Some((tiers::pick(candidates, &options)?, options)));
        let Some((inputs, options)) = picked else {
            self.unsettled.remove(&table);
            return true;
        };
        let bytes: u64 = inputs.iter().map(|table| table.file_bytes()).sum();
        let least = self.compactions.iter().map(Compaction::input_bytes).min();
        if self.compactions.len() >= self.shares.compactions
            || least.is_some_and(|least| bytes.saturating_mul(SMALLER) > least)
        {
            self.unsettled.remove(&table);
            self.postponed.insert(table);
            return true;
        }
        let purge = purge(table, &inputs, view, &options);
        let file = self.next_file;
        self.next_file += 1;
        let options = options.for_writer(file, table, self.shares.chunk_bytes);
        let read_bytes = self.shares.read_bytes;
        self.compactions.push(Compaction::new(inputs, options, read_bytes, purge));
        true
    }

    /// The next operation. While `readers` wait for blocks, fewer operations of compactions are
    /// under way.
    pub(crate) fn next_op(&mut self, now: Now, readers: bool) -> Option<Op> {
        if let Some(op) = self.installer.next_op(now) {
            return Some(op);
        }
        if let Some(op) = self.next_removal() {
            return Some(op);
        }
        if self.waits_for_space(now) {
            return None;
        }
        if let Some(op) = self.flush.as_mut().and_then(Flush::next_op) {
            return Some(op);
        }
        let most = if readers { OPS_MAX_READERS } else { OPS_MAX };
        if self.compactions.iter().map(Compaction::ops).sum::<usize>() >= most {
            return None;
        }
        self.compactions.iter_mut().find_map(Compaction::next_op)
    }

    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        match (self.retry_ns, self.installer.next_due_ns()) {
            (Some(retry), Some(installer)) => Some(retry.min(installer)),
            (retry, installer) => retry.or(installer),
        }
    }

    fn next_removal(&mut self) -> Option<Op> {
        let unused = self.retired.iter().position(|table| Rc::strong_count(table) == 1);
        if let Some(index) = unused {
            let file = self.retired.swap_remove(index).file();
            self.leftovers.push(file);
        }
        let file = self.leftovers.pop()?;
        let id = OpId::new(Owner::TableRemoval, file);
        Some(Op { id, file: FileId::Table(file), kind: OpKind::Remove })
    }

    /// Takes the completion of an operation. Returns the edits that are in force now.
    pub(crate) fn complete(
        &mut self,
        completion: Completion,
        now: Now,
    ) -> Result<Vec<Edit>, String> {
        match completion.id.owner() {
            Owner::Manifest => match self.installer.complete(completion, now) {
                Ok(edits) => {
                    if !edits.is_empty() {
                        self.full = None;
                    }
                    return Ok(edits);
                }
                Err(failed) => self.failed(failed, now)?,
            },
            Owner::Flush => {
                let Some(flush) = &mut self.flush else { return Ok(Vec::new()) };
                match flush.complete(completion) {
                    Ok(0) => {}
                    Ok(bytes) => {
                        self.full = None;
                        self.counters.flushed_bytes += bytes;
                    }
                    Err((failed, leftover)) => {
                        self.leftovers.push(leftover);
                        self.failed(failed, now)?;
                    }
                }
            }
            Owner::Compaction => self.complete_compaction(completion, now)?,
            // The next start removes a file that could not be removed.
            _ => {}
        }
        Ok(Vec::new())
    }

    fn complete_compaction(&mut self, completion: Completion, now: Now) -> Result<(), String> {
        let (file, _) = completion.id.table_part();
        if let Some(compaction) = self.compactions.iter_mut().find(|c| c.file() == file) {
            compaction.complete(completion);
        }
        self.end_compactions(now)
    }

    /// Removes the compactions that have ended.
    fn end_compactions(&mut self, now: Now) -> Result<(), String> {
        let mut result = Ok(());
        let mut index = 0;
        while let Some(compaction) = self.compactions.get_mut(index) {
            let end = match compaction.done() {
                Some(output) => Ok(output),
                None => match compaction.take_abort_reason() {
                    Some(end) => Err(end),
                    None => {
                        index += 1;
                        continue;
                    }
                },
            };
            let compaction = self.compactions.swap_remove(index);
            let (read, written) = compaction.bytes();
            self.counters.compacted_bytes_read += read;
            self.counters.compacted_bytes_written += written;
            self.unsettled.insert(compaction.table());
            self.unsettled.append(&mut self.postponed);
            match end {
                Ok(output) => {
                    self.full = None;
                    self.counters.compactions += 1;
                    self.replace(compaction, output);
                }
                Err(end) => {
                    self.leftovers.push(compaction.file());
                    match end {
                        AbortReason::Output(failed) => result = self.failed(failed, now),
                        AbortReason::Input => {
                            let inputs = compaction.inputs().iter().map(|input| input.file());
                            self.unreadable.extend(inputs);
                        }
                        AbortReason::Dropped => {}
                    }
                }
            }
        }
        result
    }

    fn replace(&mut self, compaction: Compaction, output: Option<Rc<Table>>) {
        let leftovers = if output.is_some() { Vec::new() } else { vec![compaction.file()] };
        let add = output.into_iter().collect();
        let retired = compaction.into_inputs();
        let remove = retired.iter().map(|table| table.file()).collect();
        self.installer.edit(Edit { add, remove, retired, leftovers, ..Edit::default() });
    }

    /// Installs the tables of the flush, if it is complete.
    pub(crate) fn install_flush(&mut self) {
        let Some(flush) = &mut self.flush else { return };
        if let Some((add, leftovers)) = flush.finished() {
            let log_sequence = Some(flush.log_sequence());
            let memtable = Some(Rc::clone(flush.memtable()));
            self.flush = None;
            self.counters.flushes += 1;
            self.installer.edit(Edit { add, leftovers, log_sequence, memtable, ..Edit::default() });
        }
    }

    /// Notes that edits are in force.
    pub(crate) fn settle(&mut self, edits: Vec<Edit>, table_files: &TableFiles) {
        for Edit { retired, leftovers, .. } in edits {
            self.leftovers.extend(leftovers);
            for table in retired {
                // A table may have been dropped while it was compacted.
                if self.retired.iter().all(|other| other.file() != table.file()) {
                    self.retired.push(table);
                }
            }
        }
        self.unsettled.extend(table_files.keys());
    }

    fn failed(&mut self, failed: OpFailure, now: Now) -> Result<(), String> {
        match failed {
            OpFailure::Full(why) => {
                self.full = Some(why);
                self.retry_ns = Some(now.monotonic_ns.saturating_add(RETRY_NS));
                Ok(())
            }
            OpFailure::Broken(why) => Err(why),
        }
    }
}

/// A part of a whole.
pub(crate) fn ratio(part: usize, whole: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "to compare with")]
    let ratio = part as f64 / whole.max(1) as f64;
    ratio
}

/// What a compaction may drop: deletions older than the grace period that cannot hide anything in a
/// memtable or in a table outside the compaction.
fn purge(table: u32, inputs: &[Rc<Table>], view: &StoreView<'_>, options: &TableOptions) -> Purge {
    let others = view.table_files.get(&table).map_or(&[][..], Vec::as_slice);
    let others = others.iter().filter(|other| inputs.iter().all(|input| !Rc::ptr_eq(input, other)));
    let tables = others.map(|other| other.statistics().timestamp_min);
    let memtables = view.memtables.iter().flatten().map(|memtable| memtable.timestamp_min(table));
    let now_s = view.now.wall_s;
    Purge {
        now_s,
        gc_before_s: now_s.saturating_sub(options.gc_grace_s),
        timestamp_below: tables.chain(memtables).min().unwrap_or(i64::MAX),
    }
}
