//! Statements that are ready to run: their names are resolved, types checked, result columns
//! encoded. `planner` makes them; `modify`, `select` and `system` run them.

use std::sync::Arc;

use tare_cql::response::EncodedColumns;
use tare_cql::statement::{Aggregate, BatchKind, Comparison, Function, Statement};
use tare_cql::types::Type;

use crate::query::catalog::{Column, Table};
use crate::query::replication::Replicas;

/// A prepared statement.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    /// The bind markers in order: name and type.
    pub(crate) markers: Vec<(String, Type)>,
    /// Positions of the markers that are `Source::Collection`.
    pub(crate) collections: Vec<u16>,
    /// The calls of functions, in the order in which to make them.
    pub(crate) calls: Vec<Call>,
    pub(crate) marker_columns: EncodedColumns,
    /// Positions of the markers that form the partition key; empty if a part of the key is no
    /// marker.
    pub(crate) partition_key: Vec<u16>,
    /// Epoch of the schema in which the names were resolved.
    pub(crate) epoch: u64,
}

#[derive(Debug)]
pub(crate) enum Plan {
    /// A write that reads nothing.
    Modify(Modify),
    /// A write that reads before: it changes counters, or elements of lists by position or value.
    ReadWrite(Modify),
    Batch(Batch),
    Conditional(Conditional),
    Select(Select),
    System(SystemSelect),
    /// A statement that runs from its text (a change of the schema, USE, TRUNCATE, DESCRIBE), and
    /// the keyspace for names without one.
    Other(Statement, Option<Box<str>>),
}

impl Plan {
    /// The columns of the rows in the answer, if it has rows.
    pub(crate) fn result_columns(&self) -> Option<&EncodedColumns> {
        match self {
            Self::Select(select) => Some(&select.columns),
            Self::System(select) => Some(&select.columns),
            // The columns of a conditional write depend on its outcome.
            Self::Modify(_)
            | Self::ReadWrite(_)
            | Self::Batch(_)
            | Self::Conditional(_)
            | Self::Other(..) => None,
        }
    }

    /// The writes of a statement that a batch may have.
    pub(crate) fn writes(&self) -> impl Iterator<Item = &Modify> {
        let (one, conditional) = match self {
            Self::Modify(modify) | Self::ReadWrite(modify) => (Some(modify), &[][..]),
            Self::Conditional(conditional) => (None, &conditional.statements[..]),
            Self::Batch(_) | Self::Select(_) | Self::System(_) | Self::Other(..) => (None, &[][..]),
        };
        one.into_iter().chain(conditional.iter().map(|(modify, _)| modify))
    }
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Marker(u16),
    /// A marker whose value has sets or maps, which are put in order first.
    Collection(u16),
    /// `None` is null.
    Literal(Option<Vec<u8>>),
    /// A position in `Prepared::calls`.
    Call(u16),
}

/// A call of a function whose argument has a known type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) function: Function,
    pub(crate) argument: Option<(Source, Type)>,
}

/// Values for some columns of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tuple {
    /// One source for each column.
    Parts(Vec<Source>),
    /// A marker that is bound to a tuple.
    Whole(Source),
}

/// A condition on consecutive columns of a key: `= x`, `IN (x, y)`, `IN ?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyCondition {
    pub(crate) columns: usize,
    pub(crate) values: KeyValues,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyValues {
    Listed(Vec<Tuple>),
    /// A marker that is bound to a list: of values, or of tuples if there are several columns.
    Marker(Source),
}

/// The partitions that a statement reads or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Partitions {
    /// One partition, by its key: values in the order of the partition key.
    One(Vec<Source>),
    /// The partitions of every combination of the conditions.
    Some(Vec<KeyCondition>),
    /// The partitions of a part of the ring; of the whole ring if there are no bounds.
    Tokens(Vec<TokenBound>),
}

/// A bound on tokens, such as `token(k) > value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenBound {
    pub(crate) comparison: Comparison,
    pub(crate) value: TokenValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenValue {
    /// A bigint that is the token.
    Number(Source),
    /// The token of a key.
    Of(Vec<Source>),
}

/// The rows of a partition that a statement reads or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// One row, by its whole clustering key, which is empty in a table without clustering columns.
    One(Vec<Source>),
    Slices(Slices),
}

/// Rows between bounds, for every combination of the first columns.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Slices {
    /// Conditions on consecutive columns, from the first.
    pub(crate) equal: Vec<KeyCondition>,
    /// Bounds on the columns that follow, by value.
    pub(crate) low: Option<SliceBound>,
    pub(crate) high: Option<SliceBound>,
}

/// A bound on the columns of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SliceBound {
    pub(crate) columns: usize,
    pub(crate) values: Tuple,
    pub(crate) inclusive: bool,
}

/// INSERT, UPDATE and DELETE.
#[derive(Debug)]
pub(crate) struct Modify {
    pub(crate) table: Arc<Table>,
    pub(crate) replicas: Replicas,
    pub(crate) partitions: Partitions,
    pub(crate) rows: Rows,
    pub(crate) action: Action,
    /// What the statement also does to the static columns of the same partitions.
    pub(crate) statics: Option<Box<Modify>>,
    /// Changes of columns that are collections and not frozen.
    pub(crate) collections: Vec<CollectionWrite>,
    /// Changes that need what is stored.
    pub(crate) operations: Vec<Operation>,
    /// Whether the columns of the table are counters.
    pub(crate) is_counter: bool,
    pub(crate) timestamp: Option<Source>,
    /// The default of the table.
    pub(crate) default_ttl_s: u32,
}

impl Modify {
    /// Whether the statement has a time to live of its own.
    pub(crate) fn has_ttl(&self) -> bool {
        matches!(self.action, Action::Set { ttl: Some(_), .. })
    }

    /// Whether the write needs what is stored.
    pub(crate) fn reads(&self) -> bool {
        let statics = self.statics.as_ref();
        self.is_counter || !self.operations.is_empty() || statics.is_some_and(|one| one.reads())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Writes values into rows. INSERT also marks them as existing.
    Set {
        marks: bool,
        /// Cells by column number, ascending.
        cells: Vec<(u16, Source)>,
        ttl: Option<Source>,
    },
    /// Deletes columns of rows, by number, ascending.
    Clear(Vec<u16>),
    /// Deletes rows.
    Remove,
}

/// A change of a column that is a collection and not frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectionWrite {
    pub(crate) column: u16,
    pub(crate) kind: Type,
    pub(crate) change: CollectionChange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CollectionChange {
    /// Replaces all elements.
    Set(Source),
    /// Adds elements; to a list at its end.
    Add(Source),
    /// Adds elements to a list at its front.
    Prepend(Source),
    /// Removes elements of a set, or the entries of a map with these keys: a set of this type.
    Remove(Source, Type),
    /// Writes one entry of a map, whose key has this type.
    Put { key: (Source, Type), value: Source },
    /// Removes one element of a set or one entry of a map, by a key of this type.
    Delete(Source, Type),
}

/// A change of a column that depends on its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) column: u16,
    pub(crate) change: OperationChange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OperationChange {
    /// Writes the element of a list at a position.
    Set { position: Source, value: Source },
    /// Deletes the element of a list at a position.
    Delete(Source),
    /// Removes the elements of a list that are in another list.
    Discard(Source),
    /// Adds to a counter, or subtracts from it.
    Count { by: Source, is_negated: bool },
}

/// Several writes in one statement.
#[derive(Debug)]
pub(crate) struct Batch {
    /// A batch of each kind is executed like a logged one, but an unlogged one may cause a warning.
    pub(crate) kind: BatchKind,
    pub(crate) timestamp: Option<Source>,
    pub(crate) statements: Vec<Modify>,
}

/// Writes to one partition of which some have conditions: a statement, or a batch.
#[derive(Debug)]
pub(crate) struct Conditional {
    pub(crate) is_batch: bool,
    pub(crate) statements: Vec<(Modify, Option<Condition>)>,
}

/// What must hold for a row that a write names by its whole key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Exists,
    NotExists,
    Columns(Vec<ColumnCondition>),
}

/// A condition on the value of a column, or of one of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnCondition {
    pub(crate) column: Column,
    /// Whether the column is static.
    pub(crate) is_static: bool,
    /// The key of a map, or the position in a list, and its type.
    pub(crate) element: Option<(Source, Type)>,
    pub(crate) test: ConditionTest,
}

/// A test of a value that may be null, as the values that it is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConditionTest {
    Compare(Comparison, Source),
    NotEqual(Source),
    In(Vec<Source>),
    /// A marker that is bound to a list.
    InMarker(Source),
}

#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) table: Arc<Table>,
    pub(crate) replicas: Replicas,
    pub(crate) partitions: Partitions,
    pub(crate) rows: Rows,
    /// What a row must satisfy besides, so that it is no part of the result otherwise.
    pub(crate) filters: Vec<Filter<Item>>,
    /// The rows of a partition come in descending order of their clustering keys.
    pub(crate) reversed: bool,
    /// The rows of several partitions come in one order, so that all of them have to be read first.
    pub(crate) merged: bool,
    /// The result has one row of each partition.
    pub(crate) distinct: bool,
    pub(crate) items: Items,
    /// Columns whose cells are needed, ascending; `None` needs all of them.
    pub(crate) cells: Option<Vec<u16>>,
    /// Set if the table has static columns.
    pub(crate) statics: Option<StaticRead>,
    /// Whether the selection calls functions.
    pub(crate) calls: bool,
    pub(crate) per_partition_limit: Option<Source>,
    pub(crate) limit: Option<Source>,
    pub(crate) columns: EncodedColumns,
}

/// How a SELECT reads the static columns of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StaticRead {
    /// The rows of the result need them.
    pub(crate) joined: bool,
    /// A partition that has nothing else is a row of the result, because the statement selects
    /// whole partitions.
    pub(crate) alone: bool,
}

impl Select {
    /// Whether the static columns of each partition are read too.
    pub(crate) fn reads_statics(&self) -> bool {
        self.statics.is_some_and(|statics| statics.joined || statics.alone)
    }
}

/// What a SELECT returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Items {
    /// The number of rows.
    Count,
    /// The number of rows that have a value in the column of this number.
    CountOf(u16),
    /// These items of each row.
    Columns(Vec<Item>),
    /// One row of each group.
    Groups(Groups),
}

impl Item {
    /// The value of a column that is not part of the key.
    pub(crate) fn of(column: &Column) -> Self {
        match column.kind.is_multi_cell() {
            true => Self::Collection(column.number, column.kind.clone()),
            false => Self::Cell(column.number),
        }
    }
}

impl Items {
    /// Whether the result is one row of all rows.
    pub(crate) fn is_one_row(&self) -> bool {
        match self {
            Self::Count | Self::CountOf(_) => true,
            Self::Columns(_) => false,
            Self::Groups(groups) => groups.by == GroupBy::All,
        }
    }
}

/// What a SELECT returns of each group of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) by: GroupBy,
    pub(crate) items: Vec<GroupItem>,
}

/// What the rows of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupBy {
    /// Nothing: there is one group.
    All,
    Partition,
    /// The partition and so many clustering columns, from the first.
    Clustering(usize),
}

/// An item of a selection of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupItem {
    /// The item of the group's first row.
    First(Item),
    Count,
    /// The number of rows that have a value.
    CountOf(Item),
    /// An aggregate of values of this type.
    Fold(Aggregate, Item, Type),
}

/// An item of a selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A component of the partition key.
    Partition(usize),
    /// A component of the clustering key.
    Clustering(usize),
    /// A column by its number.
    Cell(u16),
    /// A column that is a collection and not frozen, by its number.
    Collection(u16, Type),
    WriteTime(u16),
    Ttl(u16),
    /// The token of the partition.
    Token,
    /// A function of another item of this type.
    Call(Function, Option<Box<(Item, Type)>>),
}

/// A SELECT from a system table, whose rows the server computes.
#[derive(Debug)]
pub(crate) struct SystemSelect {
    pub(crate) table: &'static tare_cql::system_schema::SystemTable,
    /// Conditions on columns by their positions.
    pub(crate) filters: Vec<Filter<usize>>,
    pub(crate) distinct: bool,
    pub(crate) items: SystemItems,
    pub(crate) limit: Option<Source>,
    pub(crate) columns: EncodedColumns,
}

/// A condition on the values of some columns of a row, which are compared in their order. A row
/// that lacks one of the values does not satisfy it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter<Place> {
    /// Where a row has the values.
    pub(crate) places: Vec<Place>,
    /// The columns of these values, all of them ascending.
    pub(crate) columns: Vec<Column>,
    pub(crate) test: FilterTest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterTest {
    /// `=` and IN.
    Any(KeyCondition),
    Compare(Comparison, Tuple),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SystemItems {
    Count,
    Columns(Vec<SystemItem>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SystemItem {
    Column(usize),
    /// A write time or TTL, which rows of system tables do not have.
    Null,
    /// The token of the partition key, which has the columns at these positions.
    Token(Vec<usize>),
    Call(Function, Option<Box<(SystemItem, Type)>>),
}
