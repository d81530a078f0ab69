//! A table: its columns, and which row has which key.
//!
//! Rows are numbered. A row's number determines its partition and its place in it. The key columns
//! hold these numbers, so a row that a scan returns reveals its number.

use std::fmt::Write;

use tare_cql::token::Token;
use tare_cql::types::Type;
use tare_std::rng::mix64;

use crate::workload::column::{Column, Content};
use crate::workload::value::{Distribution, Form, ShortBytes, Sink};

/// A table to load.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    pub keyspace: String,
    pub name: String,
    /// The replication factor, used if the keyspace must be created.
    pub replication: u32,
    /// The partition key columns: the first holds the partition's number, the others follow from
    /// it.
    pub(crate) partition: Vec<KeyColumn>,
    pub(crate) clustering: Vec<KeyColumn>,
    pub(crate) columns: Vec<Column>,
    pub rows_per_partition: u64,
    /// How many partitions are filled side by side, one row each in turn.
    pub interleave: u64,
}

/// A key column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    pub(crate) kind: Type,
    pub(crate) form: Form,
    /// Whether numbers are scattered over all 64-bit numbers.
    pub(crate) hashed: bool,
    /// A clustering column holds number / `step` % `values`.
    pub(crate) step: u64,
    pub(crate) values: u64,
}

impl KeyColumn {
    #[inline]
    fn number(&self, number: u64) -> u64 {
        number / self.step % self.values
    }
}

/// A row's position: the number of its partition, and its number within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPosition {
    pub(crate) partition: u64,
    pub(crate) row: u64,
}

impl Table {
    /// Returns a table with one partition key column `key` and blobs `c0`, `c1` ... of one size:
    /// the table of studies and of `tare load` without a workload.
    pub(crate) fn plain(name: String, key: Type, columns: u32, column_bytes: u32) -> Self {
        let form = Form::of(&key, 8, "").unwrap_or(Form::Bigint);
        let key = KeyColumn {
            name: "key".into(),
            kind: key,
            form,
            hashed: false,
            step: 1,
            values: u64::MAX,
        };
        let size = Distribution::Fixed(u64::from(column_bytes));
        let mut all = Vec::new();
        for column in 0..columns {
            let content = Content::Blob { size, random_share: 1.0 };
            push_column(&mut all, format!("c{column}"), Type::Blob, content);
        }
        Self {
            keyspace: "tare".into(),
            name,
            replication: 1,
            partition: vec![key],
            clustering: Vec::new(),
            columns: all,
            rows_per_partition: 1,
            interleave: 1,
        }
    }

    /// Returns `keyspace.name`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", quoted(&self.keyspace), quoted(&self.name))
    }

    /// Returns the statements that create the keyspace and the table if they are missing, in order.
    pub fn schema(&self) -> [String; 2] {
        let keys = self.partition.iter().chain(&self.clustering);
        let keys = keys.map(|key| (&key.name, &key.kind));
        let columns = self.columns.iter().map(|column| (&column.name, &column.kind));
        let mut text = format!("CREATE TABLE IF NOT EXISTS {} (", self.full_name());
        for (name, kind) in keys.chain(columns) {
            let _ = write!(text, "{} {kind}, ", quoted(name));
        }
        let partition = names(&self.partition);
        let clustering: String =
            self.clustering.iter().map(|key| format!(", {}", quoted(&key.name))).collect();
        let _ = write!(text, "PRIMARY KEY (({partition}){clustering}))");
        let keyspace = format!(
            "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': {}}}",
            quoted(&self.keyspace),
            self.replication
        );
        [keyspace, text]
    }

    /// Returns the INSERT of a whole row: the key columns, then the others.
    pub(crate) fn insert(&self) -> String {
        let all = self.all_names();
        let marks = vec!["?"; self.width()].join(", ");
        format!("INSERT INTO {} ({all}) VALUES ({marks})", self.full_name())
    }

    /// Returns the UPDATE of these columns by key: their values, then the key's.
    pub(crate) fn update(&self, columns: impl Iterator<Item = usize>) -> String {
        let set: Vec<String> =
            columns.map(|column| format!("{} = ?", quoted(&self.columns[column].name))).collect();
        format!("UPDATE {} SET {} WHERE {}", self.full_name(), set.join(", "), self.by_key())
    }

    /// Returns the SELECT of the columns outside the key, by key.
    pub(crate) fn select(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|column| quoted(&column.name)).collect();
        format!("SELECT {} FROM {} WHERE {}", names.join(", "), self.full_name(), self.by_key())
    }

    /// Returns the SELECT of the rows of a partition from one of them on.
    pub(crate) fn slice(&self) -> String {
        let partition = equal(&self.partition);
        let clustering = names(&self.clustering);
        let marks = vec!["?"; self.clustering.len()].join(", ");
        let (all, table) = (self.all_names(), self.full_name());
        format!(
            "SELECT {all} FROM {table} WHERE {partition} AND ({clustering}) >= ({marks}) LIMIT ?"
        )
    }

    /// Returns the SELECT of rows from a partition's token on.
    pub(crate) fn scan(&self) -> String {
        let partition = names(&self.partition);
        let marks = vec!["?"; self.partition.len()].join(", ");
        let (all, table) = (self.all_names(), self.full_name());
        format!("SELECT {all} FROM {table} WHERE token({partition}) >= token({marks}) LIMIT ?")
    }

    /// Returns the DELETE of a row by key.
    pub(crate) fn delete(&self) -> String {
        format!("DELETE FROM {} WHERE {}", self.full_name(), self.by_key())
    }

    fn by_key(&self) -> String {
        let clustering = if self.clustering.is_empty() { "" } else { " AND " };
        format!("{}{clustering}{}", equal(&self.partition), equal(&self.clustering))
    }

    fn all_names(&self) -> String {
        let columns = self.columns.iter().map(|column| quoted(&column.name));
        let keys = self.partition.iter().chain(&self.clustering).map(|key| quoted(&key.name));
        keys.chain(columns).collect::<Vec<_>>().join(", ")
    }

    /// Returns the number of columns, those of the key included.
    pub(crate) fn width(&self) -> usize {
        self.partition.len() + self.clustering.len() + self.columns.len()
    }

    /// Returns the most bytes that a row's cells may have together.
    pub(crate) fn row_bytes_most(&self) -> u64 {
        self.columns.iter().map(Column::bytes_most).sum()
    }

    /// Returns the most rows: half of the partitions stay absent, for misses.
    pub(crate) fn rows_most(&self) -> u64 {
        let partitions = (self.partition_number_most() / 2).saturating_sub(self.interleave);
        partitions.saturating_mul(self.rows_per_partition).min(1 << 62)
    }

    /// Returns the largest number of a partition.
    #[inline]
    pub(crate) fn partition_number_most(&self) -> u64 {
        match self.partition.first() {
            Some(key) if !key.hashed => key.form.capacity() - 1,
            _ => u64::MAX,
        }
    }

    #[inline]
    pub(crate) fn place(&self, row: u64) -> RowPosition {
        if self.rows_per_partition == 1 {
            return RowPosition { partition: row, row: 0 };
        }
        let together = self.interleave * self.rows_per_partition;
        let (group, inside) = (row / together, row % together);
        let partition = group * self.interleave + inside % self.interleave;
        RowPosition { partition, row: inside / self.interleave }
    }

    #[inline]
    pub(crate) fn row_at(&self, place: RowPosition) -> Option<u64> {
        let group = place.partition / self.interleave;
        let inside = place.row * self.interleave + place.partition % self.interleave;
        group.checked_mul(self.interleave * self.rows_per_partition)?.checked_add(inside)
    }

    /// Appends the value of a partition key column.
    #[inline]
    pub(crate) fn put_partition(&self, index: usize, partition: u64, out: &mut impl Sink) {
        let key = &self.partition[index];
        let number = match index {
            0 if key.hashed => mix64(partition),
            0 => partition,
            other => key.form.of_word(mix64(partition ^ (other as u64) << 56)),
        };
        key.form.put(number, out);
    }

    /// Appends the value of a clustering column.
    #[inline]
    pub(crate) fn put_clustering(&self, index: usize, row: u64, out: &mut impl Sink) {
        let key = &self.clustering[index];
        key.form.put(key.number(row), out);
    }

    /// Returns the position of a row from the cells of its key; `None` if no row has this key.
    pub(crate) fn place_of<'a>(
        &self,
        cells: &mut impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Option<RowPosition> {
        let mut partition = 0;
        for (index, key) in self.partition.iter().enumerate() {
            let cell = cells.next()??;
            if index == 0 {
                let number = key.form.number(cell)?;
                partition = if key.hashed { unmix64(number) } else { number };
            }
            let mut same = crate::workload::value::Comparison::with(cell);
            self.put_partition(index, partition, &mut same);
            if !same.is_same() {
                return None;
            }
        }
        let mut row = 0;
        for key in &self.clustering {
            let number = key.form.number(cells.next()??)?;
            row += number.checked_mul(key.step).filter(|_| number < key.values)?;
        }
        Some(RowPosition { partition, row })
    }

    /// Returns the token of a partition.
    #[inline]
    pub(crate) fn token(&self, partition: u64) -> Token {
        let mut key = ShortBytes::new();
        if let [_] = self.partition.as_slice() {
            self.put_partition(0, partition, &mut key);
            return Token::of(key.as_slice());
        }
        for index in 0..self.partition.len() {
            let mut part = ShortBytes::new();
            self.put_partition(index, partition, &mut part);
            let part = part.as_slice();
            key.push(&u16::try_from(part.len()).unwrap_or_default().to_be_bytes());
            key.push(part);
            key.push(&[0]);
        }
        Token::of(key.as_slice())
    }
}

/// Appends a column whose random words follow those of the columns before.
pub(crate) fn push_column(all: &mut Vec<Column>, name: String, kind: Type, content: Content) {
    let first_word = all.iter().map(Column::words).sum();
    all.push(Column::new(name, kind, content, first_word));
}

/// Returns a name as CQL takes it: quoted unless it is lower case.
fn quoted(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.into() } else { format!("\"{name}\"") }
}

fn names(keys: &[KeyColumn]) -> String {
    keys.iter().map(|key| quoted(&key.name)).collect::<Vec<_>>().join(", ")
}

fn equal(keys: &[KeyColumn]) -> String {
    let tests: Vec<String> = keys.iter().map(|key| format!("{} = ?", quoted(&key.name))).collect();
    tests.join(" AND ")
}

/// Returns the inverse of `mix64`: its steps backwards.
fn unmix64(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ z >> 31 ^ z >> 62).wrapping_mul(INVERSE_2);
    z = (z ^ z >> 27 ^ z >> 54).wrapping_mul(INVERSE_1);
    z ^ z >> 30 ^ z >> 60
}

const INVERSE_1: u64 = inverse(0xbf58_476d_1ce4_e5b9);
const INVERSE_2: u64 = inverse(0x94d0_49bb_1331_11eb);

/// Returns the inverse of an odd number modulo 2^64, by Newton's iteration: each step doubles the
/// bits.
const fn inverse(odd: u64) -> u64 {
    let mut found = odd;
    let mut step = 0;
    while step < 6 {
        found = found.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(found)));
        step += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn unmix64_inverts_mix64(value: u64) {
            prop_assert_eq!(unmix64(mix64(value)), value);
        }
    }
}
