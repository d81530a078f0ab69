//! How a shard stops: it answers the requests that it has, then makes its log durable.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::net::reactor::{Event, ReactorError, Wait};
use crate::shard::{SLEEP_MAX, Shard};

/// How long a stopping shard waits for clients to take their answers.
const DRAIN_NS_MAX: u64 = 2_000_000_000;

/// How long closing the store may take, for example on a disk that is full. Rows that are not in
/// tables by then are in the log, as after a crash.
const CLOSE_NS_MAX: u64 = 20_000_000_000;
/// Rows of at most this many bytes are flushed at the end; more stay in the log.
const FLUSH_BYTES_MAX: usize = 64 << 20;

/// How far a stop has come.
#[derive(Debug, Default)]
pub(crate) struct Stopping {
    since_ns: Option<u64>,
    /// Whether this shard has reported that it has nothing left to answer.
    reported: bool,
}

impl Stopping {
    /// Whether no more requests are received.
    pub(super) fn has_begun(&self) -> bool {
        self.since_ns.is_some()
    }
}

impl Shard {
    /// Whether a stopping shard, and all its siblings, have answered everything.
    pub(super) fn is_drained(&mut self, now_ns: u64) -> bool {
        let since = match self.stopping.since_ns {
            Some(since) => since,
            None => {
                self.engine.stop_listening();
                let ids: Vec<_> = self.connections.iter().map(|conn| conn.id).collect();
                ids.into_iter().for_each(|id| self.engine.pause(id));
                self.stopping.since_ns = Some(now_ns);
                now_ns
            }
        };
        let engine = &mut self.engine;
        let mut conns = self.connections.iter();
        let settled = self.connections.unanswered == 0
            && self.connections.stalled() == 0
            && self.siblings.waiting() == 0
            && self.reads.runnable() == 0
            && self.backlog.is_empty()
            && self.writes.pending() == 0
            && conns.all(|conn| !conn.has_output() && !engine.is_sending(conn.id));
        let late = now_ns.saturating_sub(since) > DRAIN_NS_MAX;
        if (settled || late) && !self.stopping.reported {
            self.stopping.reported = true;
            self.shared.drained.fetch_add(1, Ordering::AcqRel);
        }
        // Siblings may still send requests until they are settled too.
        let all = self.shared.drained.load(Ordering::Acquire) >= self.shared.mailboxes.len();
        late || (settled && all)
    }

    /// Makes the log durable and closes it.
    pub(crate) fn finish(&mut self) -> Result<(), ReactorError> {
        let failed = |source: io::Error| ReactorError::Wait { source };
        let mut events = Vec::new();
        // A quick flush makes the next start quick.
        self.store.close(self.store.used_bytes() <= FLUSH_BYTES_MAX);
        let since_ns = self.clock.now_ns();
        while !self.store.is_closed() && !self.store.is_poisoned() {
            self.now = self.clock.now();
            if self.now.monotonic_ns - since_ns > CLOSE_NS_MAX {
                break;
            }
            self.pump_store();
            if self.store.work(self.now) {
                continue;
            }
            let now_ns = self.now.monotonic_ns;
            let due_ns = self.store.next_due_ns().unwrap_or(u64::MAX);
            let wait = Duration::from_nanos(due_ns.saturating_sub(now_ns)).min(SLEEP_MAX);
            self.engine.poll(Wait::Sleep(wait), &mut events).map_err(failed)?;
            for event in events.drain(..) {
                if let Event::File(done) = event {
                    self.file_done(done);
                }
            }
        }
        for conn in self.connections.take_all().into_iter().flatten() {
            self.engine.close(conn.id);
        }
        self.telemetry.counters.connections = 0;
        self.telemetry.publish_counters();
        Ok(())
    }
}
