//! Statements that change or choose the schema.

use std::sync::Arc;

use tare_cql::frame::Version;
use tare_cql::response::{
    Change as Changed, Event, Reply, SchemaChange, SchemaTarget, encode_event,
    encode_schema_change, encode_set_keyspace, encode_void,
};
use tare_cql::statement::{CreateKeyspace, CreateTable, Literal, Order, Statement, TableName};
use tare_cql::system_schema;
use tare_cql::types::Type;
use tare_store::cells::FIRST_COLUMN;

use crate::catalog::{Catalog, Change, Column, Keyspace, Table, hash_uuid};
use crate::failure::Failure;
use crate::message::Message;
use crate::ordered;
use crate::planner::{qualified, user_table};
use crate::shard::{Conn, Shard};

/// Columns of one table at most.
const COLUMNS_MAX: usize = 4096;

impl Shard {
    /// Runs a statement that is neither INSERT nor SELECT.
    pub(crate) fn schema_statement(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        statement: &Statement,
    ) -> Result<(), Failure> {
        let current = conn.keyspace.clone();
        let current = current.as_deref();
        match statement {
            Statement::Use { keyspace } => {
                if !self.state.catalog.keyspaces.contains_key(keyspace)
                    && !system_schema::KEYSPACES.contains(&keyspace.as_str())
                {
                    let message = format!("keyspace {keyspace} does not exist");
                    return Err(Failure::Invalid(message));
                }
                conn.keyspace = Some(keyspace.as_str().into());
                encode_set_keyspace(&mut conn.out, reply, keyspace);
                Ok(())
            }
            Statement::CreateKeyspace(create) => {
                let target = SchemaTarget::Keyspace { keyspace: &create.keyspace };
                let decide = |catalog: &Catalog| create_keyspace(catalog, create);
                self.change(conn, reply, Changed::Created, target, decide)
            }
            Statement::DropKeyspace { keyspace, if_exists } => {
                let target = SchemaTarget::Keyspace { keyspace };
                let decide = |catalog: &Catalog| {
                    own(keyspace)?;
                    match catalog.keyspaces.contains_key(keyspace) {
                        true => Ok(Some(Change::DropKeyspace { name: keyspace.clone() })),
                        false if *if_exists => Ok(None),
                        false => {
                            Err(Failure::Invalid(format!("keyspace {keyspace} does not exist")))
                        }
                    }
                };
                self.change(conn, reply, Changed::Dropped, target, decide)
            }
            Statement::CreateTable(create) => {
                let (keyspace, table) = qualified(current, &create.table)?;
                let target = SchemaTarget::Table { keyspace, table };
                let decide = |catalog: &Catalog| create_table(catalog, keyspace, create);
                self.change(conn, reply, Changed::Created, target, decide)
            }
            Statement::DropTable { table: name, if_exists } => {
                let (keyspace, table) = qualified(current, name)?;
                let target = SchemaTarget::Table { keyspace, table };
                let decide = |catalog: &Catalog| {
                    if *if_exists && catalog.table(keyspace, table).is_none() {
                        return Ok(None);
                    }
                    let table = existing(catalog, current, name)?;
                    let (keyspace, name) = (table.keyspace.clone(), table.name.clone());
                    Ok(Some(Change::DropTable { keyspace, name }))
                };
                self.change(conn, reply, Changed::Dropped, target, decide)
            }
            Statement::Truncate { table: name } => {
                self.common.schema.change(|catalog: &Catalog| {
                    let table = existing(catalog, current, name)?;
                    let (keyspace, name) = (table.keyspace.clone(), table.name.clone());
                    let store = catalog.next_store;
                    Ok::<_, Failure>(Some(Change::Truncate { keyspace, name, store }))
                })?;
                self.refresh();
                encode_void(&mut conn.out, reply);
                Ok(())
            }
            Statement::Insert(_) | Statement::Select(_) => unreachable!("these have plans"),
        }
    }

    fn change(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        change: Changed,
        target: SchemaTarget<'_>,
        decide: impl FnOnce(&Catalog) -> Result<Option<Change>, Failure>,
    ) -> Result<(), Failure> {
        if !self.common.schema.change(decide)? {
            encode_void(&mut conn.out, reply);
            return Ok(());
        }
        self.refresh();
        let change = SchemaChange { change, target };
        encode_schema_change(&mut conn.out, reply, &change);
        let mut frame = Vec::new();
        encode_event(&mut frame, Version::V4, &Event::Schema(change));
        if conn.wants_schema_events {
            conn.out.extend_from_slice(&frame);
        }
        self.tell_schema_event(&frame);
        let frame: Arc<[u8]> = frame.into();
        for shard in 0..self.common.mailboxes.len() {
            if shard == self.number {
                continue;
            }
            self.post(shard, Message::SchemaEvent(Arc::clone(&frame)));
        }
        Ok(())
    }
}

/// A table that may be changed.
fn existing(
    catalog: &Catalog,
    current: Option<&str>,
    name: &TableName,
) -> Result<Arc<Table>, Failure> {
    let (keyspace, _) = qualified(current, name)?;
    own(keyspace)?;
    user_table(catalog, current, name)
}

/// Refuses the system's keyspaces.
fn own(keyspace: &str) -> Result<(), Failure> {
    let system = system_schema::KEYSPACES.contains(&keyspace);
    let message =
        || format!("keyspace {keyspace} belongs to the system and is not user-modifiable");
    if system { Err(Failure::Invalid(message())) } else { Ok(()) }
}

fn create_keyspace(catalog: &Catalog, create: &CreateKeyspace) -> Result<Option<Change>, Failure> {
    let name = create.keyspace.clone();
    own(&name)?;
    if catalog.keyspaces.contains_key(&name) {
        return match create.if_not_exists {
            true => Ok(None),
            false => Err(Failure::AlreadyExists { keyspace: name, table: String::new() }),
        };
    }
    let mut keyspace = Keyspace { durable_writes: true, ..Keyspace::default() };
    for (option, value) in &create.options {
        match (option.as_str(), value) {
            ("durable_writes", Literal::Boolean(durable)) => keyspace.durable_writes = *durable,
            ("replication", Literal::Map(entries)) => {
                for (key, value) in entries {
                    keyspace.replication.push((word(key)?, word(value)?));
                }
            }
            // Scylla's, which its drivers may send: there are no tablets here.
            ("tablets", _) => {}
            (option, _) => {
                return Err(Failure::Invalid(format!("keyspace option {option} is not supported")));
            }
        }
    }
    for (key, value) in &mut keyspace.replication {
        // Drivers know strategies by their Java class.
        if key == "class" && !value.contains('.') {
            *value = format!("org.apache.cassandra.locator.{value}");
        }
    }
    Ok(Some(Change::CreateKeyspace { name, keyspace }))
}

fn word(literal: &Literal) -> Result<String, Failure> {
    match literal {
        Literal::Text(text) => Ok(text.clone()),
        Literal::Integer(number) => Ok(number.to_string()),
        _ => Err(Failure::invalid("replication is a map of texts and numbers")),
    }
}

fn create_table(
    catalog: &Catalog,
    keyspace: &str,
    create: &CreateTable,
) -> Result<Option<Change>, Failure> {
    own(keyspace)?;
    let name = create.table.table.clone();
    let Some(home) = catalog.keyspaces.get(keyspace) else {
        return Err(Failure::Invalid(format!("keyspace {keyspace} does not exist")));
    };
    if home.tables.contains_key(&name) {
        return match create.if_not_exists {
            true => Ok(None),
            false => Err(Failure::AlreadyExists { keyspace: keyspace.into(), table: name }),
        };
    }
    if create.columns.len() > COLUMNS_MAX {
        return Err(Failure::Invalid(format!("more than {COLUMNS_MAX} columns are not supported")));
    }
    let mut columns: Vec<Column> = Vec::new();
    for (number, (name, kind)) in (FIRST_COLUMN..).zip(&create.columns) {
        if Type::scalar(&kind.to_string()).is_none() || *kind == Type::Counter {
            let message = format!("column {name}: the type {kind} is not supported");
            return Err(Failure::Invalid(message));
        }
        if columns.iter().any(|known| known.name == *name) {
            return Err(Failure::Invalid(format!("the column {name} is defined twice")));
        }
        let kind = kind.clone();
        columns.push(Column { name: name.clone(), kind, number, descending: false });
    }
    let mut take = |name: &str| {
        let at = columns.iter().position(|column| column.name == name);
        let unknown = || Failure::Invalid(format!("unknown or repeated column {name} in the key"));
        Ok::<_, Failure>(columns.remove(at.ok_or_else(unknown)?))
    };
    let partition = create.partition_key.iter().map(|name| take(name));
    let partition = partition.collect::<Result<Vec<_>, _>>()?;
    let mut clustering = Vec::new();
    for (name, order) in &create.clustering {
        let column = Column { descending: *order == Order::Descending, ..take(name)? };
        if !ordered::is_orderable(&column.kind) {
            let message = format!(
                "clustering column {name}: the type {} is not supported there",
                column.kind
            );
            return Err(Failure::Invalid(message));
        }
        clustering.push(column);
    }
    if partition.is_empty() {
        return Err(Failure::invalid("no PRIMARY KEY was given"));
    }
    columns.sort_by(|a, b| a.name.cmp(&b.name));
    let store = catalog.next_store;
    let id = hash_uuid(&[keyspace.as_bytes(), name.as_bytes(), &store.to_le_bytes()]);
    let keyspace = keyspace.to_string();
    let table = Table { keyspace, name, id, store, partition, clustering, regular: columns };
    Ok(Some(Change::CreateTable { table }))
}
