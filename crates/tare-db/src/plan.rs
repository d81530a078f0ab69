//! Statements that are ready to run: names resolved, types checked, descriptions encoded. Made by
//! `planner`, run by `execute`.

use std::sync::Arc;

use tare_cql::response::EncodedColumns;
use tare_cql::types::Type;

use crate::catalog::Table;

/// A prepared statement.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    /// The bind markers in order: name and type.
    pub(crate) markers: Vec<(String, Type)>,
    pub(crate) marker_columns: EncodedColumns,
    /// Positions of the markers that form the partition key; empty where not all are bound.
    pub(crate) partition_key: Vec<u16>,
    /// The schema that the names were resolved in.
    pub(crate) epoch: u64,
}

#[derive(Debug)]
pub(crate) enum Plan {
    Insert(Insert),
    Select(Select),
    System(SystemSelect),
    /// Statements that are run from their text: schema changes, USE, TRUNCATE.
    Other(tare_cql::statement::Statement),
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Marker(u16),
    /// `None` is null.
    Literal(Option<Vec<u8>>),
}

#[derive(Debug)]
pub(crate) struct Insert {
    pub(crate) table: Arc<Table>,
    /// In the order of the partition key.
    pub(crate) key: Vec<Source>,
    /// In the order of the clustering key.
    pub(crate) clustering: Vec<Source>,
    /// Clustering and regular columns with their numbers, ascending.
    pub(crate) cells: Vec<(u16, Source)>,
    pub(crate) timestamp: Option<Source>,
}

#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) table: Arc<Table>,
    /// In the order of the partition key; empty for a scan.
    pub(crate) key: Vec<Source>,
    /// Equalities on a prefix of the clustering key.
    pub(crate) clustering: Vec<Source>,
    pub(crate) items: Items,
    pub(crate) limit: Option<Source>,
    pub(crate) columns: EncodedColumns,
}

/// What a SELECT returns of each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Items {
    Count,
    Columns(Vec<Item>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A component of the partition key.
    Partition(usize),
    /// A column by its number.
    Cell(u16),
}

/// A SELECT from a table that the server makes up.
#[derive(Debug)]
pub(crate) struct SystemSelect {
    pub(crate) keyspace: String,
    pub(crate) table: String,
    /// Equalities: position of the column, value.
    pub(crate) filters: Vec<(usize, Source)>,
    /// Positions of the columns; `None` counts.
    pub(crate) items: Option<Vec<usize>>,
    pub(crate) columns: EncodedColumns,
}
