//! Captures of CQL: the statements and tables that they name, and their operations.

pub(crate) mod catalog;
pub(crate) mod operations;
pub(crate) mod shape;
