//! The loaders of a run, in a table of its own. Records without it were loaded by the client on the
//! host.

use rusqlite::{Transaction, params};

use crate::loader::Loader;

/// Added without a new version: a reader that does not know the tables needs nothing of them.
pub(super) const TABLES: &str = include_str!("loaders.sql");

/// Replaces the loaders of the run.
pub(super) fn put(transaction: &Transaction<'_>, loaders: &[Loader]) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM loaders", [])?;
    for (id, Loader { host, cpus, kernel, architecture }) in (0i64..).zip(loaders) {
        let sql = "INSERT INTO loaders VALUES (?, ?, ?, ?, ?)";
        transaction.execute(sql, params![id, host, cpus.to_string(), kernel, architecture])?;
    }
    Ok(())
}
