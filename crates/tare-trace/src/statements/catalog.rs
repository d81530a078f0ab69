//! The first reading of a capture: its tables, their keys and types, its prepared statements.
//!
//! The types come from answers to PREPARE and from rows of `system_schema.columns`, which most
//! drivers read when they connect; the rows also say which columns are the key's.

use std::collections::{BTreeMap, HashMap};

use tare_cql::request::Request;
use tare_cql::response::{Prepared, Response, Rows};
use tare_cql::statement::{Term, parse_type};
use tare_cql::system_schema::ColumnKind;
use tare_cql::types::{Literal, Type};

use crate::cql::Message;
use crate::statements::shape::{Bound, Form, Key, Statement, TableId, statement};
use crate::walk::{self, Event};

/// The most statements that are kept.
const STATEMENTS_MAX: usize = 100_000;
/// The most requests whose answers are awaited.
const PENDING_MAX: usize = 1 << 20;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchemaColumn {
    pub(crate) name: String,
    pub(crate) kind: Type,
    pub(crate) role: ColumnKind,
    pub(crate) position: i32,
}

/// What a capture says about one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// From `system_schema.columns`.
    schema: Vec<SchemaColumn>,
    /// The columns that form the partition key, from answers to PREPARE.
    partition: Vec<String>,
    /// Columns that were compared for equality, in the order of their appearance.
    compared: Vec<String>,
    pub(crate) types: BTreeMap<String, Type>,
    /// Statements on the table.
    uses: u64,
}

/// The tables and statements of a capture.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) tables: BTreeMap<TableId, Table>,
    pub(crate) prepared: HashMap<Vec<u8>, Statement>,
    executed: HashMap<Vec<u8>, u64>,
    pending: HashMap<(usize, i16), Pending>,
    keyspaces: Keyspaces,
    has_unknown: bool,
}

/// The keyspaces that connections use.
#[derive(Debug, Default)]
pub(crate) struct Keyspaces(HashMap<usize, String>);

impl Keyspaces {
    pub(crate) fn of(&self, connection: usize) -> Option<&str> {
        self.0.get(&connection).map(String::as_str)
    }

    pub(crate) fn note(&mut self, connection: usize, response: &Response<'_>) {
        if let Response::SetKeyspace { keyspace } = response {
            self.0.insert(connection, (*keyspace).into());
        }
    }
}

#[derive(Debug)]
enum Pending {
    Prepare(Statement),
    /// A read of `system_schema.columns`, with what its WHERE names.
    Columns {
        keyspace: Option<String>,
        table: Option<String>,
    },
}

impl Catalog {
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let walk::Message::Cql(message) = &event.message else { return };
        match message {
            Message::Request { stream, request } => {
                self.request(event.connection, *stream, request)
            }
            Message::Response { stream, response } => {
                self.keyspaces.note(event.connection, response);
                self.response((event.connection, *stream), response);
            }
            Message::Unreadable { .. } => {}
        }
    }

    fn request(&mut self, connection: usize, stream: i16, request: &Request<'_>) {
        let pending = match request {
            Request::Prepare { statement: text, keyspace } => {
                let keyspace = keyspace.or(self.keyspaces.of(connection));
                Some(Pending::Prepare(statement(text, keyspace)))
            }
            Request::Query { statement: text, .. } => {
                let found = statement(text, self.keyspaces.of(connection));
                self.used(&found, 1);
                schema_query(&found)
            }
            Request::Execute { id, .. } => {
                self.count(id);
                self.prepared.get(*id).and_then(schema_query)
            }
            Request::Batch(batch) => {
                for item in batch.items() {
                    match item.statement {
                        tare_cql::request::BatchStatement::Prepared(id) => self.count(id),
                        tare_cql::request::BatchStatement::Text(text) => {
                            let found = statement(text, self.keyspaces.of(connection));
                            self.used(&found, 1);
                        }
                    }
                }
                None
            }
            _ => None,
        };
        match pending {
            Some(pending) if self.pending.len() < PENDING_MAX => {
                self.pending.insert((connection, stream), pending);
            }
            _ => {
                self.pending.remove(&(connection, stream));
            }
        }
    }

    fn count(&mut self, id: &[u8]) {
        if let Some(count) = self.executed.get_mut(id) {
            *count += 1;
        } else if self.executed.len() < STATEMENTS_MAX {
            self.executed.insert(id.to_vec(), 1);
        }
    }

    /// Notes a statement on a table.
    fn used(&mut self, statement: &Statement, times: u64) {
        let Some(id) = &statement.table else { return };
        let table = self.tables.entry(id.clone()).or_default();
        table.uses += times;
        for (name, _) in statement.compared() {
            if !table.compared.contains(name) && !matches!(statement.form, Form::Refused(_)) {
                table.compared.push(name.clone());
            }
        }
    }

    fn response(&mut self, key: (usize, i16), response: &Response<'_>) {
        match (self.pending.remove(&key), response) {
            (Some(Pending::Prepare(statement)), Response::Prepared(prepared)) => {
                self.prepared(statement, prepared);
            }
            (Some(Pending::Columns { keyspace, table }), Response::Rows(rows)) => {
                for (id, column) in schema_columns(rows, keyspace.as_deref(), table.as_deref()) {
                    self.tables.entry(id).or_default().schema_column(column);
                }
            }
            _ => {}
        }
    }

    fn prepared(&mut self, mut statement: Statement, prepared: &Prepared<'_>) {
        let markers: Vec<_> = prepared.markers.columns.into_iter().flatten().collect();
        let result: Vec<_> = prepared.result.columns.into_iter().flatten().collect();
        if let (None, Some(column)) = (&statement.table, markers.first().or(result.first())) {
            let (keyspace, table) = (column.keyspace.into(), column.table.into());
            statement.table = Some(TableId { keyspace, table });
        }
        if !result.is_empty() {
            statement.result = result.iter().map(|column| column.name.into()).collect();
        }
        if let Some(id) = &statement.table {
            let table = self.tables.entry(id.clone()).or_default();
            for column in markers.iter().chain(&result) {
                table.types.entry(column.name.into()).or_insert_with(|| column.kind.clone());
            }
            let key = prepared.partition_key.iter();
            let key: Option<Vec<String>> = key
                .map(|place| markers.get(usize::from(*place)).map(|column| column.name.into()))
                .collect();
            if let Some(key) = key.filter(|key| !key.is_empty()) {
                table.partition = key;
            }
        }
        self.used(&statement, 0);
        if self.prepared.len() < STATEMENTS_MAX {
            self.prepared.insert(prepared.id.to_vec(), statement);
        }
    }

    /// Whether the capture has executions of statements that it does not have.
    pub(crate) fn has_unknown(&self) -> bool {
        self.has_unknown
    }

    /// Returns the table with the most statements, other than those of the server itself.
    pub(crate) fn main_table(&mut self) -> Option<TableId> {
        for (id, count) in std::mem::take(&mut self.executed) {
            self.has_unknown |= !self.prepared.contains_key(&id);
            if let Some(table) = self.prepared.get(&id).and_then(|known| known.table.as_ref())
                && let Some(table) = self.tables.get_mut(table)
            {
                table.uses += count;
            }
        }
        let used = self.tables.iter().filter(|(id, table)| !id.is_system() && table.uses > 0);
        used.max_by_key(|(_, table)| table.uses).map(|(id, _)| id.clone())
    }
}

impl Table {
    pub(crate) fn schema_column(&mut self, column: SchemaColumn) {
        self.types.insert(column.name.clone(), column.kind.clone());
        if !self.schema.iter().any(|known| known.name == column.name) {
            self.schema.push(column);
        }
    }

    /// Returns the primary key; without the schema, the clustering columns are those that were
    /// compared for equality and are not the partition's.
    pub(crate) fn key(&self) -> Key {
        let of_role = |role: ColumnKind| -> Vec<String> {
            let mut columns: Vec<_> = self.schema.iter().filter(|one| one.role == role).collect();
            columns.sort_by_key(|column| column.position);
            columns.into_iter().map(|column| column.name.clone()).collect()
        };
        let partition = of_role(ColumnKind::PartitionKey);
        if !partition.is_empty() {
            return Key { partition, clustering: of_role(ColumnKind::Clustering) };
        }
        let others = self.compared.iter().filter(|name| !self.partition.contains(name));
        let clustering = match self.partition.is_empty() {
            true => Vec::new(),
            false => others.cloned().collect(),
        };
        Key { partition: self.partition.clone(), clustering }
    }

    /// Whether the key is that of the schema.
    pub(crate) fn has_schema(&self) -> bool {
        self.schema.iter().any(|column| column.role == ColumnKind::PartitionKey)
    }

    /// Returns the columns of the schema outside the key.
    pub(crate) fn others(&self) -> impl Iterator<Item = (&str, &Type)> {
        let is_key = |role| matches!(role, ColumnKind::PartitionKey | ColumnKind::Clustering);
        let others = self.schema.iter().filter(move |column| !is_key(column.role));
        others.map(|column| (column.name.as_str(), &column.kind))
    }

    pub(crate) fn is_static(&self, name: &str) -> bool {
        self.schema.iter().any(|column| column.name == name && column.role == ColumnKind::Static)
    }
}

/// Returns what a read of `system_schema.columns` asks for.
fn schema_query(statement: &Statement) -> Option<Pending> {
    let table = statement.table.as_ref()?;
    if table.keyspace != "system_schema" || table.table != "columns" {
        return None;
    }
    let Form::Select { equal, .. } = &statement.form else { return None };
    let text = |name: &str| {
        let (_, term): &Bound = equal.iter().find(|(known, _)| known == name)?;
        match term {
            Term::Literal(Literal::Text(text)) => Some(text.clone()),
            _ => None,
        }
    };
    Some(Pending::Columns { keyspace: text("keyspace_name"), table: text("table_name") })
}

/// Reads rows of `system_schema.columns`. What the rows do not name is that of the query.
pub(crate) fn schema_columns(
    rows: &Rows<'_>,
    keyspace: Option<&str>,
    table: Option<&str>,
) -> Vec<(TableId, SchemaColumn)> {
    let Some(columns) = rows.metadata.columns else { return Vec::new() };
    let names: Vec<&str> = columns.map(|column| column.name).collect();
    let row = |cells: Vec<Option<&[u8]>>| {
        let cell = |name: &str| {
            let place = names.iter().position(|known| *known == name)?;
            cells.get(place).copied().flatten()
        };
        let text = |name: &str| String::from_utf8(cell(name)?.to_vec()).ok();
        let keyspace = text("keyspace_name").or_else(|| keyspace.map(String::from))?;
        let table = text("table_name").or_else(|| table.map(String::from))?;
        let role = ColumnKind::from_name(&text("kind")?).unwrap_or(ColumnKind::Regular);
        let position = i32::from_be_bytes(cell("position")?.try_into().ok()?);
        let kind = text("type")?;
        let kind = parse_type(&kind).unwrap_or(Type::Custom(kind));
        let column = SchemaColumn { name: text("column_name")?, kind, role, position };
        Some((TableId { keyspace, table }, column))
    };
    rows.iter().filter_map(|one| row(one.cells().collect())).collect()
}
