//! The bytes of a row, little-endian; lengths are LEB128 numbers in as few bytes as possible:
//!
//! ```text
//! row       first cell | further cells
//! first     32768 + column u16 | timestamp i64 | kind u8 | fields of the kind
//! further   kind + 8 if it has its own timestamp + 16 * column (15: the column follows): u8
//!           | [column u16] | [timestamp i64] | fields of the kind
//! live      0: length | value
//! expiring  1: ttl_s u32 | expires_s u32 | length | value
//! dead      2: since_s u32
//! element   3, 4, 5: path length | path | fields of kinds 0, 1, 2
//! ```
//!
//! A cell without its own timestamp has that of the first one, so a further cell of a row that was
//! written at once takes two bytes beside a short value. There is one encoding of each row. Rows of
//! earlier versions, whose first column is below 32768, are read too ([`super::early_form`]).

use super::kinds::{DEAD, ELEMENT, EXPIRING, LIVE, split_content};
use super::{COLUMN_MAX, Cell, Content, early_form};

const KINDS: u8 = 7;
const OWN_TIMESTAMP: u8 = 8;
const COLUMN_SHIFT: u32 = 4;
/// In the place of a column: it follows, because it is not below this number.
const COLUMN_FOLLOWS: u8 = 15;
/// Added to the column of a row's first cell.
const FIRST: u16 = COLUMN_MAX + 1;
const FIRST_BYTES: usize = 11;
/// In a byte of a length: further bytes follow.
const LENGTH_CONTINUES: u8 = 0x80;

/// Appends a cell to a row that this function began. Columns must ascend, and the paths of one
/// column.
///
/// # Panics
/// Panics if the value is 4 GiB or longer; frames are far smaller. Panics if the path is longer
/// than [`super::PATH_BYTES_MAX`], or the column greater than [`COLUMN_MAX`].
#[inline]
pub fn push(out: &mut Vec<u8>, cell: Cell<'_>) {
    // Nearly all further cells are values of the statement that wrote the first one.
    if let (Content::Live(value), None, Some(first)) =
        (cell.content, cell.path, out.first_chunk::<FIRST_BYTES>())
        && cell.timestamp.to_le_bytes() == first[2..10]
        && let (Some(column), Some(length)) = (near(cell.column), short(value))
    {
        out.extend_from_slice(&[LIVE | column << COLUMN_SHIFT, length]);
        out.extend_from_slice(value);
        return;
    }
    push_any(out, cell);
}

/// The column, if it fits in the head of a cell.
#[inline]
fn near(column: u16) -> Option<u8> {
    u8::try_from(column).ok().filter(|&column| column < COLUMN_FOLLOWS)
}

/// The length of a value, if it takes one byte.
#[inline]
fn short(value: &[u8]) -> Option<u8> {
    u8::try_from(value.len()).ok().filter(|&length| length < LENGTH_CONTINUES)
}

#[inline(never)]
fn push_any(out: &mut Vec<u8>, cell: Cell<'_>) {
    assert!(cell.column <= COLUMN_MAX, "no table has a column {}", cell.column);
    let kind = match cell.content {
        Content::Live(_) => LIVE,
        Content::Expiring { .. } => EXPIRING,
        Content::Dead { .. } => DEAD,
    };
    let kind = if cell.path.is_some() { kind + ELEMENT } else { kind };
    match out.first_chunk::<FIRST_BYTES>() {
        None => {
            debug_assert!(out.is_empty(), "a row begins with a whole cell");
            // The next calls load the timestamp. The CPU passes it on from a store of its bytes.
            out.extend_from_slice(&(FIRST + cell.column).to_le_bytes());
            out.extend_from_slice(&cell.timestamp.to_le_bytes());
            out.push(kind);
        }
        Some(first) => {
            debug_assert!(!is_early(first), "a row of an earlier version is not continued");
            let own = cell.timestamp.to_le_bytes() != first[2..10];
            put_further_head(out, kind, own, &cell);
        }
    }
    if let Some(path) = cell.path {
        let length = u16::try_from(path.len()).expect("a path has a 16-bit length");
        put_length(out, length.into());
        out.extend_from_slice(path);
    }
    match cell.content {
        Content::Live(value) => put_value(out, value),
        Content::Expiring { value, ttl_s, expires_s } => {
            out.extend_from_slice(&ttl_s.to_le_bytes());
            out.extend_from_slice(&expires_s.to_le_bytes());
            put_value(out, value);
        }
        Content::Dead { since_s } => out.extend_from_slice(&since_s.to_le_bytes()),
    }
}

fn put_further_head(out: &mut Vec<u8>, kind: u8, own: bool, cell: &Cell<'_>) {
    let near = near(cell.column);
    let place = near.unwrap_or(COLUMN_FOLLOWS) << COLUMN_SHIFT;
    out.push(kind | if own { OWN_TIMESTAMP } else { 0 } | place);
    if near.is_none() {
        out.extend_from_slice(&cell.column.to_le_bytes());
    }
    if own {
        out.extend_from_slice(&cell.timestamp.to_le_bytes());
    }
}

fn put_value(out: &mut Vec<u8>, value: &[u8]) {
    put_length(out, u32::try_from(value.len()).expect("a value is shorter than 4 GiB"));
    out.extend_from_slice(value);
}

/// Appends a LEB128 number.
fn put_length(out: &mut Vec<u8>, mut length: u32) {
    while length >= LENGTH_CONTINUES.into() {
        out.push(length.to_le_bytes()[0] | LENGTH_CONTINUES);
        length >>= 7;
    }
    out.push(length.to_le_bytes()[0]);
}

/// The cells of a row. The iterator ends early at bytes that are no cell; [`super::is_valid`]
/// detects that.
#[inline]
pub fn iter(bytes: &[u8]) -> Cells<'_> {
    Cells { bytes, before: Before::Nothing }
}

/// The column of a row's first cell.
#[inline]
pub(super) fn first_column(bytes: &[u8]) -> Option<u16> {
    first_number(bytes).map(|number| number & COLUMN_MAX)
}

/// Whether a row is in the form of earlier versions.
#[inline]
fn is_early(bytes: &[u8]) -> bool {
    first_number(bytes).is_some_and(|number| number < FIRST)
}

#[inline]
fn first_number(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|number| u16::from_le_bytes(*number))
}

/// Iterator over the cells of a row.
#[derive(Clone, Debug)]
pub struct Cells<'a> {
    bytes: &'a [u8],
    before: Before,
}

/// What an iterator has seen of its row.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    /// The first cell, which has this timestamp.
    First(i64),
    /// A cell in the form of earlier versions.
    Early,
}

impl Cells<'_> {
    /// Whether nothing is left, not even bytes that are no cell.
    pub(super) fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<'a> Iterator for Cells<'a> {
    type Item = Cell<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Cell<'a>> {
        let (cell, rest) = match self.before {
            Before::First(timestamp) => match split_short(self.bytes, timestamp) {
                Some(split) => split,
                None => split_further(self.bytes, timestamp)?,
            },
            Before::Nothing if !is_early(self.bytes) => {
                let (cell, rest) = split_first(self.bytes)?;
                self.before = Before::First(cell.timestamp);
                (cell, rest)
            }
            Before::Nothing | Before::Early => {
                self.before = Before::Early;
                early_form::split(self.bytes)?
            }
        };
        self.bytes = rest;
        Some(cell)
    }
}

/// Splits off a value as `push` writes nearly all of them.
#[inline(always)]
fn split_short(bytes: &[u8], timestamp: i64) -> Option<(Cell<'_>, &[u8])> {
    let (&[head, length], rest) = bytes.split_first_chunk()?;
    let is_short = head & (KINDS | OWN_TIMESTAMP) == LIVE
        && head >> COLUMN_SHIFT < COLUMN_FOLLOWS
        && length < LENGTH_CONTINUES;
    let (value, rest) = rest.split_at_checked(usize::from(length)).filter(|_| is_short)?;
    Some((Cell::live((head >> COLUMN_SHIFT).into(), timestamp, value), rest))
}

#[inline]
fn split_first(bytes: &[u8]) -> Option<(Cell<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<FIRST_BYTES>()?;
    let column = first_column(head)?;
    let timestamp = i64::from_le_bytes(head[2..10].try_into().ok()?);
    split_fields(column, timestamp, head[10], rest)
}

#[inline(never)]
fn split_further(bytes: &[u8], first: i64) -> Option<(Cell<'_>, &[u8])> {
    let (&head, mut rest) = bytes.split_first()?;
    let mut column = u16::from(head >> COLUMN_SHIFT);
    if column == u16::from(COLUMN_FOLLOWS) {
        let (number, after) = rest.split_first_chunk()?;
        column = u16::from_le_bytes(*number);
        if !(u16::from(COLUMN_FOLLOWS)..=COLUMN_MAX).contains(&column) {
            return None;
        }
        rest = after;
    }
    let mut timestamp = first;
    if head & OWN_TIMESTAMP != 0 {
        let (number, after) = rest.split_first_chunk()?;
        timestamp = i64::from_le_bytes(*number);
        if timestamp == first {
            return None;
        }
        rest = after;
    }
    split_fields(column, timestamp, head & KINDS, rest)
}

#[inline]
fn split_fields(
    column: u16,
    timestamp: i64,
    kind: u8,
    mut rest: &[u8],
) -> Option<(Cell<'_>, &[u8])> {
    let mut path = None;
    if kind >= ELEMENT {
        let (bytes, after) = split_value(rest)?;
        u16::try_from(bytes.len()).ok()?;
        (path, rest) = (Some(bytes), after);
    }
    let kind = if path.is_some() { kind - ELEMENT } else { kind };
    let (content, rest) = split_content(kind, rest, split_value)?;
    Some((Cell { column, path, timestamp, content }, rest))
}

/// Splits off the bytes that follow their length.
#[inline]
fn split_value(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&byte, rest) = bytes.split_first()?;
    if byte < LENGTH_CONTINUES {
        return rest.split_at_checked(usize::from(byte));
    }
    split_long_value(bytes)
}

fn split_long_value(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0;
    for (at, &byte) in bytes.iter().enumerate().take(5) {
        length |= u64::from(byte & !LENGTH_CONTINUES) << (7 * at);
        if byte < LENGTH_CONTINUES {
            let length = u32::try_from(length).ok().filter(|_| byte > 0)?;
            return bytes[at + 1..].split_at_checked(usize::try_from(length).ok()?);
        }
    }
    None
}
