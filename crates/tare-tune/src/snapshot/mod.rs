//! A host as text: every file that the planner reads, in memory.
//!
//! A plan is made from a snapshot and from nothing else, so a plan can be made, tested and
//! discussed away from its host: `take` reads a living host, `save` and `load` keep one in a
//! directory, tests build them from a description. What is no file of the kernel is kept as one
//! below `/tare`: what ethtool says of a device (`/tare/ethtool/eth0/channels`), irqbalance's
//! answer, the load of each CPU.
//!
//! Method: a map from absolute path to file, link or empty directory. Links are followed as the
//! kernel does, so `/sys/class/net/eth0/device` works as on the host.

mod sanitise;
mod store;
mod tree;

use std::collections::BTreeMap;

pub(crate) use sanitise::HOST_NAME;
pub use store::SnapshotError;

/// A host's files. Equal snapshots give equal plans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    nodes: BTreeMap<String, Node>,
}

/// One name in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Content as read, without the last newline.
    File(String),
    /// Target as written: absolute, or relative to the folder that holds the link.
    Link(String),
    /// A folder without content.
    Directory,
}
