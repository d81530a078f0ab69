//! The protocol side of a connection: frames in, frames out.

use std::sync::{Arc, PoisonError};

use tare_cql::frame::{self, Direction, Frame};
use tare_cql::request::{Parameters, Request};
use tare_cql::response;
use tare_cql::wire::StringList;

use crate::catalog::hash_uuid;
use crate::failure::Failure;
use crate::plan::{Plan, Prepared};
use crate::planner;
use crate::shard::{Conn, Shard};

/// The longest request in bytes (Cassandra's `native_transport_max_frame_size`, 4.0).
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Prepared statements that the server remembers; beyond it all are forgotten, and clients, told
/// that a statement is not prepared, prepare it again.
const PREPARED_MAX: usize = 10_000;

impl Shard {
    /// Handles the requests in a connection's input, as many as are whole.
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
            match frame::decode(&input[at..], Direction::Request, REQUEST_BYTES_MAX) {
                Ok(None) => break,
                Ok(Some((frame, length))) => {
                    self.request(conn, &frame);
                    at += length;
                }
                Err(error) => {
                    // What follows cannot be told apart any more.
                    error.answer(&mut conn.out);
                    self.state.metrics.errors += 1;
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

    #[inline]
    fn request(&mut self, conn: &mut Conn, frame: &Frame<'_>) {
        let result = match Request::decode(frame) {
            Ok(_) if self.is_overloaded() => Err(self.overloaded()),
            Ok(Request::Execute { id, parameters }) if conn.started => {
                self.execute(conn, frame.stream, id, &parameters)
            }
            Ok(request) => self.other(conn, frame.stream, &request),
            Err(error) => Err(Failure::Protocol(error.to_string())),
        };
        if let Err(failure) = result {
            self.state.metrics.errors += 1;
            failure.encode(&mut conn.out, frame.stream);
        }
    }

    #[cold]
    fn overloaded(&mut self) -> Failure {
        self.state.metrics.overloaded += 1;
        let message = "connections hold all the memory that they may; take your answers, send less";
        Failure::Overloaded(message.into())
    }

    fn other(
        &mut self,
        conn: &mut Conn,
        stream: i16,
        request: &Request<'_>,
    ) -> Result<(), Failure> {
        match request {
            Request::Options => {
                let options: [(&str, &[&str]); 3] = [
                    ("CQL_VERSION", &[tare_cql::CQL_VERSION]),
                    ("COMPRESSION", &[]),
                    ("PROTOCOL_VERSIONS", &["4/v4"]),
                ];
                response::encode_supported(&mut conn.out, stream, &options);
                Ok(())
            }
            Request::Startup { options } => {
                if let Some(compression) = options.get("COMPRESSION") {
                    let message = format!("compression {compression:?} is not supported");
                    return Err(Failure::Protocol(message));
                }
                conn.started = true;
                response::encode_ready(&mut conn.out, stream);
                Ok(())
            }
            _ if !conn.started => {
                Err(Failure::Protocol("the first request must be STARTUP or OPTIONS".into()))
            }
            Request::Register { events } => register(conn, stream, *events),
            Request::Query { statement, parameters } => {
                self.refresh();
                let keyspace = conn.keyspace.clone();
                let prepared = self.plan(keyspace.as_deref(), statement)?;
                self.run_statement(conn, stream, &Arc::new(prepared), parameters)
            }
            Request::Prepare { statement } => self.prepare(conn, stream, statement),
            Request::Execute { .. } => unreachable!("handled by the caller once started"),
            Request::AuthResponse { .. } => {
                Err(Failure::Protocol("no authentication was asked for".into()))
            }
            Request::Batch(batch) => {
                let message = format!("BATCH ({} statements) is not supported", batch.statements);
                Err(Failure::Invalid(message))
            }
        }
    }

    fn plan(&self, keyspace: Option<&str>, statement: &str) -> Result<Prepared, Failure> {
        planner::plan(&self.state.catalog, self.state.epoch, keyspace, statement)
    }

    fn prepare(&mut self, conn: &mut Conn, stream: i16, statement: &str) -> Result<(), Failure> {
        self.refresh();
        let keyspace = conn.keyspace.clone();
        let prepared = Arc::new(self.plan(keyspace.as_deref(), statement)?);
        let scope = keyspace.as_deref().unwrap_or_default();
        let id = hash_uuid(&[scope.as_bytes(), statement.as_bytes()]);
        let columns = match &prepared.plan {
            Plan::Select(select) => Some(&select.columns),
            Plan::System(select) => Some(&select.columns),
            Plan::Insert(_) | Plan::Other(_) => None,
        };
        let (markers, key) = (&prepared.marker_columns, &prepared.partition_key);
        response::encode_prepared(&mut conn.out, stream, &id, markers, key, columns);
        let text = (keyspace.map(|keyspace| keyspace.to_string()), statement.to_string());
        let mut texts = self.common.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if texts.len() >= PREPARED_MAX && !texts.contains_key(&id) {
            texts.clear();
        }
        texts.insert(id, Arc::new(text));
        drop(texts);
        self.remember(id, prepared);
        Ok(())
    }

    fn remember(&mut self, id: [u8; 16], prepared: Arc<Prepared>) {
        if self.state.prepared.len() >= PREPARED_MAX {
            self.state.prepared.clear();
        }
        self.state.prepared.insert(id, prepared);
    }

    #[inline]
    fn execute(
        &mut self,
        conn: &mut Conn,
        stream: i16,
        id: &[u8],
        parameters: &Parameters<'_>,
    ) -> Result<(), Failure> {
        self.refresh();
        let foreign = |_| Failure::Protocol("an id of a statement has 16 bytes".into());
        let id: [u8; 16] = id.try_into().map_err(foreign)?;
        let known = self.state.prepared.get(&id).filter(|p| p.epoch == self.state.epoch);
        let prepared = match known {
            Some(prepared) => Arc::clone(prepared),
            None => self.prepare_again(id)?,
        };
        self.run_statement(conn, stream, &prepared, parameters)
    }

    /// Plans a statement that another shard prepared, or that the schema has changed under.
    #[cold]
    fn prepare_again(&mut self, id: [u8; 16]) -> Result<Arc<Prepared>, Failure> {
        let texts = self.common.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let text = texts.get(&id).cloned().ok_or(Failure::Unprepared(id))?;
        drop(texts);
        let prepared = Arc::new(self.plan(text.0.as_deref(), &text.1)?);
        self.remember(id, Arc::clone(&prepared));
        Ok(prepared)
    }
}

fn register(conn: &mut Conn, stream: i16, events: StringList<'_>) -> Result<(), Failure> {
    for event in events {
        if !response::EVENT_TYPES.contains(&event) {
            return Err(Failure::Protocol(format!("{event:?} is no type of event")));
        }
        // A single node that never changes its address has no other events to tell.
        conn.wants_schema_events |= event == "SCHEMA_CHANGE";
    }
    response::encode_ready(&mut conn.out, stream);
    Ok(())
}
