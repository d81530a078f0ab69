//! The shard's log: when it is written and synced, and who is told.

use std::io;

use tare_store::chunk::Chunk;
use tare_store::{Completion, Files, Op, OpKind};

use crate::failure::Failure;
use crate::message::{Message, Origin};
use crate::reactor::Job;
use crate::shard::{Shard, Waiter};

impl Shard {
    /// Carries out what the store wants done. Writes of the log go to the engine; the rest is rare
    /// and is done at once.
    pub(super) fn pump_store(&mut self) -> bool {
        let mut worked = false;
        let now = self.clock.now();
        loop {
            let Some(op) = self.store.next_op(now) else { return worked };
            worked = true;
            let (chunk, offset, sync, op) = match op {
                Op { id, file, kind: OpKind::Write { offset, chunk, sync } } => {
                    (Some(chunk), offset, sync, (id, file))
                }
                Op { id, file, kind: OpKind::Sync } => (None, 0, true, (id, file)),
                op => {
                    let completion = self.files.carry_out(op);
                    self.completed(completion);
                    continue;
                }
            };
            let (id, file) = op;
            match self.files.open(file) {
                Ok(file) => self.engine.log(Job { id, offset, chunk, sync }, file),
                Err(error) => self.completed(Completion { id, chunk, result: Err(error) }),
            }
        }
    }

    pub(super) fn log_done(&mut self, job: Job, result: io::Result<()>) {
        let length = job.chunk.as_ref().map_or(0, Chunk::len);
        let result = result.map(|()| length);
        self.completed(Completion { id: job.id, chunk: job.chunk, result });
    }

    /// Those that wait for a write that fails have been promised nothing; later writes are refused
    /// with the reason.
    fn completed(&mut self, completion: Completion) {
        let now = self.clock.now();
        match self.store.complete(completion, now) {
            Ok(()) => self.release_waiters(),
            Err(error) => self.fail_waiters(&Failure::Server(error.to_string())),
        }
    }

    pub(super) fn release_waiters(&mut self) {
        let durable = self.store.durable();
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
