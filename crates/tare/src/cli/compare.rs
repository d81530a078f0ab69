//! The command line of `tare compare`.

use std::path::PathBuf;

use clap::Args;
use tare_report::compare::PriceTag;

use super::FailOn;

#[derive(Debug, Args)]
pub struct Compare {
    /// The records, two or more; the first is the reference of the others
    #[arg(value_name = "FILE.tare", num_args = 2.., required = true)]
    pub records: Vec<PathBuf>,
    /// Price of a record's machine (4.99/h, 3600EUR/month, 40000USD/year); the record is named by
    /// its letter or position in the order given, its file, or its host. Once per record
    #[arg(long = "price", value_name = "A=4.99/h")]
    pub prices: Vec<PriceTag>,
    /// Environments to compare although their names differ, one of each record in their order, such
    /// as "docker=podman"
    #[arg(long = "pair", value_name = "NAME=NAME")]
    pub pairs: Vec<String>,
    /// Exit with 6 if the cost of an environment differs from that in the first record, beyond the
    /// noise of both A/A controls
    #[arg(long, value_name = "WHAT")]
    pub fail_on: Option<FailOn>,
    /// Write the HTML page to this file (`-` for standard output)
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print CSV, one line per figure and record
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Print Markdown for a pull request
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    pub markdown: bool,
}
