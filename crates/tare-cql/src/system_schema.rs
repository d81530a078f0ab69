//! The columns of the system tables that drivers read when they connect, as in Cassandra 4.0 (its
//! `SystemKeyspace.java`, `SchemaKeyspace.java`, `VirtualSchemaKeyspace.java`). This is pure data:
//! a server computes the rows.
//!
//! Columns are in the order of `SELECT *`: partition key, clustering columns, then the others by
//! name.

use self::SystemType as T;
use crate::types::Type;

/// The role of a column in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    PartitionKey,
    Clustering,
    Static,
    Regular,
}

impl ColumnKind {
    /// The value in `system_schema.columns.kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::PartitionKey => "partition_key",
            Self::Clustering => "clustering",
            Self::Static => "static",
            Self::Regular => "regular",
        }
    }

    /// Returns the role with this value.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::PartitionKey, Self::Clustering, Self::Static, Self::Regular];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

/// The types that occur in the system tables. A constant cannot hold a `Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemType {
    Blob,
    Boolean,
    Double,
    Inet,
    Int,
    Text,
    Timestamp,
    Uuid,
    SetText,
    FrozenListText,
    FrozenSetText,
    FrozenMapTextText,
    FrozenMapTextBlob,
    MapUuidBlob,
}

impl SystemType {
    /// The type for the codec.
    pub fn to_type(self) -> Type {
        let text = || Box::new(Type::Text);
        match self {
            Self::Blob => Type::Blob,
            Self::Boolean => Type::Boolean,
            Self::Double => Type::Double,
            Self::Inet => Type::Inet,
            Self::Int => Type::Int,
            Self::Text => Type::Text,
            Self::Timestamp => Type::Timestamp,
            Self::Uuid => Type::Uuid,
            Self::SetText => Type::Set(text()),
            Self::FrozenListText => Type::Frozen(Box::new(Type::List(text()))),
            Self::FrozenSetText => Type::Frozen(Box::new(Type::Set(text()))),
            Self::FrozenMapTextText => Type::Frozen(Box::new(Type::Map(text(), text()))),
            Self::FrozenMapTextBlob => {
                Type::Frozen(Box::new(Type::Map(text(), Box::new(Type::Blob))))
            }
            Self::MapUuidBlob => Type::Map(Box::new(Type::Uuid), Box::new(Type::Blob)),
        }
    }
}

/// A column of a system table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemColumn {
    pub name: &'static str,
    pub kind: ColumnKind,
    pub column_type: SystemType,
}

/// A system table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemTable {
    pub keyspace: &'static str,
    pub name: &'static str,
    pub columns: &'static [SystemColumn],
}

impl SystemTable {
    /// The column of this name and its position in `columns`.
    pub fn column(&self, name: &str) -> Option<(usize, &'static SystemColumn)> {
        self.columns.iter().enumerate().find(|(_, column)| column.name == name)
    }
}

/// The keyspaces of `TABLES`.
pub const KEYSPACES: [&str; 3] = ["system", "system_schema", "system_virtual_schema"];

/// The table of this name.
pub fn table(keyspace: &str, name: &str) -> Option<&'static SystemTable> {
    TABLES.iter().find(|table| table.keyspace == keyspace && table.name == name)
}

const fn key(name: &'static str, column_type: SystemType) -> SystemColumn {
    SystemColumn { name, kind: ColumnKind::PartitionKey, column_type }
}

const fn clustering(name: &'static str, column_type: SystemType) -> SystemColumn {
    SystemColumn { name, kind: ColumnKind::Clustering, column_type }
}

const fn regular(name: &'static str, column_type: SystemType) -> SystemColumn {
    SystemColumn { name, kind: ColumnKind::Regular, column_type }
}

/// All system tables that drivers ask for.
pub static TABLES: &[SystemTable] = &[
    SystemTable {
        keyspace: "system",
        name: "local",
        columns: &[
            key("key", T::Text),
            regular("bootstrapped", T::Text),
            regular("broadcast_address", T::Inet),
            regular("broadcast_port", T::Int),
            regular("cluster_name", T::Text),
            regular("cql_version", T::Text),
            regular("data_center", T::Text),
            regular("gossip_generation", T::Int),
            regular("host_id", T::Uuid),
            regular("listen_address", T::Inet),
            regular("listen_port", T::Int),
            regular("native_protocol_version", T::Text),
            regular("partitioner", T::Text),
            regular("rack", T::Text),
            regular("release_version", T::Text),
            regular("rpc_address", T::Inet),
            regular("rpc_port", T::Int),
            regular("schema_version", T::Uuid),
            regular("tokens", T::SetText),
            regular("truncated_at", T::MapUuidBlob),
        ],
    },
    SystemTable {
        keyspace: "system",
        name: "peers",
        columns: &[
            key("peer", T::Inet),
            regular("data_center", T::Text),
            regular("host_id", T::Uuid),
            regular("preferred_ip", T::Inet),
            regular("rack", T::Text),
            regular("release_version", T::Text),
            regular("rpc_address", T::Inet),
            regular("schema_version", T::Uuid),
            regular("tokens", T::SetText),
        ],
    },
    SystemTable {
        keyspace: "system",
        name: "peers_v2",
        columns: &[
            key("peer", T::Inet),
            clustering("peer_port", T::Int),
            regular("data_center", T::Text),
            regular("host_id", T::Uuid),
            regular("native_address", T::Inet),
            regular("native_port", T::Int),
            regular("preferred_ip", T::Inet),
            regular("preferred_port", T::Int),
            regular("rack", T::Text),
            regular("release_version", T::Text),
            regular("schema_version", T::Uuid),
            regular("tokens", T::SetText),
        ],
    },
    SystemTable {
        keyspace: "system_schema",
        name: "keyspaces",
        columns: &[
            key("keyspace_name", T::Text),
            regular("durable_writes", T::Boolean),
            regular("replication", T::FrozenMapTextText),
        ],
    },
    SystemTable { keyspace: "system_schema", name: "tables", columns: TABLE_COLUMNS },
    SystemTable {
        keyspace: "system_schema",
        name: "columns",
        columns: &[
            key("keyspace_name", T::Text),
            clustering("table_name", T::Text),
            clustering("column_name", T::Text),
            regular("clustering_order", T::Text),
            regular("column_name_bytes", T::Blob),
            regular("kind", T::Text),
            regular("position", T::Int),
            regular("type", T::Text),
        ],
    },
    SystemTable {
        keyspace: "system_schema",
        name: "types",
        columns: &[
            key("keyspace_name", T::Text),
            clustering("type_name", T::Text),
            regular("field_names", T::FrozenListText),
            regular("field_types", T::FrozenListText),
        ],
    },
    SystemTable {
        keyspace: "system_schema",
        name: "functions",
        columns: &[
            key("keyspace_name", T::Text),
            clustering("function_name", T::Text),
            clustering("argument_types", T::FrozenListText),
            regular("argument_names", T::FrozenListText),
            regular("body", T::Text),
            regular("called_on_null_input", T::Boolean),
            regular("language", T::Text),
            regular("return_type", T::Text),
        ],
    },
    SystemTable {
        keyspace: "system_schema",
        name: "aggregates",
        columns: &[
            key("keyspace_name", T::Text),
            clustering("aggregate_name", T::Text),
            clustering("argument_types", T::FrozenListText),
            regular("final_func", T::Text),
            regular("initcond", T::Text),
            regular("return_type", T::Text),
            regular("state_func", T::Text),
            regular("state_type", T::Text),
        ],
    },
    SystemTable {
        keyspace: "system_schema",
        name: "triggers",
        columns: &[
            key("keyspace_name", T::Text),
            clustering("table_name", T::Text),
            clustering("trigger_name", T::Text),
            regular("options", T::FrozenMapTextText),
        ],
    },
    SystemTable {
        keyspace: "system_schema",
        name: "indexes",
        columns: &[
            key("keyspace_name", T::Text),
            clustering("table_name", T::Text),
            clustering("index_name", T::Text),
            regular("kind", T::Text),
            regular("options", T::FrozenMapTextText),
        ],
    },
    SystemTable { keyspace: "system_schema", name: "views", columns: VIEW_COLUMNS },
    SystemTable {
        keyspace: "system_schema",
        name: "dropped_columns",
        columns: &[
            key("keyspace_name", T::Text),
            clustering("table_name", T::Text),
            clustering("column_name", T::Text),
            regular("dropped_time", T::Timestamp),
            regular("kind", T::Text),
            regular("type", T::Text),
        ],
    },
    SystemTable {
        keyspace: "system_virtual_schema",
        name: "keyspaces",
        columns: &[key("keyspace_name", T::Text)],
    },
    SystemTable {
        keyspace: "system_virtual_schema",
        name: "tables",
        columns: &[
            key("keyspace_name", T::Text),
            clustering("table_name", T::Text),
            regular("comment", T::Text),
        ],
    },
    SystemTable {
        keyspace: "system_virtual_schema",
        name: "columns",
        columns: &[
            key("keyspace_name", T::Text),
            clustering("table_name", T::Text),
            clustering("column_name", T::Text),
            regular("clustering_order", T::Text),
            regular("column_name_bytes", T::Blob),
            regular("kind", T::Text),
            regular("position", T::Int),
            regular("type", T::Text),
        ],
    },
];

const TABLE_COLUMNS: &[SystemColumn] = &[
    key("keyspace_name", T::Text),
    clustering("table_name", T::Text),
    regular("additional_write_policy", T::Text),
    regular("bloom_filter_fp_chance", T::Double),
    regular("caching", T::FrozenMapTextText),
    regular("cdc", T::Boolean),
    regular("comment", T::Text),
    regular("compaction", T::FrozenMapTextText),
    regular("compression", T::FrozenMapTextText),
    regular("crc_check_chance", T::Double),
    regular("dclocal_read_repair_chance", T::Double),
    regular("default_time_to_live", T::Int),
    regular("extensions", T::FrozenMapTextBlob),
    regular("flags", T::FrozenSetText),
    regular("gc_grace_seconds", T::Int),
    regular("id", T::Uuid),
    regular("max_index_interval", T::Int),
    regular("memtable_flush_period_in_ms", T::Int),
    regular("min_index_interval", T::Int),
    regular("read_repair", T::Text),
    regular("read_repair_chance", T::Double),
    regular("speculative_retry", T::Text),
];

const VIEW_COLUMNS: &[SystemColumn] = &[
    key("keyspace_name", T::Text),
    clustering("view_name", T::Text),
    regular("additional_write_policy", T::Text),
    regular("base_table_id", T::Uuid),
    regular("base_table_name", T::Text),
    regular("bloom_filter_fp_chance", T::Double),
    regular("caching", T::FrozenMapTextText),
    regular("cdc", T::Boolean),
    regular("comment", T::Text),
    regular("compaction", T::FrozenMapTextText),
    regular("compression", T::FrozenMapTextText),
    regular("crc_check_chance", T::Double),
    regular("dclocal_read_repair_chance", T::Double),
    regular("default_time_to_live", T::Int),
    regular("extensions", T::FrozenMapTextBlob),
    regular("gc_grace_seconds", T::Int),
    regular("id", T::Uuid),
    regular("include_all_columns", T::Boolean),
    regular("max_index_interval", T::Int),
    regular("memtable_flush_period_in_ms", T::Int),
    regular("min_index_interval", T::Int),
    regular("read_repair", T::Text),
    regular("read_repair_chance", T::Double),
    regular("speculative_retry", T::Text),
    regular("where_clause", T::Text),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_in_the_order_of_select_star() {
        for table in TABLES {
            assert!(KEYSPACES.contains(&table.keyspace), "{table:?}");
            let order = |column: &SystemColumn| match column.kind {
                ColumnKind::PartitionKey => 0,
                ColumnKind::Clustering => 1,
                ColumnKind::Static | ColumnKind::Regular => 2,
            };
            assert!(table.columns.is_sorted_by_key(order), "{}", table.name);
            let regular: Vec<_> =
                table.columns.iter().filter(|c| order(c) == 2).map(|c| c.name).collect();
            assert!(regular.is_sorted(), "{}", table.name);
        }
    }
}
