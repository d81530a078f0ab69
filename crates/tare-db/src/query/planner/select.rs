//! Plans SELECT from tables of clients.

use tare_cql::response::{ColumnSpec, EncodedColumns};
use tare_cql::statement::{self, Order, SelectItem, Selection};
use tare_cql::types::Type;

use super::conditions::{Purpose, conditions};
use super::terms::Terms;
use super::{ColumnRole, Scope, data_table, filtering, find, value_of};
use crate::query::catalog::Table;
use crate::query::failure::Failure;
use crate::query::plan::{Filter, Item, Items, Partitions, Select, Source};

/// The columns of a result: name and type.
pub(super) type Named = Vec<(String, Type)>;

pub(super) fn select(
    scope: Scope<'_>,
    terms: &mut Terms<'_>,
    select: &statement::Select,
) -> Result<Select, Failure> {
    let (table, replicas) = data_table(scope, &select.table)?;
    let (items, names) = items(&table, &select.selection)?;
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
        && matches!(items, Items::Columns(_));
    let columns = described(&table.keyspace, &table.name, &names);
    let (per_partition_limit, limit) = limits(terms, select)?;
    let calls = match &items {
        Items::Columns(items) => items.iter().any(|item| matches!(item, Item::Call(..))),
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
        calls,
        items,
        per_partition_limit,
        limit,
        columns,
    })
}

/// The columns whose cells are needed; `None` if the result needs more than their cells.
fn cells(items: &Items) -> Option<Vec<u16>> {
    let Items::Columns(items) = items else { return None };
    let number = |item: &Item| match item {
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

pub(super) fn described(keyspace: &str, table: &str, names: &Named) -> EncodedColumns {
    let specs = names.iter().map(|(name, kind)| ColumnSpec { name, kind });
    EncodedColumns::new(keyspace, table, specs)
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
                    (ColumnRole::Regular, column) => Items::CountOf(column.number),
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
            Some(_) => return Err(Failure::invalid("count beside columns is not supported")),
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

/// A selected item and its type.
fn item(table: &Table, item: &SelectItem) -> Result<(Item, Type), Failure> {
    let number = |name: &str, what: &str| match find(table, name)? {
        (ColumnRole::Regular, column) => Ok(column.number),
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
        SelectItem::CountRows | SelectItem::Count(_) => {
            return Err(Failure::invalid("count within a call of a function is not supported"));
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

fn check_distinct(table: &Table, select: &statement::Select, items: &Items) -> Result<(), Failure> {
    let Items::Columns(items) = items else {
        return Err(Failure::invalid("SELECT DISTINCT with count is not supported"));
    };
    if items.iter().any(|item| !matches!(item, Item::Partition(_) | Item::Token)) {
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
        let fixed = |position: usize| {
            select.relations.iter().any(|relation| {
                let column = &table.clustering[position].name;
                matches!(&relation.subject, statement::Subject::Column(name) if name == column)
                    && matches!(
                        relation.test,
                        statement::Test::Compare(statement::Comparison::Equal, _)
                    )
            })
        };
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
