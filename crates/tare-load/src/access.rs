//! How a system is reached and what is done when it fails: what the user says, before anything is
//! opened, read or resolved.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

pub use tare_cql::frame::Version;

use crate::error::LoadError;

/// The port of CQL where none is named.
pub const PORT: u16 = 9042;

/// How a system is reached, and what is done when it fails.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// `HOST`, `HOST:PORT` or `[IPV6]:PORT`; the first that answers is asked about the others.
    pub nodes: Vec<String>,
    /// Load the other nodes of the cluster too, those in the data centre of the first.
    pub discover: bool,
    /// Version of the protocol.
    pub version: Version,
    /// Compress requests, and have answers compressed.
    pub lz4: bool,
    pub tls: Option<Tls>,
    pub login: Option<Login>,
    pub recovery: Recovery,
}

impl Access {
    /// Plainly, and only this node.
    pub fn to(address: SocketAddr) -> Self {
        Self::to_all(&[address])
    }

    /// Plainly: one node alone, or the cluster of several.
    pub fn to_all(nodes: &[SocketAddr]) -> Self {
        let discover = nodes.len() > 1;
        let nodes = nodes.iter().map(ToString::to_string).collect();
        Self { nodes, discover, ..Self::default() }
    }
}

/// What TLS is done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Whom to believe.
    pub trust: Trust,
    /// The name in the server's certificate; without it, the host as it was named.
    pub server_name: Option<String>,
}

/// Which certificates are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those that one of this PEM file vouches for.
    Authorities(PathBuf),
    /// Any: whoever stands between can read and change everything.
    Anyone,
}

/// User and password (SASL PLAIN).
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

/// What is done when an answer or a connection is missing. By default nothing: the operation has
/// failed and is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// An attempt without an answer for so long is given up.
    pub timeout: Option<Duration>,
    /// An operation that failed in a way that may pass is sent again so many times at most.
    pub retries: u8,
    /// An attempt without an answer for so long is made a second time, over another connection.
    pub speculative: Option<Duration>,
    /// Connections that broke are made again.
    pub reconnect: bool,
}

/// A node as it was named and where that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
}

/// Resolves `HOST`, `HOST:PORT` or `[IPV6]:PORT`.
pub(crate) fn resolve(node: &str) -> Result<Host, LoadError> {
    let fail = |source| LoadError::UnknownHost { host: node.into(), source };
    let (name, port) = split(node);
    let mut addresses = (name, port).to_socket_addrs().map_err(fail)?;
    match addresses.next() {
        Some(address) => Ok(Host { name: name.into(), address }),
        None => Err(fail(std::io::ErrorKind::NotFound.into())),
    }
}

/// Host and port of an address; IPv6 addresses may stand without a port and without brackets.
fn split(node: &str) -> (&str, u16) {
    let bare = node.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<std::net::Ipv6Addr>().is_ok() {
        return (bare, PORT);
    }
    let Some((name, port)) = node.rsplit_once(':') else { return (bare, PORT) };
    match port.parse() {
        Ok(port) => (name.trim_start_matches('[').trim_end_matches(']'), port),
        Err(_) => (node, PORT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_a_host_and_a_port() {
        let check = |node, host, port| assert_eq!(split(node), (host, port), "{node}");
        check("db1", "db1", 9042);
        check("db1:19042", "db1", 19042);
        check("127.0.0.1:1", "127.0.0.1", 1);
        check("::1", "::1", 9042);
        check("[::1]", "::1", 9042);
        check("[::1]:7", "::1", 7);
        check("db1:cql", "db1:cql", 9042);
    }

    #[test]
    fn passwords_are_not_told() {
        let login = Login { user: "ann".into(), password: "secret".into() };
        assert_eq!(format!("{login:?}"), r#"Login { user: "ann", .. }"#);
    }

    #[test]
    fn a_host_that_nobody_knows_is_told_so() {
        let error = resolve("no-such-host.invalid:9042").unwrap_err().to_string();
        assert!(error.starts_with("cannot find the host no-such-host.invalid:9042"), "{error}");
    }
}
