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
        let numbers = other.numbers();
        for (sum, (_, number)) in self.numbers_mut().into_iter().zip(numbers) {
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
    pub fn numbers(&self) -> [(&'static str, u64); 16] {
        [
            ("starts", self.starts),
            ("connections", self.connections),
            ("TLS sessions", self.tls_sessions),
            ("logins", self.logins),
            ("refused logins", self.refused_logins),
            ("acknowledged writes", self.acknowledged),
            ("reads", self.reads),
            ("refused for memory", self.over_memory),
            ("refused for another limit", self.overloaded),
            ("failed", self.failed),
            ("refused connections", self.refused_connections),
            ("crashes in a TLS handshake", self.crashes_in_handshake),
            ("crashes under load", self.crashes_under_load),
            ("stops under load", self.stops_under_load),
            ("disk full and client stalled", self.full_and_stalled),
            ("two faults at once", self.pairs.values().sum()),
        ]
    }

    fn numbers_mut(&mut self) -> [&mut u64; 15] {
        [
            &mut self.starts,
            &mut self.connections,
            &mut self.tls_sessions,
            &mut self.logins,
            &mut self.refused_logins,
            &mut self.acknowledged,
            &mut self.reads,
            &mut self.over_memory,
            &mut self.overloaded,
            &mut self.failed,
            &mut self.refused_connections,
            &mut self.crashes_in_handshake,
            &mut self.crashes_under_load,
            &mut self.stops_under_load,
            &mut self.full_and_stalled,
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
