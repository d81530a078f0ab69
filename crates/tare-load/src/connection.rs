//! One connection to a CQL server, used without blocking, with many requests in flight. `dial` sets
//! it up.
//!
//! Nothing is allocated per operation: requests are encoded into one send buffer, answers are
//! decoded in the receive buffer, and what is known about a request in flight lies in a table
//! indexed by its stream id.

use std::net::{SocketAddr, TcpStream};

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tare_cql::frame::{self, Direction, Frame, Head, Version};
use tare_cql::request::Settings;
use tare_cql::response;
use tare_cql::wire::Consistency;

use crate::keys::Operation;
use crate::routing::Sharding;
use crate::wire::{self, ANSWER_BYTES_MAX, Garbage, Progress, Wire};

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
    /// Version 5: the columns of the result that the server described.
    pub(crate) result_id: Option<Vec<u8>>,
}

impl Statement {
    pub(crate) fn new(text: String, prepared: &response::Prepared<'_>) -> Self {
        let result_id = prepared.result_id.map(<[u8]>::to_vec);
        Self { text, id: prepared.id.to_vec(), result_id }
    }

    /// How requests are sent: at consistency ONE, without the description of the rows that the
    /// client knows.
    #[inline]
    pub(crate) fn settings(&self) -> Settings<'_> {
        Settings {
            consistency: Consistency::One,
            skip_metadata: true,
            result_id: self.result_id.as_deref(),
            ..Settings::DEFAULT
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    pub(crate) address: SocketAddr,
    pub(crate) version: Version,
    /// Number of the node of the cluster.
    pub(crate) node: u16,
    /// Which of the server's shards it leads to, where there are such.
    pub(crate) sharding: Option<Sharding>,
    pub(crate) prepared: Prepared,
    pub(crate) wire: Wire,
    /// Encoded requests; the first `out_sent` bytes are with the kernel.
    pub(crate) out: Vec<u8>,
    pub(crate) out_sent: usize,
    /// Received frames, the last of them perhaps in part.
    pub(crate) input: Vec<u8>,
    /// By stream id.
    pub(crate) slots: Vec<Slot>,
    /// Stream ids not in use, the most recently freed last.
    pub(crate) free: Vec<i16>,
    /// Stream ids encoded but not yet handed to the kernel for the first time.
    pub(crate) queued: Vec<i16>,
    /// False once the peer closed, an error came or the peer spoke garbage.
    pub(crate) alive: bool,
}

impl Connection {
    pub(crate) fn new(
        socket: TcpStream,
        address: SocketAddr,
        version: Version,
        wire: Wire,
    ) -> Self {
        Self {
            socket,
            address,
            version,
            node: 0,
            sharding: None,
            prepared: Prepared::default(),
            wire,
            out: Vec::new(),
            out_sent: 0,
            input: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            queued: Vec::new(),
            alive: true,
        }
    }

    /// The header of a request on a stream.
    #[inline]
    pub(crate) fn head(&self, stream: i16) -> Head {
        Head { version: self.version, stream }
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

    /// Takes a free stream for a request that is about to be encoded.
    #[inline]
    pub(crate) fn take_stream(&mut self, operation: Operation, intended_ns: u64) -> Option<i16> {
        let stream = self.free.pop()?;
        let slot = &mut self.slots[usize::try_from(stream).unwrap_or_default()];
        *slot = Slot { intended_ns, sent_ns: 0, operation, taken: true };
        self.queued.push(stream);
        Some(stream)
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
        self.send()
    }

    /// Hands the send buffer to the kernel, as far as it takes it.
    #[inline]
    pub(crate) fn send(&mut self) -> Progress {
        self.wire.send(&self.socket, &mut self.out, &mut self.out_sent)
    }

    /// True if the kernel has not yet taken everything.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty() || self.wire.has_output()
    }

    /// Receives what there is, up to the size of the buffer.
    #[inline]
    pub(crate) fn receive(&mut self) -> Result<Progress, Garbage> {
        self.wire.receive(&self.socket, &mut self.input)
    }

    /// The frame at the front of received bytes and its length.
    #[inline]
    pub(crate) fn frame_at(input: &[u8]) -> Result<Option<(Frame<'_>, usize)>, frame::FrameError> {
        frame::decode(input, Direction::Response, ANSWER_BYTES_MAX)
    }

    /// Forgets the first `count` received bytes.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        wire::forget(&mut self.input, count);
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
