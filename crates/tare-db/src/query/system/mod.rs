//! Computes the rows of the system tables from the schema: what drivers ask for when they connect.
//! The cluster is a single node that owns the whole ring.

mod select;

pub(crate) use select::select;

use std::net::{IpAddr, SocketAddr};

use tare_cql::system_schema::{self, ColumnKind, SystemTable};
use tare_cql::token::PARTITIONER;
use tare_cql::wire::put_bytes;

use crate::query::catalog::{Catalog, Column, DroppedColumn, Keyspace, Table, hash_uuid};
use crate::query::options::TableOptions;
use crate::query::replication::DATA_CENTER;

/// The address and id of this node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    pub(crate) host_id: [u8; 16],
}

/// The name of the cluster.
pub(crate) const CLUSTER_NAME: &str = "tare";
/// The release of Cassandra that the server announces. Drivers choose their queries by it.
const RELEASE_VERSION: &str = "4.0.0";

type Value = Option<Vec<u8>>;

/// The rows of a system table, in the order of its key.
pub(crate) fn rows(table: &SystemTable, catalog: &Catalog, node: &Node) -> Vec<Vec<Value>> {
    let fill = |fields: &dyn Fn(&str) -> Value| {
        table.columns.iter().map(|column| fields(column.name)).collect::<Vec<_>>()
    };
    let mut rows: Vec<Vec<Value>> = match (table.keyspace, table.name) {
        ("system", "local") => vec![fill(&|name| local(name, catalog, node))],
        ("system_schema", "keyspaces") => {
            let of_system = keyspace_of_system();
            let users = catalog.keyspaces.iter().map(|(name, keyspace)| (name.as_str(), keyspace));
            let system = system_schema::KEYSPACES.into_iter().map(|name| (name, &of_system));
            users
                .chain(system)
                .map(|(name, keyspace)| {
                    fill(&|column| match column {
                        "keyspace_name" => text(name),
                        "durable_writes" => Some(vec![u8::from(keyspace.durable_writes)]),
                        "replication" => map(&keyspace.replication),
                        _ => None,
                    })
                })
                .collect()
        }
        ("system_schema", "tables") => {
            let system = system_schema::TABLES.iter().map(table_of_system);
            let system = system.map(|table| fill(&|column| described(column, &table)));
            let users = catalog.tables().map(|table| fill(&|column| described(column, table)));
            users.chain(system).collect()
        }
        ("system_schema", "columns") => {
            let mut rows = Vec::new();
            let mut add = |table: &Table| {
                let parts = [
                    (ColumnKind::PartitionKey, &table.partition),
                    (ColumnKind::Clustering, &table.clustering),
                    (ColumnKind::Static, &table.statics),
                    (ColumnKind::Regular, &table.regular),
                ];
                for (kind, columns) in parts {
                    for (position, column) in (0..).zip(columns) {
                        let is_key =
                            matches!(kind, ColumnKind::PartitionKey | ColumnKind::Clustering);
                        let position = if is_key { position } else { -1 };
                        rows.push(fill(&|name| column_field(name, table, column, kind, position)));
                    }
                }
            };
            catalog.tables().for_each(&mut add);
            system_schema::TABLES.iter().map(table_of_system).for_each(|table| add(&table));
            rows
        }
        ("system_schema", "dropped_columns") => {
            let dropped = catalog
                .tables()
                .flat_map(|table| table.dropped.iter().map(move |dropped| (table, dropped)));
            dropped
                .map(|(table, dropped)| fill(&|name| dropped_field(name, table, dropped)))
                .collect()
        }
        // There are no peers, views, types, functions, indexes or virtual tables.
        _ => Vec::new(),
    };
    let keys = table.columns.iter().filter(|column| column.kind != ColumnKind::Regular).count();
    rows.sort_by(|a, b| a[..keys].cmp(&b[..keys]));
    rows
}

/// A system keyspace as the schema shows it.
pub(crate) fn keyspace_of_system() -> Keyspace {
    let class = ("class".to_string(), "org.apache.cassandra.locator.LocalStrategy".to_string());
    Keyspace { replication: vec![class], durable_writes: true, ..Keyspace::default() }
}

/// A system table as the schema shows it.
pub(crate) fn table_of_system(table: &SystemTable) -> Table {
    let columns = |kind: ColumnKind| {
        let of_kind = table.columns.iter().filter(move |column| column.kind == kind);
        of_kind
            .map(|column| Column {
                name: column.name.into(),
                kind: column.column_type.to_type(),
                number: 0,
                descending: false,
            })
            .collect::<Vec<_>>()
    };
    Table {
        keyspace: table.keyspace.into(),
        name: table.name.into(),
        id: hash_uuid(&[table.keyspace.as_bytes(), table.name.as_bytes()]),
        store: 0,
        partition: columns(ColumnKind::PartitionKey),
        clustering: columns(ColumnKind::Clustering),
        statics: columns(ColumnKind::Static),
        regular: columns(ColumnKind::Regular),
        dropped: Vec::new(),
        options: TableOptions::default(),
    }
}

fn local(name: &str, catalog: &Catalog, node: &Node) -> Value {
    let address = || inet(node.address.ip());
    let port = || int(i32::from(node.address.port()));
    match name {
        "key" => text("local"),
        "bootstrapped" => text("COMPLETED"),
        "broadcast_address" | "listen_address" | "rpc_address" => address(),
        "broadcast_port" | "listen_port" | "rpc_port" => port(),
        "cluster_name" => text(CLUSTER_NAME),
        "cql_version" => text(tare_cql::CQL_VERSION),
        "data_center" => text(DATA_CENTER),
        "gossip_generation" => int(1),
        "host_id" => Some(node.host_id.to_vec()),
        "native_protocol_version" => text("4"),
        "partitioner" => text(PARTITIONER),
        "rack" => text("rack1"),
        "release_version" => text(RELEASE_VERSION),
        "schema_version" => Some(catalog.version.to_vec()),
        // The node has one token because it owns the whole ring.
        "tokens" => list(&["0"]),
        _ => None,
    }
}

/// A field of a row of `system_schema.tables`.
fn described(column: &str, table: &Table) -> Value {
    let option = |name| table.options.text(name);
    let number = |name| int(option(name).and_then(|text| text.parse().ok()).unwrap_or(0));
    let fraction = |name| double(option(name).and_then(|text| text.parse().ok()).unwrap_or(0.0));
    match column {
        "keyspace_name" => text(&table.keyspace),
        "table_name" => text(&table.name),
        "id" => Some(table.id.to_vec()),
        "flags" if table.has_counters() => list(&["compound", "counter"]),
        "flags" => list(&["compound"]),
        "comment" | "speculative_retry" | "additional_write_policy" | "read_repair" => {
            text(option(column).unwrap_or(""))
        }
        "bloom_filter_fp_chance"
        | "crc_check_chance"
        | "dclocal_read_repair_chance"
        | "read_repair_chance" => fraction(column),
        "default_time_to_live"
        | "memtable_flush_period_in_ms"
        | "gc_grace_seconds"
        | "max_index_interval"
        | "min_index_interval" => number(column),
        "caching" | "compaction" | "compression" => map(&table.options.map(column)),
        "extensions" => map(&[]),
        // This flag is unknown unless the statement set it.
        "cdc" => option("cdc").map(|flag| vec![u8::from(flag.eq_ignore_ascii_case("true"))]),
        _ => None,
    }
}

/// A field of a row of `system_schema.columns`.
fn column_field(
    field: &str,
    table: &Table,
    column: &Column,
    kind: ColumnKind,
    position: i32,
) -> Value {
    match field {
        "keyspace_name" => text(&table.keyspace),
        "table_name" => text(&table.name),
        "column_name" | "column_name_bytes" => text(&column.name),
        "clustering_order" => text(match kind {
            ColumnKind::Clustering if column.descending => "desc",
            ColumnKind::Clustering => "asc",
            _ => "none",
        }),
        "kind" => text(kind.name()),
        "position" => int(position),
        "type" => text(&column.kind.to_string()),
        _ => None,
    }
}

/// A field of a row of `system_schema.dropped_columns`.
fn dropped_field(field: &str, table: &Table, dropped: &DroppedColumn) -> Value {
    match field {
        "dropped_time" => Some((dropped.dropped_us / 1_000).to_be_bytes().to_vec()),
        field => {
            let kind = if dropped.is_static { ColumnKind::Static } else { ColumnKind::Regular };
            column_field(field, table, &dropped.column, kind, -1)
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a value of a column")]
fn text(text: &str) -> Value {
    Some(text.as_bytes().to_vec())
}

#[expect(clippy::unnecessary_wraps, reason = "a value of a column")]
fn int(value: i32) -> Value {
    Some(value.to_be_bytes().to_vec())
}

#[expect(clippy::unnecessary_wraps, reason = "a value of a column")]
fn double(value: f64) -> Value {
    Some(value.to_be_bytes().to_vec())
}

#[expect(clippy::unnecessary_wraps, reason = "a value of a column")]
fn inet(address: IpAddr) -> Value {
    Some(match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    })
}

/// A list or set of texts: a count, then each text with its length (section 6 of the
/// specification).
#[expect(clippy::unnecessary_wraps, reason = "a value of a column")]
fn list(items: &[&str]) -> Value {
    let mut out = Vec::new();
    tare_cql::wire::put_count(&mut out, items.len());
    items.iter().for_each(|item| put_bytes(&mut out, Some(item.as_bytes())));
    Some(out)
}

#[expect(clippy::unnecessary_wraps, reason = "a value of a column")]
fn map(entries: &[(String, String)]) -> Value {
    let mut out = Vec::new();
    tare_cql::wire::put_count(&mut out, entries.len());
    for (key, value) in entries {
        put_bytes(&mut out, Some(key.as_bytes()));
        put_bytes(&mut out, Some(value.as_bytes()));
    }
    Some(out)
}
