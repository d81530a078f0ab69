//! Frames: the nine bytes in front of every message, and the parts that may come between them and
//! the message. (The specification of version 5 calls frames envelopes, and calls the contents of
//! its segments frames; see `segment`.)
//!
//! The crate speaks versions 4 and 5. Drivers begin with newer ones (6, 65, 66) and step down when
//! they receive a protocol error in a frame that they can read: see [`FrameError::answer`].

pub use crate::opcode::Opcode;

use crate::wire::{DecodeError, Reader, StringList, put_string_list};

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 9;
/// The longest body that the protocol allows, in bytes (section 2.5 of the specification).
pub const BODY_BYTES_MAX: usize = 256 << 20;

/// The bit of the version byte that marks a frame from the server.
const RESPONSE: u8 = 0x80;

/// A version of the native protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Version {
    #[default]
    V4 = 4,
    V5 = 5,
}

impl Version {
    /// All versions, the oldest first.
    pub const ALL: [Self; 2] = [Self::V4, Self::V5];

    /// The version with this number, if the crate speaks it.
    #[inline]
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            4 => Some(Self::V4),
            5 => Some(Self::V5),
            _ => None,
        }
    }

    /// The name of the version in SUPPORTED.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "4/v4",
            Self::V5 => "5/v5",
        }
    }
}

/// Version and stream of a frame. A bare stream means version 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub version: Version,
    pub stream: i16,
}

impl From<i16> for Head {
    #[inline]
    fn from(stream: i16) -> Self {
        Self { version: Version::V4, stream }
    }
}

/// Flags of the header. Version 5 has one more (0x10, the client accepts a version under
/// development), which has no effect here.
pub mod flag {
    pub const COMPRESSION: u8 = 0x01;
    pub const TRACING: u8 = 0x02;
    pub const CUSTOM_PAYLOAD: u8 = 0x04;
    pub const WARNING: u8 = 0x08;
}

/// The sender of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    Request,
    /// From server to client.
    Response,
}

/// One frame, borrowed from the bytes received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    pub direction: Direction,
    pub version: Version,
    /// Bits of `flag`. A server may ignore a request for tracing.
    pub flags: u8,
    /// The stream, which the client chooses (>= 0) and the server repeats; -1 for events.
    pub stream: i16,
    pub opcode: Opcode,
    /// The message, without tracing id, warnings and custom payload.
    pub body: &'a [u8],
    warnings: Option<StringList<'a>>,
}

impl<'a> Frame<'a> {
    /// Warnings for people that the server has added to its answer.
    pub fn warnings(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.warnings.into_iter().flatten()
    }
}

/// Why bytes are no frame. After any of these errors the rest of the connection cannot be read:
/// send `answer` and close it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    // Drivers look for the words "Invalid or unsupported protocol version" and step down.
    #[error(
        "Invalid or unsupported protocol version ({version}); supported versions are (4/v4, 5/v5)"
    )]
    Version { version: u8, stream: i16 },
    #[error("frame of {length} bytes on stream {stream} exceeds the limit of {limit} bytes")]
    TooLong { stream: i16, length: u32, limit: usize },
    #[error("unknown opcode {opcode:#04x} on stream {stream}")]
    Opcode { stream: i16, opcode: u8 },
    #[error("frame on stream {stream} is compressed, but no compression was agreed on")]
    Compressed { stream: i16 },
    #[error("frame on stream {stream} has the wrong direction: expected {expected:?}")]
    Direction { stream: i16, expected: Direction },
    #[error("the data before the message on stream {stream} is invalid")]
    Prefix { stream: i16, source: DecodeError },
}

impl FrameError {
    /// The stream of the invalid frame; 0 if it is not known.
    pub fn stream(&self) -> i16 {
        match *self {
            Self::Version { stream, .. }
            | Self::TooLong { stream, .. }
            | Self::Opcode { stream, .. }
            | Self::Compressed { stream }
            | Self::Direction { stream, .. }
            | Self::Prefix { stream, .. } => stream,
        }
    }
}

/// Decodes one frame at the front of `bytes`. Returns it with its length in bytes, or `None` while
/// it is incomplete. An error is returned as soon as the bytes that prove it are there.
#[inline]
pub fn decode(
    bytes: &[u8],
    direction: Direction,
    body_bytes_max: usize,
) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    let sent = if first & RESPONSE == 0 { Direction::Request } else { Direction::Response };
    let Some(version) = Version::from_number(first & !RESPONSE) else {
        return unsupported(bytes, first & !RESPONSE);
    };
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let [_, flags, stream_high, stream_low, opcode, l0, l1, l2, l3] = *header;
    let stream = i16::from_be_bytes([stream_high, stream_low]);
    let length = u32::from_be_bytes([l0, l1, l2, l3]);
    if sent != direction {
        return Err(FrameError::Direction { stream, expected: direction });
    }
    let limit = body_bytes_max.min(BODY_BYTES_MAX);
    let body_bytes = usize::try_from(length).unwrap_or(usize::MAX);
    if body_bytes > limit {
        return Err(FrameError::TooLong { stream, length, limit });
    }
    // In version 5 the flag has no meaning: segments are compressed, and the Java driver sets it.
    if flags & flag::COMPRESSION != 0 && length > 0 && version == Version::V4 {
        return Err(FrameError::Compressed { stream });
    }
    let Some(opcode) = Opcode::from_code(opcode) else {
        return Err(FrameError::Opcode { stream, opcode });
    };
    let Some(body) = bytes.get(HEADER_BYTES..HEADER_BYTES + body_bytes) else {
        return Ok(None);
    };
    let (warnings, body) = if flags & (flag::TRACING | flag::CUSTOM_PAYLOAD | flag::WARNING) == 0 {
        (None, body)
    } else {
        without_prefix(body, flags, sent).map_err(|source| FrameError::Prefix { stream, source })?
    };
    let frame = Frame { direction, version, flags, stream, opcode, body, warnings };
    Ok(Some((frame, HEADER_BYTES + body_bytes)))
}

/// The header of versions 1 and 2 has a stream of one byte; that of version 3 has today's form.
#[cold]
fn unsupported<'a>(bytes: &[u8], version: u8) -> Result<Option<(Frame<'a>, usize)>, FrameError> {
    let stream = match (version, bytes) {
        (1 | 2, [_, _, stream, ..]) => i16::from(stream.cast_signed()),
        (1 | 2, _) => return Ok(None),
        (_, [_, _, high, low, ..]) => i16::from_be_bytes([*high, *low]),
        _ => return Ok(None),
    };
    Err(FrameError::Version { version, stream })
}

/// Removes tracing id and warnings (responses only) and the custom payload, in this order (section
/// 2.2), from the front of a body. Only the warnings are kept.
#[cold]
fn without_prefix(
    body: &[u8],
    flags: u8,
    direction: Direction,
) -> Result<(Option<StringList<'_>>, &[u8]), DecodeError> {
    let mut reader = Reader::new(body);
    let mut warnings = None;
    if direction == Direction::Response {
        if flags & flag::TRACING != 0 {
            reader.take(16, "tracing id")?;
        }
        if flags & flag::WARNING != 0 {
            warnings = Some(reader.string_list("warnings")?);
        }
    }
    if flags & flag::CUSTOM_PAYLOAD != 0 {
        reader.skip_bytes_map("custom payload")?;
    }
    Ok((warnings, reader.rest()))
}

/// A frame under construction: `begin` appends the header, the caller appends the body, `finish`
/// writes its length.
#[derive(Debug)]
#[must_use = "a frame without its length is not a frame"]
pub struct FrameStart {
    offset: usize,
}

impl FrameStart {
    /// Appends a header without its length.
    #[inline]
    pub fn begin(
        out: &mut Vec<u8>,
        direction: Direction,
        head: impl Into<Head>,
        opcode: Opcode,
    ) -> Self {
        let Head { version, stream } = head.into();
        let offset = out.len();
        let version = match direction {
            Direction::Request => version as u8,
            Direction::Response => version as u8 | RESPONSE,
        };
        let [high, low] = stream.to_be_bytes();
        out.extend_from_slice(&[version, 0, high, low, opcode as u8, 0, 0, 0, 0]);
        Self { offset }
    }

    /// The last frame of a buffer, whose header is at `offset` already.
    #[inline]
    pub(crate) fn at(offset: usize) -> Self {
        Self { offset }
    }

    /// The offset of the frame in the buffer, for a caller that wants to remove it.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Writes the length of everything appended since `begin`, and returns it in bytes.
    #[inline]
    pub fn finish(self, out: &mut [u8]) -> usize {
        let body_bytes = out.len().saturating_sub(self.offset + HEADER_BYTES);
        // The header cannot hold a body of 4 GiB; the receiver refuses the largest length as too
        // long.
        let length = u32::try_from(body_bytes).unwrap_or(u32::MAX);
        if let Some(field) = out.get_mut(self.offset + 5..self.offset + HEADER_BYTES) {
            field.copy_from_slice(&length.to_be_bytes());
        }
        body_bytes
    }
}

/// Inserts warnings into the last response of the buffer, which begins at `offset`.
///
/// Few answers have warnings. Those pay for moving their body, so that the others need no extra
/// code.
pub fn insert_warnings(out: &mut Vec<u8>, offset: usize, warnings: &[&str]) {
    if warnings.is_empty() || out.len() < offset + HEADER_BYTES {
        return;
    }
    let body = out.split_off(offset + HEADER_BYTES);
    put_string_list(out, warnings);
    out.extend_from_slice(&body);
    if let Some(flags) = out.get_mut(offset + 1) {
        *flags |= flag::WARNING;
    }
    FrameStart { offset }.finish(out);
}

/// Changes the version of the response that begins at `offset`. A response for several connections
/// is encoded once.
pub fn set_version(out: &mut [u8], offset: usize, version: Version) {
    if let Some(first) = out.get_mut(offset) {
        *first = version as u8 | RESPONSE;
    }
}
