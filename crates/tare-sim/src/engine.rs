//! The adapter between the simulator and the store. No other file uses the store's interface.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tare_store::cells;
use tare_store::table::TableError;
use tare_store::{
    Change as StoreChange, Durability, End, Limits, LogError, Mutation as StoreMutation, Next, Now,
    PartitionRead, Pins, Position, RangeTombstone, ReadError, Row as StoreRow, RowRead, Scan,
    Slice, Store, TableOptions, Urgency, WriteError,
};

use crate::device::Device;
use crate::files::DeviceFiles;
use crate::model::{Cell, Change, Content, Mutation, PartitionId, Row};
use crate::violation::Violation;
use crate::workload::TABLES;
use tare_store::Completion;

/// A store.
#[derive(Debug)]
pub(crate) struct Engine {
    store: Store,
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too much data waits for the disk, or memory is full.
    Overloaded,
    DiskFull,
    Poisoned,
}

/// The state of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// The read waits for the device.
    Missing,
    /// The read can go on at once.
    Paused,
    /// The read fails because data is damaged.
    Damaged(String),
    /// The read fails because a file could not be read.
    Io(String),
}

/// A read of one partition, and the rows that it has returned.
#[derive(Debug, Default)]
pub(crate) struct PartialRead {
    pub(crate) rows: Vec<Row>,
    pins: Pins,
}

/// A read of a whole table, and the rows that it has returned.
#[derive(Debug)]
pub(crate) struct PartialScan {
    pub(crate) partitions: BTreeMap<PartitionId, Vec<Row>>,
    scan: Scan,
    pins: Pins,
}

/// The options of all tables, with a short grace period, so that tombstones are dropped in a
/// simulation.
fn options() -> BTreeMap<u32, TableOptions> {
    let options = |table: u32| TableOptions {
        gc_grace_s: GC_GRACE_S,
        compression: table.is_multiple_of(2),
        ..TableOptions::default()
    };
    TABLES.into_iter().map(|table| (table, options(table))).collect()
}

/// How long a tombstone is kept, in seconds; late writes come earlier than that.
pub(crate) const GC_GRACE_S: u32 = 20;

/// The limits of simulated stores, which are small, so that everything happens often.
pub(crate) fn limits(durability: Durability, memtable_bytes: usize) -> Limits {
    Limits {
        memtable_bytes,
        cache_bytes: 256 << 10,
        background_bytes: 2 << 20,
        pending_bytes: 1 << 20,
        segment_bytes: 512 << 10,
        durability,
    }
}

impl Engine {
    /// Opens the store on the disk. The error is a description for people.
    pub(crate) fn open(
        files: &mut DeviceFiles<'_>,
        limits: Limits,
        now: Now,
    ) -> Result<Self, String> {
        let opened = Store::open(files, limits, options(), now);
        opened.map(|(store, _)| Self { store }).map_err(|error| tare_std::error_line(&error))
    }

    /// Writes mutations as one entry and returns its ticket.
    pub(crate) fn write(&mut self, mutations: &[Mutation]) -> Result<u64, Refusal> {
        let encoded: Vec<Vec<u8>> = mutations.iter().map(encoded_cells).collect();
        let borrowed: Vec<StoreMutation<'_>> = mutations
            .iter()
            .zip(&encoded)
            .map(|(mutation, cells)| borrow(mutation, cells))
            .collect();
        match self.store.write(&borrowed) {
            Ok(ticket) => Ok(ticket.0),
            Err(WriteError::Log(LogError::Poisoned { .. })) => Err(Refusal::Poisoned),
            Err(WriteError::Log(LogError::NoSegment { .. })) => Err(Refusal::DiskFull),
            Err(_) => Err(Refusal::Overloaded),
        }
    }

    /// Submits the store's next operation to the device, if it has one.
    pub(crate) fn pump(&mut self, device: &mut Device, now: Now) -> Result<bool, Violation> {
        let Some(op) = self.store.next_op(now) else { return Ok(false) };
        device.submit(op, now.monotonic_ns)?;
        Ok(true)
    }

    /// Returns the completion of an operation to the store.
    pub(crate) fn complete(&mut self, completion: Completion, now: Now) -> Result<(), String> {
        self.store.complete(completion, now).map_err(|error| tare_std::error_line(&error))
    }

    /// The time at which the store has to be called again even if nothing else happens.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.store.next_due_ns()
    }

    /// Tickets below this may be acknowledged.
    pub(crate) fn durable(&self) -> u64 {
        self.store.durable()
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.store.is_poisoned()
    }

    /// Starts a clean stop. The rows in memory are written to tables, or left to the log.
    pub(crate) fn close(&mut self, flush: bool) {
        self.store.close(flush);
    }

    /// Does a slice of flushing and compacting. Returns whether there was anything to do.
    pub(crate) fn work(&mut self, now: Now) -> bool {
        self.store.urgency() != Urgency::None && self.store.work(now)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.store.is_closed()
    }

    /// Continues a read.
    pub(crate) fn read(
        &mut self,
        read: &crate::workload::Read,
        reading: &mut PartialRead,
        now_s: u32,
    ) -> Progress {
        if let (Some(columns), [(clustering, _)]) = (&read.row, &read.slices[..]) {
            return self.read_row(
                &read.partition_id,
                clustering,
                columns.as_deref(),
                reading,
                now_s,
            );
        }
        let slices: Vec<Slice<'_>> =
            read.slices.iter().map(|(from, to)| Slice { from, to: to.as_deref() }).collect();
        let after = reading.rows.last().map(|(clustering, _)| clustering.clone());
        let PartitionId { table, token, key } = &read.partition_id;
        let partition = PartitionRead {
            table: *table,
            token: *token,
            key,
            slices: &slices,
            reversed: read.reversed,
            after: after.as_deref(),
            now_s,
        };
        let PartialRead { rows, pins } = reading;
        let mut left = read.page.unwrap_or(usize::MAX);
        let end = self.store.read(&partition, pins, |row| {
            rows.push(owned(&row));
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        progress(end)
    }

    fn read_row(
        &mut self,
        PartitionId { table, token, key }: &PartitionId,
        clustering: &[u8],
        columns: Option<&[u16]>,
        PartialRead { rows, pins }: &mut PartialRead,
        now_s: u32,
    ) -> Progress {
        let (table, token) = (*table, *token);
        let read = RowRead { table, token, key, clustering, columns, now_s };
        progress(self.store.read_row(&read, pins, |row| rows.push(owned(&row))))
    }

    /// Continues a scan.
    pub(crate) fn scan(&mut self, scanning: &mut PartialScan) -> Progress {
        let PartialScan { partitions, scan, pins } = scanning;
        let table = scan.table;
        let end = self.store.scan(scan, pins, |row| {
            let partition_id = PartitionId { table, token: row.token, key: row.key.to_vec() };
            partitions.entry(partition_id).or_default().push(owned(&row));
            Next::Row
        });
        progress(end)
    }
}

impl PartialScan {
    /// A scan of a whole table.
    pub(crate) fn new(table: u32, now_s: u32, steps: u32) -> Self {
        let position = Position::at_token(i64::MIN);
        let scan = Scan { table, position, to_token: i64::MAX, now_s, steps };
        Self { partitions: BTreeMap::new(), scan, pins: Pins::default() }
    }

    /// Goes on after a block could not be read. From the start, a long scan would not end on a disk
    /// that fails some reads.
    pub(crate) fn try_again(&mut self) {
        self.pins.clear();
    }
}

fn progress(end: Result<End, ReadError>) -> Progress {
    match end {
        Ok(End::Done) => Progress::Done,
        Ok(End::Stopped | End::Paused) => Progress::Paused,
        Ok(End::Missing) => Progress::Missing,
        Err(error @ ReadError::Table(TableError::Damaged { .. })) => {
            Progress::Damaged(tare_std::error_line(&error))
        }
        Err(error) => Progress::Io(tare_std::error_line(&error)),
    }
}

fn owned(row: &StoreRow<'_>) -> Row {
    let cell = |cell: cells::Cell<'_>| {
        let content = match cell.content {
            cells::Content::Live(value) => Content::Live(value.to_vec()),
            cells::Content::Expiring { value, ttl_s, expires_s } => {
                Content::Expiring { value: value.to_vec(), ttl_s, expires_s }
            }
            cells::Content::Dead { since_s } => Content::Dead { since_s },
        };
        let place = (cell.column, cell.path.map(<[u8]>::to_vec));
        (place, Cell { timestamp: cell.timestamp, content })
    };
    (row.clustering.to_vec(), cells::iter(row.cells).map(cell).collect())
}

fn encoded_cells(mutation: &Mutation) -> Vec<u8> {
    let mut out = Vec::new();
    if let Change::Row { cells: row, .. } = &mutation.change {
        for ((column, path), cell) in row {
            let content = match &cell.content {
                Content::Live(value) => cells::Content::Live(value),
                Content::Expiring { value, ttl_s, expires_s } => {
                    cells::Content::Expiring { value, ttl_s: *ttl_s, expires_s: *expires_s }
                }
                Content::Dead { since_s } => cells::Content::Dead { since_s: *since_s },
            };
            let (column, path, timestamp) = (*column, path.as_deref(), cell.timestamp);
            cells::push(&mut out, cells::Cell { column, path, timestamp, content });
        }
    }
    out
}

fn borrow<'a>(mutation: &'a Mutation, cells: &'a [u8]) -> StoreMutation<'a> {
    let change = match &mutation.change {
        Change::Row { clustering, .. } => StoreChange::Row { clustering, cells },
        Change::Range(range) => StoreChange::Range(RangeTombstone {
            from: &range.from,
            to: range.to.as_deref(),
            timestamp: range.timestamp,
            deleted_s: range.deleted_s,
        }),
    };
    let PartitionId { table, token, key } = &mutation.partition_id;
    StoreMutation { table: *table, token: *token, key, change }
}
