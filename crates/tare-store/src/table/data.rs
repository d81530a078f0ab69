//! Contents of a data block: pieces of partitions with their rows.
//!
//! ```text
//! contents   pieces | row offsets | piece directory | pieces u32 | rows u32
//! piece      token i64 | key length u16 | flags u8 | key | [ranges length u32 | ranges] | rows
//! range      timestamp i64 | deleted u32 | has an end u8 | from length u16 | to length u16
//!            | from | to
//! row        clustering length u16 | clustering | cells
//! directory  per piece: its offset, its first row; a row ends where the next or the pieces end
//! ```
//!
//! Offsets are u16 if the contents have at most 65,536 bytes, else u32. Flag 1: the partition began
//! in an earlier block. Flag 2: it has range tombstones, which are in the block where it begins.

use std::cmp::Ordering;
use std::ops::Range;

use super::{Damage, i64_at, narrow, u16_at, u32_at};
use crate::entry::RangeTombstone;

const TRAILER_BYTES: usize = 8;
const PIECE_HEAD_BYTES: usize = 11;
const ROW_HEAD_BYTES: usize = 2;
const RANGE_HEAD_BYTES: usize = 17;
/// Contents up to this length have offsets of 16 bits.
const NARROW_MAX: usize = 1 << 16;

const CONTINUED: u8 = 1;
const RANGES: u8 = 2;

/// Builds the contents of a block.
#[derive(Debug, Default)]
pub(super) struct Builder {
    bytes: Vec<u8>,
    rows: Vec<u32>,
    pieces: Vec<(u32, u32)>,
}

impl Builder {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether the last piece has no row yet.
    pub(super) fn is_head_alone(&self) -> bool {
        self.pieces.last().is_some_and(|&(_, first)| first as usize == self.rows.len())
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        self.pieces.clear();
    }

    /// Begins a piece. `ranges` are encoded; a piece that continues a partition only records
    /// whether there are any.
    pub(super) fn piece(&mut self, token: i64, key: &[u8], continued: bool, ranges: &[u8]) {
        self.pieces.push((narrow(self.bytes.len()), narrow(self.rows.len())));
        self.bytes.extend_from_slice(&token.to_le_bytes());
        push_length(&mut self.bytes, key);
        let continued_flag = if continued { CONTINUED } else { 0 };
        let ranges_flag = if ranges.is_empty() { 0 } else { RANGES };
        self.bytes.push(continued_flag | ranges_flag);
        self.bytes.extend_from_slice(key);
        if !continued && !ranges.is_empty() {
            self.bytes.extend_from_slice(&narrow(ranges.len()).to_le_bytes());
            self.bytes.extend_from_slice(ranges);
        }
    }

    pub(super) fn row(&mut self, clustering: &[u8], cells: &[u8]) {
        self.rows.push(narrow(self.bytes.len()));
        push_length(&mut self.bytes, clustering);
        self.bytes.extend_from_slice(clustering);
        self.bytes.extend_from_slice(cells);
    }

    /// Length of the contents with one more row, and at worst with a piece for it, in bytes.
    pub(super) fn bytes_with(&self, key: &[u8], clustering: &[u8], cells: &[u8]) -> usize {
        let row = ROW_HEAD_BYTES + clustering.len() + cells.len();
        let piece = PIECE_HEAD_BYTES + key.len();
        contents_bytes(self.bytes.len() + piece + row, self.rows.len() + 1, self.pieces.len() + 1)
    }

    /// Appends the contents to `out`.
    pub(super) fn finish(&self, out: &mut Vec<u8>) {
        let (rows, pieces) = (self.rows.len(), self.pieces.len());
        let wide = is_wide(contents_bytes(self.bytes.len(), rows, pieces));
        out.extend_from_slice(&self.bytes);
        let directory = self.pieces.iter().flat_map(|&(at, first)| [at, first]);
        for offset in self.rows.iter().copied().chain(directory) {
            let bytes = offset.to_le_bytes();
            out.extend_from_slice(if wide { &bytes } else { &bytes[..2] });
        }
        out.extend_from_slice(&narrow(pieces).to_le_bytes());
        out.extend_from_slice(&narrow(rows).to_le_bytes());
    }
}

fn push_length(out: &mut Vec<u8>, key: &[u8]) {
    let length = u16::try_from(key.len()).expect("a key has a 16-bit length");
    out.extend_from_slice(&length.to_le_bytes());
}

/// Whether contents of this length have offsets of 32 bits.
fn is_wide(bytes: usize) -> bool {
    bytes > NARROW_MAX
}

/// Length of contents, which have narrow offsets if that makes them short enough.
fn contents_bytes(bytes: usize, rows: usize, pieces: usize) -> usize {
    let with = |width: usize| bytes + (rows + 2 * pieces) * width + TRAILER_BYTES;
    if is_wide(with(2)) { with(4) } else { with(2) }
}

/// The checked contents of a data block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data<'a> {
    bytes: &'a [u8],
    width: usize,
    /// Begin of the row offsets, which is the end of the pieces.
    rows_at: usize,
    directory_at: usize,
    pieces: usize,
    rows: usize,
}

/// A piece of a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) token: i64,
    pub(super) key: &'a [u8],
    /// Whether the partition began in an earlier block.
    pub(super) continued: bool,
    /// Whether the partition has range tombstones, here or where it began.
    pub(super) has_ranges: bool,
}

impl<'a> Data<'a> {
    /// Decodes the trailer; `None` if it is invalid.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let trailer_at = bytes.len().checked_sub(TRAILER_BYTES)?;
        let pieces = u32_at(bytes, trailer_at) as usize;
        let rows = u32_at(bytes, trailer_at + 4) as usize;
        let width = if is_wide(bytes.len()) { 4 } else { 2 };
        let directory_at = trailer_at.checked_sub(pieces.checked_mul(2 * width)?)?;
        let rows_at = directory_at.checked_sub(rows.checked_mul(width)?)?;
        Some(Self { bytes, width, rows_at, directory_at, pieces, rows })
    }

    pub(super) fn pieces(&self) -> usize {
        self.pieces
    }

    fn number(&self, at: usize) -> usize {
        match self.width {
            2 => u16_at(self.bytes, at),
            _ => u32_at(self.bytes, at) as usize,
        }
    }

    fn row_offset(&self, row: usize) -> usize {
        self.number(self.rows_at + row * self.width)
    }

    fn piece_offset(&self, piece: usize) -> usize {
        self.number(self.directory_at + piece * 2 * self.width)
    }

    /// The end of the piece.
    fn piece_end(&self, piece: usize) -> usize {
        if piece + 1 < self.pieces { self.piece_offset(piece + 1) } else { self.rows_at }
    }

    fn first_row(&self, piece: usize) -> usize {
        self.number(self.directory_at + (piece * 2 + 1) * self.width)
    }

    /// The rows of a piece.
    pub(super) fn rows_of(&self, piece: usize) -> Range<usize> {
        let end = if piece + 1 < self.pieces { self.first_row(piece + 1) } else { self.rows };
        self.first_row(piece)..end
    }

    pub(super) fn piece(&self, piece: usize) -> Piece<'a> {
        let at = self.piece_offset(piece);
        let (token, length) = (i64_at(self.bytes, at), u16_at(self.bytes, at + 8));
        let flags = self.bytes[at + 10];
        let key = &self.bytes[at + PIECE_HEAD_BYTES..at + PIECE_HEAD_BYTES + length];
        Piece { token, key, continued: flags & CONTINUED != 0, has_ranges: flags & RANGES != 0 }
    }

    /// The encoded range tombstones of a piece.
    pub(super) fn ranges(&self, piece: usize) -> &'a [u8] {
        let head = self.piece(piece);
        if head.continued || !head.has_ranges {
            return &[];
        }
        let at = self.piece_offset(piece) + PIECE_HEAD_BYTES + head.key.len();
        &self.bytes[at + 4..at + 4 + u32_at(self.bytes, at) as usize]
    }

    /// The piece of a partition, or the position where it would be.
    pub(super) fn find(&self, token: i64, key: &[u8]) -> Result<usize, usize> {
        search(0..self.pieces, |piece| {
            let piece = self.piece(piece);
            piece.token.cmp(&token).then_with(|| piece.key.cmp(key))
        })
    }

    /// Clustering key and cells of a row of a piece.
    pub(super) fn row(&self, piece: usize, row: usize) -> (&'a [u8], &'a [u8]) {
        let last = row + 1 == self.rows_of(piece).end;
        let end = if last { self.piece_end(piece) } else { self.row_offset(row + 1) };
        let (clustering, at) = self.clustering(row);
        (clustering, &self.bytes[at..end])
    }

    /// The clustering key of a row, and its end.
    fn clustering(&self, row: usize) -> (&'a [u8], usize) {
        let from = self.row_offset(row) + ROW_HEAD_BYTES;
        let end = from + u16_at(self.bytes, from - ROW_HEAD_BYTES);
        (&self.bytes[from..end], end)
    }

    /// The first row of a piece at or after a clustering key, or the end of its rows.
    pub(super) fn row_from(&self, piece: usize, clustering: &[u8]) -> usize {
        let found = search(self.rows_of(piece), |row| self.clustering(row).0.cmp(clustering));
        found.unwrap_or_else(|at| at)
    }
}

/// Number of entries from which on a guess is faster than a binary search.
const GUESSED_MIN: usize = 16;

/// Narrows the search for a token among `count` ascending ones: all before the range are below the
/// token, and all after it are above it. Tokens are hashes and so evenly distributed: the position
/// is guessed from the first and the last one (interpolation search), and the range grows from
/// there until it is right, so that tokens that are not even only take longer.
#[inline]
pub(super) fn range_of_token(
    count: usize,
    token: i64,
    token_of: impl Fn(usize) -> i64,
) -> Range<usize> {
    if count < GUESSED_MIN {
        return 0..count;
    }
    let (low, high) = (token_of(0), token_of(count - 1));
    let part = token.max(low).abs_diff(low) as f64 / high.abs_diff(low).max(1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is bounded")]
    let guess = ((part * (count - 1) as f64) as usize).min(count - 1);
    let (mut start, mut end, mut step) = (guess, guess, 1);
    while end < count && token_of(end) <= token {
        (end, step) = (end + step, step * 2);
    }
    step = 1;
    while start > 0 && token_of(start - 1) >= token {
        (start, step) = (start.saturating_sub(step), step * 2);
    }
    start..end.min(count)
}

/// Binary search over numbers.
pub(super) fn search(
    mut range: Range<usize>,
    compare: impl Fn(usize) -> Ordering,
) -> Result<usize, usize> {
    while range.start < range.end {
        let middle = range.start + (range.end - range.start) / 2;
        match compare(middle) {
            Ordering::Less => range.start = middle + 1,
            Ordering::Greater => range.end = middle,
            Ordering::Equal => return Ok(middle),
        }
    }
    Err(range.start)
}

/// Checks contents so that every later access is in bounds and in order.
pub(super) fn check(bytes: &[u8]) -> Result<(), Damage> {
    check_data(bytes).ok_or(Damage::Structure("partitions or rows are not in order"))
}

fn check_data(bytes: &[u8]) -> Option<()> {
    let data = Data::of(bytes).filter(|data| data.pieces > 0)?;
    let sure = |condition: bool| condition.then_some(());
    sure(data.piece_offset(0) == 0 && data.first_row(0) == 0)?;
    let mut last: Option<Piece<'_>> = None;
    for piece in 0..data.pieces {
        let (at, end) = (data.piece_offset(piece), data.piece_end(piece));
        let rows = data.rows_of(piece);
        sure(at <= end && end <= data.rows_at && rows.start <= rows.end && rows.end <= data.rows)?;
        let mut expected = at.checked_add(PIECE_HEAD_BYTES).filter(|&head| head <= end)?;
        expected = expected.checked_add(u16_at(bytes, at + 8)).filter(|&key| key <= end)?;
        let head = data.piece(piece);
        sure(bytes[at + 10] & !(CONTINUED | RANGES) == 0 && (!head.continued || piece == 0))?;
        sure(last.is_none_or(|last| (last.token, last.key) < (head.token, head.key)))?;
        last = Some(head);
        if head.has_ranges && !head.continued {
            let from = expected.checked_add(4).filter(|&from| from <= end)?;
            let length = u32_at(bytes, expected) as usize;
            expected = from.checked_add(length).filter(|&ranges| ranges <= end)?;
            let mut ranges = ranges_of(&bytes[from..expected]);
            let mut last: Option<RangeTombstone<'_>> = None;
            for range in ranges.by_ref() {
                sure(follows(last.as_ref(), &range))?;
                last = Some(range);
            }
            sure(last.is_some() && ranges.bytes.is_empty())?;
        }
        sure(!rows.is_empty() || (expected == end && !head.continued))?;
        let mut clustering: Option<&[u8]> = None;
        for row in rows.clone() {
            sure(data.row_offset(row) == expected)?;
            let key_at = expected.checked_add(ROW_HEAD_BYTES).filter(|&at| at <= end)?;
            let row_end = if row + 1 < rows.end { data.row_offset(row + 1) } else { end };
            let key_end = key_at.checked_add(u16_at(bytes, expected))?;
            sure(key_end <= row_end && row_end <= end)?;
            let key = &bytes[key_at..key_end];
            sure(clustering.is_none_or(|last| last < key))?;
            clustering = Some(key);
            expected = row_end;
        }
    }
    Some(())
}

/// Whether a range tombstone covers anything, and does not overlap the one before.
pub(super) fn follows(last: Option<&RangeTombstone<'_>>, next: &RangeTombstone<'_>) -> bool {
    let ascends = last.is_none_or(|last| last.to.is_some_and(|to| to <= next.from));
    ascends && next.to.is_none_or(|to| next.from < to)
}

/// Appends a range tombstone.
pub(super) fn push_range(out: &mut Vec<u8>, range: &RangeTombstone<'_>) {
    out.extend_from_slice(&range.timestamp.to_le_bytes());
    out.extend_from_slice(&range.deleted_s.to_le_bytes());
    out.push(u8::from(range.to.is_some()));
    let to = range.to.unwrap_or_default();
    push_length(out, range.from);
    push_length(out, to);
    out.extend_from_slice(range.from);
    out.extend_from_slice(to);
}

/// Decodes range tombstones from the head of a partition. The iterator ends early at bytes that are
/// none.
pub fn ranges_of(bytes: &[u8]) -> Ranges<'_> {
    Ranges { bytes }
}

/// Iterator over the range tombstones of a partition, which ascend without overlap.
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    bytes: &'a [u8],
}

impl<'a> Ranges<'a> {
    /// Number of bytes left, by which a position among the ranges can be found again.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The ranges from the position where so many bytes were left.
    pub(crate) fn with_left(&self, left: usize) -> Self {
        Self { bytes: &self.bytes[self.bytes.len() - left..] }
    }
}

impl<'a> Iterator for Ranges<'a> {
    type Item = RangeTombstone<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.bytes.split_first_chunk::<RANGE_HEAD_BYTES>()?;
        let (from, rest) = rest.split_at_checked(u16_at(head, 13))?;
        let (to, rest) = rest.split_at_checked(u16_at(head, 15))?;
        self.bytes = rest;
        let to = (head[12] != 0).then_some(to);
        Some(RangeTombstone { from, to, timestamp: i64_at(head, 0), deleted_s: u32_at(head, 8) })
    }
}
