//! Statements that change or show the schema.

use super::{Literal, Order, TableName};
use crate::types::Type;

#[derive(Debug, Clone, PartialEq)]
pub struct CreateKeyspace {
    pub keyspace: String,
    pub if_not_exists: bool,
    /// `WITH name = value AND ...`, such as `replication` and `durable_writes`.
    pub options: Vec<(String, Literal)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AlterKeyspace {
    pub keyspace: String,
    pub if_exists: bool,
    pub options: Vec<(String, Literal)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CreateTable {
    pub table: TableName,
    pub if_not_exists: bool,
    /// The columns in the order of the statement.
    pub columns: Vec<(String, Type)>,
    /// Those of the columns that are static.
    pub statics: Vec<String>,
    pub partition_key: Vec<String>,
    /// The clustering columns, with their order.
    pub clustering: Vec<(String, Order)>,
    pub options: Vec<(String, Literal)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AlterTable {
    pub table: TableName,
    pub if_exists: bool,
    pub change: TableChange,
}

#[derive(Debug, Clone, PartialEq)]
pub enum TableChange {
    /// `statics` are those of the columns that are static.
    Add {
        columns: Vec<(String, Type)>,
        statics: Vec<String>,
        if_not_exists: bool,
    },
    Drop {
        columns: Vec<String>,
        if_exists: bool,
    },
    Options(Vec<(String, Literal)>),
}

/// DESCRIBE, which servers answer since Cassandra 4.0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Describe {
    pub target: DescribeTarget,
    /// Whether `WITH INTERNALS` asks for ids too.
    pub internals: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DescribeTarget {
    Cluster,
    /// All keyspaces; with `FULL` those of the system too.
    Schema {
        full: bool,
    },
    Keyspaces,
    Tables,
    /// A kind of object that this server does not have, such as `TYPES`.
    Nothing,
    /// A keyspace, or the one in use if there is no name; with `ONLY` without its tables.
    Keyspace {
        name: Option<String>,
        only: bool,
    },
    Table(TableName),
    /// A type, function and so on of this kind.
    Other {
        kind: &'static str,
        name: TableName,
    },
    /// A keyspace or a table.
    Any(TableName),
}
