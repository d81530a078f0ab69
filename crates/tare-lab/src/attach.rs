//! Systems that run already, to which environments are attached.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

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
    /// A service of a compose file: the processes of its one running container, under the engine
    /// that runs it.
    Compose { file: PathBuf, service: String },
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

/// The engines of a container's name, `ENGINE:NAME`.
const ENGINES: &[&str] = &["docker", "podman"];
/// The highest process id of a 64-bit kernel (PID_MAX_LIMIT).
pub(crate) const PID_MAX: u32 = 1 << 22;

/// A text that names no system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTarget(pub &'static str);

impl AttachTarget {
    /// Reads the name of a unit of systemd.
    ///
    /// # Errors
    /// If it is not the whole name.
    pub fn unit(name: &str) -> Result<Self, BadTarget> {
        match name.contains('.') && !name.contains('/') {
            true => Ok(Self::Unit(name.into())),
            false => Err(BadTarget("write the whole name of the unit, such as redis.service")),
        }
    }

    /// Reads `docker:NAME` or `podman:NAME`.
    ///
    /// # Errors
    /// If it has another form.
    pub fn container(text: &str) -> Result<Self, BadTarget> {
        let parts = text.split_once(':');
        let parts = parts.filter(|(engine, name)| ENGINES.contains(engine) && !name.is_empty());
        let (engine, name) = parts.ok_or(BadTarget("write docker:NAME or podman:NAME"))?;
        Ok(Self::Container { engine: engine.into(), name: name.into() })
    }

    /// Reads `FILE:SERVICE` of a compose file.
    ///
    /// # Errors
    /// If it has another form.
    pub fn compose(text: &str) -> Result<Self, BadTarget> {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let parts = text.rsplit_once(':').filter(|(file, service)| {
            !file.is_empty() && !service.is_empty() && service.chars().all(is_of_name)
        });
        let (file, service) =
            parts.ok_or(BadTarget("write FILE:SERVICE, such as docker-compose.yml:db"))?;
        Ok(Self::Compose { file: file.into(), service: service.into() })
    }

    /// Reads the path of a cgroup.
    ///
    /// # Errors
    /// If it is not absolute, or contains `..`.
    pub fn cgroup(text: &str) -> Result<Self, BadTarget> {
        absolute(text).map(Self::Cgroup)
    }

    /// Reads `NAMESPACE/NAME` of a pod, with the name of one of its containers.
    ///
    /// # Errors
    /// If one of them cannot be the name of an object of Kubernetes.
    pub fn pod(text: &str, container: Option<&str>) -> Result<Self, BadTarget> {
        let parts = text.split_once('/');
        let parts = parts.filter(|(namespace, name)| is_object(namespace) && is_object(name));
        let (namespace, name) =
            parts.ok_or(BadTarget("write NAMESPACE/NAME, such as shop/redis-0"))?;
        if !container.is_none_or(is_object) {
            return Err(BadTarget("beside pod this is the name of one of its containers"));
        }
        let container = container.map(str::to_string);
        Ok(Self::Pod { namespace: namespace.into(), name: name.into(), container })
    }
}

/// Reads an absolute path without `..`.
pub(crate) fn absolute(text: &str) -> Result<PathBuf, BadTarget> {
    let path = Path::new(text);
    let up = path.components().any(|part| part == Component::ParentDir);
    match path.is_absolute() && !up {
        true => Ok(path.into()),
        false => Err(BadTarget("write an absolute path without ..")),
    }
}

/// Returns whether a text can be the name of an object of Kubernetes.
fn is_object(name: &str) -> bool {
    let is_of_name =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !name.is_empty() && name.chars().all(is_of_name)
}

/// Reads a target of the command line: `docker:NAME`, `podman:NAME`, `compose:FILE:SERVICE`,
/// `unit:NAME.service`, `pid:N`, `cgroup:/PATH` or `pod:NAMESPACE/NAME[/CONTAINER]`.
impl FromStr for AttachTarget {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, BadTarget> {
        let forms = BadTarget(
            "write docker:NAME, podman:NAME, unit:NAME.service, compose:FILE:SERVICE, pid:N, \
             cgroup:/PATH or pod:NAMESPACE/NAME",
        );
        let (kind, name) = text.split_once(':').ok_or(forms)?;
        match kind {
            "docker" | "podman" => Self::container(text),
            "unit" => Self::unit(name),
            "compose" => Self::compose(name),
            "cgroup" => Self::cgroup(name),
            "pid" => {
                let pid: Option<u32> = name.parse().ok();
                let pid = pid.filter(|pid| (1..=PID_MAX).contains(pid));
                pid.map(Self::Pid).ok_or(BadTarget("write the number of a process, as in pid:4711"))
            }
            "pod" => match name.splitn(3, '/').collect::<Vec<_>>()[..] {
                [namespace, pod, container] => {
                    Self::pod(&format!("{namespace}/{pod}"), Some(container))
                }
                _ => Self::pod(name, None),
            },
            _ => Err(forms),
        }
    }
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
            Self::Compose { file, service } => {
                write!(f, "service {service} of {}", file.display())
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_the_command_line() {
        let check = |text: &str, expect: &str| {
            let found = text.parse::<AttachTarget>();
            let found = found.map_or_else(|error| error.to_string(), |found| found.to_string());
            assert!(found.contains(expect), "{text}: {found}");
        };
        check("docker:db", "container docker:db");
        check("podman:db", "container podman:db");
        check("unit:redis.service", "unit redis.service");
        check("compose:a/docker-compose.yml:db", "service db of a/docker-compose.yml");
        check("compose:db", "write FILE:SERVICE");
        check("compose:a.yml:d b", "write FILE:SERVICE");
        check("pid:4711", "pid 4711");
        check("cgroup:/a/b", "cgroup /a/b");
        check("pod:shop/db-0", "pod shop/db-0");
        check("pod:shop/db-0/redis", "container redis of pod shop/db-0");
        check("redis", "write docker:NAME, podman:NAME, unit:NAME.service");
        check("container:db", "write docker:NAME, podman:NAME, unit:NAME.service");
        check("docker:", "write docker:NAME or podman:NAME");
        check("unit:redis", "the whole name of the unit");
        check("pid:0", "the number of a process");
        check("pid:x", "the number of a process");
        check("cgroup:../a", "an absolute path");
        check("pod:shop", "write NAMESPACE/NAME");
    }
}
