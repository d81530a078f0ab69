//! Statements: the schema, the planner, the values of a request, reads, writes and their answers.

pub(crate) mod bind;
pub(crate) mod catalog;
pub(crate) mod collections;
pub(crate) mod conditional;
pub(crate) mod describe;
pub(crate) mod failure;
pub(crate) mod filter;
pub(crate) mod key_encoding;
pub(crate) mod options;
pub(crate) mod paging_state;
pub(crate) mod payload;
pub(crate) mod plan;
pub(crate) mod planner;
pub(crate) mod prepared;
pub(crate) mod read_task;
pub(crate) mod read_write;
pub(crate) mod replication;
pub(crate) mod ring;
pub(crate) mod row_change;
pub(crate) mod row_operation;
pub(crate) mod schema_change;
pub(crate) mod system;
pub(crate) mod warning;
pub(crate) mod write_time;
