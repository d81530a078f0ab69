//! Messages between a shard and its siblings. What a sibling's queue does not take waits in an
//! outbox; how much waits there is bounded, because clients' requests wait above [`OUTBOX_MAX`].

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use tare_cql::response::Reply;

use crate::net::reactor::ConnId;
use crate::query::failure::Failure;
use crate::query::warning::answer_void;
use crate::shard::Shard;
use crate::shard::mailbox::{MESSAGES_MAX, Mailbox};
use crate::shard::message::Message;

/// Messages waiting for siblings, above which all clients' requests wait.
pub(super) const OUTBOX_MAX: usize = 1024;
/// Messages that a shard handles in one iteration of the loop.
const MESSAGES_PER_TURN: usize = 256;

/// A shard's side of the queues between shards.
#[derive(Debug)]
pub(crate) struct Siblings {
    messages: Receiver<Message>,
    /// Messages that wait for room in the queue of a sibling, by shard.
    outboxes: Vec<VecDeque<Message>>,
    waiting: usize,
}

impl Siblings {
    pub(crate) fn new(messages: Receiver<Message>, shards: usize) -> Self {
        let outboxes = std::iter::repeat_with(VecDeque::new).take(shards).collect();
        Self { messages, outboxes, waiting: 0 }
    }

    /// Number of messages that wait for room.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    fn post(&mut self, mailbox: &Mailbox<Message>, shard: usize, message: Message) {
        let outbox = &mut self.outboxes[shard];
        let message = match outbox.is_empty() {
            true => match mailbox.post(message) {
                Ok(()) => return,
                Err(message) => message,
            },
            false => message,
        };
        outbox.push_back(message);
        self.waiting += 1;
    }

    /// Posts what waits, as far as there is room. Returns whether anything was posted.
    pub(super) fn flush(&mut self, mailboxes: &[Mailbox<Message>]) -> bool {
        if self.waiting == 0 {
            return false;
        }
        let before = self.waiting;
        for (outbox, mailbox) in self.outboxes.iter_mut().zip(mailboxes) {
            while let Some(message) = outbox.pop_front() {
                if let Err(message) = mailbox.post(message) {
                    outbox.push_front(message);
                    break;
                }
                self.waiting -= 1;
            }
        }
        self.waiting < before
    }
}

impl Shard {
    /// Sends a message to a sibling, now or when it has room.
    pub(crate) fn post(&mut self, shard: usize, message: Message) {
        self.siblings.post(&self.shared.mailboxes[shard], shard, message);
    }

    /// Handles messages from siblings. Returns whether there were any.
    pub(super) fn receive(&mut self) -> bool {
        if self.shared.mailboxes.len() == 1 && self.shared.logins.is_none() {
            return false;
        }
        // Messages wait too; when the queues are full, the clients of the siblings wait as well.
        if self.background.full {
            return false;
        }
        let mut received = 0;
        while received < MESSAGES_PER_TURN.min(MESSAGES_MAX) {
            let Ok(message) = self.siblings.messages.try_recv() else { break };
            received += 1;
            match message {
                Message::Connection(fd) => self.adopt(fd),
                Message::Write { origin, payload } => self.write_for(origin, &payload),
                Message::Written { conn, reply, result } => self.written(conn, reply, result),
                Message::LoggedIn { conn, reply, result } => self.logged_in(conn, reply, result),
                Message::Read(task) => self.take_over(task),
                Message::Conditional(write) => self.advance_conditional(write, Vec::new()),
                Message::ReadWrite(write) => self.advance_read_write(write, Vec::new()),
                Message::Answer { conn, frame } => self.answer(conn, &frame),
                Message::SchemaEvent(frame) => self.connections.push_schema_event(&frame),
            }
        }
        received > 0
    }

    /// Answers a client whose write, or a part of it, has been done or has failed.
    pub(super) fn written(&mut self, id: ConnId, reply: Reply, result: Result<(), Failure>) {
        self.connections.unanswered -= 1;
        let Some(result) = self.writes.settle(id, reply, result) else { return };
        if result.is_err() {
            self.telemetry.counters.errors += 1;
        }
        if let Some(conn) = self.connections.get_mut(id) {
            match result {
                Ok(warnings) => answer_void(&mut conn.out, reply, &warnings),
                Err(failure) => failure.encode(&mut conn.out, reply),
            }
            self.connections.mark_dirty(id);
        }
    }

    fn answer(&mut self, id: ConnId, frame: &[u8]) {
        self.connections.unanswered -= 1;
        if let Some(conn) = self.connections.get_mut(id) {
            conn.out.extend_from_slice(frame);
            self.connections.mark_dirty(id);
        }
    }
}
