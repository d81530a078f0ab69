//! Decides which change a schema statement makes to the current schema.

use tare_cql::statement::{
    AlterKeyspace, CreateKeyspace, CreateTable, Literal, Order, TableChange,
};
use tare_cql::system_schema;
use tare_cql::types::Type;
use tare_store::cells::FIRST_COLUMN;

use crate::query::catalog::{Catalog, Change, Column, DroppedColumn, Keyspace, Table, hash_uuid};
use crate::query::collections::column_type;
use crate::query::failure::Failure;
use crate::query::key_encoding;
use crate::query::options::TableOptions;
use crate::query::replication::replication;

/// Columns that one table may have.
const COLUMNS_MAX: usize = 4096;

pub(crate) fn create_keyspace(
    catalog: &Catalog,
    create: &CreateKeyspace,
) -> Result<Option<Change>, Failure> {
    let name = create.keyspace.clone();
    own(&name)?;
    if catalog.keyspaces.contains_key(&name) {
        return match create.if_not_exists {
            true => Ok(None),
            false => Err(Failure::AlreadyExists { keyspace: name, table: String::new() }),
        };
    }
    let mut keyspace = Keyspace { durable_writes: true, ..Keyspace::default() };
    set(&mut keyspace, &create.options)?;
    if keyspace.replication.is_empty() {
        return Err(Failure::Config("Missing mandatory option 'replication'".into()));
    }
    Ok(Some(Change::CreateKeyspace { name, keyspace }))
}

pub(crate) fn alter_keyspace(
    catalog: &Catalog,
    alter: &AlterKeyspace,
) -> Result<Option<Change>, Failure> {
    let name = alter.keyspace.clone();
    own(&name)?;
    let Some(known) = catalog.keyspaces.get(&name) else {
        return if alter.if_exists { Ok(None) } else { Err(missing_keyspace(&name)) };
    };
    let mut keyspace = Keyspace {
        replication: known.replication.clone(),
        durable_writes: known.durable_writes,
        ..Keyspace::default()
    };
    set(&mut keyspace, &alter.options)?;
    Ok(Some(Change::AlterKeyspace { name, keyspace }))
}

fn set(keyspace: &mut Keyspace, options: &[(String, Literal)]) -> Result<(), Failure> {
    for (option, value) in options {
        match (option.as_str(), value) {
            ("durable_writes", Literal::Boolean(durable)) => keyspace.durable_writes = *durable,
            ("durable_writes", Literal::Text(text)) => {
                keyspace.durable_writes = text.eq_ignore_ascii_case("true");
            }
            ("replication", literal) => keyspace.replication = replication(literal)?,
            // Drivers of Scylla may send this option; this server has no tablets.
            ("tablets", Literal::Map(_)) => {}
            (option, _) => return Err(Failure::Syntax(format!("Unknown property '{option}'"))),
        }
    }
    Ok(())
}

pub(crate) fn create_table(
    catalog: &Catalog,
    keyspace: &str,
    create: &CreateTable,
) -> Result<Option<Change>, Failure> {
    own(keyspace)?;
    let name = create.table.table.clone();
    let home = catalog.keyspaces.get(keyspace).ok_or_else(|| missing_keyspace(keyspace))?;
    if home.tables.contains_key(&name) {
        return match create.if_not_exists {
            true => Ok(None),
            false => Err(Failure::AlreadyExists { keyspace: keyspace.into(), table: name }),
        };
    }
    let mut columns: Vec<Column> = Vec::new();
    let mut number = FIRST_COLUMN;
    for (name, kind) in &create.columns {
        if columns.iter().any(|known| known.name == *name) {
            return Err(Failure::Invalid(format!(
                "Duplicate column '{name}' declaration for table '{}'",
                create.table.table
            )));
        }
        columns.push(column(name, kind, number)?);
        number = number.checked_add(1).ok_or_else(too_many)?;
    }
    if columns.len() > COLUMNS_MAX {
        return Err(too_many());
    }
    let mut take = |name: &str| {
        let at = columns.iter().position(|column| column.name == name);
        let unknown = || Failure::Invalid(format!("Unknown column '{name}' in PRIMARY KEY"));
        let column = columns.remove(at.ok_or_else(unknown)?);
        if column.kind.is_multi_cell() {
            return Err(Failure::Invalid(format!(
                "Invalid non-frozen collection type {} for PRIMARY KEY column '{name}'",
                column.kind
            )));
        }
        if !key_encoding::is_orderable(&column.kind) {
            return Err(Failure::Invalid(format!(
                "{} type is not supported for PRIMARY KEY column '{name}'",
                column.kind
            )));
        }
        Ok(column)
    };
    let is_static = |name: &String| create.statics.contains(name);
    let mut key = create.partition_key.iter().chain(create.clustering.iter().map(|(name, _)| name));
    if let Some(name) = key.find(|name| is_static(name)) {
        return Err(Failure::Invalid(format!(
            "Static column '{name}' cannot be part of the PRIMARY KEY"
        )));
    }
    if create.clustering.is_empty() && !create.statics.is_empty() {
        return Err(static_without_clustering());
    }
    let partition = create.partition_key.iter().map(|name| take(name));
    let partition = partition.collect::<Result<Vec<_>, _>>()?;
    let mut clustering = Vec::new();
    for (name, order) in &create.clustering {
        clustering.push(Column { descending: *order == Order::Descending, ..take(name)? });
    }
    columns.sort_by(|a, b| a.name.cmp(&b.name));
    let counters = columns.iter().filter(|column| column.kind == Type::Counter).count();
    if counters > 0 && counters < columns.len() {
        return Err(Failure::invalid(
            "Cannot mix counter and non counter columns in the same table",
        ));
    }
    let mut options = TableOptions::default();
    options.set(&create.options)?;
    let store = catalog.next_store;
    let given = create.options.iter().find(|(option, _)| option == "id");
    let id = match given.map(|(_, literal)| literal.encode(&Type::Uuid)) {
        None => hash_uuid(&[keyspace.as_bytes(), name.as_bytes(), &store.to_le_bytes()]),
        Some(Ok(Some(id))) => id.try_into().unwrap_or_default(),
        Some(_) => return Err(Failure::Config("Invalid table id".into())),
    };
    let keyspace = keyspace.to_string();
    let (statics, regular) =
        columns.into_iter().partition(|column| create.statics.contains(&column.name));
    let dropped = Vec::new();
    let table = Table {
        keyspace,
        name,
        id,
        store,
        partition,
        clustering,
        statics,
        regular,
        dropped,
        options,
    };
    check_lifetime(&table)?;
    Ok(Some(Change::CreateTable { table }))
}

/// `now_us` is the time of the change, in microseconds since the Unix epoch.
pub(crate) fn alter_table(
    table: &Table,
    change: &TableChange,
    now_us: i64,
) -> Result<Option<Change>, Failure> {
    let mut altered = table.clone();
    match change {
        TableChange::Options(options) => {
            altered.options.set(options)?;
            check_lifetime(&altered)?;
        }
        TableChange::Drop { columns, if_exists } => {
            for name in columns {
                drop_column(&mut altered, name, *if_exists, now_us)?;
            }
        }
        TableChange::Add { columns, statics, if_not_exists } => {
            if altered.clustering.is_empty() && !statics.is_empty() {
                return Err(static_without_clustering());
            }
            for (name, kind) in columns {
                if altered.columns().any(|known| known.name == *name) {
                    if *if_not_exists {
                        continue;
                    }
                    return Err(Failure::Invalid(format!(
                        "Column with name '{name}' already exists"
                    )));
                }
                let number = altered.next_number().ok_or_else(too_many)?;
                let column = column(name, kind, number)?;
                let counters = altered.has_counters();
                if (column.kind == Type::Counter) != counters && altered.written().next().is_some()
                {
                    return Err(Failure::invalid(
                        "Cannot mix counter and non counter columns in the same table",
                    ));
                }
                match statics.contains(name) {
                    true => altered.statics.push(column),
                    false => altered.regular.push(column),
                }
            }
            if altered.columns().count() > COLUMNS_MAX {
                return Err(too_many());
            }
            altered.statics.sort_by(|a, b| a.name.cmp(&b.name));
            altered.regular.sort_by(|a, b| a.name.cmp(&b.name));
        }
    }
    Ok((altered != *table).then_some(Change::AlterTable { table: altered }))
}

/// Removes a column. Its number is never used again, so that its values do not come back with a
/// later column of the same name.
fn drop_column(
    table: &mut Table,
    name: &str,
    if_exists: bool,
    dropped_us: i64,
) -> Result<(), Failure> {
    let of_name = |columns: &[Column]| columns.iter().position(|column| column.name == name);
    let (column, is_static) = match (of_name(&table.regular), of_name(&table.statics)) {
        (Some(at), _) => (table.regular.remove(at), false),
        (_, Some(at)) => (table.statics.remove(at), true),
        (None, None) => {
            return match table.columns().any(|column| column.name == name) {
                true => Err(Failure::Invalid(format!("Cannot drop PRIMARY KEY column {name}"))),
                false if if_exists => Ok(()),
                false => Err(Failure::Invalid(format!(
                    "Column {name} was not found in table '{}.{}'",
                    table.keyspace, table.name
                ))),
            };
        }
    };
    table.dropped.retain(|dropped| dropped.column.name != name);
    table.dropped.push(DroppedColumn { column, is_static, dropped_us });
    table.dropped.sort_by(|a, b| a.column.name.cmp(&b.column.name));
    Ok(())
}

/// A new column, if its type allows one.
fn column(name: &str, kind: &Type, number: u16) -> Result<Column, Failure> {
    let kind = column_type(kind)?;
    Ok(Column { name: name.into(), kind, number, descending: false })
}

/// Refuses counters that expire.
fn check_lifetime(table: &Table) -> Result<(), Failure> {
    match table.has_counters() && table.options.default_time_to_live_s() > 0 {
        true => Err(Failure::invalid("Cannot set default_time_to_live on a table with counters")),
        false => Ok(()),
    }
}

fn static_without_clustering() -> Failure {
    Failure::invalid(
        "Static columns are only useful (and thus allowed) if the table has at least one \
         clustering column",
    )
}

fn too_many() -> Failure {
    Failure::Invalid(format!("more than {COLUMNS_MAX} columns are not supported"))
}

/// Refuses keyspaces of the system.
pub(crate) fn own(keyspace: &str) -> Result<(), Failure> {
    let system = system_schema::KEYSPACES.contains(&keyspace);
    let message = || format!("{keyspace} keyspace is not user-modifiable.");
    if system { Err(Failure::Unauthorized(message())) } else { Ok(()) }
}

pub(crate) fn missing_keyspace(keyspace: &str) -> Failure {
    Failure::Invalid(format!("Keyspace '{keyspace}' does not exist"))
}
