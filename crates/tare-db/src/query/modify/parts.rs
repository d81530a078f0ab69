//! A write to several shards: a payload of a log entry for each, and the answer when all have it.

use tare_cql::response::Reply;
use tare_store::Mutation;
use tare_store::entry::{KEY_BYTES_MAX, encode_payload, payload_bytes};

use crate::net::reactor::ConnId;
use crate::query::catalog::Table;
use crate::query::failure::Failure;
use crate::query::warning::{self, Warnings, answer_void};
use crate::shard::{Conn, Shard, Waiter};

/// Bytes of mutations of one statement or batch at most: half a segment of the commit log, as in
/// Cassandra, where a request can hold no more either.
const WRITE_BYTES_MAX: usize = 16 << 20;

/// Payloads of log entries by the shard that they are for.
#[derive(Debug, Default)]
pub(super) struct Parts {
    payloads: Vec<(usize, Vec<u8>)>,
    bytes: usize,
    /// Of the partitions that are written to, as often as that is said.
    tokens: Vec<i64>,
}

/// A write to several shards that is not answered yet.
#[derive(Debug)]
pub(crate) struct Joint {
    /// Shards that have not answered.
    left: usize,
    failure: Option<Failure>,
    warnings: Warnings,
}

impl Shard {
    /// Sends its part to each shard; the client is answered when all have it.
    pub(super) fn write_parts(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        parts: Parts,
        warnings: Warnings,
    ) -> Result<(), Failure> {
        self.state.metrics.writes += 1;
        let mut joint = Joint { left: 0, failure: None, warnings };
        for (shard, payload) in parts.payloads {
            if shard != self.number {
                joint.left += 1;
                self.send_write(conn, reply, shard, payload);
                continue;
            }
            match self.store.write_payload(&payload) {
                Ok(ticket) => {
                    if !self.acknowledge(ticket, Waiter::Here { conn: conn.id, reply }) {
                        joint.left += 1;
                    }
                }
                Err(error) => joint.failure = Some(error.into()),
            }
        }
        match joint.left {
            0 => match joint.failure {
                Some(failure) => return Err(failure),
                None => answer_void(&mut conn.out, reply, &joint.warnings),
            },
            // The one answer that is awaited is that of the whole.
            1 if joint.failure.is_none() && joint.warnings.is_empty() => {}
            _ => {
                self.state.joints.insert((conn.id, reply.head.stream), joint);
            }
        }
        Ok(())
    }

    /// Takes a shard's answer to a part of a write. The result of the whole, when it is the last, with
    /// what it warns of.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        conn: ConnId,
        reply: Reply,
        result: Result<(), Failure>,
    ) -> Option<Result<Warnings, Failure>> {
        let alone = |result: Result<(), Failure>| Some(result.map(|()| Warnings::new()));
        if self.state.joints.is_empty() {
            return alone(result);
        }
        let place = (conn, reply.head.stream);
        let Some(joint) = self.state.joints.get_mut(&place) else { return alone(result) };
        joint.left -= 1;
        if let Err(failure) = result {
            joint.failure.get_or_insert(failure);
        }
        if joint.left > 0 {
            return None;
        }
        let joint = self.state.joints.remove(&place)?;
        Some(joint.failure.map_or(Ok(joint.warnings), Err))
    }
}

impl Parts {
    /// Notes that a partition is written to.
    pub(super) fn touch(&mut self, token: i64) {
        self.tokens.push(token);
    }

    /// What the batch that these are all writes of is warned of.
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
        let at = match self.payloads.iter().position(|(known, _)| *known == shard) {
            Some(at) => at,
            None => {
                self.payloads.push((shard, Vec::new()));
                self.payloads.len() - 1
            }
        };
        self.bytes += append(&mut self.payloads[at].1, mutation)?;
        if self.bytes > WRITE_BYTES_MAX {
            return Err(Failure::Invalid(format!(
                "Batch too large: its writes are more than {WRITE_BYTES_MAX} bytes"
            )));
        }
        Ok(())
    }
}

/// Appends a mutation to the payload of a log entry and returns by how many bytes.
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
