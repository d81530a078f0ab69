//! Selected items of one row, and the columns of a result.

use tare_cql::response::{ColumnSpec, EncodedColumns};
use tare_cql::statement::{self, SelectItem};
use tare_cql::types::Type;

use super::{find, value_of};
use crate::query::catalog::Table;
use crate::query::failure::Failure;
use crate::query::plan::Item;

/// The columns of a result: name and type.
pub(super) type Named = Vec<(String, Type)>;

pub(super) fn described(keyspace: &str, table: &str, names: &Named) -> EncodedColumns {
    let specs = names.iter().map(|(name, kind)| ColumnSpec { name, kind });
    EncodedColumns::new(keyspace, table, specs)
}

/// A selected item and its type.
pub(super) fn item(table: &Table, item: &SelectItem) -> Result<(Item, Type), Failure> {
    let number = |name: &str, what: &str| match find(table, name)? {
        (place, column) if !place.is_key() && column.kind.is_multi_cell() => Err(Failure::Invalid(
            format!("Cannot use selection function {what} on non-frozen collection {name}"),
        )),
        (place, column) if !place.is_key() => Ok(column.number),
        _ => Err(Failure::Invalid(format!(
            "Cannot use selection function {what} on PRIMARY KEY part {name}"
        ))),
    };
    Ok(match item {
        SelectItem::Column(name) => {
            let (role, column) = find(table, name)?;
            (value_of(role, column), column.kind.clone())
        }
        SelectItem::WriteTime(name) => (Item::WriteTime(number(name, "writeTime")?), Type::Bigint),
        SelectItem::Ttl(name) => (Item::Ttl(number(name, "ttl")?), Type::Int),
        SelectItem::Token(names) => {
            if !names.iter().eq(table.partition.iter().map(|column| &column.name)) {
                return Err(Failure::invalid(
                    "token() in a selection is supported of the whole partition key only",
                ));
            }
            (Item::Token, Type::Bigint)
        }
        SelectItem::Call(function, arguments) => {
            let argument = argument(*function, arguments, |item| self::item(table, item))?;
            (Item::Call(*function, argument), function.returns())
        }
        SelectItem::CountRows | SelectItem::Count(_) | SelectItem::Aggregate(..) => {
            return Err(Failure::invalid(
                "aggregates within a call of a function are not supported",
            ));
        }
    })
}

/// The argument of a function in the selection.
pub(super) fn argument<I>(
    function: statement::Function,
    arguments: &[SelectItem],
    item: impl Fn(&SelectItem) -> Result<(I, Type), Failure>,
) -> Result<Option<Box<(I, Type)>>, Failure> {
    let name = function.name();
    if arguments.len() != function.arity() {
        return Err(Failure::Invalid(format!(
            "Invalid number of arguments in call to function system.{name}: {} required but {} \
             provided",
            function.arity(),
            arguments.len()
        )));
    }
    let Some(argument) = arguments.first() else { return Ok(None) };
    let (item, kind) = item(argument)?;
    if !function.argument_types().contains(&kind) {
        return Err(Failure::Invalid(format!(
            "Type error: {argument} cannot be passed as argument 0 of function system.{name}"
        )));
    }
    Ok(Some(Box::new((item, kind))))
}

/// Whether a condition allows only one value of a column.
pub(super) fn is_fixed(select: &statement::Select, column: &str) -> bool {
    select.relations.iter().any(|relation| {
        matches!(&relation.subject, statement::Subject::Column(name) if name == column)
            && matches!(relation.test, statement::Test::Compare(statement::Comparison::Equal, _))
    })
}
