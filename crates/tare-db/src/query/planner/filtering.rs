//! Plans the WHERE of a SELECT with ALLOW FILTERING: divides the conditions into those that the
//! order of the keys serves and those that each row is tested for.

use tare_cql::statement::{Comparison, Relation, Subject, Test};

use super::conditions::{self, Purpose, clustering_columns, key_condition, tuple};
use super::terms::Terms;
use super::{ColumnRole, find, value_of};
use crate::query::catalog::{Column, Table};
use crate::query::failure::Failure;
use crate::query::key_encoding::is_orderable;
use crate::query::plan::{
    Filter, FilterTest, Item, KeyCondition, KeyValues, Partitions, Rows, Slices, Tuple,
};

/// Resolves all conditions. With filters, the rows are slices, even if they are one row.
pub(super) fn conditions(
    table: &Table,
    terms: &mut Terms<'_>,
    relations: &[Relation],
) -> Result<(Partitions, Rows, Vec<Filter<Item>>), Failure> {
    let served = served(table, relations)?;
    let of_keys = relations.iter().zip(&served).filter(|(_, served)| **served);
    let of_keys = of_keys.map(|(relation, _)| relation);
    let (partitions, rows) = conditions::conditions(table, terms, of_keys, Purpose::Select)?;
    let rest = relations.iter().zip(&served).filter(|(_, served)| !**served);
    let filters = rest.map(|(relation, _)| filter_of(table, terms, relation));
    let filters = filters.collect::<Result<Vec<_>, _>>()?;
    let rows = if filters.is_empty() { rows } else { slices(rows) };
    Ok((partitions, rows, filters))
}

/// The same rows as slices.
pub(super) fn slices(rows: Rows) -> Rows {
    match rows {
        Rows::One(key) if !key.is_empty() => {
            let (columns, values) = (key.len(), KeyValues::Listed(vec![Tuple::Parts(key)]));
            let equal = vec![KeyCondition { columns, values }];
            Rows::Slices(Slices { equal, ..Slices::default() })
        }
        Rows::One(_) => Rows::Slices(Slices::default()),
        Rows::Slices(slices) => Rows::Slices(slices),
    }
}

/// Whether the order of the keys serves each of the relations: `=` and IN on the whole partition
/// key, then on the first clustering columns, then bounds on the next.
fn served(table: &Table, relations: &[Relation]) -> Result<Vec<bool>, Failure> {
    let first = |relation: &Relation| match &relation.subject {
        Subject::Token(_) => Ok(None),
        Subject::Column(name) => Ok(Some(find(table, name)?.0)),
        Subject::Columns(names) => {
            Ok(Some(ColumnRole::Clustering(clustering_columns(table, names)?.0)))
        }
    };
    let roles = relations.iter().map(first).collect::<Result<Vec<_>, Failure>>()?;
    let is_equal = |at: usize| !matches!(&relations[at].test, Test::Compare(other, _) if *other != Comparison::Equal);
    let of_role = |role: ColumnRole| {
        let all = roles.iter().enumerate();
        all.filter(|(_, known)| **known == Some(role)).map(|(at, _)| at).collect::<Vec<_>>()
    };
    let on_token = roles.contains(&None);
    let on_partition: Vec<_> =
        (0..table.partition.len()).map(|p| of_role(ColumnRole::Partition(p))).collect();
    let whole = on_partition.iter().all(|at| !at.is_empty())
        && on_partition.iter().flatten().all(|at| is_equal(*at));
    let mut served: Vec<bool> = roles.iter().map(Option::is_none).collect();
    if whole || on_token {
        // Beside token() they are refused.
        on_partition.iter().flatten().for_each(|at| served[*at] = true);
    }
    // A scan has no use for the order within a partition.
    let mut next = if whole && !on_token { 0 } else { table.clustering.len() };
    while next < table.clustering.len() {
        let here = of_role(ColumnRole::Clustering(next));
        here.iter().for_each(|at| served[*at] = true);
        let Some(equal) = here.into_iter().find(|at| is_equal(*at)) else { break };
        next += match &relations[equal].subject {
            Subject::Columns(names) => names.len(),
            Subject::Column(_) | Subject::Token(_) => 1,
        };
    }
    Ok(served)
}

fn filter_of(
    table: &Table,
    terms: &mut Terms<'_>,
    relation: &Relation,
) -> Result<Filter<Item>, Failure> {
    let (places, columns) = match &relation.subject {
        Subject::Column(name) => {
            let (role, column) = find(table, name)?;
            if column.kind.is_multi_cell() {
                return Err(Failure::Invalid(format!(
                    "Collection column '{name}' ({}) cannot be restricted: conditions on \
                     collections that are not frozen are not supported",
                    column.kind
                )));
            }
            (vec![value_of(role, column)], std::slice::from_ref(column))
        }
        Subject::Columns(names) => {
            let (first, columns) = clustering_columns(table, names)?;
            ((first..first + columns.len()).map(Item::Clustering).collect(), columns)
        }
        Subject::Token(_) => unreachable!("the order of the keys serves tokens"),
    };
    let ascending = |column: &Column| Column { descending: false, ..column.clone() };
    filter(terms, places, columns.iter().map(ascending).collect(), relation)
}

/// A condition on the values of some columns, which are ascending.
pub(super) fn filter<P>(
    terms: &mut Terms<'_>,
    places: Vec<P>,
    columns: Vec<Column>,
    relation: &Relation,
) -> Result<Filter<P>, Failure> {
    let name = relation.subject.to_string();
    let test = match (key_condition(terms, &columns, &name, &relation.test)?, &relation.test) {
        (None, Test::Compare(comparison, term)) => {
            if let Some(column) = columns.iter().find(|column| !is_orderable(&column.kind)) {
                return Err(Failure::Invalid(format!(
                    "Slice restrictions are not supported on {} columns",
                    column.kind
                )));
            }
            FilterTest::Compare(*comparison, tuple(terms, &columns, &name, term)?)
        }
        (Some(condition), _) => FilterTest::Any(condition),
        (None, Test::In(_) | Test::InMarker(_)) => unreachable!("IN is a condition on keys"),
    };
    Ok(Filter { places, columns, test })
}
