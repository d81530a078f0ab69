//! Plans SELECT from system tables. The server computes their few rows, so that a statement may
//! restrict any column.

use tare_cql::statement::{self, SelectItem, Selection, Subject};
use tare_cql::system_schema::{ColumnKind, SystemTable};
use tare_cql::types::Type;

use super::filtering::filter;
use super::select::limits;
use super::selection::{Named, argument, described};
use super::terms::Terms;
use super::undefined;
use crate::query::catalog::Column;
use crate::query::failure::Failure;
use crate::query::plan::{SystemItem, SystemItems, SystemSelect};

pub(super) fn select(
    table: &'static SystemTable,
    terms: &mut Terms<'_>,
    select: &statement::Select,
) -> Result<SystemSelect, Failure> {
    let mut filters = Vec::new();
    for relation in &select.relations {
        let Subject::Column(name) = &relation.subject else {
            return Err(Failure::Invalid(format!(
                "conditions on {} are not supported in tables of the system",
                relation.subject
            )));
        };
        let (position, kind) = find(table, name)?;
        let column = Column { name: name.clone(), kind, number: 0, descending: false };
        filters.push(filter(terms, vec![position], vec![column], relation)?);
    }
    if !select.group_by.is_empty() {
        return Err(Failure::invalid("GROUP BY is not supported in tables of the system"));
    }
    if !select.order_by.is_empty() {
        return Err(Failure::invalid("ORDER BY is not supported in tables of the system"));
    }
    let (items, names) = items(table, &select.selection)?;
    let columns = described(table.keyspace, table.name, &names);
    let (per_partition, limit) = limits(terms, select)?;
    if per_partition.is_some() {
        return Err(Failure::invalid(
            "PER PARTITION LIMIT is not supported in tables of the system",
        ));
    }
    Ok(SystemSelect { table, filters, distinct: select.distinct, items, limit, columns })
}

fn find(table: &SystemTable, name: &str) -> Result<(usize, Type), Failure> {
    let found = table.column(name);
    let (position, column) = found.ok_or_else(|| undefined(name, table.keyspace, table.name))?;
    Ok((position, column.column_type.to_type()))
}

fn items(table: &SystemTable, selection: &Selection) -> Result<(SystemItems, Named), Failure> {
    let Selection::Items(selectors) = selection else {
        let names = table.columns.iter();
        let names = names.map(|column| (column.name.to_owned(), column.column_type.to_type()));
        let all = (0..table.columns.len()).map(SystemItem::Column).collect();
        return Ok((SystemItems::Columns(all), names.collect()));
    };
    let mut items = Vec::new();
    let mut names = Vec::new();
    for selector in selectors {
        let name = selector.alias.clone().unwrap_or_else(|| selector.item.to_string());
        if selector.item == SelectItem::CountRows {
            if selectors.len() > 1 {
                return Err(Failure::invalid("count beside columns is not supported"));
            }
            return Ok((SystemItems::Count, vec![(name, Type::Bigint)]));
        }
        let (item, kind) = item(table, &selector.item)?;
        items.push(item);
        names.push((name, kind));
    }
    Ok((SystemItems::Columns(items), names))
}

fn item(table: &SystemTable, item: &SelectItem) -> Result<(SystemItem, Type), Failure> {
    Ok(match item {
        SelectItem::Column(name) => {
            let (position, kind) = find(table, name)?;
            (SystemItem::Column(position), kind)
        }
        SelectItem::WriteTime(name) => {
            find(table, name)?;
            (SystemItem::Null, Type::Bigint)
        }
        SelectItem::Ttl(name) => {
            find(table, name)?;
            (SystemItem::Null, Type::Int)
        }
        SelectItem::Token(names) => {
            let positions = names.iter().map(|name| Ok(find(table, name)?.0));
            let positions = positions.collect::<Result<Vec<_>, Failure>>()?;
            let key = table.columns.iter().filter(|c| c.kind == ColumnKind::PartitionKey).count();
            if positions != (0..key).collect::<Vec<_>>() {
                return Err(Failure::invalid(
                    "token() in a selection is supported of the whole partition key only",
                ));
            }
            (SystemItem::Token(positions), Type::Bigint)
        }
        SelectItem::Call(function, arguments) => {
            let argument = argument(*function, arguments, |item| self::item(table, item))?;
            (SystemItem::Call(*function, argument), function.returns())
        }
        SelectItem::CountRows | SelectItem::Count(_) | SelectItem::Aggregate(..) => {
            return Err(Failure::invalid(
                "aggregates other than count(*) alone are not supported in tables of the system",
            ));
        }
    })
}
