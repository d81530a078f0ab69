//! Changes of a column that depend on its value: of the elements of a list by position or by value,
//! and of counters. The errors are those of Cassandra.
//!
//! The shard that owns a row reads it, computes the cells and writes them in one call, so that no
//! other write comes between. It writes values, never differences: a counter is a cell with the
//! sum. So the log can be replayed any number of times.

use tare_cql::wire::Value;
use tare_store::cells::{self, Cell, Content};

use crate::query::bind::{BoundValues, list};
use crate::query::failure::Failure;
use crate::query::plan::{Operation, OperationChange, Source};
use crate::query::write_time::WriteTime;

/// An operation with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowOperation {
    pub(crate) column: u16,
    change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// Changes the element of a list at a position.
    Element { position: i32, change: ElementChange },
    /// Removes the elements of a list that have one of these values.
    Discard(Vec<Vec<u8>>),
    /// Adds to a counter.
    Count(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ElementChange {
    /// `DELETE l[position]`
    Delete,
    /// `l[position] = value`; null deletes the element.
    Set(Option<Vec<u8>>),
    /// `l[position] = value` without a value.
    Keep,
}

/// The operations of a statement with their values. Those that change nothing are left out.
pub(crate) fn bind(
    operations: &[Operation],
    bound: &BoundValues<'_>,
) -> Result<Vec<RowOperation>, Failure> {
    let mut all = Vec::new();
    for Operation { column, change } in operations {
        let change = match change {
            OperationChange::Set { position, value } => {
                let position = position_of(position, bound)?;
                let position = position.ok_or_else(|| unset("list index"))?;
                let change = match bound.get(value) {
                    Value::Bytes(value) => ElementChange::Set(Some(value.to_vec())),
                    Value::Null => ElementChange::Set(None),
                    Value::Unset => ElementChange::Keep,
                };
                Change::Element { position, change }
            }
            OperationChange::Delete(position) => match position_of(position, bound)? {
                Some(position) => Change::Element { position, change: ElementChange::Delete },
                None => continue,
            },
            OperationChange::Discard(source) => match bound.get(source) {
                Value::Bytes(bytes) => {
                    Change::Discard(list(bytes).flatten().map(<[u8]>::to_vec).collect())
                }
                Value::Null | Value::Unset => continue,
            },
            OperationChange::Count { by, is_negated } => match increment(by, *is_negated, bound)? {
                Some(by) => Change::Count(by),
                None => continue,
            },
        };
        add(&mut all, RowOperation { column: *column, change });
    }
    Ok(all)
}

/// Adds an operation. Increments of the same counter become one.
pub(crate) fn add(operations: &mut Vec<RowOperation>, operation: RowOperation) {
    if let Change::Count(more) = operation.change {
        let known = operations.iter_mut().find(|known| known.column == operation.column);
        if let Some(RowOperation { change: Change::Count(by), .. }) = known {
            *by = by.wrapping_add(more);
            return;
        }
    }
    operations.push(operation);
}

/// A position in a list; `None` is unset.
fn position_of(source: &Source, bound: &BoundValues<'_>) -> Result<Option<i32>, Failure> {
    match bound.get(source) {
        Value::Bytes(bytes) => match bytes.try_into() {
            Ok(bytes) => Ok(Some(i32::from_be_bytes(bytes))),
            Err(_) => Err(Failure::invalid("Invalid empty value for list index")),
        },
        Value::Null => Err(Failure::invalid("Invalid null value for list index")),
        Value::Unset => Ok(None),
    }
}

fn unset(what: &str) -> Failure {
    Failure::Invalid(format!("Invalid unset value for {what}"))
}

/// What a counter is increased by; `None` is unset.
fn increment(
    source: &Source,
    is_negated: bool,
    bound: &BoundValues<'_>,
) -> Result<Option<i64>, Failure> {
    let by = match bound.get(source) {
        Value::Bytes(bytes) => match bytes.try_into() {
            Ok(bytes) => i64::from_be_bytes(bytes),
            Err(_) => return Err(Failure::invalid("Invalid empty value for counter increment")),
        },
        Value::Null => return Err(Failure::invalid("Invalid null value for counter increment")),
        Value::Unset => return Ok(None),
    };
    if !is_negated {
        return Ok(Some(by));
    }
    let overflows = || {
        Failure::Invalid(format!(
            "The negation of {by} overflows supported counter precision (signed 8 bytes integer)"
        ))
    };
    by.checked_neg().map(Some).ok_or_else(overflows)
}

/// Adds the cells that the operations write to those of a row. `before` are the visible cells that
/// it has; every operation sees them.
pub(crate) fn put_operations(
    row: &mut Vec<u8>,
    operations: &[RowOperation],
    before: &[u8],
    time: WriteTime,
) -> Result<(), Failure> {
    let (mut part, mut merged) = (Vec::new(), Vec::new());
    for RowOperation { column, change } in operations {
        part.clear();
        let values = cells::iter(before).filter(|cell| cell.column == *column);
        let mut put = |path, content| {
            let timestamp = time.timestamp;
            cells::push(&mut part, Cell { column: *column, path, timestamp, content });
        };
        match change {
            Change::Element { position, change } => {
                let path = path_at(values, *position, change)?;
                if let Some(content) = content_of(change, time) {
                    put(path, content);
                }
            }
            Change::Discard(discarded) => {
                let is_discarded = |cell: &Cell<'_>| {
                    discarded.iter().any(|value| cell.value() == Some(&value[..]))
                };
                values.filter(is_discarded).for_each(|cell| put(cell.path, time.dead()));
            }
            Change::Count(by) => {
                let sum = count(values).wrapping_add(*by);
                put(None, Content::Live(&sum.to_be_bytes()));
            }
        }
        cells::merge(row, &part, &mut merged);
        std::mem::swap(row, &mut merged);
    }
    Ok(())
}

/// The path of the element of a list at a position.
fn path_at<'c>(
    mut elements: impl Iterator<Item = Cell<'c>> + Clone,
    position: i32,
    change: &ElementChange,
) -> Result<Option<&'c [u8]>, Failure> {
    let size = elements.clone().count();
    if size == 0 {
        return Err(Failure::invalid(match change {
            ElementChange::Delete => "Attempted to delete an element from a list which is null",
            _ => "Attempted to set an element on a list which is null",
        }));
    }
    let found = usize::try_from(position).ok().and_then(|position| elements.nth(position));
    let missing = || format!("List index {position} out of bound, list has size {size}");
    found.map(|cell| cell.path).ok_or_else(|| Failure::Invalid(missing()))
}

fn content_of(change: &ElementChange, time: WriteTime) -> Option<Content<'_>> {
    match change {
        ElementChange::Set(Some(value)) => Some(time.content(value)),
        ElementChange::Set(None) | ElementChange::Delete => Some(time.dead()),
        ElementChange::Keep => None,
    }
}

/// The value of a counter; one that was never written is 0.
fn count<'c>(mut values: impl Iterator<Item = Cell<'c>>) -> i64 {
    let bytes = values.next().and_then(|cell| cell.value()?.try_into().ok());
    bytes.map_or(0, i64::from_be_bytes)
}

#[cfg(test)]
mod tests;
