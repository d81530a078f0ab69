//! The command line of `tare compare`.

use std::path::PathBuf;

use clap::Args;
use tare_report::compare::PriceTag;

#[derive(Debug, Args)]
pub struct Compare {
    /// The records, two or more; the others are compared with the first
    #[arg(value_name = "FILE.tare", num_args = 2.., required = true)]
    pub records: Vec<PathBuf>,
    /// What a record's machine costs (4.99/h, 3600EUR/month, 40000USD/year); the record by its
    /// letter in the order given, its position, its file or its host's name. Once per record
    #[arg(long = "price", value_name = "A=4.99/h")]
    pub prices: Vec<PriceTag>,
    /// Write the HTML page here (`-` for standard output)
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print CSV, a line per figure and record
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Print Markdown for a pull request
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    pub markdown: bool,
}
