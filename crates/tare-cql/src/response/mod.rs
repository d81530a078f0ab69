//! Responses, which the server encodes and the client decodes (section 4.2 of the specification).

mod error;
mod rows;

pub use error::{ErrorBody, ErrorKind, Failures, encode_error};
pub use rows::{
    Cells, Column, ColumnSpec, Columns, EncodedColumns, Metadata, Prepared, Row, RowIter, Rows,
    RowsWriter, encode_prepared,
};

use crate::frame::{Direction, Frame, FrameStart, Head, Opcode, Version};
use crate::request::Settings;
use crate::wire::{
    DecodeError, Reader, StringMultimap, put_bytes, put_inet, put_int, put_short, put_string,
    put_string_list,
};
use std::net::SocketAddr;

/// Kinds of RESULT.
mod kind {
    pub(super) const VOID: i32 = 1;
    pub(super) const ROWS: i32 = 2;
    pub(super) const SET_KEYSPACE: i32 = 3;
    pub(super) const PREPARED: i32 = 4;
    pub(super) const SCHEMA_CHANGE: i32 = 5;
}

/// The form of an answer: its version and stream, and how much metadata about the columns of the
/// result the client needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    pub head: Head,
    pub columns: ResultMetadata,
}

/// The metadata about the columns in a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResultMetadata {
    /// Names and types.
    #[default]
    Full,
    /// Only their number: the client knows the rest and asked to omit it.
    Omitted,
    /// Names and types, and a note that they differ from those that the client knows (version 5).
    Changed,
}

impl Reply {
    /// The reply to a frame, with full metadata.
    #[inline]
    pub fn to(frame: &Frame<'_>) -> Self {
        Self::from(Head { version: frame.version, stream: frame.stream })
    }

    /// The same reply for a client that knows the columns as `settings` say.
    #[inline]
    #[must_use]
    pub fn metadata_for(self, settings: &Settings<'_>, columns: &EncodedColumns) -> Self {
        let columns = match settings.result_id {
            Some(known) if known != columns.id() => ResultMetadata::Changed,
            _ if settings.skip_metadata => ResultMetadata::Omitted,
            _ => ResultMetadata::Full,
        };
        Self { columns, ..self }
    }
}

impl From<Head> for Reply {
    #[inline]
    fn from(head: Head) -> Self {
        Self { head, columns: ResultMetadata::Full }
    }
}

/// A reply on a stream of version 4.
impl From<i16> for Reply {
    #[inline]
    fn from(stream: i16) -> Self {
        Self::from(Head::from(stream))
    }
}

impl From<Reply> for Head {
    #[inline]
    fn from(reply: Reply) -> Self {
        reply.head
    }
}

/// A response, borrowed from its frame.
#[derive(Debug, Clone)]
pub enum Response<'a> {
    Error(ErrorBody<'a>),
    Ready,
    Authenticate { class: &'a str },
    AuthChallenge { token: Option<&'a [u8]> },
    AuthSuccess { token: Option<&'a [u8]> },
    Supported { options: StringMultimap<'a> },
    Void,
    Rows(Rows<'a>),
    SetKeyspace { keyspace: &'a str },
    Prepared(Prepared<'a>),
    SchemaChange(SchemaChange<'a>),
    Event(Event<'a>),
}

impl<'a> Response<'a> {
    /// Decodes the body of a frame.
    #[inline]
    pub fn decode(frame: &Frame<'a>) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(frame.body);
        let response = match frame.opcode {
            Opcode::Result => match reader.int("kind of result")? {
                kind::VOID => Self::Void,
                kind::ROWS => return Rows::decode(reader).map(Self::Rows),
                kind::SET_KEYSPACE => Self::SetKeyspace { keyspace: reader.string("keyspace")? },
                kind::PREPARED => Self::Prepared(Prepared::decode(&mut reader, frame.version)?),
                kind::SCHEMA_CHANGE => Self::SchemaChange(SchemaChange::decode(&mut reader)?),
                code => {
                    return Err(DecodeError::Unknown {
                        what: "kind of result",
                        code: code.cast_unsigned(),
                    });
                }
            },
            // Newer servers append to some errors; the known part has been read.
            Opcode::Error => return ErrorBody::decode(&mut reader, frame.version).map(Self::Error),
            Opcode::Ready => Self::Ready,
            Opcode::Authenticate => Self::Authenticate { class: reader.string("authenticator")? },
            Opcode::AuthChallenge => {
                Self::AuthChallenge { token: reader.bytes("authentication token")? }
            }
            Opcode::AuthSuccess => {
                Self::AuthSuccess { token: reader.bytes("authentication token")? }
            }
            Opcode::Supported => {
                Self::Supported { options: reader.string_multimap("supported options")? }
            }
            Opcode::Event => Self::Event(Event::decode(&mut reader)?),
            opcode => return Err(DecodeError::Opcode { opcode }),
        };
        reader.end()?;
        Ok(response)
    }
}

/// A change of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaChange<'a> {
    pub change: Change,
    pub target: SchemaTarget<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Created,
    Updated,
    Dropped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaTarget<'a> {
    Keyspace { keyspace: &'a str },
    Table { keyspace: &'a str, table: &'a str },
    Type { keyspace: &'a str, name: &'a str },
}

impl Change {
    const NAMES: [(&'static str, Self); 3] =
        [("CREATED", Self::Created), ("UPDATED", Self::Updated), ("DROPPED", Self::Dropped)];

    fn name(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Updated => "UPDATED",
            Self::Dropped => "DROPPED",
        }
    }
}

impl<'a> SchemaChange<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let change = by_name(reader.string("schema change")?, "schema change", &Change::NAMES)?;
        let target = reader.string("target of a schema change")?;
        let keyspace = reader.string("keyspace")?;
        let target = match target {
            "KEYSPACE" => SchemaTarget::Keyspace { keyspace },
            "TABLE" => SchemaTarget::Table { keyspace, table: reader.string("table")? },
            "TYPE" => SchemaTarget::Type { keyspace, name: reader.string("name of a type")? },
            _ => {
                return Err(DecodeError::Unknown { what: "target of a schema change", code: 0 });
            }
        };
        Ok(Self { change, target })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_string(out, self.change.name());
        match self.target {
            SchemaTarget::Keyspace { keyspace } => {
                put_string(out, "KEYSPACE");
                put_string(out, keyspace);
            }
            SchemaTarget::Table { keyspace, table } => {
                put_string(out, "TABLE");
                put_string(out, keyspace);
                put_string(out, table);
            }
            SchemaTarget::Type { keyspace, name } => {
                put_string(out, "TYPE");
                put_string(out, keyspace);
                put_string(out, name);
            }
        }
    }
}

/// An event that a client has registered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    Topology { change: TopologyChange, node: SocketAddr },
    Status { change: StatusChange, node: SocketAddr },
    Schema(SchemaChange<'a>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyChange {
    NewNode,
    RemovedNode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusChange {
    Up,
    Down,
}

impl<'a> Event<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        const TOPOLOGY: [(&str, TopologyChange); 2] =
            [("NEW_NODE", TopologyChange::NewNode), ("REMOVED_NODE", TopologyChange::RemovedNode)];
        const STATUS: [(&str, StatusChange); 2] =
            [("UP", StatusChange::Up), ("DOWN", StatusChange::Down)];
        match reader.string("type of event")? {
            "SCHEMA_CHANGE" => SchemaChange::decode(reader).map(Self::Schema),
            "TOPOLOGY_CHANGE" => Ok(Self::Topology {
                change: by_name(reader.string("topology change")?, "topology change", &TOPOLOGY)?,
                node: reader.inet("node")?,
            }),
            "STATUS_CHANGE" => Ok(Self::Status {
                change: by_name(reader.string("status change")?, "status change", &STATUS)?,
                node: reader.inet("node")?,
            }),
            _ => Err(DecodeError::Unknown { what: "type of event", code: 0 }),
        }
    }
}

fn by_name<T: Copy>(name: &str, what: &'static str, known: &[(&str, T)]) -> Result<T, DecodeError> {
    known
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, item)| *item)
        .ok_or(DecodeError::Unknown { what, code: 0 })
}

#[inline]
fn begin(out: &mut Vec<u8>, head: impl Into<Head>, opcode: Opcode) -> FrameStart {
    FrameStart::begin(out, Direction::Response, head, opcode)
}

/// Appends READY.
pub fn encode_ready(out: &mut Vec<u8>, head: impl Into<Head>) {
    begin(out, head, Opcode::Ready).finish(out);
}

/// Appends AUTHENTICATE with the Java class of the authenticator.
pub fn encode_authenticate(out: &mut Vec<u8>, head: impl Into<Head>, class: &str) {
    let start = begin(out, head, Opcode::Authenticate);
    put_string(out, class);
    start.finish(out);
}

/// Appends AUTH_CHALLENGE.
pub fn encode_auth_challenge(out: &mut Vec<u8>, head: impl Into<Head>, token: Option<&[u8]>) {
    let start = begin(out, head, Opcode::AuthChallenge);
    put_bytes(out, token);
    start.finish(out);
}

/// Appends AUTH_SUCCESS.
pub fn encode_auth_success(out: &mut Vec<u8>, head: impl Into<Head>, token: Option<&[u8]>) {
    let start = begin(out, head, Opcode::AuthSuccess);
    put_bytes(out, token);
    start.finish(out);
}

/// Appends SUPPORTED, such as `CQL_VERSION` and `COMPRESSION`.
pub fn encode_supported(out: &mut Vec<u8>, head: impl Into<Head>, options: &[(&str, &[&str])]) {
    let start = begin(out, head, Opcode::Supported);
    let count = u16::try_from(options.len()).unwrap_or(u16::MAX);
    put_short(out, count);
    for (name, values) in &options[..usize::from(count)] {
        put_string(out, name);
        put_string_list(out, values);
    }
    start.finish(out);
}

/// Appends RESULT Void: the answer to every write.
#[inline]
pub fn encode_void(out: &mut Vec<u8>, head: impl Into<Head>) {
    let start = begin(out, head, Opcode::Result);
    put_int(out, kind::VOID);
    start.finish(out);
}

/// Appends RESULT SetKeyspace.
pub fn encode_set_keyspace(out: &mut Vec<u8>, head: impl Into<Head>, keyspace: &str) {
    let start = begin(out, head, Opcode::Result);
    put_int(out, kind::SET_KEYSPACE);
    put_string(out, keyspace);
    start.finish(out);
}

/// Appends RESULT SchemaChange.
pub fn encode_schema_change(out: &mut Vec<u8>, head: impl Into<Head>, change: &SchemaChange<'_>) {
    let start = begin(out, head, Opcode::Result);
    put_int(out, kind::SCHEMA_CHANGE);
    change.encode(out);
    start.finish(out);
}

/// Appends EVENT, on stream -1 as the specification requires.
pub fn encode_event(out: &mut Vec<u8>, version: Version, event: &Event<'_>) {
    let start = begin(out, Head { version, stream: -1 }, Opcode::Event);
    match event {
        Event::Schema(change) => {
            put_string(out, "SCHEMA_CHANGE");
            change.encode(out);
        }
        Event::Topology { change, node } => {
            put_string(out, "TOPOLOGY_CHANGE");
            put_string(
                out,
                match change {
                    TopologyChange::NewNode => "NEW_NODE",
                    TopologyChange::RemovedNode => "REMOVED_NODE",
                },
            );
            put_inet(out, *node);
        }
        Event::Status { change, node } => {
            put_string(out, "STATUS_CHANGE");
            put_string(
                out,
                match change {
                    StatusChange::Up => "UP",
                    StatusChange::Down => "DOWN",
                },
            );
            put_inet(out, *node);
        }
    }
    start.finish(out);
}

/// The event types that a client may register for.
pub const EVENT_TYPES: [&str; 3] = ["TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE"];
