use super::super::*;
use super::*;
use crate::statement::{self, Insert, Modify, Statement, Term};
use proptest::prelude::*;

/// Parses one literal.
fn literal(text: &str) -> Literal {
    let parsed = statement::parse(&format!("INSERT INTO t (a) VALUES ({text})"))
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    match parsed.statement {
        Statement::Modify(Modify::Insert(Insert { values, .. })) => match values.into_iter().next()
        {
            Some(Term::Literal(literal)) => literal,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Parses one type.
fn kind(text: &str) -> Type {
    let text = format!("CREATE TABLE t (k int PRIMARY KEY, a {text})");
    match statement::parse(&text).unwrap().statement {
        Statement::CreateTable(create) => create.columns[1].1.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn literals_encode_and_print() {
    for (name, text, bytes, printed) in [
        ("int", "-2", &[0xff, 0xff, 0xff, 0xfe][..], "-2"),
        ("bigint", "1", &[0, 0, 0, 0, 0, 0, 0, 1], "1"),
        ("smallint", "258", &[1, 2], "258"),
        ("tinyint", "-1", &[0xff], "-1"),
        ("varint", "128", &[0, 0x80], "128"),
        ("varint", "-129", &[0xff, 0x7f], "-129"),
        ("boolean", "TRUE", &[1], "true"),
        ("text", "'it''s'", b"it's", "'it''s'"),
        ("ascii", "$$a$$", b"a", "'a'"),
        ("blob", "0xCAFE", &[0xca, 0xfe], "0xcafe"),
        ("blob", "0x", &[], "0x"),
        ("float", "0.1", &[0x3d, 0xcc, 0xcc, 0xcd], "0.1"),
        ("double", "-2", &[0xc0, 0, 0, 0, 0, 0, 0, 0], "-2.0"),
        ("double", "-Infinity", &[0xff, 0xf0, 0, 0, 0, 0, 0, 0], "-Infinity"),
        ("inet", "'127.0.0.1'", &[127, 0, 0, 1], "'127.0.0.1'"),
        ("inet", "'::1'", &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], "'::1'"),
        ("date", "'1970-01-02'", &[0x80, 0, 0, 1], "'1970-01-02'"),
        ("date", "'1969-12-31'", &[0x7f, 0xff, 0xff, 0xff], "'1969-12-31'"),
        ("time", "'00:00:01.5'", &[0, 0, 0, 0, 0x59, 0x68, 0x2f, 0], "'00:00:01.500000000'"),
        (
            "timestamp",
            "'2000-02-29 23:59+01:00'",
            &[0, 0, 0, 0xdd, 0x9f, 0x95, 0x63, 0x20],
            "'2000-02-29 22:59:00.000+0000'",
        ),
        (
            "uuid",
            "123e4567-e89b-12d3-a456-426614174000",
            &[
                0x12, 0x3e, 0x45, 0x67, 0xe8, 0x9b, 0x12, 0xd3, 0xa4, 0x56, 0x42, 0x66, 0x14, 0x17,
                0x40, 0,
            ],
            "123e4567-e89b-12d3-a456-426614174000",
        ),
        ("list<int>", "[1]", &[0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1], "[1]"),
        ("set<tinyint>", "{2, 1, 2}", &[0, 0, 0, 2, 0, 0, 0, 1, 1, 0, 0, 0, 1, 2], "{1, 2}"),
        ("set<int>", "{}", &[0, 0, 0, 0], "{}"),
        (
            "frozen<map<text, boolean>>",
            "{'a': true}",
            &[0, 0, 0, 1, 0, 0, 0, 1, b'a', 0, 0, 0, 1, 1],
            "{'a': true}",
        ),
        (
            "tuple<tinyint, text>",
            "(1, null)",
            &[0, 0, 0, 1, 1, 0xff, 0xff, 0xff, 0xff],
            "(1, null)",
        ),
    ] {
        let kind = kind(name);
        let encoded = literal(text).encode(&kind).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(encoded.as_deref(), Some(bytes), "{name} {text}");
        assert_eq!(kind.print(bytes).to_string(), printed, "{name} {text}");
    }
    assert_eq!(Literal::Null.encode(&Type::Int), Ok(None));
}

#[test]
fn invalid_literals_are_refused_with_a_reason() {
    for (name, text, message) in [
        ("int", "'x'", "invalid STRING constant for a value of type int"),
        ("int", "2147483648", "2147483648 is out of range for type int"),
        ("text", "1", "invalid INTEGER constant for a value of type text"),
        ("date", "'2001-02-29'", "unable to read '2001-02-29' as date"),
        (
            "timeuuid",
            "123e4567-e89b-42d3-a456-426614174000",
            "the bytes are no value of type timeuuid",
        ),
        ("list<int>", "[null]", "null is not supported inside collections"),
        ("map<int, int>", "{1}", "invalid SET constant for a value of type map<int, int>"),
    ] {
        assert_eq!(literal(text).encode(&kind(name)).unwrap_err().to_string(), message);
    }
}

#[test]
fn invalid_bytes_are_refused() {
    for (name, bytes) in [
        ("int", &[0, 0, 1][..]),
        ("tinyint", &[]),
        ("text", &[0xff]),
        ("ascii", "ä".as_bytes()),
        ("inet", &[1, 2, 3]),
        ("time", &[0xff; 8]),
        ("list<int>", &[0, 0, 0, 1]),
        ("list<int>", &[0xff; 4]),
        ("list<int>", &[0, 0, 0, 0, 0]),
        ("map<int, int>", &[0, 0, 0, 1, 0, 0, 0, 0]),
        ("tuple<int>", &[0, 0, 0, 0, 0]),
    ] {
        assert!(kind(name).validate(bytes).is_err(), "{name} {bytes:02x?}");
    }
    assert_eq!(Type::Text.print(&[0xff]).to_string(), "0xff");
}

pub(crate) fn any_type() -> impl Strategy<Value = Type> {
    let scalar = prop::sample::select(SCALARS.map(|(.., kind)| kind).to_vec());
    scalar.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|kind| Type::List(Box::new(kind))),
            inner.clone().prop_map(|kind| Type::Set(Box::new(kind))),
            (inner.clone(), inner.clone())
                .prop_map(|(key, value)| Type::Map(Box::new(key), Box::new(value))),
            prop::collection::vec(inner, 1..3).prop_map(Type::Tuple),
        ]
    })
}

proptest! {
    #[test]
    fn types_round_trip_on_the_wire_and_in_text(one in any_type()) {
        let mut bytes = Vec::new();
        one.encode(crate::frame::Version::V4, &mut bytes);
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(&Type::decode(&mut reader), &Ok(one.clone()));
        prop_assert_eq!(reader.end(), Ok(()));
        let text = one.to_string();
        if !text.contains("counter") {
            prop_assert_eq!(kind(&text), one);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_make_a_value_panic(one in any_type(), bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = one.validate(&bytes);
        let _ = one.print(&bytes).to_string();
    }

    #[test]
    fn arbitrary_bytes_do_not_make_a_type_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = Type::decode(&mut Reader::new(&bytes));
    }

    #[test]
    fn dates_round_trip(days in any::<u32>()) {
        let bytes = days.to_be_bytes();
        let printed = Type::Date.print(&bytes).to_string();
        if printed.len() == 12 && !printed.contains("'-") {
            prop_assert_eq!(literal(&printed).encode(&Type::Date), Ok(Some(bytes.to_vec())));
        }
    }

    #[test]
    fn timestamps_round_trip(milliseconds in 0..253_402_300_800_000_i64) {
        let bytes = milliseconds.to_be_bytes();
        let printed = Type::Timestamp.print(&bytes).to_string();
        prop_assert_eq!(literal(&printed).encode(&Type::Timestamp), Ok(Some(bytes.to_vec())));
    }

    #[test]
    fn integers_round_trip(value in any::<i128>()) {
        let bytes = Literal::Integer(value).encode(&Type::Varint).unwrap().unwrap();
        prop_assert_eq!(Type::Varint.print(&bytes).to_string(), value.to_string());
    }

    #[test]
    fn arbitrary_text_does_not_make_a_literal_panic(one in any_type(), text in "\\PC{0,30}") {
        let _ = Literal::Text(text).encode(&one);
    }
}

#[test]
fn parts_are_those_of_collections_and_tuples() {
    let bytes = [0, 0, 0, 1, 0, 0, 0, 1, b'a', 0, 0, 0, 1, b'b'];
    let map = kind("frozen<map<text, text>>");
    assert_eq!(map.parts(&bytes), [(&Type::Text, Some(&b"a"[..])), (&Type::Text, Some(b"b"))]);
    let tuple = kind("tuple<text, text>");
    assert_eq!(tuple.parts(&bytes[4..9]), [(&Type::Text, Some(&b"a"[..])), (&Type::Text, None)]);
    assert_eq!(Type::Text.parts(b"long enough for a count of parts"), []);
}
