//! The shard's log: when it is written and synced, and who is told.

use crate::config::Durability;
use crate::failure::Failure;
use crate::message::{Message, Origin};
use crate::shard::{Shard, Waiter};

/// How long a full disk is left alone.
const RETRY_NS: u64 = 100_000_000;

impl Shard {
    /// Hands the log's work to the engine.
    pub(super) fn pump_log(&mut self, now_ns: u64) -> bool {
        let log = self.store.log();
        if log.is_in_flight() || !log.is_dirty() || now_ns < self.state.retry_ns {
            return false;
        }
        let (flush, sync) = match self.durability {
            Durability::Sync => (true, true),
            Durability::Periodic(period) => {
                let due = now_ns >= self.state.next_sync_ns;
                if due {
                    let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
                    self.state.next_sync_ns = now_ns.saturating_add(period);
                }
                (due, due)
            }
        };
        if !flush && !log.is_behind() {
            return false;
        }
        self.start_log_job(flush, sync)
    }

    pub(super) fn start_log_job(&mut self, flush: bool, sync: bool) -> bool {
        match self.store.log_mut().next_job(&mut self.segments, flush, sync) {
            Ok(Some(job)) => {
                let file = self.segments.current(job.segment);
                let file = file.expect("the log writes to the segment that it made last");
                self.engine.log(job, file);
                true
            }
            Ok(None) => false,
            // Later writes are refused with the reason until a later try succeeds. Those that wait
            // for it have been promised nothing.
            Err(error) => {
                self.state.retry_ns = self.clock.now_ns() + RETRY_NS;
                self.fail_waiters(&Failure::Server(error.to_string()));
                false
            }
        }
    }

    pub(super) fn release_waiters(&mut self) {
        let durable = self.store.log().durable();
        while let Some(&(ticket, waiter)) = self.state.waiters.front() {
            if ticket.0 >= durable {
                return;
            }
            self.state.waiters.pop_front();
            self.tell(waiter, Ok(()));
        }
    }

    pub(super) fn fail_waiters(&mut self, failure: &Failure) {
        for (_, waiter) in std::mem::take(&mut self.state.waiters) {
            self.tell(waiter, Err(failure.clone()));
        }
    }

    fn tell(&mut self, waiter: Waiter, result: Result<(), Failure>) {
        match waiter {
            Waiter::Here { conn, stream } => {
                self.state.remote += 1;
                self.written(conn, stream, result);
            }
            Waiter::There(Origin { shard, conn, stream }) => {
                self.post(shard, Message::Written { conn, stream, result });
            }
        }
    }
}
