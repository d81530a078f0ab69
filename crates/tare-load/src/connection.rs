//! One connection to a CQL server: set up with blocking exchanges that have deadlines, then used
//! without blocking, with many requests in flight.
//!
//! Nothing is allocated per operation: requests are encoded into one send buffer, answers are
//! decoded in the receive buffer, and what is known about a request in flight lies in a table
//! indexed by its stream id.

use std::io::{self, ErrorKind as IoErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tare_cql::frame::{self, Direction, Frame, Opcode};
use tare_cql::request::{self, Settings};
use tare_cql::response::Response;
use tare_cql::wire::Consistency;

use crate::error::LoadError;
use crate::keys::Operation;
use crate::routing::Sharding;

/// The longest answer that is read. A longer one is garbage: rows are at most 1 MiB.
const ANSWER_BYTES_MAX: usize = 16 << 20;
const INPUT_BYTES: usize = 32 << 10;

/// A request in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    /// Open loop: when it should have been sent.
    pub(crate) intended_ns: u64,
    /// When it was handed to the kernel.
    pub(crate) sent_ns: u64,
    pub(crate) operation: Operation,
    /// False while the stream is free: an answer to it is garbage.
    pub(crate) taken: bool,
}

/// The statements of a job as a connection's server knows them, in the job's order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared {
    pub(crate) statements: Vec<Statement>,
}

/// A prepared statement.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) text: String,
    pub(crate) id: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    address: SocketAddr,
    /// Which of the server's shards it leads to, where there are such.
    pub(crate) sharding: Option<Sharding>,
    pub(crate) prepared: Prepared,
    /// Encoded requests; the first `out_sent` bytes are with the kernel.
    pub(crate) out: Vec<u8>,
    out_sent: usize,
    /// Received bytes; the first `filled` are valid.
    pub(crate) input: Vec<u8>,
    pub(crate) filled: usize,
    /// By stream id.
    pub(crate) slots: Vec<Slot>,
    /// Stream ids not in use, the most recently freed last.
    pub(crate) free: Vec<i16>,
    /// Stream ids encoded but not yet handed to the kernel for the first time.
    pub(crate) queued: Vec<i16>,
    /// False once the peer closed, an error came or the peer spoke garbage.
    pub(crate) alive: bool,
}

/// What a read or write on a busy connection led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There may be more at once.
    More,
    /// Nothing more until the event queue says so.
    Blocked,
    /// The connection has ended.
    Ended,
}

/// How requests are sent: at consistency ONE, without the description of the rows that the
/// client knows.
pub(crate) const SETTINGS: Settings<'static> =
    Settings { consistency: Consistency::One, skip_metadata: true, ..Settings::DEFAULT };

impl Connection {
    /// Connects and says STARTUP. All of it takes at most until `deadline`.
    pub(crate) fn open(address: SocketAddr, deadline: Instant) -> Result<Self, LoadError> {
        let fail = |source| LoadError::Connect { address, source };
        let socket = TcpStream::connect_timeout(&address, remaining(deadline)).map_err(fail)?;
        socket.set_nodelay(true).map_err(fail)?;
        let mut connection = Self {
            socket,
            address,
            sharding: None,
            prepared: Prepared::default(),
            out: Vec::with_capacity(INPUT_BYTES),
            out_sent: 0,
            input: vec![0; INPUT_BYTES],
            filled: 0,
            slots: Vec::new(),
            free: Vec::new(),
            queued: Vec::new(),
            alive: true,
        };
        let what = "OPTIONS";
        connection.ask(what, deadline, |out| request::encode_options(out, 0))?;
        match connection.response(what)? {
            Response::Supported { options } => {
                connection.sharding = Sharding::find(|key| {
                    let (_, mut values) = options.into_iter().find(|(name, _)| *name == key)?;
                    values.next()
                });
            }
            _ => return Err(connection.unexpected(what)),
        }
        let what = "STARTUP";
        connection.ask(what, deadline, |out| {
            request::encode_startup(out, 0, &[("CQL_VERSION", tare_cql::CQL_VERSION)]);
        })?;
        match connection.response(what)? {
            Response::Ready => {}
            Response::Authenticate { class } => {
                return Err(LoadError::Login { address, authenticator: class.into() });
            }
            _ => return Err(connection.unexpected(what)),
        }
        connection.filled = 0;
        Ok(connection)
    }

    /// Runs one statement without values.
    pub(crate) fn query(
        &mut self,
        what: &'static str,
        statement: &str,
        deadline: Instant,
    ) -> Result<(), LoadError> {
        let settings = Settings { skip_metadata: false, ..SETTINGS };
        self.ask(what, deadline, |out| {
            request::encode_query(out, 0, statement, &settings, &[]);
        })?;
        self.response(what)?;
        self.filled = 0;
        Ok(())
    }

    /// Prepares these statements, if they are not.
    pub(crate) fn prepare(
        &mut self,
        statements: &[String],
        deadline: Instant,
    ) -> Result<(), LoadError> {
        if self.prepared.statements.iter().map(|statement| &statement.text).eq(statements) {
            return Ok(());
        }
        self.prepared.statements.clear();
        for text in statements {
            let what = "PREPARE";
            self.ask(what, deadline, |out| request::encode_prepare(out, 0, text))?;
            let id = match self.response(what)? {
                Response::Prepared(prepared) => prepared.id.to_vec(),
                _ => return Err(self.unexpected(what)),
            };
            self.filled = 0;
            self.prepared.statements.push(Statement { text: text.clone(), id });
        }
        Ok(())
    }

    /// Makes room for `limit` requests in flight. None is in flight now.
    pub(crate) fn reserve(&mut self, limit: i16) {
        let wanted = usize::try_from(limit).unwrap_or_default();
        if self.slots.len() != wanted {
            self.slots = vec![Slot::default(); wanted];
            self.queued = Vec::with_capacity(wanted);
            self.free = (0..limit).rev().collect();
        }
    }

    /// True if the peer has neither closed the connection nor sent anything unasked.
    pub(crate) fn is_idle(&self) -> bool {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let mut byte = [0u8];
        self.alive
            && self.in_flight() == 0
            && matches!(rustix::net::recv(&self.socket, &mut byte[..], flags), Err(Errno::AGAIN))
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Sends one request on stream 0 and waits until its whole answer lies in `input`.
    fn ask(
        &mut self,
        what: &'static str,
        deadline: Instant,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), LoadError> {
        let address = self.address;
        let fail = |source| LoadError::Exchange { address, what, source };
        self.out.clear();
        encode(&mut self.out);
        self.filled = 0;
        self.socket.set_write_timeout(Some(remaining(deadline))).map_err(fail)?;
        self.socket.write_all(&self.out).map_err(fail)?;
        self.out.clear();
        loop {
            match frame::decode(&self.input[..self.filled], Direction::Response, ANSWER_BYTES_MAX) {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => {}
                Err(error) => return Err(self.protocol(what, error.to_string())),
            }
            self.grow();
            if Instant::now() >= deadline {
                return Err(fail(io::Error::from(IoErrorKind::TimedOut)));
            }
            self.socket.set_read_timeout(Some(remaining(deadline))).map_err(fail)?;
            match self.socket.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(LoadError::Closed { address, what }),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == IoErrorKind::Interrupted => {}
                Err(error) if error.kind() == IoErrorKind::WouldBlock => {
                    return Err(fail(io::Error::from(IoErrorKind::TimedOut)));
                }
                Err(error) => return Err(fail(error)),
            }
        }
    }

    /// The answer in `input`. An ERROR becomes one of ours.
    fn response(&self, what: &'static str) -> Result<Response<'_>, LoadError> {
        let bytes = &self.input[..self.filled];
        let frame = match frame::decode(bytes, Direction::Response, ANSWER_BYTES_MAX) {
            Ok(Some((frame, _))) => frame,
            Ok(None) => return Err(self.unexpected(what)),
            Err(error) => return Err(self.protocol(what, error.to_string())),
        };
        match Response::decode(&frame) {
            Ok(Response::Error(error)) => Err(LoadError::Refused {
                address: self.address,
                what,
                code: error.kind.code(),
                message: error.message.into(),
            }),
            Ok(response) => Ok(response),
            Err(error) => Err(self.protocol(what, error.to_string())),
        }
    }

    #[cold]
    fn unexpected(&self, what: &'static str) -> LoadError {
        let opcode = self.input.get(4).and_then(|&code| Opcode::from_code(code));
        self.protocol(what, format!("the answer is {opcode:?}"))
    }

    #[cold]
    fn protocol(&self, what: &'static str, reason: String) -> LoadError {
        LoadError::Protocol { address: self.address, what, reason }
    }

    /// Makes room behind the received bytes. A frame longer than the buffer doubles it.
    fn grow(&mut self) {
        if self.filled == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        }
    }

    /// Hands the send buffer to the kernel, as far as it takes it. The requests in it are stamped
    /// with `now_ns`, which was read just before.
    #[inline]
    pub(crate) fn flush(&mut self, now_ns: u64) -> Progress {
        for stream in self.queued.drain(..) {
            if let Some(slot) = self.slots.get_mut(usize::try_from(stream).unwrap_or(usize::MAX)) {
                slot.sent_ns = now_ns;
            }
        }
        while self.out_sent < self.out.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.socket, &self.out[self.out_sent..], flags) {
                Ok(count) => self.out_sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Progress::Blocked,
                Err(_) => return Progress::Ended,
            }
        }
        self.out.clear();
        self.out_sent = 0;
        Progress::More
    }

    /// True if the kernel has not yet taken everything.
    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Receives what there is, up to the size of the buffer.
    #[inline]
    pub(crate) fn receive(&mut self) -> Progress {
        self.grow();
        let room = self.input.len() - self.filled;
        loop {
            let buffer = &mut self.input[self.filled..];
            return match rustix::net::recv(&self.socket, buffer, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => Progress::Ended,
                Ok((_, count)) => {
                    self.filled += count;
                    // A read that does not fill the buffer has emptied a stream socket: epoll(7).
                    if count < room { Progress::Blocked } else { Progress::More }
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Progress::Blocked,
                Err(_) => Progress::Ended,
            };
        }
    }

    /// The frame at `offset` of the received bytes and its length.
    #[inline]
    pub(crate) fn frame_at(input: &[u8]) -> Result<Option<(Frame<'_>, usize)>, frame::FrameError> {
        frame::decode(input, Direction::Response, ANSWER_BYTES_MAX)
    }

    /// Forgets the first `count` received bytes.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        if count < self.filled {
            self.input.copy_within(count..self.filled, 0);
        }
        self.filled -= count;
    }

    /// Takes a free stream for a request that is about to be encoded.
    #[inline]
    pub(crate) fn take_stream(&mut self, operation: Operation, intended_ns: u64) -> Option<i16> {
        let stream = self.free.pop()?;
        let slot = &mut self.slots[usize::try_from(stream).unwrap_or_default()];
        *slot = Slot { intended_ns, sent_ns: 0, operation, taken: true };
        self.queued.push(stream);
        Some(stream)
    }

    /// Gives the connection up. Returns how many requests were in flight.
    pub(crate) fn give_up(&mut self) -> usize {
        let lost = self.in_flight();
        self.alive = false;
        self.slots.clear();
        self.free.clear();
        self.queued.clear();
        self.out.clear();
        self.out_sent = 0;
        // The peer may be gone already; then there is nothing to tell it.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        lost
    }
}

/// Time until `deadline`, but never 0, which sockets take for "no limit".
fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}
