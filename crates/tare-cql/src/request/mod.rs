//! Requests, which the server decodes and the client encodes (section 4.1 of the specification).

mod batch;
mod parameters;

pub use batch::{Batch, BatchItem, BatchItems, BatchKind, BatchStatement, encode_batch};
pub use parameters::{Parameters, Settings, Values, query_flag};

use crate::frame::{Direction, Frame, FrameStart, Head, Opcode, Version};
use crate::wire::{
    DecodeError, Reader, StringList, StringMap, Value, put_bytes, put_int, put_long_string,
    put_short, put_short_bytes, put_string_list, put_string_map, put_value,
};
use parameters::put_flags;

/// A request, borrowed from its frame.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    Startup {
        options: StringMap<'a>,
    },
    Options,
    Query {
        statement: &'a str,
        parameters: Parameters<'a>,
    },
    /// `keyspace` exists in version 5 and applies to names without one.
    Prepare {
        statement: &'a str,
        keyspace: Option<&'a str>,
    },
    Execute {
        id: &'a [u8],
        parameters: Parameters<'a>,
    },
    Register {
        events: StringList<'a>,
    },
    AuthResponse {
        token: Option<&'a [u8]>,
    },
    Batch(Batch<'a>),
}

impl<'a> Request<'a> {
    /// Decodes the body of a frame. The server answers an error with a protocol error on the same
    /// stream; the connection stays usable.
    #[inline]
    pub fn decode(frame: &Frame<'a>) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(frame.body);
        let request = match frame.opcode {
            Opcode::Execute => {
                let id = reader.short_bytes("id of the prepared statement")?;
                let result_id = match frame.version {
                    Version::V4 => None,
                    Version::V5 => Some(reader.short_bytes("id of the result's columns")?),
                };
                let parameters = Parameters::decode(&mut reader, frame.version, result_id)?;
                Self::Execute { id, parameters }
            }
            Opcode::Query => {
                let statement = reader.long_string("statement")?;
                let parameters = Parameters::decode(&mut reader, frame.version, None)?;
                Self::Query { statement, parameters }
            }
            Opcode::Prepare => {
                let statement = reader.long_string("statement")?;
                let keyspace = match frame.version {
                    Version::V4 => None,
                    Version::V5 => prepare_keyspace(&mut reader)?,
                };
                Self::Prepare { statement, keyspace }
            }
            Opcode::Startup => Self::Startup { options: reader.string_map("startup options")? },
            Opcode::Options => Self::Options,
            Opcode::Register => Self::Register { events: reader.string_list("event types")? },
            Opcode::AuthResponse => {
                Self::AuthResponse { token: reader.bytes("authentication token")? }
            }
            Opcode::Batch => Self::Batch(Batch::decode(&mut reader, frame.version)?),
            opcode => return Err(DecodeError::Opcode { opcode }),
        };
        reader.end()?;
        Ok(request)
    }
}

/// Decodes PREPARE's own flags, of which there is one.
fn prepare_keyspace<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a str>, DecodeError> {
    const KEYSPACE: i32 = 0x01;
    match reader.int("flags of PREPARE")? {
        0 => Ok(None),
        KEYSPACE => reader.string("keyspace").map(Some),
        flags => Err(DecodeError::Unknown { what: "flags", code: flags.cast_unsigned() }),
    }
}

/// Appends OPTIONS.
pub fn encode_options(out: &mut Vec<u8>, head: impl Into<Head>) {
    begin(out, head, Opcode::Options).finish(out);
}

/// Appends STARTUP. Servers require the option `CQL_VERSION`.
pub fn encode_startup(out: &mut Vec<u8>, head: impl Into<Head>, options: &[(&str, &str)]) {
    let start = begin(out, head, Opcode::Startup);
    put_string_map(out, options);
    start.finish(out);
}

/// Appends REGISTER for events such as `SCHEMA_CHANGE`.
pub fn encode_register(out: &mut Vec<u8>, head: impl Into<Head>, events: &[&str]) {
    let start = begin(out, head, Opcode::Register);
    put_string_list(out, events);
    start.finish(out);
}

/// Appends AUTH_RESPONSE.
pub fn encode_auth_response(out: &mut Vec<u8>, head: impl Into<Head>, token: Option<&[u8]>) {
    let start = begin(out, head, Opcode::AuthResponse);
    put_bytes(out, token);
    start.finish(out);
}

/// Appends PREPARE.
pub fn encode_prepare(out: &mut Vec<u8>, head: impl Into<Head>, statement: &str) {
    let head = head.into();
    let start = begin(out, head, Opcode::Prepare);
    put_long_string(out, statement);
    if head.version >= Version::V5 {
        put_int(out, 0);
    }
    start.finish(out);
}

/// Appends QUERY with values bound by position.
pub fn encode_query(
    out: &mut Vec<u8>,
    head: impl Into<Head>,
    statement: &str,
    settings: &Settings<'_>,
    values: &[Value<'_>],
) {
    let head = head.into();
    let start = begin(out, head, Opcode::Query);
    put_long_string(out, statement);
    ValuesWriter::begin(out, start, head.version, settings).values(values).finish();
}

/// Appends EXECUTE with values bound by position.
#[inline]
pub fn encode_execute(
    out: &mut Vec<u8>,
    head: impl Into<Head>,
    id: &[u8],
    settings: &Settings<'_>,
    values: &[Value<'_>],
) {
    execute(out, head, id, settings).values(values).finish();
}

/// Appends EXECUTE up to its values, which the caller writes one after the other: `execute(out, 0,
/// id, &settings).value(..).value_with(|out| row.write(out)).finish()`.
#[inline]
pub fn execute<'o, 's>(
    out: &'o mut Vec<u8>,
    head: impl Into<Head>,
    id: &[u8],
    settings: &'s Settings<'s>,
) -> ValuesWriter<'o, 's> {
    let head = head.into();
    let start = begin(out, head, Opcode::Execute);
    put_short_bytes(out, id);
    if head.version >= Version::V5 {
        put_short_bytes(out, settings.result_id.unwrap_or_default());
    }
    ValuesWriter::begin(out, start, head.version, settings)
}

#[inline]
fn begin(out: &mut Vec<u8>, head: impl Into<Head>, opcode: Opcode) -> FrameStart {
    FrameStart::begin(out, Direction::Request, head, opcode)
}

/// Writes the values of a QUERY or EXECUTE straight into the send buffer.
#[derive(Debug)]
#[must_use = "the frame is complete after `finish`"]
pub struct ValuesWriter<'o, 's> {
    out: &'o mut Vec<u8>,
    start: FrameStart,
    version: Version,
    settings: &'s Settings<'s>,
    count_offset: usize,
    count: u16,
}

impl<'o, 's> ValuesWriter<'o, 's> {
    #[inline]
    fn begin(
        out: &'o mut Vec<u8>,
        start: FrameStart,
        version: Version,
        settings: &'s Settings<'s>,
    ) -> Self {
        put_short(out, settings.consistency as u16);
        put_flags(out, version, settings.flags(version));
        let count_offset = out.len();
        put_short(out, 0);
        Self { out, start, version, settings, count_offset, count: 0 }
    }

    /// Appends one value. A statement has at most 65,535; further ones are left out, and the server
    /// refuses the request because they are missing.
    #[inline]
    pub fn value(mut self, value: Value<'_>) -> Self {
        if self.count_up() {
            put_value(self.out, value);
        }
        self
    }

    /// Appends one value whose bytes `write` appends to the buffer.
    #[inline]
    pub fn value_with(mut self, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        if self.count_up() {
            crate::wire::put_bytes_with(self.out, write);
        }
        self
    }

    /// Appends several values.
    #[inline]
    pub fn values(self, values: &[Value<'_>]) -> Self {
        values.iter().fold(self, |writer, value| writer.value(*value))
    }

    #[inline]
    fn count_up(&mut self) -> bool {
        match self.count.checked_add(1) {
            Some(count) => {
                self.count = count;
                true
            }
            None => false,
        }
    }

    /// Completes the frame and returns the length of its body in bytes.
    #[inline]
    pub fn finish(self) -> usize {
        let Self { out, start, version, settings, count_offset, count } = self;
        if count == 0 {
            // Without values there is no count either.
            out.truncate(count_offset);
        } else {
            // The flag for values is in the last byte of the flags, in either version.
            const VALUES: u8 = query_flag::VALUES.to_be_bytes()[3];
            if let Some([flags, count_high, count_low]) = out
                .get_mut(count_offset - 1..count_offset + 2)
                .and_then(|slice| <&mut [u8; 3]>::try_from(slice).ok())
            {
                *flags |= VALUES;
                [*count_high, *count_low] = count.to_be_bytes();
            }
        }
        settings.put_tail(version, out);
        start.finish(out)
    }
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Self::DEFAULT
    }
}
