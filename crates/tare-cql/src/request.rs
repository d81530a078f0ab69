//! Requests: decoded by the server, encoded by the client (section 4.1 of the specification).

mod parameters;

pub use parameters::{Parameters, Settings, Values, query_flag};

use crate::frame::{Direction, Frame, FrameStart, Opcode};
use crate::wire::{
    Consistency, DecodeError, Reader, StringList, StringMap, Value, put_bytes, put_long_string,
    put_short_bytes, put_string_list, put_string_map, put_value,
};

/// A request, borrowed from its frame.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    Startup { options: StringMap<'a> },
    Options,
    Query { statement: &'a str, parameters: Parameters<'a> },
    Prepare { statement: &'a str },
    Execute { id: &'a [u8], parameters: Parameters<'a> },
    Register { events: StringList<'a> },
    AuthResponse { token: Option<&'a [u8]> },
    Batch(Batch),
}

/// Of a batch only what is needed to refuse it by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    pub kind: BatchKind,
    pub statements: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchKind {
    Logged,
    Unlogged,
    Counter,
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
                Self::Execute { id, parameters: Parameters::decode(&mut reader)? }
            }
            Opcode::Query => {
                let statement = reader.long_string("statement")?;
                Self::Query { statement, parameters: Parameters::decode(&mut reader)? }
            }
            Opcode::Prepare => Self::Prepare { statement: reader.long_string("statement")? },
            Opcode::Startup => Self::Startup { options: reader.string_map("startup options")? },
            Opcode::Options => Self::Options,
            Opcode::Register => Self::Register { events: reader.string_list("event types")? },
            Opcode::AuthResponse => {
                Self::AuthResponse { token: reader.bytes("authentication token")? }
            }
            Opcode::Batch => return Batch::decode(&mut reader).map(Self::Batch),
            opcode => return Err(DecodeError::Opcode { opcode }),
        };
        reader.end()?;
        Ok(request)
    }
}

impl Batch {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = match reader.byte("batch type")? {
            0 => BatchKind::Logged,
            1 => BatchKind::Unlogged,
            2 => BatchKind::Counter,
            code => {
                return Err(DecodeError::Unknown { what: "batch type", code: u32::from(code) });
            }
        };
        Ok(Self { kind, statements: reader.short("number of statements")? })
    }
}

/// Appends OPTIONS.
pub fn encode_options(out: &mut Vec<u8>, stream: i16) {
    begin(out, stream, Opcode::Options).finish(out);
}

/// Appends STARTUP. `CQL_VERSION` is the one option that servers insist on.
pub fn encode_startup(out: &mut Vec<u8>, stream: i16, options: &[(&str, &str)]) {
    let start = begin(out, stream, Opcode::Startup);
    put_string_map(out, options);
    start.finish(out);
}

/// Appends REGISTER for events such as `SCHEMA_CHANGE`.
pub fn encode_register(out: &mut Vec<u8>, stream: i16, events: &[&str]) {
    let start = begin(out, stream, Opcode::Register);
    put_string_list(out, events);
    start.finish(out);
}

/// Appends AUTH_RESPONSE.
pub fn encode_auth_response(out: &mut Vec<u8>, stream: i16, token: Option<&[u8]>) {
    let start = begin(out, stream, Opcode::AuthResponse);
    put_bytes(out, token);
    start.finish(out);
}

/// Appends PREPARE.
pub fn encode_prepare(out: &mut Vec<u8>, stream: i16, statement: &str) {
    let start = begin(out, stream, Opcode::Prepare);
    put_long_string(out, statement);
    start.finish(out);
}

/// Appends QUERY with values bound by position.
pub fn encode_query(
    out: &mut Vec<u8>,
    stream: i16,
    statement: &str,
    settings: &Settings<'_>,
    values: &[Value<'_>],
) {
    let start = begin(out, stream, Opcode::Query);
    put_long_string(out, statement);
    ValuesWriter::begin(out, start, settings).values(values).finish();
}

/// Appends EXECUTE with values bound by position.
#[inline]
pub fn encode_execute(
    out: &mut Vec<u8>,
    stream: i16,
    id: &[u8],
    settings: &Settings<'_>,
    values: &[Value<'_>],
) {
    execute(out, stream, id, settings).values(values).finish();
}

/// Appends EXECUTE up to its values, which the caller writes one after the other:
/// `execute(out, 0, id, &settings).value(..).value_with(|out| row.write(out)).finish()`.
#[inline]
pub fn execute<'o, 's>(
    out: &'o mut Vec<u8>,
    stream: i16,
    id: &[u8],
    settings: &'s Settings<'s>,
) -> ValuesWriter<'o, 's> {
    let start = begin(out, stream, Opcode::Execute);
    put_short_bytes(out, id);
    ValuesWriter::begin(out, start, settings)
}

#[inline]
fn begin(out: &mut Vec<u8>, stream: i16, opcode: Opcode) -> FrameStart {
    FrameStart::begin(out, Direction::Request, stream, opcode)
}

/// Writes the values of a QUERY or EXECUTE straight into the send buffer.
#[derive(Debug)]
#[must_use = "the frame is complete after `finish`"]
pub struct ValuesWriter<'o, 's> {
    out: &'o mut Vec<u8>,
    start: FrameStart,
    settings: &'s Settings<'s>,
    flags_offset: usize,
    count: u16,
}

impl<'o, 's> ValuesWriter<'o, 's> {
    #[inline]
    fn begin(out: &'o mut Vec<u8>, start: FrameStart, settings: &'s Settings<'s>) -> Self {
        let [high, low] = (settings.consistency as u16).to_be_bytes();
        let flags_offset = out.len() + 2;
        out.extend_from_slice(&[high, low, settings.flags(), 0, 0]);
        Self { out, start, settings, flags_offset, count: 0 }
    }

    /// Appends one value. A statement has at most 65,535; those beyond are left out, and the
    /// server refuses the request for their absence.
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
        let Self { out, start, settings, flags_offset, count } = self;
        if count == 0 {
            // Without values their count is left out too.
            out.truncate(flags_offset + 1);
        } else {
            let [high, low] = count.to_be_bytes();
            if let Some([flags, count_high, count_low]) = out
                .get_mut(flags_offset..flags_offset + 3)
                .and_then(|slice| <&mut [u8; 3]>::try_from(slice).ok())
            {
                *flags |= query_flag::VALUES;
                (*count_high, *count_low) = (high, low);
            }
        }
        settings.put_tail(out);
        start.finish(out)
    }
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Self {
            consistency: Consistency::One,
            skip_metadata: false,
            page_size: None,
            paging_state: None,
            serial_consistency: None,
            timestamp_us: None,
        }
    }
}
