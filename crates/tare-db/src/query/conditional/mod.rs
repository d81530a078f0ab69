//! A lightweight transaction: writes to one partition that are applied if conditions on its rows
//! hold.
//!
//! The thread of the shard that owns the partition reads the rows, decides and writes in one call,
//! without anything between. If a block that it needs is not in memory, nothing is decided: the
//! whole transaction is tried again when the block has come, from the rows as they are then. So
//! transactions of a partition take effect one after the other, and other writes before or after
//! them.
//!
//! The writes get one timestamp that is later than everything stored for the rows that the
//! conditions read, even if it was written with a timestamp in the future. So a transaction that
//! was applied is visible to the next one.

mod row_test;

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use tare_cql::response::{ColumnSpec, EncodedColumns, RowsWriter};
use tare_cql::statement::function::CallContext;
use tare_cql::types::Type;
use tare_store::cells;
use tare_store::read::{PartitionRead, Slice};
use tare_store::{End, Mutation, Pins, ReadError, Row, RowRead, Store, Ticket};

use crate::query::bind::{BoundValues, PartitionKey};
use crate::query::catalog::{Column, Table};
use crate::query::failure::Failure;
use crate::query::plan::{ColumnCondition, Condition, Item};
use crate::query::read_task::{Origin, put_row};
use crate::query::row_change::RowChange;
use row_test::RowTest;

/// The name of the column that tells whether the writes were applied.
const APPLIED: &str = "[applied]";

/// Rows that the conditions of one transaction may be on: the blocks of all of them are in memory
/// at once.
const CHECKED_ROWS_MAX: usize = 256;

/// A transaction that waits for its turn at its shard.
#[derive(Debug)]
pub(crate) struct ConditionalWrite {
    pub(crate) origin: Origin,
    /// When the request came, by the server's clock, in ns.
    pub(crate) begun_ns: u64,
    table: Arc<Table>,
    key: PartitionKey,
    now_s: u32,
    /// The rows that are read, by clustering key, ascending.
    checks: Vec<RowCheck>,
    changes: Vec<RowChange>,
    shown: Shown,
    statics: StaticsShown,
    /// Whether the answer has the values of rows, besides those of static columns.
    names_rows: bool,
}

/// A row that is read, and the conditions on it.
#[derive(Debug)]
struct RowCheck {
    clustering: Vec<u8>,
    tests: Vec<RowTest>,
}

/// The columns of the answer if the writes are not applied.
#[derive(Debug)]
enum Shown {
    All,
    /// Columns with conditions in the order of the statement. A batch shows the key of each row
    /// too.
    Some {
        columns: Vec<Column>,
        with_key: bool,
    },
}

/// The static columns that the answer has the values of.
#[derive(Debug)]
enum StaticsShown {
    /// All of them, because a statement with conditions writes static columns.
    All,
    /// Those with conditions, by number.
    Some(Vec<u16>),
}

/// The rows that a try has read.
#[derive(Debug)]
pub(crate) struct RowsRead {
    /// Whether all conditions hold.
    pub(crate) holds: bool,
    /// The latest timestamp that is stored for the rows.
    pub(crate) latest: i64,
    /// The cells of each row, if it exists.
    rows: Vec<Option<Vec<u8>>>,
    /// The key and the cells of the partition's first row, if conditions on static columns alone
    /// do not hold.
    first: Option<(Vec<u8>, Vec<u8>)>,
}

/// Reading.
impl ConditionalWrite {
    pub(crate) fn token(&self) -> i64 {
        self.key.token
    }

    /// Reads all rows; `None` if a block is missing. `pins` are those of earlier tries.
    pub(crate) fn read(
        &self,
        store: &mut Store,
        pins: &mut Vec<Pins>,
    ) -> Result<Option<RowsRead>, ReadError> {
        pins.resize_with(self.checks.len() + 1, Pins::default);
        let (holds, latest) = (true, i64::MIN);
        let mut read = RowsRead { holds, latest, rows: Vec::new(), first: None };
        let mut is_missing = false;
        for (check, pins) in self.checks.iter().zip(&mut *pins) {
            let mut found = None;
            let end = store.read_row_with_latest(&self.row_read(check), pins, |row, latest| {
                read.latest = read.latest.max(latest.unwrap_or(i64::MIN));
                let row = row.filter(|row| self.table.has_row(row.cells));
                let cells = row.as_ref().map(|row| row.cells);
                read.holds &= check.tests.iter().all(|test| test.holds(cells));
                found = cells.map(<[u8]>::to_vec);
            })?;
            // The next rows note their missing blocks too.
            is_missing |= end == End::Missing;
            read.rows.push(found);
        }
        if !is_missing && !read.holds && !self.checks.iter().any(|check| self.is_shown(check)) {
            is_missing = !self.read_first(&mut read, store, &mut pins[self.checks.len()])?;
        }
        Ok((!is_missing).then_some(read))
    }

    fn row_read<'a>(&'a self, check: &'a RowCheck) -> RowRead<'a> {
        RowRead {
            table: self.table.store,
            token: self.key.token,
            key: &self.key.key,
            clustering: &check.clustering,
            columns: None,
            now_s: self.now_s,
        }
    }

    /// Reads the first row of the partition, which the answer has the key of. Returns whether it is
    /// known.
    fn read_first(
        &self,
        read: &mut RowsRead,
        store: &mut Store,
        pins: &mut Pins,
    ) -> Result<bool, ReadError> {
        // The row with the static columns has an empty key.
        let partition = PartitionRead {
            table: self.table.store,
            token: self.key.token,
            key: &self.key.key,
            slices: &[Slice { from: &[0], to: None }],
            reversed: false,
            after: None,
            now_s: self.now_s,
        };
        let end = store.read(&partition, pins, |row| {
            if !self.table.has_row(row.cells) {
                return ControlFlow::Continue(());
            }
            read.first = Some((row.clustering.to_vec(), row.cells.to_vec()));
            ControlFlow::Break(())
        })?;
        Ok(matches!(end, End::Done | End::Stopped))
    }

    /// Whether the answer has a row for this one: it has conditions, and is no static one.
    fn is_shown(&self, check: &RowCheck) -> bool {
        !check.tests.is_empty() && !self.is_static(check)
    }

    fn is_static(&self, check: &RowCheck) -> bool {
        !self.table.statics.is_empty() && check.clustering.is_empty()
    }

    /// Writes all changes at a time.
    pub(crate) fn apply(
        &self,
        store: &mut Store,
        read: &RowsRead,
        timestamp: i64,
    ) -> Result<Option<Ticket>, Failure> {
        let cells = |change: &RowChange| change.cells(self.before(change, read), timestamp);
        let cells = self.changes.iter().map(cells).collect::<Result<Vec<_>, _>>()?;
        let changes = self.changes.iter().zip(&cells);
        let mutations: Vec<Mutation<'_>> = changes
            .filter_map(|(change, cells)| change.mutation(&self.table, &self.key, cells, timestamp))
            .collect();
        match mutations.is_empty() {
            true => Ok(None),
            false => Ok(Some(store.write(&mutations)?)),
        }
    }

    /// The cells of the row that a change is of, if its operations need them.
    fn before<'r>(&self, change: &RowChange, read: &'r RowsRead) -> &'r [u8] {
        let RowChange::Row { clustering, .. } = change else { return &[] };
        let at = self.checks.binary_search_by(|check| check.clustering.cmp(clustering));
        let cells = at.ok().and_then(|at| read.rows.get(at)?.as_deref());
        cells.unwrap_or_default()
    }

    /// The answer: whether the writes were applied, and if not, the rows as they are.
    pub(crate) fn answer(&self, read: &RowsRead) -> Vec<u8> {
        let table = &*self.table;
        let rows = if read.holds { Vec::new() } else { self.rows_shown(read) };
        let mut items: Vec<(&Column, Item)> = Vec::new();
        if !rows.is_empty() {
            self.shown.items(table, &mut items);
        }
        let specs = items.iter().map(|(column, _)| (&column.name[..], &column.kind));
        let specs = [(APPLIED, &Type::Boolean)].into_iter().chain(specs);
        let specs = specs.map(|(name, kind)| ColumnSpec { name, kind });
        let columns = EncodedColumns::new(&table.keyspace, &table.name, specs);
        let items: Vec<Item> = items.into_iter().map(|(_, item)| item).collect();
        let mut out = Vec::new();
        let mut writer = RowsWriter::begin(&mut out, self.origin.reply, &columns, None);
        let now = (self.now_s, &CallContext::default());
        for (clustering, cells) in &rows {
            let PartitionKey { token, key } = &self.key;
            let row = Row { token: *token, key, clustering, cells };
            writer.cell(Some(&[0]));
            writer.row(|out| put_row(out, &items, table, &row, now));
        }
        if rows.is_empty() {
            writer.cell(Some(&[u8::from(read.holds)]));
            writer.end_row();
        }
        writer.finish();
        out
    }

    /// The rows of the answer, each with its clustering key. Static columns alone are a row.
    fn rows_shown<'r>(&'r self, read: &'r RowsRead) -> Vec<(&'r [u8], Cow<'r, [u8]>)> {
        let found = || self.checks.iter().zip(&read.rows);
        let statics = found().find(|(check, _)| self.is_static(check));
        let statics = self.statics.of(statics.and_then(|(_, row)| row.as_deref()));
        let found = found().filter(|(check, _)| self.is_shown(check));
        let found = found.filter_map(|(check, row)| Some((&check.clustering[..], row.as_deref()?)));
        let first = read.first.iter().map(|(key, cells)| (&key[..], &cells[..]));
        let mut rows: Vec<(&[u8], Cow<'_, [u8]>)> = found
            .chain(first)
            .map(|(key, cells)| {
                let cells = if self.names_rows { cells } else { &[] };
                if statics.is_empty() {
                    return (key, Cow::Borrowed(cells));
                }
                let mut joined = Vec::new();
                cells::merge(&statics, cells, &mut joined);
                (key, Cow::Owned(joined))
            })
            .collect();
        if rows.is_empty() && !statics.is_empty() {
            rows.push((&[], Cow::Owned(statics)));
        }
        rows
    }
}

impl StaticsShown {
    /// The cells of these columns.
    fn of(&self, row: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        for cell in cells::iter(row.unwrap_or_default()) {
            let is_shown = match self {
                Self::All => true,
                Self::Some(columns) => columns.contains(&cell.column),
            };
            if is_shown {
                cells::push(&mut out, cell);
            }
        }
        out
    }

    /// Whether the answer needs the static columns.
    fn is_some(&self) -> bool {
        !matches!(self, Self::Some(columns) if columns.is_empty())
    }
}

impl Shown {
    /// Adds the columns of the answer, each with where a row has its value.
    fn items<'t>(&'t self, table: &'t Table, out: &mut Vec<(&'t Column, Item)>) {
        let keys = table.partition.iter().enumerate().map(|(at, c)| (c, Item::Partition(at)));
        let keys = keys
            .chain(table.clustering.iter().enumerate().map(|(at, c)| (c, Item::Clustering(at))));
        let with_key = matches!(self, Self::All | Self::Some { with_key: true, .. });
        if with_key {
            out.extend(keys);
        }
        match self {
            Self::All => out.extend(table.written().map(|column| (column, Item::of(column)))),
            Self::Some { columns, .. } => {
                out.extend(columns.iter().map(|column| (column, Item::of(column))));
            }
        }
    }
}

/// Collects the statements of a transaction.
#[derive(Debug)]
pub(crate) struct ConditionalBuilder {
    is_batch: bool,
    now_s: u32,
    partition: Option<(Arc<Table>, PartitionKey)>,
    checks: Vec<RowCheck>,
    changes: Vec<RowChange>,
    changed_bytes: usize,
    /// The columns with conditions; `None` if the answer shows all columns.
    shown: Option<Vec<Column>>,
    statics: StaticsShown,
    names_rows: bool,
}

/// Building.
impl ConditionalBuilder {
    pub(crate) fn new(is_batch: bool, now_s: u32) -> Self {
        Self {
            is_batch,
            now_s,
            partition: None,
            checks: Vec::new(),
            changes: Vec::new(),
            changed_bytes: 0,
            shown: Some(Vec::new()),
            statics: StaticsShown::Some(Vec::new()),
            names_rows: false,
        }
    }

    /// The time of the request in seconds since the Unix epoch.
    pub(crate) fn now_s(&self) -> u32 {
        self.now_s
    }

    /// Notes that a statement names rows, not only a partition.
    pub(crate) fn name_rows(&mut self) {
        self.names_rows = true;
    }

    /// Notes that a statement with conditions writes static columns.
    pub(crate) fn show_statics(&mut self) {
        self.statics = StaticsShown::All;
    }

    /// Notes the partition of a statement, which has to be the same for all of them.
    pub(crate) fn enter(
        &mut self,
        table: &Arc<Table>,
        keys: &[PartitionKey],
    ) -> Result<(), Failure> {
        for key in keys {
            match &self.partition {
                None => self.partition = Some((Arc::clone(table), key.clone())),
                Some((known, _)) if known.store != table.store => {
                    return Err(Failure::invalid(
                        "Batch with conditions cannot span multiple tables",
                    ));
                }
                Some((_, known)) if known != key => {
                    return Err(Failure::invalid(
                        "Batch with conditions cannot span multiple partitions",
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Adds the condition of a statement that names a row, or none if all conditions are on static
    /// columns.
    pub(crate) fn check(
        &mut self,
        clustering: &[u8],
        condition: &Condition,
        bound: &BoundValues<'_>,
    ) -> Result<(), Failure> {
        match condition {
            Condition::Exists | Condition::NotExists => {
                self.shown = None;
                let exists = matches!(condition, Condition::Exists);
                self.row(clustering)?.tests.push(RowTest::Exists(exists));
            }
            Condition::Columns(columns) => {
                for condition in columns {
                    let row = if condition.is_static { &[] } else { clustering };
                    let test = row_test::bind(condition, bound)?;
                    self.row(row)?.tests.push(test);
                    self.show(condition);
                }
            }
        }
        Ok(())
    }

    fn show(&mut self, condition: &ColumnCondition) {
        let column = &condition.column;
        if let Some(shown) = &mut self.shown
            && !shown.contains(column)
        {
            shown.push(column.clone());
        }
        if let StaticsShown::Some(columns) = &mut self.statics
            && condition.is_static
        {
            columns.push(column.number);
        }
    }

    /// A row that is read.
    fn row(&mut self, clustering: &[u8]) -> Result<&mut RowCheck, Failure> {
        let place = self.checks.binary_search_by(|check| (*check.clustering).cmp(clustering));
        let at = match place {
            Ok(at) => at,
            Err(_) if self.checks.len() == CHECKED_ROWS_MAX => {
                return Err(Failure::Invalid(format!(
                    "batches with conditions on more than {CHECKED_ROWS_MAX} rows are not supported"
                )));
            }
            Err(at) => {
                let check = RowCheck { clustering: clustering.to_vec(), tests: Vec::new() };
                self.checks.insert(at, check);
                at
            }
        };
        Ok(&mut self.checks[at])
    }

    /// Adds a change. Returns the bytes of all changes so far.
    pub(crate) fn change(&mut self, change: RowChange) -> Result<usize, Failure> {
        if let RowChange::Row { clustering, operations, .. } = &change
            && !operations.is_empty()
        {
            self.row(clustering)?;
        }
        self.changed_bytes += change.bytes();
        self.changes.push(change);
        Ok(self.changed_bytes)
    }

    /// The whole transaction.
    pub(crate) fn finish(
        mut self,
        origin: Origin,
        begun_ns: u64,
    ) -> Result<ConditionalWrite, Failure> {
        let none = || Failure::invalid("a batch with conditions writes to a partition");
        let (table, key) = self.partition.take().ok_or_else(none)?;
        if !table.statics.is_empty() && self.statics.is_some() {
            // The answer has the static columns.
            self.row(&[])?;
        }
        let Self { is_batch, now_s, checks, changes, shown, statics, .. } = self;
        let shown = match shown {
            None => Shown::All,
            Some(columns) => Shown::Some { columns, with_key: is_batch },
        };
        let names_rows = self.names_rows || table.statics.is_empty();
        Ok(ConditionalWrite {
            origin,
            begun_ns,
            table,
            key,
            now_s,
            checks,
            changes,
            shown,
            statics,
            names_rows,
        })
    }
}
