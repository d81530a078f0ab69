//! Turns text into a plan: resolves names against the schema, encodes constants, and refuses what
//! is not supported by its name. Some clients look for the messages of Cassandra, so they are used
//! where it has one.

mod collections;
mod condition;
mod conditions;
mod filtering;
mod group;
mod modify;
mod select;
mod selection;
mod system;
mod terms;

use std::sync::Arc;

use tare_cql::response::{ColumnSpec, EncodedColumns};
use tare_cql::statement::{self, ParseError, Statement, TableName};
use tare_cql::system_schema;
use tare_cql::types::Type;

use crate::query::catalog::{Catalog, Column, Table};
use crate::query::collections::has_order;
use crate::query::failure::Failure;
use crate::query::plan::{Conditional, Item, Modify, Partitions, Plan, Prepared, Source};
use crate::query::replication::Replicas;
pub(crate) use condition::compared;
pub(crate) use modify::{CONDITIONAL_TIMESTAMP, check_batch};
use terms::Terms;

/// The schema and the keyspace in use.
#[derive(Clone, Copy)]
struct Scope<'a> {
    catalog: &'a Catalog,
    keyspace: Option<&'a str>,
}

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
    let scope = Scope { catalog, keyspace };
    let mut terms = Terms::new(&parsed.markers);
    let (plan, about) = match parsed.statement {
        Statement::Modify(modify) => {
            let (modify, condition) = modify::modify(scope, &mut terms, &modify)?;
            let about = names(&modify.table);
            let plan = match condition {
                None if modify.reads() => Plan::ReadWrite(modify),
                None => Plan::Modify(modify),
                Some(_) => Plan::Conditional(Conditional {
                    is_batch: false,
                    statements: vec![(modify, condition)],
                }),
            };
            (plan, about)
        }
        Statement::Batch(batch) => {
            let (plan, first) = modify::batch(scope, &mut terms, &batch)?;
            (plan, first.map(|table| names(&table)).unwrap_or_default())
        }
        Statement::Select(select) => {
            let (in_keyspace, name) = qualified(keyspace, &select.table)?;
            match system_schema::table(in_keyspace, name) {
                Some(table) => {
                    let select = system::select(table, &mut terms, &select)?;
                    (Plan::System(select), (table.keyspace.into(), table.name.into()))
                }
                None => {
                    let select = select::select(scope, &mut terms, &select)?;
                    let about = names(&select.table);
                    (Plan::Select(select), about)
                }
            }
        }
        other => (Plan::Other(other, keyspace.map(Box::from)), Default::default()),
    };
    let (markers, calls) = terms.finish()?;
    let of_order = (0..).zip(&markers).filter(|(_, (_, kind))| has_order(kind));
    let collections = of_order.map(|(position, _)| position).collect();
    let specs = markers.iter().map(|(name, kind)| ColumnSpec { name, kind });
    let marker_columns = EncodedColumns::new(&about.0, &about.1, specs);
    let partition_key = key_markers(&plan);
    Ok(Prepared { plan, markers, collections, calls, marker_columns, partition_key, epoch })
}

fn names(table: &Table) -> (String, String) {
    (table.keyspace.clone(), table.name.clone())
}

/// The positions of the markers that are the partition key, by which drivers find the shard; none
/// if a part of the key is no marker.
fn key_markers(plan: &Plan) -> Vec<u16> {
    let partitions = match plan {
        Plan::Modify(Modify { partitions, .. }) | Plan::ReadWrite(Modify { partitions, .. }) => {
            partitions
        }
        Plan::Select(select) => &select.partitions,
        Plan::Conditional(Conditional { is_batch: false, statements }) => {
            let Some((modify, _)) = statements.first() else { return Vec::new() };
            &modify.partitions
        }
        Plan::Batch(_) | Plan::Conditional(_) | Plan::System(_) | Plan::Other(..) => {
            return Vec::new();
        }
    };
    let Partitions::One(key) = partitions else { return Vec::new() };
    let position = |source: &Source| match source {
        Source::Marker(position) | Source::Collection(position) => Some(*position),
        Source::Literal(_) | Source::Call(_) => None,
    };
    key.iter().map(position).collect::<Option<_>>().unwrap_or_default()
}

/// Checks that a value is valid for its type.
#[inline]
pub(crate) fn check_value(name: &str, kind: &Type, bytes: &[u8]) -> Result<(), Failure> {
    kind.validate(bytes).map_err(|error| Failure::Invalid(format!("{name}: {error}")))
}

/// The keyspace and name of a table.
pub(crate) fn qualified<'a>(
    keyspace: Option<&'a str>,
    name: &'a TableName,
) -> Result<(&'a str, &'a str), Failure> {
    let message = "No keyspace has been specified. USE a keyspace, or explicitly specify \
                   keyspace.tablename";
    let keyspace = name.keyspace.as_deref().or(keyspace);
    Ok((keyspace.ok_or_else(|| Failure::invalid(message))?, &name.table))
}

/// A table of clients.
pub(crate) fn user_table(
    catalog: &Catalog,
    keyspace: Option<&str>,
    name: &TableName,
) -> Result<Arc<Table>, Failure> {
    let (keyspace, name) = qualified(keyspace, name)?;
    if !catalog.has_keyspace(keyspace) {
        return Err(Failure::Invalid(format!("keyspace {keyspace} does not exist")));
    }
    let table = catalog.table(keyspace, name);
    table.cloned().ok_or_else(|| Failure::Invalid(format!("unconfigured table {name}")))
}

/// A table whose rows can be read and written, and its replicas.
fn data_table(scope: Scope<'_>, name: &TableName) -> Result<(Arc<Table>, Replicas), Failure> {
    let (keyspace, _) = qualified(scope.keyspace, name)?;
    let table = user_table(scope.catalog, scope.keyspace, name)?;
    let replication = scope.catalog.keyspaces.get(keyspace).map(|k| &k.replication[..]);
    Ok((table, Replicas::of(replication.unwrap_or_default())))
}

/// The role of a column in its table, and its position in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnRole {
    Partition(usize),
    Clustering(usize),
    Static,
    Regular,
}

impl ColumnRole {
    /// Whether the column is part of the key.
    fn is_key(self) -> bool {
        matches!(self, Self::Partition(_) | Self::Clustering(_))
    }
}

fn find<'a>(table: &'a Table, name: &str) -> Result<(ColumnRole, &'a Column), Failure> {
    let at = |columns: &'a [Column]| columns.iter().enumerate().find(|(_, c)| c.name == name);
    if let Some((position, column)) = at(&table.partition) {
        return Ok((ColumnRole::Partition(position), column));
    }
    if let Some((position, column)) = at(&table.clustering) {
        return Ok((ColumnRole::Clustering(position), column));
    }
    if let Some((_, column)) = at(&table.statics) {
        return Ok((ColumnRole::Static, column));
    }
    let column = at(&table.regular).ok_or_else(|| undefined(name, &table.keyspace, &table.name))?;
    Ok((ColumnRole::Regular, column.1))
}

/// The value of a column.
fn value_of(role: ColumnRole, column: &Column) -> Item {
    match role {
        ColumnRole::Partition(position) => Item::Partition(position),
        ColumnRole::Clustering(position) => Item::Clustering(position),
        ColumnRole::Regular | ColumnRole::Static => Item::of(column),
    }
}

fn undefined(column: &str, keyspace: &str, table: &str) -> Failure {
    Failure::Invalid(format!("Undefined column name {column} in table {keyspace}.{table}"))
}
