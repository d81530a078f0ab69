//! The payload of a log entry: mutations for one shard.

use tare_store::Mutation;
use tare_store::entry::{KEY_BYTES_MAX, encode_payload, payload_bytes};

use crate::query::failure::Failure;

/// Bytes of mutations that one statement or batch may have: half a segment of the commit log, as in
/// Cassandra. A request cannot hold more either.
const WRITE_BYTES_MAX: usize = 16 << 20;

/// Refuses a write that is too large.
pub(crate) fn check_bytes(bytes: usize) -> Result<(), Failure> {
    if bytes > WRITE_BYTES_MAX {
        return Err(Failure::Invalid(format!(
            "Batch too large: its writes are more than {WRITE_BYTES_MAX} bytes"
        )));
    }
    Ok(())
}

/// Appends a mutation to the payload of a log entry. Returns the number of bytes that it added.
pub(crate) fn append(payload: &mut Vec<u8>, mutation: &Mutation<'_>) -> Result<usize, Failure> {
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
