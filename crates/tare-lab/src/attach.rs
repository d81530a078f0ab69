//! Systems that run already, to which environments are attached.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A system that runs already: an environment does not start it, and only reads its layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    pub target: AttachTarget,
    /// The address at which the client dials it, from the host's network namespace.
    pub address: SocketAddr,
    /// The directory of its data, as the system sees it. `None`: its working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// Whether Tare writes nothing into it.
    #[serde(default)]
    pub read_only: bool,
}

/// What says which processes of the host are the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachTarget {
    /// A unit of systemd: the processes of its cgroup.
    Unit(String),
    /// A container of an engine (`docker`, `podman`): the processes of its cgroup.
    Container { engine: String, name: String },
    /// A process and its descendants.
    Pid(u32),
    /// The processes of a cgroup, by its path below the root of the hierarchies.
    Cgroup(PathBuf),
}

impl fmt::Display for AttachTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit(name) => write!(f, "unit {name}"),
            Self::Container { engine, name } => write!(f, "container {engine}:{name}"),
            Self::Pid(pid) => write!(f, "pid {pid}"),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
        }
    }
}

impl fmt::Display for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attached to {} at {}", self.target, self.address)
    }
}

/// Where the rows of a study's attached systems are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachedRows {
    /// In a keyspace or a database of this name, or under keys with this prefix: Tare's own, which
    /// it removes at the end.
    Own(String),
    /// Where the user has them. Nothing is written.
    Users,
}
