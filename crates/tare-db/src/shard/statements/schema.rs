//! Runs statements that change or choose the schema.

use std::sync::Arc;

use tare_cql::frame::Version;
use tare_cql::response::{
    Change as Changed, Event, Reply, SchemaChange, SchemaTarget, encode_event,
    encode_schema_change, encode_set_keyspace, encode_void,
};
use tare_cql::statement::{Statement, TableName};

use crate::query::catalog::{Catalog, Change, Table};
use crate::query::describe;
use crate::query::failure::Failure;
use crate::query::planner::{qualified, user_table};
use crate::query::schema_change::{self as change, missing_keyspace, own};
use crate::query::warning;
use crate::shard::message::Message;
use crate::shard::{Conn, Shard};

impl Shard {
    /// Runs a statement that has no plan. `current` is the keyspace for names without one.
    pub(crate) fn schema_statement(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        statement: &Statement,
        current: Option<&str>,
    ) -> Result<(), Failure> {
        match statement {
            Statement::Use { keyspace } => {
                if !self.schema.catalog.has_keyspace(keyspace) {
                    return Err(missing_keyspace(keyspace));
                }
                conn.keyspace = Some(keyspace.as_str().into());
                encode_set_keyspace(&mut conn.out, reply, keyspace);
                Ok(())
            }
            Statement::CreateKeyspace(create) => {
                let target = SchemaTarget::Keyspace { keyspace: &create.keyspace };
                let decide = |catalog: &Catalog| change::create_keyspace(catalog, create);
                self.change(conn, reply, Changed::Created, target, decide)
            }
            Statement::AlterKeyspace(alter) => {
                let target = SchemaTarget::Keyspace { keyspace: &alter.keyspace };
                let decide = |catalog: &Catalog| change::alter_keyspace(catalog, alter);
                self.change(conn, reply, Changed::Updated, target, decide)
            }
            Statement::DropKeyspace { keyspace, if_exists } => {
                let target = SchemaTarget::Keyspace { keyspace };
                let decide = |catalog: &Catalog| {
                    own(keyspace)?;
                    match catalog.keyspaces.contains_key(keyspace) {
                        true => Ok(Some(Change::DropKeyspace { name: keyspace.clone() })),
                        false if *if_exists => Ok(None),
                        false => Err(Failure::Config(format!(
                            "Cannot drop non existing keyspace '{keyspace}'."
                        ))),
                    }
                };
                self.change(conn, reply, Changed::Dropped, target, decide)
            }
            Statement::CreateTable(create) => {
                let (keyspace, table) = qualified(current, &create.table)?;
                let target = SchemaTarget::Table { keyspace, table };
                let decide = |catalog: &Catalog| change::create_table(catalog, keyspace, create);
                self.change(conn, reply, Changed::Created, target, decide)
            }
            Statement::AlterTable(alter) => {
                let (keyspace, table) = qualified(current, &alter.table)?;
                let target = SchemaTarget::Table { keyspace, table };
                let now_us = self.timestamp();
                let decide = |catalog: &Catalog| {
                    if alter.if_exists && catalog.table(keyspace, table).is_none() {
                        return Ok(None);
                    }
                    let table = existing(catalog, current, &alter.table)?;
                    change::alter_table(&table, &alter.change, now_us)
                };
                self.change(conn, reply, Changed::Updated, target, decide)
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
                self.shared.catalog.change(|catalog: &Catalog| {
                    let table = existing(catalog, current, name)?;
                    let (keyspace, name) = (table.keyspace.clone(), table.name.clone());
                    let store = catalog.next_store;
                    Ok::<_, Failure>(Some(Change::Truncate { keyspace, name, store }))
                })?;
                self.refresh();
                encode_void(&mut conn.out, reply);
                Ok(())
            }
            Statement::Describe(statement) => {
                let address = self.shared.node.address.ip();
                let catalog = &self.schema.catalog;
                describe::answer(&mut conn.out, reply, (statement, current), catalog, address)
            }
            Statement::Modify(_) | Statement::Batch(_) | Statement::Select(_) => {
                unreachable!("these have plans")
            }
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
        if !self.shared.catalog.change(decide)? {
            encode_void(&mut conn.out, reply);
            return Ok(());
        }
        self.refresh();
        let change = SchemaChange { change, target };
        let offset = conn.out.len();
        encode_schema_change(&mut conn.out, reply, &change);
        if let SchemaTarget::Keyspace { keyspace: name } = target
            && let Some(keyspace) = self.schema.catalog.keyspaces.get(name)
        {
            warning::put(&mut conn.out, offset, &warning::of_keyspace(name, keyspace));
        }
        let mut frame = Vec::new();
        encode_event(&mut frame, Version::V4, &Event::Schema(change));
        if conn.wants_schema_events {
            conn.push_frame(&frame);
        }
        self.connections.push_schema_event(&frame);
        let frame: Arc<[u8]> = frame.into();
        for shard in 0..self.shared.mailboxes.len() {
            if shard == self.number {
                continue;
            }
            self.post(shard, Message::SchemaEvent(Arc::clone(&frame)));
        }
        Ok(())
    }
}

/// A table that statements may change.
fn existing(
    catalog: &Catalog,
    current: Option<&str>,
    name: &TableName,
) -> Result<Arc<Table>, Failure> {
    let (keyspace, _) = qualified(current, name)?;
    own(keyspace)?;
    user_table(catalog, current, name)
}
