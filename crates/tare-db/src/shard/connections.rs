//! The connections of a shard: their buffers, the memory that they hold, and which of them have
//! output to send or input that has to wait.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{SendFlags, Shutdown};
use tare_cql::frame::{self, Version};

use crate::net::reactor::{ConnId, Source};
use crate::net::tls::Tls;
use crate::net::transport::Transport;
use crate::node::memory::ConnectionMemory;
use crate::query::failure::Failure;
use crate::shard::Shard;
use crate::shard::message::Message;
use crate::shard::siblings::OUTBOX_MAX;

/// Bytes that wait for one client, above which its requests wait too.
const OUT_BYTES_MAX: usize = 1 << 20;
/// A connection frees empty buffers that are larger than this, in bytes.
pub(super) const KEPT_BYTES_MAX: usize = 128 << 10;

/// The state of a connection's login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LoginPhase {
    /// STARTUP has not come yet.
    #[default]
    New,
    /// The server has asked for a login.
    Login,
    /// The login is being checked.
    Checking,
    Ready,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) input: Vec<u8>,
    pub(crate) out: Vec<u8>,
    /// The address that the client has connected to.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) keyspace: Option<Arc<str>>,
    pub(crate) phase: LoginPhase,
    /// The protocol version that STARTUP has settled.
    pub(crate) version: Version,
    pub(crate) transport: Transport,
    pub(crate) wants_schema_events: bool,
    /// Bytes still to come of a request that was refused already.
    pub(crate) refused_bytes: usize,
    /// The connection closes as soon as `out` has been sent.
    pub(crate) closing: bool,
    /// Capacity of the buffer that is being sent.
    pub(super) sending_bytes: usize,
    /// Bytes that [`ConnectionMemory`] counts for this connection.
    held_bytes: usize,
    dirty: bool,
    stalled: bool,
}

impl Conn {
    fn new(id: ConnId, local: Option<SocketAddr>, transport: Transport) -> Self {
        Self {
            id,
            input: Vec::new(),
            out: Vec::new(),
            local,
            keyspace: None,
            phase: LoginPhase::default(),
            version: Version::default(),
            transport,
            wants_schema_events: false,
            refused_bytes: 0,
            closing: false,
            sending_bytes: 0,
            held_bytes: 0,
            dirty: false,
            stalled: false,
        }
    }

    /// Whether anything waits to be handed to the engine.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty() || self.transport.has_output()
    }

    /// Sends a copy of a frame that goes to several clients, in this connection's version.
    pub(crate) fn push_frame(&mut self, frame: &[u8]) {
        let offset = self.out.len();
        self.out.extend_from_slice(frame);
        frame::set_version(&mut self.out, offset, self.version);
    }
}

/// The connections of a shard.
#[derive(Debug)]
pub(crate) struct Connections {
    /// Connections by the slot of their id.
    slots: Vec<Option<Box<Conn>>>,
    /// Connections with output to send at the end of the iteration.
    dirty: Vec<ConnId>,
    /// Connections whose input waits until there is room.
    stalled: Vec<ConnId>,
    /// Requests that will be answered in a later iteration.
    pub(crate) unanswered: u64,
    memory: ConnectionMemory,
    memory_bytes_max: usize,
    /// The buffer that encrypted bytes are received into.
    received: Vec<u8>,
}

impl Connections {
    /// No connections yet; together they should hold at most `memory_bytes_max`.
    pub(crate) fn new(memory_bytes_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            dirty: Vec::new(),
            stalled: Vec::new(),
            unanswered: 0,
            memory: ConnectionMemory::default(),
            memory_bytes_max,
            received: Vec::new(),
        }
    }

    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        let conn = self.slots.get_mut(id.slot as usize)?.as_deref_mut()?;
        (conn.id == id).then_some(conn)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().flatten().map(|conn| &**conn)
    }

    fn insert(&mut self, conn: Conn) {
        let slot = conn.id.slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some(Box::new(conn));
    }

    /// Takes a connection out, so that it and the shard can be borrowed at once.
    pub(super) fn take(&mut self, id: ConnId) -> Option<Box<Conn>> {
        self.get_mut(id)?;
        self.slots[id.slot as usize].take()
    }

    /// Takes out every connection that is left.
    pub(super) fn take_all(&mut self) -> Vec<Option<Box<Conn>>> {
        std::mem::take(&mut self.slots)
    }

    /// Puts a connection back.
    pub(super) fn put(&mut self, mut conn: Box<Conn>) {
        let id = conn.id;
        if conn.input.is_empty() && self.is_under_pressure() {
            conn.input = Vec::new();
        }
        self.memory.count(&mut conn);
        let has_output = conn.has_output() || conn.closing;
        self.slots[id.slot as usize] = Some(conn);
        if has_output {
            self.mark_dirty(id);
        }
    }

    /// Has a connection's answers sent at the end of this iteration.
    pub(crate) fn mark_dirty(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id)
            && !conn.dirty
        {
            conn.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Number of connections whose input waits until there is room.
    #[inline]
    pub(super) fn stalled(&self) -> usize {
        self.stalled.len()
    }

    /// Bytes that all connections hold.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Bytes that all connections hold, and the most that they have held since the last call.
    #[cfg(feature = "simulation")]
    pub(crate) fn take_peak_bytes(&mut self) -> (usize, usize) {
        let bytes = self.memory.bytes();
        (bytes, std::mem::replace(&mut self.memory.peak_bytes, bytes))
    }

    /// Whether connections hold more than they may, so that requests are refused.
    #[inline]
    pub(crate) fn is_overloaded(&self) -> bool {
        self.memory.bytes() > self.memory_bytes_max
    }

    /// Whether connections hold so much that they keep no empty buffers.
    pub(super) fn is_under_pressure(&self) -> bool {
        self.memory.bytes() > self.memory_bytes_max / 2
    }

    /// Queues an event about the schema for every client that registered for it.
    pub(crate) fn push_schema_event(&mut self, frame: &[u8]) {
        let wanting = self.slots.iter_mut().flatten().filter(|c| c.wants_schema_events);
        let ids: Vec<ConnId> = wanting
            .map(|conn| {
                conn.push_frame(frame);
                conn.id
            })
            .collect();
        ids.into_iter().for_each(|id| self.mark_dirty(id));
    }
}

impl Shard {
    /// Fetches what a connection has received. Returns false if the peer has closed it.
    #[inline]
    pub(super) fn fetch(&mut self, conn: &mut Conn, source: Source) -> bool {
        if !conn.transport.has_tls() {
            return self.engine.read(conn.id, source, &mut conn.input);
        }
        let mut received = std::mem::take(&mut self.connections.received);
        received.clear();
        let is_open = self.engine.read(conn.id, source, &mut received);
        // A peer that violates TLS gets an alert, then the connection closes.
        conn.closing |= conn.transport.decrypt(&received, &mut conn.input).is_err();
        self.connections.received = received;
        is_open
    }

    pub(super) fn accepted(&mut self, fd: OwnedFd) {
        let target = self.shared.balancer.assign(&fd, self.number);
        if target == self.number {
            self.adopt(fd);
        } else {
            self.post(target, Message::Connection(fd));
        }
    }

    pub(super) fn adopt(&mut self, fd: OwnedFd) {
        if self.telemetry.counters.connections >= self.settings.budget.connections_max as u64 {
            self.telemetry.counters.refused_connections += 1;
            self.shared.balancer.release(self.number);
            return refuse(&fd);
        }
        // It fails only for a socket that has closed already; receiving will report that.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
        let local = rustix::net::getsockname(&fd).ok().and_then(|a| SocketAddr::try_from(a).ok());
        let tls = self.shared.tls.as_ref().map(Tls::new).transpose();
        // Without memory for the registration, the peer sees its connection closed.
        let (Ok(tls), Ok(id)) = (tls, self.engine.add(fd)) else {
            self.shared.balancer.release(self.number);
            return;
        };
        let is_optional = self.shared.tls.as_ref().is_some_and(|tls| tls.is_optional);
        self.connections.insert(Conn::new(id, local, Transport::new(tls, is_optional)));
        self.telemetry.counters.connections += 1;
    }

    pub(super) fn drop_conn(&mut self, id: ConnId) {
        if let Some(conn) = self.connections.take(id) {
            self.engine.close(id);
            self.connections.memory.forget(&conn);
            self.shared.balancer.release(self.number);
            self.telemetry.counters.connections -= 1;
        }
    }

    /// Hands the output of all dirty connections to the engine.
    pub(super) fn send_all(&mut self) {
        let mut dirty = std::mem::take(&mut self.connections.dirty);
        for id in dirty.drain(..) {
            let Some(slot) = self.connections.slots.get_mut(id.slot as usize) else { continue };
            let Some(conn) = slot.as_deref_mut().filter(|conn| conn.id == id) else { continue };
            conn.dirty = false;
            let mut room = 0;
            let is_open = loop {
                let buffer = conn.transport.outgoing(&mut conn.out);
                room = buffer.capacity().max(room);
                let is_open = self.engine.send(id, buffer);
                let taken = buffer.is_empty();
                // What was packed earlier goes first, then what has come since.
                if !is_open || !taken || conn.out.is_empty() {
                    break is_open;
                }
            };
            let sending = self.engine.is_sending(id);
            if !sending && room.max(conn.sending_bytes) > KEPT_BYTES_MAX {
                self.engine.trim(id);
            }
            if conn.out.is_empty() {
                conn.sending_bytes = if sending { room } else { 0 };
                if conn.out.capacity() > KEPT_BYTES_MAX {
                    conn.out = Vec::new();
                }
            }
            self.connections.memory.count(conn);
            if !is_open || (conn.closing && !conn.has_output() && !sending) {
                self.drop_conn(id);
            }
        }
        self.connections.dirty = dirty;
    }

    /// Frees the empty buffers of idle connections.
    pub(super) fn trim_connections(&mut self) {
        for conn in self.connections.slots.iter_mut().flatten() {
            if conn.out.is_empty() {
                conn.out = Vec::new();
            }
            if conn.input.is_empty() {
                conn.input = Vec::new();
            }
            conn.transport.trim();
            self.engine.trim(conn.id);
            self.connections.memory.count(conn);
        }
    }

    /// Whether a connection's requests have to wait.
    pub(crate) fn is_held_up(&self, conn: &Conn) -> bool {
        conn.out.len() + conn.transport.output_bytes() > OUT_BYTES_MAX
            || self.siblings.waiting() > OUTBOX_MAX
            || self.is_full()
    }

    /// Leaves a connection's input where it is until there is room again.
    pub(crate) fn stall(&mut self, conn: &mut Conn) {
        if !conn.stalled {
            conn.stalled = true;
            self.engine.pause(conn.id);
            self.connections.stalled.push(conn.id);
        }
    }

    /// Resumes the connections that have room again. Returns whether there was one.
    pub(super) fn unstall(&mut self) -> bool {
        if self.connections.stalled.is_empty()
            || self.siblings.waiting() > OUTBOX_MAX
            || self.background.full
        {
            return false;
        }
        let mut worked = false;
        for id in std::mem::take(&mut self.connections.stalled) {
            let Some(mut conn) = self.connections.take(id) else { continue };
            if self.is_held_up(&conn) {
                self.connections.stalled.push(id);
            } else {
                worked = true;
                conn.stalled = false;
                if !self.stopping.has_begun() {
                    self.engine.resume(id);
                }
                self.process(&mut conn);
            }
            self.connections.put(conn);
        }
        worked
    }
}

/// Sends a client the reason why its connection is refused. The caller closes the connection.
fn refuse(fd: &OwnedFd) {
    let mut out = Vec::new();
    let message = "the shard serves as many connections as its memory allows; close some";
    Failure::Overloaded(message.into()).encode(&mut out, 0);
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    // A peer that does not take the message sees its connection closed all the same.
    let _ = rustix::net::send(fd, &out, flags);
    let _ = rustix::net::shutdown(fd, Shutdown::Write);
}

impl ConnectionMemory {
    /// Counts what a connection holds now.
    #[inline]
    fn count(&mut self, conn: &mut Conn) {
        let buffers = conn.input.capacity() + conn.out.capacity();
        let now = buffers + conn.sending_bytes + conn.transport.held_bytes();
        self.change(conn.held_bytes, now);
        conn.held_bytes = now;
    }

    fn forget(&mut self, conn: &Conn) {
        self.change(conn.held_bytes, 0);
    }
}
