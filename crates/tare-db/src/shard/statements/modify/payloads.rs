//! A write to several shards: one payload of a log entry for each of them.

use tare_cql::response::Reply;
use tare_store::Mutation;
use tare_store::entry::{KEY_BYTES_MAX, encode_payload, payload_bytes};

use crate::query::catalog::Table;
use crate::query::failure::Failure;
use crate::query::warning::{self, Warnings, answer_void};
use crate::shard::writes::{MultiShardWrite, WriteClient};
use crate::shard::{Conn, Shard};

/// Bytes of mutations that one statement or batch may have: half a segment of the commit log, as in
/// Cassandra. A request cannot hold more either.
const WRITE_BYTES_MAX: usize = 16 << 20;

/// The payloads of a write, one log entry for each shard.
#[derive(Debug, Default)]
pub(super) struct ShardPayloads {
    by_shard: Vec<(usize, Vec<u8>)>,
    bytes: usize,
    /// Tokens of the partitions that are written to; one may occur more than once.
    tokens: Vec<i64>,
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
        for (shard, payload) in payloads.by_shard {
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
        let at = match self.by_shard.iter().position(|(known, _)| *known == shard) {
            Some(at) => at,
            None => {
                self.by_shard.push((shard, Vec::new()));
                self.by_shard.len() - 1
            }
        };
        self.bytes += append(&mut self.by_shard[at].1, mutation)?;
        check_bytes(self.bytes)
    }
}

/// Refuses a write that is too large.
pub(super) fn check_bytes(bytes: usize) -> Result<(), Failure> {
    if bytes > WRITE_BYTES_MAX {
        return Err(Failure::Invalid(format!(
            "Batch too large: its writes are more than {WRITE_BYTES_MAX} bytes"
        )));
    }
    Ok(())
}

/// Appends a mutation to the payload of a log entry. Returns the number of bytes that it added.
pub(super) fn append(payload: &mut Vec<u8>, mutation: &Mutation<'_>) -> Result<usize, Failure> {
    let bytes = mutation.longest_key_bytes();
    if bytes > KEY_BYTES_MAX {
        return Err(Failure::Invalid(format!(
            "Key length of {bytes} is longer than maximum of {KEY_BYTES_MAX}"
        )));
    }
    let mutations = std::slice::from_ref(mutation);
    let (from, bytes) = (payload.len(), payload_bytes(mutations));
    payload.resize(from + bytes, 0);
    encode_payload(mutations, &mut payload[from..]);
    Ok(bytes)
}
