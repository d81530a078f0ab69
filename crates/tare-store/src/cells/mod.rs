//! The cells of one row, in the form that log, memtable and tables share.
//!
//! A row is a run of cells in ascending order of column and path; `form` describes their bytes.
//!
//! A column has one cell, or is a collection: one cell for each element, under the element's path.
//! The dead cell of a collection without a path deletes its elements: it hides those that are not
//! later. No row has an element that the deletion of its own column hides.
//!
//! Times in seconds count from the Unix epoch. Two columns concern the row itself: a dead cell in
//! [`DELETION`] hides every cell of the row that is not later; a cell in [`MARKER`] makes the row
//! exist, so that a row can exist without values.
//!
//! Cells are reconciled one by one as in Cassandra (`Cells.reconcile`, with CASSANDRA-14592): the
//! later timestamp wins; at the same timestamp a dead cell wins over an expiring one and that over
//! a live one, then the one that dies later, then the greater value. That is the maximum of a total
//! order, and hiding uses the maximum too; so merging is commutative, associative and idempotent,
//! and replay may repeat and reorder.

mod early_form;
mod form;
mod kinds;

use std::cmp::Ordering;

pub use form::{Cells, iter, push};
use kinds::{DEAD, EXPIRING, LIVE};

/// The column whose dead cell deletes the row.
pub const DELETION: u16 = 0;
/// The column whose cell makes the row exist.
pub const MARKER: u16 = 1;
/// The first column that a table may use.
pub const FIRST_COLUMN: u16 = 2;

/// The last column that a table may use.
pub const COLUMN_MAX: u16 = 0x7fff;
/// The longest path of an element, in bytes: its length has 16 bits.
pub const PATH_BYTES_MAX: usize = u16::MAX as usize;

/// A deletion. It hides everything that is not later than `timestamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deletion {
    /// Microseconds, or whatever the client chose.
    pub timestamp: i64,
    /// Time of the deletion by the server's clock, in seconds; the grace period begins here.
    pub deleted_s: u32,
}

/// The content of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    Live(&'a [u8]),
    /// A value that lives until `expires_s`; it was written with a time to live of `ttl_s`.
    Expiring {
        value: &'a [u8],
        ttl_s: u32,
        expires_s: u32,
    },
    /// The cell was deleted at `since_s`.
    Dead {
        since_s: u32,
    },
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell<'a> {
    pub column: u16,
    /// For an element of a collection: its place. Elements are in the order of their paths.
    pub path: Option<&'a [u8]>,
    /// Microseconds, or whatever the client chose.
    pub timestamp: i64,
    pub content: Content<'a>,
}

impl<'a> Cell<'a> {
    /// A cell that lives until it is overwritten or deleted.
    pub fn live(column: u16, timestamp: i64, value: &'a [u8]) -> Self {
        Self { column, path: None, timestamp, content: Content::Live(value) }
    }

    /// A deleted cell.
    pub fn dead(column: u16, timestamp: i64, since_s: u32) -> Self {
        Self { column, path: None, timestamp, content: Content::Dead { since_s } }
    }

    /// The value, expired or not; `None` if the cell is dead.
    #[inline]
    pub fn value(&self) -> Option<&'a [u8]> {
        match self.content {
            Content::Live(value) | Content::Expiring { value, .. } => Some(value),
            Content::Dead { .. } => None,
        }
    }

    /// Whether the cell is visible at a time.
    #[inline]
    pub fn is_live(&self, now_s: u32) -> bool {
        match self.content {
            Content::Live(_) => true,
            Content::Expiring { expires_s, .. } => now_s < expires_s,
            Content::Dead { .. } => false,
        }
    }

    /// Seconds left to live; `None` if the cell does not expire.
    pub fn left_s(&self, now_s: u32) -> Option<u32> {
        match self.content {
            Content::Expiring { expires_s, .. } => Some(expires_s.saturating_sub(now_s)),
            Content::Live(_) | Content::Dead { .. } => None,
        }
    }

    /// The order of the cells in a row.
    #[inline]
    fn place(&self, other: &Cell<'_>) -> Ordering {
        match self.column.cmp(&other.column) {
            // Paths are compared only if there is one.
            Ordering::Equal if self.path.is_some() || other.path.is_some() => {
                self.path.cmp(&other.path)
            }
            order => order,
        }
    }

    /// The order in which cells of one place are reconciled: the greatest wins.
    fn rank(&self) -> (i64, u8, u32, &'a [u8], u32) {
        let (kind, dies_s, value, ttl_s) = match self.content {
            Content::Live(value) => (LIVE, 0, value, 0),
            Content::Expiring { value, ttl_s, expires_s } => (EXPIRING, expires_s, value, ttl_s),
            Content::Dead { since_s } => (DEAD, since_s, &[][..], 0),
        };
        (self.timestamp, kind, dies_s, value, ttl_s)
    }

    #[inline]
    fn wins_over(&self, other: &Cell<'_>) -> bool {
        match self.timestamp.cmp(&other.timestamp) {
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal => self.rank() >= other.rank(),
        }
    }
}

/// Whether the bytes are a whole run of cells in ascending order, in which only a dead cell is a
/// deletion, and no element is hidden by the deletion of its column.
pub fn is_valid(bytes: &[u8]) -> bool {
    let mut cells = iter(bytes);
    let mut last: Option<Cell<'_>> = None;
    let mut elements = ElementDeletion::default();
    for cell in cells.by_ref() {
        let misplaced = match cell.column {
            DELETION => cell.value().is_some() || cell.path.is_some(),
            MARKER => cell.path.is_some(),
            // A value beside elements would be a column of two kinds.
            column => last.is_some_and(|last| {
                last.column == column && last.path.is_none() && last.value().is_some()
            }),
        };
        let ascends = last.is_none_or(|last| last.place(&cell) == Ordering::Less);
        if misplaced || !ascends || elements.hides(&cell) {
            return false;
        }
        last = Some(cell);
    }
    cells.is_at_end()
}

/// The deletion of a whole row, if it was deleted.
#[inline]
pub fn deletion(bytes: &[u8]) -> Option<Deletion> {
    if form::first_column(bytes)? != DELETION {
        return None;
    }
    let cell = iter(bytes).next()?;
    match cell.content {
        Content::Dead { since_s } => {
            Some(Deletion { timestamp: cell.timestamp, deleted_s: since_s })
        }
        Content::Live(_) | Content::Expiring { .. } => None,
    }
}

/// The deletion of the elements of a column, while a row is walked in order.
#[derive(Default)]
struct ElementDeletion(Option<(u16, i64)>);

impl ElementDeletion {
    /// Whether the deletion hides this cell. Notes the deletion if the cell is one.
    #[inline]
    fn hides(&mut self, cell: &Cell<'_>) -> bool {
        if cell.path.is_none() {
            if cell.value().is_none() {
                self.0 = Some((cell.column, cell.timestamp));
            }
            return false;
        }
        self.0
            .is_some_and(|(column, timestamp)| column == cell.column && cell.timestamp <= timestamp)
    }
}

/// Size of a line of the CPU's caches on x86-64 and most of arm64, in bytes.
const LINE_BYTES: usize = 64;
/// Lines of a row that are loaded together. The CPU itself fetches ahead in longer values, and not
/// every read needs all of them.
const LINES_MAX: usize = 32;

/// Loads the beginning of a row from memory. A cell begins where the one before ends, so that a
/// walk over a row that is in no cache waits for one line after the other; these loads wait for all
/// lines together.
#[inline]
fn fetch(row: &[u8]) {
    let lines = row.iter().step_by(LINE_BYTES).take(LINES_MAX);
    std::hint::black_box(lines.fold(0, |all, byte| all ^ byte));
}

/// Merges two rows into `out`, which is cleared first, without the cells that a deletion of either
/// hides: of the row, or of the elements of a column.
///
/// ```
/// use tare_store::cells::{Cell, FIRST_COLUMN, iter, merge, push};
///
/// let (mut old, mut new, mut merged) = (Vec::new(), Vec::new(), Vec::new());
/// push(&mut old, Cell::live(FIRST_COLUMN, 1, b"old"));
/// push(&mut old, Cell::live(FIRST_COLUMN + 1, 1, b"kept"));
/// push(&mut new, Cell::live(FIRST_COLUMN, 2, b"new"));
/// merge(&old, &new, &mut merged);
/// let values: Vec<_> = iter(&merged).map(|cell| cell.value()).collect();
/// assert_eq!(values, [Some(&b"new"[..]), Some(&b"kept"[..])]);
/// ```
pub fn merge(old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    out.clear();
    fetch(old);
    let hidden = deletion(old).max(deletion(new)).map(|deletion| deletion.timestamp);
    let mut elements = ElementDeletion::default();
    let (mut olds, mut news) = (iter(old), iter(new));
    let (mut a, mut b) = (olds.next(), news.next());
    loop {
        let (cell, takes_old, takes_new) = match (&a, &b) {
            (None, None) => return,
            (Some(old), None) => (*old, true, false),
            (None, Some(new)) => (*new, false, true),
            (Some(old), Some(new)) => match old.place(new) {
                Ordering::Less => (*old, true, false),
                Ordering::Greater => (*new, false, true),
                Ordering::Equal if new.wins_over(old) => (*new, true, true),
                Ordering::Equal => (*old, true, true),
            },
        };
        let stays = cell.column == DELETION || hidden.is_none_or(|hidden| cell.timestamp > hidden);
        if stays && !elements.hides(&cell) {
            push(out, cell);
        }
        if takes_old {
            a = olds.next();
        }
        if takes_new {
            b = news.next();
        }
    }
}

/// The visible part of a row, as [`visible`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// The whole row is visible.
    Full,
    /// The buffer has the visible part.
    Partial,
    /// The row does not exist.
    Empty,
}

/// Determines the visible part of a merged row at a time, under the strongest range tombstone over
/// it. The cells are copied into `out` only if the row is visible in part.
#[inline]
pub fn visible(
    bytes: &[u8],
    covering: Option<Deletion>,
    now_s: u32,
    out: &mut Vec<u8>,
) -> Visibility {
    fetch(bytes);
    let is_seen = |cell: &Cell<'_>| {
        cell.is_live(now_s) && covering.is_none_or(|covering| cell.timestamp > covering.timestamp)
    };
    if iter(bytes).all(|cell| is_seen(&cell)) {
        return if bytes.is_empty() { Visibility::Empty } else { Visibility::Full };
    }
    out.clear();
    iter(bytes).filter(is_seen).for_each(|cell| push(out, cell));
    if out.is_empty() { Visibility::Empty } else { Visibility::Partial }
}

/// Limits on what a compaction may drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purge {
    /// Cells that expire before this time become dead ones.
    pub now_s: u32,
    /// Only data that was deleted before may be dropped: now minus the grace period.
    pub gc_before_s: u32,
    /// Only deletions with an earlier timestamp may be dropped, because others may still hide data
    /// in a source outside the merge. `i64::MIN` keeps all.
    pub timestamp_below: i64,
}

impl Purge {
    /// Whether a deletion may be dropped.
    pub fn allows(&self, deletion: Deletion) -> bool {
        deletion.deleted_s < self.gc_before_s && deletion.timestamp < self.timestamp_below
    }
}

/// Writes the form of a merged row for a table into `out`, which is cleared first. Cells under the
/// strongest range tombstone are dropped. Expired cells become dead ones (since they were written,
/// as in Cassandra, which adds no second grace period to the time to live), and dead ones are
/// dropped if that is allowed. An empty `out` means no row.
pub fn compact(bytes: &[u8], covering: Option<Deletion>, purge: &Purge, out: &mut Vec<u8>) {
    out.clear();
    for cell in iter(bytes) {
        if covering.is_some_and(|covering| cell.timestamp <= covering.timestamp) {
            continue;
        }
        let since_s = match cell.content {
            Content::Live(_) => None,
            Content::Expiring { expires_s, .. } if purge.now_s < expires_s => None,
            Content::Expiring { ttl_s, expires_s, .. } => Some(expires_s.saturating_sub(ttl_s)),
            Content::Dead { since_s } => Some(since_s),
        };
        match since_s {
            None => push(out, cell),
            Some(deleted_s) => {
                if !purge.allows(Deletion { timestamp: cell.timestamp, deleted_s }) {
                    push(out, Cell { content: Content::Dead { since_s: deleted_s }, ..cell });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
