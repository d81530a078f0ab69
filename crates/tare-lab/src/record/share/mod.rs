//! A copy of a record for other people: no names, addresses, paths or serial numbers, and the same
//! figures.
//!
//! Every text of the file has a [`Rule`], by table and column. A table, view or column without one
//! is removed, so that a new one is not shared before somebody has thought about it; a test lists
//! the columns of the schema. Facts of the host stay only if [`KEPT_FACTS`] lists them. What stays
//! consists of the words of [`words`]. The copy is made by SQLite's `VACUUM INTO` and rewritten
//! at the end, so that no deleted text is left in free pages.
//!
//! Limits: times, the number of CPUs and of rounds, versions and the processor's model stay,
//! because the figures mean little without them.

mod names;
mod rules;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, Transaction, params_from_iter};

use super::error::RecordError;
use super::read::{open_read_only, read_from};
use names::Names;
use rules::{KEPT_FACTS, Rule, TABLES, VIEWS};

/// What a shared record keeps besides figures.
#[derive(Clone, Debug, Default)]
pub struct Keep {
    /// Texts that are public, such as those of shipped studies.
    pub texts: BTreeSet<String>,
    /// The names of functions in sampled stacks.
    pub stacks: bool,
}

/// Writes a copy of a record without what identifies people, hosts and their data.
///
/// # Errors
/// If the record cannot be read, or the copy exists or cannot be written.
pub fn share(from: &Path, to: &Path, keep: &Keep) -> Result<(), RecordError> {
    if to.exists() {
        return Err(RecordError::Exists { path: to.to_path_buf() });
    }
    let source = open_read_only(from)?;
    // Refuses a damaged record before anything is written.
    read_from(&source, from)?;
    let part = to.with_extension("tare.part");
    let copied = copy(&source, &part, keep).and_then(|()| {
        fs::rename(&part, to).map_err(|error| RecordError::file("create", to, error))
    });
    if copied.is_err() {
        // The error is the one to report.
        let _ = fs::remove_file(&part);
    }
    copied
}

fn copy(source: &Connection, part: &Path, keep: &Keep) -> Result<(), RecordError> {
    let sqlite = |error| RecordError::sqlite("create", part, error);
    source.execute("VACUUM INTO ?", [part.to_string_lossy()]).map_err(sqlite)?;
    let mut copy = Connection::open(part).map_err(sqlite)?;
    let rewrite = |copy: &mut Connection| {
        copy.pragma_update(None, "foreign_keys", false)?;
        let transaction = copy.transaction()?;
        remove_unlisted(&transaction)?;
        let names = Names::read(&transaction)?;
        for (table, columns) in TABLES {
            clean_table(&transaction, table, columns, &names, keep)?;
        }
        transaction.commit()?;
        copy.execute_batch("VACUUM")
    };
    rewrite(&mut copy).map_err(sqlite)?;
    // The copy must open as any record does.
    read_from(&copy, part)?;
    Ok(())
}

/// Removes tables, views, triggers and indexes that no version of Tare creates. Their definitions
/// are text too.
fn remove_unlisted(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let sql = "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'";
    let objects: Vec<(String, String)> = transaction
        .prepare(sql)?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (kind, name) in objects {
        let listed = match kind.as_str() {
            "table" => TABLES.iter().any(|(table, _)| *table == name),
            "view" => VIEWS.contains(&name.as_str()),
            "index" => rules::INDEXES.contains(&name.as_str()),
            _ => false,
        };
        if !listed {
            transaction.execute_batch(&format!(
                "DROP {kind} IF EXISTS \"{}\"",
                name.replace('"', "\"\"")
            ))?;
        }
    }
    Ok(())
}

/// Applies the rules of a table to all its rows.
fn clean_table(
    transaction: &Transaction<'_>,
    table: &str,
    rules: &[(&str, Rule)],
    names: &Names,
    keep: &Keep,
) -> rusqlite::Result<()> {
    let columns: Vec<String> = transaction
        .prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for column in &columns {
        let Some((_, rule)) = rules.iter().find(|(name, _)| name == column) else {
            let name = column.replace('"', "\"\"");
            transaction.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN \"{name}\""))?;
            continue;
        };
        clean_column(transaction, table, column, *rule, names, keep)?;
    }
    if table == "host_facts" {
        let mut delete = transaction.prepare("DELETE FROM host_facts WHERE rowid = ?")?;
        for (id, section, key) in rows(transaction)? {
            let listed = |(s, k): &(&str, &str)| *s == section && (*k == "*" || *k == key);
            if !KEPT_FACTS.iter().any(listed) {
                delete.execute([id])?;
            }
        }
    }
    Ok(())
}

fn rows(transaction: &Transaction<'_>) -> rusqlite::Result<Vec<(i64, String, String)>> {
    transaction
        .prepare("SELECT rowid, section, key FROM host_facts")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect()
}

fn clean_column(
    transaction: &Transaction<'_>,
    table: &str,
    column: &str,
    rule: Rule,
    names: &Names,
    keep: &Keep,
) -> rusqlite::Result<()> {
    let sql = format!("SELECT DISTINCT {column} FROM {table}");
    let values: Vec<Value> = transaction
        .prepare(&sql)?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut update =
        transaction.prepare(&format!("UPDATE {table} SET {column} = ? WHERE {column} IS ?"))?;
    // A new name may be the old one of another environment, so names change in one statement.
    if rule == Rule::Name {
        let map = names.as_json();
        let sql = format!(
            "UPDATE {table} SET {column} = \
             (SELECT value FROM json_each(?1) WHERE key = {column}) WHERE {column} IS NOT NULL"
        );
        transaction.execute(&sql, [map])?;
        return Ok(());
    }
    if rule == Rule::Stack {
        if !keep.stacks {
            let sql = format!("UPDATE {table} SET {column} = 'function ' || id");
            transaction.execute(&sql, [])?;
        }
        return Ok(());
    }
    for value in values {
        let new = rule.apply(&value, names, keep);
        if new != value {
            update.execute(params_from_iter([new, value]))?;
        }
    }
    Ok(())
}
