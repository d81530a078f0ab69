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
    /// In the order written.
    pub columns: Vec<(String, Type)>,
    pub partition_key: Vec<String>,
    /// Clustering columns; descending where CLUSTERING ORDER BY says so.
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
    Add { columns: Vec<(String, Type)>, if_not_exists: bool },
    Options(Vec<(String, Literal)>),
}

/// DESCRIBE, which a server answers since Cassandra 4.0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Describe {
    pub target: DescribeTarget,
    /// `WITH INTERNALS`: ids too.
    pub internals: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DescribeTarget {
    Cluster,
    /// All keyspaces; those of the system too where it is `FULL`.
    Schema {
        full: bool,
    },
    Keyspaces,
    Tables,
    /// Kinds of objects of which there are none here, such as `TYPES`.
    Nothing,
    /// The keyspace in use where no name is given; without its tables where it is `ONLY`.
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
