//! Collections: which types a column may have, the order of the elements of a set or a map, and the
//! elements of a column that is not frozen as cells of a row.
//!
//! The store keeps each element of such a column as a cell with a path. The path of an element of a
//! set is the encoding of the element as a key (`key_encoding`), that of a map entry the encoding
//! of its key, and that of a list element the encoding of a time UUID, as in Cassandra. So the
//! order of the cells is the order of the elements.

mod column_type;

use std::collections::BTreeMap;

use tare_cql::types::Type;
use tare_cql::wire::{put_bytes, put_count};
use tare_store::cells::Cell;

use crate::query::failure::Failure;
use crate::query::key_encoding;
pub(crate) use column_type::column_type;

/// Whether a value of this type has an order that a client may not have kept.
pub(crate) fn has_order(kind: &Type) -> bool {
    match kind {
        Type::Set(_) | Type::Map(..) => true,
        Type::List(element) => has_order(element),
        Type::Frozen(within) => has_order(within),
        Type::Tuple(fields) => fields.iter().any(has_order),
        _ => false,
    }
}

/// A valid value with the elements of its sets and maps in their order, each once. Of several
/// entries of a map with the same key the last counts, as in Cassandra.
pub(crate) fn in_order(kind: &Type, value: &[u8]) -> Result<Vec<u8>, Failure> {
    let parts = kind.parts(value);
    let mut out = Vec::new();
    match kind.unfrozen() {
        Type::List(_) => {
            put_count(&mut out, parts.len());
            for (kind, part) in parts {
                put_bytes(&mut out, Some(&in_order(kind, part.unwrap_or_default())?));
            }
        }
        Type::Tuple(_) => {
            // A tuple may have fewer fields than its type.
            let mut left = value.len();
            for (kind, part) in parts {
                if left == 0 {
                    break;
                }
                left -= 4 + part.map_or(0, <[u8]>::len);
                let part = part.map(|part| in_order(kind, part)).transpose()?;
                put_bytes(&mut out, part.as_deref());
            }
        }
        Type::Set(_) | Type::Map(..) => {
            let width = if matches!(kind.unfrozen(), Type::Set(_)) { 1 } else { 2 };
            let mut elements = BTreeMap::new();
            for element in parts.chunks(width) {
                let mut encoded = Vec::new();
                for (kind, part) in element {
                    encoded.push(in_order(kind, part.unwrap_or_default())?);
                }
                let (kind, _) = element[0];
                elements.insert(key_of(kind, &encoded[0])?, encoded);
            }
            put_count(&mut out, elements.len());
            elements.values().flatten().for_each(|part| put_bytes(&mut out, Some(part)));
        }
        _ => out.extend_from_slice(value),
    }
    Ok(out)
}

/// The encoding of a map's key, or of an element of a set, that orders them.
pub(crate) fn key_of(kind: &Type, value: &[u8]) -> Result<Vec<u8>, Failure> {
    if key_encoding::is_too_long(kind, value) {
        return Err(Failure::Invalid(format!(
            "a decimal or varint in a set or in a key of a map has at most {} bytes",
            key_encoding::NUMBER_BYTES_MAX
        )));
    }
    let mut key = Vec::new();
    key_encoding::push(&mut key, kind, false, value);
    Ok(key)
}

/// The value of a column that is not frozen, from its visible cells; `None` if it has none.
pub(crate) fn value<'c>(kind: &Type, elements: impl Iterator<Item = Cell<'c>>) -> Option<Vec<u8>> {
    let (mut count, mut parts) = (0, Vec::new());
    for element in elements {
        count += 1;
        let path = element.path.unwrap_or_default();
        let mut key = |kind: &Type| {
            let mut key = Vec::new();
            key_encoding::component(&mut key, kind, false, path);
            put_bytes(&mut parts, Some(&key));
        };
        match kind {
            Type::Set(kind) => key(kind),
            Type::Map(kind, _) => {
                key(kind);
                put_bytes(&mut parts, element.value());
            }
            _ => put_bytes(&mut parts, element.value()),
        }
    }
    let mut out = Vec::with_capacity(parts.len() + 4);
    put_count(&mut out, count);
    out.extend_from_slice(&parts);
    (count > 0).then_some(out)
}

#[cfg(test)]
mod tests;
