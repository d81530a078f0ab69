//! The nodes of a cluster, which of them owns which part of the ring (from `system.local` and
//! `system.peers`), and how connections spread over them.
//!
//! The owner of a token is the node with the first ring token that is not below it. That is the
//! first replica under SimpleStrategy, and under NetworkTopologyStrategy among the nodes of one
//! data centre. (A Scylla table with tablets has another map; its nodes pass such operations on.)

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tare_cql::response::{Row, Rows};
use tare_cql::token::Token;
use tare_cql::wire::Reader;

use crate::access::Host;
use crate::error::LoadError;
use crate::protocol::connection::Connection;
use crate::protocol::dial::{Dialer, ShardAwarePort};

/// Time between two checks of the nodes' schema versions.
const SCHEMA_LOOK: Duration = Duration::from_millis(20);

/// The nodes under load.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) ring: Ring,
}

/// One node of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) host: Host,
    /// The number of shards and the shard-aware port, if the node has one that works.
    shard_port: Option<(u16, u16)>,
    /// False until the first connection to the node.
    learned: bool,
}

impl Node {
    fn new(host: Host) -> Self {
        Self { host, shard_port: None, learned: false }
    }
}

/// The end of each range of tokens with the node that owns it, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ring(Vec<(Token, u16)>);

impl Ring {
    fn new(mut tokens: Vec<(Token, u16)>) -> Self {
        tokens.sort_unstable();
        Self(tokens)
    }

    /// Returns the node that owns a token; the first node if only one is known.
    #[inline]
    pub(crate) fn owner(&self, token: Token) -> u16 {
        if self.0.is_empty() {
            return 0;
        }
        let place = self.0.partition_point(|(end, _)| *end < token);
        self.0.get(place).unwrap_or(&self.0[0]).1
    }
}

/// A row of `system.local` or `system.peers`.
#[derive(Debug, PartialEq, Eq)]
struct Peer {
    /// The address of CQL; `None` for the node that was asked.
    address: Option<IpAddr>,
    port: Option<u16>,
    data_center: String,
    tokens: Vec<Token>,
}

impl Cluster {
    /// Returns a cluster of one node, whose tokens do not matter.
    pub(crate) fn single(host: Host) -> Self {
        Self { nodes: vec![Node::new(host)], ring: Ring::default() }
    }

    /// Asks a node for the others of its data centre.
    pub(crate) fn discover(
        host: Host,
        control: &mut Connection,
        deadline: Instant,
    ) -> Result<Self, LoadError> {
        let port = host.address.port();
        let local = "SELECT data_center, tokens FROM system.local WHERE key = 'local'";
        let newer = "SELECT data_center, tokens, native_address, native_port FROM system.peers_v2";
        let older = "SELECT data_center, tokens, rpc_address FROM system.peers";
        let what = "a question about the cluster";
        let mut ask = |statement| control.query(what, statement, deadline, peers);
        let local = ask(local)?.into_iter().next();
        let peers = match ask(newer) {
            // There is no such table in Scylla and before Cassandra 4.
            Err(LoadError::Refused { .. }) => ask(older)?,
            other => other?,
        };
        let Some(local) = local else { return Ok(Self::single(host)) };
        let mut cluster = Self::single(host);
        let mut tokens: Vec<_> = local.tokens.iter().map(|token| (*token, 0)).collect();
        for peer in peers.iter().filter(|peer| peer.data_center == local.data_center) {
            let Some(address) = peer.address else { continue };
            let number = u16::try_from(cluster.nodes.len()).unwrap_or(u16::MAX);
            let address = SocketAddr::new(address, peer.port.unwrap_or(port));
            let host = Host { name: address.ip().to_string(), address };
            cluster.nodes.push(Node::new(host));
            tokens.extend(peer.tokens.iter().map(|token| (*token, number)));
        }
        if cluster.nodes.len() > 1 {
            cluster.ring = Ring::new(tokens);
        }
        Ok(cluster)
    }

    /// Waits until all nodes have the schema of the node that changed it. The others learn of new
    /// tables a moment later.
    pub(crate) fn wait_for_schema(
        &self,
        control: &mut Connection,
        deadline: Instant,
    ) -> Result<(), LoadError> {
        if self.nodes.len() == 1 {
            return Ok(());
        }
        loop {
            let mut versions = BTreeSet::new();
            for table in ["local", "peers"] {
                let statement = format!("SELECT schema_version FROM system.{table}");
                let what = "a question about the schema";
                let cells = control.query(what, &statement, deadline, |rows| {
                    let cell = |row: Row<'_>| row.cells().next().flatten().map(<[u8]>::to_vec);
                    rows.map(|rows| rows.iter().map(cell).collect::<Vec<_>>()).unwrap_or_default()
                })?;
                versions.extend(cells);
            }
            if versions.len() == 1 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(LoadError::Schema { versions: versions.len() });
            }
            std::thread::sleep(SCHEMA_LOOK);
        }
    }

    /// Opens the connection with this number. Connections go to the nodes in turn, and on each node
    /// to its shards in turn.
    pub(crate) fn connect(
        &mut self,
        dialer: &Dialer,
        number: usize,
        deadline: Instant,
    ) -> Result<Connection, LoadError> {
        let count = self.nodes.len();
        let (node_number, turn) = (number % count, number / count);
        let node = &mut self.nodes[node_number];
        let mut connection = None;
        if let Some((shards, port)) = node.shard_port {
            let shard = u16::try_from(turn % usize::from(shards)).unwrap_or(0);
            connection = dialer
                .open(&node.host, Some(ShardAwarePort { port, shard, shards }), deadline)
                .ok();
            // Behind an address translation the source port changes, so the connection may reach
            // any shard or none.
            let led_there = connection
                .as_ref()
                .is_some_and(|connection| connection.sharding.is_some_and(|is| is.shard == shard));
            if !led_there {
                node.shard_port = None;
            }
        }
        let mut connection = match connection {
            Some(connection) => connection,
            None => dialer.open(&node.host, None, deadline)?,
        };
        connection.node = u16::try_from(node_number).unwrap_or(u16::MAX);
        self.learn_sharding(&connection);
        Ok(connection)
    }

    /// Learns from the first connection to a node how to reach its shards.
    pub(crate) fn learn_sharding(&mut self, connection: &Connection) {
        let node = &mut self.nodes[usize::from(connection.node)];
        if std::mem::replace(&mut node.learned, true) {
            return;
        }
        node.shard_port = connection
            .sharding
            .filter(|sharding| sharding.shards > 1)
            .and_then(|sharding| Some((sharding.shards, sharding.aware_port?)));
    }
}

/// Reads rows of data centre and tokens, for peers also address and port. Skips incomplete rows:
/// those nodes have not joined yet.
fn peers(rows: Option<Rows<'_>>) -> Vec<Peer> {
    let Some(rows) = rows else { return Vec::new() };
    let mut peers = Vec::new();
    for row in rows.iter() {
        let mut cells = row.cells();
        let mut next = || cells.next().flatten();
        let Some(data_center) = next().and_then(|text| str::from_utf8(text).ok()) else { continue };
        let Some(tokens) = next().and_then(tokens) else { continue };
        let address = next().and_then(address);
        let port = next().and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        let port = port.and_then(|bytes| u16::try_from(i32::from_be_bytes(bytes)).ok());
        peers.push(Peer { address, port, data_center: data_center.into(), tokens });
    }
    peers
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Returns the tokens of a node: a set of numbers as text.
fn tokens(bytes: &[u8]) -> Option<Vec<Token>> {
    let mut reader = Reader::new(bytes);
    let count = reader.count("number of tokens").ok()?;
    let token = |_| {
        let text = reader.bytes("token").ok()??;
        str::from_utf8(text).ok()?.parse().ok().map(Token)
    };
    (0..count).map(token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_belongs_to_next_ring_entry() {
        let ring = Ring::new(vec![(Token(100), 1), (Token(-100), 0), (Token(0), 2)]);
        let check = |token, node| assert_eq!(ring.owner(Token(token)), node, "{token}");
        check(i64::MIN, 0);
        check(-100, 0);
        check(-99, 2);
        check(0, 2);
        check(100, 1);
        check(101, 0);
        check(i64::MAX, 0);
        assert_eq!(Ring::default().owner(Token(7)), 0);
    }

    #[test]
    fn tokens_decode_from_a_set_of_text() {
        let set = b"\0\0\0\x02\0\0\0\x02-5\0\0\0\x013";
        assert_eq!(tokens(set), Some(vec![Token(-5), Token(3)]));
        assert_eq!(tokens(b"\0\0\0\x01\0\0\0\x01x"), None);
        assert_eq!(tokens(b"\0\0\0\x05"), None);
    }
}
