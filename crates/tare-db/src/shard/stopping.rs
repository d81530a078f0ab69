//! How a shard stops: it answers what it was asked, then makes its log durable.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::net::reactor::{Event, ReactorError, Wait};
use crate::shard::{SLEEP_MAX, Shard};

/// How long a stopping shard waits for clients to take their answers.
const DRAIN_NS_MAX: u64 = 2_000_000_000;

/// How long a clean end may take, such as on a disk that is full. What is not in tables then is in
/// the log, as after a crash.
const CLOSE_NS_MAX: u64 = 20_000_000_000;
/// Bytes of rows that are still flushed at the end; more are left to the log.
const FLUSH_BYTES_MAX: usize = 64 << 20;

impl Shard {
    /// After the stop was asked for: true when nothing is owed to anyone any more.
    pub(super) fn is_drained(&mut self, now_ns: u64) -> bool {
        let since = match self.state.stopping_since_ns {
            Some(since) => since,
            None => {
                self.engine.stop_listening();
                let ids: Vec<_> = self.state.conns.iter().flatten().map(|conn| conn.id).collect();
                ids.into_iter().for_each(|id| self.engine.pause(id));
                self.state.stopping_since_ns = Some(now_ns);
                now_ns
            }
        };
        let (state, engine) = (&self.state, &mut self.engine);
        let mut conns = state.conns.iter().flatten();
        let settled = state.remote == 0
            && state.outbox_len == 0
            && state.readings.is_empty()
            && state.backlog.is_empty()
            && state.waiters.is_empty()
            && conns.all(|conn| !conn.has_output() && !engine.is_sending(conn.id));
        let late = now_ns.saturating_sub(since) > DRAIN_NS_MAX;
        if (settled || late) && !self.state.announced {
            self.state.announced = true;
            self.common.drained.fetch_add(1, Ordering::AcqRel);
        }
        // Siblings may still ask for something while they are not settled.
        let all = self.common.drained.load(Ordering::Acquire) >= self.common.mailboxes.len();
        late || (settled && all)
    }

    /// Makes the log durable and closes it.
    pub(super) fn finish(&mut self) -> Result<(), ReactorError> {
        let failed = |source: io::Error| ReactorError::Wait { source };
        let mut events = Vec::new();
        // What is in memory is written to tables where that is quick, so that the next start is too.
        self.store.close(self.store.used_bytes() <= FLUSH_BYTES_MAX);
        let since_ns = self.clock.now_ns();
        while !self.store.is_closed() && !self.store.is_poisoned() {
            self.state.now = self.clock.now();
            if self.state.now.monotonic_ns - since_ns > CLOSE_NS_MAX {
                break;
            }
            self.pump_store();
            if self.store.work(self.state.now) {
                continue;
            }
            let now_ns = self.state.now.monotonic_ns;
            let due_ns = self.store.next_due_ns().unwrap_or(u64::MAX);
            let wait = Duration::from_nanos(due_ns.saturating_sub(now_ns)).min(SLEEP_MAX);
            self.engine.turn(Wait::Sleep(wait), &mut events).map_err(failed)?;
            for event in events.drain(..) {
                if let Event::File(done) = event {
                    self.file_done(done);
                }
            }
        }
        for conn in self.state.conns.iter_mut().filter_map(Option::take) {
            self.engine.close(conn.id);
        }
        self.state.metrics.connections = 0;
        self.account.store(&self.state.metrics);
        Ok(())
    }
}
