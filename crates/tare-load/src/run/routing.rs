//! Chooses the connection for an operation.
//!
//! A row is owned by a node of the ring (`cluster`) and, on a sharded node (Scylla, `tare db`), by
//! one of its shards. At OPTIONS the node reports the shard of the connection and how tokens map to
//! shards. Sending each operation to its owner saves the servers a hop between them, as token- and
//! shard-aware drivers do.
//!
//! In a closed loop a free connection takes the next operation of its own shard. Operations of
//! other shards wait for connections of theirs. Once too many wait for one shard, further ones go
//! out on any connection, and the server passes them on, so that the number of requests in flight
//! stays as asked.

use std::collections::VecDeque;

use tare_cql::token::Token;

use crate::protocol::cluster::Ring;
use crate::protocol::connection::Connection;
use crate::protocol::sharding::Sharding;
use crate::workload::operation::Operation;

/// The most operations that wait for one shard.
const WAITING_MAX: usize = 64;

/// An operation that may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadyOperation {
    pub(crate) operation: Operation,
    /// When it should be sent, in ns. Response time counts from here.
    pub(crate) intended_ns: u64,
}

/// A shard of a node, or a node without shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardSlot(usize);

/// The routing of one thread's operations.
#[derive(Debug)]
pub(crate) struct Routing<'a> {
    ring: &'a Ring,
    /// For each node: its sharding, if any, and the number of its first shard.
    nodes: Vec<(Option<Sharding>, usize)>,
    /// The shard of each connection.
    places: Vec<ShardSlot>,
    /// For each shard: the waiting operations; `None` if no connection of this thread reaches it.
    waiting: Vec<Option<VecDeque<ReadyOperation>>>,
}

impl<'a> Routing<'a> {
    /// Returns `None` if all connections reach the same shard.
    pub(crate) fn new(connections: &[Connection], ring: &'a Ring) -> Option<Self> {
        let nodes = connections.iter().map(|connection| connection.node).max()?;
        let mut nodes = vec![(None, 0); usize::from(nodes) + 1];
        for connection in connections {
            nodes[usize::from(connection.node)].0 = connection.sharding;
        }
        let mut count = 0;
        for (sharding, first) in &mut nodes {
            *first = count;
            count += sharding.map_or(1, |sharding| usize::from(sharding.shards));
        }
        let places: Vec<ShardSlot> = connections
            .iter()
            .map(|connection| {
                let shard = connection.sharding.map_or(0, |sharding| usize::from(sharding.shard));
                ShardSlot(nodes[usize::from(connection.node)].1 + shard)
            })
            .collect();
        let mut waiting = vec![None; count];
        for place in &places {
            waiting[place.0] = Some(VecDeque::with_capacity(WAITING_MAX));
        }
        let reached = waiting.iter().flatten().count();
        (reached > 1).then_some(Self { ring, nodes, places, waiting })
    }

    /// Closed loop: returns the next operation for a connection, from those that wait for its shard
    /// or, with its token, from `take`.
    #[inline]
    pub(crate) fn next(
        &mut self,
        connection: usize,
        mut take: impl FnMut() -> Option<(ReadyOperation, Token)>,
    ) -> Option<ReadyOperation> {
        let place = self.places[connection];
        if let Some(ready) = self.waiting[place.0].as_mut().and_then(VecDeque::pop_front) {
            return Some(ready);
        }
        loop {
            let Some((ready, token)) = take() else {
                // The other connections will get none either, so waiting operations go out here.
                return self.waiting.iter_mut().flatten().find_map(VecDeque::pop_front);
            };
            let owner = self.owner(token).filter(|owner| *owner != place);
            let waiting = owner.and_then(|owner| self.waiting[owner.0].as_mut());
            match waiting {
                Some(waiting) if waiting.len() < WAITING_MAX => waiting.push_back(ready),
                _ => return Some(ready),
            }
        }
    }

    /// Returns the shard that owns a token, if a connection reaches it.
    #[inline]
    pub(crate) fn owner(&self, token: Token) -> Option<ShardSlot> {
        let (sharding, first) = *self.nodes.get(usize::from(self.ring.owner(token)))?;
        let shard = sharding.map_or(0, |sharding| usize::from(sharding.owner(token)));
        let place = first + shard;
        self.waiting.get(place)?.is_some().then_some(ShardSlot(place))
    }

    /// Updates the shard of a connection that has been replaced.
    pub(crate) fn moved(&mut self, index: usize, connection: &Connection) {
        let Some((_, first)) = self.nodes.get(usize::from(connection.node)) else { return };
        let shard = connection.sharding.map_or(0, |sharding| usize::from(sharding.shard));
        let place = ShardSlot(first + shard);
        if let Some(waiting) = self.waiting.get_mut(place.0) {
            waiting.get_or_insert_with(|| VecDeque::with_capacity(WAITING_MAX));
            self.places[index] = place;
        }
    }

    /// Returns whether a connection reaches a shard.
    #[inline]
    pub(crate) fn leads_to(&self, connection: usize, place: ShardSlot) -> bool {
        self.places[connection] == place
    }

    /// Returns whether operations wait.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.iter().flatten().any(|waiting| !waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routing(ring: &Ring) -> Routing<'_> {
        let sharding = Sharding { shard: 0, shards: 2, ignore_msb: 0, aware_port: None };
        Routing {
            ring,
            nodes: vec![(Some(sharding), 0)],
            places: vec![ShardSlot(0), ShardSlot(1)],
            waiting: vec![Some(VecDeque::new()); 2],
        }
    }

    #[test]
    fn operations_are_sent_once_mostly_to_their_owner() {
        let ring = Ring::default();
        let mut routing = routing(&ring);
        let mut keys = 0..10_000_u64;
        let mut seen = Vec::new();
        let mut astray = 0;
        let token = |key: u64| Token::of(&key.to_be_bytes());
        // One connection takes operations three times as often as the other.
        for turn in 0.. {
            let connection = usize::from(turn % 4 == 0);
            let take = || {
                let key = keys.next()?;
                let operation = Operation { row: key, ..Operation::default() };
                Some((ReadyOperation { operation, intended_ns: 0 }, token(key)))
            };
            let Some(ready) = routing.next(connection, take) else { break };
            let key = ready.operation.row;
            seen.push(key);
            if turn % 4 < 2 && !routing.leads_to(connection, routing.owner(token(key)).unwrap()) {
                astray += 1;
            }
        }
        assert!(!routing.has_waiting());
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..10_000));
        assert!((1..4_000).contains(&astray), "{astray}");
    }

    #[test]
    fn sharding_is_read_from_options() {
        let said = |shards: &'static str| {
            Sharding::find(false, |key| {
                Some(match key {
                    "SCYLLA_SHARD_AWARE_PORT" => "19042",
                    "SCYLLA_SHARD_AWARE_PORT_SSL" => return None,
                    "SCYLLA_SHARD" => "1",
                    "SCYLLA_NR_SHARDS" => shards,
                    "SCYLLA_SHARDING_IGNORE_MSB" => "12",
                    _ => "biased-token-round-robin",
                })
            })
        };
        let aware_port = Some(19_042);
        assert_eq!(said("2"), Some(Sharding { shard: 1, shards: 2, ignore_msb: 12, aware_port }));
        assert_eq!(said("1"), None);
        assert_eq!(said("many"), None);
        assert_eq!(Sharding::find(false, |_| None), None);
    }
}
