//! Plans INSERT, UPDATE, DELETE and batches of them.

use std::sync::Arc;

use tare_cql::statement::{self, Term, Using};
use tare_cql::types::Type;

use super::conditions::{Purpose, conditions};
use super::terms::Terms;
use super::{ColumnRole, Scope, data_table, find};
use crate::query::catalog::{Column, Table};
use crate::query::failure::Failure;
use crate::query::plan::{
    Action, Batch, Condition, Conditional, Modify, Partitions, Plan, Rows, Source,
};

/// The error of a batch with conditions at a time of the client's choice.
pub(crate) const CONDITIONAL_TIMESTAMP: &str =
    "Cannot provide custom timestamp for conditional BATCH";

/// Plans one write and its condition.
pub(super) fn modify(
    scope: Scope<'_>,
    terms: &mut Terms<'_>,
    modify: &statement::Modify,
) -> Result<(Modify, Option<Condition>), Failure> {
    let (planned, condition) = match modify {
        statement::Modify::Insert(insert) => {
            (self::insert(scope, terms, insert)?, &insert.condition)
        }
        statement::Modify::Update(update) => {
            (self::update(scope, terms, update)?, &update.condition)
        }
        statement::Modify::Delete(delete) => {
            (self::delete(scope, terms, delete)?, &delete.condition)
        }
    };
    let condition = condition.as_ref();
    let condition = condition.map(|one| super::condition::condition(terms, &planned, one));
    Ok((planned, condition.transpose()?))
}

/// Plans a batch. Returns the table of its first statement too.
pub(super) fn batch(
    scope: Scope<'_>,
    terms: &mut Terms<'_>,
    batch: &statement::Batch,
) -> Result<(Plan, Option<Arc<Table>>), Failure> {
    let timestamp = timestamp(terms, batch.timestamp_us.as_ref())?;
    let statements = batch.statements.iter().map(|one| modify(scope, terms, one));
    let statements = statements.collect::<Result<Vec<_>, _>>()?;
    if timestamp.is_some() && statements.iter().any(|(modify, _)| modify.timestamp.is_some()) {
        return Err(Failure::invalid(
            "Timestamp must be set either on BATCH or individual statements",
        ));
    }
    let first = statements.first().map(|(modify, _)| Arc::clone(&modify.table));
    if statements.iter().all(|(_, condition)| condition.is_none()) {
        let statements = statements.into_iter().map(|(modify, _)| modify).collect();
        return Ok((Plan::Batch(Batch { unlogged: batch.unlogged, timestamp, statements }), first));
    }
    if timestamp.is_some() {
        return Err(Failure::invalid(CONDITIONAL_TIMESTAMP));
    }
    Ok((Plan::Conditional(Conditional { is_batch: true, statements }), first))
}

fn insert(
    scope: Scope<'_>,
    terms: &mut Terms<'_>,
    insert: &statement::Insert,
) -> Result<Modify, Failure> {
    let (table, replicas) = data_table(scope, &insert.table)?;
    let mut given: Vec<(ColumnRole, &Column, Source)> = Vec::new();
    for (name, term) in insert.columns.iter().zip(&insert.values) {
        let (place, column) = find(&table, name)?;
        if given.iter().any(|(_, known, _)| known.number == column.number) {
            return Err(Failure::invalid("The column names contains duplicates"));
        }
        given.push((place, column, terms.source(term, name, &column.kind)?));
    }
    let key = |columns: &[Column], what: &str| -> Result<Vec<Source>, Failure> {
        let of = |column: &Column| {
            let found = given.iter().find(|(_, known, _)| known.number == column.number);
            let missing = || format!("Some {what} are missing: {}", column.name);
            found.map(|(.., source)| source.clone()).ok_or_else(|| Failure::Invalid(missing()))
        };
        columns.iter().map(of).collect()
    };
    let partitions = Partitions::One(key(&table.partition, "partition key parts")?);
    let rows = Rows::One(key(&table.clustering, "clustering keys")?);
    let cells = given.into_iter().filter(|(place, ..)| *place == ColumnRole::Regular);
    let mut cells: Vec<_> = cells.map(|(_, column, source)| (column.number, source)).collect();
    cells.sort_by_key(|(number, _)| *number);
    let (ttl, timestamp) = using(terms, &insert.using)?;
    let action = Action::Set { marks: true, cells, ttl };
    let default_ttl_s = table.options.default_time_to_live_s();
    Ok(Modify { table, replicas, partitions, rows, action, timestamp, default_ttl_s })
}

fn update(
    scope: Scope<'_>,
    terms: &mut Terms<'_>,
    update: &statement::Update,
) -> Result<Modify, Failure> {
    let (table, replicas) = data_table(scope, &update.table)?;
    // The markers of USING precede those of SET in the text; each marker knows its own position.
    let (ttl, timestamp) = using(terms, &update.using)?;
    let mut cells: Vec<(u16, Source)> = Vec::new();
    for (name, term) in &update.assignments {
        let column = regular(&table, name, "SET part")?;
        if cells.iter().any(|(known, _)| *known == column.number) {
            return Err(Failure::Invalid(format!(
                "Multiple incompatible setting of column {name}"
            )));
        }
        cells.push((column.number, terms.source(term, name, &column.kind)?));
    }
    cells.sort_by_key(|(number, _)| *number);
    let (partitions, rows) = conditions(&table, terms, &update.relations, Purpose::Rows)?;
    let action = Action::Set { marks: false, cells, ttl };
    let default_ttl_s = table.options.default_time_to_live_s();
    Ok(Modify { table, replicas, partitions, rows, action, timestamp, default_ttl_s })
}

fn delete(
    scope: Scope<'_>,
    terms: &mut Terms<'_>,
    delete: &statement::Delete,
) -> Result<Modify, Failure> {
    let (table, replicas) = data_table(scope, &delete.table)?;
    let timestamp = timestamp(terms, delete.timestamp_us.as_ref())?;
    let columns = delete.columns.iter().map(|name| regular(&table, name, "DELETE"));
    let mut columns = columns
        .map(|column| column.map(|column| column.number))
        .collect::<Result<Vec<u16>, _>>()?;
    columns.sort_unstable();
    columns.dedup();
    let (purpose, action) = match columns.is_empty() {
        true => (Purpose::Ranges, Action::Remove),
        false => (Purpose::Rows, Action::Clear(columns)),
    };
    let (partitions, rows) = conditions(&table, terms, &delete.relations, purpose)?;
    let default_ttl_s = table.options.default_time_to_live_s();
    Ok(Modify { table, replicas, partitions, rows, action, timestamp, default_ttl_s })
}

/// A column that is not part of the key.
fn regular<'t>(table: &'t Table, name: &str, part: &str) -> Result<&'t Column, Failure> {
    match find(table, name)? {
        (ColumnRole::Regular, column) => Ok(column),
        _ if part == "DELETE" => Err(Failure::Invalid(format!(
            "Invalid identifier {name} for deletion (should not be a PRIMARY KEY part)"
        ))),
        _ => Err(Failure::Invalid(format!("PRIMARY KEY part {name} found in {part}"))),
    }
}

/// The TTL and the timestamp of USING.
fn using(
    terms: &mut Terms<'_>,
    using: &Using,
) -> Result<(Option<Source>, Option<Source>), Failure> {
    let ttl = using.ttl_s.as_ref();
    let ttl = ttl.map(|term| terms.source(term, "[ttl]", &Type::Int)).transpose()?;
    Ok((ttl, timestamp(terms, using.timestamp_us.as_ref())?))
}

fn timestamp(terms: &mut Terms<'_>, term: Option<&Term>) -> Result<Option<Source>, Failure> {
    term.map(|term| terms.source(term, "[timestamp]", &Type::Bigint)).transpose()
}
