//! The names of a table's columns, for printing bytes as values.

use std::path::Path;
use std::sync::Arc;

use tare_cql::types::Type;
use tare_store::cells::Cell;

use crate::JournalError;
use crate::query::catalog::journal;
use crate::query::catalog::{Catalog, Column, Table};
use crate::query::key_encoding;
use crate::query::read_task::key_component;

/// The table whose rows are printed. Without a schema, everything is printed as bytes.
#[derive(Debug, Default)]
pub(super) struct SchemaNames {
    table: Option<Arc<Table>>,
}

impl SchemaNames {
    /// Finds a table by its number in the schema of the data directory that contains the table
    /// file. A file outside a data directory has no schema, and a dropped table has no names.
    pub(super) fn find(file: &Path, store: u32) -> Result<Self, JournalError> {
        let journal = file.parent().and_then(Path::parent).map(|data| data.join("schema.log"));
        let Some(journal) = journal.filter(|journal| journal.is_file()) else {
            return Ok(Self::default());
        };
        let mut catalog = Catalog::default();
        journal::read(&journal, |change, bytes| catalog.apply(&change, bytes))?;
        let mut tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        Ok(Self { table: tables.find(|table| table.store == store).cloned() })
    }

    /// Whether the row without a clustering key has the static columns.
    pub(super) fn has_statics(&self) -> bool {
        self.table.as_ref().is_some_and(|table| !table.statics.is_empty())
    }

    /// Keyspace and table.
    pub(super) fn table(&self) -> Option<String> {
        self.table.as_ref().map(|table| format!("{}.{}", table.keyspace, table.name))
    }

    /// Names and values of the partition key.
    pub(super) fn key(&self, key: &[u8]) -> Vec<(String, String)> {
        let Some(table) = &self.table else { return vec![("key".into(), blob(key))] };
        let composite = table.partition.len() > 1;
        let named = table.partition.iter().enumerate().map(|(index, column)| {
            let value = key_component(key, composite, index);
            (column.name.clone(), value.map_or_else(|| blob(key), |value| print(column, value)))
        });
        named.collect()
    }

    /// Names and values of a clustering key, or of its first components if it is the bound of a
    /// range. An incomplete component is printed as bytes.
    pub(super) fn clustering(&self, mut key: &[u8]) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for column in self.table.iter().flat_map(|table| &table.clustering) {
            let mut value = Vec::new();
            if !key_encoding::component(&mut value, &column.kind, column.descending, key) {
                break;
            }
            found.push((column.name.clone(), print(column, &value)));
            key = key_encoding::skip(&column.kind, column.descending, key).unwrap_or_default();
        }
        if !key.is_empty() {
            found.push(("clustering".into(), blob(key)));
        }
        found
    }

    /// Name of a column.
    pub(super) fn column(&self, number: u16) -> String {
        let found = self.regular(number).map(|column| column.name.clone());
        found.unwrap_or_else(|| format!("column {number}"))
    }

    /// The value of a cell.
    pub(super) fn value(&self, cell: &Cell<'_>, value: &[u8]) -> String {
        match (self.regular(cell.column).map(|column| &column.kind), cell.path) {
            (Some(Type::List(kind) | Type::Map(_, kind)), Some(_)) => kind.print(value).to_string(),
            (Some(kind), None) => kind.print(value).to_string(),
            _ => blob(value),
        }
    }

    /// The path of an element: the element of a set, the key of a map, the time UUID in a list.
    pub(super) fn element(&self, number: u16, path: &[u8]) -> String {
        let kind = match self.regular(number).map(|column| &column.kind) {
            Some(Type::Set(kind) | Type::Map(kind, _)) => kind,
            Some(Type::List(_)) => &Type::Timeuuid,
            _ => return blob(path),
        };
        let mut key = Vec::new();
        match key_encoding::component(&mut key, kind, false, path) {
            true => kind.print(&key).to_string(),
            false => blob(path),
        }
    }

    fn regular(&self, number: u16) -> Option<&Column> {
        self.table.as_ref()?.written().find(|column| column.number == number)
    }
}

fn print(column: &Column, value: &[u8]) -> String {
    column.kind.print(value).to_string()
}

/// Bytes in the form of a CQL blob.
fn blob(bytes: &[u8]) -> String {
    Type::Blob.print(bytes).to_string()
}
