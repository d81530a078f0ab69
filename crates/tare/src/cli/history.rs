//! The command line of `tare history`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub struct History {
    /// Records, or folders whose `*.tare` files are read, with their subfolders
    #[arg(value_name = "DIR|FILE.tare", required = true)]
    pub paths: Vec<PathBuf>,
    /// Print the newest N records of each study; pages, CSV and JSON have all
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub last: u32,
    /// Write the HTML page to this file (`-` for standard output)
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print CSV for Apache Otava, one line per record
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Print the newest costs and changes for the textfile collector of Prometheus' node_exporter
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    pub prometheus: bool,
    /// Print the newest costs of each study as a Markdown table, with links to reports
    #[arg(long, conflicts_with_all = ["json", "csv", "prometheus"])]
    pub markdown: bool,
    /// Exit with 6 if a cost changed, beyond the noise of the A/A controls
    #[arg(long, value_name = "WHAT")]
    pub fail_on: Option<FailOn>,
}

/// The claimed differences for which a command exits with another code than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A cost that rose
    Rise,
    /// A cost that rose or fell
    Change,
}
