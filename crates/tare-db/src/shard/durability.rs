//! The shard's store: what it wants done with files, and who is told when a write is durable.

use tare_store::{Completion, Ticket};

use crate::node::directory::Done;
use crate::node::metrics::Operation;
use crate::query::failure::Failure;
use crate::shard::message::{Message, Origin};
use crate::shard::{Shard, Waiter, Waiting};

impl Shard {
    /// Hands the operations that the store wants carried out to the engine, as many as it takes.
    pub(super) fn pump_store(&mut self) -> bool {
        let mut worked = false;
        while self.engine.has_file_room() {
            let Some(op) = self.store.next_op(self.state.now) else { break };
            worked = true;
            self.state.metrics.queue_files += 1;
            match self.files.work(op) {
                Ok(work) => {
                    if let Some(done) = self.engine.file(work) {
                        self.file_done(done);
                    }
                }
                Err(completion) => self.completed(completion),
            }
        }
        worked
    }

    /// Takes an operation back that the engine has carried out.
    pub(super) fn file_done(&mut self, done: Done) {
        let completion = self.files.done(done);
        self.completed(completion);
    }

    /// Those that wait for a write that fails have been promised nothing; later writes are refused
    /// with the reason.
    fn completed(&mut self, completion: Completion) {
        self.state.background.wake();
        self.state.parked.blocks_came();
        self.state.metrics.queue_files -= 1;
        self.state.metrics.file_operations += 1;
        self.state.metrics.file_errors += u64::from(completion.result.is_err());
        match self.store.complete(completion, self.state.now) {
            Ok(()) => self.release_waiters(),
            Err(error) => self.fail_waiters(&Failure::Server(error.to_string())),
        }
    }

    /// Has somebody told when what he wrote is durable.
    #[inline]
    pub(crate) fn tell_when_durable(&mut self, ticket: Ticket, waiter: Waiter) {
        let begun_ns = self.state.now.monotonic_ns;
        self.state.waiters.push_back(Waiting { ticket, waiter, begun_ns });
    }

    pub(super) fn release_waiters(&mut self) {
        let durable = self.store.durable();
        while let Some(&waiting) = self.state.waiters.front() {
            if waiting.ticket.0 >= durable {
                return;
            }
            self.state.waiters.pop_front();
            self.answered_late(Operation::Write, waiting.begun_ns);
            self.tell(waiting.waiter, Ok(()));
        }
    }

    pub(super) fn fail_waiters(&mut self, failure: &Failure) {
        for waiting in std::mem::take(&mut self.state.waiters) {
            self.tell(waiting.waiter, Err(failure.clone()));
        }
    }

    fn tell(&mut self, waiter: Waiter, result: Result<(), Failure>) {
        match waiter {
            Waiter::Here { conn, reply } => {
                self.state.remote += 1;
                self.written(conn, reply, result);
            }
            Waiter::There(Origin { shard, conn, reply }) => {
                self.post(shard, Message::Written { conn, reply, result });
            }
        }
    }
}
