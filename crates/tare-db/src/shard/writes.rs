//! Writes under way: those that wait until they are durable, those that several shards share, and
//! the file operations that the store asks for.

use std::collections::{BTreeMap, VecDeque};

use tare_cql::response::Reply;
use tare_store::{Completion, Ticket};

use crate::net::reactor::ConnId;
use crate::node::clock::Clock;
use crate::node::directory::FileDone;
use crate::node::metrics::Operation;
use crate::query::failure::Failure;
use crate::query::read_task::Origin;
use crate::query::warning::Warnings;
use crate::shard::Shard;
use crate::shard::message::Message;

/// The client that a write is answered to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteClient {
    /// A client of this shard.
    Local { conn: ConnId, reply: Reply },
    /// A client of a sibling.
    Remote(Origin),
}

/// A write that is answered when it is durable.
#[derive(Clone, Copy, Debug)]
struct PendingWrite {
    ticket: Ticket,
    client: WriteClient,
    begun_ns: u64,
}

/// A write to several shards that is not answered yet.
#[derive(Debug)]
pub(crate) struct MultiShardWrite {
    /// Shards that have not answered.
    pub(crate) shards_left: usize,
    pub(crate) failure: Option<Failure>,
    pub(crate) warnings: Warnings,
}

/// The answer to a write with conditions, which is sent when the write is durable.
#[derive(Debug)]
struct LateAnswer {
    ticket: Ticket,
    origin: Origin,
    frame: Vec<u8>,
    begun_ns: u64,
}

/// The writes under way.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// Writes that wait until they are durable, oldest first.
    pending: VecDeque<PendingWrite>,
    /// Answers to writes with conditions, oldest first.
    late: VecDeque<LateAnswer>,
    /// Writes to several shards, by connection and stream.
    multi_shard: BTreeMap<(ConnId, i16), MultiShardWrite>,
    /// The latest timestamp that this shard has given to a write, in microseconds.
    last_timestamp: i64,
}

impl Writes {
    /// Number of writes that wait until they are durable.
    pub(super) fn pending(&self) -> usize {
        self.pending.len() + self.late.len()
    }

    /// A timestamp for a write, in microseconds. A shard gives none twice.
    #[inline]
    pub(crate) fn next_timestamp(&mut self, clock: Clock) -> i64 {
        self.last_timestamp = clock.wall_us().max(self.last_timestamp + 1);
        self.last_timestamp
    }

    /// Keeps a write until all its shards have answered.
    pub(crate) fn insert_multi_shard(
        &mut self,
        conn: ConnId,
        reply: Reply,
        write: MultiShardWrite,
    ) {
        self.multi_shard.insert((conn, reply.head.stream), write);
    }

    /// Takes the answer of one shard to a write. Returns the result of the whole write, with its
    /// warnings, once all its shards have answered.
    #[inline]
    pub(super) fn settle(
        &mut self,
        conn: ConnId,
        reply: Reply,
        result: Result<(), Failure>,
    ) -> Option<Result<Warnings, Failure>> {
        let single = |result: Result<(), Failure>| Some(result.map(|()| Warnings::new()));
        if self.multi_shard.is_empty() {
            return single(result);
        }
        let key = (conn, reply.head.stream);
        let Some(write) = self.multi_shard.get_mut(&key) else { return single(result) };
        write.shards_left -= 1;
        if let Err(failure) = result {
            write.failure.get_or_insert(failure);
        }
        if write.shards_left > 0 {
            return None;
        }
        let write = self.multi_shard.remove(&key)?;
        Some(write.failure.map_or(Ok(write.warnings), Err))
    }

    /// The oldest pending write, if all entries below `durable` are durable and it is one of them.
    fn pop_durable(&mut self, durable: u64) -> Option<PendingWrite> {
        self.pending.pop_front_if(|write| write.ticket.0 < durable)
    }
}

impl Shard {
    /// Hands the operations that the store asks for to the engine, as many as it takes.
    pub(super) fn pump_store(&mut self) -> bool {
        let mut worked = false;
        while self.engine.has_file_room() {
            let Some(op) = self.store.next_op(self.now) else { break };
            worked = true;
            self.telemetry.counters.queue_files += 1;
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

    /// Takes back an operation that the engine has carried out.
    pub(super) fn file_done(&mut self, done: FileDone) {
        let completion = self.files.done(done);
        self.completed(completion);
    }

    /// When a write to the log fails, the pending writes fail, and the store refuses later ones
    /// with the same reason.
    fn completed(&mut self, completion: Completion) {
        self.background.wake();
        let counters = &mut self.telemetry.counters;
        counters.queue_files -= 1;
        counters.file_operations += 1;
        counters.file_errors += u64::from(completion.result.is_err());
        let completed = self.store.complete(completion, self.now);
        self.reads.wake(self.store.take_woken());
        match completed {
            Ok(()) => self.answer_durable(),
            Err(error) => self.fail_pending(&Failure::Server(error.to_string())),
        }
    }

    /// Answers a write to its client when it is durable.
    #[inline]
    pub(crate) fn answer_when_durable(&mut self, ticket: Ticket, client: WriteClient) {
        self.answer_when_durable_since(ticket, client, self.now.monotonic_ns);
    }

    /// Answers a write, whose request came at this time in ns, to its client when it is durable.
    #[inline]
    pub(crate) fn answer_when_durable_since(
        &mut self,
        ticket: Ticket,
        client: WriteClient,
        begun_ns: u64,
    ) {
        self.writes.pending.push_back(PendingWrite { ticket, client, begun_ns });
    }

    /// Sends an answer when the write of the ticket is durable.
    pub(crate) fn answer_late(
        &mut self,
        ticket: Ticket,
        origin: Origin,
        frame: Vec<u8>,
        begun_ns: u64,
    ) {
        self.writes.late.push_back(LateAnswer { ticket, origin, frame, begun_ns });
    }

    fn answer_durable(&mut self) {
        let durable = self.store.durable();
        while let Some(write) = self.writes.pop_durable(durable) {
            self.telemetry.answered_late(self.clock, Operation::Write, write.begun_ns);
            self.answer_write(write.client, Ok(()));
        }
        while let Some(answer) = self.writes.late.pop_front_if(|late| late.ticket.0 < durable) {
            self.telemetry.answered_late(self.clock, Operation::Write, answer.begun_ns);
            self.deliver(answer.origin, |out| out.extend_from_slice(&answer.frame));
        }
    }

    fn fail_pending(&mut self, failure: &Failure) {
        for write in std::mem::take(&mut self.writes.pending) {
            self.answer_write(write.client, Err(failure.clone()));
        }
        for LateAnswer { origin, .. } in std::mem::take(&mut self.writes.late) {
            self.telemetry.counters.errors += 1;
            self.deliver(origin, |out| failure.encode(out, origin.reply));
        }
    }

    fn answer_write(&mut self, client: WriteClient, result: Result<(), Failure>) {
        match client {
            WriteClient::Local { conn, reply } => {
                self.connections.unanswered += 1;
                self.written(conn, reply, result);
            }
            WriteClient::Remote(Origin { shard, conn, reply }) => {
                self.post(shard, Message::Written { conn, reply, result });
            }
        }
    }
}
