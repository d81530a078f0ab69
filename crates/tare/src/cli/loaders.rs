//! `--loader`, the same for all commands that load a system.

use clap::Args;
use tare_std::host_address::HostAddress;

#[derive(Clone, Debug, Default, Args)]
pub struct AddLoaders {
    /// Load the system from this host too (ssh:HOST, ssh:USER@HOST:PORT), or from a pod on a node
    /// of a cluster (pod:NODE), besides the study's own loaders. Repeatable, or a list with commas
    #[arg(long = "loader", value_name = "HOST", value_delimiter = ',')]
    pub loaders: Vec<HostAddress>,
}
