//! Systems that run already, to which environments are attached.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A system that runs already: an environment does not start it, and only reads its layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    pub target: AttachTarget,
    /// The address at which the client dials it, from the host's network namespace. That of a pod
    /// without one is [`Attach::of_pod`] until the pod is found.
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
    /// A pod of a Kubernetes cluster on this host: the processes of one of its containers, which
    /// has a name where the pod has several.
    Pod {
        namespace: String,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        container: Option<String>,
    },
}

impl Attach {
    /// Returns the address that means the pod's own, at this port; without one at the only port of
    /// its container.
    pub const fn of_pod(port: Option<u16>) -> SocketAddr {
        let port = match port {
            Some(port) => port,
            None => 0,
        };
        SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))
    }

    /// Returns whether the address is that of a pod that has not been looked for yet.
    pub fn has_address_of_pod(&self) -> bool {
        matches!(self.target, AttachTarget::Pod { .. }) && self.address.ip().is_unspecified()
    }
}

impl fmt::Display for AttachTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit(name) => write!(f, "unit {name}"),
            Self::Container { engine, name } => write!(f, "container {engine}:{name}"),
            Self::Pid(pid) => write!(f, "pid {pid}"),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
            Self::Pod { namespace, name, container: None } => write!(f, "pod {namespace}/{name}"),
            Self::Pod { namespace, name, container: Some(container) } => {
                write!(f, "container {container} of pod {namespace}/{name}")
            }
        }
    }
}

impl fmt::Display for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.has_address_of_pod() {
            true => write!(f, "attached to {}", self.target),
            false => write!(f, "attached to {} at {}", self.target, self.address),
        }
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
