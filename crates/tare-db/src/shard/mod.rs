//! One shard: a thread that owns its part of the data and its connections, and one loop over one
//! closed set of events. It shares the schema and the prepared texts with its siblings, and
//! nothing else; what concerns their data goes to them as a message.
//!
//! Limits, all of which hold a client up rather than grow: bytes waiting to be sent to a client,
//! messages waiting for a sibling, bytes waiting for the log (refused as overloaded).

mod account;
mod background;
mod backlog;
mod durability;
pub(crate) mod mailbox;
pub(crate) mod message;
mod parked;
pub(crate) mod ring;
pub(crate) mod stall;
mod stopping;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::{SendFlags, Shutdown};
use tare_cql::frame::{self, Version};
use tare_cql::response::Reply;
use tare_store::{Now, Pins, Store, Ticket};

use crate::net::auth::Login;
use crate::net::balance::Balance;
use crate::net::reactor::{ConnId, Engine, Event, ReactorError, Source, Wait};
use crate::net::session::Phase;
use crate::net::tls::Tls;
use crate::net::transport::Transport;
use crate::node::clock::Clock;
use crate::node::config::Durability;
use crate::node::directory::ShardFiles;
use crate::node::inject::Busy;
use crate::node::memory::{Budget, CacheTarget, Held, Resident};
use crate::node::metrics::{Account, Operation, ShardMetrics};
use crate::query::catalog::{Catalog, Shared};
use crate::query::failure::Failure;
use crate::query::modify::Joint;
use crate::query::plan::Prepared;
use crate::query::rows::Reading;
use crate::query::system::Node;
use crate::query::warning::answer_void;
use crate::shard::mailbox::{MESSAGES_MAX, Mailbox};
use crate::shard::message::{Message, Origin};
use crate::shard::stall::{Detector, Task};

/// Bytes waiting for one client, above which its requests wait too.
const OUT_BYTES_MAX: usize = 1 << 20;
/// Messages waiting for siblings, above which all clients' requests wait.
const OUTBOX_MAX: usize = 1024;
/// Messages handled per turn of the loop.
const MESSAGES_PER_TURN: usize = 256;
/// A shard that sleeps looks around this often, in case a wakeup was lost.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Longest turn without work that is taken for polling, in ns.
const IDLE_TURN_NS_MAX: u64 = 100_000;
/// A connection's buffers above this are given back when they are empty.
const KEPT_BYTES_MAX: usize = 128 << 10;

/// No schema is of this epoch.
const NO_EPOCH: u64 = u64::MAX;

/// The keyspace in use and the text of a prepared statement.
pub(crate) type PreparedText = Arc<(Option<String>, String)>;

/// What all shards share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) schema: Shared,
    /// Texts of prepared statements by id: keyspace and statement.
    pub(crate) prepared: Mutex<BTreeMap<[u8; 16], PreparedText>>,
    pub(crate) mailboxes: Vec<Mailbox<Message>>,
    pub(crate) node: Node,
    pub(crate) balance: Balance,
    /// Where logins are checked; without it nobody is asked who they are.
    pub(crate) logins: Option<SyncSender<Login>>,
    /// With it every connection speaks TLS.
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) stop: &'static AtomicBool,
    pub(crate) resident: Resident,
    /// Shards that have nothing left to answer.
    pub(crate) drained: std::sync::atomic::AtomicUsize,
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
    pub(crate) phase: Phase,
    /// As STARTUP has settled it.
    pub(crate) version: Version,
    pub(crate) transport: Transport,
    pub(crate) wants_schema_events: bool,
    /// What is still to come of a request that was refused already.
    pub(crate) refused_bytes: usize,
    /// Close as soon as what is in `out` has been sent.
    pub(crate) closing: bool,
    /// Room of the buffer that is being sent.
    sending_bytes: usize,
    /// What it was last counted to hold.
    held_bytes: usize,
    dirty: bool,
    stalled: bool,
}

impl Conn {
    /// Whether anything waits to be handed to the engine.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty() || self.transport.has_output()
    }

    /// Sends a frame that was made for many, in the version that is spoken here.
    pub(crate) fn tell(&mut self, frame: &[u8]) {
        let offset = self.out.len();
        self.out.extend_from_slice(frame);
        frame::set_version(&mut self.out, offset, self.version);
    }
}

/// Who waits for a write to become durable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    Here { conn: ConnId, reply: Reply },
    There(Origin),
}

/// A write that waits to become durable.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: Ticket,
    waiter: Waiter,
    begun_ns: u64,
}

pub(crate) struct Shard {
    pub(crate) number: usize,
    pub(crate) common: Arc<Common>,
    pub(crate) store: Store,
    pub(crate) files: ShardFiles,
    pub(crate) durability: Durability,
    pub(crate) engine: Engine,
    pub(crate) polling: bool,
    pub(crate) clock: Clock,
    pub(crate) account: Account,
    pub(crate) budget: Budget,
    pub(crate) stalls: Detector,
    pub(crate) messages: Receiver<Message>,
    pub(crate) state: State,
    pub(crate) busy: Option<Busy>,
}

/// What a shard keeps between turns.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) conns: Vec<Option<Box<Conn>>>,
    pub(crate) metrics: ShardMetrics,
    pub(crate) catalog: Arc<Catalog>,
    /// That of the catalog; [`NO_EPOCH`] before there is one.
    pub(crate) epoch: u64,
    pub(crate) prepared: BTreeMap<[u8; 16], Arc<Prepared>>,
    waiters: VecDeque<Waiting>,
    /// Readings that have given way to others.
    pub(crate) readings: VecDeque<(Box<Reading>, Pins)>,
    /// Readings that wait for blocks.
    parked: parked::Parked,
    backlog: backlog::Backlog,
    /// Writes to several shards, by connection and stream.
    pub(crate) joints: BTreeMap<(ConnId, i16), Joint>,
    pub(crate) last_timestamp: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) clustering: Vec<u8>,
    pub(crate) cells: Vec<u8>,
    /// Answers that are still owed by siblings.
    pub(crate) remote: u64,
    /// What TLS has received, on its way.
    received: Vec<u8>,
    outboxes: Vec<VecDeque<Message>>,
    outbox_len: usize,
    dirty: Vec<ConnId>,
    stalled: Vec<ConnId>,
    stopping_since_ns: Option<u64>,
    announced: bool,
    held: Held,
    /// When the turn began. The seconds of the wall clock may be a little old.
    pub(crate) now: Now,
    /// By [`Operation`]: answered in this turn.
    pub(crate) answered: [u64; Operation::ALL.len()],
    published: account::Published,
    background: background::Background,
    /// Requests wait until memtables have been flushed.
    full: bool,
    cache: CacheTarget,
}

impl State {
    /// That of a shard which has done nothing yet.
    pub(crate) fn new() -> Self {
        Self { epoch: NO_EPOCH, ..Self::default() }
    }
}

impl Shard {
    /// Runs until the server stops, and leaves the log durable.
    pub(crate) fn run(&mut self) -> Result<(), ReactorError> {
        self.state.outboxes.resize_with(self.common.mailboxes.len(), VecDeque::new);
        self.refresh();
        let mut events = Vec::with_capacity(256);
        self.state.now = self.clock.now();
        let mut mark = self.state.now.monotonic_ns;
        loop {
            let wait = self.wait(mark);
            let asleep = wait != Wait::Poll;
            if asleep {
                let before = self.clock.now_ns();
                self.state.metrics.busy_ns += before - mark;
                mark = before;
            }
            let turned = self.engine.turn(wait, &mut events);
            turned.map_err(|source| ReactorError::Wait { source })?;
            if asleep {
                let after = self.clock.now_ns();
                self.state.metrics.sleep_ns += after - mark;
                mark = after;
            }
            self.stalls.begin(mark);
            self.state.now.monotonic_ns = mark;
            if !self.polling {
                self.common.mailboxes[self.number].is_awake();
            }
            let quiet = events.is_empty() && self.state.backlog.is_empty();
            let background_ns = self.work_in_background(quiet);
            self.state.full = self.is_full();
            let mut worked = self.handle(&mut events);
            worked |= self.receive();
            if self.state.parked.may_go_on() {
                let begun = self.stalls.enter(Task::Resume, self.clock);
                worked |= self.wake_parked();
                self.stalls.leave(Task::Resume, begun, self.clock);
            }
            if !self.state.readings.is_empty() {
                let begun = self.stalls.enter(Task::Scan, self.clock);
                worked |= self.step_reading();
                self.stalls.leave(Task::Scan, begun, self.clock);
            }
            worked |= self.unstall();
            worked |= self.flush_outboxes();
            worked |= self.pump_store();
            let operations = self.state.metrics.writes + self.state.metrics.reads;
            let idle = !(worked || asleep || background_ns > 0);
            let burnt = self.busy.as_mut().map_or(0, |busy| busy.pay(operations, idle));
            self.send_all();
            let now = self.clock.now_ns();
            if !idle {
                self.state.metrics.busy_ns += now - mark;
                self.state.background.earn((now - mark).saturating_sub(background_ns));
            } else {
                self.state.metrics.busy_ns += burnt;
                let mark = (mark + burnt).min(now);
                // A turn without work takes a few µs. One that took longer was preempted or frozen
                // in the middle, and burnt no CPU meanwhile.
                let polled = (now - mark).min(IDLE_TURN_NS_MAX);
                self.state.metrics.idle_poll_ns += polled;
                self.state.metrics.sleep_ns += now - mark - polled;
            }
            self.stalls.end(now);
            self.publish(mark, now);
            mark = now;
            if self.common.stop.load(Ordering::Relaxed) && self.is_drained(now) {
                return self.finish();
            }
        }
    }

    /// Whether the next turn may sleep, and for how long.
    fn wait(&mut self, now_ns: u64) -> Wait {
        let idle = self.state.readings.is_empty()
            && !self.state.parked.may_go_on()
            && self.state.backlog.is_empty()
            && self.state.outbox_len == 0
            && (self.state.stalled.is_empty() || self.state.full)
            && !self.common.stop.load(Ordering::Relaxed);
        if self.polling || !idle {
            return Wait::Poll;
        }
        self.common.mailboxes[self.number].will_sleep();
        if self.receive() || self.common.stop.load(Ordering::Relaxed) || self.has_background_work()
        {
            return Wait::Poll;
        }
        let due_ns = self.store.next_due_ns().unwrap_or(u64::MAX);
        match Duration::from_nanos(due_ns.saturating_sub(now_ns)) {
            Duration::ZERO => Wait::Poll,
            wait => Wait::Sleep(wait.min(SLEEP_MAX)),
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Input(id, source) => {
                let Some(mut conn) = self.take(id) else {
                    // Fetched all the same: a provided buffer has to go back.
                    self.engine.read(id, source, &mut Vec::new());
                    return;
                };
                if self.fetch(&mut conn, source) {
                    self.process(&mut conn);
                    self.put(conn);
                } else {
                    self.put(conn);
                    self.drop_conn(id);
                }
            }
            Event::Sent(id) => {
                if let Some(conn) = self.conn(id) {
                    let is_large = conn.sending_bytes > KEPT_BYTES_MAX;
                    if conn.has_output() || conn.closing || is_large {
                        self.mark_dirty(id);
                    } else {
                        conn.sending_bytes = 0;
                    }
                }
            }
            Event::Hangup(id) => self.drop_conn(id),
            Event::Accepted(fd) => self.accepted(fd),
            // The messages are received after the events.
            Event::Woken => {}
            Event::File(done) => self.file_done(done),
        }
    }

    /// Fetches what a connection has received. False if the peer has gone.
    #[inline]
    fn fetch(&mut self, conn: &mut Conn, source: Source) -> bool {
        if !conn.transport.has_tls() {
            return self.engine.read(conn.id, source, &mut conn.input);
        }
        let mut received = std::mem::take(&mut self.state.received);
        received.clear();
        let there = self.engine.read(conn.id, source, &mut received);
        // A peer that speaks it wrongly is told so, and then left alone.
        conn.closing |= conn.transport.decrypt(&received, &mut conn.input).is_err();
        self.state.received = received;
        there
    }

    fn accepted(&mut self, fd: OwnedFd) {
        let target = self.common.balance.place(&fd, self.number);
        if target == self.number {
            self.adopt(fd);
        } else {
            self.post(target, Message::Connection(fd));
        }
    }

    fn adopt(&mut self, fd: OwnedFd) {
        if self.state.metrics.connections >= self.budget.connections_max as u64 {
            self.state.metrics.refused_connections += 1;
            self.common.balance.release(self.number);
            return refuse(&fd);
        }
        // Fails only for a socket that has gone already; then receiving says so.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
        let local = rustix::net::getsockname(&fd).ok().and_then(|a| SocketAddr::try_from(a).ok());
        let tls = self.common.tls.as_ref().map(Tls::new).transpose();
        // Out of memory for the registration: the peer sees its connection closed.
        let (Ok(tls), Ok(id)) = (tls, self.engine.add(fd)) else {
            self.common.balance.release(self.number);
            return;
        };
        let slot = id.slot as usize;
        if self.state.conns.len() <= slot {
            self.state.conns.resize_with(slot + 1, || None);
        }
        self.state.conns[slot] = Some(Box::new(Conn {
            id,
            input: Vec::new(),
            out: Vec::new(),
            local,
            keyspace: None,
            phase: Phase::default(),
            version: Version::default(),
            transport: Transport::new(tls),
            wants_schema_events: false,
            refused_bytes: 0,
            closing: false,
            sending_bytes: 0,
            held_bytes: 0,
            dirty: false,
            stalled: false,
        }));
        self.state.metrics.connections += 1;
    }

    pub(crate) fn conn(&mut self, id: ConnId) -> Option<&mut Conn> {
        let conn = self.state.conns.get_mut(id.slot as usize)?.as_deref_mut()?;
        (conn.id == id).then_some(conn)
    }

    fn take(&mut self, id: ConnId) -> Option<Box<Conn>> {
        self.conn(id)?;
        self.state.conns[id.slot as usize].take()
    }

    fn put(&mut self, mut conn: Box<Conn>) {
        let id = conn.id;
        if conn.input.is_empty() && self.is_pressed() {
            conn.input = Vec::new();
        }
        self.state.held.count(&mut conn);
        let has_output = conn.has_output() || conn.closing;
        self.state.conns[id.slot as usize] = Some(conn);
        if has_output {
            self.mark_dirty(id);
        }
    }

    fn drop_conn(&mut self, id: ConnId) {
        if let Some(conn) = self.take(id) {
            self.engine.close(id);
            self.state.held.forget(&conn);
            self.common.balance.release(self.number);
            self.state.metrics.connections -= 1;
        }
    }

    /// Has a connection's answers sent at the end of this turn.
    pub(crate) fn mark_dirty(&mut self, id: ConnId) {
        if let Some(conn) = self.conn(id)
            && !conn.dirty
        {
            conn.dirty = true;
            self.state.dirty.push(id);
        }
    }

    fn send_all(&mut self) {
        let mut dirty = std::mem::take(&mut self.state.dirty);
        for id in dirty.drain(..) {
            let Some(slot) = self.state.conns.get_mut(id.slot as usize) else { continue };
            let Some(conn) = slot.as_deref_mut().filter(|conn| conn.id == id) else { continue };
            conn.dirty = false;
            let mut room = 0;
            let there = loop {
                let buffer = conn.transport.outgoing(&mut conn.out);
                room = buffer.capacity().max(room);
                let there = self.engine.send(id, buffer);
                let taken = buffer.is_empty();
                // What was packed earlier went first: now what has come since.
                if !there || !taken || conn.out.is_empty() {
                    break there;
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
            self.state.held.count(conn);
            if !there || (conn.closing && !conn.has_output() && !sending) {
                self.drop_conn(id);
            }
        }
        self.state.dirty = dirty;
    }

    /// Whether connections hold more than they may, so that requests are refused.
    #[inline]
    pub(crate) fn is_overloaded(&self) -> bool {
        self.state.held.bytes() > self.budget.connection_bytes
    }

    /// Whether connections hold so much that nothing is kept for later.
    fn is_pressed(&self) -> bool {
        self.state.held.bytes() > self.budget.connection_bytes / 2
    }

    /// Gives back the empty buffers of idle connections.
    fn trim(&mut self) {
        for conn in self.state.conns.iter_mut().flatten() {
            if conn.out.is_empty() {
                conn.out = Vec::new();
            }
            if conn.input.is_empty() {
                conn.input = Vec::new();
            }
            conn.transport.trim();
            self.engine.trim(conn.id);
            self.state.held.count(conn);
        }
    }

    /// Whether a connection's requests have to wait.
    pub(crate) fn is_held_up(&self, conn: &Conn) -> bool {
        conn.out.len() + conn.transport.output_bytes() > OUT_BYTES_MAX
            || self.state.outbox_len > OUTBOX_MAX
            || self.is_full()
    }

    /// Leaves a connection's input where it is until there is room again.
    pub(crate) fn stall(&mut self, conn: &mut Conn) {
        if !conn.stalled {
            conn.stalled = true;
            self.engine.pause(conn.id);
            self.state.stalled.push(conn.id);
        }
    }

    fn unstall(&mut self) -> bool {
        if self.state.stalled.is_empty() || self.state.outbox_len > OUTBOX_MAX || self.state.full {
            return false;
        }
        let mut worked = false;
        for id in std::mem::take(&mut self.state.stalled) {
            let Some(mut conn) = self.take(id) else { continue };
            if self.is_held_up(&conn) {
                self.state.stalled.push(id);
            } else {
                worked = true;
                conn.stalled = false;
                self.engine.resume(id);
                self.process(&mut conn);
            }
            self.put(conn);
        }
        worked
    }

    /// Sends a message to a sibling, now or when it has room.
    pub(crate) fn post(&mut self, shard: usize, message: Message) {
        let outbox = &mut self.state.outboxes[shard];
        let message = match outbox.is_empty() {
            true => match self.common.mailboxes[shard].post(message) {
                Ok(()) => return,
                Err(message) => message,
            },
            false => message,
        };
        outbox.push_back(message);
        self.state.outbox_len += 1;
    }

    fn flush_outboxes(&mut self) -> bool {
        if self.state.outbox_len == 0 {
            return false;
        }
        let before = self.state.outbox_len;
        for (outbox, mailbox) in self.state.outboxes.iter_mut().zip(&self.common.mailboxes) {
            while let Some(message) = outbox.pop_front() {
                if let Err(message) = mailbox.post(message) {
                    outbox.push_front(message);
                    break;
                }
                self.state.outbox_len -= 1;
            }
        }
        self.state.outbox_len < before
    }

    fn receive(&mut self) -> bool {
        if self.common.mailboxes.len() == 1 && self.common.logins.is_none() {
            return false;
        }
        // What siblings send waits too, and when their queues are full so do their clients.
        if self.state.full {
            return false;
        }
        let mut received = 0;
        while received < MESSAGES_PER_TURN.min(MESSAGES_MAX) {
            let Ok(message) = self.messages.try_recv() else { break };
            received += 1;
            match message {
                Message::Connection(fd) => self.adopt(fd),
                Message::Write { origin, payload } => self.write_for(origin, &payload),
                Message::Written { conn, reply, result } => self.written(conn, reply, result),
                Message::LoggedIn { conn, reply, result } => self.logged_in(conn, reply, result),
                Message::Read(reading) => self.advance(reading, Pins::default()),
                Message::Answer { conn, frame } => self.answer(conn, &frame),
                Message::SchemaEvent(frame) => self.tell_schema_event(&frame),
            }
        }
        received > 0
    }

    fn written(&mut self, id: ConnId, reply: Reply, result: Result<(), Failure>) {
        self.state.remote -= 1;
        let Some(result) = self.settle(id, reply, result) else { return };
        if result.is_err() {
            self.state.metrics.errors += 1;
        }
        if let Some(conn) = self.conn(id) {
            match result {
                Ok(warnings) => answer_void(&mut conn.out, reply, &warnings),
                Err(failure) => failure.encode(&mut conn.out, reply),
            }
            self.mark_dirty(id);
        }
    }

    fn answer(&mut self, id: ConnId, frame: &[u8]) {
        self.state.remote -= 1;
        if let Some(conn) = self.conn(id) {
            conn.out.extend_from_slice(frame);
            self.mark_dirty(id);
        }
    }

    pub(crate) fn tell_schema_event(&mut self, frame: &[u8]) {
        let wanting = self.state.conns.iter_mut().flatten().filter(|c| c.wants_schema_events);
        let ids: Vec<ConnId> = wanting
            .map(|conn| {
                conn.tell(frame);
                conn.id
            })
            .collect();
        ids.into_iter().for_each(|id| self.mark_dirty(id));
    }

    /// Takes over changes of the schema.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        let epoch = self.common.schema.epoch();
        if epoch != self.state.epoch {
            self.state.epoch = epoch;
            self.state.catalog = self.common.schema.current();
            self.store.schema(self.state.catalog.options());
        }
    }
}

/// Tells a client that it is one too many; its connection is closed when it is dropped.
fn refuse(fd: &OwnedFd) {
    let mut out = Vec::new();
    let message = "the shard serves as many connections as its memory allows; close some";
    Failure::Overloaded(message.into()).encode(&mut out, 0);
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    // A peer that does not take it sees its connection closed all the same.
    let _ = rustix::net::send(fd, &out, flags);
    let _ = rustix::net::shutdown(fd, Shutdown::Write);
}

impl Held {
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
