//! The address of a host, as studies and options name it: `local`, a destination of ssh, a node of
//! a Kubernetes cluster, or a pod on such a node.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How this host and those that ssh reaches are written.
const HOSTS: &str = "local, ssh:HOST, ssh:USER@HOST, ssh:HOST:PORT";

/// Where a part of a run happens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostAddress {
    /// This host.
    #[default]
    Local,
    /// Another host.
    Remote(RemoteAddress),
}

/// Another host, and the way to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RemoteAddress {
    /// Through the user's ssh.
    Ssh(SshAddress),
    /// A node, through the API of its cluster.
    Node(NodeAddress),
    /// A pod of Tare's own on this node, through the API of its cluster. It is no host: it loads a
    /// system, and nothing else.
    Pod(NodeAddress),
}

/// A node of a Kubernetes cluster: `NODE`, or `CONTEXT/NODE` in another context of the user's
/// access than the current one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeAddress {
    context: Option<String>,
    node: String,
}

/// A destination of ssh: a host or an alias of the user's configuration, with user and port where
/// they differ from that configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SshAddress {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

/// Text is not the address of a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a host: {}", self.reason())]
pub struct HostAddressError {
    text: String,
    why: &'static str,
}

impl HostAddressError {
    /// Returns why, and what to write, without the text.
    pub fn reason(&self) -> String {
        format!("{}; write {HOSTS}, kubernetes:NODE or pod:NODE", self.why)
    }

    /// Returns the same for a loader, which may also be pods on several nodes.
    pub(crate) fn reason_for_loader(&self) -> String {
        format!("{}; write {HOSTS}, kubernetes:NODE, pod:NODE or pods:LABEL=VALUE", self.why)
    }
}

impl SshAddress {
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the host name, the address or the alias.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

impl NodeAddress {
    /// Returns the context of the user's access; `None` for the current one.
    pub fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    pub(crate) fn new(context: Option<String>, node: &str) -> Self {
        Self { context, node: node.into() }
    }

    /// Returns the name of the node.
    pub fn node(&self) -> &str {
        &self.node
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let (context, node) = match text.rsplit_once('/') {
            Some((context, node)) => (Some(context), node),
            None => (None, text),
        };
        if node.is_empty() || context == Some("") {
            return Err("a name is missing");
        }
        // Contexts of managed clusters have slashes and colons.
        let is_context = |name: &str| name.split('/').all(|part| is_plain(part) || part.is_empty());
        if !is_plain(node) || !context.is_none_or(is_context) {
            return Err("a name has a character that no name has");
        }
        Ok(Self { context: context.map(Into::into), node: node.into() })
    }
}

impl RemoteAddress {
    /// Returns the node, if it is one that is reached as a host; `None` for a pod on it.
    pub fn as_node(&self) -> Option<&NodeAddress> {
        match self {
            Self::Node(node) => Some(node),
            Self::Ssh(_) | Self::Pod(_) => None,
        }
    }
}

impl HostAddress {
    /// Returns the address of another host; `None` for this one.
    pub fn remote(&self) -> Option<&RemoteAddress> {
        match self {
            Self::Local => None,
            Self::Remote(address) => Some(address),
        }
    }
}

/// Whether a name cannot be taken for an option or be divided by a shell.
fn is_plain(name: &str) -> bool {
    !name.starts_with('-') && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-%:".contains(c))
}

impl FromStr for HostAddress {
    type Err = HostAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |why| HostAddressError { text: text.into(), why };
        if text == "local" {
            return Ok(Self::Local);
        }
        if let Some(node) = text.strip_prefix("kubernetes:") {
            let node = NodeAddress::parse(node).map_err(error)?;
            return Ok(Self::Remote(RemoteAddress::Node(node)));
        }
        if let Some(node) = text.strip_prefix("pod:") {
            return Ok(Self::Remote(RemoteAddress::Pod(NodeAddress::parse(node).map_err(error)?)));
        }
        let rest = text.strip_prefix("ssh:").ok_or_else(|| error("it has no kind"))?;
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, rest),
        };
        // An IPv6 address needs brackets only if a port follows.
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').unwrap_or(port))),
            None if rest.matches(':').count() == 1 => {
                rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)))
            }
            None => (rest, None),
        };
        let port = port.map(|port| port.parse::<u16>().ok().filter(|port| *port > 0));
        if port == Some(None) {
            return Err(error("its port is not between 1 and 65535"));
        }
        if host.is_empty() || user == Some("") {
            return Err(error("a name is missing"));
        }
        if !is_plain(host) || !user.is_none_or(is_plain) {
            return Err(error("a name has a character that no name has"));
        }
        let (user, host) = (user.map(Into::into), host.into());
        Ok(Self::Remote(RemoteAddress::Ssh(SshAddress { user, host, port: port.flatten() })))
    }
}

impl fmt::Display for SshAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ssh:")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.port {
            Some(port) if self.host.contains(':') => write!(f, "[{}]:{port}", self.host),
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(context) = &self.context {
            write!(f, "{context}/")?;
        }
        f.write_str(&self.node)
    }
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh(address) => address.fmt(f),
            Self::Node(address) => write!(f, "kubernetes:{address}"),
            Self::Pod(address) => write!(f, "pod:{address}"),
        }
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Remote(address) => address.fmt(f),
        }
    }
}

impl Serialize for HostAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in [
            "local",
            "ssh:db1",
            "ssh:root@db1",
            "ssh:bench@10.0.0.12:2222",
            "ssh:fe80::1%eth0",
            "ssh:root@[2001:db8::1]:22",
            "kubernetes:node-1.example.org",
            "kubernetes:arn:aws:eks:eu-1:12:cluster/prod/node-1",
            "pod:node-1.example.org",
            "pod:prod/node-1",
        ] {
            assert_eq!(text.parse::<HostAddress>().unwrap().to_string(), text);
        }
        let address = "ssh:bench@10.0.0.12:2222".parse::<HostAddress>().unwrap();
        let Some(RemoteAddress::Ssh(ssh)) = address.remote() else { panic!("{address}") };
        assert_eq!((ssh.user(), ssh.host(), ssh.port()), (Some("bench"), "10.0.0.12", Some(2222)));
    }

    #[test]
    fn refuses_what_a_shell_or_ssh_would_read_differently() {
        for text in [
            "db1",
            "ssh:",
            "ssh:@db1",
            "ssh:-oProxyCommand=x",
            "ssh:db1;reboot",
            "ssh:$(id)",
            "ssh:a b",
            "ssh:db1:0",
            "ssh:db1:x",
            "ssh:-l@db1",
            "kubernetes:",
            "kubernetes:/node",
            "kubernetes:node;reboot",
            "kubernetes:-n",
            "pod:",
            "pod:node;reboot",
        ] {
            assert!(text.parse::<HostAddress>().is_err(), "{text}");
        }
        let error = "ssh:db1:70000".parse::<HostAddress>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"ssh:db1:70000\" is not a host: its port is not between 1 and 65535; write local, ssh:HOST, ssh:USER@HOST, ssh:HOST:PORT, kubernetes:NODE or pod:NODE"
        );
    }
}
