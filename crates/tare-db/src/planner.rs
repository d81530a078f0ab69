//! From text to a plan: names resolved against the schema, constants encoded, what is not
//! supported refused by name.

use std::sync::Arc;

use tare_cql::response::{ColumnSpec, EncodedColumns};
use tare_cql::statement::{
    self, Comparison, MarkerTarget, Order, ParseError, Parsed, Relation, SelectItem, Selection,
    Statement, TableName, Term, Test,
};
use tare_cql::system_schema::{self, SystemTable};
use tare_cql::types::Type;

use crate::catalog::{Catalog, Column, Table};
use crate::failure::Failure;
use crate::plan::{Insert, Item, Items, Plan, Prepared, Select, Source, SystemSelect};

/// Plans one statement.
pub(crate) fn plan(
    catalog: &Catalog,
    epoch: u64,
    keyspace: Option<&str>,
    text: &str,
) -> Result<Prepared, Failure> {
    let parsed = statement::parse(text).map_err(|error| match error {
        ParseError::Syntax { .. } => Failure::Syntax(error.to_string()),
        ParseError::Unsupported { .. } => Failure::Invalid(error.to_string()),
    })?;
    let (plan, target) = match &parsed.statement {
        Statement::Insert(insert) => {
            let table = user_table(catalog, keyspace, &insert.table)?;
            (Plan::Insert(self::insert(&table, insert)?), Target::User(table))
        }
        Statement::Select(select) => {
            let (in_keyspace, name) = qualified(keyspace, &select.table)?;
            match system_schema::table(in_keyspace, name) {
                Some(table) => (Plan::System(system_select(table, select)?), Target::System(table)),
                None => {
                    let table = user_table(catalog, keyspace, &select.table)?;
                    (Plan::Select(self::select(&table, select)?), Target::User(table))
                }
            }
        }
        _ => (Plan::Other(parsed.statement.clone()), Target::None),
    };
    let markers = markers(&parsed, &target)?;
    let specs = markers.iter().map(|(name, kind)| ColumnSpec { name, kind });
    let (in_keyspace, name) = target.names();
    let marker_columns = EncodedColumns::new(in_keyspace, name, specs);
    let key: &[Source] = match &plan {
        Plan::Insert(insert) => &insert.key,
        Plan::Select(select) => &select.key,
        Plan::System(_) | Plan::Other(_) => &[],
    };
    let positions = key.iter().map(|source| match source {
        Source::Marker(position) => Some(*position),
        Source::Literal(_) => None,
    });
    let partition_key = positions.collect::<Option<Vec<_>>>().unwrap_or_default();
    Ok(Prepared { plan, markers, marker_columns, partition_key, epoch })
}

/// Checks that a value has a form that its type allows.
#[inline]
pub(crate) fn check_value(name: &str, kind: &Type, bytes: &[u8]) -> Result<(), Failure> {
    kind.validate(bytes).map_err(|error| Failure::Invalid(format!("{name}: {error}")))
}

/// What a statement is about.
enum Target {
    User(Arc<Table>),
    System(&'static SystemTable),
    None,
}

impl Target {
    fn names(&self) -> (&str, &str) {
        match self {
            Self::User(table) => (&table.keyspace, &table.name),
            Self::System(table) => (table.keyspace, table.name),
            Self::None => ("", ""),
        }
    }

    fn kind(&self, column: &str) -> Option<Type> {
        match self {
            Self::User(table) => Some(find(table, column).ok()?.kind.clone()),
            Self::System(table) => Some(table.column(column)?.1.column_type.to_type()),
            Self::None => None,
        }
    }
}

fn markers(parsed: &Parsed, target: &Target) -> Result<Vec<(String, Type)>, Failure> {
    let targets = parsed.marker_targets();
    if targets.len() != parsed.markers.len() {
        return Err(Failure::invalid("a bind marker stands where none is supported"));
    }
    let marker = |(marker, name): (&MarkerTarget<'_>, &Option<String>)| {
        let kind = match marker {
            MarkerTarget::Column(column) => target.kind(column).ok_or_else(|| undefined(column))?,
            MarkerTarget::InList(_) => return Err(Failure::invalid("IN is not supported")),
            MarkerTarget::Limit | MarkerTarget::Ttl => Type::Int,
            MarkerTarget::Timestamp => Type::Bigint,
        };
        Ok((name.clone().unwrap_or_else(|| marker.to_string()), kind))
    };
    targets.iter().zip(&parsed.markers).map(marker).collect()
}

fn undefined(column: &str) -> Failure {
    Failure::Invalid(format!("undefined column name {column}"))
}

/// The keyspace and name of a table.
pub(crate) fn qualified<'a>(
    keyspace: Option<&'a str>,
    name: &'a TableName,
) -> Result<(&'a str, &'a str), Failure> {
    let message = "no keyspace has been specified; USE a keyspace, or write keyspace.table";
    let keyspace = name.keyspace.as_deref().or(keyspace);
    Ok((keyspace.ok_or_else(|| Failure::invalid(message))?, &name.table))
}

/// A table that clients made.
pub(crate) fn user_table(
    catalog: &Catalog,
    keyspace: Option<&str>,
    name: &TableName,
) -> Result<Arc<Table>, Failure> {
    let (keyspace, name) = qualified(keyspace, name)?;
    if !catalog.keyspaces.contains_key(keyspace) && !system_schema::KEYSPACES.contains(&keyspace) {
        return Err(Failure::Invalid(format!("keyspace {keyspace} does not exist")));
    }
    let table = catalog.table(keyspace, name);
    table.cloned().ok_or_else(|| Failure::Invalid(format!("unconfigured table {keyspace}.{name}")))
}

fn find<'a>(table: &'a Table, column: &str) -> Result<&'a Column, Failure> {
    table.columns().find(|known| known.name == column).ok_or_else(|| undefined(column))
}

fn source(term: &Term, name: &str, kind: &Type) -> Result<Source, Failure> {
    Ok(match term {
        Term::Marker(position) => Source::Marker(
            u16::try_from(*position).map_err(|_| Failure::invalid("too many bind markers"))?,
        ),
        Term::Literal(literal) => Source::Literal(
            literal.encode(kind).map_err(|error| Failure::Invalid(format!("{name}: {error}")))?,
        ),
    })
}

fn insert(table: &Arc<Table>, insert: &statement::Insert) -> Result<Insert, Failure> {
    if insert.ttl_s.is_some() {
        return Err(Failure::invalid("USING TTL is not supported"));
    }
    let mut given = Vec::new();
    for (name, term) in insert.columns.iter().zip(&insert.values) {
        let column = find(table, name)?;
        if given.iter().any(|(known, _): &(&Column, _)| known.number == column.number) {
            return Err(Failure::Invalid(format!("the column {name} is given twice")));
        }
        given.push((column, source(term, name, &column.kind)?));
    }
    let key = |columns: &[Column]| -> Result<Vec<Source>, Failure> {
        let of = |column: &Column| {
            let found = given.iter().find(|(known, _)| known.number == column.number);
            let missing = || format!("some primary key parts are missing: {}", column.name);
            found.map(|(_, source)| source.clone()).ok_or_else(|| Failure::Invalid(missing()))
        };
        columns.iter().map(of).collect()
    };
    let is_key = |column: &Column| table.partition.iter().any(|k| k.number == column.number);
    let cells = given.iter().filter(|(column, _)| !is_key(column));
    let mut cells: Vec<_> = cells.map(|(column, source)| (column.number, source.clone())).collect();
    cells.sort_by_key(|(number, _)| *number);
    let timestamp = insert.timestamp_us.as_ref();
    let timestamp = timestamp.map(|term| source(term, "[timestamp]", &Type::Bigint)).transpose()?;
    Ok(Insert {
        table: Arc::clone(table),
        key: key(&table.partition)?,
        clustering: key(&table.clustering)?,
        cells,
        timestamp,
    })
}

fn select(table: &Arc<Table>, select: &statement::Select) -> Result<Select, Failure> {
    if select.distinct {
        return Err(Failure::invalid("SELECT DISTINCT is not supported"));
    }
    check_order(table, select)?;
    let mut equal = equalities(&select.relations, |name| Ok(find(table, name)?.kind.clone()))?;
    let mut take = |column: &Column| {
        let at = equal.iter().position(|(name, _)| *name == column.name)?;
        Some(equal.swap_remove(at).1)
    };
    let key: Vec<Source> = table.partition.iter().filter_map(&mut take).collect();
    let clustering: Vec<Source> = table.clustering.iter().map_while(&mut take).collect();
    let whole_key = key.len() == table.partition.len();
    let scan = key.is_empty() && clustering.is_empty();
    if !(whole_key || scan) || !equal.is_empty() {
        return Err(Failure::invalid(
            "only the whole partition key and the first columns of the clustering key can be \
             restricted; filtering is not supported",
        ));
    }
    let column = |name: &str| {
        let column = find(table, name)?;
        let key = table.partition.iter().position(|k| k.number == column.number);
        Ok((key.map_or(Item::Cell(column.number), Item::Partition), column.kind.clone()))
    };
    let all = || table.columns().map(|column| column.name.clone()).collect();
    let (items, names) = items(&select.selection, all, column)?;
    let specs = names.iter().map(|(name, kind)| ColumnSpec { name, kind });
    let columns = EncodedColumns::new(&table.keyspace, &table.name, specs);
    let limit = select.limit.as_ref();
    let limit = limit.map(|term| source(term, "[limit]", &Type::Int)).transpose()?;
    let items = items.map_or(Items::Count, Items::Columns);
    Ok(Select { table: Arc::clone(table), key, clustering, items, limit, columns })
}

fn system_select(
    table: &'static SystemTable,
    select: &statement::Select,
) -> Result<SystemSelect, Failure> {
    let found = |name: &str| table.column(name).ok_or_else(|| undefined(name));
    let kind = |name: &str| Ok(found(name)?.1.column_type.to_type());
    let filters = equalities(&select.relations, kind)?;
    let filters = filters.into_iter().map(|(name, source)| Ok((found(name)?.0, source)));
    let filters = filters.collect::<Result<_, Failure>>()?;
    let all = || table.columns.iter().map(|column| column.name.to_string()).collect();
    let column = |name: &str| {
        let (position, column) = found(name)?;
        Ok((position, column.column_type.to_type()))
    };
    let (items, names) = items(&select.selection, all, column)?;
    let specs = names.iter().map(|(name, kind)| ColumnSpec { name, kind });
    let columns = EncodedColumns::new(table.keyspace, table.name, specs);
    let (keyspace, table) = (table.keyspace.to_string(), table.name.to_string());
    Ok(SystemSelect { keyspace, table, filters, items, columns })
}

/// What is selected (`None` counts) and what the result's columns are called.
type Selected<I> = (Option<Vec<I>>, Vec<(String, Type)>);

fn items<I>(
    selection: &Selection,
    all: impl FnOnce() -> Vec<String>,
    column: impl Fn(&str) -> Result<(I, Type), Failure>,
) -> Result<Selected<I>, Failure> {
    let (mut items, mut names) = (Vec::new(), Vec::new());
    match selection {
        Selection::All => {
            for name in all() {
                let (item, kind) = column(&name)?;
                items.push(item);
                names.push((name, kind));
            }
        }
        Selection::Items(selectors) => {
            for selector in selectors {
                match &selector.item {
                    SelectItem::Count if selectors.len() == 1 => {
                        let name = selector.alias.clone().unwrap_or_else(|| "count".into());
                        return Ok((None, vec![(name, Type::Bigint)]));
                    }
                    SelectItem::Count => {
                        return Err(Failure::invalid("count beside columns is not supported"));
                    }
                    SelectItem::Column(name) => {
                        let (item, kind) = column(name)?;
                        items.push(item);
                        names.push((selector.alias.clone().unwrap_or_else(|| name.clone()), kind));
                    }
                }
            }
        }
    }
    Ok((Some(items), names))
}

/// The conditions of WHERE, which must all be equalities of different columns.
fn equalities(
    relations: &[Relation],
    kind: impl Fn(&str) -> Result<Type, Failure>,
) -> Result<Vec<(&str, Source)>, Failure> {
    let mut equal: Vec<(&str, Source)> = Vec::new();
    for Relation { column, test } in relations {
        let term = match test {
            Test::Compare(Comparison::Equal, term) => term,
            Test::Compare(..) => {
                let message = format!("{column}: only = is supported in WHERE, not ranges");
                return Err(Failure::Invalid(message));
            }
            Test::In(_) | Test::InMarker(_) => {
                return Err(Failure::Invalid(format!("{column}: IN is not supported")));
            }
        };
        if equal.iter().any(|(name, _)| name == column) {
            return Err(Failure::Invalid(format!("{column} is restricted twice")));
        }
        equal.push((column, source(term, column, &kind(column)?)?));
    }
    Ok(equal)
}

/// Rows come in clustering order; an ORDER BY that asks for just that is granted.
fn check_order(table: &Table, select: &statement::Select) -> Result<(), Failure> {
    let natural = table.clustering.iter().map(|column| {
        let order = if column.descending { Order::Descending } else { Order::Ascending };
        (&column.name, order)
    });
    let asked = select.order_by.iter().map(|(name, order)| (name, *order));
    if asked
        .zip(natural.chain(std::iter::repeat((&table.name, Order::Ascending))))
        .any(|(a, n)| a != n)
    {
        return Err(Failure::invalid("ORDER BY other than the clustering order is not supported"));
    }
    Ok(())
}
