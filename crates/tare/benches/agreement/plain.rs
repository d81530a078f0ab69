//! A second client, as simple as possible: one blocking thread per connection, one request at a
//! time, and every time is kept. It shares no code with the load generator.
//!
//! Without a rate it works like redis-benchmark: it sends the next request when one has been
//! answered, and times count from the send. With a rate it works like wrk2: each connection has its
//! part of the schedule, and times count from when a request was due.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

use crate::Result;

/// The load to generate.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) host: &'static str,
    pub(crate) port: u16,
    pub(crate) cpu: u32,
    pub(crate) connections: u32,
    /// Requests/s of all connections together.
    pub(crate) rate: Option<f64>,
    pub(crate) lead_in: Duration,
    pub(crate) length: Duration,
    /// Keys are below this.
    pub(crate) rows: u64,
}

/// The statement of `tare load`'s reads of 5 columns of 60 bytes.
const STATEMENT: &str = "SELECT c0, c1, c2, c3, c4 FROM tare.row5x60 WHERE key = ?";

/// Returns the times of all requests of the window in ns, sorted.
pub(crate) fn run(load: Load) -> Result<Vec<u64>> {
    let begin = Instant::now() + Duration::from_millis(100);
    let threads: Vec<_> = (0..load.connections)
        .map(|number| std::thread::spawn(move || one(load, number, begin)))
        .collect();
    let mut times = Vec::new();
    for thread in threads {
        let of_one = thread.join().map_err(|_| "a thread of the plain client failed")?;
        times.extend(of_one.map_err(|error| error.to_string())?);
    }
    times.sort_unstable();
    Ok(times)
}

fn one(load: Load, number: u32, begin: Instant) -> std::io::Result<Vec<u64>> {
    let mut cpus = CpuSet::new();
    cpus.set(load.cpu as usize);
    sched_setaffinity(None, &cpus)?;
    set_current_timer_slack(std::num::NonZeroU64::new(1))?;
    let mut connection = Connection::open(load.host, load.port)?;
    let window = (begin + load.lead_in, begin + load.lead_in + load.length);
    let mut times = Vec::new();
    let mut key = u64::from(number);
    for request in 0u32.. {
        let due = match load.rate {
            None => Instant::now().max(begin),
            Some(rate) => {
                let place = f64::from(request) * f64::from(load.connections) + f64::from(number);
                begin + Duration::from_secs_f64(place / rate)
            }
        };
        if due >= window.1 {
            break;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let from = if load.rate.is_some() { due } else { Instant::now() };
        // A different row each time.
        key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        connection.execute((key >> 33) % load.rows)?;
        if from >= window.0 {
            times.push(u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    Ok(times)
}

/// A connection with its statement prepared, in protocol version 4.
struct Connection {
    socket: TcpStream,
    execute: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    fn open(host: &str, port: u16) -> std::io::Result<Self> {
        let socket = TcpStream::connect((host, port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut connection = Self { socket, execute: Vec::new(), answer: Vec::new() };
        // STARTUP with a map of one entry.
        let startup = [&[0, 1][..], &string("CQL_VERSION"), &string("3.0.0")].concat();
        connection.exchange(&frame(0x01, &startup))?;
        let length = i32::try_from(STATEMENT.len()).unwrap_or_default().to_be_bytes();
        let opcode =
            connection.exchange(&frame(0x09, &[&length, STATEMENT.as_bytes()].concat()))?;
        // RESULT of kind PREPARED: kind, then the id as short bytes.
        let id = match (opcode, connection.answer.get(4..6)) {
            (0x08, Some(&[high, low])) => {
                let end = 6 + usize::from(u16::from_be_bytes([high, low]));
                connection.answer.get(4..end)
            }
            _ => None,
        };
        let refused = || std::io::Error::other("the server does not prepare the statement");
        let id = id.ok_or_else(refused)?;
        // Consistency ONE, with values and without the description of the rows (flags 1 and 2): one
        // value of 8 bytes.
        let body = [id, &[0, 1, 0x03, 0, 1, 0, 0, 0, 8], &[0; 8]].concat();
        connection.execute = frame(0x0a, &body);
        Ok(connection)
    }

    /// Reads a row.
    fn execute(&mut self, key: u64) -> std::io::Result<()> {
        let mut request = std::mem::take(&mut self.execute);
        let end = request.len();
        request[end - 8..].copy_from_slice(&key.to_be_bytes());
        let opcode = self.exchange(&request);
        self.execute = request;
        match opcode? {
            0x08 => Ok(()),
            other => Err(std::io::Error::other(format!("an answer of kind {other}"))),
        }
    }

    /// Sends a frame and waits for the answer; returns its opcode. The body is in `answer`.
    fn exchange(&mut self, request: &[u8]) -> std::io::Result<u8> {
        self.socket.write_all(request)?;
        let mut head = [0; 9];
        self.socket.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        self.answer.resize(length as usize, 0);
        self.socket.read_exact(&mut self.answer)?;
        Ok(head[4])
    }
}

/// Encodes a request on stream 0.
fn frame(opcode: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or_default().to_be_bytes();
    [&[4, 0, 0, 0, opcode], &length[..], body].concat()
}

/// Encodes a string, preceded by its length.
fn string(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap_or_default().to_be_bytes();
    [&length, text.as_bytes()].concat()
}
