//! The command line of `tare tune flags`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use tare_std::cpus::CpuSet;
use tare_tune::flags;

use super::bytes;

#[derive(Debug, Args)]
pub struct TuneFlags {
    /// What the flags are for [default: what --from names]
    #[arg(long = "for", value_name = "CONSUMER", value_parser = consumers())]
    pub consumer: Option<String>,
    /// Instances of the database on this host, each on its own cores
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub instances: u32,
    /// CPUs for the database and its interrupts [default: all]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// CPUs for interrupts [default: by the number of cores]
    #[arg(long, value_name = "LIST")]
    pub irq_cpus: Option<CpuSet>,
    /// Cores per core for interrupts, 5 or more [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(5..))]
    pub ratio: Option<u32>,
    /// Memory of each instance, page cache included, such as 64G
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory: Option<u64>,
    /// Record of a study (FILE.tare), from which the gain of each flag is read; or docker:NAME,
    /// podman:NAME, unit:NAME.service, a compose file, a unit's file or the manifest of a pod (- is
    /// standard input): print a diff of what would change in it
    #[arg(long, value_name = "WHAT")]
    pub from: Vec<PathBuf>,
    /// The object of the manifest, or the service of the compose file, that runs the database
    /// [default: the only one]
    #[arg(long, value_name = "KIND/NAME", requires = "from")]
    pub object: Option<String>,
    /// The container of the database [default: the only one, or the one with a known image]
    #[arg(long, value_name = "NAME", requires = "from")]
    pub container: Option<String>,
    /// Write flags for a host that `tare host record` saved
    #[arg(long, value_name = "DIR")]
    pub snapshot: Option<PathBuf>,
    /// Write a seccomp profile to this file, the default one with io_uring allowed, and use it
    #[arg(long, value_name = "FILE")]
    pub seccomp: Option<PathBuf>,
    /// Image of the container [default: ScyllaDB's]
    #[arg(long, value_name = "NAME")]
    pub image: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Returns the names of the consumers with their lines of help.
fn consumers() -> PossibleValuesParser {
    let value =
        |consumer: &&dyn flags::Consumer| PossibleValue::new(consumer.name()).help(consumer.help());
    PossibleValuesParser::new(flags::ALL.iter().map(value))
}
