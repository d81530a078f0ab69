//! BATCH (section 4.1.7): several writes in one request.

use super::{Settings, Values, begin};
use crate::frame::{Head, Opcode, Version};
use crate::wire::{
    DecodeError, Reader, Value, put_long_string, put_short, put_short_bytes, put_value,
};

/// A batch, borrowed from its frame.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    pub kind: BatchKind,
    /// Consistency, timestamp and so on; a batch has no paging and no metadata.
    pub settings: Settings<'a>,
    items: BatchItems<'a>,
}

/// The guarantee of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchKind {
    /// All of its writes happen or none.
    Logged,
    Unlogged,
    Counter,
}

/// One write of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchItem<'a> {
    pub statement: BatchStatement<'a>,
    /// Values, bound by position.
    pub values: Values<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchStatement<'a> {
    Text(&'a str),
    /// The id of a prepared statement.
    Prepared(&'a [u8]),
}

impl<'a> Batch<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        let kind = match reader.byte("batch type")? {
            0 => BatchKind::Logged,
            1 => BatchKind::Unlogged,
            2 => BatchKind::Counter,
            code => {
                return Err(DecodeError::Unknown { what: "batch type", code: u32::from(code) });
            }
        };
        let left = reader.short("number of statements")?;
        let items = BatchItems { left, reader: *reader };
        for _ in 0..left {
            BatchItem::decode(reader)?;
        }
        Ok(Self { kind, settings: Settings::decode_of_batch(reader, version)?, items })
    }

    /// The writes in the order of the message. They were checked when the batch was decoded, so
    /// iterating cannot fail.
    pub fn items(&self) -> BatchItems<'a> {
        self.items
    }
}

impl<'a> BatchItem<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let statement = match reader.byte("kind of a statement")? {
            0 => BatchStatement::Text(reader.long_string("statement")?),
            1 => BatchStatement::Prepared(reader.short_bytes("id of a prepared statement")?),
            code => {
                let what = "kind of a statement";
                return Err(DecodeError::Unknown { what, code: u32::from(code) });
            }
        };
        Ok(Self { statement, values: Values::decode(reader, false)? })
    }
}

/// Iterates over the writes of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchItems<'a> {
    left: u16,
    reader: Reader<'a>,
}

impl<'a> Iterator for BatchItems<'a> {
    type Item = BatchItem<'a>;

    fn next(&mut self) -> Option<BatchItem<'a>> {
        self.left = self.left.checked_sub(1)?;
        BatchItem::decode(&mut self.reader).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

impl ExactSizeIterator for BatchItems<'_> {}

/// Appends BATCH. Statements and values beyond 65,535 are left out.
pub fn encode_batch(
    out: &mut Vec<u8>,
    head: impl Into<Head>,
    kind: BatchKind,
    items: &[(BatchStatement<'_>, &[Value<'_>])],
    settings: &Settings<'_>,
) {
    let head = head.into();
    let start = begin(out, head, Opcode::Batch);
    out.push(match kind {
        BatchKind::Logged => 0,
        BatchKind::Unlogged => 1,
        BatchKind::Counter => 2,
    });
    let count = u16::try_from(items.len()).unwrap_or(u16::MAX);
    put_short(out, count);
    for (statement, values) in &items[..usize::from(count)] {
        match statement {
            BatchStatement::Text(text) => {
                out.push(0);
                put_long_string(out, text);
            }
            BatchStatement::Prepared(id) => {
                out.push(1);
                put_short_bytes(out, id);
            }
        }
        let count = u16::try_from(values.len()).unwrap_or(u16::MAX);
        put_short(out, count);
        for value in &values[..usize::from(count)] {
            put_value(out, *value);
        }
    }
    settings.put_of_batch(head.version, out);
    start.finish(out);
}
