//! Reads rows and columns of any table of a record.

use std::collections::HashMap;

use rusqlite::{Connection, Row};

/// Returns whether a record has a table: older versions have fewer.
pub(super) fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = ?";
    connection.query_row(sql, [name], |row| Ok(row.get::<_, i64>(0)? > 0))
}

/// Returns all rows of a query.
pub(super) fn rows<T>(
    connection: &Connection,
    sql: &str,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare(sql)?.query_map([], read)?.collect()
}

/// Returns rows that belong to a slice or an environment, by its id.
pub(super) fn by_owner<T>(
    connection: &Connection,
    sql: &str,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<HashMap<i64, Vec<T>>> {
    let mut owners: HashMap<i64, Vec<T>> = HashMap::new();
    for (owner, value) in rows(connection, sql, |row| Ok((row.get(0)?, read(row)?)))? {
        owners.entry(owner).or_default().push(value);
    }
    Ok(owners)
}

/// Returns a count or a time, which SQLite stores with a sign; 0 for NULL.
pub(super) fn unsigned(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    Ok(optional(row, index)?.unwrap_or(0))
}

/// As [`unsigned`], `None` for NULL.
pub(super) fn optional(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(index)?.map(|value| u64::try_from(value).unwrap_or(0)))
}
