//! What happened in a simulation, so that a run can show that it has met what it is for.

use std::collections::BTreeMap;
use std::fmt;

use crate::node::faults::Fault;

/// Counts of situations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub starts: u64,
    pub connections: u64,
    pub tls_sessions: u64,
    /// Logins that were checked, and those that were refused.
    pub logins: u64,
    pub refused_logins: u64,
    pub acknowledged: u64,
    pub reads: u64,
    /// Requests that were refused: as overloaded because of memory, for another limit, or for an
    /// error of a disk.
    pub over_memory: u64,
    pub overloaded: u64,
    pub failed: u64,
    pub refused_connections: u64,
    /// Kills and power losses while a TLS handshake was under way.
    pub crashes_in_handshake: u64,
    /// Kills, power losses and stops while requests had no answer.
    pub crashes_under_load: u64,
    pub stops_under_load: u64,
    /// Steps in which the disk was full and a client did not read.
    pub full_and_stalled: u64,
    /// Pairs of faults that struck at once.
    pub(crate) pairs: BTreeMap<(Fault, Fault), u64>,
}

impl Coverage {
    /// Number of different pairs of faults.
    pub const PAIRS: usize = Fault::PAIRS;

    /// Adds the counts of another simulation.
    pub fn add(&mut self, other: &Self) {
        for ((_, sum), (_, number)) in self.named().into_iter().zip(other.numbers()) {
            *sum += number;
        }
        for (pair, count) in &other.pairs {
            *self.pairs.entry(*pair).or_default() += count;
        }
    }

    /// Number of different pairs of faults that struck at once.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// The counts with their names.
    pub fn numbers(&self) -> Vec<(&'static str, u64)> {
        let mut counts = self.clone();
        let numbers = counts.named().into_iter().map(|(name, number)| (name, *number));
        numbers.chain([("two faults at once", self.pairs.values().sum())]).collect()
    }

    /// All counts but those of pairs.
    fn named(&mut self) -> [(&'static str, &mut u64); 15] {
        [
            ("starts", &mut self.starts),
            ("connections", &mut self.connections),
            ("TLS sessions", &mut self.tls_sessions),
            ("logins", &mut self.logins),
            ("refused logins", &mut self.refused_logins),
            ("acknowledged writes", &mut self.acknowledged),
            ("reads", &mut self.reads),
            ("refused for memory", &mut self.over_memory),
            ("refused for another limit", &mut self.overloaded),
            ("failed", &mut self.failed),
            ("refused connections", &mut self.refused_connections),
            ("crashes in a TLS handshake", &mut self.crashes_in_handshake),
            ("crashes under load", &mut self.crashes_under_load),
            ("stops under load", &mut self.stops_under_load),
            ("disk full and client stalled", &mut self.full_and_stalled),
        ]
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, number)) in self.numbers().into_iter().enumerate() {
            write!(f, "{}{number} {name}", if index > 0 { ", " } else { "" })?;
        }
        write!(f, " in {} different pairs", self.pairs())
    }
}
