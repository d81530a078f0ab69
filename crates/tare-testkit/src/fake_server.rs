//! A server that speaks just enough CQL for a load: one thread per connection, rows in a map. It
//! can misbehave on purpose.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tare_cql::frame::{self, Direction, Head};
use tare_cql::request::Request;
use tare_cql::response::{self, ColumnSpec, EncodedColumns, ErrorKind, Reply, RowsWriter};
use tare_cql::types::Type;
use tare_cql::wire::Value;

/// How the server answers EXECUTE requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerBehaviour {
    Good,
    /// Answers this many requests, then closes every connection.
    CloseAfter(u64),
    /// Answers this many, then sends bytes that are not CQL.
    GarbageAfter(u64),
    /// Answers this many requests, then none.
    SilentAfter(u64),
    /// Answers every seventh request with an error.
    Errors,
    /// Answers every request with an error.
    Refuses,
    /// Returns rows with one changed byte.
    Corrupt,
    /// Acknowledges updates of existing rows, but drops them.
    Stale,
    /// Requires authentication.
    Login,
    /// Answers requests that arrived together in reverse order.
    Reversed,
    /// Answers this many requests, then uses streams without a request.
    OtherStreams(u64),
    /// Answers every thousandth request with `UNPREPARED`, until the statement is prepared again.
    Forgets,
    /// Leaves every fiftieth request without an answer.
    Drops,
    /// Closes the connection that sends the request of this number, once.
    CloseOnce(u64),
}

/// The write time and the cells of each row, by key.
type Rows = Mutex<HashMap<u64, (i64, Vec<Vec<u8>>)>>;

#[derive(Debug)]
struct State {
    behaviour: ServerBehaviour,
    rows: Rows,
    executed: AtomicU64,
    connections: AtomicU64,
    forgotten: AtomicBool,
    /// The next request closes its connection.
    close_next: AtomicBool,
    /// `CloseOnce` or `close_next` has closed a connection.
    closed: AtomicBool,
    /// A connection that was opened after that has executed a request.
    recovered: AtomicBool,
    statements: Mutex<Vec<String>>,
    stop: AtomicBool,
}

/// The server. Dropping it stops it.
#[derive(Debug)]
pub struct FakeServer {
    pub address: SocketAddr,
    state: Arc<State>,
}

impl FakeServer {
    /// Listens on a free port.
    ///
    /// # Panics
    /// If there is none.
    pub fn start(behaviour: ServerBehaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            behaviour,
            rows: Rows::default(),
            executed: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            forgotten: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            close_next: AtomicBool::new(false),
            recovered: AtomicBool::new(false),
            statements: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                if shared.stop.load(Ordering::Relaxed) {
                    break;
                }
                shared.connections.fetch_add(1, Ordering::Relaxed);
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(socket.unwrap(), &shared));
            }
        });
        Self { address, state }
    }

    /// Returns the cells of all rows by key.
    ///
    /// # Panics
    /// If a connection's thread has panicked.
    pub fn rows(&self) -> HashMap<u64, Vec<Vec<u8>>> {
        let rows = self.state.rows.lock().unwrap();
        rows.iter().map(|(key, (_, cells))| (*key, cells.clone())).collect()
    }

    /// Returns how many connections there have been.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Closes the connection that sends the next request, which gets no answer.
    pub fn close_next(&self) {
        self.state.close_next.store(true, Ordering::Relaxed);
    }

    /// Returns whether a connection that was opened after one was closed has executed a request.
    pub fn has_recovered(&self) -> bool {
        self.state.recovered.load(Ordering::Relaxed)
    }

    /// Returns every statement that was run or prepared.
    ///
    /// # Panics
    /// If a connection's thread has panicked.
    pub fn statements(&self) -> Vec<String> {
        self.state.statements.lock().unwrap().clone()
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    /// Whether `close_next` asks to close the connection of this request.
    fn closes_now(&self) -> bool {
        let closes = self.close_next.swap(false, Ordering::Relaxed);
        self.closed.fetch_or(closes, Ordering::Relaxed);
        closes
    }
}

fn serve(mut socket: TcpStream, state: &State) {
    let made_again = state.closed.load(Ordering::Relaxed);
    let mut input = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = match socket.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        input.extend_from_slice(&buffer[..count]);
        let mut out = Vec::new();
        let mut offset = 0;
        while let Ok(Some((frame, length))) =
            frame::decode(&input[offset..], Direction::Request, 1 << 24)
        {
            let mut one = Vec::new();
            let goes_on = answer(&frame, state, &mut one);
            let executes = matches!(Request::decode(&frame), Ok(Request::Execute { .. }));
            if made_again && executes {
                state.recovered.store(true, Ordering::Relaxed);
            }
            match state.behaviour {
                ServerBehaviour::Reversed => out.splice(0..0, one),
                _ => out.splice(out.len().., one),
            };
            if !goes_on {
                let _ = socket.write_all(&out);
                return;
            }
            offset += length;
        }
        input.drain(..offset);
        if socket.write_all(&out).is_err() {
            return;
        }
    }
}

fn answer(frame: &frame::Frame<'_>, state: &State, out: &mut Vec<u8>) -> bool {
    let (reply, behaviour) = (Reply::to(frame), state.behaviour);
    let note = |statement: &str| state.statements.lock().unwrap().push(statement.into());
    match Request::decode(frame).unwrap() {
        Request::Options => response::encode_supported(out, reply, &[]),
        Request::Startup { .. } if behaviour == ServerBehaviour::Login => {
            response::encode_authenticate(out, reply, "PasswordAuthenticator");
        }
        Request::Startup { .. } => response::encode_ready(out, reply),
        Request::Query { statement, .. } => {
            note(statement);
            response::encode_void(out, reply);
        }
        Request::Prepare { statement, .. } => {
            note(statement);
            state.forgotten.store(false, Ordering::Relaxed);
            let no_columns = EncodedColumns::new("", "", []);
            let id = &statement.as_bytes()[..6];
            response::encode_prepared(out, reply, id, &no_columns, &[], None);
        }
        Request::Execute { id, parameters } => {
            let executed = state.executed.fetch_add(1, Ordering::Relaxed);
            match behaviour {
                _ if state.closes_now() => return false,
                ServerBehaviour::CloseAfter(count) if executed >= count => return false,
                ServerBehaviour::SilentAfter(count) if executed >= count => return true,
                ServerBehaviour::GarbageAfter(count) if executed >= count => {
                    out.extend_from_slice(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                    return true;
                }
                // This request is in flight and gets no answer on this connection.
                ServerBehaviour::CloseOnce(count) if executed == count => {
                    state.closed.store(true, Ordering::Relaxed);
                    return false;
                }
                ServerBehaviour::Drops if executed % 50 == 49 => return true,
                ServerBehaviour::OtherStreams(count) if executed >= count => {
                    let head = Head { stream: 12_345, ..Head::from(reply) };
                    response::encode_void(out, head);
                    return true;
                }
                ServerBehaviour::Forgets
                    if executed % 1_000 == 999 || state.forgotten.load(Ordering::Relaxed) =>
                {
                    state.forgotten.store(true, Ordering::Relaxed);
                    let kind = ErrorKind::Unprepared { id };
                    response::encode_error(out, reply, &kind, "forgotten");
                    return true;
                }
                ServerBehaviour::Errors | ServerBehaviour::Refuses
                    if executed.is_multiple_of(7) || behaviour == ServerBehaviour::Refuses =>
                {
                    let kind = ErrorKind::Overloaded;
                    response::encode_error(out, reply, &kind, "overloaded");
                    return true;
                }
                _ => {}
            }
            let mut values = parameters.values.iter().map(|value| match value {
                Value::Bytes(bytes) => bytes.to_vec(),
                other => panic!("{other:?}"),
            });
            let key = u64::from_be_bytes(values.next().unwrap().try_into().unwrap());
            match id {
                b"INSERT" => {
                    // The latest write time wins, as in CQL.
                    let mut rows = state.rows.lock().unwrap();
                    let known = rows.entry(key).or_default();
                    let now_us = known.0 + 1;
                    let time_us = parameters.settings.timestamp_us.unwrap_or(now_us);
                    let row = (time_us, values.collect());
                    if row.0 > known.0 && (known.0 == 0 || behaviour != ServerBehaviour::Stale) {
                        *known = row;
                    }
                    response::encode_void(out, reply);
                }
                b"SELECT" => {
                    let row = state.rows.lock().unwrap().get(&key).cloned();
                    let row = row.map(|(_, cells)| cells);
                    let count = row.as_ref().map_or(1, Vec::len);
                    let column = ColumnSpec { name: "c", kind: &Type::Blob };
                    let columns = EncodedColumns::new("", "", vec![column; count]);
                    let mut rows = RowsWriter::begin(out, reply, &columns, None);
                    if let Some(mut row) = row {
                        if behaviour == ServerBehaviour::Corrupt {
                            *row.last_mut().unwrap().last_mut().unwrap() ^= 1;
                        }
                        row.iter().for_each(|cell| rows.cell(Some(cell)));
                        rows.end_row();
                    }
                    rows.finish();
                }
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    }
    true
}
