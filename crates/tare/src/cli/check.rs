//! The command line of `tare check`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tare_report::check::Budget;

use super::{DestroyData, Progress, UseTareImage, duration};

/// Where annotations appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Annotate {
    /// Workflow commands on standard output
    Github,
}

#[derive(Debug, Args)]
pub struct Check {
    /// A study to run, or a record (FILE.tare)
    #[arg(value_name = "STUDY|FILE.tare")]
    pub subject: String,
    /// Limits of an environment: figures are cpu, throughput, p50, p95, p99 and p99.9; "all" is
    /// every environment, "ENV @ WORKLOAD" one workload, "cpu rise <= 5 %" a rise since --against
    #[arg(
        long = "budget",
        value_name = "ENV: cpu <= 30 %, p99 <= 2x",
        required_unless_present = "against"
    )]
    pub budgets: Vec<Budget>,
    /// The last good record. Without a budget for a rise, no cost in server CPU per operation may
    /// have risen by more than 5 %
    #[arg(long, value_name = "FILE.tare")]
    pub against: Option<PathBuf>,
    /// Record to write [default: NAME.tare in the current directory]
    #[arg(short, long, value_name = "FILE.tare")]
    pub output: Option<PathBuf>,
    /// Run the quick part of the study
    #[arg(long)]
    pub quick: bool,
    /// At most this many rounds [default: those that the time allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Time for the whole study, such as 5m or 1h; it ends earlier once every budget is decided
    /// [default: that of the study]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub time: Option<Duration>,
    /// Seed of order, keys and rows
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub destroy: DestroyData,
    #[command(flatten)]
    pub image: UseTareImage,
    /// How to show progress on standard error
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub progress: Progress,
    /// Write JUnit XML to this file
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write a code quality report for GitLab to this file
    #[arg(long, value_name = "FILE")]
    pub code_quality: Option<PathBuf>,
    /// Print annotations after the lines
    #[arg(long, value_name = "FORGE", conflicts_with_all = ["json", "markdown"])]
    pub annotate: Option<Annotate>,
    /// Print Markdown for the summary of a job
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
