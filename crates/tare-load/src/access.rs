//! How to reach a system, and what to do when requests fail: the user's settings, before anything
//! is opened, read or resolved.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

pub use tare_cql::frame::Version;

use crate::error::LoadError;

/// What a system speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// CQL, in a version of its native protocol.
    Cql(Version),
    /// RESP2: Redis, Valkey and compatible ones.
    Redis,
    /// The text protocol of memcached.
    Memcached,
}

impl Default for Protocol {
    fn default() -> Self {
        Self::Cql(Version::default())
    }
}

impl Protocol {
    /// Returns the protocol of a name that systems have for it; `None` for one that is not spoken
    /// here.
    pub fn find(name: &str) -> Option<Self> {
        match name {
            "cql" => Some(Self::default()),
            "redis" => Some(Self::Redis),
            "memcached" => Some(Self::Memcached),
            _ => None,
        }
    }

    /// Returns the port when an address names none.
    pub fn port(self) -> u16 {
        match self {
            Self::Cql(_) => 9042,
            Self::Redis => 6379,
            Self::Memcached => 11211,
        }
    }

    /// Returns whether it has tables, statements and clusters.
    pub fn is_cql(self) -> bool {
        matches!(self, Self::Cql(_))
    }
}

/// How to reach a system, and what to do when requests fail.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// `HOST`, `HOST:PORT` or `[IPV6]:PORT`. The first node that answers tells of the others.
    pub nodes: Vec<String>,
    /// CQL: load the other nodes in the data centre of the first node too.
    pub discover: bool,
    pub protocol: Protocol,
    /// CQL: compress requests and ask the server to compress answers.
    pub lz4: bool,
    pub tls: Option<Tls>,
    pub login: Option<Login>,
    pub recovery: Recovery,
    /// Report latencies by the kernel's times too.
    pub kernel_times: bool,
}

impl Access {
    /// Returns access to this node alone, without TLS, login or compression.
    pub fn to(address: SocketAddr) -> Self {
        Self::to_all(&[address])
    }

    /// Returns plain access to one node alone, or to the cluster of several nodes.
    pub fn to_all(nodes: &[SocketAddr]) -> Self {
        let discover = nodes.len() > 1;
        let nodes = nodes.iter().map(ToString::to_string).collect();
        Self { nodes, discover, ..Self::default() }
    }
}

/// Settings of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Which server certificates to accept.
    pub trust: Trust,
    /// The name that the server's certificate must have; `None`: the host name of the node.
    pub server_name: Option<String>,
}

/// Which server certificates to accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Certificates that an authority in this PEM file has signed.
    Authorities(PathBuf),
    /// The same, with the text of such a file.
    Pem(String),
    /// Any certificate. Anybody on the network path can then read and change the traffic.
    Anyone,
}

/// A user and a password (SASL PLAIN).
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// What to do when an answer or a connection is missing. The default does nothing: the operation
/// fails and is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Give an attempt up after this time without an answer.
    pub timeout: Option<Duration>,
    /// Send an operation again at most so many times, if its failure may be temporary.
    pub retries: u8,
    /// After this time without an answer, send the request a second time over another connection.
    pub speculative: Option<Duration>,
    /// Reconnect when a connection breaks.
    pub reconnect: bool,
}

/// A node's name as the user wrote it, and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
}

/// Resolves `HOST`, `HOST:PORT` or `[IPV6]:PORT`; `port` is that of a node without one.
pub(crate) fn resolve(node: &str, port: u16) -> Result<Host, LoadError> {
    let fail = |source| LoadError::UnknownHost { host: node.into(), source };
    let (name, port) = split(node, port);
    let mut addresses = (name, port).to_socket_addrs().map_err(fail)?;
    match addresses.next() {
        Some(address) => Ok(Host { name: name.into(), address }),
        None => Err(fail(std::io::ErrorKind::NotFound.into())),
    }
}

/// Splits an address into host and port. An IPv6 address may come without a port and without
/// brackets.
fn split(node: &str, default: u16) -> (&str, u16) {
    let bare = node.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<std::net::Ipv6Addr>().is_ok() {
        return (bare, default);
    }
    let Some((name, port)) = node.rsplit_once(':') else { return (bare, default) };
    match port.parse() {
        Ok(port) => (name.trim_start_matches('[').trim_end_matches(']'), port),
        Err(_) => (node, default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_splits_into_host_and_port() {
        let check = |node, host, port| assert_eq!(split(node, 9042), (host, port), "{node}");
        check("db1", "db1", 9042);
        check("db1:19042", "db1", 19042);
        check("127.0.0.1:1", "127.0.0.1", 1);
        check("::1", "::1", 9042);
        check("[::1]", "::1", 9042);
        check("[::1]:7", "::1", 7);
        check("db1:cql", "db1:cql", 9042);
    }

    #[test]
    fn debug_output_hides_passwords() {
        let login = Login { user: "ann".into(), password: "secret".into() };
        assert_eq!(format!("{login:?}"), r#"Login { user: "ann", .. }"#);
    }

    #[test]
    fn unknown_host_is_an_error() {
        let error = resolve("no-such-host.invalid:9042", 1).unwrap_err().to_string();
        assert!(error.starts_with("cannot find the host no-such-host.invalid:9042"), "{error}");
    }
}
