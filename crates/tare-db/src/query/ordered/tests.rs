use super::*;
use proptest::prelude::*;
use tare_cql::statement::Literal;

fn key(kind: &Type, descending: bool, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push(&mut out, kind, descending, value);
    out
}

/// What a key says, when another component follows.
fn back(kind: &Type, descending: bool, mut key: Vec<u8>) -> Vec<u8> {
    let length = key.len();
    key.extend_from_slice(&[1, 2, 3]);
    assert_eq!(skip(kind, descending, &key), Some(&[1, 2, 3][..]), "{kind} {length}");
    let mut out = b"before".to_vec();
    assert!(component(&mut out, kind, descending, &key));
    out[6..].to_vec()
}

proptest! {
    #[test]
    fn integers_keep_their_order(a: i64, b: i64, descending: bool) {
        let order = if descending { b.cmp(&a) } else { a.cmp(&b) };
        let bytes = |x: i64| key(&Type::Bigint, descending, &x.to_be_bytes());
        prop_assert_eq!(bytes(a).cmp(&bytes(b)), order);
    }

    #[test]
    fn floats_keep_their_order(a: f64, b: f64) {
        let bytes = |x: f64| key(&Type::Double, false, &x.to_be_bytes());
        if let Some(order) = a.partial_cmp(&b).filter(|_| a != b) {
            prop_assert_eq!(bytes(a).cmp(&bytes(b)), order);
        }
    }

    #[test]
    fn texts_keep_their_order_and_no_prefix(
        a in proptest::collection::vec(0u8..3, 0..6),
        b in proptest::collection::vec(0u8..3, 0..6),
        descending: bool,
    ) {
        let order = if descending { b.cmp(&a) } else { a.cmp(&b) };
        let (x, y) = (key(&Type::Blob, descending, &a), key(&Type::Blob, descending, &b));
        prop_assert_eq!(x.cmp(&y), order);
        prop_assert_eq!(x.starts_with(&y), a == b);
        prop_assert_eq!(back(&Type::Blob, descending, x), a);
    }

    #[test]
    fn long_integers_keep_their_order(a: i128, b: i128, shift in 0u32..128, descending: bool) {
        let (a, b) = (a >> shift, b);
        let order = if descending { b.cmp(&a) } else { a.cmp(&b) };
        let value = |x: i128| Literal::Integer(x).encode(&Type::Varint).unwrap().unwrap();
        let bytes = |x: i128| key(&Type::Varint, descending, &value(x));
        prop_assert_eq!(bytes(a).cmp(&bytes(b)), order);
        prop_assert_eq!(back(&Type::Varint, descending, bytes(a)), value(a));
    }

    #[test]
    fn decimals_keep_their_order(a in -999i64..999, b in -999i64..999, c in -3i32..3, d in -3i32..3) {
        let value = |unscaled: i64, scale: i32| {
            let mut bytes = scale.to_be_bytes().to_vec();
            bytes.extend(Literal::Integer(unscaled.into()).encode(&Type::Varint).unwrap().unwrap());
            bytes
        };
        let number = |unscaled: i64, scale: i32| unscaled * 10_i64.pow(u32::try_from(3 - scale).unwrap());
        let (x, y) = (key(&Type::Decimal, false, &value(a, c)), key(&Type::Decimal, false, &value(b, d)));
        if number(a, c) != number(b, d) {
            prop_assert_eq!(x.cmp(&y), number(a, c).cmp(&number(b, d)));
        }
        prop_assert_eq!(back(&Type::Decimal, false, x), value(a, c));
        let inverted = key(&Type::Decimal, true, &value(a, c));
        prop_assert_eq!(back(&Type::Decimal, true, inverted), value(a, c));
    }

    #[test]
    fn every_value_comes_back(bytes: [u8; 16], flag: bool, descending: bool) {
        let mut time_uuid = bytes;
        time_uuid[6] = time_uuid[6] & 0x0f | 0x10;
        let cases: [(Type, &[u8]); 14] = [
            (Type::Tinyint, &bytes[..1]),
            (Type::Smallint, &bytes[..2]),
            (Type::Int, &bytes[..4]),
            (Type::Bigint, &bytes[..8]),
            (Type::Timestamp, &bytes[..8]),
            (Type::Time, &bytes[..8]),
            (Type::Date, &bytes[..4]),
            (Type::Float, &bytes[..4]),
            (Type::Double, &bytes[..8]),
            (Type::Uuid, &bytes),
            (Type::Uuid, &time_uuid),
            (Type::Timeuuid, &time_uuid),
            (Type::Inet, &bytes),
            (Type::Boolean, if flag { &[1] } else { &[] }),
        ];
        for (kind, value) in cases {
            prop_assert_eq!(back(&kind, descending, key(&kind, descending, value)), value);
        }
    }
}

#[test]
fn time_uuids_order_by_time_then_by_signed_bytes() {
    // Low, middle and high part of the time, then clock and node.
    let early = [0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0, 9, 9, 9, 9, 9, 9, 9, 9];
    let late = [0, 0, 0, 0, 0, 1, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let least = [0, 0, 0, 0, 0, 1, 0x10, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80];
    let of = |uuid| key(&Type::Timeuuid, false, uuid);
    assert!(of(&early) < of(&least) && of(&least) < of(&late));
}
