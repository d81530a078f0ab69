//! Follows the connections of a capture, finds out what they speak, and passes their messages on.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::Path;

use tare_cql::framing::Framing;

use crate::capture::{self, Packet};
use crate::cql::{self, Broken};
use crate::error::TraceError;
use crate::packet::{self, Segment, UnknownLink};
use crate::reassembly::{Part, Reassembly};
use crate::redis::connection as redis;
use crate::side::Side;

/// Segments with data after which a connection that is not recognised is given up.
const TRIES_MAX: u32 = 64;

/// A message of a connection.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    /// The number of the connection.
    pub(crate) connection: usize,
    pub(crate) at_ns: u64,
    pub(crate) message: Message<'a>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a message is passed on and never kept")]
pub(crate) enum Message<'a> {
    Cql(cql::Message<'a>),
    Redis(redis::Message<'a>),
    /// The connection is not read any further.
    Ended,
}

/// What was found on the way.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub(crate) packets: u64,
    /// Packets with data, and those of them that the capture has cut.
    data: u64,
    pub(crate) cut: u64,
    pub(crate) gaps: u64,
    pub(crate) ends_within_packet: bool,
    /// Connections with data by what they speak.
    pub(crate) protocols: BTreeMap<&'static str, u64>,
    /// Connections of a known protocol that stopped being readable.
    pub(crate) broken: u64,
    compression: Option<String>,
}

pub(crate) const CQL: &str = "CQL";
pub(crate) const REDIS: &str = "Redis";
const TLS: &str = "TLS";

/// Reads a capture and passes its messages on in the order of their last packets.
pub(crate) fn walk(path: &Path, on_event: &mut dyn FnMut(Event<'_>)) -> Result<Walked, TraceError> {
    let file = path.display().to_string();
    let mut walk = Walk::default();
    let ends_within_packet = capture::packets(path, &mut |packet| {
        walk.packet(&packet, on_event)
            .map_err(|UnknownLink(number)| TraceError::LinkType { file: file.clone(), number })
    })?;
    let mut walked = walk.end(on_event);
    walked.ends_within_packet = ends_within_packet;
    walked.check(file)?;
    Ok(walked)
}

impl Walked {
    /// Refuses a capture without a protocol that is read here.
    fn check(&self, file: String) -> Result<(), TraceError> {
        if self.data == 0 {
            return Err(TraceError::NoData { file });
        }
        if self.cut * 2 > self.data {
            let (cut, packets) = (self.cut, self.data);
            return Err(TraceError::Cut { file, cut, packets });
        }
        if self.protocols.contains_key(CQL) || self.protocols.contains_key(REDIS) {
            return Ok(());
        }
        if let Some(algorithm) = self.compression.clone() {
            return Err(TraceError::Compression { file, algorithm });
        }
        if self.protocols.keys().all(|name| *name == TLS) {
            return Err(TraceError::Encrypted { file });
        }
        let found = |(name, count): (&&str, &u64)| format!("{count} connections of {name}");
        let found: Vec<String> = self.protocols.iter().map(found).collect();
        Err(TraceError::Protocol { file, found: found.join(", ") })
    }
}

#[derive(Debug, Default)]
struct Walk {
    /// The newest connection between two ends, the lesser first.
    numbers: HashMap<[SocketAddr; 2], usize>,
    connections: Vec<Connection>,
    walked: Walked,
}

#[derive(Debug)]
struct Connection {
    ends: [SocketAddr; 2],
    streams: [Reassembly; 2],
    conversation: Conversation,
}

/// What the two ends of a connection say.
#[derive(Debug)]
struct Conversation {
    number: usize,
    ports: [u16; 2],
    /// The end that is the client, by its index.
    client: Option<usize>,
    speaks: Speaks,
    gaps: u64,
}

#[derive(Debug)]
enum Speaks {
    /// After so many segments with data.
    Unknown(u32),
    Cql(Box<cql::Connection>),
    Redis(redis::Connection),
    Other(&'static str),
    /// Unreadable from some place on.
    Broken(&'static str, Option<String>),
}

impl Walk {
    fn packet(
        &mut self,
        packet: &Packet<'_>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), UnknownLink> {
        self.walked.packets += 1;
        let Some(segment) = packet::segment(packet)? else { return Ok(()) };
        if !segment.data.is_empty() || segment.missing > 0 {
            self.walked.data += 1;
            self.walked.cut += u64::from(segment.missing > 0);
        }
        let Connection { ends, streams, conversation } = self.connection(&segment);
        let from = usize::from(ends[1] == segment.from);
        let to = 1 - from;
        if segment.opens {
            streams[from].open(segment.sequence);
            let is_answer = segment.acknowledged.is_some();
            conversation.client = Some(if is_answer { to } else { from });
        }
        if let Some(acknowledged) = segment.acknowledged.filter(|_| !segment.opens) {
            streams[to].acknowledge(acknowledged, &mut |part| {
                conversation.part(to, part, on_event);
            });
        }
        let Segment { sequence, data, missing, .. } = segment;
        // The data of a SYN (fast open) comes after it.
        let sequence = if segment.opens { sequence.wrapping_add(1) } else { sequence };
        streams[from].segment(packet.at_ns, sequence, data, missing, &mut |part| {
            conversation.part(from, part, on_event);
        });
        Ok(())
    }

    /// Returns the connection of a segment: a new one if it opens one on known ends.
    fn connection(&mut self, segment: &Segment<'_>) -> &mut Connection {
        let mut ends = [segment.from, segment.to];
        ends.sort();
        let known = self.numbers.get(&ends).copied();
        let opens_again = |number: &usize| {
            let is_used = self.connections[*number].streams.iter().all(Reassembly::has_begun);
            segment.opens && segment.acknowledged.is_none() && is_used
        };
        let number = known.filter(|number| !opens_again(number)).unwrap_or_else(|| {
            let number = self.connections.len();
            let streams = [Reassembly::default(), Reassembly::default()];
            let conversation = Conversation::new(number, ends.map(|end| end.port()));
            self.connections.push(Connection { ends, streams, conversation });
            number
        });
        self.numbers.insert(ends, number);
        &mut self.connections[number]
    }

    fn end(mut self, on_event: &mut dyn FnMut(Event<'_>)) -> Walked {
        let mut walked = std::mem::take(&mut self.walked);
        for Connection { streams, mut conversation, .. } in self.connections {
            for (end, mut stream) in streams.into_iter().enumerate() {
                stream.end(&mut |part| conversation.part(end, part, on_event));
            }
            let name = match conversation.speaks {
                Speaks::Unknown(0) => continue,
                Speaks::Unknown(_) => "an unknown protocol",
                Speaks::Cql(_) => CQL,
                Speaks::Redis(_) => REDIS,
                Speaks::Other(name) => name,
                Speaks::Broken(_, Some(algorithm)) => {
                    walked.compression = Some(algorithm);
                    "compressed CQL"
                }
                Speaks::Broken(name, None) => {
                    walked.broken += 1;
                    name
                }
            };
            walked.gaps += conversation.gaps;
            *walked.protocols.entry(name).or_default() += 1;
        }
        walked
    }
}

impl Conversation {
    fn new(number: usize, ports: [u16; 2]) -> Self {
        Self { number, ports, client: None, speaks: Speaks::Unknown(0), gaps: 0 }
    }

    fn side(&self, end: usize) -> Side {
        if self.client == Some(end) { Side::Client } else { Side::Server }
    }

    fn part(&mut self, end: usize, part: Part<'_>, on_event: &mut dyn FnMut(Event<'_>)) {
        match part {
            Part::Gap => self.gap(end, on_event),
            Part::Data { at_ns, bytes } => {
                if let Speaks::Unknown(tries) = self.speaks {
                    self.speaks = self.recognise(end, bytes, tries);
                }
                self.data(end, at_ns, bytes, on_event);
            }
        }
    }

    fn gap(&mut self, end: usize, on_event: &mut dyn FnMut(Event<'_>)) {
        let (side, connection) = (self.side(end), self.number);
        match &mut self.speaks {
            Speaks::Cql(cql) => cql.gap(side),
            Speaks::Redis(redis) => redis.gap(side, &mut |message| {
                on_event(Event { connection, at_ns: 0, message: Message::Redis(message) });
            }),
            _ => return,
        }
        self.gaps += 1;
    }

    fn data(&mut self, end: usize, at_ns: u64, bytes: &[u8], on_event: &mut dyn FnMut(Event<'_>)) {
        let (side, connection) = (self.side(end), self.number);
        let mut pass = |message: Message<'_>| on_event(Event { connection, at_ns, message });
        let broken = match &mut self.speaks {
            Speaks::Cql(cql) => {
                match cql.take(side, bytes, &mut |message| pass(Message::Cql(message))) {
                    Ok(()) => return,
                    Err(Broken::Bytes) => Speaks::Broken(CQL, None),
                    Err(Broken::Compression(name)) => Speaks::Broken(CQL, Some(name)),
                }
            }
            Speaks::Redis(redis) => {
                match redis.take(side, bytes, &mut |message| pass(Message::Redis(message))) {
                    Ok(()) => return,
                    Err(_) => Speaks::Broken(REDIS, None),
                }
            }
            _ => return,
        };
        pass(Message::Ended);
        self.speaks = broken;
    }

    /// Finds out what a connection speaks from the data of a segment, and which end is the client
    /// if the capture began after it was opened.
    fn recognise(&mut self, end: usize, bytes: &[u8], tries: u32) -> Speaks {
        let sides = match self.client {
            Some(_) => vec![self.side(end)],
            None => vec![Side::Client, Side::Server],
        };
        for side in sides {
            let framing = cql::framing_of(bytes, side);
            let is_redis = match side {
                Side::Client => redis::is_redis(bytes),
                Side::Server => self.client.is_none() && redis::is_answer(bytes),
            };
            if framing.is_none() && !is_redis {
                continue;
            }
            // The segments of both sides look alike; servers have the lower port.
            let is_segment = matches!(framing, Some(Framing::Segments { .. }));
            let by_port = usize::from(self.ports[1] > self.ports[0]);
            let found = if side == Side::Client { end } else { 1 - end };
            self.client.get_or_insert(if is_segment { by_port } else { found });
            return match framing {
                Some(framing) => Speaks::Cql(Box::new(cql::Connection::new(framing))),
                None => Speaks::Redis(redis::Connection::default()),
            };
        }
        match other_protocol(bytes) {
            Some(name) if tries < 2 => Speaks::Other(name),
            _ if tries + 1 >= TRIES_MAX => Speaks::Other("an unknown protocol"),
            _ => Speaks::Unknown(tries + 1),
        }
    }
}

/// Names the protocol of the first bytes of a connection, of either side.
fn other_protocol(bytes: &[u8]) -> Option<&'static str> {
    let begins = |starts: &[&str]| starts.iter().any(|start| bytes.starts_with(start.as_bytes()));
    match bytes {
        // A record of a handshake, of data or an alert (RFC 8446, section 5.1).
        [0x15..=0x17, 3, 0..=4, ..] => Some(TLS),
        _ if begins(&["PRI * HTTP/2"]) => Some("HTTP/2"),
        _ if begins(&["GET /", "POST /", "PUT /", "HEAD /", "DELETE /", "HTTP/1."]) => Some("HTTP"),
        _ if begins(&["SSH-"]) => Some("SSH"),
        _ if begins(&["get ", "gets ", "set ", "mg ", "ms ", "VALUE "]) => Some("memcached"),
        // A startup message of version 3, or a request for TLS.
        [0, 0, _, _, 0, 3, 0, 0 | 2, ..] | [0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f, ..] => {
            Some("PostgreSQL")
        }
        // The greeting of a server, protocol 10.
        [_, _, 0, 0, 10, b'0'..=b'9', ..] => Some("MySQL"),
        // OP_MSG.
        [_, _, _, _, _, _, _, _, _, _, _, _, 0xdd, 7, 0, 0, ..] => Some("MongoDB"),
        _ => None,
    }
}
