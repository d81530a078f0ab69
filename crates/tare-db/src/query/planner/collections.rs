//! Plans changes of columns that are collections and not frozen, and of counters. The errors are
//! those of Cassandra.

use tare_cql::statement::{ColumnChange, Term};
use tare_cql::types::Type;

use super::terms::Terms;
use crate::query::catalog::Column;
use crate::query::failure::Failure;
use crate::query::plan::{CollectionChange, CollectionWrite, Operation, OperationChange, Source};

/// A change of a column by what the statement has, or by what the column has too.
pub(super) enum Planned {
    Write(CollectionWrite),
    Operation(Operation),
}

/// A change of a column.
pub(super) fn write(column: &Column, change: CollectionChange) -> CollectionWrite {
    CollectionWrite { column: column.number, kind: column.kind.clone(), change }
}

fn operation(column: &Column, change: OperationChange) -> Planned {
    Planned::Operation(Operation { column: column.number, change })
}

/// Plans an assignment of SET, except of a whole value to a column that is no collection.
pub(super) fn change_of(
    terms: &mut Terms<'_>,
    column: &Column,
    change: &ColumnChange,
) -> Result<Planned, Failure> {
    if column.kind == Type::Counter {
        return count(terms, column, change);
    }
    let Column { name, kind, .. } = column;
    check_multi_cell(column, change)?;
    let change = match (change, kind) {
        (ColumnChange::Set(term), kind) => CollectionChange::Set(terms.source(term, name, kind)?),
        (ColumnChange::Add(term), kind) => CollectionChange::Add(terms.source(term, name, kind)?),
        (ColumnChange::Prepend(term), Type::List(_)) => {
            CollectionChange::Prepend(terms.source(term, name, kind)?)
        }
        (ColumnChange::Prepend(_), _) => {
            return Err(Failure::Invalid(format!(
                "Invalid operation for non list column {name}: values are added behind the column"
            )));
        }
        (ColumnChange::Remove(term), Type::Set(element) | Type::Map(element, _)) => {
            let kind = Type::Set(element.clone());
            CollectionChange::Remove(terms.source(term, name, &kind)?, kind)
        }
        (ColumnChange::Remove(term), kind) => {
            let discarded = terms.source(term, name, kind)?;
            return Ok(operation(column, OperationChange::Discard(discarded)));
        }
        (ColumnChange::SetElement { key, value }, Type::Map(of_key, of_value)) => {
            let key = terms.source(key, &format!("key({name})"), of_key)?;
            let value = terms.source(value, &format!("value({name})"), of_value)?;
            CollectionChange::Put { key: (key, (**of_key).clone()), value }
        }
        (ColumnChange::SetElement { key, value }, Type::List(element)) => {
            let position = position(terms, column, key)?;
            let value = terms.source(value, &format!("value({name})"), element)?;
            return Ok(operation(column, OperationChange::Set { position, value }));
        }
        (ColumnChange::SetElement { .. }, _) => {
            return Err(Failure::Invalid(format!(
                "Invalid operation for set column {name}: an element of a set has no value"
            )));
        }
    };
    Ok(Planned::Write(write(column, change)))
}

/// Plans a change of a counter.
fn count(
    terms: &mut Terms<'_>,
    column: &Column,
    change: &ColumnChange,
) -> Result<Planned, Failure> {
    let Column { name, kind, .. } = column;
    let (term, is_negated) = match change {
        ColumnChange::Add(term) => (term, false),
        ColumnChange::Remove(term) => (term, true),
        ColumnChange::Set(_) => {
            return Err(Failure::Invalid(format!(
                "Cannot set the value of counter column {name} (counters can only be \
                 incremented/decremented, not set)"
            )));
        }
        ColumnChange::Prepend(_) | ColumnChange::SetElement { .. } => {
            return Err(Failure::Invalid(format!("Invalid operation for counter column {name}")));
        }
    };
    let by = terms.source(term, name, kind)?;
    Ok(operation(column, OperationChange::Count { by, is_negated }))
}

/// Plans the deletion of one element.
pub(super) fn deletion_of(
    terms: &mut Terms<'_>,
    column: &Column,
    element: &Term,
) -> Result<Planned, Failure> {
    let Column { name, kind, .. } = column;
    let (what, of_key) = match kind {
        Type::Set(element) => ("value", element),
        Type::Map(key, _) => ("key", key),
        Type::List(_) => {
            let position = position(terms, column, element)?;
            return Ok(operation(column, OperationChange::Delete(position)));
        }
        Type::Frozen(_) => {
            return Err(Failure::Invalid(format!(
                "Invalid deletion operation for frozen collection column {name}"
            )));
        }
        _ => {
            return Err(Failure::Invalid(format!(
                "Invalid deletion operation for non collection column {name}"
            )));
        }
    };
    let key = terms.source(element, &format!("{what}({name})"), of_key)?;
    Ok(Planned::Write(write(column, CollectionChange::Delete(key, (**of_key).clone()))))
}

/// A position in a list.
pub(super) fn position(
    terms: &mut Terms<'_>,
    column: &Column,
    term: &Term,
) -> Result<Source, Failure> {
    terms.source(term, &format!("idx({})", column.name), &Type::Int)
}

fn check_multi_cell(column: &Column, change: &ColumnChange) -> Result<(), Failure> {
    let Column { name, kind, .. } = column;
    if kind.is_multi_cell() {
        return Ok(());
    }
    let operation = match change {
        ColumnChange::Set(_) => return Ok(()),
        ColumnChange::Add(_) => format!("{name} = {name} + ..."),
        ColumnChange::Prepend(_) => format!("{name} = ... + {name}"),
        ColumnChange::Remove(_) => format!("{name} = {name} - ..."),
        ColumnChange::SetElement { .. } => format!("{name}[...] = ..."),
    };
    let what = match (kind, change) {
        (Type::Frozen(_), _) => "frozen collection",
        (_, ColumnChange::SetElement { .. }) => "non collection",
        _ => "non counter",
    };
    Err(Failure::Invalid(format!("Invalid operation ({operation}) for {what} column {name}")))
}
