//! Makes a workload of a table of a running cluster: its schema, and the sizes of some of its rows.
//!
//! Only reads are sent: one of the schema, and of a few stretches of the ring that begin at random
//! tokens. The rows of a stretch and the part of the ring that it covers give the number of rows;
//! every partition of a stretch but the last is whole, which gives the rows of a partition.
//!
//! Limits: what is asked of the table is not known, so the queries are examples. Tokens are those
//! of the Murmur3 partitioner.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;
use tare_cql::response::Rows;
use tare_cql::statement::quoted;
use tare_load::keys::Keys;
use tare_load::value::Distribution;
use tare_load::workload::{QueryKind, is_name, parse};
use tare_load::{Access, LoadError, QueryConnection};
use tare_std::rng::Rng;
use tare_std::units::thousands;

use crate::build::column;
use crate::error::TraceError;
use crate::sizes::{Sizes, whole};
use crate::spec::{Key, Query, Spec, is_loadable};
use crate::statements::catalog::{Table, schema_columns};

/// Stretches of the ring, and the rows of one that are counted and that are read.
const STRETCHES: u64 = 12;
const COUNTED_ROWS: usize = 5000;
const READ_ROWS: usize = 100;

/// The workload of a table.
#[derive(Clone, Debug, Serialize)]
pub struct Sampled {
    pub table: String,
    /// The rows whose sizes were read.
    pub sampled_rows: u64,
    /// Estimated.
    pub rows: u64,
    pub rows_per_partition: u64,
    /// The text of the workload file.
    pub workload: String,
}

/// Reads the schema of a table and samples its rows, at most until `deadline`.
///
/// # Errors
/// If the cluster cannot be reached, or has no such table, or no workload can have the table.
pub fn sample(
    access: &Access,
    keyspace: &str,
    table: &str,
    deadline: Instant,
) -> Result<Sampled, TraceError> {
    let full = format!("{keyspace}.{table}");
    let refuse = |why: String| TraceError::Table { table: full.clone(), why };
    if let Some(name) = [keyspace, table].into_iter().find(|name| !is_name(name)) {
        return Err(refuse(format!("{name:?} has other characters than letters, digits and _")));
    }
    let fail = |source: LoadError| {
        let source = Box::new(source);
        TraceError::Sample { table: full.clone(), source }
    };
    let query = format!(
        "SELECT column_name, kind, position, type FROM system_schema.columns \
         WHERE keyspace_name = '{keyspace}' AND table_name = '{table}'"
    );
    let mut schema = Table::default();
    let mut connection = QueryConnection::open(access, deadline).map_err(fail)?;
    let read_schema = connection.rows("the schema", &query, deadline, |rows| {
        for (_, column) in schema_columns(rows, Some(keyspace), Some(table)) {
            schema.schema_column(column);
        }
    });
    read_schema.map_err(fail)?;
    if schema.key().partition.is_empty() {
        return Err(refuse("the cluster has no such table".into()));
    }
    let mut sample = Sample::new(&schema, &full);
    let mut rng = Rng::new(1);
    for _ in 0..STRETCHES {
        let from = rng.next_u64().cast_signed();
        sample.stretch(&mut connection, from, deadline).map_err(fail)?;
    }
    if sample.rows == 0 {
        return Err(refuse("it has no rows to sample".into()));
    }
    let spec = sample.spec(keyspace, table).map_err(refuse)?;
    let workload = spec.text();
    parse(&workload, &full, table).map_err(|error| refuse(error.to_string()))?;
    let (rows, rows_per_partition) = (spec.rows, spec.rows_per_partition);
    Ok(Sampled { table: full, sampled_rows: sample.rows, rows, rows_per_partition, workload })
}

/// The rows that were read.
struct Sample<'s> {
    schema: &'s Table,
    /// As CQL has them.
    partition: String,
    table: String,
    sizes: BTreeMap<String, Sizes>,
    rows: u64,
    /// Whole partitions, and their rows.
    partitions: u64,
    partition_rows: u64,
    /// The most rows of one partition that were seen.
    longest: u64,
    /// The part of the ring whose partitions were counted.
    covered: f64,
}

impl<'s> Sample<'s> {
    fn new(schema: &'s Table, full: &str) -> Self {
        let names: Vec<String> =
            schema.key().partition.iter().map(|name| quoted(name).into_owned()).collect();
        let table: Vec<_> = full.split('.').map(quoted).collect();
        Self {
            schema,
            partition: names.join(", "),
            table: table.join("."),
            sizes: BTreeMap::new(),
            rows: 0,
            partitions: 0,
            partition_rows: 0,
            longest: 0,
            covered: 0.0,
        }
    }

    /// Reads rows from a token on.
    fn stretch(
        &mut self,
        connection: &mut QueryConnection,
        from: i64,
        until: Instant,
    ) -> Result<(), LoadError> {
        let rest = |limit: usize| {
            format!("FROM {} WHERE token({}) >= {from} LIMIT {limit}", self.table, self.partition)
        };
        let counted = format!("SELECT token({}) {}", self.partition, rest(COUNTED_ROWS));
        let read = format!("SELECT * {}", rest(READ_ROWS));
        let mut tokens = Vec::new();
        connection.rows("tokens", &counted, until, |rows| {
            let token = |cell: Option<&[u8]>| Some(i64::from_be_bytes(cell?.try_into().ok()?));
            tokens.extend(rows.cells().filter_map(token));
        })?;
        self.count(from, &tokens);
        connection.rows("rows", &read, until, |rows| self.sizes(rows))
    }

    /// Counts the partitions of a stretch by the tokens of its rows.
    fn count(&mut self, from: i64, tokens: &[i64]) {
        let mut runs: Vec<(i64, u64)> = Vec::new();
        for token in tokens {
            match runs.last_mut() {
                Some((last, rows)) if last == token => *rows += 1,
                _ => runs.push((*token, 1)),
            }
        }
        self.longest = runs.iter().map(|(_, rows)| *rows).fold(self.longest, u64::max);
        let is_end = tokens.len() < COUNTED_ROWS;
        // The last partition of a full page may go on behind it.
        let to = match runs.last() {
            Some((last, _)) if !is_end => *last,
            _ => i64::MAX,
        };
        if !is_end {
            runs.pop();
        }
        self.covered += to.abs_diff(from) as f64 / 2f64.powi(64);
        self.partitions += runs.len() as u64;
        self.partition_rows += runs.iter().map(|(_, rows)| *rows).sum::<u64>();
    }

    fn sizes(&mut self, rows: &Rows<'_>) {
        let Some(columns) = rows.metadata.columns else { return };
        let names: Vec<&str> = columns.map(|column| column.name).collect();
        for row in rows {
            self.rows += 1;
            for (name, cell) in names.iter().zip(row.cells()) {
                if let Some(cell) = cell {
                    self.sizes.entry((*name).to_string()).or_default().value(cell);
                }
            }
        }
    }

    fn spec(&self, keyspace: &str, table: &str) -> Result<Spec, String> {
        let key = self.schema.key();
        let none = Sizes::default();
        let sizes = |name: &str| self.sizes.get(name).unwrap_or(&none);
        let keys = |names: &[String]| -> Result<Vec<Key>, String> {
            let one = |name: &String| {
                let kind = self.schema.types.get(name).filter(|kind| is_loadable(kind));
                let kind = kind.filter(|_| is_name(name)).cloned();
                let kind = kind.ok_or(format!("tare load cannot write its key column {name}"))?;
                Ok(Key { name: name.clone(), kind, bytes: sizes(name).mean() })
            };
            names.iter().map(one).collect()
        };
        let partitions = (self.partitions as f64 / self.covered.max(1e-12)).round().max(1.0);
        let rows_per_partition = match (key.clustering.is_empty(), self.partitions) {
            (true, _) => 1,
            (false, 0) => self.longest,
            (false, whole) => self.partition_rows.div_ceil(whole),
        };
        let mut left_out = Vec::new();
        let mut columns = Vec::new();
        for (name, kind) in self.schema.others() {
            match is_loadable(kind) && is_name(name) && !self.schema.is_static(name) {
                true => columns.push(column(name, kind.clone(), sizes(name), true)),
                false => left_out.push(format!("{name} ({kind})")),
            }
        }
        if columns.is_empty() {
            return Err("it has no column outside its key that tare load can write".into());
        }
        let rows = whole(partitions).saturating_mul(rows_per_partition).max(1);
        let mut head = vec![
            format!(
                "Made of the table {keyspace}.{table}: its schema and {} of its rows.",
                thousands(self.rows)
            ),
            "What is asked of it is not known: the queries are examples. Write your own.".into(),
        ];
        head.extend(
            (!left_out.is_empty())
                .then(|| format!("Columns that tare load leaves alone: {}.", left_out.join(", "))),
        );
        head.push(String::new());
        Ok(Spec {
            head,
            title: format!("rows like those of {keyspace}.{table}"),
            keyspace: keyspace.into(),
            table: table.into(),
            rows,
            rows_note: format!(
                "Estimated from {} partitions in {:.2} % of the ring.",
                thousands(self.partitions),
                self.covered * 100.0
            ),
            rows_per_partition,
            partition: keys(&key.partition)?,
            clustering: keys(&key.clustering)?,
            columns,
            queries: examples(rows_per_partition),
        })
    }
}

/// Returns queries to start from.
fn examples(rows_per_partition: u64) -> Vec<Query> {
    let query = |kind: QueryKind| Query {
        name: kind.name().into(),
        kind,
        operations: 1,
        keys: Keys::Uniform,
        misses: 0.0,
        limit: None,
        columns: None,
        notes: Vec::new(),
    };
    let mut queries = vec![query(QueryKind::Read), query(QueryKind::Write)];
    if rows_per_partition > 1 {
        let limit = Some(Distribution::Fixed(rows_per_partition.min(10)));
        queries.push(Query { limit, ..query(QueryKind::Slice) });
    }
    queries
}

#[cfg(test)]
mod tests {
    use tare_cql::system_schema::ColumnKind;
    use tare_cql::types::Type;

    use super::*;
    use crate::statements::catalog::SchemaColumn;

    fn schema() -> Table {
        let mut table = Table::default();
        for (name, kind, role) in [
            ("p", Type::Bigint, ColumnKind::PartitionKey),
            ("c", Type::Int, ColumnKind::Clustering),
            ("v", Type::Blob, ColumnKind::Regular),
            ("tags", Type::Set(Box::new(Type::Text)), ColumnKind::Regular),
        ] {
            table.schema_column(SchemaColumn { name: name.into(), kind, role, position: 0 });
        }
        table
    }

    #[test]
    fn stretches_of_the_ring_give_rows() {
        let schema = schema();
        let mut sample = Sample::new(&schema, "ks.T");
        assert_eq!((sample.table.as_str(), sample.partition.as_str()), ("ks.\"T\"", "p"));
        // A thousand partitions of five rows, evenly over the ring.
        let token = |partition: i64| i64::MIN + partition * (i64::MAX / 500);
        for from in [0, 250, 400] {
            let rows = (from..1000).flat_map(|partition| [token(partition); 5]);
            let tokens: Vec<i64> = rows.take(COUNTED_ROWS).collect();
            sample.count(token(from), &tokens);
        }
        sample.rows = 1;
        let spec = sample.spec("ks", "T").unwrap();
        assert_eq!(spec.rows_per_partition, 5);
        assert!((4950..=5050).contains(&spec.rows), "{}", spec.rows);
        let text = spec.text();
        assert!(
            text.contains("# Columns that tare load leaves alone: tags (set<text>)."),
            "{text}"
        );
        let workload = parse(&text, "t", "t").unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(workload.query_names(), ["read", "write", "slice"]);
    }
}
