//! The command line of what looks at a database's data while no server runs.

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
    /// What is copied; no server may run on it
    #[arg(value_name = "FROM")]
    pub from: PathBuf,
    /// The copy; it must not exist, and be on the same file system
    #[arg(value_name = "TO")]
    pub to: PathBuf,
}

#[derive(Debug, Args)]
pub struct DbDump {
    /// The file; in its data directory values are printed with names and types, else as bytes
    #[arg(value_name = "FILE.table")]
    pub file: PathBuf,
    /// Print JSON, an object a line
    #[arg(long)]
    pub json: bool,
}
