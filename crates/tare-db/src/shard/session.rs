//! The protocol side of a connection: decodes requests, runs them, and encodes their answers.

use std::sync::{Arc, PoisonError};

use tare_cql::frame::{self, Direction, Frame, HEADER_BYTES, Head, Version};
use tare_cql::framing::FramingError;
use tare_cql::request::{Batch, BatchStatement, Parameters, Request};
use tare_cql::response::{self, Reply};
use tare_cql::wire::{StringList, StringMap};

use crate::query::catalog::hash_uuid;
use crate::query::failure::Failure;
use crate::query::plan::Prepared;
use crate::query::planner;
use crate::query::prepared::{PreparedText, StatementId};
use crate::shard::connections::LoginPhase;
use crate::shard::login::{self, decode_plain};
use crate::shard::schema_view::PlannedStatement;
use crate::shard::{Conn, Shard};

/// The longest request in bytes (Cassandra's `native_transport_max_frame_size`, 4.0).
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// An incomplete request of at least this size is refused before the rest has come, if the server
/// is overloaded.
const LARGE_BYTES: usize = 16 << 10;

impl Shard {
    /// Handles all complete requests in a connection's input.
    pub(crate) fn process(&mut self, conn: &mut Conn) {
        let mut input = std::mem::take(&mut conn.input);
        let mut at = 0;
        loop {
            if self.is_held_up(conn) {
                self.stall(conn);
                break;
            }
            if conn.closing {
                at = input.len();
                break;
            }
            let handled = if conn.transport.is_plain() {
                self.process_plain(conn, &input[at..])
            } else {
                self.process_framed(conn, &input[at..])
            };
            match handled {
                Ok(Some(bytes)) => at += bytes,
                Ok(None) => break,
                Err(error) => {
                    // Nothing after the error can be decoded.
                    error.answer(conn.version, &mut conn.out);
                    self.telemetry.counters.errors += 1;
                    conn.closing = true;
                }
            }
        }
        if at == input.len() {
            input.clear();
            if input.capacity() > REQUEST_BYTES_MAX / 16 {
                input = Vec::new();
            }
        } else if at > 0 {
            input.drain(..at);
        }
        conn.input = input;
    }

    /// Handles the first request of `input`. Returns its length, or `None` while it is incomplete.
    #[inline]
    fn process_plain(
        &mut self,
        conn: &mut Conn,
        input: &[u8],
    ) -> Result<Option<usize>, FramingError> {
        if conn.refused_bytes > 0 {
            return Ok(conn.skip_refused(input));
        }
        match frame::decode(input, Direction::Request, REQUEST_BYTES_MAX)? {
            Some((frame, length)) => {
                self.request(conn, &frame);
                Ok(Some(length))
            }
            None => Ok(self.refuse_large(conn, input)),
        }
    }

    /// Does the same for a connection whose requests are framed: handles an unpacked request, or
    /// unpacks more.
    fn process_framed(
        &mut self,
        conn: &mut Conn,
        input: &[u8],
    ) -> Result<Option<usize>, FramingError> {
        let mut frames = conn.transport.take_frames();
        if let Some(length) = conn.skip_refused(frames.rest()) {
            frames.advance(length);
        }
        let taken = match frame::decode(frames.rest(), Direction::Request, REQUEST_BYTES_MAX)? {
            Some((frame, length)) => {
                self.request(conn, &frame);
                frames.advance(length);
                Some(0)
            }
            None => {
                if let Some(length) = self.refuse_large(conn, frames.rest()) {
                    frames.advance(length);
                }
                conn.transport.unpack(input, REQUEST_BYTES_MAX, &mut frames)?
            }
        };
        conn.transport.put_frames(frames);
        Ok(taken)
    }

    #[inline]
    fn request(&mut self, conn: &mut Conn, frame: &Frame<'_>) {
        let reply = Reply::to(frame);
        let ready = conn.phase == LoginPhase::Ready && frame.version == conn.version;
        let result = match Request::decode(frame) {
            Ok(_) if self.connections.is_overloaded() => Err(self.overloaded()),
            Ok(Request::Execute { id, parameters }) if ready => {
                self.execute(conn, reply, id, &parameters)
            }
            Ok(request) if ready => self.handle_ready(conn, reply, &request),
            Ok(request) => self.handle_unready(conn, reply, &request),
            Err(error) => Err(Failure::Protocol(error.to_string())),
        };
        if let Err(failure) = result {
            self.telemetry.counters.errors += 1;
            failure.encode(&mut conn.out, reply);
        }
    }

    /// Answers a long incomplete request while the connections hold all the memory that they may,
    /// so that it need not be kept. Returns the number of bytes to drop; the rest of the request is
    /// skipped when it comes.
    fn refuse_large(&mut self, conn: &mut Conn, begun: &[u8]) -> Option<usize> {
        if begun.len() < LARGE_BYTES || !self.connections.is_overloaded() {
            return None;
        }
        let (stream, body) = (begun.get(2..4)?, begun.get(5..HEADER_BYTES)?);
        let stream = i16::from_be_bytes(stream.try_into().ok()?);
        let body_bytes = u32::from_be_bytes(body.try_into().ok()?) as usize;
        conn.refused_bytes = (HEADER_BYTES + body_bytes).saturating_sub(begun.len());
        let failure = self.overloaded();
        self.telemetry.counters.errors += 1;
        let head = Head { version: conn.version, stream };
        failure.encode(&mut conn.out, head);
        Some(begun.len())
    }

    #[cold]
    fn overloaded(&mut self) -> Failure {
        self.telemetry.counters.overloaded += 1;
        let message =
            "connections hold all the memory that they may; read the answers, or send less";
        Failure::Overloaded(message.into())
    }

    /// Handles the requests that are allowed before a connection is ready.
    fn handle_unready(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        request: &Request<'_>,
    ) -> Result<(), Failure> {
        let version = reply.head.version;
        if conn.phase != LoginPhase::New && version != conn.version {
            conn.closing = true;
            let (got, agreed) = (version.name(), conn.version.name());
            let message = format!(
                "Invalid message version. Got {got} but previous messages on this connection had version {agreed}"
            );
            return Err(Failure::Protocol(message));
        }
        match (request, conn.phase) {
            (Request::Options, _) => {
                self.send_supported(conn, reply.head);
                Ok(())
            }
            (Request::Startup { options }, LoginPhase::New) => self.startup(conn, reply, *options),
            (Request::AuthResponse { token }, LoginPhase::Login) => {
                let (user, password) = decode_plain(token.unwrap_or_default())?;
                self.check_login(conn, reply, user, password)
            }
            (_, LoginPhase::New) => {
                Err(Failure::Protocol("the first request must be STARTUP or OPTIONS".into()))
            }
            (_, LoginPhase::Login | LoginPhase::Checking) => {
                Err(Failure::Protocol("the login is not finished".into()))
            }
            (_, LoginPhase::Ready) => unreachable!("its version is the connection's"),
        }
    }

    fn startup(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        options: StringMap<'_>,
    ) -> Result<(), Failure> {
        if options.get("CQL_VERSION").is_none() {
            let message = "Missing value CQL_VERSION in STARTUP message";
            return Err(Failure::Protocol(message.into()));
        }
        let lz4 = match options.get("COMPRESSION") {
            None => false,
            Some(name) if name.eq_ignore_ascii_case("lz4") => true,
            Some(name) => {
                let message = format!("unsupported compression {name:?}; lz4 is supported");
                return Err(Failure::Protocol(message));
            }
        };
        conn.version = reply.head.version;
        if self.shared.logins.is_some() {
            conn.phase = LoginPhase::Login;
            response::encode_authenticate(&mut conn.out, reply, login::AUTHENTICATOR);
        } else {
            conn.phase = LoginPhase::Ready;
            response::encode_ready(&mut conn.out, reply);
        }
        conn.transport.begin(conn.version, lz4, conn.out.len());
        Ok(())
    }

    /// Sends SUPPORTED: the options of drivers, and the shard of the connection. The keys are those
    /// of Cassandra, and of Scylla's `docs/dev/protocol-extensions.md`.
    fn send_supported(&self, conn: &mut Conn, head: Head) {
        let shard = self.number.to_string();
        let shards = self.shared.mailboxes.len().to_string();
        let port = self.shared.balancer.shard_aware_port().map(|port| port.to_string());
        let port_key = match conn.transport.has_tls() {
            true => "SCYLLA_SHARD_AWARE_PORT_SSL",
            false => "SCYLLA_SHARD_AWARE_PORT",
        };
        let port = port.as_deref().unwrap_or_default();
        let options: [(&str, &[&str]); 9] = [
            ("CQL_VERSION", &[tare_cql::CQL_VERSION]),
            ("COMPRESSION", &["lz4"]),
            ("PROTOCOL_VERSIONS", &Version::ALL.map(Version::name)),
            ("SCYLLA_SHARD", &[&shard]),
            ("SCYLLA_NR_SHARDS", &[&shards]),
            ("SCYLLA_PARTITIONER", &[tare_cql::token::PARTITIONER]),
            ("SCYLLA_SHARDING_ALGORITHM", &["biased-token-round-robin"]),
            ("SCYLLA_SHARDING_IGNORE_MSB", &["0"]),
            (port_key, &[port]),
        ];
        // Without a shard-aware port there is no key for it.
        let count = options.len() - usize::from(port.is_empty());
        response::encode_supported(&mut conn.out, head, &options[..count]);
    }

    fn handle_ready(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        request: &Request<'_>,
    ) -> Result<(), Failure> {
        match request {
            Request::Options => {
                self.send_supported(conn, reply.head);
                Ok(())
            }
            Request::Register { events } => register(conn, reply, *events),
            Request::Query { statement, parameters } => {
                self.refresh();
                let keyspace = keyspace_of(conn, parameters.settings.keyspace);
                let prepared = Arc::new(self.plan(keyspace.as_deref(), statement)?);
                let reply = describe(reply, &prepared, parameters);
                self.run_statement(conn, reply, &prepared, parameters)
            }
            Request::Prepare { statement, keyspace } => {
                let keyspace = keyspace_of(conn, *keyspace);
                self.prepare(conn, reply, keyspace, statement)
            }
            Request::Batch(batch) => self.run_batch(conn, reply, batch),
            Request::Execute { .. } => unreachable!("handled by the caller"),
            Request::Startup { .. } => {
                Err(Failure::Protocol("the connection has been set up already".into()))
            }
            Request::AuthResponse { .. } => {
                Err(Failure::Protocol("this server needs no authentication".into()))
            }
        }
    }

    fn plan(&self, keyspace: Option<&str>, statement: &str) -> Result<Prepared, Failure> {
        planner::plan(&self.schema.catalog, self.schema.epoch, keyspace, statement)
    }

    fn prepare(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        keyspace: Option<Arc<str>>,
        statement: &str,
    ) -> Result<(), Failure> {
        self.refresh();
        let prepared = Arc::new(self.plan(keyspace.as_deref(), statement)?);
        let scope = keyspace.as_deref().unwrap_or_default();
        let id = hash_uuid(&[scope.as_bytes(), statement.as_bytes()]);
        let columns = prepared.plan.result_columns();
        let (markers, key) = (&prepared.marker_columns, &prepared.partition_key);
        response::encode_prepared(&mut conn.out, reply, &id, markers, key, columns);
        let text = (keyspace.map(|keyspace| keyspace.to_string()), statement.to_string());
        let text: PreparedText = Arc::new(text);
        let mut texts = self.shared.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        texts.insert(id, Arc::clone(&text));
        drop(texts);
        self.schema.prepared.insert(id, PlannedStatement { text, plan: prepared });
        Ok(())
    }

    #[inline]
    fn execute(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        id: &[u8],
        parameters: &Parameters<'_>,
    ) -> Result<(), Failure> {
        self.refresh();
        let prepared = self.prepared(id)?;
        let reply = describe(reply, &prepared, parameters);
        self.run_statement(conn, reply, &prepared, parameters)
    }

    /// The statement of an id, planned in the current schema.
    #[inline]
    fn prepared(&mut self, id: &[u8]) -> Result<Arc<Prepared>, Failure> {
        let foreign = |_| Failure::Protocol("an id of a statement has 16 bytes".into());
        let id: StatementId = id.try_into().map_err(foreign)?;
        let epoch = self.schema.epoch;
        match self.schema.prepared.get(&id) {
            Some(known) if known.plan.epoch == epoch => Ok(Arc::clone(&known.plan)),
            known => {
                let text = known.map(|known| Arc::clone(&known.text));
                self.prepare_again(id, text)
            }
        }
    }

    /// Plans a statement that another shard prepared, or again after the schema has changed.
    #[cold]
    fn prepare_again(
        &mut self,
        id: StatementId,
        known: Option<PreparedText>,
    ) -> Result<Arc<Prepared>, Failure> {
        let text = known.or_else(|| {
            let mut texts = self.shared.prepared.lock().unwrap_or_else(PoisonError::into_inner);
            texts.get(&id).cloned()
        });
        let text = text.ok_or(Failure::Unprepared(id))?;
        let plan = Arc::new(self.plan(text.0.as_deref(), &text.1)?);
        let planned = PlannedStatement { text, plan: Arc::clone(&plan) };
        self.schema.prepared.insert(id, planned);
        Ok(plan)
    }

    fn run_batch(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        batch: &Batch<'_>,
    ) -> Result<(), Failure> {
        self.refresh();
        let keyspace = keyspace_of(conn, batch.settings.keyspace);
        let mut items = Vec::with_capacity(batch.items().len());
        for item in batch.items() {
            let prepared = match item.statement {
                BatchStatement::Text(text) => Arc::new(self.plan(keyspace.as_deref(), text)?),
                BatchStatement::Prepared(id) => self.prepared(id)?,
            };
            items.push((prepared, item.values));
        }
        self.batch(conn, reply, batch.kind, &items, &batch.settings)
    }
}

/// The keyspace for names without one: that of the request, or else that of the connection.
fn keyspace_of(conn: &Conn, asked: Option<&str>) -> Option<Arc<str>> {
    asked.map(Arc::from).or_else(|| conn.keyspace.clone())
}

/// The reply, with as much metadata about the result's columns as the client needs.
#[inline]
fn describe(reply: Reply, prepared: &Prepared, parameters: &Parameters<'_>) -> Reply {
    match prepared.plan.result_columns() {
        Some(columns) => reply.metadata_for(&parameters.settings, columns),
        None => reply,
    }
}

impl Conn {
    /// Skips bytes at the begin of `input` that belong to a request that was refused before it was
    /// complete.
    fn skip_refused(&mut self, input: &[u8]) -> Option<usize> {
        let length = self.refused_bytes.min(input.len());
        self.refused_bytes -= length;
        (length > 0).then_some(length)
    }
}

fn register(conn: &mut Conn, reply: Reply, events: StringList<'_>) -> Result<(), Failure> {
    for event in events {
        if !response::EVENT_TYPES.contains(&event) {
            return Err(Failure::Protocol(format!("{event:?} is no type of event")));
        }
        // A single node that never changes its address has no other events.
        conn.wants_schema_events |= event == "SCHEMA_CHANGE";
    }
    response::encode_ready(&mut conn.out, reply);
    Ok(())
}
