//! The shape of a study's rows, and limits of all rows.

/// The most bytes of a row (columns times bytes), far below the limit of a frame.
pub(crate) const ROW_BYTES_MAX: u64 = 1 << 20;
pub(crate) const COLUMNS_MAX: u32 = 1_000;

/// The type of the primary key column of a study's table. Both types take 8 bytes, big endian, in a
/// request.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum KeyType {
    #[default]
    Bigint,
    Blob,
}

/// Why a shape of rows is refused.
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

/// The shape of a study's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub key_type: KeyType,
    /// The number of columns besides the key.
    pub columns: u32,
    /// The bytes of each column.
    pub column_bytes: u32,
}

impl Shape {
    pub(crate) fn check(self) -> Result<(), ShapeError> {
        let Self { columns, column_bytes, .. } = self;
        if !(1..=COLUMNS_MAX).contains(&columns) {
            return Err(ShapeError::Columns { columns, column_bytes });
        }
        let bytes = u64::from(columns) * u64::from(column_bytes);
        if !(1..=ROW_BYTES_MAX).contains(&bytes) {
            return Err(ShapeError::Bytes { columns, column_bytes });
        }
        Ok(())
    }
}
