//! The messages between shards.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tare_cql::response::Reply;

use crate::net::reactor::ConnId;
use crate::query::conditional::ConditionalWrite;
use crate::query::failure::Failure;
use crate::query::read_task::{Origin, ReadTask};
use crate::query::read_write::ReadWrite;

/// A message to a shard.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection that a sibling has accepted for this shard.
    Connection(OwnedFd),
    /// Mutations to write: the payload of a log entry.
    Write { origin: Origin, payload: Vec<u8> },
    /// The answer to `Write` or `ReadWrite`.
    Written { conn: ConnId, reply: Reply, result: Result<(), Failure> },
    /// The result of a login.
    LoggedIn { conn: ConnId, reply: Reply, result: Result<(), Failure> },
    /// A read that goes on at this shard.
    Read(Box<ReadTask>),
    /// A write with conditions on a partition of this shard.
    Conditional(Box<ConditionalWrite>),
    /// A write that reads before; its answer is `Written`.
    ReadWrite(Box<ReadWrite>),
    /// The answer to `Read` or `Conditional`, as a finished frame.
    Answer { conn: ConnId, frame: Vec<u8> },
    /// An event for clients that registered for changes of the schema, in version 4.
    SchemaEvent(Arc<[u8]>),
}
