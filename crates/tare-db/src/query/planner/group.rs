//! Plans GROUP BY and aggregates.

use tare_cql::statement::{self, Aggregate, SelectItem, Selection};
use tare_cql::types::Type;

use super::selection::{Named, is_fixed, item};
use super::{ColumnRole, find, value_of};
use crate::query::catalog::Table;
use crate::query::failure::Failure;
use crate::query::key_encoding::is_orderable;
use crate::query::plan::{GroupBy, GroupItem, Groups, Items};

/// Whether a query computes groups. A count alone has a plan of its own.
pub(super) fn is_grouped(select: &statement::Select) -> bool {
    let Selection::Items(selectors) = &select.selection else {
        return !select.group_by.is_empty();
    };
    let is_count = |item: &SelectItem| matches!(item, SelectItem::CountRows | SelectItem::Count(_));
    let is_aggregate = |item: &SelectItem| matches!(item, SelectItem::Aggregate(..));
    !select.group_by.is_empty()
        || selectors.iter().any(|one| is_aggregate(&one.item))
        || (selectors.len() > 1 && selectors.iter().any(|one| is_count(&one.item)))
}

/// The items of a query with groups, and the columns of its result.
pub(super) fn items(table: &Table, select: &statement::Select) -> Result<(Items, Named), Failure> {
    if select.distinct {
        return Err(Failure::invalid(
            "SELECT DISTINCT with aggregates or GROUP BY is not supported",
        ));
    }
    let by = group_by(table, select)?;
    let mut items = Vec::new();
    let mut names = Named::new();
    match &select.selection {
        Selection::All => {
            for column in table.columns() {
                let (item, kind) = item(table, &SelectItem::Column(column.name.clone()))?;
                items.push(GroupItem::First(item));
                names.push((column.name.clone(), kind));
            }
        }
        Selection::Items(selectors) => {
            for selector in selectors {
                let (item, kind) = group_item(table, &selector.item)?;
                items.push(item);
                let name = selector.alias.clone().unwrap_or_else(|| selector.item.to_string());
                names.push((name, kind));
            }
        }
    }
    Ok((Items::Groups(Groups { by, items }), names))
}

fn group_item(table: &Table, selected: &SelectItem) -> Result<(GroupItem, Type), Failure> {
    Ok(match selected {
        SelectItem::CountRows => (GroupItem::Count, Type::Bigint),
        SelectItem::Count(name) => {
            let (role, column) = find(table, name)?;
            (GroupItem::CountOf(value_of(role, column)), Type::Bigint)
        }
        SelectItem::Aggregate(aggregate, name) => {
            let (role, column) = find(table, name)?;
            let kind = &column.kind;
            let fits = match aggregate {
                Aggregate::Min | Aggregate::Max => is_orderable(kind),
                Aggregate::Sum | Aggregate::Avg => is_summed(kind),
            };
            if !fits {
                return Err(Failure::Invalid(format!(
                    "{}() of a {kind} is not supported",
                    aggregate.name()
                )));
            }
            (GroupItem::Fold(*aggregate, value_of(role, column), kind.clone()), kind.clone())
        }
        other => {
            let (item, kind) = item(table, other)?;
            (GroupItem::First(item), kind)
        }
    })
}

/// Whether values of a type can be added.
fn is_summed(kind: &Type) -> bool {
    matches!(
        kind,
        Type::Tinyint | Type::Smallint | Type::Int | Type::Bigint | Type::Float | Type::Double
    )
}

/// The columns of GROUP BY: those of the key in their order, of which those with only one value may
/// be left out.
fn group_by(table: &Table, select: &statement::Select) -> Result<GroupBy, Failure> {
    if select.group_by.is_empty() {
        return Ok(GroupBy::All);
    }
    let key: Vec<&str> =
        table.partition.iter().chain(&table.clustering).map(|column| &*column.name).collect();
    let mut next = 0;
    for name in &select.group_by {
        if find(table, name)?.0 == ColumnRole::Regular {
            return Err(Failure::Invalid(format!(
                "Group by is currently only supported on the columns of the PRIMARY KEY, got {name}"
            )));
        }
        let at = key.iter().skip(next).position(|column| column == name);
        let skipped = at.map(|at| &key[next..next + at]);
        match skipped.filter(|skipped| skipped.iter().all(|column| is_fixed(select, column))) {
            Some(skipped) => next += skipped.len() + 1,
            None => {
                return Err(Failure::invalid(
                    "Group by currently only support groups of columns following their declared \
                     order in the PRIMARY KEY",
                ));
            }
        }
    }
    match next.checked_sub(table.partition.len()) {
        None => {
            Err(Failure::invalid("Group by is not supported on only a part of the partition key"))
        }
        Some(0) => Ok(GroupBy::Partition),
        Some(columns) => Ok(GroupBy::Clustering(columns)),
    }
}
