//! The conditions on one row, with their values.

use tare_cql::statement::Comparison;
use tare_cql::types::Type;
use tare_cql::wire::Value;
use tare_store::cells::{self, Cell};

use crate::query::bind::{BoundValues, list};
use crate::query::catalog::Column;
use crate::query::collections;
use crate::query::failure::Failure;
use crate::query::filter::holds;
use crate::query::key_encoding;
use crate::query::plan::{ColumnCondition, ConditionTest};
use crate::query::planner::compared;

/// The value of a collection without elements.
const EMPTY: [u8; 4] = [0; 4];

/// A condition on a row.
#[derive(Debug)]
pub(super) enum RowTest {
    Exists(bool),
    /// A test of a value of a type.
    Value(Operand, Type, ValueTest),
}

/// The value of a row that a condition tests.
#[derive(Debug)]
pub(super) enum Operand {
    /// A column of one cell.
    Cell(u16),
    /// A whole collection that is not frozen. Without elements it is null, and equal to an empty
    /// one.
    Collection(u16, Type),
    /// The value in a map that is not frozen, by the path of the key.
    Entry(u16, Vec<u8>),
    /// The element of a list that is not frozen, by its position.
    Element(u16, usize),
    /// The value in a frozen map of this type, by the key.
    FrozenEntry(u16, Type, Vec<u8>),
    /// The element of a frozen list of this type, by its position.
    FrozenElement(u16, Type, usize),
}

/// A test of a value that may be null. Values are key encodings.
#[derive(Debug)]
pub(super) enum ValueTest {
    Compare(Comparison, Option<Vec<u8>>),
    NotEqual(Option<Vec<u8>>),
    In(Vec<Option<Vec<u8>>>),
}

impl RowTest {
    /// Whether the condition holds for a row with these cells, if it exists.
    pub(super) fn holds(&self, row: Option<&[u8]>) -> bool {
        match self {
            Self::Exists(wanted) => row.is_some() == *wanted,
            Self::Value(operand, kind, test) => {
                let value = operand.value(row.unwrap_or_default());
                test.holds(value.map(|value| encoded(kind, &value)))
            }
        }
    }
}

impl Operand {
    /// The value in a row with these cells.
    fn value(&self, row: &[u8]) -> Option<Vec<u8>> {
        let cells = |column: u16| cells::iter(row).filter(move |cell| cell.column == column);
        let owned = |cell: Option<Cell<'_>>| cell?.value().map(<[u8]>::to_vec);
        match self {
            Self::Cell(column) => owned(cells(*column).next()),
            Self::Collection(column, kind) => {
                Some(collections::value(kind, cells(*column)).unwrap_or_else(|| EMPTY.to_vec()))
            }
            Self::Entry(column, path) => {
                owned(cells(*column).find(|cell| cell.path == Some(&path[..])))
            }
            Self::Element(column, position) => owned(cells(*column).nth(*position)),
            Self::FrozenEntry(column, kind, key) => {
                let map = cells(*column).next()?.value()?;
                let parts = kind.parts(map);
                let found = parts.chunks(2).find(|entry| entry[0].1 == Some(&key[..]))?;
                found.get(1)?.1.map(<[u8]>::to_vec)
            }
            Self::FrozenElement(column, kind, position) => {
                let list = cells(*column).next()?.value()?;
                kind.parts(list).get(*position)?.1.map(<[u8]>::to_vec)
            }
        }
    }

    /// The value that a condition takes null for.
    fn null(&self) -> Option<&'static [u8]> {
        matches!(self, Self::Collection(..)).then_some(&EMPTY)
    }
}

impl ValueTest {
    #[expect(clippy::needless_pass_by_value, reason = "it is compared with owned values")]
    fn holds(&self, value: Option<Vec<u8>>) -> bool {
        match self {
            Self::Compare(comparison, wanted) => match (&value, wanted) {
                (Some(value), Some(wanted)) => holds(*comparison, value, wanted),
                (None, None) => true,
                _ => false,
            },
            Self::NotEqual(wanted) => value != *wanted,
            Self::In(list) => list.contains(&value),
        }
    }
}

fn encoded(kind: &Type, value: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    match key_encoding::is_too_long(kind, value) {
        // It differs from every value of a condition.
        true => key.push(u8::MAX),
        false => key_encoding::push(&mut key, kind, false, value),
    }
    key
}

/// A condition on a column with its values.
pub(super) fn bind(
    condition: &ColumnCondition,
    bound: &BoundValues<'_>,
) -> Result<RowTest, Failure> {
    let Column { name, .. } = &condition.column;
    let operand = operand(condition, bound)?;
    let kind = value_type(condition);
    let key = |value: Option<&[u8]>| match value.or(operand.null()) {
        Some(value) if key_encoding::is_too_long(&kind, value) => Err(Failure::Invalid(format!(
            "{name}: a {kind} of a condition has at most {} bytes",
            key_encoding::NUMBER_BYTES_MAX
        ))),
        value => Ok(value.map(|value| encoded(&kind, value))),
    };
    let of = |source| match bound.get(source) {
        Value::Bytes(value) => key(Some(value)),
        Value::Null => key(None),
        Value::Unset => Err(unset()),
    };
    let test = match &condition.test {
        ConditionTest::Compare(comparison, source) => {
            if *comparison != Comparison::Equal && matches!(bound.get(source), Value::Null) {
                return Err(Failure::Invalid(format!(
                    "Invalid comparison with null for operator \"{}\"",
                    comparison.sign()
                )));
            }
            ValueTest::Compare(*comparison, of(source)?)
        }
        ConditionTest::NotEqual(source) => ValueTest::NotEqual(of(source)?),
        ConditionTest::In(sources) => {
            ValueTest::In(sources.iter().map(of).collect::<Result<_, _>>()?)
        }
        ConditionTest::InMarker(source) => {
            ValueTest::In(list(bound.needed(source, name)?).map(key).collect::<Result<_, _>>()?)
        }
    };
    Ok(RowTest::Value(operand, kind, test))
}

/// The type of the values that a condition compares.
fn value_type(condition: &ColumnCondition) -> Type {
    let kind = &condition.column.kind;
    match (kind.unfrozen(), &condition.element) {
        (Type::Map(_, value) | Type::List(value), Some(_)) => (**value).clone(),
        _ => compared(kind),
    }
}

fn operand(condition: &ColumnCondition, bound: &BoundValues<'_>) -> Result<Operand, Failure> {
    let Column { kind, number, .. } = &condition.column;
    let number = *number;
    let Some((source, kind_of_key)) = &condition.element else {
        return Ok(match kind.is_multi_cell() {
            true => Operand::Collection(number, kind.clone()),
            false => Operand::Cell(number),
        });
    };
    let is_map = matches!(kind.unfrozen(), Type::Map(..));
    let key = match bound.get(source) {
        Value::Bytes(key) => key,
        Value::Null => {
            return Err(Failure::Invalid(format!(
                "Invalid null value for {} element access",
                if is_map { "map" } else { "list" }
            )));
        }
        Value::Unset => return Err(unset()),
    };
    if is_map {
        return Ok(match kind.is_multi_cell() {
            true => Operand::Entry(number, collections::key_of(kind_of_key, key)?),
            false => Operand::FrozenEntry(number, kind.clone(), key.to_vec()),
        });
    }
    let position = key.try_into().map(i32::from_be_bytes);
    let position = position.map_err(|_| Failure::invalid("Invalid empty value for list index"))?;
    let negative = |_| Failure::Invalid(format!("Invalid negative list index {position}"));
    let position = usize::try_from(position).map_err(negative)?;
    Ok(match kind.is_multi_cell() {
        true => Operand::Element(number, position),
        false => Operand::FrozenElement(number, kind.clone(), position),
    })
}

fn unset() -> Failure {
    Failure::invalid("Invalid 'unset' value in condition")
}
