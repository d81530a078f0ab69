//! Compares the server's table with the workload's.
//!
//! PREPARE only checks that column names exist, and a blob of 64 bytes also fits a text. Such a
//! load would fail row by row or measure another table. So the columns are read from
//! `system_schema.columns` (Cassandra from 3.0 on, Scylla) before anything is written.
//!
//! Columns that the workload lacks are ignored. A server without that table is left to PREPARE.

use std::fmt;

use tare_cql::response::Rows;
use tare_cql::system_schema::ColumnKind;
use tare_cql::types::Type;

use crate::workload::table::{KeyColumn, Table};

/// How a server's table differs from the workload's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableDifference {
    #[error("it has no column {column}")]
    Missing { column: String },
    #[error("its column {column} is {found}, not {wanted}")]
    Type { column: String, found: String, wanted: Type },
    #[error("its primary key is {found}, not {wanted}")]
    Key { found: PrimaryKey, wanted: PrimaryKey },
    #[error("its column {column} is in descending order, and slices are read in ascending order")]
    Descending { column: String },
}

/// The columns of a primary key in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrimaryKey {
    partition: Vec<String>,
    clustering: Vec<String>,
}

impl fmt::Display for PrimaryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(({})", self.partition.join(", "))?;
        self.clustering.iter().try_for_each(|column| write!(f, ", {column}"))?;
        f.write_str(")")
    }
}

/// A column as the server describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerColumn {
    name: String,
    /// The kind: a name of `ColumnKind`, or one that it does not have.
    kind: String,
    /// The position among the columns of its kind.
    position: i32,
    descends: bool,
    type_name: String,
}

/// Returns the query for a table's columns. Names have letters, digits and underscores only, so
/// nothing needs an escape.
pub(crate) fn columns_query(table: &Table) -> String {
    format!(
        "SELECT column_name, kind, position, clustering_order, type FROM system_schema.columns \
         WHERE keyspace_name = '{}' AND table_name = '{}'",
        table.keyspace, table.name
    )
}

/// Reads the columns in the answer to the query.
pub(crate) fn server_columns(rows: &Rows<'_>) -> Vec<ServerColumn> {
    let column = |row: tare_cql::response::Row<'_>| {
        let mut cells = row.cells();
        let mut next = || cells.next().flatten();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(ServerColumn {
            name: text(next()?),
            kind: text(next()?),
            position: i32::from_be_bytes(next()?.try_into().ok()?),
            descends: next()?.eq_ignore_ascii_case(b"desc"),
            type_name: text(next()?),
        })
    };
    rows.iter().filter_map(column).collect()
}

/// Compares the server's columns with those of a workload's table. `slices`: rows are read in the
/// order of their clustering columns.
pub(crate) fn compare(
    table: &Table,
    server_columns: &[ServerColumn],
    slices: bool,
) -> Result<(), TableDifference> {
    let keys = table.partition.iter().chain(&table.clustering).map(|key| (&key.name, &key.kind));
    let columns = table.columns.iter().map(|column| (&column.name, &column.kind));
    for (name, kind) in keys.chain(columns) {
        let column = name.clone();
        let Some(known) = server_columns.iter().find(|known| known.name == *name) else {
            return Err(TableDifference::Missing { column });
        };
        // Some servers still call text `varchar`, as Cassandra did before 2.2.
        if Type::scalar(&known.type_name).as_ref() != Some(kind) {
            let (found, wanted) = (known.type_name.clone(), kind.clone());
            return Err(TableDifference::Type { column, found, wanted });
        }
    }
    let names = |keys: &[KeyColumn]| keys.iter().map(|key| key.name.clone()).collect();
    let wanted =
        PrimaryKey { partition: names(&table.partition), clustering: names(&table.clustering) };
    let found = PrimaryKey {
        partition: of_kind(server_columns, ColumnKind::PartitionKey),
        clustering: of_kind(server_columns, ColumnKind::Clustering),
    };
    if found != wanted {
        return Err(TableDifference::Key { found, wanted });
    }
    match server_columns.iter().find(|known| known.descends) {
        Some(known) if slices => Err(TableDifference::Descending { column: known.name.clone() }),
        _ => Ok(()),
    }
}

/// Returns the names of the columns of a kind, in their order.
fn of_kind(found: &[ServerColumn], kind: ColumnKind) -> Vec<String> {
    let mut columns: Vec<&ServerColumn> =
        found.iter().filter(|column| column.kind == kind.name()).collect();
    columns.sort_by_key(|column| column.position);
    columns.into_iter().map(|column| column.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::parse;

    fn table() -> Table {
        let text = "[table]\nkeyspace = \"ks\"\nname = \"Things\"\nrows_per_partition = 5\n\
                    [[partition]]\nname = \"day\"\ntype = \"date\"\n\
                    [[partition]]\nname = \"shop\"\ntype = \"text\"\n\
                    [[clustering]]\nname = \"hour\"\ntype = \"int\"\n\
                    [[column]]\nname = \"c\"\ncount = 2\ntype = \"blob\"\n\
                    [[query]]\nkind = \"read\"\n";
        parse(text, "t.toml", "t").unwrap_or_else(|error| panic!("{error}")).table
    }

    /// Parses columns written as `name kind position order type`.
    fn server_columns(lines: &[&str]) -> Vec<ServerColumn> {
        let line = |line: &&str| {
            let words: Vec<&str> = line.split(' ').collect();
            ServerColumn {
                name: words[0].into(),
                kind: words[1].into(),
                position: words[2].parse().unwrap(),
                descends: words[3] == "desc",
                type_name: words[4].into(),
            }
        };
        lines.iter().map(line).collect()
    }

    const RIGHT: [&str; 6] = [
        "shop partition_key 1 none varchar",
        "hour clustering 0 asc int",
        "c0 regular -1 none blob",
        "c1 regular -1 none blob",
        "day partition_key 0 none date",
        "more static -1 none frozen<list<int>>",
    ];

    #[test]
    fn table_differences_are_found() {
        let check = |number: usize, line: &str, expect: Option<&str>| {
            let mut lines = RIGHT;
            lines[number] = line;
            let found = compare(&table(), &server_columns(&lines), true)
                .err()
                .map(|error| error.to_string());
            assert_eq!(found.as_deref(), expect, "{line}");
        };
        check(0, RIGHT[0], None);
        check(3, "c2 regular -1 none blob", Some("it has no column c1"));
        check(3, "c1 regular -1 none text", Some("its column c1 is text, not blob"));
        check(0, "shop partition_key 1 none blob", Some("its column shop is blob, not text"));
        check(2, "c0 regular -1 none list<blob>", Some("its column c0 is list<blob>, not blob"));
        check(
            3,
            "c1 clustering 1 asc blob",
            Some("its primary key is ((day, shop), hour, c1), not ((day, shop), hour)"),
        );
        check(
            0,
            "shop regular -1 none text",
            Some("its primary key is ((day), hour), not ((day, shop), hour)"),
        );
        let descending =
            "its column hour is in descending order, and slices are read in ascending order";
        check(1, "hour clustering 0 desc int", Some(descending));
        let mut lines = RIGHT;
        lines[1] = "hour clustering 0 desc int";
        assert_eq!(compare(&table(), &server_columns(&lines), false), Ok(()));
    }

    #[test]
    fn query_names_the_table_exactly() {
        let question = columns_query(&table());
        assert!(question.ends_with("keyspace_name = 'ks' AND table_name = 'Things'"), "{question}");
    }
}
