//! Statements: the schema, the planner, the values of a request, reads, writes and their answers.

pub(crate) mod bind;
pub(crate) mod catalog;
pub(crate) mod cursor;
pub(crate) mod describe;
pub(crate) mod execute;
pub(crate) mod failure;
pub(crate) mod modify;
pub(crate) mod options;
pub(crate) mod ordered;
pub(crate) mod plan;
pub(crate) mod planner;
pub(crate) mod prepared;
pub(crate) mod read_task;
pub(crate) mod replication;
pub(crate) mod schema;
pub(crate) mod select;
pub(crate) mod system;
pub(crate) mod warning;
