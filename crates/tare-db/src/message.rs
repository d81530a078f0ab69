//! What shards say to each other.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tare_cql::response::Reply;

use crate::failure::Failure;
use crate::plan::Prepared;
use crate::reactor::ConnId;
use crate::rows::{Collected, Cursor};

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
    /// A partition to read.
    Read(Box<Read>),
    /// A finished frame: the answer to `Read` and `Scan`.
    Answer { conn: ConnId, frame: Vec<u8> },
    /// A scan that has come to this shard.
    Scan(Box<Scan>),
    /// Something to tell to clients that registered for changes of the schema, in version 4.
    SchemaEvent(Arc<[u8]>),
}

/// How much of a result is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Paging {
    pub(crate) after: Option<Cursor>,
    /// Rows in this answer at most.
    pub(crate) page: u64,
    /// Rows that LIMIT still allows, this page included.
    pub(crate) left: u64,
    /// Whether the client can ask for more; else what does not fit is an error.
    pub(crate) pages: bool,
}

/// A read of one partition.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) origin: Origin,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) token: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) clustering: Vec<u8>,
    pub(crate) paging: Paging,
}

/// A read of all partitions, on its way from shard to shard with what it has found.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) origin: Origin,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) paging: Paging,
    pub(crate) found: Collected,
    pub(crate) shard: usize,
}
