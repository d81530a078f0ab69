//! The command line of `tare db check`, `dump`, `snapshot` and `restore`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct DbCheck {
    /// The data directory; no server may run on it
    #[arg(value_name = "DIR")]
    pub data: PathBuf,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DbCopy {
    /// Directory to copy; no server may run on it
    #[arg(value_name = "FROM")]
    pub from: PathBuf,
    /// Directory to create; it must not exist, and must be on the same file system
    #[arg(value_name = "TO")]
    pub to: PathBuf,
}

#[derive(Debug, Args)]
pub struct DbDump {
    /// The table file; in its data directory, values are printed with names and types, else as
    /// bytes
    #[arg(value_name = "FILE.table")]
    pub file: PathBuf,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
}
