use super::*;

const COLUMN: u16 = cells::FIRST_COLUMN;
const TIME: WriteTime = WriteTime { timestamp: 10, now_s: 100, ttl_s: 0 };

/// A row with a list of these values, in column [`COLUMN`].
fn row_of(values: &[&[u8]]) -> Vec<u8> {
    let mut row = Vec::new();
    for (path, value) in (0_u8..).zip(values) {
        let content = Content::Live(value);
        cells::push(&mut row, Cell { column: COLUMN, path: Some(&[path]), timestamp: 5, content });
    }
    row
}

fn operation(change: Change) -> RowOperation {
    RowOperation { column: COLUMN, change }
}

fn at(position: i32, change: ElementChange) -> RowOperation {
    operation(Change::Element { position, change })
}

/// The values of the list after the operations, or the error.
fn list_after(values: &[&[u8]], operations: &[RowOperation]) -> Result<String, String> {
    let (before, mut written, mut after) = (row_of(values), Vec::new(), Vec::new());
    put_operations(&mut written, operations, &before, TIME).map_err(|error| match error {
        Failure::Invalid(message) => message,
        other => panic!("{other:?}"),
    })?;
    assert!(cells::is_valid(&written));
    cells::merge(&before, &written, &mut after);
    let values = cells::iter(&after).filter_map(|cell| cell.value());
    Ok(values.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" "))
}

#[test]
fn elements_are_changed_by_position() {
    let values: &[&[u8]] = &[b"a", b"b", b"c"];
    let set = |value: &str| ElementChange::Set(Some(value.into()));
    let check = |operations: &[RowOperation], expect: &str| {
        assert_eq!(list_after(values, operations), Ok(expect.to_owned()));
    };
    check(&[at(0, set("x"))], "x b c");
    check(&[at(2, set("x"))], "a b x");
    check(&[at(1, ElementChange::Set(None))], "a c");
    check(&[at(1, ElementChange::Delete)], "a c");
    check(&[at(1, ElementChange::Keep)], "a b c");
    // Every operation sees the list as it was.
    check(&[at(0, ElementChange::Delete), at(1, set("x"))], "x c");
    check(&[at(0, set("x")), at(0, set("y"))], "y b c");
}

#[test]
fn positions_outside_of_a_list_are_refused() {
    let set = || ElementChange::Set(Some(b"x".to_vec()));
    let error = |values: &[&[u8]], operation| list_after(values, &[operation]).unwrap_err();
    let outside = error(&[b"a", b"b"], at(2, set()));
    assert_eq!(outside, "List index 2 out of bound, list has size 2");
    let negative = error(&[b"a"], at(-1, ElementChange::Delete));
    assert_eq!(negative, "List index -1 out of bound, list has size 1");
    let kept = error(&[b"a"], at(1, ElementChange::Keep));
    assert_eq!(kept, "List index 1 out of bound, list has size 1");
    let null = error(&[], at(0, set()));
    assert_eq!(null, "Attempted to set an element on a list which is null");
    let null = error(&[], at(0, ElementChange::Delete));
    assert_eq!(null, "Attempted to delete an element from a list which is null");
}

#[test]
fn elements_are_removed_by_value() {
    let values: &[&[u8]] = &[b"a", b"b", b"a"];
    let discard = |values: &[&[u8]]| {
        operation(Change::Discard(values.iter().map(|value| value.to_vec()).collect()))
    };
    assert_eq!(list_after(values, &[discard(&[b"a"])]), Ok("b".into()));
    assert_eq!(list_after(values, &[discard(&[b"b", b"x"])]), Ok("a a".into()));
    assert_eq!(list_after(values, &[discard(&[])]), Ok("a b a".into()));
    assert_eq!(list_after(&[], &[discard(&[b"a"])]), Ok(String::new()));
}

#[test]
fn a_counter_is_written_as_its_sum() {
    let mut operations = Vec::new();
    add(&mut operations, operation(Change::Count(5)));
    add(&mut operations, operation(Change::Count(-2)));
    assert_eq!(operations, [operation(Change::Count(3))]);
    let sum = |before: &[u8], by| {
        let mut row = Vec::new();
        put_operations(&mut row, &[operation(Change::Count(by))], before, TIME).unwrap();
        row
    };
    let first = sum(&[], 3);
    assert_eq!(count(cells::iter(&first)), 3);
    assert_eq!(count(cells::iter(&sum(&first, 4))), 7);
    assert_eq!(count(cells::iter(&sum(&first, i64::MAX))), i64::MIN + 2);
}
