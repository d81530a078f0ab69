//! The schema: keyspaces and tables. A change copies it, so that shards read it without a lock.

pub(crate) mod journal;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use tare_cql::system_schema;
use tare_cql::types::Type;
use tare_std::rng::mix64;
use tare_store::cells;

use crate::query::failure::Failure;
use crate::query::options::TableOptions;
use journal::{Journal, JournalError};

/// A column. Its number is the one that the store uses: numbers count from `cells::FIRST_COLUMN` in
/// the order of declaration and are never used twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    #[serde(with = "type_name")]
    pub(crate) kind: Type,
    pub(crate) number: u16,
    /// For clustering columns only: the greatest value comes first.
    #[serde(default)]
    pub(crate) descending: bool,
}

/// A column that was dropped: only its last drop, if there were several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DroppedColumn {
    pub(crate) column: Column,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_static: bool,
    /// When it was dropped, in microseconds since the Unix epoch.
    pub(crate) dropped_us: i64,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) keyspace: String,
    pub(crate) name: String,
    /// The id by which drivers know the table.
    pub(crate) id: [u8; 16],
    /// The number by which the store knows the table's rows. A truncation assigns a new one.
    pub(crate) store: u32,
    pub(crate) partition: Vec<Column>,
    pub(crate) clustering: Vec<Column>,
    /// The static columns, by name: their values belong to a partition. The store has them in its
    /// row with an empty clustering key, which comes before all other rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) statics: Vec<Column>,
    /// The other columns, by name.
    pub(crate) regular: Vec<Column>,
    /// By name. Rows may still have values of these columns, which no statement can see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) dropped: Vec<DroppedColumn>,
    #[serde(default)]
    pub(crate) options: TableOptions,
}

impl Table {
    /// The columns in the order of `SELECT *`: partition key, clustering key, then static columns
    /// and the others, by name.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &Column> {
        self.partition.iter().chain(&self.clustering).chain(self.written())
    }

    /// The columns that are not part of the key.
    pub(crate) fn written(&self) -> impl Iterator<Item = &Column> {
        self.statics.iter().chain(&self.regular)
    }

    /// The number for the next column to be added.
    pub(crate) fn next_number(&self) -> Option<u16> {
        let dropped = self.dropped.iter().map(|dropped| &dropped.column);
        let all = self.columns().chain(dropped);
        let last = all.map(|column| column.number).max().unwrap_or(0);
        (last < cells::COLUMN_MAX).then_some(last + 1)
    }

    /// Whether a row exists that the store has found: not if all of its values are of columns that
    /// were dropped.
    #[inline]
    pub(crate) fn has_row(&self, cells: &[u8]) -> bool {
        self.dropped.is_empty() || self.has_columns(cells)
    }

    #[cold]
    fn has_columns(&self, cells: &[u8]) -> bool {
        cells::iter(cells).any(|cell| {
            cell.column == cells::MARKER
                || self.written().any(|column| column.number == cell.column)
        })
    }

    /// Whether the columns that are not part of the key are counters; then all of them are.
    pub(crate) fn has_counters(&self) -> bool {
        self.written().any(|column| column.kind == Type::Counter)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keyspace {
    /// The class and its options, as the statement gave them.
    pub(crate) replication: Vec<(String, String)>,
    pub(crate) durable_writes: bool,
    #[serde(skip)]
    pub(crate) tables: BTreeMap<String, Arc<Table>>,
}

/// A change of the schema, as the journal has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    CreateKeyspace { name: String, keyspace: Keyspace },
    AlterKeyspace { name: String, keyspace: Keyspace },
    DropKeyspace { name: String },
    CreateTable { table: Table },
    AlterTable { table: Table },
    DropTable { keyspace: String, name: String },
    Truncate { keyspace: String, name: String, store: u32 },
}

/// The schema at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    pub(crate) keyspaces: BTreeMap<String, Keyspace>,
    /// A hash of all changes so far. Equal versions mean equal schemas.
    pub(crate) version: [u8; 16],
    /// The next number for the rows of a table.
    pub(crate) next_store: u32,
}

impl Catalog {
    /// Whether a keyspace exists, one of clients or of the system.
    pub(crate) fn has_keyspace(&self, name: &str) -> bool {
        self.keyspaces.contains_key(name) || system_schema::KEYSPACES.contains(&name)
    }

    pub(crate) fn table(&self, keyspace: &str, table: &str) -> Option<&Arc<Table>> {
        self.keyspaces.get(keyspace)?.tables.get(table)
    }

    /// All tables of clients.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Table> {
        let tables = self.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        tables.map(|table| &**table)
    }

    /// The options of each table that the store needs, by the store's number of the table.
    pub(crate) fn options(&self) -> BTreeMap<u32, tare_store::TableOptions> {
        self.tables().map(|table| (table.store, table.options.of_store())).collect()
    }

    pub(crate) fn apply(&mut self, change: &Change, bytes: &[u8]) {
        match change {
            Change::CreateKeyspace { name, keyspace } => {
                self.keyspaces.insert(name.clone(), keyspace.clone());
            }
            Change::AlterKeyspace { name, keyspace } => {
                if let Some(known) = self.keyspaces.get_mut(name) {
                    let tables = std::mem::take(&mut known.tables);
                    *known = Keyspace { tables, ..keyspace.clone() };
                }
            }
            Change::DropKeyspace { name } => {
                self.keyspaces.remove(name);
            }
            Change::CreateTable { table } | Change::AlterTable { table } => {
                self.next_store = self.next_store.max(table.store + 1);
                if let Some(keyspace) = self.keyspaces.get_mut(&table.keyspace) {
                    keyspace.tables.insert(table.name.clone(), Arc::new(table.clone()));
                }
            }
            Change::DropTable { keyspace, name } => {
                if let Some(keyspace) = self.keyspaces.get_mut(keyspace) {
                    keyspace.tables.remove(name);
                }
            }
            Change::Truncate { keyspace, name, store } => {
                self.next_store = self.next_store.max(store + 1);
                let tables = self.keyspaces.get_mut(keyspace).map(|keyspace| &mut keyspace.tables);
                if let Some(table) = tables.and_then(|tables| tables.get_mut(name)) {
                    let truncated = Table { store: *store, ..Table::clone(table) };
                    *table = Arc::new(truncated);
                }
            }
        }
        // The rows of a table are no part of the schema.
        if !matches!(change, Change::Truncate { .. }) {
            self.version = hash_uuid(&[&self.version, bytes]);
        }
    }
}

/// A UUID (version 4 in form) that is a hash of its parts. It is no protection for secrets.
pub(crate) fn hash_uuid(parts: &[&[u8]]) -> [u8; 16] {
    let (mut high, mut low) = (0x7461_7265_2d64_6200u64, 0x9e37_79b9_7f4a_7c15u64);
    for part in parts {
        for word in part.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            high = mix64(high ^ u64::from_le_bytes(bytes));
            low = mix64(low.wrapping_add(high));
        }
        high = mix64(high ^ part.len() as u64);
    }
    let mut id = [0; 16];
    id[..8].copy_from_slice(&high.to_be_bytes());
    id[8..].copy_from_slice(&mix64(low ^ high).to_be_bytes());
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

/// The schema that all shards share.
#[derive(Debug)]
pub(crate) struct SharedCatalog {
    current: RwLock<Arc<Catalog>>,
    /// Number of changes. A shard compares it with the epoch of its copy.
    epoch: AtomicU64,
    journal: Mutex<Journal>,
}

impl SharedCatalog {
    /// Reads the journal.
    pub(crate) fn open(path: &Path) -> Result<Self, JournalError> {
        let mut catalog = Catalog::default();
        let journal = Journal::open(path, |change, bytes| catalog.apply(&change, bytes))?;
        let (current, epoch) = (RwLock::new(Arc::new(catalog)), AtomicU64::new(0));
        Ok(Self { current, epoch, journal: Mutex::new(journal) })
    }

    /// The number of changes since the start.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn current(&self) -> Arc<Catalog> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a change: `decide` chooses it while the schema is locked, or returns `None` if there
    /// is nothing to do. The change is journalled durably and then published. Returns whether there
    /// was one.
    pub(crate) fn change<E: From<JournalError>>(
        &self,
        decide: impl FnOnce(&Catalog) -> Result<Option<Change>, E>,
    ) -> Result<bool, E> {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let mut catalog = Catalog::clone(&self.current());
        let Some(change) = decide(&catalog)? else { return Ok(false) };
        let bytes = journal.append(&change)?;
        catalog.apply(&change, &bytes);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalog);
        self.epoch.fetch_add(1, Ordering::Release);
        Ok(true)
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        Self::Server(tare_std::error_line(&error))
    }
}

mod type_name {
    use serde::{Deserialize, Deserializer, Serializer};
    use tare_cql::types::Type;

    pub(super) fn serialize<S: Serializer>(kind: &Type, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(kind)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Type, D::Error> {
        let name = String::deserialize(from)?;
        let unknown = || serde::de::Error::custom(format!("{name:?} is no type of a column"));
        tare_cql::statement::parse_type(&name).map_err(|_| unknown())
    }
}

#[cfg(test)]
mod tests;
