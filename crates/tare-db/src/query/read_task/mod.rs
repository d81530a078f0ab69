//! A SELECT on its way: an owned, resumable object that knows what is asked, what it has found and
//! how far it has come. The first try and every later one call [`ReadTask::step`]; between two of
//! them it may wait for blocks, give way to others, or travel to the shard that goes on.
//!
//! Rows come in order of the partitions and, within one, of the clustering key. With IN on the
//! partition key the partitions come in the order of its values, else in that of their tokens: a
//! shard owns one range of them, so that a walk from shard to shard meets them in order. With ORDER BY
//! and IN together the rows of all partitions are sorted once they are there, before LIMIT.

mod project;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tare_cql::response::{EncodedColumns, Reply, RowsWriter};
use tare_cql::statement::function::Moment;
use tare_store::read::{End, Next, PartitionRead, Position, ReadError, Row, Scan, Slice};
use tare_store::{Pins, RowRead, Store};

use crate::query::bind::{OwnedSlice, PartitionKey};
use crate::query::catalog::Table;
use crate::query::cursor::Cursor;
use crate::query::failure::Failure;
use crate::query::plan::{Items, Plan, Prepared, Select};
use crate::shard::message::Origin;
use crate::shard::ring::owner;
use project::has_value;
pub(crate) use project::{key_component, put_row};

/// Rows and partitions that one step looks at, so that other clients are not held up for long.
const STEP_ROWS: u32 = 1024;
/// Bytes of cells after which a page ends although the client asked for more rows.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// Bytes of cells in an answer to a client that does not ask for pages.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// What a statement asks for beside its rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Rows in this answer at most.
    pub(crate) page: u64,
    /// Whether the client can ask for more; else what does not fit is an error.
    pub(crate) pages: bool,
    /// Rows that LIMIT still allows, this page included.
    pub(crate) left: u64,
    pub(crate) per_partition: u64,
    pub(crate) now_s: u32,
    pub(crate) moment: Moment,
}

/// Where the rows are.
#[derive(Debug)]
pub(crate) enum Area {
    /// One row by its whole key.
    Row { key: PartitionKey, clustering: Vec<u8> },
    /// Slices of some partitions; `at` is the one that is being read.
    Partitions { keys: Vec<PartitionKey>, at: usize, slices: Vec<OwnedSlice> },
    /// A part of the ring.
    Ring(Scan),
}

/// A SELECT on its way.
#[derive(Debug)]
pub(crate) struct ReadTask {
    pub(crate) origin: Origin,
    /// When it was asked for, by the server's clock, in ns.
    pub(crate) begun_ns: u64,
    prepared: Arc<Prepared>,
    area: Area,
    asked: Asked,
    taken: Taken,
    /// Where it stood when it last waited for blocks.
    waited_at: Option<(u64, Position)>,
}

/// What a step of a reading has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is complete: see [`ReadTask::answer`].
    Answer,
    /// It goes on whenever it suits.
    Yield,
    /// It goes on at another shard.
    Elsewhere(usize),
    /// It goes on when the blocks that its pins wait for are there.
    Missing,
}

/// What a reading has found.
#[derive(Debug, Default)]
struct Taken {
    /// Encoded cells, each with its length.
    cells: Vec<u8>,
    /// Of rows that are to be merged: the clustering key, and where the cells are.
    merging: Vec<(Vec<u8>, Range<usize>)>,
    merging_bytes: usize,
    /// Rows that were found, or counted.
    rows: u64,
    /// Rows that were looked at.
    seen: u64,
    /// The last of them; `left` is that of the request until the answer is written.
    last: Option<Cursor>,
    /// There are more rows than were taken.
    more: bool,
}

/// What becomes of the walk after a row was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    Row,
    /// The rest of this partition is not wanted.
    Partition,
    /// Nothing more is wanted.
    Enough,
}

/// The scan of a part of the ring.
pub(crate) fn ring(table: &Table, (first, last): (i64, i64), now_s: u32) -> Area {
    let position = Position::at_token(first);
    let (table, to_token) = (table.store, last);
    Area::Ring(Scan { table, position, to_token, now_s, steps: STEP_ROWS })
}

impl ReadTask {
    /// A reading that begins, or goes on after the row that a client has sent back.
    pub(crate) fn new(
        origin: Origin,
        prepared: Arc<Prepared>,
        mut area: Area,
        asked: Asked,
        after: Option<Cursor>,
    ) -> Result<Self, Failure> {
        let foreign = || {
            Failure::Protocol(
                "Invalid value for the paging state: it is of another statement".into(),
            )
        };
        if let Some(cursor) = &after {
            match &mut area {
                // It is the only one.
                Area::Row { .. } => return Err(foreign()),
                Area::Partitions { keys, at, .. } => {
                    let found = keys.iter().position(|key| key.key == cursor.key);
                    *at = found.ok_or_else(foreign)?;
                }
                Area::Ring(scan) => {
                    if cursor.token < scan.position.token || cursor.token > scan.to_token {
                        return Err(foreign());
                    }
                    let Cursor { token, key, clustering, .. } = cursor.clone();
                    scan.position = Position { token, key, clustering: Some(clustering) };
                }
            }
        }
        let taken = Taken { last: after, ..Taken::default() };
        Ok(Self { origin, begun_ns: 0, prepared, area, asked, taken, waited_at: None })
    }

    /// Goes on at the shard `here`.
    pub(crate) fn step(
        &mut self,
        store: &mut Store,
        pins: &mut Pins,
        (here, shards): (usize, usize),
    ) -> Result<Step, ReadError> {
        let Plan::Select(select) = &self.prepared.plan else { return Ok(Step::Answer) };
        let Self { area, asked, taken, .. } = self;
        match area {
            Area::Row { key, clustering } => {
                let PartitionKey { token, key } = key;
                let owner = owner(*token, shards);
                if owner != here {
                    return Ok(Step::Elsewhere(owner));
                }
                let read = RowRead {
                    table: select.table.store,
                    token: *token,
                    key,
                    clustering,
                    columns: select.cells.as_deref(),
                    now_s: asked.now_s,
                };
                let end = store.read_row(&read, pins, |row| taken.take_one(select, asked, &row))?;
                Ok(if end == End::Missing { Step::Missing } else { Step::Answer })
            }
            Area::Partitions { keys, at, slices } => {
                let slices: Vec<Slice<'_>> =
                    slices.iter().map(|(from, to)| Slice { from, to: to.as_deref() }).collect();
                let mut steps = STEP_ROWS;
                while let Some(key) = keys.get(*at) {
                    let owner = owner(key.token, shards);
                    if owner != here {
                        return Ok(Step::Elsewhere(owner));
                    }
                    let after = taken.after(key);
                    let PartitionKey { token, key } = key;
                    let read = PartitionRead {
                        table: select.table.store,
                        token: *token,
                        key,
                        slices: &slices,
                        reversed: select.reversed,
                        after: after.as_deref(),
                        now_s: asked.now_s,
                    };
                    let mut walk = Walk::Row;
                    let end = store.read(&read, pins, |row| {
                        walk = taken.take(select, asked, &row);
                        steps = steps.saturating_sub(1);
                        match walk {
                            Walk::Row if steps > 0 => ControlFlow::Continue(()),
                            _ => ControlFlow::Break(()),
                        }
                    })?;
                    match (end, walk) {
                        (End::Missing, _) => return Ok(Step::Missing),
                        (End::Stopped, Walk::Enough) => return Ok(Step::Answer),
                        (End::Stopped, Walk::Row) | (End::Paused, _) => return Ok(Step::Yield),
                        (End::Done, _) | (End::Stopped, Walk::Partition) => *at += 1,
                    }
                    steps = steps.saturating_sub(1);
                    if steps == 0 && *at < keys.len() {
                        return Ok(Step::Yield);
                    }
                }
                Ok(Step::Answer)
            }
            Area::Ring(scan) => {
                let end = store.scan(scan, pins, |row| match taken.take(select, asked, &row) {
                    Walk::Row => Next::Row,
                    Walk::Partition => Next::Partition,
                    Walk::Enough => Next::Stop,
                })?;
                Ok(match end {
                    End::Missing => Step::Missing,
                    End::Paused => Step::Yield,
                    End::Done if here < owner(scan.to_token, shards) => Step::Elsewhere(here + 1),
                    End::Done | End::Stopped => Step::Answer,
                })
            }
        }
    }

    /// Whether it has come further since it was last asked: what it held before is not needed.
    pub(crate) fn has_moved(&mut self) -> bool {
        let place = match &self.area {
            Area::Row { .. } => return false,
            Area::Partitions { at, .. } => Position::at_token(i64::try_from(*at).unwrap_or(0)),
            Area::Ring(scan) => scan.position.clone(),
        };
        let place = Some((self.taken.seen, place));
        let has_moved = self.waited_at != place;
        self.waited_at = place;
        has_moved
    }

    /// The shard where it begins.
    pub(crate) fn first_shard(&self, shards: usize) -> usize {
        let token = match &self.area {
            Area::Row { key, .. } => Some(key.token),
            Area::Partitions { keys, at, .. } => keys.get(*at).map(|key| key.token),
            Area::Ring(scan) => Some(scan.position.token),
        };
        owner(token.unwrap_or(0), shards)
    }

    /// Writes the answer, with a paging state if there is more and the client may have it.
    pub(crate) fn answer(&mut self, out: &mut Vec<u8>) {
        let Plan::Select(select) = &self.prepared.plan else { return };
        let (reply, asked) = (self.origin.reply, self.asked);
        self.taken.merge(select, asked.left);
        let Taken { cells, rows, last, more, .. } = &mut self.taken;
        let state = match last.as_mut().filter(|_| *more) {
            Some(_) if !asked.pages => {
                let message = "the result is too long for one answer; ask for pages or use LIMIT";
                return Failure::invalid(message).encode(out, reply);
            }
            Some(last) => {
                last.left = asked.left.saturating_sub(*rows);
                Some(last.encode())
            }
            None => None,
        };
        match select.items {
            Items::Count | Items::CountOf(_) => write_count(out, reply, &select.columns, *rows),
            Items::Columns(_) => {
                let columns = &select.columns;
                let mut writer = RowsWriter::begin(out, reply, columns, state.as_deref());
                writer.cells_encoded(cells);
                (0..*rows).for_each(|_| writer.end_row());
                writer.finish();
            }
        }
    }
}

/// Answers with a number alone.
pub(crate) fn write_count(out: &mut Vec<u8>, reply: Reply, columns: &EncodedColumns, count: u64) {
    let mut writer = RowsWriter::begin(out, reply, columns, None);
    writer.cell(Some(&count.to_be_bytes()));
    writer.end_row();
    writer.finish();
}

impl Taken {
    /// The row of a partition after which to go on.
    fn after(&self, key: &PartitionKey) -> Option<Vec<u8>> {
        let last = self.last.as_ref()?;
        (last.key == key.key && last.in_partition > 0).then(|| last.clustering.clone())
    }

    /// Brings the rows of several partitions into one order, and leaves `rows_max` of them. Rows with
    /// equal clustering keys stay in the order of their partitions.
    fn merge(&mut self, select: &Select, rows_max: u64) {
        if !select.merged {
            return;
        }
        let mut rows = std::mem::take(&mut self.merging);
        match select.reversed {
            false => rows.sort_by(|(a, _), (b, _)| a.cmp(b)),
            true => rows.sort_by(|(a, _), (b, _)| b.cmp(a)),
        }
        rows.truncate(usize::try_from(rows_max).unwrap_or(usize::MAX));
        let mut cells = Vec::with_capacity(self.cells.len());
        rows.iter().for_each(|(_, at)| cells.extend_from_slice(&self.cells[at.clone()]));
        (self.cells, self.rows) = (cells, rows.len() as u64);
    }

    /// Takes the only row that there can be.
    fn take_one(&mut self, select: &Select, asked: &Asked, row: &Row<'_>) {
        match &select.items {
            Items::Count => self.rows = 1,
            Items::CountOf(number) => self.rows = u64::from(has_value(*number, row)),
            // LIMIT and pages are of one row at least.
            Items::Columns(items) => {
                self.rows = 1;
                self.cells.reserve(row.key.len() + row.clustering.len() + row.cells.len());
                put_row(&mut self.cells, items, &select.table, row, (asked.now_s, &asked.moment));
            }
        }
    }

    /// Looks at a row, and takes it if it is wanted.
    fn take(&mut self, select: &Select, asked: &Asked, row: &Row<'_>) -> Walk {
        self.seen += 1;
        let last = self.last.get_or_insert_default();
        let is_same = last.in_partition > 0 && last.token == row.token && last.key == row.key;
        if is_same && last.in_partition >= asked.per_partition {
            return Walk::Partition;
        }
        let bytes_max = if asked.pages { PAGE_BYTES_MAX } else { ANSWER_BYTES_MAX };
        if self.rows >= asked.page || self.cells.len() + self.merging_bytes >= bytes_max {
            self.more = true;
            return Walk::Enough;
        }
        if !is_same {
            last.token = row.token;
            last.key.clear();
            last.key.extend_from_slice(row.key);
            last.in_partition = 0;
        }
        last.in_partition += 1;
        last.clustering.clear();
        last.clustering.extend_from_slice(row.clustering);
        match &select.items {
            Items::Count => self.rows += 1,
            Items::CountOf(number) => self.rows += u64::from(has_value(*number, row)),
            Items::Columns(items) => {
                self.rows += 1;
                let begin = self.cells.len();
                put_row(&mut self.cells, items, &select.table, row, (asked.now_s, &asked.moment));
                if select.merged {
                    self.merging.push((row.clustering.to_vec(), begin..self.cells.len()));
                    self.merging_bytes += size_of_val(&self.merging[0]) + row.clustering.len();
                }
            }
        }
        if self.rows >= asked.left && !select.merged {
            Walk::Enough
        } else if last.in_partition >= asked.per_partition {
            Walk::Partition
        } else {
            Walk::Row
        }
    }
}
