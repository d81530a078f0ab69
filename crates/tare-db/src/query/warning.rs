//! What an answer warns of beside its result: where Cassandra 4 with its default settings does, in its
//! words, because clients show them and their tests compare them.
//!
//! Limits: Cassandra refuses batches of more than 50 KiB besides, which is a setting of its own; here
//! they are only warned of. It also warns of reads that meet many tombstones.

use tare_cql::frame::insert_warnings;
use tare_cql::response::{Reply, encode_void};

use crate::query::catalog::{Keyspace, Table};
use crate::query::replication::{DATA_CENTER, Replicas};

/// Partitions of an unlogged batch (`unlogged_batch_across_partitions_warn_threshold`).
const PARTITIONS: usize = 10;
/// Bytes of a batch of several partitions (`batch_size_warn_threshold`).
const BATCH_BYTES: usize = 5 << 10;

/// What an answer warns of: nothing, as a rule, which allocates nothing.
pub(crate) type Warnings = Vec<String>;

/// Of a batch that writes so many bytes to so many partitions of these tables.
pub(crate) fn of_batch<'t>(
    unlogged: bool,
    partitions: usize,
    bytes: usize,
    tables: impl Iterator<Item = &'t Table>,
) -> Warnings {
    let mut warnings = Vec::new();
    let (scattered, large) = (unlogged && partitions > PARTITIONS, bytes > BATCH_BYTES);
    if partitions < 2 || !(scattered || large) {
        return warnings;
    }
    let mut names: Vec<String> =
        tables.map(|table| format!("{}.{}", table.keyspace, table.name)).collect();
    names.sort();
    names.dedup();
    let (plural, names) = (if names.len() == 1 { "" } else { "s" }, names.join(", "));
    if large {
        let kib = |bytes: usize| format!("{:.3}KiB", bytes as f64 / 1024.0);
        warnings.push(format!(
            "Batch for [{names}] is of size {}, exceeding specified threshold of {} by {}.",
            kib(bytes),
            kib(BATCH_BYTES),
            kib(bytes - BATCH_BYTES)
        ));
    }
    if scattered {
        warnings.push(format!(
            "Unlogged batch covering {partitions} partitions detected against table{plural} \
             [{names}]. You should use a logged batch for atomicity, or asynchronous writes for \
             performance."
        ));
    }
    warnings
}

/// Of a keyspace that asks for more replicas than there are nodes.
pub(crate) fn of_keyspace(name: &str, keyspace: &Keyspace) -> Warnings {
    let replicas = Replicas::of(&keyspace.replication).here();
    if replicas <= 1 {
        return Vec::new();
    }
    let mut warning = format!(
        "Your replication factor {replicas} for keyspace {name} is higher than the number of nodes 1"
    );
    if keyspace.replication.iter().any(|(key, _)| key == DATA_CENTER) {
        warning += &format!(" for datacenter {DATA_CENTER}");
    }
    vec![warning]
}

/// Puts warnings into the answer that begins at `offset` and is the last of the buffer.
pub(crate) fn put(out: &mut Vec<u8>, offset: usize, warnings: &[String]) {
    let warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
    insert_warnings(out, offset, &warnings);
}

/// Appends the answer to a write.
pub(crate) fn answer_void(out: &mut Vec<u8>, reply: Reply, warnings: &[String]) {
    let offset = out.len();
    encode_void(out, reply);
    put(out, offset, warnings);
}
