//! One shard: a thread that owns its part of the data and its connections, and one loop over one
//! closed set of events. Shards share the schema and the texts of prepared statements; everything
//! else goes from shard to shard as a message.
//!
//! The shard is composed of parts that own their state: [`Connections`], [`Reads`] and [`Writes`]
//! under way, [`Background`] work, messages between [`Siblings`], the [`SchemaView`] and
//! [`Telemetry`].
//!
//! Every queue has a limit: bytes that wait to be sent to a client, messages that wait for a
//! sibling, bytes that wait for the log. Above the limit clients' requests wait or are refused as
//! overloaded.

pub(crate) mod background;
pub(crate) mod backlog;
pub(crate) mod connections;
pub(crate) mod login;
pub(crate) mod mailbox;
pub(crate) mod message;
pub(crate) mod reads;
pub(crate) mod schema_view;
pub(crate) mod session;
pub(crate) mod siblings;
pub(crate) mod stall;
pub(crate) mod statements;
pub(crate) mod stopping;
pub(crate) mod telemetry;
mod waiting;
pub(crate) mod writes;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tare_store::{Now, Store};

use crate::net::balancer::ConnectionBalancer;
use crate::net::reactor::{Engine, Event, ReactorError, Wait};
use crate::node::clock::Clock;
use crate::node::config::Durability;
use crate::node::directory::ShardFiles;
use crate::node::inject::Busy;
use crate::node::memory::{Budget, Resident};
use crate::node::metrics::SharedCounters;
use crate::query::catalog::SharedCatalog;
use crate::query::prepared::{PreparedText, StatementCache};
use crate::query::system::Node;
use background::Background;
use backlog::Backlog;
use connections::KEPT_BYTES_MAX;
pub(crate) use connections::{Conn, Connections};
use login::Login;
use mailbox::Mailbox;
use message::Message;
use reads::Reads;
use schema_view::SchemaView;
use siblings::Siblings;
use stall::{Detector, Task};
use stopping::Stopping;
use telemetry::Telemetry;
use writes::Writes;

/// A sleeping shard wakes up this often, in case a wakeup was lost.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Longest iteration without work that counts as polling, in ns.
const IDLE_ITERATION_NS_MAX: u64 = 100_000;

/// The state that all shards share.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) catalog: SharedCatalog,
    /// Texts of prepared statements.
    pub(crate) prepared: Mutex<StatementCache<PreparedText>>,
    pub(crate) mailboxes: Vec<Mailbox<Message>>,
    pub(crate) node: Node,
    pub(crate) balancer: ConnectionBalancer,
    /// The queue of logins to check; without it clients need no password.
    pub(crate) logins: Option<SyncSender<Login>>,
    pub(crate) tls: Option<crate::net::tls::TlsAccess>,
    pub(crate) stop: &'static AtomicBool,
    pub(crate) resident: Resident,
    /// Number of stopping shards that have nothing left to answer.
    pub(crate) drained: AtomicUsize,
}

/// The settings of one shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardSettings {
    pub(crate) durability: Durability,
    pub(crate) polling: bool,
    pub(crate) budget: Budget,
}

/// Everything that a shard starts with.
pub(crate) struct ShardStart {
    pub(crate) number: usize,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) settings: ShardSettings,
    pub(crate) store: Store,
    pub(crate) files: ShardFiles,
    pub(crate) engine: Engine,
    pub(crate) clock: Clock,
    pub(crate) counters: SharedCounters,
    pub(crate) stalls: Detector,
    pub(crate) messages: Receiver<Message>,
    pub(crate) busy: Option<Busy>,
}

pub(crate) struct Shard {
    pub(crate) number: usize,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) settings: ShardSettings,
    pub(crate) store: Store,
    files: ShardFiles,
    engine: Engine,
    pub(crate) clock: Clock,
    /// Start of the iteration. The seconds of the wall clock may be a tenth of a second old.
    pub(crate) now: Now,
    pub(crate) connections: Connections,
    backlog: Backlog,
    pub(crate) reads: Reads,
    pub(crate) writes: Writes,
    background: Background,
    siblings: Siblings,
    pub(crate) schema: SchemaView,
    pub(crate) scratch: Scratch,
    pub(crate) telemetry: Telemetry,
    stalls: Detector,
    stopping: Stopping,
    /// The injected cost, if any.
    busy: Option<Busy>,
}

/// Buffers that every request uses again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) key: Vec<u8>,
    pub(crate) clustering: Vec<u8>,
    pub(crate) cells: Vec<u8>,
}

impl Shard {
    pub(crate) fn new(start: ShardStart) -> Self {
        let ShardStart { number, shared, settings, store, files, engine, clock, .. } = start;
        Self {
            connections: Connections::new(settings.budget.connection_bytes),
            backlog: Backlog::default(),
            reads: Reads::new(&settings.budget),
            writes: Writes::default(),
            background: Background::default(),
            siblings: Siblings::new(start.messages, shared.mailboxes.len()),
            schema: SchemaView::default(),
            scratch: Scratch::default(),
            telemetry: Telemetry::new(start.counters),
            stalls: start.stalls,
            stopping: Stopping::default(),
            busy: start.busy,
            now: clock.now(),
            number,
            shared,
            settings,
            store,
            files,
            engine,
            clock,
        }
    }

    /// Runs until the server stops, then makes the log durable.
    pub(crate) fn run(&mut self) -> Result<(), ReactorError> {
        let mut events = Vec::with_capacity(256);
        let mut mark = self.begin();
        loop {
            let wait = self.wait(mark);
            mark = self.iterate(wait, mark, &mut events)?;
            if self.has_ended(mark) {
                return self.finish();
            }
        }
    }

    /// Prepares the first iteration, and returns its start.
    pub(crate) fn begin(&mut self) -> u64 {
        self.refresh();
        self.now = self.clock.now();
        self.now.monotonic_ns
    }

    /// Runs one iteration of the loop, which begins at `mark`. Returns its end. `events` is empty
    /// before and after it.
    #[inline]
    pub(crate) fn iterate(
        &mut self,
        wait: Wait,
        mut mark: u64,
        events: &mut Vec<Event>,
    ) -> Result<u64, ReactorError> {
        let asleep = wait != Wait::Poll;
        if asleep {
            let before = self.clock.now_ns();
            self.telemetry.counters.busy_ns += before - mark;
            mark = before;
        }
        let result = self.engine.poll(wait, events);
        result.map_err(|source| ReactorError::Wait { source })?;
        if asleep {
            let after = self.clock.now_ns();
            self.telemetry.counters.sleep_ns += after - mark;
            mark = after;
        }
        self.stalls.begin(mark);
        self.now.monotonic_ns = mark;
        if !self.settings.polling {
            self.shared.mailboxes[self.number].is_awake();
        }
        let quiet = events.is_empty() && self.backlog.is_empty();
        let background_ns = self.work_in_background(quiet);
        self.background.full = self.is_full();
        let mut worked = self.handle(events);
        worked |= self.receive();
        if self.reads.may_resume() || self.reads.may_begin() {
            let begun = self.stalls.enter(Task::Resume, self.clock);
            worked |= self.reads.may_resume() && self.resume_reads();
            worked |= self.begin_reads();
            self.stalls.leave(Task::Resume, begun, self.clock);
        }
        if self.reads.runnable() > 0 {
            let begun = self.stalls.enter(Task::Scan, self.clock);
            worked |= self.step_runnable();
            self.stalls.leave(Task::Scan, begun, self.clock);
        }
        worked |= self.unstall();
        worked |= self.siblings.flush(&self.shared.mailboxes);
        worked |= self.pump_store();
        let operations = self.telemetry.counters.writes + self.telemetry.counters.reads;
        let idle = !(worked || asleep || background_ns > 0);
        let burnt = self.busy.as_mut().map_or(0, |busy| busy.pay(operations, idle));
        self.send_all();
        let now = self.clock.now_ns();
        if !idle {
            self.telemetry.counters.busy_ns += now - mark;
            self.background.earn((now - mark).saturating_sub(background_ns));
        } else {
            self.telemetry.counters.busy_ns += burnt;
            let mark = (mark + burnt).min(now);
            // An iteration without work takes a few µs. A longer one was preempted or frozen in
            // the middle, and used no CPU meanwhile.
            let polled = (now - mark).min(IDLE_ITERATION_NS_MAX);
            self.telemetry.counters.idle_poll_ns += polled;
            self.telemetry.counters.sleep_ns += now - mark - polled;
        }
        self.stalls.end(now);
        self.publish(mark, now);
        Ok(now)
    }

    /// Whether the server stops and this shard has answered everything.
    #[inline]
    pub(crate) fn has_ended(&mut self, now_ns: u64) -> bool {
        self.shared.stop.load(Ordering::Relaxed) && self.is_drained(now_ns)
    }

    /// Whether the next iteration may sleep, and for how long.
    pub(crate) fn wait(&mut self, now_ns: u64) -> Wait {
        let idle = self.reads.runnable() == 0
            && !self.reads.may_resume()
            && !self.reads.may_begin()
            && self.backlog.is_empty()
            && self.siblings.waiting() == 0
            && (self.connections.stalled() == 0 || self.background.full)
            && !self.shared.stop.load(Ordering::Relaxed);
        if self.settings.polling || !idle {
            return Wait::Poll;
        }
        self.shared.mailboxes[self.number].will_sleep();
        if self.receive() || self.shared.stop.load(Ordering::Relaxed) || self.has_background_work()
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
                let Some(mut conn) = self.connections.take(id) else {
                    // The read returns a provided buffer to the kernel.
                    self.engine.read(id, source, &mut Vec::new());
                    return;
                };
                if self.fetch(&mut conn, source) {
                    self.process(&mut conn);
                    self.connections.put(conn);
                } else {
                    self.connections.put(conn);
                    self.drop_conn(id);
                }
            }
            Event::Sent(id) => {
                if let Some(conn) = self.connections.get_mut(id) {
                    let is_large = conn.sending_bytes > KEPT_BYTES_MAX;
                    if conn.has_output() || conn.closing || is_large {
                        self.connections.mark_dirty(id);
                    } else {
                        conn.sending_bytes = 0;
                    }
                }
            }
            Event::Hangup(id) => self.drop_conn(id),
            Event::Accepted(fd) => self.accepted(fd),
            // The loop receives the messages after the events.
            Event::Woken => {}
            Event::File(done) => self.file_done(done),
        }
    }

    /// Takes over changes of the schema.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        let epoch = self.shared.catalog.epoch();
        if epoch != self.schema.epoch {
            self.schema.epoch = epoch;
            self.schema.catalog = self.shared.catalog.current();
            self.store.schema(self.schema.catalog.options());
        }
    }
}
