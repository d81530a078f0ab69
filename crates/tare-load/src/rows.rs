//! Rows: a primary key and C columns of B bytes, every byte a pure function of (seed, key). What a
//! read returns can therefore be checked without having kept what was written.
//!
//! The bytes of a row are the output of a SplitMix64 generator whose start is derived from (seed,
//! key): they do not compress and cost about a nanosecond per 8 bytes.

use tare_lab::study::WorkloadSpec;
use tare_std::rng::mix64;

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
/// Columns times bytes of the largest row, so that a request stays far below a frame's limit.
const ROW_BYTES_MAX: u64 = 1 << 20;
const COLUMNS_MAX: u32 = 1_000;

/// Type of the primary key column. Both are 8 bytes, big endian, in a request.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum KeyType {
    #[default]
    Bigint,
    Blob,
}

/// What rows look like, and with it the table that holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    pub key_type: KeyType,
    /// Columns besides the key.
    pub columns: u32,
    /// Bytes in each of them.
    pub column_bytes: u32,
}

/// Why rows cannot have this shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    #[error("a row of {columns} columns x {column_bytes} bytes: give 1 to {COLUMNS_MAX} columns")]
    Columns { columns: u32, column_bytes: u32 },
    #[error(
        "a row of {columns} columns x {column_bytes} bytes: give at least 1 byte a column and at \
         most {ROW_BYTES_MAX} a row"
    )]
    Bytes { columns: u32, column_bytes: u32 },
}

/// The keyspace of everything that the load generator makes.
pub const KEYSPACE: &str = "tare";

impl Shape {
    pub fn new(key_type: KeyType, columns: u32, column_bytes: u32) -> Result<Self, ShapeError> {
        if !(1..=COLUMNS_MAX).contains(&columns) {
            return Err(ShapeError::Columns { columns, column_bytes });
        }
        let bytes = u64::from(columns) * u64::from(column_bytes);
        if !(1..=ROW_BYTES_MAX).contains(&bytes) {
            return Err(ShapeError::Bytes { columns, column_bytes });
        }
        Ok(Self { key_type, columns, column_bytes })
    }

    pub fn of(workload: &WorkloadSpec, key_type: KeyType) -> Result<Self, ShapeError> {
        Self::new(key_type, workload.columns, workload.column_bytes)
    }

    /// Name of the table: `tare.row5x64`, and `tare.row5x64_blob` where the key is a blob.
    pub fn table(&self) -> String {
        let suffix = match self.key_type {
            KeyType::Bigint => "",
            KeyType::Blob => "_blob",
        };
        format!("{KEYSPACE}.row{}x{}{suffix}", self.columns, self.column_bytes)
    }

    /// The statements that make keyspace and table where they are missing, in order.
    pub fn schema(&self) -> [String; 2] {
        let key_type = match self.key_type {
            KeyType::Bigint => "bigint",
            KeyType::Blob => "blob",
        };
        let columns: Vec<String> = self.names().map(|name| format!("{name} blob")).collect();
        [
            format!(
                "CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = \
                 {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
            ),
            format!(
                "CREATE TABLE IF NOT EXISTS {} (key {key_type} PRIMARY KEY, {})",
                self.table(),
                columns.join(", ")
            ),
        ]
    }

    /// INSERT of a whole row: the key, then every column.
    pub fn insert(&self) -> String {
        let names: Vec<String> = self.names().collect();
        let marks = ", ?".repeat(names.len());
        format!("INSERT INTO {} (key, {}) VALUES (?{marks})", self.table(), names.join(", "))
    }

    /// SELECT of every column by key.
    pub fn select(&self) -> String {
        let names: Vec<String> = self.names().collect();
        format!("SELECT {} FROM {} WHERE key = ?", names.join(", "), self.table())
    }

    fn names(&self) -> impl Iterator<Item = String> {
        (0..self.columns).map(|column| format!("c{column}"))
    }
}

/// The content of one row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    start: u64,
    column_bytes: usize,
}

impl Row {
    #[inline]
    pub fn new(shape: &Shape, seed: u64, key: u64) -> Self {
        let start = mix64(seed ^ mix64(key.wrapping_add(1).wrapping_mul(GOLDEN_GAMMA)));
        Self { start, column_bytes: shape.column_bytes as usize }
    }

    /// Appends the bytes of a column.
    #[inline]
    pub fn write_column(&self, column: u32, out: &mut Vec<u8>) {
        let from = out.len();
        out.resize(from + self.column_bytes, 0);
        let mut state = self.column_start(column);
        let mut words = out[from..].chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&next(&mut state));
        }
        let rest = words.into_remainder();
        let last = next(&mut state);
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// True if these are the bytes of the column.
    #[inline]
    pub fn column_is(&self, column: u32, bytes: &[u8]) -> bool {
        if bytes.len() != self.column_bytes {
            return false;
        }
        let mut state = self.column_start(column);
        let words = bytes.chunks_exact(8);
        let rest = words.remainder();
        let mut same = true;
        for word in words {
            same &= word == next(&mut state);
        }
        same && rest == &next(&mut state)[..rest.len()]
    }

    #[inline]
    fn column_start(&self, column: u32) -> u64 {
        let words = self.column_bytes.div_ceil(8) as u64;
        self.start.wrapping_add((u64::from(column) * words).wrapping_mul(GOLDEN_GAMMA))
    }
}

#[inline]
fn next(state: &mut u64) -> [u8; 8] {
    *state = state.wrapping_add(GOLDEN_GAMMA);
    mix64(*state).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(columns: u32, column_bytes: u32) -> Shape {
        Shape::new(KeyType::Bigint, columns, column_bytes).unwrap()
    }

    fn row_bytes(shape: &Shape, seed: u64, key: u64) -> Vec<u8> {
        let row = Row::new(shape, seed, key);
        let mut bytes = Vec::new();
        (0..shape.columns).for_each(|column| row.write_column(column, &mut bytes));
        bytes
    }

    #[test]
    fn statements_name_every_column() {
        let shape = Shape::new(KeyType::Blob, 2, 64).unwrap();
        assert_eq!(
            shape.schema()[1],
            "CREATE TABLE IF NOT EXISTS tare.row2x64_blob (key blob PRIMARY KEY, c0 blob, c1 blob)"
        );
        assert_eq!(shape.insert(), "INSERT INTO tare.row2x64_blob (key, c0, c1) VALUES (?, ?, ?)");
        assert_eq!(shape.select(), "SELECT c0, c1 FROM tare.row2x64_blob WHERE key = ?");
    }

    #[test]
    fn shapes_have_limits() {
        for (columns, bytes) in [(0, 8), (1_001, 1), (1, 0), (1, 1 << 21), (1_000, u32::MAX)] {
            assert!(Shape::new(KeyType::Bigint, columns, bytes).is_err(), "{columns} x {bytes}");
        }
    }

    #[test]
    fn rows_are_those_of_earlier_versions() {
        // Data written by one version must verify under the next.
        assert_eq!(
            row_bytes(&shape(2, 9), 1, 2),
            [
                3, 41, 99, 73, 150, 149, 45, 233, 114, //
                86, 169, 106, 246, 146, 145, 213, 98, 217
            ]
        );
    }

    proptest! {
        #[test]
        fn rows_derive_from_seed_and_key(
            columns in 1u32..8, column_bytes in 1u32..70, seed: u64, key: u64, flip: u64,
        ) {
            let shape = shape(columns, column_bytes);
            let mut bytes = row_bytes(&shape, seed, key);
            prop_assert_eq!(bytes.len(), (columns * column_bytes) as usize);
            prop_assert_eq!(&bytes, &row_bytes(&shape, seed, key));
            let row = Row::new(&shape, seed, key);
            let same = |bytes: &[u8]| {
                let mut parts = (0..).zip(bytes.chunks(column_bytes as usize));
                parts.all(|(column, part)| row.column_is(column, part))
            };
            prop_assert!(same(&bytes));
            prop_assert!(!row.column_is(0, &bytes[..column_bytes as usize - 1]));
            let bit = usize::try_from(flip % (bytes.len() as u64 * 8)).unwrap();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!same(&bytes));
        }

        #[test]
        fn other_keys_and_seeds_have_other_rows(seed: u64, key: u64, other: u64) {
            prop_assume!(key != other && seed != other);
            let shape = shape(1, 16);
            prop_assert_ne!(row_bytes(&shape, seed, key), row_bytes(&shape, seed, other));
            prop_assert_ne!(row_bytes(&shape, seed, key), row_bytes(&shape, other, key));
        }
    }
}
