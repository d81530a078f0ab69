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

use std::sync::Arc;

use tare_cql::response::{ColumnSpec, EncodedColumns, RowsWriter};
use tare_cql::statement::Comparison;
use tare_cql::statement::function::CallContext;
use tare_cql::types::Type;
use tare_cql::wire::Value;
use tare_store::cells::{self, Cell};
use tare_store::{
    Change, End, Mutation, Pins, RangeTombstone, ReadError, Row, RowRead, Store, Ticket, WriteError,
};

use crate::query::bind::{BoundValues, OwnedSlice, PartitionKey, list};
use crate::query::catalog::{Column, Table};
use crate::query::failure::Failure;
use crate::query::filter::holds;
use crate::query::key_encoding;
use crate::query::plan::{ColumnCondition, Condition, ConditionTest, Item};
use crate::query::read_task::{Origin, put_row};

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
    /// The rows with conditions, by clustering key, ascending.
    checks: Vec<RowCheck>,
    changes: Vec<RowChange>,
    shown: Shown,
}

/// The conditions on one row.
#[derive(Debug)]
struct RowCheck {
    clustering: Vec<u8>,
    tests: Vec<RowTest>,
}

#[derive(Debug)]
enum RowTest {
    Exists(bool),
    Column(u16, Type, ValueTest),
}

/// A test of a value that may be null. Values are key encodings.
#[derive(Debug)]
enum ValueTest {
    Compare(Comparison, Option<Vec<u8>>),
    NotEqual(Option<Vec<u8>>),
    In(Vec<Option<Vec<u8>>>),
}

/// A change without its timestamp.
#[derive(Debug)]
pub(crate) enum RowChange {
    Row { clustering: Vec<u8>, cells: Vec<u8> },
    Range { slice: OwnedSlice, deleted_s: u32 },
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

/// The rows that a try has read.
#[derive(Debug)]
pub(crate) struct RowsRead {
    /// Whether all conditions hold.
    pub(crate) holds: bool,
    /// The latest timestamp that is stored for the rows.
    pub(crate) latest: i64,
    /// The cells of each row that has conditions, if it exists.
    rows: Vec<Option<Vec<u8>>>,
}

/// Reading.
impl ConditionalWrite {
    pub(crate) fn token(&self) -> i64 {
        self.key.token
    }

    /// Reads all rows with conditions; `None` if a block is missing. `pins` are those of earlier
    /// tries.
    pub(crate) fn read(
        &self,
        store: &mut Store,
        pins: &mut Vec<Pins>,
    ) -> Result<Option<RowsRead>, ReadError> {
        pins.resize_with(self.checks.len(), Pins::default);
        let mut read = RowsRead { holds: true, latest: i64::MIN, rows: Vec::new() };
        let mut is_missing = false;
        for (check, pins) in self.checks.iter().zip(pins) {
            let mut found = None;
            let end = store.read_row_with_latest(&self.row_read(check), pins, |row, latest| {
                read.latest = read.latest.max(latest.unwrap_or(i64::MIN));
                let row = row.filter(|row| self.table.has_row(row.cells));
                read.holds &= check.tests.iter().all(|test| test.holds(row.as_ref()));
                found = row.map(|row| row.cells.to_vec());
            })?;
            // The next rows note their missing blocks too.
            is_missing |= end == End::Missing;
            read.rows.push(found);
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

    /// Writes all changes at a time.
    pub(crate) fn apply(&self, store: &mut Store, timestamp: i64) -> Result<Ticket, WriteError> {
        let stamped = |change: &RowChange| match change {
            RowChange::Row { cells, .. } => {
                let mut out = Vec::with_capacity(cells.len());
                cells::iter(cells).for_each(|cell| {
                    cells::push(&mut out, Cell { timestamp: timestamp + cell.timestamp, ..cell });
                });
                out
            }
            RowChange::Range { .. } => Vec::new(),
        };
        let rows: Vec<Vec<u8>> = self.changes.iter().map(stamped).collect();
        let changes = self.changes.iter().zip(&rows);
        let mutations: Vec<Mutation<'_>> =
            changes.map(|(change, cells)| self.mutation(change, cells, timestamp)).collect();
        store.write(&mutations)
    }

    fn mutation<'a>(
        &'a self,
        change: &'a RowChange,
        cells: &'a [u8],
        timestamp: i64,
    ) -> Mutation<'a> {
        let change = match change {
            RowChange::Row { clustering, .. } => Change::Row { clustering, cells },
            RowChange::Range { slice: (from, to), deleted_s } => Change::Range(RangeTombstone {
                from,
                to: to.as_deref(),
                timestamp,
                deleted_s: *deleted_s,
            }),
        };
        Mutation { table: self.table.store, token: self.key.token, key: &self.key.key, change }
    }

    /// Whether there is anything to write.
    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The answer: whether the writes were applied, and if not, the rows as they are.
    pub(crate) fn answer(&self, read: &RowsRead) -> Vec<u8> {
        let table = &*self.table;
        let found = || self.checks.iter().zip(&read.rows).filter(|(_, row)| row.is_some());
        let shows = !read.holds && found().next().is_some();
        let mut items: Vec<(&Column, Item)> = Vec::new();
        if shows {
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
        if shows {
            for (check, cells) in found() {
                let cells = cells.as_deref().unwrap_or_default();
                let RowRead { token, key, clustering, .. } = self.row_read(check);
                let row = Row { token, key, clustering, cells };
                writer.cell(Some(&[0]));
                writer.row(|out| put_row(out, &items, table, &row, now));
            }
        } else {
            writer.cell(Some(&[u8::from(read.holds)]));
            writer.end_row();
        }
        writer.finish();
        out
    }
}

impl Shown {
    /// Adds the columns of the answer, each with where a row has its value.
    fn items<'t>(&'t self, table: &'t Table, out: &mut Vec<(&'t Column, Item)>) {
        let keys = table.partition.iter().enumerate().map(|(at, c)| (c, Item::Partition(at)));
        let keys = keys
            .chain(table.clustering.iter().enumerate().map(|(at, c)| (c, Item::Clustering(at))));
        let (with_key, columns) = match self {
            Self::All => (true, &table.regular),
            Self::Some { columns, with_key } => (*with_key, columns),
        };
        if with_key {
            out.extend(keys);
        }
        out.extend(columns.iter().map(|column| (column, Item::of(column))));
    }
}

impl RowTest {
    fn holds(&self, row: Option<&Row<'_>>) -> bool {
        match self {
            Self::Exists(wanted) => row.is_some() == *wanted,
            Self::Column(number, kind, test) => {
                let cell = row.and_then(|row| cells::iter(row.cells).find(|c| c.column == *number));
                let value = cell.and_then(|cell| cell.value());
                test.holds(value.map(|value| encoded(kind, value)))
            }
        }
    }
}

impl ValueTest {
    #[expect(clippy::needless_pass_by_value, reason = "it is compared with owned values")]
    fn holds(&self, value: Option<Vec<u8>>) -> bool {
        match self {
            Self::Compare(comparison, wanted) => match (&value, wanted) {
                (Some(value), Some(wanted)) => holds(*comparison, value, wanted),
                (None, None) => true,
                _ => false,
            },
            Self::NotEqual(wanted) => value != *wanted,
            Self::In(list) => list.contains(&value),
        }
    }
}

fn encoded(kind: &Type, value: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    match key_encoding::is_too_long(kind, value) {
        // It differs from every value of a condition.
        true => key.push(u8::MAX),
        false => key_encoding::push(&mut key, kind, false, value),
    }
    key
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
        }
    }

    /// The time of the request in seconds since the Unix epoch.
    pub(crate) fn now_s(&self) -> u32 {
        self.now_s
    }

    /// Notes the partition of a statement, which has to be the same for all of them.
    pub(crate) fn enter(
        &mut self,
        table: &Arc<Table>,
        keys: Vec<PartitionKey>,
    ) -> Result<(), Failure> {
        for key in keys {
            match &self.partition {
                None => self.partition = Some((Arc::clone(table), key)),
                Some((known, _)) if known.store != table.store => {
                    return Err(Failure::invalid(
                        "Batch with conditions cannot span multiple tables",
                    ));
                }
                Some((_, known)) if *known != key => {
                    return Err(Failure::invalid(
                        "Batch with conditions cannot span multiple partitions",
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Adds a condition on a row.
    pub(crate) fn check(
        &mut self,
        clustering: &[u8],
        condition: &Condition,
        bound: &BoundValues<'_>,
    ) -> Result<(), Failure> {
        let mut tests = match condition {
            Condition::Exists => vec![RowTest::Exists(true)],
            Condition::NotExists => vec![RowTest::Exists(false)],
            Condition::Columns(columns) => {
                let tests = columns.iter().map(|column| bind(column, bound));
                tests.collect::<Result<Vec<_>, _>>()?
            }
        };
        match (condition, &mut self.shown) {
            (Condition::Columns(columns), Some(shown)) => {
                for ColumnCondition { column, .. } in columns {
                    if !shown.contains(column) {
                        shown.push(column.clone());
                    }
                }
            }
            (Condition::Columns(_), None) => {}
            (Condition::Exists | Condition::NotExists, shown) => *shown = None,
        }
        let place = self.checks.binary_search_by(|check| (*check.clustering).cmp(clustering));
        match place {
            Ok(at) => self.checks[at].tests.append(&mut tests),
            Err(_) if self.checks.len() == CHECKED_ROWS_MAX => {
                return Err(Failure::Invalid(format!(
                    "batches with conditions on more than {CHECKED_ROWS_MAX} rows are not supported"
                )));
            }
            Err(at) => {
                let check = RowCheck { clustering: clustering.to_vec(), tests };
                self.checks.insert(at, check);
            }
        }
        Ok(())
    }

    /// Adds a change. Returns the bytes of all changes so far.
    pub(crate) fn change(&mut self, change: RowChange) -> usize {
        self.changed_bytes += match &change {
            RowChange::Row { clustering, cells } => clustering.len() + cells.len(),
            RowChange::Range { slice: (from, to), .. } => {
                from.len() + to.as_ref().map_or(0, Vec::len)
            }
        };
        self.changes.push(change);
        self.changed_bytes
    }

    /// The whole transaction.
    pub(crate) fn finish(self, origin: Origin, begun_ns: u64) -> Result<ConditionalWrite, Failure> {
        let Self { is_batch, now_s, partition, checks, changes, shown, .. } = self;
        let none = || Failure::invalid("a batch with conditions writes to a partition");
        let (table, key) = partition.ok_or_else(none)?;
        let shown = match shown {
            None => Shown::All,
            Some(columns) => Shown::Some { columns, with_key: is_batch },
        };
        Ok(ConditionalWrite { origin, begun_ns, table, key, now_s, checks, changes, shown })
    }
}

/// A condition on a column with its values.
fn bind(condition: &ColumnCondition, bound: &BoundValues<'_>) -> Result<RowTest, Failure> {
    let Column { name, kind, number, .. } = &condition.column;
    let key = |value: Option<&[u8]>| match value {
        Some(value) if key_encoding::is_too_long(kind, value) => Err(Failure::Invalid(format!(
            "{name}: a {kind} of a condition has at most {} bytes",
            key_encoding::NUMBER_BYTES_MAX
        ))),
        value => Ok(value.map(|value| encoded(kind, value))),
    };
    let of = |source| match bound.get(source) {
        Value::Bytes(value) => key(Some(value)),
        Value::Null => Ok(None),
        Value::Unset => Err(Failure::invalid("Invalid 'unset' value in condition")),
    };
    let test = match &condition.test {
        ConditionTest::Compare(comparison, source) => match (comparison, of(source)?) {
            (Comparison::Equal, wanted) => ValueTest::Compare(*comparison, wanted),
            (_, Some(wanted)) => ValueTest::Compare(*comparison, Some(wanted)),
            (_, None) => {
                return Err(Failure::Invalid(format!(
                    "Invalid comparison with null for operator \"{}\"",
                    comparison.sign()
                )));
            }
        },
        ConditionTest::NotEqual(source) => ValueTest::NotEqual(of(source)?),
        ConditionTest::In(sources) => {
            ValueTest::In(sources.iter().map(of).collect::<Result<_, _>>()?)
        }
        ConditionTest::InMarker(source) => {
            ValueTest::In(list(bound.needed(source, name)?).map(key).collect::<Result<_, _>>()?)
        }
    };
    Ok(RowTest::Column(*number, kind.clone(), test))
}
