//! RESULT Rows and Prepared (sections 4.2.5.2 and 4.2.5.4): descriptions of columns and rows of
//! cells.
//!
//! The server encodes the description of a result once, when a statement is prepared
//! (`EncodedColumns`), and copies it into each answer; the client reads it lazily (`Columns`).

use super::{Reply, ResultMetadata, begin, kind};
use crate::frame::{FrameStart, Head, Opcode, Version};
use crate::token;
use crate::types::Type;
use crate::wire::{
    DecodeError, Reader, patch_int, put_bytes, put_count, put_int, put_short, put_short_bytes,
    put_string, reserve_int,
};

/// Flags of the metadata.
mod flag {
    pub(super) const GLOBAL_TABLE: i32 = 0x01;
    pub(super) const MORE_PAGES: i32 = 0x02;
    pub(super) const NO_METADATA: i32 = 0x04;
    /// Version 5: the metadata differs from what the client knows.
    pub(super) const METADATA_CHANGED: i32 = 0x08;
}

/// The description of a column, for encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnSpec<'a> {
    pub name: &'a str,
    pub kind: &'a Type,
}

/// The description of the columns of one table, encoded once for many results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedColumns {
    count: usize,
    id: [u8; 16],
    /// Keyspace, table, then name and type of each column.
    bytes: Vec<u8>,
    /// The same for version 5, if it differs.
    newer: Option<Vec<u8>>,
}

impl EncodedColumns {
    pub fn new<'c>(
        keyspace: &str,
        table: &str,
        columns: impl IntoIterator<Item = ColumnSpec<'c>>,
    ) -> Self {
        let mut bytes = Vec::new();
        put_string(&mut bytes, keyspace);
        put_string(&mut bytes, table);
        let mut newer = bytes.clone();
        let mut count = 0;
        for column in columns {
            for (out, version) in [(&mut bytes, Version::V4), (&mut newer, Version::V5)] {
                put_string(out, column.name);
                column.kind.encode(version, out);
            }
            count += 1;
        }
        let id = token::hash_128(&newer);
        let newer = (newer != bytes).then_some(newer);
        Self { count, id, bytes, newer }
    }

    /// Number of columns.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// An id that almost certainly changes whenever the columns change (`<result_metadata_id>` of
    /// version 5).
    #[inline]
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    #[inline]
    fn bytes(&self, version: Version) -> &[u8] {
        match (&self.newer, version) {
            (Some(newer), Version::V5) => newer,
            _ => &self.bytes,
        }
    }
}

/// A RESULT Rows under construction: `begin`, then the cells of each row in order, `end_row` after
/// each row, `finish`.
///
/// ```
/// use tare_cql::frame::{self, Direction};
/// use tare_cql::response::{ColumnSpec, EncodedColumns, Response, RowsWriter};
/// use tare_cql::types::Type;
///
/// let columns = [("k", Type::Int), ("v", Type::Text)];
/// let columns = columns.iter().map(|(name, kind)| ColumnSpec { name, kind });
/// let columns = EncodedColumns::new("ks", "t", columns);
/// let mut out = Vec::new();
/// let mut writer = RowsWriter::begin(&mut out, 0, &columns, None);
/// writer.cell(Some(&1i32.to_be_bytes()));
/// writer.cell(None);
/// writer.end_row();
/// writer.finish();
///
/// let (frame, _) = frame::decode(&out, Direction::Response, 1 << 20)?.expect("a whole frame");
/// let Response::Rows(rows) = Response::decode(&frame)? else { unreachable!() };
/// let cells: Vec<_> = rows.cells().collect();
/// assert_eq!(cells, [Some(&[0, 0, 0, 1][..]), None]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the frame is complete after `finish`"]
pub struct RowsWriter<'o> {
    out: &'o mut Vec<u8>,
    start: FrameStart,
    count_offset: usize,
    rows: i32,
}

impl<'o> RowsWriter<'o> {
    /// Appends everything before the first cell. A paging state means that more rows can be
    /// requested.
    #[inline]
    pub fn begin(
        out: &'o mut Vec<u8>,
        reply: impl Into<Reply>,
        columns: &EncodedColumns,
        paging_state: Option<&[u8]>,
    ) -> Self {
        let reply = reply.into();
        let start = begin(out, reply, Opcode::Result);
        put_int(out, kind::ROWS);
        let mut flags = match reply.columns {
            ResultMetadata::Full => flag::GLOBAL_TABLE,
            ResultMetadata::Omitted => flag::NO_METADATA,
            ResultMetadata::Changed => flag::GLOBAL_TABLE | flag::METADATA_CHANGED,
        };
        if paging_state.is_some() {
            flags |= flag::MORE_PAGES;
        }
        put_int(out, flags);
        put_count(out, columns.count);
        if paging_state.is_some() {
            put_bytes(out, paging_state);
        }
        if reply.columns == ResultMetadata::Changed {
            put_short_bytes(out, columns.id());
        }
        if reply.columns != ResultMetadata::Omitted {
            out.extend_from_slice(columns.bytes(reply.head.version));
        }
        let count_offset = reserve_int(out);
        Self { out, start, count_offset, rows: 0 }
    }

    /// Appends one cell; `None` is null.
    #[inline]
    pub fn cell(&mut self, value: Option<&[u8]>) {
        put_bytes(self.out, value);
    }

    /// Appends encoded cells, each preceded by its length.
    #[inline]
    pub fn cells_encoded(&mut self, cells: &[u8]) {
        self.out.extend_from_slice(cells);
    }

    /// Appends a row. `write` appends its cells, each preceded by its length.
    #[inline]
    pub fn row(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(self.out);
        self.end_row();
    }

    /// Counts a row whose cells have been appended.
    #[inline]
    pub fn end_row(&mut self) {
        self.rows = self.rows.saturating_add(1);
    }

    /// Length of the frame so far in bytes, for keeping pages short.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.out.len().saturating_sub(self.start.offset())
    }

    /// Completes the frame and returns the length of its body in bytes.
    #[inline]
    pub fn finish(self) -> usize {
        patch_int(self.out, self.count_offset, self.rows);
        self.start.finish(self.out)
    }

    /// Removes the whole frame, so that an error can be sent instead.
    pub fn abort(self) {
        self.out.truncate(self.start.offset());
    }
}

/// The id in version 5 for the columns of a statement that returns none.
const NO_COLUMNS: [u8; 16] = [0; 16];

/// Appends RESULT Prepared: the id, the columns of the bind markers, which of them form the
/// partition key (in the order of the key; empty if not all are bound), and the columns of the
/// result, if there is one.
pub fn encode_prepared(
    out: &mut Vec<u8>,
    head: impl Into<Head>,
    id: &[u8],
    markers: &EncodedColumns,
    partition_key: &[u16],
    result: Option<&EncodedColumns>,
) {
    let head = head.into();
    let start = begin(out, head, Opcode::Result);
    put_int(out, kind::PREPARED);
    put_short_bytes(out, id);
    if head.version >= Version::V5 {
        put_short_bytes(out, result.map_or(&NO_COLUMNS, EncodedColumns::id));
    }
    // Keyspace and table appear once, and only if there is a column.
    let flags = |columns: &EncodedColumns| if columns.count == 0 { 0 } else { flag::GLOBAL_TABLE };
    put_int(out, flags(markers));
    put_count(out, markers.count);
    put_count(out, partition_key.len());
    for position in partition_key {
        put_short(out, *position);
    }
    if markers.count > 0 {
        out.extend_from_slice(markers.bytes(head.version));
    }
    match result {
        Some(columns) if columns.count > 0 => {
            put_int(out, flag::GLOBAL_TABLE);
            put_count(out, columns.count);
            out.extend_from_slice(columns.bytes(head.version));
        }
        _ => {
            put_int(out, flag::NO_METADATA);
            put_int(out, 0);
        }
    }
    start.finish(out);
}

/// The metadata of a result.
#[derive(Debug, Clone, Copy)]
pub struct Metadata<'a> {
    /// Number of columns, even if they are not described.
    pub column_count: usize,
    /// The state that the client sends back for the next page.
    pub paging_state: Option<&'a [u8]>,
    /// Version 5: the id of the columns, if they differ from those that the client named.
    pub new_id: Option<&'a [u8]>,
    /// The columns; `None` if the client asked to omit them.
    pub columns: Option<Columns<'a>>,
}

impl<'a> Metadata<'a> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let flags = reader.int("flags of the metadata")?;
        let column_count = reader.count("number of columns")?;
        let paging_state =
            if flags & flag::MORE_PAGES == 0 { None } else { reader.bytes("paging state")? };
        let new_id = if flags & flag::METADATA_CHANGED == 0 {
            None
        } else {
            Some(reader.short_bytes("id of the columns")?)
        };
        let columns = if flags & flag::NO_METADATA == 0 {
            Some(Columns::decode(reader, flags, column_count)?)
        } else {
            None
        };
        Ok(Self { column_count, paging_state, new_id, columns })
    }
}

/// The description of a column, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column<'a> {
    pub keyspace: &'a str,
    pub table: &'a str,
    pub name: &'a str,
    pub kind: Type,
}

/// Iterates over described columns, which were checked when the metadata was decoded.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    left: usize,
    table: Option<(&'a str, &'a str)>,
    reader: Reader<'a>,
}

impl<'a> Columns<'a> {
    fn decode(reader: &mut Reader<'a>, flags: i32, count: usize) -> Result<Self, DecodeError> {
        let table = if flags & flag::GLOBAL_TABLE != 0 && count > 0 {
            Some((reader.string("keyspace")?, reader.string("table")?))
        } else {
            None
        };
        let columns = Self { left: count, table, reader: *reader };
        let mut ahead = columns;
        for _ in 0..count {
            ahead.column()?;
        }
        *reader = ahead.reader;
        Ok(columns)
    }

    fn column(&mut self) -> Result<Column<'a>, DecodeError> {
        let (keyspace, table) = match self.table {
            Some(table) => table,
            None => (self.reader.string("keyspace")?, self.reader.string("table")?),
        };
        let name = self.reader.string("name of a column")?;
        Ok(Column { keyspace, table, name, kind: Type::decode(&mut self.reader)? })
    }
}

impl<'a> Iterator for Columns<'a> {
    type Item = Column<'a>;
    fn next(&mut self) -> Option<Column<'a>> {
        self.left = self.left.checked_sub(1)?;
        self.column().ok()
    }
}

/// The body of RESULT Prepared.
#[derive(Debug, Clone)]
pub struct Prepared<'a> {
    pub id: &'a [u8],
    /// Version 5: the id of the columns of the result.
    pub result_id: Option<&'a [u8]>,
    pub markers: Metadata<'a>,
    /// Positions of the markers that form the partition key, in its order.
    pub partition_key: Vec<u16>,
    pub result: Metadata<'a>,
}

impl<'a> Prepared<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        let id = reader.short_bytes("id of the prepared statement")?;
        let result_id = match version {
            Version::V4 => None,
            Version::V5 => Some(reader.short_bytes("id of the result's columns")?),
        };
        let flags = reader.int("flags of the metadata")?;
        let column_count = reader.count("number of markers")?;
        let mut partition_key = Vec::new();
        for _ in 0..reader.count("number of key markers")? {
            partition_key.push(reader.short("position of a key marker")?);
        }
        let columns = Some(Columns::decode(reader, flags, column_count)?);
        let markers = Metadata { column_count, paging_state: None, new_id: None, columns };
        let result = Metadata::decode(reader)?;
        Ok(Self { id, result_id, markers, partition_key, result })
    }
}

/// The body of RESULT Rows.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    pub metadata: Metadata<'a>,
    rows: usize,
    cells: Reader<'a>,
}

impl<'a> Rows<'a> {
    /// Checks every cell, so that iterating cannot fail.
    #[inline]
    pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, DecodeError> {
        let metadata = Metadata::decode(&mut reader)?;
        let rows = reader.count("number of rows")?;
        let cells = reader;
        if metadata.column_count == 0 && rows > 0 {
            // An endless number of rows without columns would have to be counted.
            return Err(DecodeError::Length { what: "number of columns", length: 0 });
        }
        for _ in 0..rows {
            for _ in 0..metadata.column_count {
                reader.bytes("cell")?;
            }
        }
        reader.end()?;
        Ok(Self { metadata, rows, cells })
    }

    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.rows
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// All cells of all rows, one row after the other.
    #[inline]
    pub fn cells(&self) -> Cells<'a> {
        Cells { left: self.rows.saturating_mul(self.metadata.column_count), reader: self.cells }
    }

    #[inline]
    pub fn iter(&self) -> RowIter<'a> {
        RowIter { left: self.rows, columns: self.metadata.column_count, reader: self.cells }
    }
}

impl<'a> IntoIterator for &Rows<'a> {
    type Item = Row<'a>;
    type IntoIter = RowIter<'a>;
    fn into_iter(self) -> RowIter<'a> {
        self.iter()
    }
}

/// Iterates over rows.
#[derive(Debug, Clone)]
pub struct RowIter<'a> {
    left: usize,
    columns: usize,
    reader: Reader<'a>,
}

impl<'a> Iterator for RowIter<'a> {
    type Item = Row<'a>;

    #[inline]
    fn next(&mut self) -> Option<Row<'a>> {
        self.left = self.left.checked_sub(1)?;
        let row = Row { columns: self.columns, reader: self.reader };
        for _ in 0..self.columns {
            self.reader.bytes("cell").ok()?;
        }
        Some(row)
    }
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    columns: usize,
    reader: Reader<'a>,
}

impl<'a> Row<'a> {
    /// The cells in the order of the columns; a cell of `None` is null.
    #[inline]
    pub fn cells(&self) -> Cells<'a> {
        Cells { left: self.columns, reader: self.reader }
    }
}

/// Iterates over cells; `Some(None)` is null.
#[derive(Debug, Clone)]
pub struct Cells<'a> {
    left: usize,
    reader: Reader<'a>,
}

impl<'a> Iterator for Cells<'a> {
    type Item = Option<&'a [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        self.left = self.left.checked_sub(1)?;
        self.reader.bytes("cell").ok()
    }
}
