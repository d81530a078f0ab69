//! A host as text: every file that the planner reads, in memory.
//!
//! A plan depends only on a snapshot and its options, so it can be made, tested and discussed away
//! from its host. `take` reads the live host, `save` and `load` keep a snapshot in a directory, and
//! tests build snapshots from a description. Data without a kernel file is kept in pseudo files
//! below `/tare`: ethtool's data of a device (`/tare/ethtool/eth0/channels`), irqbalance's answer,
//! the load of each CPU.
//!
//! Method: a map from absolute path to file, link or empty directory. Links are followed as the
//! kernel does, so `/sys/class/net/eth0/device` works as on the host.

mod sanitise;
mod store;
mod tree;

use std::collections::BTreeMap;

pub(crate) use sanitise::HOST_NAME;
pub use store::SnapshotError;

/// The files of a host. Equal snapshots give equal plans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    nodes: BTreeMap<String, Node>,
}

/// A node of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// The content, without the last newline.
    File(String),
    /// The target as written: absolute, or relative to the folder of the link.
    Link(String),
    /// An empty folder.
    Directory,
}
