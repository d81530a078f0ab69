//! Plans changes of columns that are collections and not frozen. The errors are those of Cassandra.

use tare_cql::statement::{ColumnChange, Term};
use tare_cql::types::Type;

use super::terms::Terms;
use crate::query::catalog::Column;
use crate::query::failure::Failure;
use crate::query::plan::{CollectionChange, CollectionWrite};

/// A change of a column.
pub(super) fn write(column: &Column, change: CollectionChange) -> CollectionWrite {
    CollectionWrite { column: column.number, kind: column.kind.clone(), change }
}

/// Plans an assignment of SET, except to a column that is no collection.
pub(super) fn change_of(
    terms: &mut Terms<'_>,
    column: &Column,
    change: &ColumnChange,
) -> Result<CollectionWrite, Failure> {
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
        (ColumnChange::SetElement { key, value }, Type::Map(of_key, of_value)) => {
            let key = terms.source(key, &format!("key({name})"), of_key)?;
            let value = terms.source(value, &format!("value({name})"), of_value)?;
            CollectionChange::Put { key: (key, (**of_key).clone()), value }
        }
        (ColumnChange::SetElement { .. }, Type::Set(_)) => {
            return Err(Failure::Invalid(format!(
                "Invalid operation for set column {name}: an element of a set has no value"
            )));
        }
        (ColumnChange::Remove(_) | ColumnChange::SetElement { .. }, _) => return refused(),
    };
    Ok(write(column, change))
}

/// Plans the deletion of one element.
pub(super) fn deletion_of(
    terms: &mut Terms<'_>,
    column: &Column,
    element: &Term,
) -> Result<CollectionWrite, Failure> {
    let Column { name, kind, .. } = column;
    let (what, of_key) = match kind {
        Type::Set(element) => ("value", element),
        Type::Map(key, _) => ("key", key),
        Type::List(_) => return refused(),
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
    Ok(write(column, CollectionChange::Delete(key, (**of_key).clone())))
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

/// Cassandra reads the list to find the element, and the list may change meanwhile.
fn refused<T>() -> Result<T, Failure> {
    Err(Failure::invalid("changes of elements of a list by position or by value are not supported"))
}
