//! Writes a record while its study runs.
//!
//! The file is created with `O_EXCL`, so that no file is ever overwritten. It is locked with
//! `flock` during the study, which distinguishes a running writer from a crashed one. Each slice is
//! one transaction. In WAL mode with `synchronous=NORMAL` a commit does not sync, which would
//! disturb the disk under test. A killed process loses no committed slice. Complete rounds are
//! synced at least every 10 s, so that a power loss loses at most the rounds of that
//! time.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, params};
use tare_std::file_lock::FileLock;

use super::error::RecordError;
use super::opening::Opening;
use super::read::read_from;
use super::rows::{insert_doubt, insert_environment, insert_opening, insert_slice, signed};
use super::{
    APPLICATION_ID, SCHEMA_VERSION, VERSION_WITH_CPU_PLAN, VERSION_WITH_HOST, VERSION_WITH_ROOTFS,
    VERSION_WITH_SANDBOX, VERSION_WITH_SLO, VERSION_WITH_STACKS, VERSION_WITH_STARTS,
    VERSION_WITH_STORAGE, VERSION_WITH_TRACED, loaders, paths, response_times, seconds, stacks,
};
use super::{DoubtRecord, EnvironmentRecord, Record, Slice, as_json};
use crate::doubt::Doubt;
use crate::loader::Loader;
use crate::path::LoaderPath;
use crate::response_time::ResponseTime;
use crate::seconds::Seconds;
use crate::stacks::{StackKind, StackSlice};
use crate::study::{AutoWindow, Study, WorkloadSpec};

/// Maximum time between two syncs of the complete rounds.
const SYNC_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of slices between two syncs. They bound the write-ahead log, which grows by about
/// 20 KiB for each.
const SYNC_SLICES: u32 = 200;

/// The only writer of a record. If it is dropped without `finish`, the record can be read and
/// resumed, as after a crash.
#[derive(Debug)]
pub struct RecordWriter {
    path: PathBuf,
    // Dropped before the lock: fields are dropped in order.
    connection: Connection,
    _lock: FileLock,
    /// Number of complete rounds, which is also the number of the next round.
    rounds: u32,
    /// When complete rounds were last synced.
    synced: Option<Instant>,
    /// Number of slices since then.
    unsynced: u32,
    /// The written record, without histograms.
    record: Record,
}

/// Returns the first of `NAME.tare`, `NAME-2.tare`, `NAME-3.tare` ... that does not exist, for a
/// record whose name the user did not choose.
pub fn free_path(wanted: &Path) -> PathBuf {
    let stem = wanted.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let extension = wanted.extension().map_or_else(|| "tare".into(), |e| e.to_string_lossy());
    let numbered =
        (2u32..).map(|number| wanted.with_file_name(format!("{stem}-{number}.{extension}")));
    let mut candidates = std::iter::once(wanted.to_path_buf()).chain(numbered);
    candidates.find(|path| !path.exists()).unwrap_or_else(|| wanted.to_path_buf())
}

impl RecordWriter {
    /// Creates a new record.
    ///
    /// # Errors
    /// `Exists` if the path exists.
    pub fn create(path: &Path, opening: &Opening) -> Result<Self, RecordError> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|error| RecordError::file("create", path, error))?;
        let made = Self::open(path, file, opening.as_record()).and_then(|mut writer| {
            writer.set_up()?;
            writer.transact("create", |transaction| {
                transaction.execute_batch(include_str!("schema.sql"))?;
                transaction.execute_batch(stacks::TABLES)?;
                transaction.execute_batch(loaders::TABLES)?;
                transaction.execute_batch(paths::TABLES)?;
                transaction.execute_batch(response_times::TABLES)?;
                transaction.execute_batch(seconds::TABLES)?;
                transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
                transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
                insert_opening(transaction, opening)
            })?;
            Ok(writer)
        });
        if made.is_err() {
            // This call created the file, which has no content yet.
            std::fs::remove_file(path).ok();
        }
        made
    }

    /// Opens a record to continue its study. Drops the slices of an incomplete round with their
    /// doubts: a round is the statistical unit, and its second half would run at another time.
    /// Facts about environments stay until these start again. Doubts about environments and about
    /// the whole record are dropped, because the continued study finds them again.
    pub fn resume(path: &Path) -> Result<Self, RecordError> {
        // Locks before SQLite opens the file: SQLite must not touch the file of a running study.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|error| RecordError::file("open", path, error))?;
        let (connection, lock) = Self::connect(path, file)?;
        // Reads before it changes anything, so that another program's database stays unchanged.
        let record = read_from(&connection, path)?;
        let mut writer = Self::new(path, connection, lock, record);
        writer.set_up()?;
        writer.transact("resume", |transaction| {
            upgrade(transaction)?;
            response_times::clear(transaction)?;
            let partial = "DELETE FROM slices WHERE phase <> 'traced' \
                           AND block NOT IN (SELECT block FROM blocks)";
            transaction.execute(partial, [])?;
            transaction.execute("DELETE FROM doubts WHERE slice IS NULL", [])?;
            transaction.execute("UPDATE record SET ended_unix_ms = NULL, ending = NULL", [])?;
            Ok(())
        })?;
        writer.record = read_from(&writer.connection, path)?;
        writer.record.slices.iter_mut().for_each(strip);
        let last_round = "SELECT COALESCE(MAX(block) + 1, 0) FROM blocks";
        writer.rounds = writer
            .connection
            .query_row(last_round, [], |row| row.get(0))
            .map_err(|error| RecordError::sqlite("read", path, error))?;
        Ok(writer)
    }

    fn new(path: &Path, connection: Connection, lock: FileLock, record: Record) -> Self {
        Self {
            path: path.to_path_buf(),
            connection,
            _lock: lock,
            rounds: 0,
            synced: None,
            unsynced: 0,
            record,
        }
    }

    fn open(path: &Path, file: File, record: Record) -> Result<Self, RecordError> {
        let (connection, lock) = Self::connect(path, file)?;
        Ok(Self::new(path, connection, lock, record))
    }

    /// Locks the file, then opens it.
    fn connect(path: &Path, file: File) -> Result<(Connection, FileLock), RecordError> {
        let locked =
            FileLock::exclusive(file).map_err(|error| RecordError::file("lock", path, error))?;
        let lock = locked.ok_or_else(|| RecordError::Locked { path: path.to_path_buf() })?;
        let sqlite = |error| RecordError::sqlite("open", path, error);
        let connection = Connection::open(path).map_err(sqlite)?;
        connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(sqlite)?;
        Ok((connection, lock))
    }

    fn set_up(&self) -> Result<(), RecordError> {
        let pragmas = |connection: &Connection| {
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            // Only `finish_round` syncs, and never between two slices of a round.
            connection.pragma_update(None, "wal_autocheckpoint", 0)?;
            connection.pragma_update(None, "foreign_keys", true)
        };
        pragmas(&self.connection).map_err(|error| RecordError::sqlite("open", &self.path, error))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the record so far, without histograms.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Returns the number of complete rounds, which is also the number of the next round.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Writes the facts about an environment and replaces earlier ones. `position` is its index in
    /// the study; the control is the last.
    pub fn put_environment(
        &mut self,
        position: u32,
        environment: &EnvironmentRecord,
    ) -> Result<(), RecordError> {
        self.transact("write", |transaction| {
            insert_environment(transaction, position, environment)
        })?;
        let known = &mut self.record.environments;
        match known.iter_mut().find(|one| one.spec.name == environment.spec.name) {
            Some(one) => *one = environment.clone(),
            None => known.push(environment.clone()),
        }
        Ok(())
    }

    /// Writes the loaders of the run, in place of those from before a resume.
    pub fn put_loaders(&mut self, loaders: &[Loader]) -> Result<(), RecordError> {
        self.transact("write", |transaction| loaders::put(transaction, loaders))?;
        self.record.loaders = loaders.to_vec();
        Ok(())
    }

    /// Writes the network paths of the run, in place of those before.
    pub fn put_paths(&mut self, paths: &[LoaderPath]) -> Result<(), RecordError> {
        self.transact("write", |transaction| paths::put(transaction, paths))?;
        self.record.paths = paths.to_vec();
        Ok(())
    }

    /// Writes the fixed rate of a workload's latency phase.
    pub fn put_rate(&mut self, workload: &str, rate_per_s: f64) -> Result<(), RecordError> {
        self.transact("write", |transaction| {
            let sql = "INSERT OR REPLACE INTO rates VALUES (?, ?)";
            transaction.execute(sql, params![workload, rate_per_s]).map(drop)
        })?;
        self.record.header.rates.retain(|(name, _)| name != workload);
        self.record.header.rates.push((workload.to_string(), rate_per_s));
        Ok(())
    }

    /// Writes a workload whose load was found, in place of that of the study.
    pub fn put_workload(
        &mut self,
        index: usize,
        workload: &WorkloadSpec,
    ) -> Result<(), RecordError> {
        let mut study = self.record.study.clone();
        study.workloads[index] = workload.clone();
        self.put_study(study)
    }

    /// Writes the window that was chosen on the host, into the study.
    pub fn put_window(&mut self, window: Duration, chosen: &AutoWindow) -> Result<(), RecordError> {
        let mut study = self.record.study.clone();
        (study.schedule.window, study.schedule.auto_window) = (window, Some(chosen.clone()));
        self.put_study(study)
    }

    fn put_study(&mut self, study: Study) -> Result<(), RecordError> {
        self.transact("write", |transaction| {
            transaction.execute("UPDATE record SET study = ?", [as_json(&study)?]).map(drop)
        })?;
        self.record.study = study;
        Ok(())
    }

    /// Writes a slice and its doubts in one transaction, and returns its new id. Ignores
    /// `slice.id`.
    pub fn put_slice(&mut self, slice: &Slice, doubts: &[Doubt]) -> Result<i64, RecordError> {
        let id = self.transact("write", |transaction| {
            let id = insert_slice(transaction, slice)?;
            seconds::put(transaction, id, &slice.seconds)?;
            for doubt in doubts {
                insert_doubt(transaction, Some(id), Some(&slice.environment), doubt)?;
            }
            Ok(id)
        })?;
        self.unsynced += 1;
        let mut kept = Slice { id, ..slice.clone() };
        strip(&mut kept);
        self.record.slices.push(kept);
        self.record.doubts.extend(doubts.iter().map(|doubt| DoubtRecord {
            slice: Some(id),
            environment: Some(slice.environment.clone()),
            doubt: doubt.clone(),
        }));
        Ok(id)
    }

    /// Writes the response times of all rounds, in place of those before.
    pub fn put_response_times(&mut self, all: &[ResponseTime]) -> Result<(), RecordError> {
        self.transact("write", |transaction| response_times::put(transaction, all))
    }

    /// Writes a stack slice in one transaction, and returns its new id. Ignores `slice.id`.
    pub fn put_stacks(&mut self, slice: &StackSlice) -> Result<i64, RecordError> {
        self.transact("write", |transaction| stacks::insert(transaction, slice))
    }

    /// Returns the number of started rounds of stack slices of a kind, which is also the number of
    /// the next round.
    pub fn stack_rounds(&mut self, kind: StackKind) -> Result<u32, RecordError> {
        self.transact("read", |transaction| {
            let sql = "SELECT COALESCE(MAX(round) + 1, 0) FROM stack_slices WHERE kind = ?";
            transaction.query_row(sql, [kind.name()], |row| row.get(0))
        })
    }

    /// Returns the number of started rounds of traced slices, which is also the number of the next
    /// round.
    pub fn traced_rounds(&mut self) -> Result<u32, RecordError> {
        self.transact("read", |transaction| {
            let sql = "SELECT COALESCE(MAX(block) + 1, 0) FROM slices WHERE phase = 'traced'";
            transaction.query_row(sql, [], |row| row.get(0))
        })
    }

    /// Writes a doubt about an environment or about the whole record.
    pub fn put_doubt(&mut self, doubt: &DoubtRecord) -> Result<(), RecordError> {
        self.transact("write", |transaction| {
            let environment = doubt.environment.as_deref();
            insert_doubt(transaction, doubt.slice, environment, &doubt.doubt)
        })?;
        self.record.doubts.push(doubt.clone());
        Ok(())
    }

    /// Marks a round as complete. Syncs all complete rounds if the last sync is older than
    /// 10 s or 200 slices: with short slices, a sync in each round
    /// would take longer than a slice.
    pub fn finish_round(&mut self, round: u32, unix_ms: u64) -> Result<(), RecordError> {
        self.transact("write", |transaction| {
            let sql = "INSERT OR REPLACE INTO blocks VALUES (?, ?)";
            transaction.execute(sql, params![round, signed(unix_ms)]).map(drop)
        })?;
        self.rounds = round + 1;
        let recent = self.synced.is_some_and(|synced| synced.elapsed() < SYNC_INTERVAL);
        if recent && self.unsynced < SYNC_SLICES {
            return Ok(());
        }
        (self.synced, self.unsynced) = (Some(Instant::now()), 0);
        self.connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
            .map_err(|error| RecordError::sqlite("sync", &self.path, error))
    }

    /// Closes the record as a single file. While a reader has it open, the WAL remains next to it.
    pub fn finish(mut self, ending: &str, unix_ms: u64) -> Result<(), RecordError> {
        self.transact("finish", |transaction| {
            let sql = "UPDATE record SET ended_unix_ms = ?, ending = ?";
            transaction.execute(sql, params![signed(unix_ms), ending]).map(drop)
        })?;
        let close = |connection: &Connection| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            connection.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))
        };
        match close(&self.connection)
            .map_err(|error| RecordError::sqlite("finish", &self.path, error))
        {
            // A reader has it open. The last reader that closes it merges the WAL.
            Ok(()) | Err(RecordError::Locked { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn transact<T>(
        &mut self,
        operation: &'static str,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, RecordError> {
        let attempt = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            let value = write(&transaction)?;
            transaction.commit()?;
            Ok(value)
        };
        attempt(&mut self.connection)
            .map_err(|error| RecordError::sqlite(operation, &self.path, error))
    }

    #[cfg(test)]
    pub(super) fn limit_pages(&self, pages: u32) {
        let sql = format!("PRAGMA max_page_count = {pages}");
        self.connection.query_row(&sql, [], |_| Ok(())).unwrap();
    }
}

/// Drops the histograms and seconds, which a running campaign does not need. They remain in the
/// file.
fn strip(slice: &mut Slice) {
    slice.response = Vec::new();
    slice.service = Vec::new();
    slice.seconds = Seconds::default();
}

/// Upgrades the tables of an older version.
fn upgrade(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version < VERSION_WITH_HOST {
        let column = "ALTER TABLE environments ADD COLUMN host TEXT NOT NULL DEFAULT 'as-is'";
        transaction.execute(column, [])?;
    }
    if version < VERSION_WITH_STACKS {
        transaction.execute_batch(stacks::TABLES)?;
    }
    if version < VERSION_WITH_STORAGE {
        for column in ["storage", "vm", "inject"] {
            transaction
                .execute(&format!("ALTER TABLE environments ADD COLUMN {column} TEXT"), [])?;
        }
    }
    if version < VERSION_WITH_TRACED {
        admit_phase(transaction, "'latency')", "'latency', 'traced')")?;
        if version >= VERSION_WITH_STACKS {
            let column = "ALTER TABLE stack_slices ADD COLUMN kind TEXT NOT NULL DEFAULT 'on-cpu'";
            transaction.execute(column, [])?;
        }
    }
    if version < VERSION_WITH_SANDBOX {
        transaction.execute("ALTER TABLE environments ADD COLUMN sandbox TEXT", [])?;
    }
    if version < VERSION_WITH_ROOTFS {
        transaction.execute("ALTER TABLE environments ADD COLUMN rootfs TEXT", [])?;
    }
    if version < VERSION_WITH_CPU_PLAN {
        transaction.execute("ALTER TABLE record ADD COLUMN cpu_plan TEXT", [])?;
    }
    if version < VERSION_WITH_STARTS {
        for column in ["start INTEGER NOT NULL DEFAULT 0", "account_ns INTEGER"] {
            transaction.execute(&format!("ALTER TABLE slices ADD COLUMN {column}"), [])?;
        }
    }
    if version < VERSION_WITH_SLO {
        admit_phase(transaction, "'traced')", "'traced', 'slo')")?;
    }
    // Added without a new version: a reader that does not know the table needs nothing of it.
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS server_histograms (\
         slice INTEGER PRIMARY KEY REFERENCES slices (id) ON DELETE CASCADE, data BLOB NOT NULL)",
    )?;
    transaction.execute_batch(loaders::TABLES)?;
    transaction.execute_batch(paths::TABLES)?;
    transaction.execute_batch(response_times::TABLES)?;
    transaction.execute_batch(seconds::TABLES)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)
}

/// Allows another phase in the table of slices: replaces the end of its list of phases. SQLite has
/// no statement that changes a CHECK. Its manual recommends this procedure (lang_altertable.html,
/// "Making other kinds of table schema changes").
fn admit_phase(transaction: &Transaction<'_>, end: &str, new: &str) -> rusqlite::Result<()> {
    transaction.pragma_update(None, "writable_schema", true)?;
    let sql = "UPDATE sqlite_schema SET sql = replace(sql, ?, ?) \
               WHERE type = 'table' AND name = 'slices'";
    transaction.execute(sql, [end, new])?;
    // A new schema version makes every connection reload the schema, including this one.
    let schema: i64 = transaction.pragma_query_value(None, "schema_version", |row| row.get(0))?;
    transaction.pragma_update(None, "schema_version", schema + 1)?;
    transaction.pragma_update(None, "writable_schema", false)
}
