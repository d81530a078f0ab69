//! The command line of `tare explain`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tare_lab::attach::AttachTarget;

use super::{AllowWrites, DestroyData, RunInside, RunOn, ShowProgress, duration};

/// The study that is explained by default.
const QUICK: &str = "quick";
/// The options of a run, and of the explanation of a record.
const OF_A_RUN: [&str; 17] = [
    "from",
    "to",
    "output",
    "environments",
    "quick",
    "rounds",
    "budget",
    "seed",
    "dry_run",
    "destroy_data_on",
    "yes",
    "inside",
    "progress",
    "serve",
    "on",
    "tare_image",
    "csv",
];

#[derive(Debug, Args)]
pub struct Explain {
    /// A study (file or name) to weigh layer by layer, or a record with the environments needed
    /// [default: quick]; with --attach a record of this host, or a directory of records [default:
    /// the current one]
    #[arg(value_name = "STUDY|FILE.tare")]
    pub what: Option<String>,
    /// Say what the layers found around a running system cost in records of this host, and measure
    /// nothing: docker:NAME, podman:NAME, compose:FILE:SERVICE, unit:NAME.service, pid:N,
    /// cgroup:/PATH or pod:NAMESPACE/NAME
    #[arg(long, value_name = "SYSTEM", conflicts_with_all = OF_A_RUN)]
    pub attach: Option<AttachTarget>,
    /// Environment to compare with [default: the study's baseline]
    #[arg(long, value_name = "NAME")]
    pub from: Option<String>,
    /// Environment whose cost is explained [default: the study's first other one]
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,
    /// Record to write [default: NAME-explained.tare in the current directory]
    #[arg(short, long, value_name = "FILE.tare")]
    pub output: Option<PathBuf>,
    /// Most environments at once; if all orders need more, a random sample of orders is weighed
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=128))]
    pub environments: u32,
    /// Explain the quick part of the study, as defined by its table "quick"
    #[arg(long)]
    pub quick: bool,
    /// At most this many rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Time for the whole run, such as 10m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// Seed of orders, rounds, keys and rows
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Print the plan and start nothing: CPUs, environments, memory, disk, rounds and time
    #[arg(long, conflicts_with_all = ["inside", "serve", "csv"])]
    pub dry_run: bool,
    #[command(flatten)]
    pub destroy: DestroyData,
    #[command(flatten)]
    pub writes: AllowWrites,
    #[command(flatten)]
    pub inside: RunInside,
    #[command(flatten)]
    pub show: ShowProgress,
    #[command(flatten)]
    pub on: RunOn,
    /// Print the result as JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print the shares as CSV, one line per layer
    #[arg(long)]
    pub csv: bool,
}

impl Explain {
    /// Returns the study or the record.
    pub fn what(&self) -> &str {
        self.what.as_deref().unwrap_or(QUICK)
    }
}
