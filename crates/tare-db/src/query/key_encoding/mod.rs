//! Memcomparable encoding of clustering keys: the order of the bytes is the order of the values, no
//! component is a prefix of another, and the components of descending columns are inverted. So a
//! partition is a map ordered by bytes, and a prefix of the columns is a prefix of the bytes. The
//! encoding is reversible: [`component`] returns a value.
//!
//! Values that Cassandra takes for equal although they differ (the decimals 1.0 and 1.00) are two
//! rows here.

mod decimal;
mod nested;

use tare_cql::types::Type;

/// The longest decimal or varint in bytes. The time to convert one grows with the square of its
/// length.
pub(crate) const NUMBER_BYTES_MAX: usize = 1024;

const EMPTY: u8 = 0;
const PRESENT: u8 = 1;

/// Whether values of this type can be part of a key, or keys of a map or elements of a set.
pub(crate) fn is_orderable(kind: &Type) -> bool {
    match kind {
        Type::Duration | Type::Counter | Type::Custom(_) => false,
        Type::List(_) | Type::Set(_) | Type::Map(..) => false,
        Type::Frozen(within) => nested::kinds(within).all(is_orderable),
        Type::Tuple(fields) => fields.iter().all(is_orderable),
        _ => true,
    }
}

/// Whether a value is too long for a key of its type, or has such a value in it.
pub(crate) fn is_too_long(kind: &Type, value: &[u8]) -> bool {
    match kind {
        Type::Decimal | Type::Varint => value.len() > NUMBER_BYTES_MAX,
        Type::Frozen(_) | Type::Tuple(_) => nested::is_too_long(kind, value),
        _ => false,
    }
}

/// Appends one component. The value has to be valid for its type.
pub(crate) fn push(out: &mut Vec<u8>, kind: &Type, descending: bool, value: &[u8]) {
    let from = out.len();
    if value.is_empty() && !is_text(kind) {
        // The empty value, which Cassandra allows, comes first.
        out.push(EMPTY);
    } else {
        out.push(PRESENT);
        push_value(out, kind, value);
    }
    if descending {
        out[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Strings, for which the empty value is an ordinary value.
fn is_text(kind: &Type) -> bool {
    matches!(kind, Type::Ascii | Type::Text | Type::Blob | Type::Inet)
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
        Type::Uuid | Type::Timeuuid => {
            // The order is by version, then (version 1) by time, then by the rest.
            let version = value[6] >> 4;
            out.push(version);
            if version == 1 {
                out.push(value[6] & 0x0f);
                out.push(value[7]);
                out.extend_from_slice(&value[4..6]);
                out.extend_from_slice(&value[..4]);
                out.extend_from_slice(&value[8..]);
            } else {
                out.extend_from_slice(value);
            }
            if matches!(kind, Type::Timeuuid) {
                // Cassandra compares these bytes as signed ones (its `TimeUUIDType`).
                out[from + 9..].iter_mut().for_each(|byte| *byte ^= 0x80);
            }
        }
        Type::Boolean | Type::Date => out.extend_from_slice(value),
        Type::Varint => push_varint(out, value),
        Type::Decimal => decimal::push(out, value),
        Type::Frozen(_) | Type::Tuple(_) => nested::push(out, kind, value),
        _ => {
            // The length is free: zeros are escaped, and two zeros end the component.
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

/// Appends the sign, the length, and the shortest two's complement. A longer negative number is
/// less.
fn push_varint(out: &mut Vec<u8>, value: &[u8]) {
    let mut value = value;
    while let [first, second, ..] = value
        && ((*first == 0 && *second < 0x80) || (*first == 0xff && *second >= 0x80))
    {
        value = &value[1..];
    }
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    if value[0] < 0x80 {
        out.push(1);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(0);
        out.extend_from_slice(&(!length).to_be_bytes());
    }
    out.extend_from_slice(value);
}

/// Length of the first component in bytes, including its first byte; `None` if no whole component
/// follows.
fn length_of(kind: &Type, descending: bool, bytes: &[u8]) -> Option<usize> {
    let mask = if descending { 0xff } else { 0 };
    if bytes.first()? ^ mask == EMPTY {
        return Some(1);
    }
    let body = &bytes[1..];
    let length = match kind {
        Type::Boolean | Type::Tinyint => 1,
        Type::Smallint => 2,
        Type::Int | Type::Float | Type::Date => 4,
        Type::Bigint | Type::Timestamp | Type::Time | Type::Double => 8,
        Type::Uuid | Type::Timeuuid => 17,
        Type::Varint => {
            let negative = body.first()? ^ mask == 0;
            let length = u16::from_be_bytes([body.get(1)? ^ mask, body.get(2)? ^ mask]);
            3 + usize::from(if negative { !length } else { length })
        }
        Type::Decimal => decimal::length_of(body, mask)?,
        Type::Frozen(_) | Type::Tuple(_) => nested::length_of(kind, descending, body)?,
        _ => {
            let mut at = 0;
            loop {
                at += body[at..].iter().position(|byte| byte ^ mask == 0)?;
                let follows = body.get(at + 1)? ^ mask;
                at += 2;
                if follows == 0 {
                    break at;
                }
            }
        }
    };
    (bytes.len() > length).then_some(length + 1)
}

/// Cuts the first component off a key.
pub(crate) fn skip<'k>(kind: &Type, descending: bool, key: &'k [u8]) -> Option<&'k [u8]> {
    key.get(length_of(kind, descending, key)?..)
}

/// Appends the value of the first component of a key. Returns false if there is none.
pub(crate) fn component(out: &mut Vec<u8>, kind: &Type, descending: bool, key: &[u8]) -> bool {
    let Some(length) = length_of(kind, descending, key) else { return false };
    let mask = if descending { 0xff } else { 0 };
    if key[0] ^ mask == EMPTY {
        return true;
    }
    let from = out.len();
    out.extend(key[1..length].iter().map(|byte| byte ^ mask));
    let value = &mut out[from..];
    match kind {
        Type::Tinyint
        | Type::Smallint
        | Type::Int
        | Type::Bigint
        | Type::Timestamp
        | Type::Time => value[0] ^= 0x80,
        Type::Float | Type::Double => {
            if value[0] & 0x80 == 0 {
                value.iter_mut().for_each(|byte| *byte = !*byte);
            } else {
                value[0] ^= 0x80;
            }
        }
        Type::Uuid | Type::Timeuuid => {
            if matches!(kind, Type::Timeuuid) {
                value[9..].iter_mut().for_each(|byte| *byte ^= 0x80);
            }
            if value[0] == 1 {
                let [_, g, h, e, f, a, b, c, d, ..] = *value else { return false };
                value[1..9].copy_from_slice(&[a, b, c, d, e, f, g | 0x10, h]);
            }
            value.copy_within(1.., 0);
            out.pop();
        }
        Type::Boolean | Type::Date => {}
        Type::Varint => {
            value.copy_within(3.., 0);
            out.truncate(out.len() - 3);
        }
        Type::Decimal | Type::Frozen(_) | Type::Tuple(_) => {
            let value = match kind {
                Type::Decimal => decimal::value(value),
                _ => nested::value(kind, value),
            };
            out.truncate(from);
            out.extend_from_slice(&value);
        }
        _ => {
            // A byte was added after each zero; the last two zeros are the end.
            let (mut read, mut write) = (0, 0);
            while read < value.len() - 2 {
                value[write] = value[read];
                read += if value[read] == 0 { 2 } else { 1 };
                write += 1;
            }
            out.truncate(from + write);
        }
    }
    true
}

#[cfg(test)]
mod tests;
