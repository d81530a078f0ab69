//! Clustering keys in a form that compares bytewise: each component is written so that the order
//! of the bytes is the order of the values, no component is a prefix of another, and a descending
//! one is inverted. So a partition is a map ordered by bytes, and a prefix of the columns is a
//! prefix of the bytes.

use tare_cql::types::Type;

/// Whether values of this type can be ordered here.
pub(crate) fn is_orderable(kind: &Type) -> bool {
    !matches!(
        kind,
        Type::Varint
            | Type::Decimal
            | Type::Duration
            | Type::Counter
            | Type::List(_)
            | Type::Set(_)
            | Type::Map(..)
            | Type::Tuple(_)
            | Type::Frozen(_)
            | Type::Custom(_)
    )
}

/// Appends one component. The value has the length that its type demands.
pub(crate) fn push(out: &mut Vec<u8>, kind: &Type, descending: bool, value: &[u8]) {
    let from = out.len();
    if value.is_empty() && is_fixed(kind) {
        // The empty value, which Cassandra allows, comes first.
        out.push(0);
    } else {
        out.push(1);
        push_value(out, kind, value);
    }
    if descending {
        out[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

fn is_fixed(kind: &Type) -> bool {
    !matches!(kind, Type::Ascii | Type::Text | Type::Blob | Type::Inet)
}

fn push_value(out: &mut Vec<u8>, kind: &Type, value: &[u8]) {
    let from = out.len();
    match kind {
        Type::Tinyint
        | Type::Smallint
        | Type::Int
        | Type::Bigint
        | Type::Timestamp
        | Type::Time => {
            out.extend_from_slice(value);
            out[from] ^= 0x80;
        }
        Type::Float | Type::Double => {
            out.extend_from_slice(value);
            // IEEE 754 orders as sign and magnitude.
            if value[0] & 0x80 == 0 {
                out[from] ^= 0x80;
            } else {
                out[from..].iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        Type::Uuid | Type::Timeuuid if value.len() == 16 => {
            // By version, then (version 1) by time, then by the rest.
            let version = value[6] >> 4;
            out.push(version);
            if version == 1 || matches!(kind, Type::Timeuuid) {
                out.push(value[6] & 0x0f);
                out.push(value[7]);
                out.extend_from_slice(&value[4..6]);
                out.extend_from_slice(&value[..4]);
                out.extend_from_slice(&value[8..]);
            } else {
                out.extend_from_slice(value);
            }
        }
        Type::Boolean | Type::Date => out.extend_from_slice(value),
        _ => {
            // Of any length: zeros are escaped, and two zeros end it.
            for &byte in value {
                out.push(byte);
                if byte == 0 {
                    out.push(0xff);
                }
            }
            out.extend_from_slice(&[0, 0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(kind: &Type, descending: bool, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        push(&mut out, kind, descending, value);
        out
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
        }
    }

    #[test]
    fn time_uuids_order_by_time() {
        // Low, middle and high part of the time, then clock and node.
        let early = [0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0, 9, 9, 9, 9, 9, 9, 9, 9];
        let late = [0, 0, 0, 0, 0, 1, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(key(&Type::Timeuuid, false, &early) < key(&Type::Timeuuid, false, &late));
    }
}
