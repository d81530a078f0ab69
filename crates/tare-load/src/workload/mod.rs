//! Workloads without their timing: a table, its number of rows, and queries with weights. `parse`
//! reads them from TOML, `shipped` has those that come with the program.

pub(crate) mod column;
pub mod keys;
pub(crate) mod operation;
mod parse;
pub mod rows;
pub(crate) mod schema;
pub mod shipped;
pub(crate) mod table;
pub mod value;
pub(crate) mod versions;

use tare_cql::types::Type;
use tare_cql::wire::Consistency;

use crate::workload::column::{Column, Verdict, row_start};
use crate::workload::keys::Keys;
use crate::workload::rows::{KeyType, Shape, ShapeError};
use crate::workload::table::Table;
use crate::workload::value::Distribution;

pub use parse::{has_size, is_name, parse};
pub use schema::{PrimaryKey, TableDifference};

/// What keys begin with, unless a workload has a prefix of its own.
const KEY_PREFIX: &str = "tare:";

/// A table and the queries on it. Its rows are a pure function of a seed and their number.
///
/// ```
/// use tare_load::workload::shipped;
///
/// let workload = shipped::find("ycsb-a").expect("it ships").read()?;
/// assert_eq!(workload.query_names(), ["read", "update"]);
/// let mut cells = Vec::new();
/// workload.append_cells(1, 42, 0, &mut cells);
/// assert!(workload.is_row(1, 42, cells.iter().map(Vec::as_slice)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    pub name: String,
    /// One line.
    pub title: String,
    pub table: Table,
    /// The number of rows before the load, from which keys are drawn.
    pub rows: u64,
    pub queries: Vec<Query>,
    /// How many replicas answer an operation.
    pub consistency: Consistency,
    /// All statements of the queries; the first one fills the table.
    statements: Vec<String>,
    /// What the keys of rows begin with, where rows are the values of keys.
    pub(crate) key_prefix: String,
}

/// One kind of operation in a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub name: String,
    pub kind: QueryKind,
    /// Its weight; its share of the operations is this over the sum of all weights.
    pub weight: f64,
    pub keys: Keys,
    /// The share of operations that ask for an absent row, 0 to 1.
    pub misses: f64,
    /// How many rows a slice or a scan reads.
    pub limit: Distribution,
    /// How many columns an update writes.
    pub(crate) columns: usize,
    /// The index of its reading statement, and of its first writing one.
    pub(crate) read: usize,
    pub(crate) write: usize,
    /// The number of writing statements: one for each column that an update may begin at.
    pub(crate) choices: usize,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueryKind {
    /// Writes a whole existing row.
    Write,
    /// Writes a new row behind the last one.
    Insert,
    /// Writes some columns.
    Update,
    /// Reads a row by its key.
    Read,
    /// Reads rows of a partition, from one of them on.
    Slice,
    /// Reads rows in the order of the ring, from a partition's token on.
    Scan,
    /// Deletes a row.
    Delete,
    /// Reads a row, then writes it, as one operation.
    ReadModifyWrite,
}

impl QueryKind {
    pub const ALL: [(&'static str, Self); 8] = [
        ("write", Self::Write),
        ("insert", Self::Insert),
        ("update", Self::Update),
        ("read", Self::Read),
        ("slice", Self::Slice),
        ("scan", Self::Scan),
        ("delete", Self::Delete),
        ("read-modify-write", Self::ReadModifyWrite),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Slice | Self::Scan | Self::ReadModifyWrite)
    }

    /// Whether it reads several rows, up to a limit.
    pub fn reads_many(self) -> bool {
        matches!(self, Self::Slice | Self::Scan)
    }
}

impl Query {
    /// Returns a query of whole rows without misses.
    pub fn new(kind: QueryKind, weight: f64, keys: Keys) -> Self {
        Self {
            name: kind.name().into(),
            kind,
            weight,
            keys,
            misses: 0.0,
            limit: Distribution::Fixed(1),
            columns: 0,
            read: 0,
            write: 0,
            choices: 1,
        }
    }
}

impl Workload {
    pub(crate) fn new(
        name: String,
        title: String,
        table: Table,
        rows: u64,
        queries: Vec<Query>,
    ) -> Self {
        let statements = vec![table.insert()];
        let consistency = Consistency::One;
        let key_prefix = KEY_PREFIX.to_string();
        let mut workload =
            Self { name, title, table, rows, queries, consistency, statements, key_prefix };
        workload.number_statements();
        workload
    }

    /// Returns reads and writes of whole rows by key on a table with `columns` blobs of one size.
    /// Studies use it.
    ///
    /// # Errors
    /// If rows cannot have this shape.
    pub fn plain(
        shape: Shape,
        rows: u64,
        write_share: f64,
        keys: Keys,
    ) -> Result<Self, ShapeError> {
        let table = Table::of_shape(shape)?;
        let query = |kind, weight| Query::new(kind, weight, keys);
        let queries =
            vec![query(QueryKind::Read, 1.0 - write_share), query(QueryKind::Write, write_share)];
        Ok(Self::new("load".into(), String::new(), table, rows, queries))
    }

    /// Returns the names of the queries, by which results and logs tell operations apart.
    pub fn query_names(&self) -> Vec<&str> {
        self.queries.iter().map(|query| query.name.as_str()).collect()
    }

    /// Returns the statements that operations execute, by position.
    pub fn statements(&self) -> &[String] {
        &self.statements
    }

    /// Returns the workload with its rows in this keyspace, or under keys that begin with it and a
    /// colon.
    #[must_use]
    pub fn within(self, keyspace: &str) -> Self {
        let Self { name, title, mut table, rows, queries, consistency, .. } = self;
        table.keyspace = keyspace.into();
        let key_prefix = format!("{keyspace}:");
        Self { consistency, key_prefix, ..Self::new(name, title, table, rows, queries) }
    }

    /// Returns whether an operation can write.
    pub fn writes(&self) -> bool {
        let only_reads = [QueryKind::Read, QueryKind::Slice, QueryKind::Scan];
        let writes = |query: &&Query| query.weight > 0.0 && !only_reads.contains(&query.kind);
        self.queries.iter().any(|query| writes(&query))
    }

    /// Sets how often each row is stored in a keyspace that the load creates, and how many replicas
    /// answer: a consistency level of CQL in lower case, such as `quorum`. Returns false for an
    /// unknown level.
    pub fn set_replicas(&mut self, replication: u32, consistency: &str) -> bool {
        self.table.replication = replication;
        let level = match consistency {
            "one" => Consistency::One,
            "two" => Consistency::Two,
            "three" => Consistency::Three,
            "quorum" => Consistency::Quorum,
            "all" => Consistency::All,
            "local_one" => Consistency::LocalOne,
            "local_quorum" => Consistency::LocalQuorum,
            _ => return false,
        };
        self.consistency = level;
        true
    }

    /// Sets the number of rows.
    ///
    /// # Errors
    /// If the key columns do not have so many values.
    pub fn set_rows(&mut self, rows: u64) -> Result<(), RowsError> {
        let most = self.table.rows_most();
        if rows > most {
            return Err(RowsError { rows, table: self.table.full_name(), most });
        }
        self.rows = rows;
        Ok(())
    }

    /// Sets how all queries draw their keys, except those of new rows.
    pub fn set_keys(&mut self, keys: Keys) {
        self.queries.iter_mut().for_each(|query| query.keys = keys);
    }

    /// Appends the values of a row's columns in a version, without the key.
    #[inline]
    pub fn append_row(&self, seed: u64, row: u64, version: u64, out: &mut Vec<u8>) {
        let start = row_start(seed, row);
        self.table.columns.iter().for_each(|column| column.put(start, version, out));
    }

    /// Appends the same values as cells, one for each column.
    pub fn append_cells(&self, seed: u64, row: u64, version: u64, cells: &mut Vec<Vec<u8>>) {
        let start = row_start(seed, row);
        cells.extend(self.table.columns.iter().map(|column| {
            let mut cell = Vec::new();
            column.put(start, version, &mut cell);
            cell
        }));
    }

    /// Returns whether these are the cells of a row's columns in any version.
    #[inline]
    pub fn is_row<'c>(&self, seed: u64, row: u64, cells: impl Iterator<Item = &'c [u8]>) -> bool {
        let start = row_start(seed, row);
        let mut all = self.table.columns.iter().zip(cells);
        all.all(|(column, cell)| column.check(start, cell) != Verdict::Wrong)
    }

    /// Returns whether some writes leave out columns.
    pub(crate) fn has_partial_writes(&self) -> bool {
        let all = self.table.columns.len();
        self.queries.iter().any(|query| query.writes_columns() && query.columns < all)
    }

    pub(crate) fn has_deletes(&self) -> bool {
        self.queries.iter().any(|query| query.kind == QueryKind::Delete && query.weight > 0.0)
    }

    /// Returns the most bytes that the columns of a row have together, without the key.
    pub fn row_bytes_most(&self) -> u64 {
        self.table.row_bytes_most()
    }

    /// Returns whether rows hold their version, so that stale ones are recognised.
    pub fn has_versions(&self) -> bool {
        self.table.columns.iter().any(Column::has_versions)
    }

    fn number_statements(&mut self) {
        let Self { table, queries, statements, .. } = self;
        let mut number = |text: String| {
            let known = statements.iter().position(|known| *known == text);
            known.unwrap_or_else(|| {
                statements.push(text);
                statements.len() - 1
            })
        };
        for query in queries {
            let all = table.columns.len();
            match query.kind {
                QueryKind::Write | QueryKind::Insert => {}
                QueryKind::Read | QueryKind::ReadModifyWrite => query.read = number(table.select()),
                QueryKind::Slice => query.read = number(table.slice()),
                QueryKind::Scan => query.read = number(table.scan()),
                QueryKind::Delete => query.write = number(table.delete()),
                QueryKind::Update => {}
            }
            if query.writes_columns() {
                query.choices = if query.columns < all { all } else { 1 };
                for first in 0..query.choices {
                    let columns = (first..first + query.columns).map(|column| column % all);
                    let position = number(table.update(columns));
                    query.write = if first == 0 { position } else { query.write };
                }
            }
        }
    }
}

impl Query {
    /// Returns whether the query writes with UPDATE.
    pub(crate) fn writes_columns(&self) -> bool {
        self.columns > 0
    }
}

/// More rows than the key columns have values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{rows} rows in {table}: its keys have room for {most}; give fewer rows or another type of key"
)]
pub struct RowsError {
    rows: u64,
    table: String,
    most: u64,
}

impl Table {
    /// Returns the table of a study: `tare.row5x64`, or `tare.row5x64_blob` with a blob as key.
    pub(crate) fn of_shape(shape: Shape) -> Result<Self, ShapeError> {
        shape.check()?;
        let Shape { key_type, columns, column_bytes } = shape;
        let (kind, suffix) = match key_type {
            KeyType::Bigint => (Type::Bigint, ""),
            KeyType::Blob => (Type::Blob, "_blob"),
        };
        let name = format!("row{columns}x{column_bytes}{suffix}");
        Ok(Self::plain(name, kind, columns, column_bytes))
    }
}

#[cfg(test)]
mod tests;
