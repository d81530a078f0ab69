//! Opens a store: its manifest, the ends of its tables, and the part of the log that is not in
//! them. Time and memory depend on the number of tables and on the length of the log, not on the
//! size of the data.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use super::{Closing, Store};
use crate::background::{Background, Edit, TableFiles};
use crate::cache::Cache;
use crate::entry::{Entries, Mutation};
use crate::fetch::Fetches;
use crate::io::{FileId, Files, Now, Op, OpId, OpKind, Owner};
use crate::log::{CommitLog, LogLimits};
use crate::manifest::{Manifest, ManifestError};
use crate::memtable::Memtable;
use crate::options::{Limits, TableOptions};
use crate::read::Scratch;
use crate::recovery::{RecoveryError, TornTail, recover};
use crate::table::{Table, TableError};

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot list the files of the shard")]
    List { source: io::Error },
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("cannot open {file}, which the manifest lists")]
    Table { file: String, source: TableError },
    #[error("cannot remove {file}, which is a leftover")]
    Leftover { file: String, source: io::Error },
    #[error(transparent)]
    Log(#[from] RecoveryError),
    #[error(
        "the commit log holds more than fits into memory, and it cannot be flushed: {why}; make \
         room on the disk or give the server more memory"
    )]
    Flush { why: String },
}

/// The results of opening a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Number of entries read from the log.
    pub entries: u64,
    /// The position where the log was cut, if it was.
    pub torn: Option<TornTail>,
}

impl Store {
    /// Recovers a shard from its files. `options` has all existing tables; rows of other tables
    /// (dropped or truncated ones) are skipped.
    pub fn open(
        files: &mut impl Files,
        limits: Limits,
        options: BTreeMap<u32, TableOptions>,
        now: Now,
    ) -> Result<(Self, Recovered), OpenError> {
        let manifest = Manifest::read(files)?;
        let next_file = remove_leftovers(files, &manifest)?;
        let (table_files, dropped) = open_tables(files, &manifest, &options)?;
        let from = manifest.log_sequence;
        let mut background = Background::new(manifest, next_file, limits.background_bytes);
        if !dropped.is_empty() {
            background.edit(Edit {
                remove: dropped.clone(),
                leftovers: dropped,
                ..Edit::default()
            });
        }
        let log_limits = LogLimits {
            segment_bytes: limits.segment_bytes,
            pending_bytes: limits.pending_bytes,
            durability: limits.durability,
        };
        let mut store = Self {
            memory: Memtable::default(),
            frozen: Vec::new(),
            table_files,
            cache: Cache::new(limits.cache_bytes),
            scratch: Scratch::default(),
            fetches: Fetches::default(),
            options,
            // This log is replaced below, when the end of the old one is known.
            log: CommitLog::new(0, from, [], log_limits),
            background,
            limits,
            now,
            gone: BTreeSet::new(),
            closing: Closing::No,
        };
        let mut entries = 0;
        let replayed = recover(files, from, |files, sequence, group| {
            for mutations in Entries::new(group).flatten() {
                let exists = |m: &Mutation<'_>| store.options.contains_key(&m.table);
                let mutations = mutations.filter(exists);
                mutations.for_each(|mutation| store.memory.apply(&mutation));
                entries += 1;
            }
            store.flush_at_once(files, sequence + 1)
        })?;
        let (segment, sequence) = (replayed.next_segment, replayed.next_sequence);
        store.log = CommitLog::new(segment, sequence, replayed.closed, log_limits);
        store.log.release(store.background.log_sequence());
        store.background.start();
        Ok((store, Recovered { entries, torn: replayed.torn }))
    }

    /// Writes the memtable to tables if it is full, and waits for that: there are no clients yet.
    /// It holds the groups of the log below the sequence number.
    fn flush_at_once<F: Files>(&mut self, files: &mut F, sequence: u64) -> Result<(), OpenError> {
        if self.memory.bytes() < self.limits.memtable_bytes / super::FREEZE_AT {
            return Ok(());
        }
        self.freeze_below(sequence);
        while !self.frozen.is_empty() {
            let mut worked = self.work(self.now);
            self.background.install_flush();
            while let Some(op) = self.background.next_op(self.now, false) {
                worked = true;
                let completion = files.carry_out(op);
                let edits = self.background.complete(completion, self.now);
                self.apply_edits(edits.map_err(|why| OpenError::Flush { why })?);
            }
            if !worked {
                let why = self.background.full().unwrap_or("nothing can be done").to_string();
                return Err(OpenError::Flush { why });
            }
        }
        Ok(())
    }
}

/// Removes the files that the manifest does not list; a crash left them. Returns the number of the
/// next table file.
fn remove_leftovers(files: &mut impl Files, manifest: &Manifest) -> Result<u64, OpenError> {
    let listed = files.list().map_err(|source| OpenError::List { source })?;
    let mut next_file = manifest.tables.last().map_or(0, |last| last.file + 1);
    for file in listed {
        let known = match file {
            FileId::Table(number) => {
                next_file = next_file.max(number + 1);
                manifest.tables.binary_search_by_key(&number, |listed| listed.file).is_ok()
            }
            FileId::ManifestDraft => false,
            FileId::Manifest | FileId::Log(_) => true,
        };
        if !known {
            let id = OpId::new(Owner::TableRemoval, 0);
            let removed = files.carry_out(Op { id, file, kind: OpKind::Remove }).result;
            removed.map_err(|source| OpenError::Leftover { file: files.name(file), source })?;
        }
    }
    Ok(next_file)
}

/// Opens the tables, and returns the numbers of files that belong to tables that do not exist.
fn open_tables(
    files: &impl Files,
    manifest: &Manifest,
    options: &BTreeMap<u32, TableOptions>,
) -> Result<(TableFiles, Vec<u64>), OpenError> {
    let mut table_files = TableFiles::new();
    let mut dropped = Vec::new();
    for listed in &manifest.tables {
        if !options.contains_key(&listed.table) {
            dropped.push(listed.file);
            continue;
        }
        let id = FileId::Table(listed.file);
        let read = |offset: u64, buffer: &mut [u8]| files.read_at(id, offset, buffer);
        let table = Table::open(listed.file, listed.bytes, read);
        let table = table.map_err(|source| OpenError::Table { file: files.name(id), source })?;
        table_files.entry(listed.table).or_default().push(Rc::new(table));
    }
    for tables in table_files.values_mut() {
        tables.sort_by_key(|table| std::cmp::Reverse(super::latest(table)));
    }
    Ok((table_files, dropped))
}
