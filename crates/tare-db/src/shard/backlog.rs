//! What clients have sent and the shard has not handled yet.
//!
//! Answers leave at the end of a turn. A shard that was frozen, or held up, finds megabytes of
//! requests when it runs again; handled in one turn they would delay the first answer by all of their
//! work. So a turn handles a bounded number of received bytes, and the rest goes in rounds: one buffer
//! of each connection, so that none waits for all that another has sent.
//!
//! Only what lies in buffers can wait here (io_uring). With epoll the bytes wait in their sockets.

use std::collections::VecDeque;

use super::Shard;
use crate::net::reactor::{ConnId, Event, Source};

/// Received bytes after which a turn ends: some 200 requests with a row of 300 bytes, or 2 ms.
const TURN_BYTES_MAX: usize = 64 << 10;

/// Events of connections, each of which has a place in this round or in the next.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    due: VecDeque<(ConnId, Event)>,
    later: VecDeque<(ConnId, Event)>,
    round: u64,
    /// The round in which a connection had its turn, by slot.
    rounds: Vec<u64>,
}

impl Backlog {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty() && self.later.is_empty()
    }

    fn push(&mut self, conn: ConnId, event: Event) {
        self.due.push_back((conn, event));
    }

    /// The next event: the oldest one of a connection that had no turn in this round. Those of one
    /// connection stay in order.
    fn pop(&mut self) -> Option<Event> {
        loop {
            let Some((conn, event)) = self.due.pop_front() else {
                if self.later.is_empty() {
                    return None;
                }
                std::mem::swap(&mut self.due, &mut self.later);
                self.round += 1;
                continue;
            };
            let slot = conn.slot as usize;
            if self.rounds.len() <= slot {
                self.rounds.resize(slot + 1, 0);
            }
            // Rounds count from 1, so that a new slot had no turn.
            if self.rounds[slot] == self.round + 1 {
                self.later.push_back((conn, event));
            } else {
                self.rounds[slot] = self.round + 1;
                return Some(event);
            }
        }
    }
}

impl Shard {
    /// Handles what has happened, as far as a turn goes. False if there was nothing.
    pub(super) fn handle(&mut self, events: &mut Vec<Event>) -> bool {
        if events.is_empty() && self.state.backlog.is_empty() {
            return false;
        }
        let mut bytes = 0;
        for event in events.drain(..) {
            let waits = bytes >= TURN_BYTES_MAX || !self.state.backlog.is_empty();
            match event {
                Event::Input(conn, Source::Buffer { .. }) | Event::Hangup(conn) if waits => {
                    self.state.backlog.push(conn, event);
                }
                event => {
                    bytes += received(&event);
                    self.event(event);
                }
            }
        }
        while bytes < TURN_BYTES_MAX {
            let Some(event) = self.state.backlog.pop() else { break };
            bytes += received(&event);
            self.event(event);
        }
        true
    }
}

/// Bytes that an event brings.
#[inline]
fn received(event: &Event) -> usize {
    match event {
        Event::Input(_, Source::Buffer { length, .. }) => *length as usize,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_goes_round_its_connections_and_keeps_the_order_of_each() {
        let conn = |slot| ConnId { slot, generation: 0 };
        let mut backlog = Backlog::default();
        let push = |backlog: &mut Backlog, slot, id| {
            let event = Event::Input(conn(slot), Source::Buffer { id, length: 1 });
            backlog.push(conn(slot), event);
        };
        let pop = |backlog: &mut Backlog| match backlog.pop() {
            Some(Event::Input(conn, Source::Buffer { id, .. })) => Some((conn.slot, id)),
            Some(other) => panic!("{other:?}"),
            None => None,
        };
        for (slot, id) in [(5, 0), (5, 1), (5, 2), (0, 3), (5, 4), (0, 5), (9, 6)] {
            push(&mut backlog, slot, id);
        }
        assert_eq!(pop(&mut backlog), Some((5, 0)));
        assert_eq!(pop(&mut backlog), Some((0, 3)));
        // What comes meanwhile has its place behind what its connection has sent before.
        push(&mut backlog, 0, 7);
        push(&mut backlog, 2, 8);
        let rest: Vec<_> = std::iter::from_fn(|| pop(&mut backlog)).collect();
        assert_eq!(rest, [(9, 6), (2, 8), (5, 1), (0, 5), (5, 2), (0, 7), (5, 4)]);
        assert!(backlog.is_empty());
    }
}
