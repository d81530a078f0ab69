//! Chooses the shard of a new connection.
//!
//! On the usual port it is the shard with the fewest connections. On the shard-aware port, which
//! Scylla's drivers use, the client chooses: the shard is its source port modulo the number of
//! shards (Scylla's `docs/dev/protocols.md`, "shard-aware port").

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::net::{SocketAddrAny, getpeername, getsockname};

/// The number of connections of each shard.
#[derive(Debug)]
pub(crate) struct ConnectionBalancer {
    /// Connections of each shard, including those that another shard hands over.
    connections: Vec<AtomicUsize>,
    shard_aware_port: Option<u16>,
}

impl ConnectionBalancer {
    pub(crate) fn new(shards: usize, shard_aware_port: Option<u16>) -> Self {
        let connections = std::iter::repeat_with(AtomicUsize::default).take(shards).collect();
        Self { connections, shard_aware_port }
    }

    pub(crate) fn shard_aware_port(&self) -> Option<u16> {
        self.shard_aware_port
    }

    /// Chooses the shard of a new connection and counts the connection there. Among equals it
    /// prefers `near`, the shard that has accepted the connection.
    pub(crate) fn assign(&self, fd: &OwnedFd, near: usize) -> usize {
        // A socket that has lost its peer may go anywhere: receiving reports the loss.
        let port = |address: Option<SocketAddrAny>| {
            address.and_then(|address| SocketAddr::try_from(address).ok()).map(|a| a.port())
        };
        let aware =
            self.shard_aware_port.is_some() && port(getsockname(fd).ok()) == self.shard_aware_port;
        let chosen = if aware { port(getpeername(fd).ok().flatten()) } else { None };
        self.choose(chosen, near)
    }

    fn choose(&self, source_port: Option<u16>, near: usize) -> usize {
        let shards = self.connections.len();
        let shard = match source_port {
            Some(port) => usize::from(port) % shards,
            None => {
                let count = |shard: &usize| self.connections[*shard].load(Ordering::Relaxed);
                (0..shards).map(|step| (near + step) % shards).min_by_key(count).unwrap_or(near)
            }
        };
        self.connections[shard].fetch_add(1, Ordering::Relaxed);
        shard
    }

    /// Notes that a connection of a shard has ended.
    pub(crate) fn release(&self, shard: usize) {
        self.connections[shard].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_go_to_the_least_loaded_or_the_chosen_shard() {
        let balance = ConnectionBalancer::new(3, Some(19042));
        let placed: Vec<usize> = (0..4).map(|_| balance.choose(None, 0)).collect();
        assert_eq!(placed, [0, 1, 2, 0]);
        assert_eq!(balance.choose(Some(50_003), 0), 2);
        assert_eq!(balance.choose(None, 0), 1);
        balance.release(1);
        balance.release(1);
        assert_eq!(balance.choose(None, 0), 1);
    }
}
