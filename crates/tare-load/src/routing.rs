//! Which connection an operation goes out on.
//!
//! A sharded server (Scylla, `tare db`) says at OPTIONS which shard a connection has come to, and
//! how the shard of a row follows from its key. A client that sends each operation to the owner of
//! its row saves the server the way between shards, as shard-aware drivers do.
//!
//! In a closed loop a connection that is free takes the next operation of its own shard, and
//! those of other shards that come before it wait for connections of theirs. A shard for which too
//! many wait is behind: then operations go out wherever there is room, and the server passes them on,
//! so that the number of requests in flight is always the one that was asked for.

use std::collections::VecDeque;

use tare_cql::token::Token;

use crate::connection::Connection;
use crate::keys::Operation;

/// Operations that wait for one shard at most.
const WAITING_MAX: usize = 64;

/// Where a connection has come to, and how rows are spread over the shards of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sharding {
    pub(crate) shard: u16,
    pub(crate) shards: u16,
    /// The highest bits of a token that do not count.
    pub(crate) ignore_msb: u8,
}

impl Sharding {
    /// What SUPPORTED says of it; `None` from a server without shards.
    pub(crate) fn find<'a>(mut value: impl FnMut(&str) -> Option<&'a str>) -> Option<Self> {
        let algorithm = value("SCYLLA_SHARDING_ALGORITHM")?;
        if algorithm != "biased-token-round-robin" {
            return None;
        }
        let shard = value("SCYLLA_SHARD")?.parse().ok()?;
        let shards = value("SCYLLA_NR_SHARDS")?.parse().ok()?;
        let ignore_msb = value("SCYLLA_SHARDING_IGNORE_MSB")?.parse().ok()?;
        (shard < shards).then_some(Self { shard, shards, ignore_msb })
    }

    fn owner(self, token: Token) -> u16 {
        token.shard(self.shards, self.ignore_msb)
    }
}

/// An operation that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) operation: Operation,
    /// When it should be sent, in ns; response time counts from here.
    pub(crate) intended_ns: u64,
}

/// The routing of one thread's operations.
#[derive(Debug)]
pub(crate) struct Routing {
    sharding: Sharding,
    /// By connection.
    shards: Vec<u16>,
    /// By shard.
    waiting: Vec<VecDeque<Ready>>,
}

impl Routing {
    /// `None` unless there are several shards, and a connection to each of them.
    pub(crate) fn new(connections: &[Connection]) -> Option<Self> {
        let all = connections.iter().map(|connection| connection.sharding);
        let all: Vec<Sharding> = all.collect::<Option<_>>()?;
        let sharding = *all.first().filter(|first| first.shards > 1)?;
        let shards: Vec<u16> = all.iter().map(|sharding| sharding.shard).collect();
        let reached = (0..sharding.shards).all(|shard| shards.contains(&shard));
        let waiting = (0..sharding.shards).map(|_| VecDeque::with_capacity(WAITING_MAX)).collect();
        reached.then_some(Self { sharding, shards, waiting })
    }

    /// Closed loop: the next operation for a connection, from those that wait for its shard or, with
    /// its token, from `take`.
    #[inline]
    pub(crate) fn next(
        &mut self,
        connection: usize,
        mut take: impl FnMut() -> Option<(Ready, Token)>,
    ) -> Option<Ready> {
        let shard = self.shards[connection];
        if let Some(ready) = self.waiting[usize::from(shard)].pop_front() {
            return Some(ready);
        }
        loop {
            let Some((ready, token)) = take() else {
                // None will come for the others either: what waits goes out here.
                return self.waiting.iter_mut().find_map(VecDeque::pop_front);
            };
            let owner = self.sharding.owner(token);
            let waiting = &mut self.waiting[usize::from(owner)];
            if owner == shard || waiting.len() >= WAITING_MAX {
                return Some(ready);
            }
            waiting.push_back(ready);
        }
    }

    /// Which shard a token belongs to.
    #[inline]
    pub(crate) fn owner(&self, token: Token) -> u16 {
        self.sharding.owner(token)
    }

    /// Whether a connection leads to a shard.
    #[inline]
    pub(crate) fn leads_to(&self, connection: usize, shard: u16) -> bool {
        self.shards[connection] == shard
    }

    /// Whether operations wait.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.iter().any(|waiting| !waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routing() -> Routing {
        let sharding = Sharding { shard: 0, shards: 2, ignore_msb: 0 };
        Routing { sharding, shards: vec![0, 1], waiting: vec![VecDeque::new(); 2] }
    }

    #[test]
    fn every_operation_goes_out_once_and_nearly_all_to_their_owner() {
        let mut routing = routing();
        let mut keys = 0..10_000_u64;
        let mut seen = Vec::new();
        let mut astray = 0;
        let token = |key: u64| Token::of(&key.to_be_bytes());
        // One connection asks three times as often as the other.
        for turn in 0.. {
            let connection = usize::from(turn % 4 == 0);
            let take = || {
                let key = keys.next()?;
                let operation = Operation { key, write: true };
                Some((Ready { operation, intended_ns: 0 }, token(key)))
            };
            let Some(ready) = routing.next(connection, take) else { break };
            let key = ready.operation.key;
            seen.push(key);
            if turn % 4 < 2 && !routing.leads_to(connection, routing.owner(token(key))) {
                astray += 1;
            }
        }
        assert!(!routing.has_waiting());
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..10_000));
        assert!((1..4_000).contains(&astray), "{astray}");
    }

    #[test]
    fn sharding_is_what_the_server_says() {
        let said = |shards: &'static str| {
            Sharding::find(|key| {
                Some(match key {
                    "SCYLLA_SHARD" => "1",
                    "SCYLLA_NR_SHARDS" => shards,
                    "SCYLLA_SHARDING_IGNORE_MSB" => "12",
                    _ => "biased-token-round-robin",
                })
            })
        };
        assert_eq!(said("2"), Some(Sharding { shard: 1, shards: 2, ignore_msb: 12 }));
        assert_eq!(said("1"), None);
        assert_eq!(said("many"), None);
        assert_eq!(Sharding::find(|_| None), None);
    }
}
