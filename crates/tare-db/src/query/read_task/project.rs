//! Projects a row: the values of its keys and cells, and what functions compute from them.

use std::borrow::Cow;

use tare_cql::statement::function::CallContext;
use tare_cql::types::Type;
use tare_cql::wire::{put_bytes, put_bytes_with};
use tare_store::{Row, cells};

use crate::query::catalog::Table;
use crate::query::collections;
use crate::query::key_encoding;
use crate::query::plan::Item;

/// Columns with a number below this need no search.
const INDEXED: usize = 64;

/// Whether a row has a value in a column.
pub(super) fn has_value(number: u16, row: &Row<'_>) -> bool {
    cells::iter(row.cells).any(|cell| cell.column == number)
}

/// Appends the selected items of a row, each with its length.
#[inline]
pub(crate) fn put_row(
    out: &mut Vec<u8>,
    items: &[Item],
    table: &Table,
    row: &Row<'_>,
    now: (u32, &CallContext),
) {
    let mut indexed: [Option<&[u8]>; INDEXED] = [None; INDEXED];
    for found in cells::iter(row.cells) {
        if let Some(slot) = indexed.get_mut(usize::from(found.column)) {
            *slot = found.value();
        }
    }
    for item in items {
        match item {
            Item::Cell(number) => put_bytes(
                out,
                match indexed.get(usize::from(*number)) {
                    Some(value) => *value,
                    None => cell(row, *number).and_then(|cell| cell.value()),
                },
            ),
            Item::Partition(index) => {
                let composite = table.partition.len() > 1;
                put_bytes(out, key_component(row.key, composite, *index));
            }
            // The row has only static columns.
            Item::Clustering(_) if row.clustering.is_empty() => put_bytes(out, None),
            Item::Clustering(index) => {
                put_bytes_with(out, |out| put_clustering(out, table, row.clustering, *index));
            }
            other => put_bytes(out, value(other, table, row, now).as_deref()),
        }
    }
}

/// The value of an item that may have to be computed.
pub(super) fn value<'r>(
    item: &Item,
    table: &Table,
    row: &Row<'r>,
    now: (u32, &CallContext),
) -> Option<Cow<'r, [u8]>> {
    let computed = match item {
        Item::Cell(number) => return cell(row, *number)?.value().map(Cow::Borrowed),
        Item::Partition(index) => {
            let composite = table.partition.len() > 1;
            return key_component(row.key, composite, *index).map(Cow::Borrowed);
        }
        Item::Clustering(_) if row.clustering.is_empty() => return None,
        Item::Clustering(index) => {
            let mut out = Vec::new();
            put_clustering(&mut out, table, row.clustering, *index);
            out
        }
        Item::Collection(number, kind) => {
            let elements = cells::iter(row.cells).filter(|cell| cell.column == *number);
            return collections::value(kind, elements).map(Cow::Owned);
        }
        Item::WriteTime(number) => cell(row, *number)?.timestamp.to_be_bytes().to_vec(),
        Item::Ttl(number) => {
            let left_s = cell(row, *number)?.left_s(now.0)?;
            i32::try_from(left_s).unwrap_or(i32::MAX).to_be_bytes().to_vec()
        }
        Item::Token => row.token.to_be_bytes().to_vec(),
        Item::Call(function, argument) => {
            let (argument, kind) = match argument {
                Some(inner) => (value(&inner.0, table, row, now), &inner.1),
                None => (None, &Type::Blob),
            };
            function.call(argument.as_deref(), kind, now.1)?
        }
    };
    Some(Cow::Owned(computed))
}

fn cell<'r>(row: &Row<'r>, number: u16) -> Option<cells::Cell<'r>> {
    cells::iter(row.cells).find(|cell| cell.column == number)
}

/// Appends the value of a clustering column.
#[inline]
fn put_clustering(out: &mut Vec<u8>, table: &Table, mut key: &[u8], index: usize) {
    for column in &table.clustering[..index] {
        key = key_encoding::skip(&column.kind, column.descending, key).unwrap_or_default();
    }
    let column = &table.clustering[index];
    key_encoding::component(out, &column.kind, column.descending, key);
}

/// One component of a serialised partition key. A composite key is a run of
/// `length u16, bytes, 0` (Cassandra's CompositeType).
pub(crate) fn key_component(key: &[u8], composite: bool, index: usize) -> Option<&[u8]> {
    if !composite {
        return Some(key);
    }
    let mut rest = key;
    for skip in (0..=index).rev() {
        let (length, after) = rest.split_first_chunk()?;
        let (component, after) =
            after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        if skip == 0 {
            return Some(component);
        }
        rest = after.get(1..)?;
    }
    None
}
