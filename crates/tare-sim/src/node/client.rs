//! A client of the simulated server: it speaks frames of CQL over one connection, with TLS, a
//! login and compression if its server and its seed want them, and matches answers to requests.

use std::collections::BTreeMap;

use rustls::ClientConnection;
use tare_cql::frame::{self, Direction, Frame, Head, Version};
use tare_cql::framing::Framing;
use tare_cql::request::{
    BatchKind, BatchStatement, Settings, encode_auth_response, encode_batch, encode_execute,
    encode_prepare, encode_query, encode_startup,
};
use tare_cql::response::{ErrorKind, Response, Rows as ResultRows};
use tare_cql::tls;
use tare_cql::wire::Value;

use crate::node::identity::{self, PASSWORD, USER};
use crate::node::rows::{RowKey, Write, value};

/// The longest answer that a client takes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The statements that every client prepares, in this order.
pub(crate) const STATEMENTS: [&str; 6] = [
    "INSERT INTO ks.t (k, c, v) VALUES (?, ?, ?) USING TIMESTAMP ?",
    "DELETE FROM ks.t USING TIMESTAMP ? WHERE k = ? AND c = ?",
    "DELETE FROM ks.t USING TIMESTAMP ? WHERE k = ?",
    "SELECT k, c, v FROM ks.t WHERE k = ?",
    "SELECT k, c, v FROM ks.t WHERE k = ? AND c = ?",
    "SELECT k, c, v FROM ks.t",
];
pub(crate) const INSERT: usize = 0;
pub(crate) const DELETE_ROW: usize = 1;
pub(crate) const DELETE_PARTITION: usize = 2;
pub(crate) const SELECT_PARTITION: usize = 3;
pub(crate) const SELECT_ROW: usize = 4;
pub(crate) const SCAN: usize = 5;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    LoggingIn,
    Preparing,
    Ready,
    /// The login was refused, or the connection is to end for another reason.
    Leaving,
}

/// A request that has no answer yet.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Startup,
    Login,
    Prepare(usize),
    /// A change of the schema.
    Schema,
    Write(Write),
    Read {
        /// The rows that a reader may see, with the oldest write that each may have.
        floors: Vec<(RowKey, i64)>,
    },
}

/// A request with the time at which it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) request: Request,
    pub(crate) sent_ns: u64,
}

/// The result of a request, without the bytes that it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Rows { rows: Vec<(RowKey, Vec<u8>)>, has_more: bool },
    Authenticate,
    Prepared,
    Error { kind: Refusal, message: String },
}

/// The errors that the simulator distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Overloaded,
    BadCredentials,
    /// An error of the server itself.
    Server,
    /// The request was wrong, which requests of the simulator never are.
    Request,
}

/// What has come on a connection.
#[derive(Debug)]
pub(crate) enum Received {
    /// The answer to a request.
    Answer(Sent, Answer),
    /// The server refuses the connection.
    ConnectionRefused { message: String },
}

/// The properties of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientShape {
    pub(crate) version: Version,
    pub(crate) lz4: bool,
    /// TLS, of the newest version or of the one before.
    pub(crate) tls: Option<bool>,
    /// Whether the server wants a login, and whether this client has the right password.
    pub(crate) login: Option<bool>,
    /// Requests that may wait for an answer.
    pub(crate) window: usize,
    /// Whether it prepares the statements, which needs the schema.
    pub(crate) prepares: bool,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) socket: u64,
    pub(crate) shape: ClientShape,
    pub(crate) phase: Phase,
    pub(crate) outstanding: BTreeMap<i16, Sent>,
    /// The client reads nothing before this time.
    pub(crate) reads_from_ns: u64,
    /// The client has ended the connection and waits for its end.
    pub(crate) has_ended: bool,
    /// A canary: the next answer counts as one to another request.
    pub(crate) swaps_streams: bool,
    session: Option<ClientConnection>,
    framing: Framing,
    ids: Vec<(Vec<u8>, Vec<u8>)>,
    /// Packed bytes for which the network has no room yet.
    pub(crate) outgoing: Vec<u8>,
    /// Received bytes without TLS, and the frames in them.
    input: Vec<u8>,
    frames: Vec<u8>,
}

impl Client {
    /// A client of a new connection. Its STARTUP is on its way.
    pub(crate) fn new(socket: u64, shape: ClientShape, now_ns: u64) -> Self {
        let mut client = Self {
            socket,
            shape,
            phase: Phase::Starting,
            outstanding: BTreeMap::new(),
            reads_from_ns: 0,
            has_ended: false,
            swaps_streams: false,
            session: shape.tls.map(identity::client),
            framing: Framing::Plain,
            ids: Vec::new(),
            outgoing: Vec::new(),
            input: Vec::new(),
            frames: Vec::new(),
        };
        let mut out = Vec::new();
        let options = [("CQL_VERSION", "3.0.0"), ("COMPRESSION", "lz4")];
        let options = if shape.lz4 { &options[..] } else { &options[..1] };
        encode_startup(&mut out, client.head(0), options);
        client.send(0, Request::Startup, &out, now_ns);
        client
    }

    fn head(&self, stream: i16) -> Head {
        Head { version: self.shape.version, stream }
    }

    /// Whether the TLS handshake is under way.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// Whether it can send another request.
    pub(crate) fn has_window(&self) -> bool {
        self.phase == Phase::Ready && self.outstanding.len() < self.shape.window
    }

    /// Packs a frame and queues it.
    fn send(&mut self, stream: i16, request: Request, frame: &[u8], now_ns: u64) {
        self.outstanding.insert(stream, Sent { request, sent_ns: now_ns });
        let mut packed = Vec::new();
        self.framing.pack(frame, &mut packed);
        match &mut self.session {
            Some(session) => tls::encrypt(session, &packed, &mut self.outgoing),
            None => self.outgoing.extend_from_slice(&packed),
        }
    }

    /// Sends a statement as text.
    pub(crate) fn query(&mut self, text: &str, now_ns: u64) {
        let mut out = Vec::new();
        encode_query(&mut out, self.head(1), text, &Settings::DEFAULT, &[]);
        self.send(1, Request::Schema, &out, now_ns);
    }

    /// Sends one of [`STATEMENTS`] with its values, prepared or as text.
    pub(crate) fn execute(
        &mut self,
        stream: i16,
        request: Request,
        (statement, prepared): (usize, bool),
        values: &[Vec<u8>],
        now_ns: u64,
    ) {
        let mut out = Vec::new();
        let values: Vec<Value<'_>> = values.iter().map(|bytes| Value::Bytes(bytes)).collect();
        let (id, result_id) = &self.ids[statement];
        if prepared {
            let settings = Settings { result_id: Some(result_id), ..Settings::DEFAULT };
            encode_execute(&mut out, self.head(stream), id, &settings, &values);
        } else {
            let text = STATEMENTS[statement];
            encode_query(&mut out, self.head(stream), text, &Settings::DEFAULT, &values);
        }
        self.send(stream, request, &out, now_ns);
    }

    /// Sends a batch of insertions that share one timestamp.
    pub(crate) fn batch(&mut self, stream: i16, write: Write, length: usize, now_ns: u64) {
        let mut out = Vec::new();
        let rows: Vec<Vec<Vec<u8>>> =
            write.rows.iter().map(|key| insert_values(*key, write.number, length)).collect();
        let rows: Vec<Vec<Value<'_>>> =
            rows.iter().map(|row| row.iter().map(|bytes| Value::Bytes(bytes)).collect()).collect();
        let id = &self.ids[INSERT].0;
        let items: Vec<(BatchStatement<'_>, &[Value<'_>])> =
            rows.iter().map(|values| (BatchStatement::Prepared(id), &values[..])).collect();
        let head = self.head(stream);
        encode_batch(&mut out, head, BatchKind::Logged, &items, &Settings::DEFAULT);
        self.send(stream, Request::Write(write), &out, now_ns);
    }

    /// Takes bytes from the network, and returns the answers that are complete with them.
    pub(crate) fn receive(&mut self, bytes: &[u8], now_ns: u64) -> Result<Vec<Received>, String> {
        match &mut self.session {
            Some(session) => {
                // An end of the session comes before the end of the connection.
                if let Err(error) = tls::decrypt(session, bytes, &mut self.input)
                    && !matches!(error, tls::TlsError::Ended)
                {
                    return Err(tare_std::error_line(&error));
                }
                tls::encrypt(session, &[], &mut self.outgoing);
            }
            None => self.input.extend_from_slice(bytes),
        }
        let mut all = Vec::new();
        while let Some(received) = self.next(now_ns)? {
            all.push(received);
        }
        Ok(all)
    }

    /// Whether a part of an answer has come.
    pub(crate) fn has_part(&self) -> bool {
        !self.input.is_empty() || !self.frames.is_empty()
    }

    fn next(&mut self, now_ns: u64) -> Result<Option<Received>, String> {
        let is_plain = self.framing == Framing::Plain;
        let text = |error: &dyn std::error::Error| tare_std::error_line(error);
        loop {
            let frames = if is_plain { &mut self.input } else { &mut self.frames };
            let decoded = frame::decode(frames, Direction::Response, ANSWER_BYTES_MAX)
                .map_err(|error| text(&error))?;
            if let Some((frame, length)) = decoded {
                let mut others = self.outstanding.keys().filter(|key| **key != frame.stream);
                let stream = match (self.swaps_streams, others.next()) {
                    (true, Some(other)) => *other,
                    _ => frame.stream,
                };
                let received = match_answer(&frame, stream, &mut self.outstanding, &mut self.ids)?;
                frames.drain(..length);
                self.advance(&received, now_ns);
                return Ok(Some(received));
            }
            if is_plain {
                return Ok(None);
            }
            let (input, frames) = (&self.input, &mut self.frames);
            let taken = self.framing.unpack(input, Direction::Response, ANSWER_BYTES_MAX, frames);
            match taken.map_err(|error| text(&error))? {
                Some(length) => drop(self.input.drain(..length)),
                None => return Ok(None),
            }
        }
    }

    /// Goes on with the begin of a connection.
    fn advance(&mut self, received: &Received, now_ns: u64) {
        let Received::Answer(sent, answer) = received else {
            self.phase = Phase::Leaving;
            return;
        };
        if let Answer::Error { .. } = answer {
            if self.phase != Phase::Ready {
                self.phase = Phase::Leaving;
            }
            return;
        }
        match sent.request {
            Request::Startup => {
                self.framing = Framing::after_startup(self.shape.version, self.shape.lz4);
                match answer {
                    Answer::Authenticate => self.log_in(now_ns),
                    _ => self.prepare(now_ns),
                }
            }
            Request::Login => self.prepare(now_ns),
            Request::Prepare(_) if self.outstanding.is_empty() => self.phase = Phase::Ready,
            _ => {}
        }
    }

    fn log_in(&mut self, now_ns: u64) {
        self.phase = Phase::LoggingIn;
        let password = if self.shape.login == Some(true) { PASSWORD } else { "wrong" };
        let token = format!("\0{USER}\0{password}");
        let mut out = Vec::new();
        encode_auth_response(&mut out, self.head(2), Some(token.as_bytes()));
        self.send(2, Request::Login, &out, now_ns);
    }

    fn prepare(&mut self, now_ns: u64) {
        if !self.shape.prepares {
            self.phase = Phase::Ready;
            return;
        }
        self.phase = Phase::Preparing;
        self.ids = vec![Default::default(); STATEMENTS.len()];
        for (stream, (number, text)) in (3..).zip(STATEMENTS.into_iter().enumerate()) {
            let mut out = Vec::new();
            encode_prepare(&mut out, self.head(stream), text);
            self.send(stream, Request::Prepare(number), &out, now_ns);
        }
    }
}

/// The values of an insertion.
pub(crate) fn insert_values((k, c): RowKey, number: i64, length: usize) -> Vec<Vec<u8>> {
    vec![int(k), int(c), value(number, length), number.to_be_bytes().to_vec()]
}

/// A value of type `int`.
pub(crate) fn int(number: i32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Finds the request that a frame answers.
fn match_answer(
    frame: &Frame<'_>,
    stream: i16,
    outstanding: &mut BTreeMap<i16, Sent>,
    ids: &mut [(Vec<u8>, Vec<u8>)],
) -> Result<Received, String> {
    let response = Response::decode(frame).map_err(|error| tare_std::error_line(&error))?;
    let sent = outstanding.remove(&stream);
    if let (Response::Error(error), 0) = (&response, frame.stream)
        && error.kind == ErrorKind::Overloaded
        && error.message.contains("as many connections")
    {
        return Ok(Received::ConnectionRefused { message: error.message.into() });
    }
    let Some(sent) = sent else {
        return Err(format!("nothing was asked on stream {}: {response:?}", frame.stream));
    };
    let answer = match (&sent.request, response) {
        (_, Response::Error(error)) => {
            let kind = match error.kind {
                ErrorKind::Overloaded => Refusal::Overloaded,
                ErrorKind::BadCredentials => Refusal::BadCredentials,
                ErrorKind::Server => Refusal::Server,
                _ => Refusal::Request,
            };
            Answer::Error { kind, message: error.message.into() }
        }
        (Request::Startup, Response::Authenticate { .. }) => Answer::Authenticate,
        (Request::Startup, Response::Ready)
        | (Request::Login, Response::AuthSuccess { .. })
        | (Request::Schema, Response::SchemaChange(_))
        | (Request::Write(_), Response::Void) => Answer::Done,
        (Request::Prepare(number), Response::Prepared(prepared)) => {
            let result_id = prepared.result_id.unwrap_or_default().to_vec();
            ids[*number] = (prepared.id.to_vec(), result_id);
            Answer::Prepared
        }
        (Request::Read { .. }, Response::Rows(rows)) => {
            let has_more = rows.metadata.paging_state.is_some();
            Answer::Rows { rows: decode_rows(&rows)?, has_more }
        }
        (request, response) => {
            return Err(format!("{request:?} was answered with {response:?}"));
        }
    };
    Ok(Received::Answer(sent, answer))
}

fn decode_rows(rows: &ResultRows<'_>) -> Result<Vec<(RowKey, Vec<u8>)>, String> {
    let number = |cell: Option<Option<&[u8]>>| {
        let bytes = cell.flatten().and_then(|bytes| bytes.try_into().ok());
        bytes.map(i32::from_be_bytes).ok_or_else(|| "a key is no int".to_string())
    };
    let row = |row: tare_cql::response::Row<'_>| {
        let mut cells = row.cells();
        let key = (number(cells.next())?, number(cells.next())?);
        let value = cells.next().flatten().ok_or_else(|| format!("row {key:?} has no value"))?;
        Ok((key, value.to_vec()))
    };
    rows.iter().map(row).collect()
}
