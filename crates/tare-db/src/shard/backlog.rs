//! Requests that clients have sent and the shard has not handled yet.
//!
//! Answers leave at the end of an iteration. A shard that was frozen or held up finds megabytes of
//! requests when it runs again; if one iteration handled them all, the first answer would wait for
//! all of that work. So an iteration handles a bounded number of received bytes. The rest goes in
//! rounds of one buffer for each connection, so that no connection waits for everything that
//! another one has sent.
//!
//! Only bytes in buffers can wait here (io_uring). With epoll the bytes wait in their sockets.

use std::collections::VecDeque;

use super::Shard;
use crate::net::reactor::{ConnId, Event, Source};

/// Received bytes after which an iteration ends: about 200 requests with a row of 300 bytes, or 2
/// ms.
const ITERATION_BYTES_MAX: usize = 64 << 10;

/// Events of connections that wait for this round or for the next.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
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
    /// Handles events, as many as fit into an iteration. Returns false if there were none.
    pub(super) fn handle(&mut self, events: &mut Vec<Event>) -> bool {
        if events.is_empty() && self.backlog.is_empty() {
            return false;
        }
        let mut bytes = 0;
        for event in events.drain(..) {
            let waits = bytes >= ITERATION_BYTES_MAX || !self.backlog.is_empty();
            match event {
                Event::Input(conn, Source::Buffer { .. }) | Event::Hangup(conn) if waits => {
                    self.backlog.push(conn, event);
                }
                event => {
                    bytes += received(&event);
                    self.event(event);
                }
            }
        }
        while bytes < ITERATION_BYTES_MAX {
            let Some(event) = self.backlog.pop() else { break };
            bytes += received(&event);
            self.event(event);
        }
        true
    }
}

/// Number of received bytes that an event announces.
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
    fn backlog_is_fair_and_keeps_the_order_of_each_connection() {
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
        // New events follow the earlier ones of their connection.
        push(&mut backlog, 0, 7);
        push(&mut backlog, 2, 8);
        let rest: Vec<_> = std::iter::from_fn(|| pop(&mut backlog)).collect();
        assert_eq!(rest, [(9, 6), (2, 8), (5, 1), (0, 5), (5, 2), (0, 7), (5, 4)]);
        assert!(backlog.is_empty());
    }
}
