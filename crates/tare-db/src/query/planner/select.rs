//! Plans SELECT from tables of clients.

use tare_cql::statement::{self, Order, SelectItem, Selection};
use tare_cql::types::Type;

use super::conditions::{Purpose, conditions};
use super::selection::{Named, described, is_fixed, item};
use super::terms::Terms;
use super::{ColumnRole, Scope, data_table, filtering, find, group};
use crate::query::catalog::Table;
use crate::query::failure::Failure;
use crate::query::plan::{
    Filter, GroupItem, Item, Items, Partitions, Rows, Select, Slices, Source, StaticRead,
};

pub(super) fn select(
    scope: Scope<'_>,
    terms: &mut Terms<'_>,
    select: &statement::Select,
) -> Result<Select, Failure> {
    let (table, replicas) = data_table(scope, &select.table)?;
    let (items, names) = match group::is_grouped(select) {
        true => group::items(&table, select)?,
        false => items(&table, &select.selection)?,
    };
    if select.distinct {
        check_distinct(&table, select, &items)?;
    }
    let (partitions, rows, filters) = match select.allow_filtering {
        true => filtering::conditions(&table, terms, &select.relations)?,
        false => {
            let (partitions, rows) = conditions(&table, terms, &select.relations, Purpose::Select)?;
            (partitions, rows, Vec::new())
        }
    };
    if select.distinct && filters.iter().any(needs_row) {
        return Err(Failure::invalid(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or \
             static columns.",
        ));
    }
    let reversed = is_reversed(&table, select, &partitions)?;
    let merged = !select.order_by.is_empty()
        && matches!(partitions, Partitions::Some(_))
        && !items.is_one_row();
    if merged && matches!(items, Items::Groups(_)) {
        return Err(Failure::invalid(
            "GROUP BY with ORDER BY and IN on the partition key is not supported",
        ));
    }
    let rows = match items {
        Items::Groups(_) => filtering::slices(rows),
        _ => rows,
    };
    let columns = described(&table.keyspace, &table.name, &names);
    let (per_partition_limit, limit) = limits(terms, select)?;
    let statics = (!table.statics.is_empty()).then(|| StaticRead {
        joined: needs_statics(&table, &items, &filters),
        alone: rows == Rows::Slices(Slices::default()),
    });
    let calls = match &items {
        Items::Columns(items) => items.iter().any(|item| matches!(item, Item::Call(..))),
        Items::Groups(groups) => {
            groups.items.iter().any(|item| matches!(item, GroupItem::First(Item::Call(..))))
        }
        Items::Count | Items::CountOf(_) => false,
    };
    // Without the other columns, one that was dropped could hide that a row has none left.
    let cells = cells(&items).filter(|_| table.dropped.is_empty());
    Ok(Select {
        table,
        replicas,
        partitions,
        rows,
        filters,
        reversed,
        merged,
        distinct: select.distinct,
        cells,
        statics,
        calls,
        items,
        per_partition_limit,
        limit,
        columns,
    })
}

/// Whether a selection has a static column, perhaps as an argument of a function, or a filter tests
/// one.
fn needs_statics(table: &Table, items: &Items, filters: &[Filter<Item>]) -> bool {
    let is_static = |number: u16| table.statics.iter().any(|column| column.number == number);
    fn of(item: &Item, is_static: &impl Fn(u16) -> bool) -> bool {
        match item {
            Item::Cell(number)
            | Item::Collection(number, _)
            | Item::WriteTime(number)
            | Item::Ttl(number) => is_static(*number),
            Item::Call(_, Some(argument)) => of(&argument.0, is_static),
            Item::Partition(_) | Item::Clustering(_) | Item::Token | Item::Call(_, None) => false,
        }
    }
    let tests = |filter: &Filter<Item>| filter.places.iter().any(|item| of(item, &is_static));
    if filters.iter().any(tests) {
        return true;
    }
    match items {
        Items::Count => false,
        // Aggregates are of any column.
        Items::Groups(_) => true,
        Items::CountOf(number) => is_static(*number),
        Items::Columns(items) => items.iter().any(|item| of(item, &is_static)),
    }
}

/// The columns whose cells are needed; `None` if the result needs more than their cells.
fn cells(items: &Items) -> Option<Vec<u16>> {
    let Items::Columns(items) = items else { return None };
    let number = |item: &Item| match item {
        Item::Collection(number, _) => Some(Some(*number)),
        Item::Cell(number) | Item::WriteTime(number) | Item::Ttl(number) => Some(Some(*number)),
        Item::Partition(_) | Item::Clustering(_) | Item::Token => Some(None),
        Item::Call(..) => None,
    };
    let numbers = items.iter().map(number).collect::<Option<Vec<_>>>()?;
    let mut numbers: Vec<u16> = numbers.into_iter().flatten().collect();
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// Plans PER PARTITION LIMIT and LIMIT.
pub(super) fn limits(
    terms: &mut Terms<'_>,
    select: &statement::Select,
) -> Result<(Option<Source>, Option<Source>), Failure> {
    let mut limit = |term: Option<&statement::Term>, name| {
        term.map(|term| terms.source(term, name, &Type::Int)).transpose()
    };
    let per_partition = limit(select.per_partition_limit.as_ref(), "[per_partition_limit]")?;
    Ok((per_partition, limit(select.limit.as_ref(), "[limit]")?))
}

fn items(table: &Table, selection: &Selection) -> Result<(Items, Named), Failure> {
    let Selection::Items(selectors) = selection else {
        let mut items = Vec::new();
        let mut names = Vec::new();
        for column in table.columns() {
            items.push(item(table, &SelectItem::Column(column.name.clone()))?.0);
            names.push((column.name.clone(), column.kind.clone()));
        }
        return Ok((Items::Columns(items), names));
    };
    let mut items = Vec::new();
    let mut names = Vec::new();
    for selector in selectors {
        let name = selector.alias.clone().unwrap_or_else(|| selector.item.to_string());
        let counted = match &selector.item {
            SelectItem::CountRows => Some(Items::Count),
            SelectItem::Count(column) => {
                Some(match find(table, column)? {
                    (ColumnRole::Regular | ColumnRole::Static, column) => {
                        Items::CountOf(column.number)
                    }
                    // Every row has its key.
                    (ColumnRole::Partition(_) | ColumnRole::Clustering(_), _) => Items::Count,
                })
            }
            _ => None,
        };
        match counted {
            Some(counted) if selectors.len() == 1 => {
                return Ok((counted, vec![(name, Type::Bigint)]));
            }
            Some(_) => unreachable!("count beside columns is grouped"),
            None => {
                let (item, kind) = item(table, &selector.item)?;
                items.push(item);
                names.push((name, kind));
            }
        }
    }
    Ok((Items::Columns(items), names))
}

/// Whether a condition is on more than the partition key.
fn needs_row(filter: &Filter<Item>) -> bool {
    filter.places.iter().any(|place| !matches!(place, Item::Partition(_)))
}

fn check_distinct(table: &Table, select: &statement::Select, items: &Items) -> Result<(), Failure> {
    let Items::Columns(items) = items else {
        return Err(Failure::invalid("SELECT DISTINCT with count is not supported"));
    };
    let fits = |item: &Item| match item {
        Item::Partition(_) | Item::Token => true,
        Item::Cell(number) | Item::Collection(number, _) => {
            table.statics.iter().any(|column| column.number == *number)
        }
        _ => false,
    };
    if !items.iter().all(fits) {
        return Err(Failure::invalid(
            "SELECT DISTINCT queries must only request partition key columns and/or static columns",
        ));
    }
    let all = |position| items.contains(&Item::Partition(position));
    if let Some(missing) = (0..table.partition.len()).find(|position| !all(*position)) {
        return Err(Failure::Invalid(format!(
            "SELECT DISTINCT queries must request all the partition key columns (missing {})",
            table.partition[missing].name
        )));
    }
    if select.per_partition_limit.is_some() {
        return Err(Failure::invalid(
            "PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries",
        ));
    }
    if !select.order_by.is_empty() {
        return Err(Failure::invalid("ORDER BY with SELECT DISTINCT is not supported"));
    }
    Ok(())
}

/// Whether ORDER BY reverses the clustering order. A mixed order is refused.
fn is_reversed(
    table: &Table,
    select: &statement::Select,
    partitions: &Partitions,
) -> Result<bool, Failure> {
    if select.order_by.is_empty() {
        return Ok(false);
    }
    if matches!(partitions, Partitions::Tokens(_)) {
        return Err(Failure::invalid(
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
        ));
    }
    let mut next = 0;
    let mut reversed = None;
    for (name, order) in &select.order_by {
        let (ColumnRole::Clustering(position), column) = find(table, name)? else {
            return Err(Failure::Invalid(format!(
                "Order by is currently only supported on the clustered columns of the PRIMARY KEY, \
                 got {name}"
            )));
        };
        // Columns that can have only one value may be left out.
        let fixed = |position: usize| is_fixed(select, &table.clustering[position].name);
        if position < next || !(next..position).all(fixed) {
            return Err(Failure::invalid(
                "Order by currently only supports the ordering of columns following their declared \
                 order in the PRIMARY KEY",
            ));
        }
        next = position + 1;
        let against = column.descending != (*order == Order::Descending);
        if *reversed.get_or_insert(against) != against {
            return Err(Failure::invalid("Unsupported order by relation"));
        }
    }
    Ok(reversed.unwrap_or(false))
}
