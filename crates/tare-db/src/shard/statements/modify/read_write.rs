//! Runs writes that read before: `query::read_write` says how.

use tare_store::{Pins, Ticket};

use crate::node::config::Durability;
use crate::node::metrics::Operation;
use crate::query::failure::Failure;
use crate::query::read_task::Origin;
use crate::query::read_write::ReadWrite;
use crate::shard::Shard;
use crate::shard::message::Message;
use crate::shard::reads::Suspended;
use crate::shard::writes::WriteClient;

impl Shard {
    /// Begins a write at its shard. Returns whether it is done; otherwise its client is answered
    /// later.
    pub(super) fn begin_read_write(
        &mut self,
        shard: usize,
        write: Box<ReadWrite>,
    ) -> Result<bool, Failure> {
        if shard != self.number {
            self.post(shard, Message::ReadWrite(write));
            self.connections.unanswered += 1;
            return Ok(false);
        }
        let mut pins = Vec::new();
        let Some(ticket) = self.try_read_write(&write, &mut pins)? else {
            self.suspend(Suspended::ReadWrite(write, pins))?;
            self.connections.unanswered += 1;
            return Ok(false);
        };
        let Origin { conn, reply, .. } = write.origin;
        Ok(self.acknowledge(ticket, WriteClient::Local { conn, reply }))
    }

    /// Tries a write that waited, or that has come from another shard.
    pub(crate) fn advance_read_write(&mut self, write: Box<ReadWrite>, mut pins: Vec<Pins>) {
        self.refresh();
        let (origin, begun_ns) = (write.origin, write.begun_ns);
        let result = match self.try_read_write(&write, &mut pins) {
            Ok(Some(ticket)) if self.settings.durability == Durability::Sync => {
                return self.answer_durable_write(ticket, origin, begun_ns);
            }
            Ok(Some(_)) => {
                self.telemetry.answered_late(self.clock, Operation::Write, begun_ns);
                Ok(())
            }
            Ok(None) => match self.suspend(Suspended::ReadWrite(write, pins)) {
                Ok(()) => return,
                Err(failure) => Err(failure),
            },
            Err(failure) => Err(failure),
        };
        let Origin { shard, conn, reply } = origin;
        match shard == self.number {
            true => self.written(conn, reply, result),
            false => self.post(shard, Message::Written { conn, reply, result }),
        }
    }

    fn answer_durable_write(&mut self, ticket: Ticket, origin: Origin, begun_ns: u64) {
        let Origin { shard, conn, reply } = origin;
        let client = if shard == self.number {
            // It counts again when it is answered.
            self.connections.unanswered -= 1;
            WriteClient::Local { conn, reply }
        } else {
            WriteClient::Remote(origin)
        };
        self.answer_when_durable_since(ticket, client, begun_ns);
    }

    /// Reads and writes without anything between. Returns nothing if blocks are missing; then
    /// nothing was written.
    fn try_read_write(
        &mut self,
        write: &ReadWrite,
        pins: &mut Vec<Pins>,
    ) -> Result<Option<Ticket>, Failure> {
        let Some(found) = write.read(&mut self.store, pins)? else { return Ok(None) };
        let timestamp = match write.is_counter() {
            true => self.timestamp().max(found.latest.saturating_add(1)),
            false => 0,
        };
        let payload = write.payload(&found, timestamp)?;
        Ok(Some(self.store.write_payload(&payload)?))
    }
}
