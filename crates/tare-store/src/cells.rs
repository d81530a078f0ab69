//! The cells of one row, in the form in which the log and the memtable both hold them.
//!
//! A row is a run of cells in ascending order of column: `column u16, timestamp i64, length i32,
//! value`, little-endian; length -1 is a deletion. Column [`MARKER`] stands for the row itself,
//! so that a row of which only the key was given exists.
//!
//! Cells are reconciled one by one as Cassandra does (`Cells.reconcile`): the later timestamp
//! wins; at the same timestamp a deletion wins, then the greater value. The rule is commutative,
//! associative and idempotent, so replay may repeat and reorder.

use std::cmp::Ordering;

/// The column number of the row marker. Columns of a table count from 1.
pub const MARKER: u16 = 0;

const HEAD_BYTES: usize = 14;

/// One cell. `value` is `None` for a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell<'a> {
    pub column: u16,
    /// Microseconds, or whatever the client chose.
    pub timestamp: i64,
    pub value: Option<&'a [u8]>,
}

impl Cell<'_> {
    fn wins_over(&self, other: &Cell<'_>) -> bool {
        match self.timestamp.cmp(&other.timestamp) {
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal => match (self.value, other.value) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(a), Some(b)) => a >= b,
            },
        }
    }
}

/// Appends a cell. Columns must ascend.
///
/// # Panics
/// If the value is 2 GiB or longer; frames are far smaller.
#[inline]
pub fn push(out: &mut Vec<u8>, cell: Cell<'_>) {
    out.extend_from_slice(&cell.column.to_le_bytes());
    out.extend_from_slice(&cell.timestamp.to_le_bytes());
    match cell.value {
        Some(value) => {
            let length = i32::try_from(value.len()).expect("a value is shorter than 2 GiB");
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(value);
        }
        None => out.extend_from_slice(&(-1i32).to_le_bytes()),
    }
}

/// The cells of a row. Ends early at bytes that are no cell; [`is_valid`] tells.
pub fn iter(bytes: &[u8]) -> Cells<'_> {
    Cells { bytes }
}

/// Whether the bytes are a whole run of cells in ascending order.
pub fn is_valid(bytes: &[u8]) -> bool {
    let mut cells = iter(bytes);
    let mut last = None;
    for cell in cells.by_ref() {
        if last.is_some_and(|last| last >= cell.column) {
            return false;
        }
        last = Some(cell.column);
    }
    cells.bytes.is_empty()
}

/// Whether the row exists: it has its marker or any value.
pub fn is_live(bytes: &[u8]) -> bool {
    iter(bytes).any(|cell| cell.value.is_some())
}

/// Iterator over the cells of a row.
#[derive(Clone, Debug)]
pub struct Cells<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Cells<'a> {
    type Item = Cell<'a>;

    #[inline]
    fn next(&mut self) -> Option<Cell<'a>> {
        let (head, rest) = self.bytes.split_first_chunk::<HEAD_BYTES>()?;
        let column = u16::from_le_bytes([head[0], head[1]]);
        let timestamp = i64::from_le_bytes(head[2..10].try_into().ok()?);
        let length = i32::from_le_bytes(head[10..14].try_into().ok()?);
        let (value, rest) = match usize::try_from(length) {
            Ok(length) => {
                let (value, rest) = rest.split_at_checked(length)?;
                (Some(value), rest)
            }
            Err(_) => (None, rest),
        };
        self.bytes = rest;
        Some(Cell { column, timestamp, value })
    }
}

/// Merges two rows into `out`, which is cleared first.
pub fn merge(old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let (mut olds, mut news) = (iter(old), iter(new));
    let (mut a, mut b) = (olds.next(), news.next());
    loop {
        match (a, b) {
            (None, None) => return,
            (Some(cell), None) => {
                push(out, cell);
                a = olds.next();
            }
            (None, Some(cell)) => {
                push(out, cell);
                b = news.next();
            }
            (Some(x), Some(y)) => match x.column.cmp(&y.column) {
                Ordering::Less => {
                    push(out, x);
                    a = olds.next();
                }
                Ordering::Greater => {
                    push(out, y);
                    b = news.next();
                }
                Ordering::Equal => {
                    push(out, if y.wins_over(&x) { y } else { x });
                    a = olds.next();
                    b = news.next();
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<u16, (i64, Option<Vec<u8>>)>;

    fn encode(model: &Model) -> Vec<u8> {
        let mut out = Vec::new();
        for (&column, (timestamp, value)) in model {
            push(&mut out, Cell { column, timestamp: *timestamp, value: value.as_deref() });
        }
        out
    }

    fn merged(a: &[u8], b: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        merge(a, b, &mut out);
        out
    }

    fn rows() -> impl Strategy<Value = Model> {
        let value = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..4));
        proptest::collection::btree_map(0u16..5, (0i64..3, value), 0..5)
    }

    proptest! {
        #[test]
        fn merging_is_a_lattice(a in rows(), b in rows(), c in rows()) {
            let (a, b, c) = (encode(&a), encode(&b), encode(&c));
            prop_assert!(is_valid(&merged(&a, &b)));
            prop_assert_eq!(merged(&a, &b), merged(&b, &a));
            prop_assert_eq!(merged(&a, &a), a.clone());
            prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let cells: Vec<Cell<'_>> = iter(&bytes).collect();
            if is_valid(&bytes) {
                let mut again = Vec::new();
                cells.iter().for_each(|cell| push(&mut again, *cell));
                // A deletion may be written with any negative length.
                prop_assert_eq!(iter(&again).collect::<Vec<_>>(), cells);
            }
        }
    }

    #[test]
    fn ties_go_to_the_deletion_then_to_the_greater_value() {
        let cell = |timestamp, value| {
            let mut out = Vec::new();
            push(&mut out, Cell { column: 1, timestamp, value });
            out
        };
        let check = |a: Vec<u8>, b: Vec<u8>, expect: &Vec<u8>| {
            assert_eq!(&merged(&a, &b), expect);
            assert_eq!(&merged(&b, &a), expect);
        };
        let (low, high, gone) = (cell(5, Some(b"a")), cell(5, Some(b"b")), cell(5, None));
        check(low.clone(), high.clone(), &high);
        check(high.clone(), gone.clone(), &gone);
        let later = cell(6, Some(b""));
        check(gone, later.clone(), &later);
        assert!(!is_live(&cell(1, None)) && is_live(&low));
    }
}
