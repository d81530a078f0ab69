//! DESCRIBE, which cqlsh sends to servers since Cassandra 4.0. The answer has the statements that
//! create the schema.

use std::fmt::Write;
use std::net::IpAddr;

use tare_cql::response::{ColumnSpec, EncodedColumns, Reply, RowsWriter};
use tare_cql::statement::{Describe, DescribeTarget, TableName, quoted};
use tare_cql::system_schema::{self, SystemTable};
use tare_cql::types::Type;
use tare_cql::wire::{put_bytes, put_count};

use crate::query::catalog::{Catalog, Keyspace, Table};
use crate::query::failure::Failure;
use crate::query::system::{CLUSTER_NAME, keyspace_of_system, table_of_system};

/// An element of the schema: its keyspace, kind and name, and the statement that creates it.
struct Element {
    keyspace: String,
    kind: &'static str,
    name: String,
    statement: String,
}

/// Appends the answer to DESCRIBE. `current` is the keyspace in use, `address` that of this node.
pub(crate) fn answer(
    out: &mut Vec<u8>,
    reply: Reply,
    (describe, current): (&Describe, Option<&str>),
    catalog: &Catalog,
    address: IpAddr,
) -> Result<(), Failure> {
    if describe.target == DescribeTarget::Cluster {
        describe_cluster(out, reply, current, &address.to_string());
        return Ok(());
    }
    let schema = Schema { catalog, internals: describe.internals };
    let (elements, with_statements) = schema.elements(&describe.target, current)?;
    let mut names = vec!["keyspace_name", "type", "name"];
    names.extend(with_statements.then_some("create_statement"));
    let specs = names.iter().map(|name| ColumnSpec { name, kind: &Type::Text });
    let columns = EncodedColumns::new("system", "describe", specs);
    let mut writer = RowsWriter::begin(out, reply, &columns, None);
    for element in &elements {
        let mut cell = |text: &str| writer.cell(Some(text.as_bytes()));
        cell(&element.keyspace);
        cell(element.kind);
        cell(&element.name);
        if with_statements {
            cell(&element.statement);
        }
        writer.end_row();
    }
    writer.finish();
    Ok(())
}

fn describe_cluster(out: &mut Vec<u8>, reply: Reply, current: Option<&str>, address: &str) {
    let texts = Type::Frozen(Box::new(Type::List(Box::new(Type::Text))));
    let ownership = Type::Map(Box::new(Type::Text), Box::new(texts));
    let mut specs: Vec<_> = ["cluster", "partitioner", "snitch"]
        .iter()
        .map(|name| ColumnSpec { name, kind: &Type::Text })
        .collect();
    if current.is_some() {
        specs.push(ColumnSpec { name: "range_ownership", kind: &ownership });
    }
    let columns = EncodedColumns::new("system", "describe", specs);
    let mut writer = RowsWriter::begin(out, reply, &columns, None);
    for text in [CLUSTER_NAME, "Murmur3Partitioner", "SimpleSnitch"] {
        writer.cell(Some(text.as_bytes()));
    }
    if current.is_some() {
        // There is one range, which belongs to one node.
        let mut nodes = Vec::new();
        put_count(&mut nodes, 1);
        put_bytes(&mut nodes, Some(address.as_bytes()));
        let mut map = Vec::new();
        put_count(&mut map, 1);
        put_bytes(&mut map, Some(b"0"));
        put_bytes(&mut map, Some(&nodes));
        writer.cell(Some(&map));
    }
    writer.end_row();
    writer.finish();
}

struct Schema<'a> {
    catalog: &'a Catalog,
    internals: bool,
}

impl Schema<'_> {
    /// The elements that DESCRIBE asks for, and whether the answer includes their statements.
    fn elements(
        &self,
        target: &DescribeTarget,
        current: Option<&str>,
    ) -> Result<(Vec<Element>, bool), Failure> {
        let named = match target {
            DescribeTarget::Cluster | DescribeTarget::Nothing => return Ok((Vec::new(), false)),
            DescribeTarget::Keyspaces => {
                let names = self.keyspaces(true);
                let keyspaces = names.map(|name| Element {
                    keyspace: name.into(),
                    kind: "keyspace",
                    name: name.into(),
                    statement: String::new(),
                });
                return Ok((keyspaces.collect(), false));
            }
            DescribeTarget::Tables => {
                let within = self.keyspaces(true).filter(|name| current.is_none_or(|c| c == *name));
                let elements = within.flat_map(|name| self.tables(name)).collect();
                return Ok((elements, false));
            }
            DescribeTarget::Schema { full } => {
                self.keyspaces(*full).flat_map(|name| self.keyspace(name, false)).collect()
            }
            DescribeTarget::Keyspace { name, only } => {
                let name = name.as_deref().or(current).ok_or_else(no_keyspace)?;
                self.known(name)?;
                self.keyspace(name, *only)
            }
            DescribeTarget::Table(name) => vec![self.table(name, current)?],
            DescribeTarget::Other { kind, name } => {
                let keyspace = name.keyspace.as_deref().or(current).ok_or_else(no_keyspace)?;
                let name = &name.table;
                return Err(Failure::Invalid(format!(
                    "{kind} '{name}' not found in keyspace '{keyspace}'"
                )));
            }
            DescribeTarget::Any(name)
                if name.keyspace.is_none() && self.known(&name.table).is_ok() =>
            {
                self.keyspace(&name.table, false)
            }
            DescribeTarget::Any(name) if name.keyspace.is_none() && current.is_none() => {
                return Err(Failure::Invalid(format!("'{}' not found in keyspaces", name.table)));
            }
            DescribeTarget::Any(name) => vec![self.table(name, current)?],
        };
        Ok((named, true))
    }

    fn keyspaces(&self, system: bool) -> impl Iterator<Item = &str> {
        let users = self.catalog.keyspaces.keys().map(String::as_str);
        users.chain(system_schema::KEYSPACES.into_iter().filter(move |_| system))
    }

    fn known(&self, keyspace: &str) -> Result<(), Failure> {
        match self.keyspaces(true).any(|name| name == keyspace) {
            true => Ok(()),
            false => Err(Failure::Invalid(format!("'{keyspace}' not found in keyspaces"))),
        }
    }

    fn tables(&self, keyspace: &str) -> Vec<Element> {
        let users = self.catalog.keyspaces.get(keyspace).into_iter();
        let users = users.flat_map(|keyspace| keyspace.tables.values());
        let system = system_schema::TABLES.iter().filter(|table| table.keyspace == keyspace);
        let mut all: Vec<Element> = users.map(|table| self.element(table)).collect();
        all.extend(system.map(|table: &SystemTable| self.element(&table_of_system(table))));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn element(&self, table: &Table) -> Element {
        Element {
            keyspace: table.keyspace.clone(),
            kind: "table",
            name: table.name.clone(),
            statement: create_table(table, self.internals),
        }
    }

    fn keyspace(&self, name: &str, only: bool) -> Vec<Element> {
        let of_system = keyspace_of_system();
        let keyspace = self.catalog.keyspaces.get(name).unwrap_or(&of_system);
        let mut all = vec![Element {
            keyspace: name.into(),
            kind: "keyspace",
            name: name.into(),
            statement: create_keyspace(name, keyspace),
        }];
        if !only {
            all.extend(self.tables(name));
        }
        all
    }

    fn table(&self, name: &TableName, current: Option<&str>) -> Result<Element, Failure> {
        let keyspace = name.keyspace.as_deref().or(current).ok_or_else(no_keyspace)?;
        self.known(keyspace)?;
        let found = self.tables(keyspace).into_iter().find(|element| element.name == name.table);
        let name = &name.table;
        found.ok_or_else(|| {
            Failure::Invalid(format!("Table '{name}' not found in keyspace '{keyspace}'"))
        })
    }
}

fn no_keyspace() -> Failure {
    Failure::invalid("No keyspace specified and no current keyspace")
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn map(entries: &[(String, String)]) -> String {
    let entries =
        entries.iter().map(|(key, value)| format!("{}: {}", literal(key), literal(value)));
    format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
}

fn create_keyspace(name: &str, keyspace: &Keyspace) -> String {
    let replication = keyspace.replication.iter().map(|(key, value)| {
        // Cassandra shows its own strategies without their package.
        let value = value.strip_prefix("org.apache.cassandra.locator.").unwrap_or(value);
        (key.clone(), value.to_owned())
    });
    format!(
        "CREATE KEYSPACE {} WITH replication = {}  AND durable_writes = {};",
        quoted(name),
        map(&replication.collect::<Vec<_>>()),
        keyspace.durable_writes
    )
}

/// The options in the order in which Cassandra 4.0 prints them.
const OPTIONS: [(&str, Shape); 17] = [
    ("additional_write_policy", Shape::Text),
    ("bloom_filter_fp_chance", Shape::Plain),
    ("caching", Shape::Map),
    ("cdc", Shape::Flag),
    ("comment", Shape::Text),
    ("compaction", Shape::Map),
    ("compression", Shape::Map),
    ("crc_check_chance", Shape::Plain),
    ("default_time_to_live", Shape::Plain),
    ("extensions", Shape::Map),
    ("gc_grace_seconds", Shape::Plain),
    ("max_index_interval", Shape::Plain),
    ("memtable_flush_period_in_ms", Shape::Plain),
    ("min_index_interval", Shape::Plain),
    ("read_repair", Shape::Text),
    ("speculative_retry", Shape::Text),
    ("paxos_grace_seconds", Shape::Plain),
];

#[derive(Clone, Copy)]
enum Shape {
    Text,
    Plain,
    Flag,
    Map,
}

fn create_table(table: &Table, internals: bool) -> String {
    let names = |columns: &[crate::query::catalog::Column]| {
        columns
            .iter()
            .map(|column| quoted(&column.name).into_owned())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut out = format!("CREATE TABLE {}.{} (\n", quoted(&table.keyspace), quoted(&table.name));
    let single = table.partition.len() == 1 && table.clustering.is_empty();
    let mut lines = Vec::new();
    for (position, column) in table.columns().enumerate() {
        let key = if single && position == 0 { " PRIMARY KEY" } else { "" };
        let is_static = table.statics.iter().any(|known| known.number == column.number);
        let modifier = if is_static && column.number > 0 { " static" } else { key };
        lines.push(format!("    {} {}{modifier}", quoted(&column.name), column.kind));
    }
    if !single {
        let partition = match table.partition.len() {
            1 => names(&table.partition),
            _ => format!("({})", names(&table.partition)),
        };
        let clustering = match table.clustering.is_empty() {
            true => String::new(),
            false => format!(", {}", names(&table.clustering)),
        };
        lines.push(format!("    PRIMARY KEY ({partition}{clustering})"));
    }
    out.push_str(&lines.join(",\n"));
    out.push_str("\n) WITH ");
    if internals {
        let _ = write!(out, "ID = {}\n    AND ", Type::Uuid.print(&table.id));
    }
    if !table.clustering.is_empty() {
        let order = table.clustering.iter().map(|column| {
            let order = if column.descending { "DESC" } else { "ASC" };
            format!("{} {order}", quoted(&column.name))
        });
        let order = order.collect::<Vec<_>>().join(", ");
        let _ = write!(out, "CLUSTERING ORDER BY ({order})\n    AND ");
    }
    let options = OPTIONS.iter().filter_map(|(name, shape)| {
        let text = table.options.text(name);
        let value = match shape {
            Shape::Text => literal(text?),
            Shape::Plain => text?.to_owned(),
            Shape::Flag => text.unwrap_or("false").to_owned(),
            Shape::Map => map(&table.options.map(name)),
        };
        Some(format!("{name} = {value}"))
    });
    out.push_str(&options.collect::<Vec<_>>().join("\n    AND "));
    out.push(';');
    out
}
