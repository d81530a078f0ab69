//! Long windows by the second, in tables of their own. Records without them have only whole
//! windows.

use std::collections::HashMap;

use rusqlite::{Connection, Transaction, params};

use super::columns::{by_owner, has_table, unsigned};
use super::rows::signed;
use crate::seconds::{DiskSecond, LoadSecond, Seconds};

/// Added without a new version: a reader that does not know the tables needs nothing of them.
pub(super) const TABLES: &str = include_str!("seconds.sql");

pub(super) fn put(
    transaction: &Transaction<'_>,
    slice: i64,
    seconds: &Seconds,
) -> rusqlite::Result<()> {
    for (second, one) in (0i64..).zip(&seconds.load) {
        let sql = "INSERT INTO load_seconds VALUES (?, ?, ?, ?, ?)";
        let [operations, mean_ns, max_ns] = [one.operations, one.mean_ns, one.max_ns].map(signed);
        transaction
            .prepare_cached(sql)?
            .execute(params![slice, second, operations, mean_ns, max_ns])?;
    }
    for (second, one) in (0i64..).zip(&seconds.disks) {
        let sql = "INSERT INTO disk_seconds VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        transaction.prepare_cached(sql)?.execute(params![
            slice,
            second,
            signed(one.reads),
            signed(one.read_mean_ns),
            signed(one.read_max_ns),
            signed(one.writes),
            signed(one.write_mean_ns),
            signed(one.write_max_ns),
        ])?;
    }
    Ok(())
}

/// Returns the seconds of each slice that has any.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<HashMap<i64, Seconds>> {
    if !has_table(connection, "load_seconds")? {
        return Ok(HashMap::new());
    }
    let mut all: HashMap<i64, Seconds> = HashMap::new();
    let sql = "SELECT slice, operations, mean_ns, max_ns FROM load_seconds ORDER BY slice, second";
    let load = by_owner(connection, sql, |row| {
        Ok(LoadSecond {
            operations: unsigned(row, 1)?,
            mean_ns: unsigned(row, 2)?,
            max_ns: unsigned(row, 3)?,
        })
    })?;
    for (slice, load) in load {
        all.entry(slice).or_default().load = load;
    }
    let sql = "SELECT slice, reads, read_mean_ns, read_max_ns, writes, write_mean_ns, \
               write_max_ns FROM disk_seconds ORDER BY slice, second";
    let disks = by_owner(connection, sql, |row| {
        Ok(DiskSecond {
            reads: unsigned(row, 1)?,
            read_mean_ns: unsigned(row, 2)?,
            read_max_ns: unsigned(row, 3)?,
            writes: unsigned(row, 4)?,
            write_mean_ns: unsigned(row, 5)?,
            write_max_ns: unsigned(row, 6)?,
        })
    })?;
    for (slice, disks) in disks {
        all.entry(slice).or_default().disks = disks;
    }
    Ok(all)
}
