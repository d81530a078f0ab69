//! Stack slices in a record. `Record` does not contain them, because they are the bulk of the file
//! and few readers need them.

use std::collections::HashMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::columns::{by_owner, rows, unsigned};
use super::error::RecordError;
use super::read::open_read_only;
use super::rows::{environment_id, signed};
use super::{VERSION_WITH_STACKS, VERSION_WITH_TRACED};
use crate::stacks::{PartCpu, SampledStack, StackKind, StackSlice};

/// The tables of stack slices, which older records lack.
pub(super) const TABLES: &str = include_str!("stacks.sql");

/// Returns every stack slice of a record, in the order in which they ran. Records of older versions
/// have none.
pub fn read_stacks(path: &Path) -> Result<Vec<StackSlice>, RecordError> {
    let connection = open_read_only(path)?;
    read_all(&connection).map_err(|error| RecordError::sqlite("read", path, error))
}

fn read_all(connection: &Connection) -> rusqlite::Result<Vec<StackSlice>> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version < VERSION_WITH_STACKS {
        return Ok(Vec::new());
    }
    let transaction = connection.unchecked_transaction()?;
    let sql = "SELECT slice, part, cpu_ns, idle_poll_ns FROM stack_cpu ORDER BY rowid";
    let mut cpu = by_owner(&transaction, sql, |row| {
        let (cpu_ns, idle_poll_ns) = (unsigned(row, 2)?, unsigned(row, 3)?);
        Ok(PartCpu { part: row.get(1)?, cpu_ns, idle_poll_ns })
    })?;
    let sql = "SELECT id, part, subsystem, folded FROM stacks";
    let names: HashMap<i64, (String, String, String)> =
        rows(&transaction, sql, |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?, row.get(3)?))))?
            .into_iter()
            .collect();
    let sql = "SELECT slice, stack, samples FROM stack_samples ORDER BY rowid";
    let mut samples = by_owner(&transaction, sql, |row| {
        let (part, subsystem, folded) = names.get(&row.get(1)?).cloned().unwrap_or_default();
        Ok(SampledStack { part, subsystem, folded, samples: unsigned(row, 2)? })
    })?;
    let kind = if version < VERSION_WITH_TRACED { "'on-cpu'" } else { "s.kind" };
    let sql = format!(
        "SELECT s.id, s.round, s.position, e.name, s.workload, s.started_unix_ms, \
         s.window_ns, s.operations, s.rate_per_s, s.event, s.void, {kind} \
         FROM stack_slices s JOIN environments e ON e.id = s.environment ORDER BY s.id"
    );
    let slices = rows(&transaction, &sql, |row| {
        let id: i64 = row.get(0)?;
        Ok(StackSlice {
            id,
            round: row.get(1)?,
            position: row.get(2)?,
            environment: row.get(3)?,
            workload: row.get(4)?,
            started_unix_ms: unsigned(row, 5)?,
            window_ns: unsigned(row, 6)?,
            operations: unsigned(row, 7)?,
            rate_per_s: row.get(8)?,
            event: row.get(9)?,
            cpu: cpu.remove(&id).unwrap_or_default(),
            stacks: samples.remove(&id).unwrap_or_default(),
            void: row.get(10)?,
            kind: match row.get::<_, String>(11)?.as_str() {
                "off-cpu" => StackKind::OffCpu,
                "interrupt-cpus" => StackKind::InterruptCpus,
                _ => StackKind::OnCpu,
            },
        })
    })?;
    transaction.finish()?;
    Ok(slices)
}

/// Inserts a stack slice and returns its id.
pub(super) fn insert(transaction: &Transaction<'_>, slice: &StackSlice) -> rusqlite::Result<i64> {
    let sql = "INSERT INTO stack_slices VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    transaction.execute(
        sql,
        params![
            slice.round,
            slice.position,
            environment_id(transaction, &slice.environment)?,
            slice.workload,
            signed(slice.started_unix_ms),
            signed(slice.window_ns),
            signed(slice.operations),
            slice.rate_per_s,
            slice.event,
            slice.void,
            slice.kind.name(),
        ],
    )?;
    let id = transaction.last_insert_rowid();
    for cpu in &slice.cpu {
        let row = params![id, cpu.part, signed(cpu.cpu_ns), signed(cpu.idle_poll_ns)];
        transaction.execute("INSERT INTO stack_cpu VALUES (?, ?, ?, ?)", row)?;
    }
    let find = "SELECT id FROM stacks WHERE folded = ? AND part = ? AND subsystem = ?";
    for stack in &slice.stacks {
        let key = params![stack.folded, stack.part, stack.subsystem];
        let known: Option<i64> =
            transaction.prepare_cached(find)?.query_row(key, |row| row.get(0)).optional()?;
        let stack_id = match known {
            Some(id) => id,
            None => {
                let sql = "INSERT INTO stacks (folded, part, subsystem) VALUES (?, ?, ?)";
                transaction.prepare_cached(sql)?.execute(key)?;
                transaction.last_insert_rowid()
            }
        };
        let sql = "INSERT INTO stack_samples VALUES (?, ?, ?)";
        transaction.prepare_cached(sql)?.execute(params![id, stack_id, signed(stack.samples)])?;
    }
    Ok(id)
}
