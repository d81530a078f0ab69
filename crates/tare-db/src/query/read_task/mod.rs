//! A SELECT under way: an owned, resumable object that knows the statement, the rows that it has
//! found and its position. The first try and every later one call [`ReadTask::step`]; between two
//! of them a task may wait for blocks, yield to other work, or move to the shard that owns the next
//! rows.
//!
//! Rows come in order of the partitions and, within one, of the clustering key. With IN on the
//! partition key the partitions come in the order of its values, otherwise in that of their tokens:
//! a shard owns one range of tokens, so that a walk from shard to shard returns them in order. With
//! ORDER BY and IN together, the rows of all partitions are sorted when all of them have been read,
//! before LIMIT applies.

mod group;
mod project;
mod statics;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tare_cql::response::{EncodedColumns, Reply, RowsWriter};
use tare_cql::statement::function::CallContext;
use tare_store::read::{End, Next, PartitionRead, Position, ReadError, Row, Scan, Slice};
use tare_store::{Pins, RowRead, Store};

use crate::net::reactor::ConnId;
use crate::query::bind::{OwnedSlice, PartitionKey};
use crate::query::catalog::Table;
use crate::query::failure::Failure;
use crate::query::filter::BoundTest;
use crate::query::paging_state::PagingState;
use crate::query::plan::{Item, Items, Plan, Prepared, Select};
use crate::query::ring::owner;
use group::OpenGroup;
use project::has_value;
pub(crate) use project::{key_component, put_row};
use statics::StaticRow;

/// Rows and partitions that one step looks at, so that other clients are not held up for long.
const STEP_ROWS: u32 = 1024;
/// Bytes of cells after which a page ends although the client asked for more rows.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// Bytes of cells in an answer to a client that does not ask for pages.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Rows, and bytes of them, that a page of a filtering read looks at. It may then have fewer rows
/// than the client asked for, even none.
const FILTERED_ROWS_MAX: u64 = 1 << 16;
const FILTERED_BYTES_MAX: usize = 16 << 20;

/// The client that an answer goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) shard: usize,
    pub(crate) conn: ConnId,
    pub(crate) reply: Reply,
}

/// The limits of a read, and the time that it sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadOptions {
    /// Rows that this answer may have.
    pub(crate) page_rows: u64,
    /// Whether the client can ask for a next page. Without pages a result that does not fit is an
    /// error.
    pub(crate) is_paged: bool,
    /// Rows that LIMIT still allows, including this page.
    pub(crate) rows_left: u64,
    /// Rows that each partition may contribute.
    pub(crate) per_partition_rows: u64,
    pub(crate) now_s: u32,
    pub(crate) call_context: CallContext,
}

/// The rows that a task reads.
#[derive(Debug)]
pub(crate) enum ReadTarget {
    /// One row by its whole key.
    Row { key: PartitionKey, clustering: Vec<u8> },
    /// Slices of some partitions; `at` is the partition that is being read.
    Partitions { keys: Vec<PartitionKey>, at: usize, slices: Vec<OwnedSlice> },
    /// A part of the ring.
    Ring(Scan),
}

/// A SELECT under way.
#[derive(Debug)]
pub(crate) struct ReadTask {
    pub(crate) origin: Origin,
    /// When the request came, by the server's clock, in ns.
    pub(crate) begun_ns: u64,
    prepared: Arc<Prepared>,
    target: ReadTarget,
    /// The tests of the statement's filters, in their order.
    tests: Vec<BoundTest>,
    options: ReadOptions,
    page: ResultPage,
    /// The static columns of the partition that is being read, if the table has any.
    statics: Option<StaticRow>,
    /// The task's position when it last waited for blocks.
    waited_at: Option<(u64, Position)>,
    /// Whether it has waited for blocks from the disk.
    from_disk: bool,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The task is complete: [`ReadTask::answer`] writes its answer.
    Answer,
    /// The task can go on at any time.
    Yield,
    /// The task goes on at another shard.
    MoveTo(usize),
    /// The task goes on when the blocks that its pins wait for have come.
    Missing,
}

/// The rows that a task has found so far.
#[derive(Debug, Default)]
struct ResultPage {
    /// Encoded cells, each with its length.
    cells: Vec<u8>,
    /// The rows to sort: each with its clustering key and the position of its cells.
    merging: Vec<(Vec<u8>, Range<usize>)>,
    merging_bytes: usize,
    /// Number of rows that were found or counted.
    rows: u64,
    /// Number of rows that were looked at, and their bytes if the read filters.
    seen: u64,
    seen_bytes: usize,
    /// The last of them. Its `left` is that of the request until the answer is written.
    last: Option<PagingState>,
    /// The group whose rows are coming, if the read has groups.
    group: Option<OpenGroup>,
    /// Whether more rows follow.
    more: bool,
}

/// A target that scans a part of the ring.
pub(crate) fn ring(table: &Table, (first, last): (i64, i64), now_s: u32) -> ReadTarget {
    let position = Position::at_token(first);
    let (table, to_token) = (table.store, last);
    ReadTarget::Ring(Scan { table, position, to_token, now_s, steps: STEP_ROWS })
}

impl ReadTask {
    /// Notes that the task waits for blocks from the disk. Returns whether it does so for the first
    /// time.
    pub(crate) fn waits_for_disk(&mut self) -> bool {
        !std::mem::replace(&mut self.from_disk, true)
    }

    /// A task that begins, or goes on after the paging state of a client.
    pub(crate) fn new(
        origin: Origin,
        prepared: Arc<Prepared>,
        mut target: ReadTarget,
        options: ReadOptions,
        after: Option<PagingState>,
    ) -> Result<Self, Failure> {
        let foreign = || {
            Failure::Protocol(
                "Invalid value for the paging state: it is of another statement".into(),
            )
        };
        if let Some(state) = &after {
            match &mut target {
                // No page follows a single row.
                ReadTarget::Row { .. } => return Err(foreign()),
                ReadTarget::Partitions { keys, at, .. } => {
                    let found = keys.iter().position(|key| key.key == state.key);
                    *at = found.ok_or_else(foreign)?;
                }
                ReadTarget::Ring(scan) => {
                    if state.token < scan.position.token || state.token > scan.to_token {
                        return Err(foreign());
                    }
                    let PagingState { token, key, clustering, .. } = state.clone();
                    scan.position = Position { token, key, clustering: Some(clustering) };
                }
            }
        }
        let page = ResultPage { last: after, ..ResultPage::default() };
        Ok(Self {
            origin,
            begun_ns: 0,
            prepared,
            target,
            tests: Vec::new(),
            options,
            page,
            statics: None,
            waited_at: None,
            from_disk: false,
        })
    }

    /// The same task with the tests of the statement's filters.
    pub(crate) fn with_tests(self, tests: Vec<BoundTest>) -> Self {
        Self { tests, ..self }
    }

    /// Reads on at the shard `here`, as far as it can.
    pub(crate) fn step(
        &mut self,
        store: &mut Store,
        pins: &mut Pins,
        (here, shards): (usize, usize),
    ) -> Result<Step, ReadError> {
        let Plan::Select(select) = &self.prepared.plan else { return Ok(Step::Answer) };
        let Self { target, tests, options, page, statics, .. } = self;
        match target {
            ReadTarget::Row { key, clustering } => {
                let PartitionKey { token, key } = key;
                let owner = owner(*token, shards);
                if owner != here {
                    return Ok(Step::MoveTo(owner));
                }
                let read = RowRead {
                    table: select.table.store,
                    token: *token,
                    key,
                    clustering,
                    columns: select.cells.as_deref(),
                    now_s: options.now_s,
                };
                let end =
                    store.read_row(&read, pins, |row| page.take_one(select, options, &row))?;
                Ok(if end == End::Missing { Step::Missing } else { Step::Answer })
            }
            ReadTarget::Partitions { keys, at, slices } => {
                let slices: Vec<Slice<'_>> =
                    slices.iter().map(|(from, to)| Slice { from, to: to.as_deref() }).collect();
                let mut steps = STEP_ROWS;
                while let Some(key) = keys.get(*at) {
                    let owner = owner(key.token, shards);
                    if owner != here {
                        return Ok(Step::MoveTo(owner));
                    }
                    let after = page.after(key);
                    let PartitionKey { token, key } = key;
                    let partition = (select.table.store, *token, &key[..]);
                    if select.reads_statics()
                        && !statics::load(statics, store, pins, partition, options.now_s)?
                    {
                        return Ok(Step::Missing);
                    }
                    let read = PartitionRead {
                        table: select.table.store,
                        token: *token,
                        key,
                        slices: &slices,
                        reversed: select.reversed,
                        after: after.as_deref(),
                        now_s: options.now_s,
                    };
                    let mut walk = Next::Row;
                    let end = store.read(&read, pins, |row| {
                        walk = page.take_joined((select, tests), options, &row, statics.as_ref());
                        steps = steps.saturating_sub(1);
                        match walk {
                            Next::Row if steps > 0 => ControlFlow::Continue(()),
                            _ => ControlFlow::Break(()),
                        }
                    })?;
                    match (end, walk) {
                        (End::Missing, _) => return Ok(Step::Missing),
                        (End::Stopped, Next::Stop) => return Ok(Step::Answer),
                        (End::Stopped, Next::Row) | (End::Paused, _) => return Ok(Step::Yield),
                        (End::Done, _) | (End::Stopped, Next::Partition) => {}
                    }
                    if page.take_alone((select, tests), options, statics.as_ref()) == Next::Stop {
                        return Ok(Step::Answer);
                    }
                    *at += 1;
                    steps = steps.saturating_sub(1);
                    if steps == 0 && *at < keys.len() {
                        return Ok(Step::Yield);
                    }
                }
                Ok(Step::Answer)
            }
            ReadTarget::Ring(scan) if select.reads_statics() => {
                let shard = (here, shards);
                let read = (select, &tests[..], &*options);
                statics::scan((scan, statics), read, page, (store, pins), shard)
            }
            ReadTarget::Ring(scan) => {
                let end =
                    store.scan(scan, pins, |row| page.take((select, tests), options, &row))?;
                Ok(match end {
                    End::Missing => Step::Missing,
                    End::Paused => Step::Yield,
                    End::Done if here < owner(scan.to_token, shards) => Step::MoveTo(here + 1),
                    End::Done | End::Stopped => Step::Answer,
                })
            }
        }
    }

    /// Whether the task has read rows since the last call, so that earlier blocks are not needed.
    pub(crate) fn has_moved(&mut self) -> bool {
        let place = match &self.target {
            ReadTarget::Row { .. } => return false,
            ReadTarget::Partitions { at, .. } => {
                Position::at_token(i64::try_from(*at).unwrap_or(0))
            }
            ReadTarget::Ring(scan) => scan.position.clone(),
        };
        let place = Some((self.page.seen, place));
        let has_moved = self.waited_at != place;
        self.waited_at = place;
        has_moved
    }

    /// The shard where the task begins.
    pub(crate) fn first_shard(&self, shards: usize) -> usize {
        let token = match &self.target {
            ReadTarget::Row { key, .. } => Some(key.token),
            ReadTarget::Partitions { keys, at, .. } => keys.get(*at).map(|key| key.token),
            ReadTarget::Ring(scan) => Some(scan.position.token),
        };
        owner(token.unwrap_or(0), shards)
    }

    /// Writes the answer, with a paging state if more rows follow and the client uses pages.
    pub(crate) fn answer(&mut self, out: &mut Vec<u8>) {
        let Plan::Select(select) = &self.prepared.plan else { return };
        let (reply, options) = (self.origin.reply, self.options);
        self.page.merge(select, options.rows_left);
        self.page.finish_groups(select);
        let ResultPage { cells, rows, last, more, .. } = &mut self.page;
        let state = match last.as_mut().filter(|_| *more) {
            Some(_) if !options.is_paged => {
                let message = "the result is too long for one answer; ask for pages or use LIMIT";
                return Failure::invalid(message).encode(out, reply);
            }
            Some(last) => {
                last.left = options.rows_left.saturating_sub(*rows);
                Some(last.encode())
            }
            None => None,
        };
        match select.items {
            Items::Count | Items::CountOf(_) => write_count(out, reply, &select.columns, *rows),
            Items::Columns(_) | Items::Groups(_) => {
                let columns = &select.columns;
                let mut writer = RowsWriter::begin(out, reply, columns, state.as_deref());
                writer.cells_encoded(cells);
                (0..*rows).for_each(|_| writer.end_row());
                writer.finish();
            }
        }
    }
}

/// Writes an answer of one row that has one number.
pub(crate) fn write_count(out: &mut Vec<u8>, reply: Reply, columns: &EncodedColumns, count: u64) {
    let mut writer = RowsWriter::begin(out, reply, columns, None);
    writer.cell(Some(&count.to_be_bytes()));
    writer.end_row();
    writer.finish();
}

/// Whether a row exists and satisfies the filters.
fn accepts(select: &Select, tests: &[BoundTest], options: &ReadOptions, row: &Row<'_>) -> bool {
    let now = (options.now_s, &options.call_context);
    let value = |item: &Item| project::value(item, &select.table, row, now);
    let mut filters = select.filters.iter().zip(tests);
    select.table.has_row(row.cells) && filters.all(|(filter, test)| filter.accepts(test, value))
}

impl ResultPage {
    /// The clustering key in a partition after which the read goes on.
    fn after(&self, key: &PartitionKey) -> Option<Vec<u8>> {
        let last = self.last.as_ref()?;
        (last.key == key.key).then(|| last.clustering.clone())
    }

    /// Sorts the rows of several partitions and keeps the first `rows_max`. Rows with equal
    /// clustering keys stay in the order of their partitions.
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

    /// Takes the only row of a target that is one row.
    fn take_one(&mut self, select: &Select, options: &ReadOptions, row: &Row<'_>) {
        if !select.table.has_row(row.cells) {
            return;
        }
        match &select.items {
            Items::Count => self.rows = 1,
            Items::CountOf(number) => self.rows = u64::from(has_value(*number, row)),
            Items::Groups(_) => unreachable!("groups are read as slices"),
            // LIMIT and pages allow at least one row.
            Items::Columns(items) => {
                self.rows = 1;
                self.cells.reserve(row.key.len() + row.clustering.len() + row.cells.len());
                put_row(
                    &mut self.cells,
                    items,
                    &select.table,
                    row,
                    (options.now_s, &options.call_context),
                );
            }
        }
    }

    /// Whether a page of a filtering read has looked at as much as it may.
    fn has_filtered_enough(&self) -> bool {
        self.seen_bytes > 0
            && (self.seen >= FILTERED_ROWS_MAX || self.seen_bytes >= FILTERED_BYTES_MAX)
    }

    /// Takes a row unless a limit or a filter excludes it. Returns where the walk goes next.
    fn take(
        &mut self,
        (select, tests): (&Select, &[BoundTest]),
        options: &ReadOptions,
        row: &Row<'_>,
    ) -> Next {
        if let Items::Groups(groups) = &select.items {
            return self.take_grouped((select, tests), groups, options, row);
        }
        let enough = options.is_paged && self.has_filtered_enough();
        let last = self.last.get_or_insert_default();
        // A key is never empty, as that of no row yet is.
        let is_same = last.token == row.token && last.key == row.key;
        if is_same && last.in_partition >= options.per_partition_rows {
            return Next::Partition;
        }
        let bytes_max = if options.is_paged { PAGE_BYTES_MAX } else { ANSWER_BYTES_MAX };
        let full = self.rows >= options.page_rows
            || self.cells.len() + self.merging_bytes >= bytes_max
            || enough;
        if full {
            self.more = true;
            return Next::Stop;
        }
        self.seen += 1;
        last.move_to(row, is_same);
        if !tests.is_empty() {
            self.seen_bytes += row.key.len() + row.clustering.len() + row.cells.len();
        }
        if !accepts(select, tests, options, row) {
            return Next::Row;
        }
        last.in_partition += 1;
        match &select.items {
            Items::Count => self.rows += 1,
            Items::CountOf(number) => self.rows += u64::from(has_value(*number, row)),
            Items::Columns(items) => {
                self.rows += 1;
                let begin = self.cells.len();
                put_row(
                    &mut self.cells,
                    items,
                    &select.table,
                    row,
                    (options.now_s, &options.call_context),
                );
                if select.merged {
                    self.merging.push((row.clustering.to_vec(), begin..self.cells.len()));
                    self.merging_bytes += size_of_val(&self.merging[0]) + row.clustering.len();
                }
            }
            Items::Groups(_) => unreachable!("handled above"),
        }
        if self.rows >= options.rows_left && !select.merged {
            Next::Stop
        } else if last.in_partition >= options.per_partition_rows {
            Next::Partition
        } else {
            Next::Row
        }
    }
}
