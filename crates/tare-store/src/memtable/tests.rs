use super::*;
use crate::cells::{Cell, FIRST_COLUMN, push};

fn row(timestamp: i64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push(&mut out, Cell::live(FIRST_COLUMN, timestamp, value));
    out
}

fn write(memtable: &mut Memtable, table: u32, clustering: &[u8], cells: &[u8]) {
    let change = Change::Row { clustering, cells };
    memtable.apply(&Mutation { table, token: 3, key: b"key", change });
}

#[test]
fn overwriting_in_place_takes_no_memory() {
    let mut memtable = Memtable::default();
    assert!(memtable.is_empty() && memtable.bytes() == 0);
    for clustering in [&b""[..], b"c"] {
        write(&mut memtable, 1, clustering, &row(1, b"first value"));
        let bytes = memtable.bytes();
        write(&mut memtable, 1, clustering, &row(2, b"other value"));
        assert_eq!(memtable.bytes(), bytes);
        write(&mut memtable, 1, clustering, &row(3, &[0; 1000]));
        let grown = memtable.bytes() - bytes;
        assert!((1000..1100).contains(&grown), "the old value counts too: {grown}");
    }
}

#[test]
fn tables_are_separate_and_can_be_dropped() {
    let mut memtable = Memtable::default();
    for table in [5, 2, 9] {
        write(&mut memtable, table, b"", &row(i64::from(table), b"v"));
    }
    assert_eq!(memtable.tables().collect::<Vec<_>>(), [2, 5, 9]);
    assert_eq!((memtable.partitions(5), memtable.partitions(6)), (1, 0));
    assert_eq!((memtable.timestamp_min(5), memtable.timestamp_min(6)), (5, i64::MAX));
    memtable.retain(|table| table == 9);
    assert_eq!(memtable.tables().collect::<Vec<_>>(), [9]);
    assert!(Cursor::at(&memtable, 5, 3, b"key").is_none());
    assert!(Cursor::at(&memtable, 9, 3, b"key").is_some());
    memtable.retain(|_| false);
    assert!(memtable.is_empty() && memtable.bytes() == 0, "nothing is left to keep memory for");
}

#[test]
fn rows_drop_cells_under_their_own_deletion() {
    let mut cells = Vec::new();
    push(&mut cells, Cell::dead(cells::DELETION, 5, 1));
    let deletion = cells.clone();
    push(&mut cells, Cell::live(FIRST_COLUMN, 5, b"hidden"));
    for clustering in [&b""[..], b"c"] {
        let mut memtable = Memtable::default();
        write(&mut memtable, 1, clustering, &cells);
        assert_eq!(Cursor::new(&memtable, 1).row(), Some((clustering, &deletion[..])));
    }
}

#[test]
fn owning_cursor_can_be_interrupted() {
    let mut memtable = Memtable::default();
    for clustering in 0..100u8 {
        write(&mut memtable, 1, &[clustering], &row(1, b"v"));
    }
    let mut cursor = Cursor::new(std::rc::Rc::new(memtable), 1);
    for clustering in 0..100u8 {
        assert_eq!(cursor.row().map(|(key, _)| key), Some(&[clustering][..]));
        cursor.next_row();
    }
    assert_eq!(cursor.row(), None);
    cursor.next_partition();
    assert_eq!(cursor.partition(), None);
}
