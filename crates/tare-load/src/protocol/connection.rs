//! One non-blocking connection to a server with many requests in flight. `dial` opens it.
//!
//! Operations allocate nothing. Requests are encoded into one send buffer, answers are decoded in
//! the receive buffer, and a table indexed by stream id holds the requests in flight. Protocols
//! without stream ids answer in order, so there the streams are a queue.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tare_cql::frame::{self, Direction, Frame, Head, Version};
use tare_cql::request;
use tare_cql::response::Response;

use crate::access::Protocol;
use crate::protocol::answer::Answer;
use crate::protocol::key_value::KeyValueProtocol;
use crate::protocol::prepared::{Prepared, Statement};
use crate::protocol::request::{Failure, Job};
use crate::protocol::sharding::Sharding;
use crate::protocol::wire::{self, ANSWER_BYTES_MAX, Progress, ReceiveError, Wire};
use crate::report::stats::ErrorKind;
use crate::workload::operation::Operation;

/// One attempt at an operation: a request in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    /// Open loop: when the operation should have been sent.
    pub(crate) intended_ns: u64,
    /// When the operation was first handed to the kernel; 0 before that.
    pub(crate) sent_ns: u64,
    /// When this attempt was handed to the kernel; 0 before that.
    pub(crate) attempt_ns: u64,
    /// When the kernel passed the request to the network device; 0 if that is not known.
    pub(crate) left_ns: u64,
    pub(crate) operation: Operation,
    pub(crate) state: State,
    /// Attempts that failed before this one.
    pub(crate) retries: u8,
    /// How often the server had forgotten the prepared statement.
    pub(crate) unprepared: u8,
    /// Another attempt in flight at the same time, and whether this one is the later of the two.
    pub(crate) other_attempt: Option<AttemptRef>,
    pub(crate) is_second: bool,
    pub(crate) had_other_attempt: bool,
}

impl Slot {
    #[inline]
    pub(crate) fn new(operation: Operation, intended_ns: u64) -> Self {
        Self { operation, intended_ns, ..Self::default() }
    }

    /// Returns service and, in an open loop, response time of an operation whose answer the kernel
    /// received at `received_ns`, by the kernel's times, if it has one for the request. The request
    /// of an operation that had several attempts is not known.
    #[inline]
    pub(crate) fn in_kernel(&self, received_ns: u64, is_open: bool) -> Option<(u64, Option<u64>)> {
        if self.left_ns == 0 || self.retries > 0 || self.unprepared > 0 || self.had_other_attempt {
            return None;
        }
        let service_ns = received_ns.checked_sub(self.left_ns)?;
        Some((service_ns, is_open.then(|| received_ns.saturating_sub(self.intended_ns))))
    }

    /// Returns true while the answer to this attempt decides the operation.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self.state, State::Waiting | State::AwaitingPrepare)
    }
}

/// What a stream is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing; an answer on it is a protocol error.
    #[default]
    Free,
    /// The request awaits its answer.
    Waiting,
    /// The request waits until its statement has been prepared again.
    AwaitingPrepare,
    /// The attempt was given up, but its answer may still come.
    GivenUp,
}

/// The connection and stream of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttemptRef {
    pub(crate) connection: usize,
    pub(crate) stream: i16,
}

/// The stream on which statements are prepared during a load.
pub(crate) const CONTROL: i16 = i16::MAX;
/// An operation fails once the server has forgotten its statement more often than this.
const UNPREPARED_MAX: u8 = 3;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    pub(crate) address: SocketAddr,
    /// The version of CQL.
    pub(crate) version: Version,
    /// Set if it does not speak CQL.
    pub(crate) key_value: Option<KeyValueProtocol>,
    /// The streams of the requests in flight, in the order of their answers. Empty with CQL.
    pub(crate) order: VecDeque<i16>,
    /// The number of the node in the cluster.
    pub(crate) node: u16,
    /// The server's shard that the connection reaches, if the server is sharded.
    pub(crate) sharding: Option<Sharding>,
    pub(crate) prepared: Prepared,
    pub(crate) wire: Wire,
    /// Encoded requests. The kernel has taken the first `out_sent` bytes.
    pub(crate) out: Vec<u8>,
    pub(crate) out_sent: usize,
    /// Received frames; the last one may be incomplete.
    pub(crate) input: Vec<u8>,
    /// Requests in flight, indexed by stream id.
    pub(crate) slots: Vec<Slot>,
    /// The most requests that may wait for answers.
    limit: usize,
    /// How many streams belong to attempts that were given up.
    pub(crate) given_up: usize,
    /// The statement that is being prepared again, and the streams that wait for it.
    pub(crate) preparing: Option<usize>,
    awaiting_prepare: Vec<i16>,
    /// Stream ids not in use, the most recently freed last.
    pub(crate) free: Vec<i16>,
    /// Stream ids encoded but not yet handed to the kernel for the first time.
    pub(crate) queued: Vec<i16>,
    /// False once the peer closed the connection, an error occurred, or the peer broke the
    /// protocol.
    pub(crate) alive: bool,
}

impl Connection {
    pub(crate) fn new(
        socket: TcpStream,
        address: SocketAddr,
        protocol: Protocol,
        wire: Wire,
    ) -> Self {
        let version = match protocol {
            Protocol::Cql(version) => version,
            Protocol::Redis | Protocol::Memcached => Version::default(),
        };
        Self {
            socket,
            address,
            version,
            key_value: KeyValueProtocol::of(protocol),
            order: VecDeque::new(),
            node: 0,
            sharding: None,
            prepared: Prepared::default(),
            wire,
            out: Vec::new(),
            out_sent: 0,
            input: Vec::new(),
            slots: Vec::new(),
            limit: 0,
            given_up: 0,
            preparing: None,
            awaiting_prepare: Vec::new(),
            free: Vec::new(),
            queued: Vec::new(),
            alive: true,
        }
    }

    /// Returns the header of a request on a stream.
    #[inline]
    pub(crate) fn head(&self, stream: i16) -> Head {
        Head { version: self.version, stream }
    }

    /// Makes room for `limit` requests in flight. No request may be in flight now.
    pub(crate) fn reserve(&mut self, limit: i16) {
        let wanted = usize::try_from(limit).unwrap_or_default();
        self.limit = wanted;
        if self.slots.len() != wanted {
            self.slots = vec![Slot::default(); wanted];
            self.queued = Vec::with_capacity(wanted);
            self.free = (0..limit).rev().collect();
        }
    }

    /// Returns true if the peer has neither closed the connection nor sent anything unasked.
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

    /// Returns true if an answer is missing.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.in_flight() > self.given_up
    }

    /// Returns true if another request may be sent.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() && self.in_flight() - self.given_up < self.limit
    }

    /// Takes a free stream for a request that is about to be encoded.
    #[inline]
    pub(crate) fn take_stream(&mut self, slot: Slot) -> Option<i16> {
        let stream = self.free.pop()?;
        let place = &mut self.slots[usize::try_from(stream).unwrap_or_default()];
        *place = Slot { state: State::Waiting, attempt_ns: 0, left_ns: 0, ..slot };
        self.queued.push(stream);
        if self.key_value.is_some() {
            self.order.push_back(stream);
        }
        Some(stream)
    }

    /// Adds a free stream if there is none and the limit allows it.
    pub(crate) fn extend(&mut self) {
        let next = i16::try_from(self.slots.len()).unwrap_or(CONTROL);
        if self.free.is_empty() && next < CONTROL {
            self.slots.push(Slot::default());
            self.free.push(next);
        }
    }

    /// Frees a stream whose request has been answered.
    #[inline]
    pub(crate) fn release(&mut self, stream: i16) {
        self.slots[usize::try_from(stream).unwrap_or_default()].state = State::Free;
        self.free.push(stream);
    }

    /// Gives up the attempt on a stream; its answer will be ignored.
    pub(crate) fn give_up_attempt(&mut self, stream: i16) {
        let place = usize::try_from(stream).unwrap_or(usize::MAX);
        let Some(slot) = self.slots.get_mut(place) else { return };
        slot.other_attempt = None;
        match slot.state {
            State::Free | State::GivenUp => {}
            State::Waiting => {
                slot.state = State::GivenUp;
                self.given_up += 1;
                self.extend();
            }
            State::AwaitingPrepare => {
                self.awaiting_prepare.retain(|awaiting_prepare| *awaiting_prepare != stream);
                self.release(stream);
            }
        }
    }

    /// Has a statement prepared that the server has forgotten, and the request sent again after
    /// that. Returns false if that was tried too often.
    #[cold]
    pub(crate) fn park(&mut self, stream: i16, statement: usize) -> bool {
        let head = self.head(CONTROL);
        let Some(Statement { text, .. }) = self.prepared.statements.get(statement) else {
            return false;
        };
        let slot = &mut self.slots[usize::try_from(stream).unwrap_or_default()];
        if slot.unprepared >= UNPREPARED_MAX {
            return false;
        }
        slot.unprepared += 1;
        slot.state = State::AwaitingPrepare;
        self.awaiting_prepare.push(stream);
        if self.preparing.is_none() {
            self.preparing = Some(statement);
            request::encode_prepare(&mut self.out, head, text);
        }
        true
    }

    /// Takes the answer to PREPARE at `offset` of the input. Sends the waiting requests again, or
    /// returns them if the statement cannot be prepared.
    #[cold]
    pub(crate) fn end_preparing(
        &mut self,
        offset: usize,
        job: &Job,
    ) -> Result<(), Vec<(Slot, Failure)>> {
        let statement = self.preparing.take().and_then(|n| self.prepared.statements.get_mut(n));
        let frame = Self::frame_at(&self.input[offset..]);
        let awaiting_prepare = std::mem::take(&mut self.awaiting_prepare);
        let failure = match frame.ok().flatten().map(|(frame, _)| Response::decode(&frame)) {
            Some(Ok(Response::Prepared(prepared))) => {
                if let Some(statement) = statement {
                    *statement = Statement::new(std::mem::take(&mut statement.text), &prepared);
                }
                for stream in awaiting_prepare {
                    let slot = &mut self.slots[usize::try_from(stream).unwrap_or_default()];
                    slot.state = State::Waiting;
                    let head = Head { version: self.version, stream };
                    job.encode(slot.operation, &self.prepared, head, &mut self.out);
                    self.queued.push(stream);
                }
                return Ok(());
            }
            Some(Ok(Response::Error(error))) => {
                (ErrorKind::Server(error.kind.code()), error.message.to_string())
            }
            _ => (ErrorKind::Unexpected, "unexpected answer to PREPARE".into()),
        };
        let mut failed = Vec::new();
        for stream in awaiting_prepare {
            failed.push((self.slots[usize::try_from(stream).unwrap_or_default()], failure.clone()));
            self.release(stream);
        }
        Err(failed)
    }

    /// Hands the send buffer to the kernel as far as it takes it, and stamps its requests with
    /// `now_ns`, which was read just before.
    #[inline]
    pub(crate) fn flush(&mut self, now_ns: u64) -> Progress {
        for &stream in &self.queued {
            if let Some(slot) = self.slots.get_mut(usize::try_from(stream).unwrap_or(usize::MAX)) {
                slot.attempt_ns = now_ns;
                if slot.sent_ns == 0 {
                    slot.sent_ns = now_ns;
                }
            }
        }
        let progress = self.send();
        if progress == Progress::More
            && let Some((times, sent_bytes)) = self.wire.kernel_times()
        {
            times.sent(&self.queued, sent_bytes);
        }
        self.queued.clear();
        progress
    }

    /// Takes over when the kernel passed requests to the network device, if that is wanted. Returns
    /// when it received the answers that came last.
    #[inline]
    pub(crate) fn take_kernel_times(&mut self) -> Option<u64> {
        let (times, _) = self.wire.kernel_times()?;
        let slots = &mut self.slots;
        times.take_sent(&self.socket, |stream, left_ns| {
            if let Some(slot) = slots.get_mut(usize::try_from(stream).unwrap_or(usize::MAX)) {
                slot.left_ns = left_ns;
            }
        });
        times.received_ns()
    }

    /// Hands the send buffer to the kernel as far as it takes it.
    #[inline]
    pub(crate) fn send(&mut self) -> Progress {
        self.wire.send(&self.socket, &mut self.out, &mut self.out_sent)
    }

    /// Returns true if the kernel has not yet taken everything.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty() || self.wire.has_output()
    }

    /// Receives what has arrived, up to the size of the buffer.
    #[inline]
    pub(crate) fn receive(&mut self) -> Result<Progress, ReceiveError> {
        self.wire.receive(&self.socket, &mut self.input)
    }

    /// Returns the answer at the front of received bytes and its length. The error says why they
    /// are none.
    #[inline]
    pub(crate) fn answer_at(
        key_value: Option<KeyValueProtocol>,
        input: &[u8],
    ) -> Result<Option<(Answer<'_>, usize)>, String> {
        match key_value {
            None => match Self::frame_at(input) {
                Ok(found) => Ok(found.map(|(frame, length)| (Answer::Cql(frame), length))),
                Err(error) => Err(error.to_string()),
            },
            Some(protocol) => match protocol.decode(input) {
                Ok(found) => Ok(found.map(|(answer, length)| (Answer::KeyValue(answer), length))),
                Err(error) => Err(error.to_string()),
            },
        }
    }

    /// Returns the frame at the front of received bytes and its length.
    #[inline]
    pub(crate) fn frame_at(input: &[u8]) -> Result<Option<(Frame<'_>, usize)>, frame::FrameError> {
        frame::decode(input, Direction::Response, ANSWER_BYTES_MAX)
    }

    /// Forgets the first `count` received bytes.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        wire::forget(&mut self.input, count);
    }

    /// Closes the connection. Returns the requests whose answers were awaited.
    pub(crate) fn give_up(&mut self) -> Vec<Slot> {
        self.alive = false;
        let slots = std::mem::take(&mut self.slots);
        self.given_up = 0;
        self.preparing = None;
        self.awaiting_prepare.clear();
        self.free.clear();
        self.queued.clear();
        self.order.clear();
        self.out.clear();
        self.out_sent = 0;
        // The peer may be gone already, so an error does not matter.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        slots.into_iter().filter(Slot::is_awaited).collect()
    }
}
