//! The command line of `tare explain`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{GiveUp, RunInside, ShowProgress, duration};

#[derive(Debug, Args)]
pub struct Explain {
    /// A study (file or name), whose environments are weighed layer by layer; or a record that
    /// holds all that is needed
    #[arg(value_name = "STUDY|FILE.tare", default_value = "quick")]
    pub what: String,
    /// Environment that is the ground; without it the study's baseline
    #[arg(long, value_name = "NAME")]
    pub from: Option<String>,
    /// Environment whose cost is explained; without it the study's first that is not the ground
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,
    /// Record to write; without it NAME-explained.tare in the current directory
    #[arg(short, long, value_name = "FILE.tare")]
    pub output: Option<PathBuf>,
    /// At most this many environments at once; with fewer than all orders need, orders are drawn
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=128))]
    pub environments: u32,
    /// Explain the quick part of the study, as its table "quick" says
    #[arg(long)]
    pub quick: bool,
    /// At most this many rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Time for the whole run, such as 10m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// Seed of the orders, the turns, the keys and the rows
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub give_up: GiveUp,
    #[command(flatten)]
    pub inside: RunInside,
    #[command(flatten)]
    pub show: ShowProgress,
    /// Print the result as JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print the shares as CSV, a line for each layer
    #[arg(long)]
    pub csv: bool,
}
