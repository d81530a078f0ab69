//! A write of which some cells depend on what its rows have (`query::row_operation`), without
//! conditions: the part of it that one shard carries out.
//!
//! The shard reads the rows and writes all of its part in one call, as one entry of its log. If a
//! block is not in memory, nothing is written, and the whole part is tried again when the block has
//! come.
//!
//! Counters get the timestamp of the shard, which is later than everything that is stored for their
//! rows: an increment is never hidden by an older value or deletion.

use std::sync::Arc;

use tare_store::{End, Pins, ReadError, RowRead, Store};

use crate::query::bind::PartitionKey;
use crate::query::catalog::Table;
use crate::query::failure::Failure;
use crate::query::payload::append;
use crate::query::read_task::Origin;
use crate::query::row_change::RowChange;
use crate::query::row_operation;

/// Rows of one shard that a write may read: the blocks of all of them are in memory at once.
const READ_ROWS_MAX: usize = 256;

/// The changes of one shard that wait for what is stored.
#[derive(Debug, Default)]
pub(crate) struct LateChanges {
    changes: Vec<LateChange>,
}

#[derive(Debug)]
struct LateChange {
    table: Arc<Table>,
    key: PartitionKey,
    change: RowChange,
}

/// A write that waits for its turn at its shard.
#[derive(Debug)]
pub(crate) struct ReadWrite {
    pub(crate) origin: Origin,
    /// When the request came, by the server's clock, in ns.
    pub(crate) begun_ns: u64,
    /// The time of the request in seconds since the Unix epoch.
    pub(crate) now_s: u32,
    /// Mutations that need nothing, as the payload of a log entry.
    pub(crate) payload: Vec<u8>,
    pub(crate) changes: LateChanges,
}

/// What a try has found.
#[derive(Debug)]
pub(crate) struct RowsFound {
    /// The latest timestamp that is stored for the rows.
    pub(crate) latest: i64,
    /// The visible cells of each row.
    rows: Vec<Vec<u8>>,
}

impl LateChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Adds a change. Returns the bytes that it adds.
    pub(crate) fn add(
        &mut self,
        table: &Arc<Table>,
        key: &PartitionKey,
        change: RowChange,
    ) -> Result<usize, Failure> {
        let bytes = key.key.len() + change.bytes();
        let Some(change) = self.combine(table, key, change) else { return Ok(bytes) };
        if self.changes.len() == READ_ROWS_MAX {
            return Err(Failure::Invalid(format!(
                "writes that change more than {READ_ROWS_MAX} counters, or elements of lists, of \
                 one shard are not supported"
            )));
        }
        self.changes.push(LateChange { table: Arc::clone(table), key: key.clone(), change });
        Ok(bytes)
    }

    /// Adds increments of counters to those of the same row. Returns what is no such change.
    fn combine(
        &mut self,
        table: &Arc<Table>,
        key: &PartitionKey,
        change: RowChange,
    ) -> Option<RowChange> {
        let RowChange::Row { clustering, cells, operations, time } = change else {
            return Some(change);
        };
        let is_same = |known: &&mut LateChange| match &known.change {
            RowChange::Row { clustering: of, .. } => {
                known.table.store == table.store && known.key == *key && *of == clustering
            }
            RowChange::Range { .. } => false,
        };
        if table.has_counters()
            && cells.is_empty()
            && let Some(known) = self.changes.iter_mut().find(is_same)
            && let RowChange::Row { operations: all, cells, .. } = &mut known.change
            && cells.is_empty()
        {
            operations.into_iter().for_each(|one| row_operation::add(all, one));
            return None;
        }
        Some(RowChange::Row { clustering, cells, operations, time })
    }
}

/// The columns that a change needs, ascending; `None` needs all of them.
fn columns_of(change: &RowChange) -> Option<Vec<u16>> {
    match change {
        RowChange::Row { cells, operations, .. } if cells.is_empty() => {
            let mut columns: Vec<u16> = operations.iter().map(|one| one.column).collect();
            columns.sort_unstable();
            columns.dedup();
            Some(columns)
        }
        _ => None,
    }
}

impl ReadWrite {
    /// Whether the changes are of counters; then all of them are.
    pub(crate) fn is_counter(&self) -> bool {
        self.changes.changes.first().is_some_and(|change| change.table.has_counters())
    }

    /// Reads the rows of all changes; `None` if a block is missing. `pins` are those of earlier
    /// tries.
    pub(crate) fn read(
        &self,
        store: &mut Store,
        pins: &mut Vec<Pins>,
    ) -> Result<Option<RowsFound>, ReadError> {
        let changes = &self.changes.changes;
        pins.resize_with(changes.len(), Pins::default);
        let mut found = RowsFound { latest: i64::MIN, rows: Vec::with_capacity(changes.len()) };
        let mut is_missing = false;
        for (LateChange { table, key, change }, pins) in changes.iter().zip(pins) {
            let mut cells = Vec::new();
            if let RowChange::Row { clustering, .. } = change {
                let columns = columns_of(change);
                let read = RowRead {
                    table: table.store,
                    token: key.token,
                    key: &key.key,
                    clustering,
                    columns: columns.as_deref(),
                    now_s: self.now_s,
                };
                let end = store.read_row_with_latest(&read, pins, |row, latest| {
                    found.latest = found.latest.max(latest.unwrap_or(i64::MIN));
                    cells.extend_from_slice(row.map_or(&[][..], |row| row.cells));
                })?;
                // The next rows note their missing blocks too.
                is_missing |= end == End::Missing;
            }
            found.rows.push(cells);
        }
        Ok((!is_missing).then_some(found))
    }

    /// The payload of the log entry with all mutations. Those of counters get the timestamp.
    pub(crate) fn payload(&self, found: &RowsFound, timestamp: i64) -> Result<Vec<u8>, Failure> {
        let is_counter = self.is_counter();
        let mut payload = self.payload.clone();
        for (late, before) in self.changes.changes.iter().zip(&found.rows) {
            let LateChange { table, key, change } = late;
            let timestamp = match change {
                RowChange::Row { time, .. } if !is_counter => time.timestamp,
                _ => timestamp,
            };
            let cells = change.cells(before, timestamp)?;
            if let Some(mutation) = change.mutation(table, key, &cells, timestamp) {
                append(&mut payload, &mutation)?;
            }
        }
        Ok(payload)
    }
}
