//! The options that name other hosts.

use clap::Args;
use tare_lab::study::SystemHost;

/// The hosts of a study that names none, or others.
#[derive(Clone, Debug, Default, Args)]
pub struct Elsewhere {
    /// Hosts of the system, in place of those of the study: an instance on each, such as
    /// ssh:db1,ssh:db2=10.0.0.5 with the address at which the others reach it. One host, if the
    /// study attaches to a system that runs there
    #[arg(long, value_name = "HOST,...", value_delimiter = ',', conflicts_with = "resume")]
    pub hosts: Vec<SystemHost>,
}
