//! Statements that are ready to run: names resolved, types checked, descriptions encoded. Made by
//! `planner`, run by `modify`, `select` and `system`.

use std::sync::Arc;

use tare_cql::response::EncodedColumns;
use tare_cql::statement::{Comparison, Function, Statement};
use tare_cql::types::Type;

use crate::query::catalog::Table;
use crate::query::replication::Replicas;

/// A prepared statement.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    /// The bind markers in order: name and type.
    pub(crate) markers: Vec<(String, Type)>,
    /// Calls of functions in the order in which they are to be made.
    pub(crate) calls: Vec<Call>,
    pub(crate) marker_columns: EncodedColumns,
    /// Positions of the markers that form the partition key; empty where not all are bound.
    pub(crate) partition_key: Vec<u16>,
    /// The schema that the names were resolved in.
    pub(crate) epoch: u64,
}

#[derive(Debug)]
pub(crate) enum Plan {
    Modify(Modify),
    Batch(Batch),
    Select(Select),
    System(SystemSelect),
    /// Statements that are run from their text: changes of the schema, USE, TRUNCATE, DESCRIBE; and the
    /// keyspace of their names without one.
    Other(Statement, Option<Box<str>>),
}

impl Plan {
    /// The columns of the rows that it answers with.
    pub(crate) fn result_columns(&self) -> Option<&EncodedColumns> {
        match self {
            Self::Select(select) => Some(&select.columns),
            Self::System(select) => Some(&select.columns),
            Self::Modify(_) | Self::Batch(_) | Self::Other(..) => None,
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Marker(u16),
    /// `None` is null.
    Literal(Option<Vec<u8>>),
    /// Position in `Prepared::calls`.
    Call(u16),
}

/// A call of a function, of whose argument the type is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) function: Function,
    pub(crate) argument: Option<(Source, Type)>,
}

/// Values for some columns of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tuple {
    /// One for each column.
    Parts(Vec<Source>),
    /// A marker that is bound to a tuple.
    Whole(Source),
}

/// What some columns of a key may be: `= x`, `IN (x, y)`, `IN ?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) columns: usize,
    pub(crate) values: Alternatives,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Alternatives {
    Listed(Vec<Tuple>),
    /// A marker that is bound to a list, of tuples where there are several columns.
    Marker(Source),
}

/// Which partitions a statement is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Partitions {
    /// One, by its key: values in the order of the partition key.
    One(Vec<Source>),
    /// Those of every combination.
    Some(Vec<Choice>),
    /// Those of a part of the ring; of all of it without bounds.
    Tokens(Vec<TokenBound>),
}

/// `token(k) > value`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenBound {
    pub(crate) comparison: Comparison,
    pub(crate) value: TokenValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenValue {
    /// A bigint.
    Number(Source),
    /// The token of a key.
    Of(Vec<Source>),
}

/// Which rows of a partition a statement is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// One, by its whole clustering key, which is empty in a table without clustering columns.
    One(Vec<Source>),
    Slices(Slices),
}

/// Rows between bounds, for every combination of what the first columns may be.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Slices {
    /// Of consecutive columns, from the first.
    pub(crate) equal: Vec<Choice>,
    /// Bounds on the columns that follow, by value.
    pub(crate) low: Option<Edge>,
    pub(crate) high: Option<Edge>,
}

/// A bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
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
    pub(crate) timestamp: Option<Source>,
    /// Of the table.
    pub(crate) default_ttl_s: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Writes values into rows. INSERT also marks them as existing.
    Set {
        marks: bool,
        /// By number, ascending.
        cells: Vec<(u16, Source)>,
        ttl: Option<Source>,
    },
    /// Deletes columns of rows, by number, ascending.
    Clear(Vec<u16>),
    /// Deletes rows.
    Remove,
}

/// Several writes in one statement.
#[derive(Debug)]
pub(crate) struct Batch {
    /// What is logged, and where, does not depend on it; a warning does.
    pub(crate) unlogged: bool,
    pub(crate) timestamp: Option<Source>,
    pub(crate) statements: Vec<Modify>,
}

#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) table: Arc<Table>,
    pub(crate) replicas: Replicas,
    pub(crate) partitions: Partitions,
    pub(crate) rows: Rows,
    /// Rows of a partition come in the reverse of their order.
    pub(crate) reversed: bool,
    /// The rows of several partitions come in one order, for which all of them have to be there.
    pub(crate) merged: bool,
    /// One row of each partition.
    pub(crate) distinct: bool,
    pub(crate) items: Items,
    /// Columns whose cells alone are wanted, ascending; `None` wants them all.
    pub(crate) cells: Option<Vec<u16>>,
    /// Whether functions are called on what is selected.
    pub(crate) calls: bool,
    pub(crate) per_partition_limit: Option<Source>,
    pub(crate) limit: Option<Source>,
    pub(crate) columns: EncodedColumns,
}

/// What a SELECT returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Items {
    /// How many rows there are.
    Count,
    /// How many rows have a value in the column of this number.
    CountOf(u16),
    /// Of each row.
    Columns(Vec<Item>),
}

/// What a SELECT returns of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A component of the partition key.
    Partition(usize),
    /// A component of the clustering key.
    Clustering(usize),
    /// A column by its number.
    Cell(u16),
    WriteTime(u16),
    Ttl(u16),
    /// Of the partition.
    Token,
    /// A function of another item of this type.
    Call(Function, Option<Box<(Item, Type)>>),
}

/// A SELECT from a table that the server makes up.
#[derive(Debug)]
pub(crate) struct SystemSelect {
    pub(crate) table: &'static tare_cql::system_schema::SystemTable,
    pub(crate) filters: Vec<Filter>,
    pub(crate) distinct: bool,
    pub(crate) items: SystemItems,
    pub(crate) limit: Option<Source>,
    pub(crate) columns: EncodedColumns,
}

/// A condition on a column of a system table, by its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) column: usize,
    pub(crate) kind: Type,
    pub(crate) test: FilterTest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterTest {
    Compare(Comparison, Source),
    In(Vec<Source>),
    /// A marker that is bound to a list.
    InMarker(Source),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SystemItems {
    Count,
    Columns(Vec<SystemItem>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SystemItem {
    Column(usize),
    /// What no made-up row has: a time of writing, a time to live.
    Null,
    /// The token of the partition key, whose columns have these positions.
    Token(Vec<usize>),
    Call(Function, Option<Box<(SystemItem, Type)>>),
}
