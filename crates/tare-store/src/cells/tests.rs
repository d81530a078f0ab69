use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Owned {
    Live(Vec<u8>),
    Expiring(Vec<u8>, u32, u32),
    Dead(u32),
}

/// Cells by column and path.
type Model = BTreeMap<(u16, Option<Vec<u8>>), (i64, Owned)>;

/// A column whose cells are elements.
const COLLECTION: u16 = 4;

fn content(owned: &Owned) -> Content<'_> {
    match owned {
        Owned::Live(value) => Content::Live(value),
        Owned::Expiring(value, ttl_s, expires_s) => {
            Content::Expiring { value, ttl_s: *ttl_s, expires_s: *expires_s }
        }
        Owned::Dead(since_s) => Content::Dead { since_s: *since_s },
    }
}

fn encode(model: &Model, put: impl Fn(&mut Vec<u8>, Cell<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    for ((column, path), (timestamp, owned)) in model {
        let (column, path, timestamp) = (*column, path.as_deref(), *timestamp);
        put(&mut out, Cell { column, path, timestamp, content: content(owned) });
    }
    out
}

/// Appends a cell as earlier versions did.
fn push_early(out: &mut Vec<u8>, cell: Cell<'_>) {
    let put_value = |out: &mut Vec<u8>, value: &[u8]| {
        out.extend(u32::try_from(value.len()).unwrap().to_le_bytes());
        out.extend(value);
    };
    let kind = match cell.content {
        Content::Live(_) => 0,
        Content::Expiring { .. } => 1,
        Content::Dead { .. } => 2,
    };
    out.extend(cell.column.to_le_bytes());
    out.extend(cell.timestamp.to_le_bytes());
    out.push(kind + if cell.path.is_some() { 3 } else { 0 });
    if let Some(path) = cell.path {
        out.extend(u16::try_from(path.len()).unwrap().to_le_bytes());
        out.extend(path);
    }
    match cell.content {
        Content::Live(value) => put_value(out, value),
        Content::Expiring { value, ttl_s, expires_s } => {
            out.extend(ttl_s.to_le_bytes());
            out.extend(expires_s.to_le_bytes());
            put_value(out, value);
        }
        Content::Dead { since_s } => out.extend(since_s.to_le_bytes()),
    }
}

fn merged(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    merge(a, b, &mut out);
    out
}

fn contents() -> impl Strategy<Value = Owned> {
    let value = || proptest::collection::vec(0u8..3, 0..3);
    prop_oneof![
        value().prop_map(Owned::Live),
        (value(), 1u32..3, 3u32..5).prop_map(|(v, ttl, expires)| Owned::Expiring(v, ttl, expires)),
        (0u32..3).prop_map(Owned::Dead),
    ]
}

/// Rows as a statement may write them, now or in an earlier version; they may still have cells that
/// their deletion hides.
fn rows() -> impl Strategy<Value = Vec<u8>> {
    let deletion = proptest::option::of((0i64..3, 0u32..3));
    let cells = proptest::collection::btree_map(1u16..4, (0i64..4, contents()), 0..5);
    let emptied = proptest::option::of((0i64..3, 0u32..3));
    let path = proptest::collection::vec(0u8..2, 0..2);
    let elements = proptest::collection::btree_map(path, (0i64..4, contents()), 0..4);
    let all = (deletion, cells, emptied, elements, any::<bool>());
    all.prop_map(|(deletion, cells, emptied, elements, is_early)| {
        let mut model: Model =
            cells.into_iter().map(|(column, cell)| ((column, None), cell)).collect();
        let dead = |(timestamp, since_s)| (timestamp, Owned::Dead(since_s));
        model.extend(deletion.map(|deletion| ((DELETION, None), dead(deletion))));
        model.extend(emptied.map(|deletion| ((COLLECTION, None), dead(deletion))));
        let hidden = emptied.map_or(-1, |(timestamp, _)| timestamp);
        let elements = elements.into_iter().filter(|(_, (timestamp, _))| *timestamp > hidden);
        model.extend(elements.map(|(path, cell)| ((COLLECTION, Some(path)), cell)));
        if is_early { encode(&model, push_early) } else { encode(&model, push) }
    })
}

proptest! {
    #[test]
    fn merge_is_commutative_associative_and_idempotent(a in rows(), b in rows(), c in rows()) {
        prop_assert!(is_valid(&merged(&a, &b)));
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        let clean = merged(&a, &[]);
        prop_assert_eq!(merged(&a, &a), clean.clone());
        prop_assert_eq!(merged(&clean, &clean), clean);
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
    }

    /// The merge agrees with the rules as the book says them.
    #[test]
    fn merge_agrees_with_a_map_of_cells(all in proptest::collection::vec(rows(), 1..4)) {
        let mut found = Vec::new();
        for row in &all {
            found = merged(&found, row);
        }
        let mut winners: BTreeMap<(u16, Option<&[u8]>), Cell<'_>> = BTreeMap::new();
        for cell in all.iter().flat_map(|row| iter(row)) {
            let winner = winners.entry((cell.column, cell.path)).or_insert(cell);
            if cell.rank() > winner.rank() {
                *winner = cell;
            }
        }
        let deleted = |column| match winners.get(&(column, None)) {
            Some(cell) if cell.value().is_none() => cell.timestamp,
            _ => i64::MIN,
        };
        let stays = |cell: &&Cell<'_>| {
            let of_row = if cell.column == DELETION { i64::MIN } else { deleted(DELETION) };
            let of_column = if cell.path.is_some() { deleted(cell.column) } else { i64::MIN };
            cell.timestamp > of_row.max(of_column)
        };
        let expect: Vec<Cell<'_>> = winners.values().filter(stays).copied().collect();
        prop_assert_eq!(iter(&found).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn visible_cells_are_live_and_not_hidden(row in rows(), hidden in 0i64..4, now_s in 0u32..6) {
        let row = merged(&row, &[]);
        for covering in [None, Some(Deletion { timestamp: hidden, deleted_s: 1 })] {
            let expect: Vec<Cell<'_>> = iter(&row)
                .filter(|cell| cell.is_live(now_s))
                .filter(|cell| covering.is_none_or(|c| cell.timestamp > c.timestamp))
                .collect();
            let mut part = Vec::new();
            let found = match visible(&row, covering, now_s, &mut part) {
                Visibility::Full => row.clone(),
                Visibility::Partial => part,
                Visibility::Empty => Vec::new(),
            };
            prop_assert_eq!(iter(&found).collect::<Vec<_>>(), expect);
        }
    }

    /// A reader sees the same rows before and after a compaction, now and later.
    #[test]
    fn compaction_keeps_visible_cells(
        row in rows(),
        hidden in proptest::option::of(0i64..4),
        now_s in 0u32..6,
        gc_before_s in 0u32..4,
        timestamp_below in -1i64..4,
        wait_s in 0u32..3,
    ) {
        let row = merged(&row, &[]);
        let covering = hidden.map(|timestamp| Deletion { timestamp, deleted_s: 1 });
        let mut kept = Vec::new();
        let purge = Purge { now_s, gc_before_s, timestamp_below };
        compact(&row, covering, &purge, &mut kept);
        prop_assert!(is_valid(&kept));
        let seen = |bytes: &[u8]| {
            let mut part = Vec::new();
            match visible(bytes, covering, now_s + wait_s, &mut part) {
                Visibility::Full => bytes.to_vec(),
                Visibility::Partial => part,
                Visibility::Empty => Vec::new(),
            }
        };
        prop_assert_eq!(seen(&kept), seen(&row));
        for cell in iter(&kept).filter(|cell| cell.value().is_none()) {
            let Content::Dead { since_s: deleted_s } = cell.content else { unreachable!() };
            let left = Deletion { timestamp: cell.timestamp, deleted_s };
            prop_assert!(!purge.allows(left));
        }
    }

    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(
        mut bytes in proptest::collection::vec(prop_oneof![0u8..7, 0u8..=255], 0..64),
        is_early: bool,
    ) {
        if let Some(byte) = bytes.get_mut(1) {
            *byte = if is_early { 0 } else { 0x80 };
        }
        let cells: Vec<Cell<'_>> = iter(&bytes).collect();
        let put: fn(&mut Vec<u8>, Cell<'_>) = if is_early { push_early } else { push };
        let mut again = Vec::new();
        cells.iter().for_each(|cell| put(&mut again, *cell));
        prop_assert!(bytes.starts_with(&again));
        if is_valid(&bytes) {
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn cells_are_read_as_they_were_pushed(
        cells in proptest::collection::btree_map(
            prop_oneof![0u16..40, 0..=COLUMN_MAX],
            (prop_oneof![Just(7i64), any::<i64>()], prop_oneof![0usize..4, 100usize..300, 16_380usize..16_390]),
            1..20,
        ),
        path in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300)),
    ) {
        let value = vec![3; 16_390];
        let cells: Vec<Cell<'_>> = cells
            .iter()
            .map(|(&column, &(timestamp, length))| Cell {
                path: path.as_deref(),
                ..Cell::live(column, timestamp, &value[..length])
            })
            .collect();
        for put in [push as fn(&mut Vec<u8>, Cell<'_>), push_early] {
            let mut row = Vec::new();
            cells.iter().for_each(|cell| put(&mut row, *cell));
            prop_assert_eq!(iter(&row).collect::<Vec<_>>(), cells.clone());
        }
    }
}

#[test]
fn timestamp_ties_prefer_dead_then_expiring_then_greater() {
    let cell = |timestamp, content| {
        let mut out = Vec::new();
        push(&mut out, Cell { column: FIRST_COLUMN, path: None, timestamp, content });
        out
    };
    let expiring = |value, expires_s| Content::Expiring { value, ttl_s: 10, expires_s };
    let ascending = [
        cell(5, Content::Live(b"a")),
        cell(5, Content::Live(b"b")),
        cell(5, expiring(b"z", 50)),
        cell(5, expiring(b"a", 60)),
        cell(5, expiring(b"b", 60)),
        cell(5, Content::Dead { since_s: 1 }),
        cell(5, Content::Dead { since_s: 2 }),
        cell(6, Content::Live(b"")),
    ];
    for (at, low) in ascending.iter().enumerate() {
        for high in &ascending[at..] {
            assert_eq!(&merged(low, high), high);
            assert_eq!(&merged(high, low), high);
        }
    }
}

#[test]
fn a_cell_of_a_statement_takes_two_bytes_beside_its_value() {
    let mut row = Vec::new();
    push(&mut row, Cell::live(MARKER, 5, b""));
    assert_eq!(row.len(), 12);
    push(&mut row, Cell::live(FIRST_COLUMN, 5, b"value"));
    assert_eq!(row.len(), 19);
    push(&mut row, Cell::live(FIRST_COLUMN + 1, 6, b"value"));
    assert_eq!(row.len(), 34, "another timestamp takes eight more");
}

#[test]
fn deletion_hides_cells_that_are_not_later() {
    let row = |cells: &[Cell<'_>]| {
        let mut out = Vec::new();
        cells.iter().for_each(|cell| push(&mut out, *cell));
        out
    };
    let deleted = row(&[Cell::dead(DELETION, 5, 1)]);
    let old = row(&[Cell::live(MARKER, 5, b""), Cell::live(2, 6, b"new"), Cell::live(3, 4, b"x")]);
    let expect = row(&[Cell::dead(DELETION, 5, 1), Cell::live(2, 6, b"new")]);
    assert_eq!(merged(&old, &deleted), expect);
    assert_eq!(deletion(&expect), Some(Deletion { timestamp: 5, deleted_s: 1 }));
    assert!(!is_valid(&row(&[Cell::live(DELETION, 5, b"")])), "only a dead cell deletes");
}

#[test]
fn misplaced_elements_are_refused() {
    let element = |column, path, timestamp| {
        let path = Some(path);
        Cell { path, ..Cell::live(column, timestamp, b"") }
    };
    let valid = |cells: &[Cell<'_>]| {
        let mut out = Vec::new();
        cells.iter().for_each(|cell| push(&mut out, *cell));
        is_valid(&out)
    };
    assert!(valid(&[Cell::dead(2, 4, 1), element(2, b"", 5), element(2, b"a", 5)]));
    assert!(!valid(&[element(2, b"a", 5), element(2, b"", 5)]), "paths ascend");
    assert!(!valid(&[Cell::dead(2, 5, 1), element(2, b"", 5)]), "a hidden element");
    assert!(!valid(&[Cell::live(2, 4, b""), element(2, b"", 5)]), "a value beside elements");
    assert!(!valid(&[element(MARKER, b"", 5)]), "the marker is one cell");
}
