//! The framing of a connection's messages: plain, with compressed bodies (version 4 with LZ4), or
//! in segments (version 5). STARTUP chooses; before its answer messages are plain.
//!
//! A connection unpacks the bytes that it receives into plain frames for `frame::decode`, and packs
//! the frames that it sends. The caller bounds the memory by the longest body that it allows.

use crate::frame::{self, Direction, FrameError, FrameStart, HEADER_BYTES, Head, Version, flag};
use crate::response::{self, ErrorKind};
use crate::segment::{self, PAYLOAD_BYTES_MAX, SegmentError};

/// Shorter bodies are not worth compressing, in bytes.
const COMPRESSED_BYTES_MIN: usize = 64;
/// A compressed body begins with its uncompressed length (version 4, section 5).
const LENGTH_BYTES: usize = 4;

/// The framing of messages.
///
/// ```
/// use tare_cql::frame::{Direction, Version};
/// use tare_cql::framing::Framing;
/// use tare_cql::request;
///
/// let framing = Framing::after_startup(Version::V5, true);
/// let (mut frames, mut sent, mut received) = (Vec::new(), Vec::new(), Vec::new());
/// request::encode_options(&mut frames, 0);
/// framing.pack(&frames, &mut sent);
/// let length = framing.unpack(&sent, Direction::Request, 1 << 20, &mut received)?;
/// assert_eq!((length, received), (Some(sent.len()), frames));
/// # Ok::<(), tare_cql::framing::FramingError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    #[default]
    Plain,
    /// Version 4: the body of a message is an LZ4 block if the header has the flag.
    Compressed,
    /// Version 5: messages travel in segments.
    Segments { lz4: bool },
}

/// Why bytes cannot be unpacked. The connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Segment(#[from] SegmentError),
    #[error("the body of the frame on stream {stream} is no LZ4 block with its length in front")]
    Compression { stream: i16 },
}

impl FramingError {
    /// Appends the protocol error for the client, on a connection that speaks `version`.
    pub fn answer(&self, version: Version, out: &mut Vec<u8>) {
        let stream = match self {
            Self::Frame(error) => return error.answer(version, out),
            // The frame at fault is not known.
            Self::Segment(_) => 0,
            Self::Compression { stream } => *stream,
        };
        let head = Head { version, stream };
        response::encode_error(out, head, &ErrorKind::Protocol, &self.to_string());
    }
}

impl Framing {
    /// The framing that a STARTUP chooses.
    pub fn after_startup(version: Version, lz4: bool) -> Self {
        match version {
            Version::V4 if lz4 => Self::Compressed,
            Version::V4 => Self::Plain,
            Version::V5 => Self::Segments { lz4 },
        }
    }

    /// Takes one segment, or one frame, from the front of `bytes` and appends its frames, or its
    /// part of one, to `frames`, which may hold unused bytes of earlier ones. Returns the number of
    /// bytes it took, or `None` while they are incomplete.
    pub fn unpack(
        self,
        bytes: &[u8],
        direction: Direction,
        body_bytes_max: usize,
        frames: &mut Vec<u8>,
    ) -> Result<Option<usize>, FramingError> {
        match self {
            Self::Segments { lz4 } => {
                let Some((segment, length)) = segment::decode(bytes, lz4)? else {
                    return Ok(None);
                };
                if segment.self_contained && !frames.is_empty() {
                    return Err(SegmentError::Interrupted.into());
                }
                segment.append_to(frames)?;
                Ok(Some(length))
            }
            Self::Compressed
                if bytes.get(1).is_some_and(|flags| flags & flag::COMPRESSION != 0) =>
            {
                unpack_compressed(bytes, direction, body_bytes_max, frames)
            }
            Self::Plain | Self::Compressed => {
                let decoded = frame::decode(bytes, direction, body_bytes_max)?;
                let Some((_, length)) = decoded else { return Ok(None) };
                frames.extend_from_slice(&bytes[..length]);
                Ok(Some(length))
            }
        }
    }

    /// Appends whole frames in packed form. An incomplete frame is left out.
    pub fn pack(self, frames: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Plain => out.extend_from_slice(frames),
            Self::Compressed => whole_frames(frames).for_each(|frame| pack_compressed(frame, out)),
            Self::Segments { lz4 } => pack_segments(frames, lz4, out),
        }
    }
}

/// Cuts a buffer into its frames.
fn whole_frames(frames: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = frames;
    std::iter::from_fn(move || {
        let header = rest.first_chunk::<HEADER_BYTES>()?;
        let body_bytes = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        let length = HEADER_BYTES.checked_add(usize::try_from(body_bytes).ok()?)?;
        let (frame, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(frame)
    })
}

/// Fills segments with as many whole frames as fit, and cuts longer frames.
fn pack_segments(frames: &[u8], lz4: bool, out: &mut Vec<u8>) {
    let (mut start, mut end) = (0, 0);
    for frame in whole_frames(frames) {
        if end - start + frame.len() > PAYLOAD_BYTES_MAX {
            if end > start {
                segment::encode(out, &frames[start..end], true, lz4);
            }
            start = end;
        }
        end += frame.len();
        if frame.len() > PAYLOAD_BYTES_MAX {
            frame.chunks(PAYLOAD_BYTES_MAX).for_each(|part| segment::encode(out, part, false, lz4));
            start = end;
        }
    }
    if end > start {
        segment::encode(out, &frames[start..end], true, lz4);
    }
}

fn pack_compressed(frame: &[u8], out: &mut Vec<u8>) {
    let (header, body) = frame.split_at(HEADER_BYTES);
    let start = out.len();
    out.extend_from_slice(header);
    if body.len() >= COMPRESSED_BYTES_MIN {
        out.extend_from_slice(&header[5..]);
        if segment::compress(body, out) {
            out[start + 1] |= flag::COMPRESSION;
            FrameStart::at(start).finish(out);
            return;
        }
        out.truncate(start + HEADER_BYTES);
    }
    out.extend_from_slice(body);
}

fn unpack_compressed(
    bytes: &[u8],
    direction: Direction,
    body_bytes_max: usize,
    frames: &mut Vec<u8>,
) -> Result<Option<usize>, FramingError> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let mut plain = *header;
    plain[1] &= !flag::COMPRESSION;
    // This checks the header and the length; the compressed body is shorter than the plain one.
    frame::decode(&plain, direction, body_bytes_max)?;
    let [_, _, high, low, _, length @ ..] = plain;
    let stream = i16::from_be_bytes([high, low]);
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    let Some(body) = bytes.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
    let start = frames.len();
    frames.extend_from_slice(&plain);
    if !body.is_empty() {
        let broken = FramingError::Compression { stream };
        let (uncompressed, block) = body.split_first_chunk::<LENGTH_BYTES>().ok_or(broken)?;
        let length = u32::from_be_bytes(*uncompressed);
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        if bytes > body_bytes_max {
            let limit = body_bytes_max;
            return Err(FrameError::TooLong { stream, length, limit }.into());
        }
        segment::decompress(block, bytes, frames).ok_or(broken)?;
        FrameStart::at(start).finish(frames);
    }
    Ok(Some(HEADER_BYTES + length))
}

#[cfg(test)]
mod tests;
