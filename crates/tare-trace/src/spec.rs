//! Writes a workload file (docs/reference/load-spec.md) with comments.

use std::fmt::Write;

use tare_cql::types::Type;
use tare_load::value::Distribution;
use tare_load::workload::{QueryKind, has_size};

/// The most queries of a workload.
pub(crate) const QUERIES_MAX: usize = 16;
/// The longest value of a key column.
const KEY_BYTES_MAX: u64 = 64;

/// A workload to be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spec {
    /// Comments at the top.
    pub(crate) head: Vec<String>,
    pub(crate) title: String,
    pub(crate) keyspace: String,
    pub(crate) table: String,
    pub(crate) rows: u64,
    pub(crate) rows_note: String,
    pub(crate) rows_per_partition: u64,
    pub(crate) partition: Vec<Key>,
    pub(crate) clustering: Vec<Key>,
    pub(crate) columns: Vec<Column>,
    pub(crate) queries: Vec<Query>,
}

/// A key column.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) kind: Type,
    /// The average size of a value.
    pub(crate) bytes: f64,
}

/// A column outside the key.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Type,
    pub(crate) size: Distribution,
    pub(crate) compressed_to: Option<f64>,
    pub(crate) note: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) name: String,
    pub(crate) kind: QueryKind,
    /// Operations of the trace.
    pub(crate) operations: u64,
    pub(crate) keys: tare_load::keys::Keys,
    pub(crate) misses: f64,
    pub(crate) limit: Option<Distribution>,
    pub(crate) columns: Option<usize>,
    pub(crate) notes: Vec<String>,
}

/// Whether a workload can have a column of this type.
pub(crate) fn is_loadable(kind: &Type) -> bool {
    !matches!(
        kind,
        Type::Counter
            | Type::List(_)
            | Type::Set(_)
            | Type::Map(..)
            | Type::Tuple(_)
            | Type::Frozen(_)
            | Type::Custom(_)
    )
}

impl Spec {
    /// Returns the number of partitions.
    fn partitions(&self) -> u64 {
        self.rows.div_ceil(self.rows_per_partition.max(1)).max(1)
    }

    /// Returns the text of the workload.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for line in &self.head {
            comment(&mut out, line);
        }
        let _ = writeln!(out, "title = {:?}\n\n[table]", plain(&self.title));
        let _ = writeln!(out, "keyspace = \"{}\"\nname = \"{}\"", self.keyspace, self.table);
        if !self.rows_note.is_empty() {
            comment(&mut out, &self.rows_note);
        }
        let _ = writeln!(out, "rows = {}", self.rows);
        if self.rows_per_partition > 1 {
            let _ = writeln!(out, "rows_per_partition = {}", self.rows_per_partition);
        }
        for (place, key) in self.partition.iter().enumerate() {
            let values = if place == 0 { self.partitions() } else { 1 };
            self.key(&mut out, "partition", key, values);
        }
        for (place, key) in self.clustering.iter().enumerate() {
            let values = if place == 0 { self.rows_per_partition } else { 1 };
            self.key(&mut out, "clustering", key, values);
            if place > 0 {
                out.push_str(
                    "# How its values are spread over a partition is not fitted.\nvalues = 1\n",
                );
            }
        }
        self.columns.iter().for_each(|column| column.write(&mut out));
        self.queries.iter().for_each(|query| query.write(&mut out));
        out
    }

    /// Writes a key column with room for twice so many values, because half stay absent.
    fn key(&self, out: &mut String, table: &str, key: &Key, values: u64) {
        let _ = writeln!(out, "\n[[{table}]]\nname = \"{}\"\ntype = \"{}\"", key.name, key.kind);
        if !has_size(&key.kind) {
            return;
        }
        let twice = values.saturating_mul(2).saturating_add(2);
        let needed = match key.kind {
            Type::Blob => u64::from(twice.ilog2() / 8 + 1),
            _ => u64::from(twice.ilog10() + 1),
        };
        let average = crate::sizes::whole(key.bytes.round());
        let size = average.clamp(needed, KEY_BYTES_MAX);
        if size != average {
            comment(out, &format!("{:.0} bytes on average in the trace.", key.bytes));
        }
        let _ = writeln!(out, "size = {size}");
    }
}

impl Column {
    fn write(&self, out: &mut String) {
        let _ = writeln!(out, "\n[[column]]\nname = \"{}\"\ntype = \"{}\"", self.name, self.kind);
        if !has_size(&self.kind) {
            return;
        }
        if !self.note.is_empty() {
            comment(out, &self.note);
        }
        match self.size {
            Distribution::Fixed(bytes) => {
                let _ = writeln!(out, "size = {bytes}");
            }
            size => {
                let _ = writeln!(out, "size = \"{size}\"");
            }
        }
        let share = self.compressed_to.filter(|share| *share < 0.95);
        // The load generator leaves at least 8 random bytes.
        if let Some(share) = share.filter(|share| self.size.least() as f64 * share >= 8.0) {
            let _ = writeln!(out, "compressed_to = \"{:.0}%\"", (share * 100.0).max(1.0));
        }
    }
}

impl Query {
    fn write(&self, out: &mut String) {
        out.push_str("\n[[query]]\n");
        self.notes.iter().for_each(|note| comment(out, note));
        if self.name != self.kind.name() {
            let _ = writeln!(out, "name = \"{}\"", self.name);
        }
        let _ = writeln!(out, "kind = \"{}\"\nweight = {}", self.kind.name(), self.operations);
        let _ = writeln!(out, "keys = \"{}\"", self.keys);
        match self.limit {
            None => {}
            Some(Distribution::Fixed(rows)) => {
                let _ = writeln!(out, "limit = {rows}");
            }
            Some(limit) => {
                let _ = writeln!(out, "limit = \"{limit}\"");
            }
        }
        if self.misses > 0.0 {
            let _ = writeln!(out, "misses = {}", self.misses);
        }
        if let Some(columns) = self.columns {
            let _ = writeln!(out, "columns = {columns}");
        }
    }
}

/// Writes a line of comment; the text may come from a file, so it stays one line.
fn comment(out: &mut String, text: &str) {
    let _ = match text {
        "" => writeln!(out, "#"),
        text => writeln!(out, "# {}", plain(text)),
    };
}

/// Returns a text without control characters.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use tare_load::keys::Keys;
    use tare_load::workload::{is_name, parse};

    use super::*;

    fn spec() -> Spec {
        let key = |name: &str, kind, bytes| Key { name: name.into(), kind, bytes };
        let query = |kind: QueryKind| Query {
            name: kind.name().into(),
            kind,
            operations: 3,
            keys: Keys::Zipfian { exponent: 0.9 },
            misses: 0.0,
            limit: None,
            columns: None,
            notes: vec!["why\nnot".into()],
        };
        Spec {
            head: vec!["A trace.".into(), String::new()],
            title: "a \"title\"".into(),
            keyspace: "ks".into(),
            table: "t".into(),
            rows: 1_000_000,
            rows_note: "estimated".into(),
            rows_per_partition: 10,
            partition: vec![key("p", Type::Text, 2.0), key("q", Type::Int, 4.0)],
            clustering: vec![key("c", Type::Blob, 100.0), key("d", Type::Timestamp, 8.0)],
            columns: vec![Column {
                name: "v".into(),
                kind: Type::Blob,
                size: Distribution::Uniform(100, 200),
                compressed_to: Some(0.41),
                note: "sizes".into(),
            }],
            queries: vec![
                query(QueryKind::Read),
                Query { limit: Some(Distribution::Gaussian(1, 9)), ..query(QueryKind::Slice) },
                Query { columns: Some(1), name: "update-1".into(), ..query(QueryKind::Update) },
            ],
        }
    }

    #[test]
    fn written_workload_is_read() {
        let text = spec().text();
        let workload =
            parse(&text, "spec", "spec").unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(workload.query_names(), ["read", "slice", "update-1"]);
        assert_eq!((workload.rows, workload.table.rows_per_partition), (1_000_000, 10));
        assert!(text.contains("# why?not\n"), "{text}");
        assert!(text.contains("compressed_to = \"41%\""), "{text}");
    }

    #[test]
    fn names_and_types_of_workloads() {
        for (name, expect) in [("a_1", true), ("_a", false), ("a\"", false), ("", false)] {
            assert_eq!(is_name(name), expect, "{name}");
        }
        assert!(is_loadable(&Type::Inet) && !is_loadable(&Type::Counter));
    }
}
