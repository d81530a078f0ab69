//! Plans the IF of INSERT, UPDATE and DELETE.

use tare_cql::statement::{self, ColumnTest, Comparison, Term, Test};
use tare_cql::types::Type;

use super::collections::position;
use super::terms::Terms;
use super::{ColumnRole, find};
use crate::query::catalog::{Column, Table};
use crate::query::failure::Failure;
use crate::query::key_encoding::is_orderable;
use crate::query::plan::{
    Action, ColumnCondition, Condition, ConditionTest, Modify, Partitions, Rows, Slices, Source,
};

/// The columns that a statement has conditions on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConditionColumns {
    pub(super) regular: bool,
    statics: bool,
}

impl ConditionColumns {
    /// Whether there are conditions, and all of them are on static columns.
    pub(super) fn is_static(self) -> bool {
        self.statics && !self.regular
    }
}

pub(super) fn condition_columns(
    table: &Table,
    condition: Option<&statement::Condition>,
) -> Result<ConditionColumns, Failure> {
    let mut on = ConditionColumns::default();
    let Some(statement::Condition::Columns(columns)) = condition else { return Ok(on) };
    for column in columns {
        match conditional_column(table, &column.column)? {
            (_, true) => on.statics = true,
            (_, false) => on.regular = true,
        }
    }
    Ok(on)
}

/// A column that can have conditions, and whether it is static.
fn conditional_column<'t>(table: &'t Table, name: &str) -> Result<(&'t Column, bool), Failure> {
    match find(table, name)? {
        (ColumnRole::Regular, column) => Ok((column, false)),
        (ColumnRole::Static, column) => Ok((column, true)),
        (ColumnRole::Partition(_) | ColumnRole::Clustering(_), _) => {
            Err(Failure::Invalid(format!("PRIMARY KEY column '{name}' cannot have IF conditions")))
        }
    }
}

/// Plans the condition of a write that was planned without it.
pub(super) fn condition(
    terms: &mut Terms<'_>,
    modify: &Modify,
    condition: &statement::Condition,
) -> Result<Condition, Failure> {
    let on = condition_columns(&modify.table, Some(condition))?;
    check_row(modify, on.is_static())?;
    Ok(match condition {
        statement::Condition::NotExists => Condition::NotExists,
        statement::Condition::Exists => Condition::Exists,
        statement::Condition::Columns(columns) => {
            let columns = columns.iter().map(|condition| column(&modify.table, terms, condition));
            Condition::Columns(columns.collect::<Result<_, _>>()?)
        }
    })
}

/// Refuses what cannot have a condition: a write of several rows, or at a time of the client's
/// choice. Conditions on static columns alone may delete the partition.
fn check_row(modify: &Modify, is_static: bool) -> Result<(), Failure> {
    if modify.timestamp.is_some() {
        return Err(Failure::invalid("Cannot provide custom timestamp for conditional updates"));
    }
    if !matches!(modify.partitions, Partitions::One(_)) {
        return Err(Failure::invalid(
            "IN on the partition key is not supported with conditional updates and deletions",
        ));
    }
    let Rows::Slices(slices) = &modify.rows else { return Ok(()) };
    if is_static && modify.action == Action::Remove && *slices == Slices::default() {
        return Ok(());
    }
    let columns: usize = slices.equal.iter().map(|condition| condition.columns).sum();
    if columns == modify.table.clustering.len() {
        return Err(Failure::invalid(
            "IN on the clustering key columns is not supported with conditional updates and \
             deletions",
        ));
    }
    Err(Failure::invalid(
        "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order \
         to use IF condition on non static columns",
    ))
}

fn column(
    table: &Table,
    terms: &mut Terms<'_>,
    condition: &statement::ColumnCondition,
) -> Result<ColumnCondition, Failure> {
    let (column, is_static) = conditional_column(table, &condition.column)?;
    let (element, name, kind) = match &condition.element {
        None => (None, column.name.clone(), compared(&column.kind)),
        Some(term) => {
            let (element, kind) = element(terms, column, term)?;
            (Some(element), format!("value({})", column.name), kind)
        }
    };
    let test = test(terms, &condition.test, &name, &kind)?;
    Ok(ColumnCondition { column: column.clone(), is_static, element, test })
}

/// The type by which values of a type are compared.
pub(crate) fn compared(kind: &Type) -> Type {
    match kind.is_multi_cell() {
        true => Type::Frozen(Box::new(kind.clone())),
        false => kind.clone(),
    }
}

/// The key of an element with its type, and the type of its value.
fn element(
    terms: &mut Terms<'_>,
    column: &Column,
    term: &Term,
) -> Result<((Source, Type), Type), Failure> {
    let Column { name, kind, .. } = column;
    match kind.unfrozen() {
        Type::Map(key, value) => {
            let source = terms.source(term, &format!("key({name})"), key)?;
            Ok(((source, (**key).clone()), (**value).clone()))
        }
        Type::List(value) => Ok(((position(terms, column, term)?, Type::Int), (**value).clone())),
        Type::Set(_) => {
            Err(Failure::Invalid(format!("Invalid element access syntax for set column {name}")))
        }
        _ => Err(Failure::Invalid(format!(
            "Invalid element access syntax for non-collection column {name}"
        ))),
    }
}

fn test(
    terms: &mut Terms<'_>,
    test: &ColumnTest,
    name: &str,
    kind: &Type,
) -> Result<ConditionTest, Failure> {
    Ok(match test {
        ColumnTest::IsNot(term) => ConditionTest::NotEqual(terms.source(term, name, kind)?),
        ColumnTest::Is(Test::Compare(comparison, term)) => {
            if *comparison != Comparison::Equal && !is_orderable(kind) {
                return Err(Failure::Invalid(format!(
                    "Slice conditions are not supported on {kind} columns"
                )));
            }
            ConditionTest::Compare(*comparison, terms.source(term, name, kind)?)
        }
        ColumnTest::Is(Test::In(list)) => {
            let sources = list.iter().map(|term| terms.source(term, name, kind));
            ConditionTest::In(sources.collect::<Result<_, _>>()?)
        }
        ColumnTest::Is(Test::InMarker(position)) => {
            let list = Type::List(Box::new(kind.clone()));
            ConditionTest::InMarker(terms.marker(*position, &format!("in({name})"), list)?)
        }
    })
}
