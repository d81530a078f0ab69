//! What shards say to each other.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tare_cql::response::Reply;

use crate::net::reactor::ConnId;
use crate::query::failure::Failure;
use crate::query::read_task::ReadTask;

/// Who is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) shard: usize,
    pub(crate) conn: ConnId,
    pub(crate) reply: Reply,
}

/// A message to a shard.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection that was accepted for it.
    Connection(OwnedFd),
    /// Mutations to write: the payload of a log entry.
    Write { origin: Origin, payload: Vec<u8> },
    /// The answer to `Write`.
    Written { conn: ConnId, reply: Reply, result: Result<(), Failure> },
    /// Whether a login was right.
    LoggedIn { conn: ConnId, reply: Reply, result: Result<(), Failure> },
    /// A reading that goes on at this shard.
    Read(Box<ReadTask>),
    /// A finished frame: the answer to `Read`.
    Answer { conn: ConnId, frame: Vec<u8> },
    /// Something to tell to clients that registered for changes of the schema, in version 4.
    SchemaEvent(Arc<[u8]>),
}
