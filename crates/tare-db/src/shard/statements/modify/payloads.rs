//! A write to several shards: one payload of a log entry for each of them.

use std::sync::Arc;

use tare_cql::response::Reply;
use tare_store::Mutation;

use crate::query::bind::PartitionKey;
use crate::query::catalog::Table;
use crate::query::failure::Failure;
use crate::query::payload::{append, check_bytes};
use crate::query::read_task::Origin;
use crate::query::read_write::{LateChanges, ReadWrite};
use crate::query::row_change::RowChange;
use crate::query::warning::{self, Warnings, answer_void};
use crate::shard::writes::{MultiShardWrite, WriteClient};
use crate::shard::{Conn, Shard};

/// The payloads of a write, one log entry for each shard.
#[derive(Debug, Default)]
pub(super) struct ShardPayloads {
    parts: Vec<ShardPart>,
    /// The time of the request, once there are changes that need what is stored.
    now_s: u32,
    bytes: usize,
    /// Tokens of the partitions that are written to; one may occur more than once.
    tokens: Vec<i64>,
}

/// The part of one shard.
#[derive(Debug)]
struct ShardPart {
    shard: usize,
    payload: Vec<u8>,
    /// Changes that need what the shard has stored.
    late: LateChanges,
}

impl Shard {
    /// Sends each shard its part. The client is answered when all of them have it.
    pub(super) fn write_payloads(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        payloads: ShardPayloads,
        warnings: Warnings,
    ) -> Result<(), Failure> {
        self.telemetry.counters.writes += 1;
        let mut write = MultiShardWrite { shards_left: 0, failure: None, warnings };
        for ShardPart { shard, payload, late } in payloads.parts {
            if !late.is_empty() {
                let origin = Origin { shard: self.number, conn: conn.id, reply };
                let (begun_ns, now_s) = (self.now.monotonic_ns, payloads.now_s);
                let part = ReadWrite { origin, begun_ns, now_s, payload, changes: late };
                match self.begin_read_write(shard, Box::new(part)) {
                    Ok(is_done) => write.shards_left += usize::from(!is_done),
                    Err(failure) => write.failure = Some(failure),
                }
                continue;
            }
            if shard != self.number {
                write.shards_left += 1;
                self.send_write(conn, reply, shard, payload);
                continue;
            }
            match self.store.write_payload(&payload) {
                Ok(ticket) => {
                    if !self.acknowledge(ticket, WriteClient::Local { conn: conn.id, reply }) {
                        write.shards_left += 1;
                    }
                }
                Err(error) => write.failure = Some(error.into()),
            }
        }
        match write.shards_left {
            0 => match write.failure {
                Some(failure) => return Err(failure),
                None => answer_void(&mut conn.out, reply, &write.warnings),
            },
            // The only answer to come is that of the whole write.
            1 if write.failure.is_none() && write.warnings.is_empty() => {}
            _ => {
                self.writes.insert_multi_shard(conn.id, reply, write);
            }
        }
        Ok(())
    }
}

impl ShardPayloads {
    /// Notes the token of a partition that is written to.
    pub(super) fn note_partition(&mut self, token: i64) {
        self.tokens.push(token);
    }

    /// The warnings for a batch that consists of these writes.
    pub(super) fn warnings<'t>(
        &mut self,
        unlogged: bool,
        tables: impl Iterator<Item = &'t Table>,
    ) -> Warnings {
        self.tokens.sort_unstable();
        self.tokens.dedup();
        warning::of_batch(unlogged, self.tokens.len(), self.bytes, tables)
    }

    pub(super) fn add(&mut self, shard: usize, mutation: &Mutation<'_>) -> Result<(), Failure> {
        let bytes = append(&mut self.part(shard).payload, mutation)?;
        self.bytes += bytes;
        check_bytes(self.bytes)
    }

    /// Adds a change that needs what the shard has stored.
    pub(super) fn add_late(
        &mut self,
        shard: usize,
        (table, key): (&Arc<Table>, &PartitionKey),
        change: RowChange,
        now_s: u32,
    ) -> Result<(), Failure> {
        self.now_s = now_s;
        self.bytes += self.part(shard).late.add(table, key, change)?;
        check_bytes(self.bytes)
    }

    fn part(&mut self, shard: usize) -> &mut ShardPart {
        let at = match self.parts.iter().position(|known| known.shard == shard) {
            Some(at) => at,
            None => {
                let (payload, late) = (Vec::new(), LateChanges::default());
                self.parts.push(ShardPart { shard, payload, late });
                self.parts.len() - 1
            }
        };
        &mut self.parts[at]
    }
}
