//! The options of `tare load spec`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::Access;

#[derive(Debug, Args)]
pub struct MakeSpec {
    /// A packet capture (pcap, pcapng) of CQL or of Redis's protocol
    #[arg(long, value_name = "TRACE", required_unless_present = "table")]
    pub like: Option<PathBuf>,
    /// A table of the cluster at HOST:PORT: its schema is read, and some of its rows
    #[arg(long, value_name = "KEYSPACE.TABLE", conflicts_with = "like")]
    pub table: Option<TableName>,
    #[command(flatten)]
    pub access: Access,
    /// Print the workload and what is known about it as JSON
    #[arg(long)]
    pub json: bool,
}

/// A table with its keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    pub keyspace: String,
    pub table: String,
}

impl FromStr for TableName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (keyspace, table) = text.split_once('.').ok_or("write KEYSPACE.TABLE")?;
        let good = !keyspace.is_empty() && !table.is_empty() && !table.contains('.');
        let name = Self { keyspace: keyspace.into(), table: table.into() };
        good.then_some(name).ok_or("write KEYSPACE.TABLE")
    }
}
