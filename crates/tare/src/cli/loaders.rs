//! `--loader`, the same for all commands that load a system.

use clap::Args;
use tare_std::loader_address::{LoaderAddress, LoaderAddressError};

#[derive(Clone, Debug, Default, Args)]
pub struct AddLoaders {
    /// Load the system from this host too (ssh:HOST, ssh:USER@HOST:PORT), or from a pod on a node
    /// of a cluster (pod:NODE), or on each node with a label (pods:LABEL=VALUE), besides the
    /// study's own loaders. Repeatable, or a list with commas, whose last may be a selector
    #[arg(long = "loader", value_name = "HOST", value_parser = LoaderList::parse)]
    pub lists: Vec<LoaderList>,
}

impl AddLoaders {
    /// Returns the loaders of all lists.
    pub fn all(&self) -> Vec<LoaderAddress> {
        self.lists.iter().flat_map(|list| list.0.clone()).collect()
    }
}

/// The loaders of one `--loader`.
#[derive(Clone, Debug)]
pub struct LoaderList(pub Vec<LoaderAddress>);

impl LoaderList {
    pub fn parse(text: &str) -> Result<Self, LoaderAddressError> {
        LoaderAddress::list(text).map(Self)
    }
}
