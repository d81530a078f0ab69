//! Collections and tuples in a key. A collection is compared element by element, then the shorter
//! one comes first; a tuple is compared field by field, and null comes first (Cassandra's
//! `ListType`, `MapType` and `TupleType`).
//!
//! ```text
//! collection  (1 | element)* | 0
//! tuple       (1 | value, or 0 for null), once for each field
//! ```
//!
//! An element of a map is its key, then its value. Sets and maps have to be in their own order (see
//! `query::collections`).

use tare_cql::types::Type;
use tare_cql::wire::{put_bytes, put_count};

use super::component;

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;

/// The types of the parts of a value.
pub(super) fn kinds(kind: &Type) -> Box<dyn Iterator<Item = &Type> + '_> {
    match kind.unfrozen() {
        Type::List(element) | Type::Set(element) => Box::new(std::iter::once(&**element)),
        Type::Map(key, value) => Box::new([&**key, &**value].into_iter()),
        Type::Tuple(fields) => Box::new(fields.iter()),
        scalar => Box::new(std::iter::once(scalar)),
    }
}

pub(super) fn is_too_long(kind: &Type, value: &[u8]) -> bool {
    let too_long = |(kind, part): (&Type, Option<&[u8]>)| {
        part.is_some_and(|part| super::is_too_long(kind, part))
    };
    kind.parts(value).into_iter().any(too_long)
}

pub(super) fn push(out: &mut Vec<u8>, kind: &Type, value: &[u8]) {
    let is_tuple = matches!(kind.unfrozen(), Type::Tuple(_));
    let width = if is_tuple { 1 } else { kinds(kind).count() };
    for (position, (kind, part)) in kind.parts(value).into_iter().enumerate() {
        match part {
            Some(part) => {
                if position % width == 0 {
                    out.push(PRESENT);
                }
                super::push(out, kind, false, part);
            }
            None => out.push(ABSENT),
        }
    }
    if !is_tuple {
        out.push(ABSENT);
    }
}

/// Length of the encoding at the front of the bytes; `None` if it is not whole.
pub(super) fn length_of(kind: &Type, descending: bool, bytes: &[u8]) -> Option<usize> {
    let mask = if descending { 0xff } else { 0 };
    let mut at = 0;
    let is_present = |at: &mut usize| {
        let tag = bytes.get(*at)? ^ mask;
        *at += 1;
        Some(tag == PRESENT)
    };
    let part = |kind: &Type, at: &mut usize| {
        *at += super::length_of(kind, descending, bytes.get(*at..)?)?;
        Some(())
    };
    if let Type::Tuple(fields) = kind.unfrozen() {
        for field in fields {
            if is_present(&mut at)? {
                part(field, &mut at)?;
            }
        }
        return Some(at);
    }
    while is_present(&mut at)? {
        for kind in kinds(kind) {
            part(kind, &mut at)?;
        }
    }
    Some(at)
}

/// The value of a whole encoding in ascending order.
pub(super) fn value(kind: &Type, bytes: &[u8]) -> Vec<u8> {
    let mut rest = bytes;
    let is_present = |rest: &mut &[u8]| {
        let tag = rest.split_off_first();
        tag == Some(&PRESENT)
    };
    let part = |out: &mut Vec<u8>, kind: &Type, rest: &mut &[u8]| {
        let mut value = Vec::new();
        component(&mut value, kind, false, rest);
        *rest = super::skip(kind, false, rest).unwrap_or_default();
        put_bytes(out, Some(&value));
    };
    let mut parts = Vec::new();
    if let Type::Tuple(fields) = kind.unfrozen() {
        for field in fields {
            match is_present(&mut rest) {
                true => part(&mut parts, field, &mut rest),
                false => put_bytes(&mut parts, None),
            }
        }
        return parts;
    }
    let mut count = 0;
    while is_present(&mut rest) {
        kinds(kind).for_each(|kind| part(&mut parts, kind, &mut rest));
        count += 1;
    }
    let mut out = Vec::new();
    put_count(&mut out, count);
    out.extend_from_slice(&parts);
    out
}
