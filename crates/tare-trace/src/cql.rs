//! The messages of a connection that speaks CQL, from its bytes in both directions.
//!
//! Version 3 has the headers of version 4, so its frames are read as such; only the answer to
//! PREPARE differs. After a gap, a direction is skipped up to a segment that begins with a frame.

use tare_cql::frame::{self, Direction, Frame, FrameError, HEADER_BYTES, Opcode, Version, flag};
use tare_cql::framing::Framing;
use tare_cql::request::Request;
use tare_cql::response::Response;
use tare_cql::segment;

use crate::side::Side;

/// The longest message that is read, in bytes.
const BODY_BYTES_MAX: usize = 64 << 20;
/// The longest message that a direction may begin with after a gap.
const BODY_BYTES_AFTER_GAP: usize = 4 << 20;
/// The code of RESULT Prepared.
const PREPARED: [u8; 4] = [0, 0, 0, 4];

/// A message of CQL.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Request {
        stream: i16,
        request: Request<'a>,
    },
    Response {
        stream: i16,
        response: Response<'a>,
    },
    /// A message that has no form known here.
    Unreadable {
        side: Side,
    },
}

/// Why a connection is not read any further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Bytes that are no CQL.
    Bytes,
    /// The client asked for this compression.
    Compression(String),
}

/// A connection that speaks CQL.
#[derive(Debug)]
pub(crate) struct Connection {
    directions: [Stream; 2],
    /// What the client's STARTUP chose.
    chosen: Option<Framing>,
}

#[derive(Debug)]
struct Stream {
    framing: Framing,
    received: Vec<u8>,
    frames: Vec<u8>,
    /// Whether the next bytes may begin anywhere.
    is_lost: bool,
    is_v3: bool,
}

impl Stream {
    fn new(framing: Framing) -> Self {
        let (received, frames) = (Vec::new(), Vec::new());
        Self { framing, received, frames, is_lost: false, is_v3: false }
    }
}

/// Returns the framing of a connection whose client sends these bytes; `None` if they are no CQL.
pub(crate) fn framing_of(bytes: &[u8], side: Side) -> Option<Framing> {
    if is_frame(bytes, side, BODY_BYTES_MAX) {
        return Some(Framing::Compressed);
    }
    // Eight bytes hold a header with its checksum in either form.
    let is_segment = |lz4: &bool| bytes.len() >= 8 && segment::decode(bytes, *lz4).is_ok();
    [false, true].into_iter().find(is_segment).map(|lz4| Framing::Segments { lz4 })
}

/// Whether bytes begin with the header of a frame.
fn is_frame(bytes: &[u8], side: Side, body_bytes_max: usize) -> bool {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return false };
    let mut plain = *header;
    plain[1] &= !flag::COMPRESSION;
    if plain[0] & 0x7f == 3 {
        plain[0] += 1;
    }
    let may_send = match Opcode::from_code(plain[4]) {
        Some(
            Opcode::Startup
            | Opcode::Options
            | Opcode::Query
            | Opcode::Prepare
            | Opcode::Execute
            | Opcode::Register
            | Opcode::Batch
            | Opcode::AuthResponse,
        ) => Side::Client,
        _ => Side::Server,
    };
    let known_flags = plain[1] & !0x1f == 0;
    let decoded = frame::decode(&plain, direction(side), body_bytes_max);
    may_send == side && known_flags && matches!(decoded, Ok(_) | Err(FrameError::Prefix { .. }))
}

fn direction(side: Side) -> Direction {
    match side {
        Side::Client => Direction::Request,
        Side::Server => Direction::Response,
    }
}

impl Connection {
    pub(crate) fn new(framing: Framing) -> Self {
        Self { directions: [Stream::new(framing), Stream::new(framing)], chosen: None }
    }

    /// Forgets the message under way in a direction, whose next bytes are missing.
    pub(crate) fn gap(&mut self, side: Side) {
        let stream = &mut self.directions[side as usize];
        stream.received.clear();
        stream.frames.clear();
        stream.is_lost = true;
    }

    /// Takes the next bytes of a direction, which begin with those of a segment.
    pub(crate) fn take(
        &mut self,
        side: Side,
        bytes: &[u8],
        on_message: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), Broken> {
        let stream = &mut self.directions[side as usize];
        if stream.is_lost {
            if !resumes(stream.framing, bytes, side) {
                return Ok(());
            }
            stream.is_lost = false;
        }
        stream.received.extend_from_slice(bytes);
        let mut used = 0;
        while let Some(length) = self.unpack(side, used)? {
            used += length;
            self.messages(side, on_message)?;
        }
        self.directions[side as usize].received.drain(..used);
        Ok(())
    }

    /// Unpacks one frame or segment. Returns its length in bytes, or `None` while it is incomplete.
    fn unpack(&mut self, side: Side, at: usize) -> Result<Option<usize>, Broken> {
        let stream = &mut self.directions[side as usize];
        let Some(rest) = stream.received.get_mut(at..).filter(|rest| !rest.is_empty()) else {
            return Ok(None);
        };
        if !matches!(stream.framing, Framing::Segments { .. }) {
            if rest[0] & 0x7f == 3 {
                rest[0] += 1;
                stream.is_v3 = true;
            }
            // Newer versions are offered before the client steps down to one that is read here.
            if let Some(length) = unknown_version(rest) {
                return Ok((rest.len() >= length).then_some(length));
            }
        }
        let frames = &mut stream.frames;
        stream
            .framing
            .unpack(rest, direction(side), BODY_BYTES_MAX, frames)
            .map_err(|_| Broken::Bytes)
    }

    /// Passes the whole frames of a direction on.
    fn messages(
        &mut self,
        side: Side,
        on_message: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), Broken> {
        let mut frames = std::mem::take(&mut self.directions[side as usize].frames);
        let mut used = 0;
        loop {
            let decoded = frame::decode(&frames[used..], direction(side), BODY_BYTES_MAX);
            let Some((frame, length)) = decoded.map_err(|_| Broken::Bytes)? else { break };
            used += length;
            self.message(side, &frame, on_message)?;
        }
        frames.drain(..used);
        self.directions[side as usize].frames = frames;
        Ok(())
    }

    fn message(
        &mut self,
        side: Side,
        frame: &Frame<'_>,
        on_message: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), Broken> {
        let stream = frame.stream;
        match side {
            Side::Client => match Request::decode(frame) {
                Ok(request) => {
                    if let Request::Startup { options } = request {
                        self.startup(frame.version, options.get("COMPRESSION"))?;
                    }
                    on_message(Message::Request { stream, request });
                }
                Err(_) => on_message(Message::Unreadable { side }),
            },
            Side::Server => {
                if let (Opcode::Ready | Opcode::Authenticate, Some(framing)) =
                    (frame.opcode, self.chosen)
                {
                    self.directions[Side::Server as usize].framing = framing;
                } else if let (Opcode::Error, Some(_)) = (frame.opcode, self.chosen)
                    && self.directions[Side::Server as usize].framing == Framing::Compressed
                {
                    // The server has refused STARTUP.
                    self.directions[Side::Client as usize].framing = Framing::Compressed;
                }
                let is_v3 = self.directions[Side::Server as usize].is_v3;
                let as_v4 = if is_v3 { prepared_as_v4(frame) } else { None };
                let mut frame = *frame;
                frame.body = as_v4.as_deref().unwrap_or(frame.body);
                on_message(match Response::decode(&frame) {
                    Ok(response) => Message::Response { stream, response },
                    Err(_) => Message::Unreadable { side },
                });
            }
        }
        Ok(())
    }

    fn startup(&mut self, version: Version, compression: Option<&str>) -> Result<(), Broken> {
        let lz4 = match compression {
            None => false,
            Some(name) if name.eq_ignore_ascii_case("lz4") => true,
            Some(name) => return Err(Broken::Compression(name.chars().take(20).collect())),
        };
        // Frames without the flag of compression are plain in that framing too.
        let framing = match version {
            Version::V4 => Framing::Compressed,
            Version::V5 => Framing::Segments { lz4 },
        };
        self.chosen = Some(framing);
        self.directions[Side::Client as usize].framing = framing;
        Ok(())
    }
}

/// Returns the length of a frame whose version is not known here, from 6 on.
fn unknown_version(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let version = header[0] & 0x7f;
    let length = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
    let length = usize::try_from(length).ok().filter(|length| *length <= 1 << 20)?;
    matches!(version, 6 | 65 | 66).then_some(HEADER_BYTES + length)
}

fn resumes(framing: Framing, bytes: &[u8], side: Side) -> bool {
    match framing {
        Framing::Segments { lz4 } => {
            matches!(segment::decode(bytes, lz4), Ok(Some((segment, _))) if segment.self_contained)
        }
        _ => is_frame(bytes, side, BODY_BYTES_AFTER_GAP),
    }
}

/// Returns the body of RESULT Prepared of version 3 as version 4 has it: with the positions of the
/// key's markers, of which there are none.
fn prepared_as_v4(frame: &Frame<'_>) -> Option<Vec<u8>> {
    let body = frame.body;
    if frame.opcode != Opcode::Result || body.get(..4)? != PREPARED {
        return None;
    }
    let id_bytes = usize::from(u16::from_be_bytes([*body.get(4)?, *body.get(5)?]));
    // After the id come the flags and the number of markers.
    let (head, tail) = body.split_at_checked(6 + id_bytes + 8)?;
    Some([head, &[0; 4], tail].concat())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tare_cql::request::{self, Settings};
    use tare_cql::response::{self, EncodedColumns};

    use super::*;

    /// Runs the bytes of a client through a connection, in pieces of `step` bytes.
    fn statements(connection: &mut Connection, bytes: &[u8], step: usize) -> Vec<String> {
        let mut found = Vec::new();
        for piece in bytes.chunks(step) {
            connection
                .take(Side::Client, piece, &mut |message| {
                    if let Message::Request { request: Request::Query { statement, .. }, .. } =
                        message
                    {
                        found.push(statement.to_string());
                    }
                })
                .unwrap();
        }
        found
    }

    fn queries(out: &mut Vec<u8>, version: Version) {
        for text in ["SELECT a", "SELECT b"] {
            let head = frame::Head { version, stream: 1 };
            request::encode_query(out, head, text, &Settings::DEFAULT, &[]);
        }
    }

    #[test]
    fn both_versions_are_read_in_any_pieces() {
        for version in Version::ALL {
            for lz4 in [false, true] {
                let mut bytes = Vec::new();
                let mut options = vec![("CQL_VERSION", "3.0.0")];
                options.extend(lz4.then_some(("COMPRESSION", "lz4")));
                let head = frame::Head { version, stream: 0 };
                request::encode_startup(&mut bytes, head, &options);
                let mut plain = Vec::new();
                queries(&mut plain, version);
                Framing::after_startup(version, lz4).pack(&plain, &mut bytes);
                for step in [1, 7, 1000] {
                    let framing = framing_of(&bytes, Side::Client).unwrap();
                    let mut connection = Connection::new(framing);
                    let found = statements(&mut connection, &bytes, step);
                    assert_eq!(found, ["SELECT a", "SELECT b"], "{version:?} {lz4} {step}");
                }
            }
        }
    }

    #[test]
    fn a_connection_is_read_from_its_middle() {
        for lz4 in [false, true] {
            let (mut plain, mut bytes) = (Vec::new(), Vec::new());
            queries(&mut plain, Version::V5);
            Framing::after_startup(Version::V5, lz4).pack(&plain, &mut bytes);
            let framing = framing_of(&bytes, Side::Client).unwrap();
            assert_eq!(framing, Framing::Segments { lz4 });
            let found = statements(&mut Connection::new(framing), &bytes, 1000);
            assert_eq!(found, ["SELECT a", "SELECT b"]);
        }
        for bytes in [
            b"GET / HTTP/1.1\r\n".as_slice(),
            b"*1\r\n$4\r\nPING\r\n",
            &[0x16, 3, 1, 2, 0, 1, 0, 1, 252],
        ] {
            assert_eq!(framing_of(bytes, Side::Client), None);
        }
    }

    #[test]
    fn a_gap_ends_at_the_next_frame() {
        let mut bytes = Vec::new();
        queries(&mut bytes, Version::V4);
        let half = bytes.len() / 2;
        let mut connection = Connection::new(Framing::Compressed);
        assert_eq!(statements(&mut connection, &bytes[..half - 1], 1000), [""; 0]);
        connection.gap(Side::Client);
        assert_eq!(statements(&mut connection, &bytes[5..half], 1000), [""; 0]);
        assert_eq!(statements(&mut connection, &bytes[half..], 1000), ["SELECT b"]);
    }

    #[test]
    fn version_3_is_read_with_its_prepared_statements() {
        let mut bytes = Vec::new();
        queries(&mut bytes, Version::V4);
        bytes[0] = 3;
        assert_eq!(framing_of(&bytes, Side::Client), Some(Framing::Compressed));
        let mut connection = Connection::new(Framing::Compressed);
        assert_eq!(statements(&mut connection, &bytes, 1000), ["SELECT a", "SELECT b"]);
        let columns = [("k", tare_cql::types::Type::Int)];
        let columns = columns.iter().map(|(name, kind)| response::ColumnSpec { name, kind });
        let columns = EncodedColumns::new("ks", "t", columns);
        let mut answer = Vec::new();
        response::encode_prepared(&mut answer, 1, b"id", &columns, &[], None);
        // Version 3 has no number of key markers: after header, kind, id, flags and count.
        answer.drain(9 + 4 + 4 + 8..9 + 4 + 4 + 12);
        answer[0] = 0x83;
        answer[8] -= 4;
        let mut ids = Vec::new();
        connection
            .take(Side::Server, &answer, &mut |message| match message {
                Message::Response { response: Response::Prepared(prepared), .. } => {
                    ids.push((prepared.id.to_vec(), prepared.markers.column_count));
                }
                other => panic!("{other:?}"),
            })
            .unwrap();
        assert_eq!(ids, [(b"id".to_vec(), 1)]);
    }

    #[test]
    fn snappy_is_named() {
        let mut bytes = Vec::new();
        request::encode_startup(&mut bytes, 0, &[("COMPRESSION", "snappy")]);
        let broken = Connection::new(Framing::Compressed).take(Side::Client, &bytes, &mut |_| ());
        assert_eq!(broken, Err(Broken::Compression("snappy".into())));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            step in 1usize..100,
            kind in 0usize..3,
        ) {
            let framings =
                [Framing::Compressed, Framing::Segments { lz4: false }, Framing::Segments { lz4: true }];
            for side in [Side::Client, Side::Server] {
                let _ = framing_of(&bytes, side);
                let mut connection = Connection::new(framings[kind]);
                for piece in bytes.chunks(step) {
                    if connection.take(side, piece, &mut |_| ()).is_err() {
                        break;
                    }
                    connection.gap(side);
                }
            }
        }
    }
}
