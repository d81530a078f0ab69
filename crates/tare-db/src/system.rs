//! The rows of the system tables, made up from the schema: what drivers ask for when they connect.
//! A single node that owns the whole ring.

use std::net::{IpAddr, SocketAddr};

use tare_cql::system_schema::{self, SystemTable};
use tare_cql::wire::put_bytes;

use crate::catalog::{Catalog, Column, Table, hash_uuid};

/// This node, as it presents itself.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    pub(crate) host_id: [u8; 16],
}

/// The release of Cassandra whose behaviour is announced; drivers choose their queries by it.
const RELEASE_VERSION: &str = "4.0.0";
const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

type Value = Option<Vec<u8>>;

/// The rows of a system table.
pub(crate) fn rows(table: &SystemTable, catalog: &Catalog, node: &Node) -> Vec<Vec<Value>> {
    let fill = |fields: &dyn Fn(&str) -> Value| {
        table.columns.iter().map(|column| fields(column.name)).collect::<Vec<_>>()
    };
    match (table.keyspace, table.name) {
        ("system", "local") => vec![fill(&|name| local(name, catalog, node))],
        ("system_schema", "keyspaces") => keyspaces(catalog)
            .map(|(name, replication, durable)| {
                fill(&|column| match column {
                    "keyspace_name" => text(name),
                    "durable_writes" => Some(vec![u8::from(durable)]),
                    "replication" => map(&replication),
                    _ => None,
                })
            })
            .collect(),
        ("system_schema", "tables") => {
            let users = user_tables(catalog).map(|table| {
                fill(&|column| described(column, &table.keyspace, &table.name, &table.id))
            });
            let system = system_schema::TABLES.iter().map(|table| {
                let id = hash_uuid(&[table.keyspace.as_bytes(), table.name.as_bytes()]);
                fill(&|column| described(column, table.keyspace, table.name, &id))
            });
            users.chain(system).collect()
        }
        ("system_schema", "columns") => {
            let mut rows = Vec::new();
            for table in user_tables(catalog) {
                let parts =
                    [("partition_key", &table.partition), ("clustering", &table.clustering)];
                for (kind, columns) in parts {
                    for (position, column) in (0..).zip(columns) {
                        rows.push(fill(&|name| user_column(name, table, column, kind, position)));
                    }
                }
                for column in &table.regular {
                    rows.push(fill(&|name| user_column(name, table, column, "regular", -1)));
                }
            }
            for table in system_schema::TABLES {
                for column in table.columns {
                    let kind = column.kind.name();
                    let names = (table.keyspace, table.name, column.name);
                    let kind_of = column.column_type.to_type().to_string();
                    let position = column.position(table);
                    rows.push(fill(&|name| {
                        column_field(name, names, &kind_of, kind, position, false)
                    }));
                }
            }
            rows
        }
        // No peers, views, types, functions, indexes or virtual tables.
        _ => Vec::new(),
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
        "cluster_name" => text("tare"),
        "cql_version" => text(tare_cql::CQL_VERSION),
        "data_center" => text("datacenter1"),
        "gossip_generation" => int(1),
        "host_id" => Some(node.host_id.to_vec()),
        "native_protocol_version" => text("4"),
        "partitioner" => text(PARTITIONER),
        "rack" => text("rack1"),
        "release_version" => text(RELEASE_VERSION),
        "schema_version" => Some(catalog.version.to_vec()),
        // One token: the node owns the whole ring.
        "tokens" => list(&["0"]),
        _ => None,
    }
}

type Replication = Vec<(String, String)>;

fn keyspaces(catalog: &Catalog) -> impl Iterator<Item = (&str, Replication, bool)> {
    let users = catalog
        .keyspaces
        .iter()
        .map(|(name, k)| (name.as_str(), k.replication.clone(), k.durable_writes));
    let class = ("class".to_string(), "org.apache.cassandra.locator.LocalStrategy".to_string());
    users.chain(
        system_schema::KEYSPACES.into_iter().map(move |name| (name, vec![class.clone()], true)),
    )
}

fn user_tables(catalog: &Catalog) -> impl Iterator<Item = &Table> {
    catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()).map(|table| &**table)
}

/// A row of `system_schema.tables`. The options are those that Cassandra has by default and that
/// drivers print; nothing here reads them.
fn described(column: &str, keyspace: &str, table: &str, id: &[u8; 16]) -> Value {
    match column {
        "keyspace_name" => text(keyspace),
        "table_name" => text(table),
        "id" => Some(id.to_vec()),
        "flags" => list(&["compound"]),
        "comment" => text(""),
        "speculative_retry" | "additional_write_policy" => text("99p"),
        "read_repair" => text("BLOCKING"),
        "bloom_filter_fp_chance" => double(0.01),
        "crc_check_chance" => double(1.0),
        "dclocal_read_repair_chance" | "read_repair_chance" => double(0.0),
        "default_time_to_live" | "memtable_flush_period_in_ms" => int(0),
        "gc_grace_seconds" => int(864_000),
        "max_index_interval" => int(2048),
        "min_index_interval" => int(128),
        "caching" => map(&[("keys".into(), "NONE".into())]),
        "compaction" | "compression" | "extensions" => map(&[]),
        _ => None,
    }
}

fn user_column(
    name: &str,
    table: &Table,
    column: &Column,
    kind: &'static str,
    position: i32,
) -> Value {
    let names = (table.keyspace.as_str(), table.name.as_str(), column.name.as_str());
    column_field(name, names, &column.kind.to_string(), kind, position, column.descending)
}

fn column_field(
    field: &str,
    (keyspace, table, column): (&str, &str, &str),
    kind_of: &str,
    kind: &'static str,
    position: i32,
    descending: bool,
) -> Value {
    match field {
        "keyspace_name" => text(keyspace),
        "table_name" => text(table),
        "column_name" => text(column),
        "column_name_bytes" => text(column),
        "clustering_order" => text(match kind {
            "clustering" if descending => "desc",
            "clustering" => "asc",
            _ => "none",
        }),
        "kind" => text(kind),
        "position" => int(position),
        "type" => text(kind_of),
        _ => None,
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

/// A list or set of texts: count, then each with its length (section 6 of the specification).
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
