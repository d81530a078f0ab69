//! Plans the IF of INSERT, UPDATE and DELETE.

use tare_cql::statement::{self, ColumnTest, Comparison, Test};
use tare_cql::types::Type;

use super::terms::Terms;
use super::{ColumnRole, find};
use crate::query::catalog::Table;
use crate::query::failure::Failure;
use crate::query::key_encoding::is_orderable;
use crate::query::plan::{ColumnCondition, Condition, ConditionTest, Modify, Partitions, Rows};

/// Plans the condition of a write that was planned without it.
pub(super) fn condition(
    terms: &mut Terms<'_>,
    modify: &Modify,
    condition: &statement::Condition,
) -> Result<Condition, Failure> {
    check_row(modify)?;
    if !modify.table.statics.is_empty() {
        return Err(Failure::invalid(
            "IF conditions on tables with static columns are not supported",
        ));
    }
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
/// choice.
fn check_row(modify: &Modify) -> Result<(), Failure> {
    if modify.timestamp.is_some() {
        return Err(Failure::invalid("Cannot provide custom timestamp for conditional updates"));
    }
    if !matches!(modify.partitions, Partitions::One(_)) {
        return Err(Failure::invalid(
            "IN on the partition key is not supported with conditional updates and deletions",
        ));
    }
    let Rows::Slices(slices) = &modify.rows else { return Ok(()) };
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
    let name = &condition.column;
    let (ColumnRole::Regular, column) = find(table, name)? else {
        return Err(Failure::Invalid(format!(
            "PRIMARY KEY column '{name}' cannot have IF conditions"
        )));
    };
    let kind = &column.kind;
    if kind.is_multi_cell() {
        return Err(Failure::Invalid(format!(
            "IF conditions on collections that are not frozen are not supported ({name})"
        )));
    }
    let test = match &condition.test {
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
    };
    Ok(ColumnCondition { column: column.clone(), test })
}
