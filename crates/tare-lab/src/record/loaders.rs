//! The loaders of a run, in a table of its own. Records without it were loaded by the client on the
//! host.

use rusqlite::{Transaction, params};

use crate::loader::Loader;

/// Added without a new version: a reader that does not know the tables needs nothing of them.
pub(super) const TABLES: &str = include_str!("loaders.sql");

/// Replaces the loaders of the run. Slices of before a resume refer to them, and a study that goes
/// on has as many.
pub(super) fn put(transaction: &Transaction<'_>, loaders: &[Loader]) -> rusqlite::Result<()> {
    for (id, Loader { host, cpus, kernel, architecture }) in (0i64..).zip(loaders) {
        let sql = "INSERT INTO loaders VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET \
                   host = excluded.host, cpus = excluded.cpus, kernel = excluded.kernel, \
                   architecture = excluded.architecture";
        transaction.execute(sql, params![id, host, cpus.to_string(), kernel, architecture])?;
    }
    Ok(())
}
