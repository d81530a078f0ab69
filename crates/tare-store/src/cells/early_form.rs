//! The bytes of rows of earlier versions, which are read and no longer written: those of files
//! `TareTab1`, `TareTab2` and `TareLog2`. Every cell has all of its fields, little-endian:
//!
//! ```text
//! cell      column u16 | timestamp i64 | kind u8 | fields of the kind
//! live      0: length u32 | value
//! expiring  1: ttl_s u32 | expires_s u32 | length u32 | value
//! dead      2: since_s u32
//! element   3, 4, 5: path length u16 | path | fields of kinds 0, 1, 2
//! ```

use super::kinds::{ELEMENT, split_content, split_u32};
use super::{COLUMN_MAX, Cell};

const HEAD_BYTES: usize = 11;

/// Splits off a cell.
#[cold]
pub(super) fn split(bytes: &[u8]) -> Option<(Cell<'_>, &[u8])> {
    let (head, mut rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let column = u16::from_le_bytes([head[0], head[1]]);
    let timestamp = i64::from_le_bytes(head[2..10].try_into().ok()?);
    let (mut path, mut kind) = (None, head[10]);
    if kind >= ELEMENT {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let (bytes, after) = after.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        (path, kind, rest) = (Some(bytes), kind - ELEMENT, after);
    }
    let (content, rest) = split_content(kind, rest, split_value)?;
    let cell = Cell { column, path, timestamp, content };
    (column <= COLUMN_MAX).then_some((cell, rest))
}

fn split_value(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = split_u32(bytes)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}
