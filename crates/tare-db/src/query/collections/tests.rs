use proptest::prelude::*;
use tare_cql::statement::parse_type;
use tare_cql::types::Type;

use super::*;
use crate::query::key_encoding;

fn kind(name: &str) -> Type {
    parse_type(name).unwrap()
}

fn literal(text: &str) -> tare_cql::statement::Literal {
    use tare_cql::statement::{Modify, Statement, Term, parse};
    let parsed = parse(&format!("INSERT INTO t (a) VALUES ({text})")).unwrap();
    let Statement::Modify(Modify::Insert(insert)) = parsed.statement else { panic!("{text}") };
    let Some(Term::Literal(literal)) = insert.values.into_iter().next() else { panic!("{text}") };
    literal
}

fn encoded(kind: &Type, text: &str) -> Vec<u8> {
    literal(text).encode(kind).unwrap().unwrap()
}

#[test]
fn types_of_columns_are_frozen_inside_and_checked() {
    for (declared, expect) in [
        ("int", "int"),
        ("set<int>", "set<int>"),
        ("list<duration>", "list<duration>"),
        ("map<text, frozen<list<int>>>", "map<text, frozen<list<int>>>"),
        ("frozen<list<set<int>>>", "frozen<list<frozen<set<int>>>>"),
        ("list<frozen<map<int, set<int>>>>", "list<frozen<map<int, frozen<set<int>>>>>"),
        ("tuple<int, set<int>>", "frozen<tuple<int, frozen<set<int>>>>"),
        ("list<frozen<tuple<int, tuple<int>>>>", "list<frozen<tuple<int, frozen<tuple<int>>>>>"),
        ("list<set<int>>", "Non-frozen collections are not allowed inside collections: "),
        ("set<duration>", "Durations are not allowed inside sets: "),
        ("map<tuple<duration>, int>", "Durations are not allowed as map keys: "),
        ("map<frozen<list<duration>>, int>", "Durations are not allowed as map keys: "),
        ("list<counter>", "Counters are not allowed inside collections: "),
        ("frozen<int>", "frozen<> is only allowed on collections, tuples, and user-defined types"),
    ] {
        let found = match column_type(&kind(declared)) {
            Ok(kind) => kind.to_string(),
            Err(Failure::Invalid(message)) => message,
            Err(other) => panic!("{declared}: {other:?}"),
        };
        assert!(found.starts_with(expect), "{declared}: {found}");
    }
}

#[test]
fn sets_and_maps_are_put_into_the_order_of_their_type() {
    for (name, text, expect) in [
        ("set<int>", "{1, -1, 0}", "{-1, 0, 1}"),
        ("map<int, text>", "{2: 'b', -3: 'a'}", "{-3: 'a', 2: 'b'}"),
        ("frozen<list<frozen<set<int>>>>", "[{1, -1}, {}]", "[{-1, 1}, {}]"),
        ("set<frozen<list<int>>>", "{[1, 2], [1], [-5, 9]}", "{[-5, 9], [1], [1, 2]}"),
        ("set<frozen<set<int>>>", "{{2, -1}, {-1, 2}, {}}", "{{}, {-1, 2}}"),
        (
            "set<frozen<tuple<int, text>>>",
            "{(1, 'b'), (-1, 'a'), (1)}",
            "{(-1, 'a'), (1), (1, 'b')}",
        ),
        ("frozen<tuple<frozen<set<int>>, int>>", "({2, 1}, null)", "({1, 2}, null)"),
        ("frozen<tuple<frozen<set<int>>, int>>", "({2, 1})", "({1, 2})"),
        ("set<frozen<map<int, int>>>", "{{1: 2}, {1: -2}}", "{{1: -2}, {1: 2}}"),
    ] {
        let kind = kind(name);
        let ordered = in_order(&kind, &encoded(&kind, text)).unwrap();
        assert_eq!(kind.print(&ordered).to_string(), expect, "{name} {text}");
    }
    // The last of several entries with one key counts.
    let map = kind("map<int, int>");
    let mut bytes = 2_i32.to_be_bytes().to_vec();
    for number in [1_i32, 5, 1, 6] {
        bytes.extend_from_slice(&[0, 0, 0, 4]);
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    assert_eq!(map.print(&in_order(&map, &bytes).unwrap()).to_string(), "{1: 6}");
}

proptest! {
    #[test]
    fn frozen_lists_in_keys_keep_their_order(
        a in proptest::collection::vec(any::<i8>(), 0..4),
        b in proptest::collection::vec(any::<i8>(), 0..4),
        descending: bool,
    ) {
        let kind = kind("frozen<list<frozen<list<tinyint>>>>");
        let value = |numbers: &[i8]| {
            let inner: Vec<String> = numbers.iter().map(|number| format!("[{number}]")).collect();
            encoded(&kind, &format!("[{}]", inner.join(", ")))
        };
        let key = |value: &[u8]| {
            let mut key = Vec::new();
            key_encoding::push(&mut key, &kind, descending, value);
            key
        };
        let (x, y) = (value(&a), value(&b));
        let order = if descending { b.cmp(&a) } else { a.cmp(&b) };
        prop_assert_eq!(key(&x).cmp(&key(&y)), order);
        prop_assert_eq!(key(&x).starts_with(&key(&y)), a == b);
        let (mut back, mut followed) = (Vec::new(), key(&x));
        followed.push(7);
        prop_assert!(key_encoding::component(&mut back, &kind, descending, &followed));
        prop_assert_eq!(key_encoding::skip(&kind, descending, &followed), Some(&[7][..]));
        prop_assert_eq!(back, x);
    }
}
