//! The loaders of a run and what each did in a slice, in tables of their own. Records without them
//! were loaded by the client on the host.

use rusqlite::{Connection, Transaction, params};
use std::collections::HashMap;

use super::read::{by_owner, rows, unsigned};
use super::rows::signed;
use crate::loader::{Loader, LoaderSlice};

/// Added without a new version: a reader that does not know the tables needs nothing of them.
pub(super) const TABLES: &str = include_str!("loaders.sql");

fn exist(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'slice_loaders'";
    connection.query_row(sql, [], |row| Ok(row.get::<_, i64>(0)? > 0))
}

/// Replaces the loaders of the run.
pub(super) fn put(transaction: &Transaction<'_>, loaders: &[Loader]) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM loaders", [])?;
    for (id, Loader { host, cpus, kernel, architecture }) in (0i64..).zip(loaders) {
        let sql = "INSERT INTO loaders VALUES (?, ?, ?, ?, ?)";
        transaction.execute(sql, params![id, host, cpus.to_string(), kernel, architecture])?;
    }
    Ok(())
}

pub(super) fn insert(
    transaction: &Transaction<'_>,
    slice: i64,
    loaders: &[LoaderSlice],
) -> rusqlite::Result<()> {
    for one in loaders {
        let sql = "INSERT INTO slice_loaders VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        transaction.prepare_cached(sql)?.execute(params![
            slice,
            one.loader,
            signed(one.window_ns),
            signed(one.operations),
            signed(one.cpu_ns),
            signed(one.busiest_thread_ns),
            one.waited_ns.map(signed),
            one.begin_offset_ns,
            one.end_offset_ns,
            signed(one.clock_error_ns),
        ])?;
    }
    Ok(())
}

/// Returns the loaders of the run.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Vec<Loader>> {
    if !exist(connection)? {
        return Ok(Vec::new());
    }
    let sql = "SELECT host, cpus, kernel, architecture FROM loaders ORDER BY id";
    rows(connection, sql, |row| {
        Ok(Loader {
            host: row.get(0)?,
            cpus: super::read::parsed(row, 1)?,
            kernel: row.get(2)?,
            architecture: row.get(3)?,
        })
    })
}

/// Returns what each loader did, by slice.
pub(super) fn by_slice(
    connection: &Connection,
) -> rusqlite::Result<HashMap<i64, Vec<LoaderSlice>>> {
    if !exist(connection)? {
        return Ok(HashMap::new());
    }
    let sql = "SELECT slice, loader, window_ns, operations, cpu_ns, busiest_thread_ns, waited_ns, \
               begin_offset_ns, end_offset_ns, clock_error_ns FROM slice_loaders \
               ORDER BY slice, loader";
    by_owner(connection, sql, |row| {
        Ok(LoaderSlice {
            loader: row.get(1)?,
            window_ns: unsigned(row, 2)?,
            operations: unsigned(row, 3)?,
            cpu_ns: unsigned(row, 4)?,
            busiest_thread_ns: unsigned(row, 5)?,
            waited_ns: super::read::optional(row, 6)?,
            begin_offset_ns: row.get(7)?,
            end_offset_ns: row.get(8)?,
            clock_error_ns: unsigned(row, 9)?,
        })
    })
}
