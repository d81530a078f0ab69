//! Plans INSERT, UPDATE, DELETE and batches of them.

use std::sync::Arc;

use tare_cql::statement::{self, Assignment, BatchKind, ColumnChange, Deletion, Term, Using};
use tare_cql::types::Type;

use super::collections::{Planned, change_of, deletion_of, write};
use super::condition::condition_columns;
use super::conditions::{Purpose, conditions};
use super::terms::Terms;
use super::{ColumnRole, Scope, data_table, find};
use crate::query::catalog::{Column, Table};
use crate::query::failure::Failure;
use crate::query::plan::{
    Action, Batch, CollectionChange, CollectionWrite, Condition, Conditional, Modify, Operation,
    Partitions, Plan, Rows, Slices, Source,
};
use crate::query::replication::Replicas;

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
    if planned.is_counter {
        check_counter(modify, &planned, condition.is_some())?;
    }
    let condition = condition.map(|one| super::condition::condition(terms, &planned, one));
    Ok((planned, condition.transpose()?))
}

/// Refuses what counters cannot have.
fn check_counter(
    modify: &statement::Modify,
    planned: &Modify,
    has_condition: bool,
) -> Result<(), Failure> {
    if matches!(modify, statement::Modify::Insert(_)) {
        return Err(Failure::invalid(
            "INSERT statements are not allowed on counter tables, use UPDATE instead",
        ));
    }
    if has_condition {
        return Err(Failure::invalid("Conditional updates are not supported on counter tables"));
    }
    if planned.timestamp.is_some() {
        return Err(Failure::invalid("Cannot provide custom timestamp for counter updates"));
    }
    if planned.has_ttl() {
        return Err(Failure::invalid("Cannot provide custom TTL for counter updates"));
    }
    Ok(())
}

/// Refuses a batch of writes that cannot be together, as Cassandra does.
pub(crate) fn check_batch<'m>(
    kind: BatchKind,
    has_timestamp: bool,
    writes: impl Iterator<Item = &'m Modify>,
) -> Result<(), Failure> {
    if has_timestamp && kind == BatchKind::Counter {
        return Err(Failure::invalid("Cannot provide custom timestamp for counter BATCH"));
    }
    let (mut has_counters, mut has_others) = (false, false);
    for write in writes {
        has_counters |= write.is_counter;
        has_others |= !write.is_counter;
    }
    let refused = if has_timestamp && has_counters {
        "Cannot provide custom timestamp for a BATCH containing counters"
    } else if kind == BatchKind::Counter && has_others {
        "Cannot include non-counter statement in a counter batch"
    } else if has_counters && has_others {
        "Counter and non-counter mutations cannot exist in the same batch"
    } else if kind == BatchKind::Logged && has_counters {
        "Cannot include a counter statement in a logged batch"
    } else {
        return Ok(());
    };
    Err(Failure::invalid(refused))
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
    check_batch(batch.kind, timestamp.is_some(), statements.iter().map(|(modify, _)| modify))?;
    let first = statements.first().map(|(modify, _)| Arc::clone(&modify.table));
    if statements.iter().all(|(_, condition)| condition.is_none()) {
        let statements = statements.into_iter().map(|(modify, _)| modify).collect();
        return Ok((Plan::Batch(Batch { kind: batch.kind, timestamp, statements }), first));
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
    let has = |is: fn(ColumnRole) -> bool| given.iter().any(|(place, ..)| is(*place));
    let statics_only = has(|place| place == ColumnRole::Static)
        && !has(|place| matches!(place, ColumnRole::Clustering(_) | ColumnRole::Regular));
    let rows = match statics_only {
        true => Rows::One(Vec::new()),
        false => Rows::One(key(&table.clustering, "clustering keys")?),
    };
    let mut assigned = Assigned::default();
    for (place, column, source) in given.into_iter().filter(|(place, ..)| !place.is_key()) {
        let values = assigned.of(place);
        match column.kind.is_multi_cell() {
            true => values.collections.push(write(column, CollectionChange::Set(source))),
            false => values.cells.push((column.number, source)),
        }
    }
    let (ttl, timestamp) = using(terms, &insert.using)?;
    let target = Target { table, replicas, partitions, rows, timestamp };
    Ok(assigned.set(target, !statics_only, !statics_only, ttl))
}

fn update(
    scope: Scope<'_>,
    terms: &mut Terms<'_>,
    update: &statement::Update,
) -> Result<Modify, Failure> {
    let (table, replicas) = data_table(scope, &update.table)?;
    // The markers of USING precede those of SET in the text; each marker knows its own position.
    let (ttl, timestamp) = using(terms, &update.using)?;
    let mut assigned = Assigned::default();
    for Assignment { column: name, change } in &update.assignments {
        let (place, column) = written(&table, name, "SET part")?;
        let values = assigned.of(place);
        if values.conflicts(column, change) {
            return Err(Failure::Invalid(format!(
                "Multiple incompatible setting of column {name}"
            )));
        }
        match change {
            ColumnChange::Set(term)
                if !column.kind.is_multi_cell() && column.kind != Type::Counter =>
            {
                values.cells.push((column.number, terms.source(term, name, &column.kind)?));
            }
            change => values.add(change_of(terms, column, change)?),
        }
    }
    let on = condition_columns(&table, update.condition.as_ref())?;
    let purpose = match assigned.rows.is_empty() && !on.regular {
        true => Purpose::Statics,
        false => Purpose::Rows,
    };
    let (partitions, rows) = conditions(&table, terms, &update.relations, purpose)?;
    let target = Target { table, replicas, partitions, rows, timestamp };
    Ok(assigned.set(target, purpose == Purpose::Rows, false, ttl))
}

fn delete(
    scope: Scope<'_>,
    terms: &mut Terms<'_>,
    delete: &statement::Delete,
) -> Result<Modify, Failure> {
    let (table, replicas) = data_table(scope, &delete.table)?;
    let timestamp = timestamp(terms, delete.timestamp_us.as_ref())?;
    let (mut of_rows, mut of_statics) = (AssignedValues::default(), AssignedValues::default());
    let (mut row_columns, mut static_columns) = (Vec::new(), Vec::new());
    for Deletion { column: name, element } in &delete.columns {
        let (place, column) = written(&table, name, "DELETE")?;
        let (values, columns) = match place {
            ColumnRole::Static => (&mut of_statics, &mut static_columns),
            _ => (&mut of_rows, &mut row_columns),
        };
        match element {
            Some(element) => values.add(deletion_of(terms, column, element)?),
            None => columns.push(column.number),
        }
    }
    let on = condition_columns(&table, delete.condition.as_ref())?;
    let writes = (of_rows.clear(row_columns), of_statics.clear(static_columns));
    let (purpose, write, statics) = match writes {
        (Some(rows), statics) => (Purpose::Rows, rows, statics),
        // Its conditions name a row.
        (None, Some(statics)) if on.regular => (Purpose::Ranges, Write::nothing(), Some(statics)),
        (None, Some(statics)) => (Purpose::Statics, statics, None),
        (None, None) if on.is_static() => (Purpose::Statics, Write::of(Action::Remove), None),
        (None, None) => (Purpose::Ranges, Write::of(Action::Remove), None),
    };
    let (partitions, mut rows) = conditions(&table, terms, &delete.relations, purpose)?;
    if purpose == Purpose::Statics && write.action == Action::Remove {
        // It deletes the whole partition.
        rows = Rows::Slices(Slices::default());
    }
    let target = Target { table, replicas, partitions, rows, timestamp };
    Ok(target.modify(write, statics))
}

/// The values that a statement assigns, of rows and of the static columns of their partitions.
#[derive(Default)]
struct Assigned {
    rows: AssignedValues,
    statics: AssignedValues,
}

#[derive(Default)]
struct AssignedValues {
    cells: Vec<(u16, Source)>,
    collections: Vec<CollectionWrite>,
    operations: Vec<Operation>,
}

impl AssignedValues {
    fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.collections.is_empty() && self.operations.is_empty()
    }

    fn add(&mut self, planned: Planned) {
        match planned {
            Planned::Write(write) => self.collections.push(write),
            Planned::Operation(operation) => self.operations.push(operation),
        }
    }

    /// Whether a column cannot have this change beside those that it has already.
    fn conflicts(&self, column: &Column, change: &ColumnChange) -> bool {
        let mut writes = self.collections.iter().filter(|write| write.column == column.number);
        let mut operations = self.operations.iter().map(|operation| operation.column);
        let is_changed = match change {
            ColumnChange::Set(_) => {
                writes.next().is_some() || operations.any(|number| number == column.number)
            }
            _ => writes.any(|write| matches!(write.change, CollectionChange::Set(_))),
        };
        is_changed || self.cells.iter().any(|(known, _)| *known == column.number)
    }

    fn set(mut self, marks: bool, ttl: Option<Source>) -> Write {
        self.cells.sort_by_key(|(number, _)| *number);
        let Self { cells, collections, operations } = self;
        Write { action: Action::Set { marks, cells, ttl }, collections, operations }
    }

    /// Deletes columns and what the changes delete; `None` if that is nothing.
    fn clear(self, mut columns: Vec<u16>) -> Option<Write> {
        columns.sort_unstable();
        columns.dedup();
        let is_empty = columns.is_empty() && self.is_empty();
        let Self { collections, operations, .. } = self;
        (!is_empty).then_some(Write { action: Action::Clear(columns), collections, operations })
    }
}

impl Assigned {
    fn of(&mut self, place: ColumnRole) -> &mut AssignedValues {
        match place {
            ColumnRole::Static => &mut self.statics,
            _ => &mut self.rows,
        }
    }

    /// The write of the values. If it names no rows, it is one of static columns.
    fn set(self, target: Target, names_rows: bool, marks: bool, ttl: Option<Source>) -> Modify {
        let Self { rows, statics } = self;
        if statics.is_empty() {
            return target.modify(rows.set(marks, ttl), None);
        }
        let statics = statics.set(false, ttl.clone());
        match names_rows {
            true => target.modify(rows.set(marks, ttl), Some(statics)),
            false => target.modify(statics, None),
        }
    }
}

/// What a statement writes to.
struct Target {
    table: Arc<Table>,
    replicas: Replicas,
    partitions: Partitions,
    rows: Rows,
    timestamp: Option<Source>,
}

/// What it writes there.
struct Write {
    action: Action,
    collections: Vec<CollectionWrite>,
    operations: Vec<Operation>,
}

impl Write {
    fn of(action: Action) -> Self {
        Self { action, collections: Vec::new(), operations: Vec::new() }
    }

    fn nothing() -> Self {
        Self::of(Action::Clear(Vec::new()))
    }
}

impl Target {
    /// A write of rows, and of the static columns of the same partitions.
    fn modify(self, write: Write, statics: Option<Write>) -> Modify {
        let statics = statics.map(|statics| {
            let target = Self {
                table: Arc::clone(&self.table),
                replicas: self.replicas,
                partitions: self.partitions.clone(),
                rows: Rows::One(Vec::new()),
                timestamp: self.timestamp.clone(),
            };
            Box::new(target.modify(statics, None))
        });
        let default_ttl_s = self.table.options.default_time_to_live_s();
        let Self { table, replicas, partitions, rows, timestamp } = self;
        let Write { action, collections, operations } = write;
        let is_counter = table.has_counters();
        Modify {
            table,
            replicas,
            partitions,
            rows,
            action,
            statics,
            collections,
            operations,
            is_counter,
            timestamp,
            default_ttl_s,
        }
    }
}

/// A column that is not part of the key.
fn written<'t>(
    table: &'t Table,
    name: &str,
    part: &str,
) -> Result<(ColumnRole, &'t Column), Failure> {
    match find(table, name)? {
        (place, column) if !place.is_key() => Ok((place, column)),
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
