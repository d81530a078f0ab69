//! One thread of load: an event loop over its connections.
//!
//! Every turn sends what is due, in one send per connection; waits for answers, the next due
//! operation or the next edge; and takes the answers, in one receive per connection. Before a due
//! operation the thread sleeps on a timer set early by the usual lateness of timers and polls for
//! the rest, so that operations leave on time without constant spinning.
//!
//! The event queue is epoll, edge-triggered. Where batches are smallest (64 connections with one
//! request each, over the loopback) 68 % of the thread's CPU time went into TCP's sending, the
//! receiver's part included, 13 % into receiving, and 2.5 % into the event queue. io_uring could
//! save only the last and some system call entries, and seccomp profiles often forbid it.
//!
//! Boundaries divide the load into stretches. At each one the thread reads its CPU clock and hands
//! over what it counted since the one before.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use rustix::event::epoll::Event;

use crate::access::Recovery;
use crate::clock::{self, RunDelay};
use crate::error::LoadError;
use crate::pacing::{Due, Pacer};
use crate::protocol::cluster::Ring;
use crate::protocol::connection::{AttemptRef, Connection, Slot};
use crate::protocol::request::{Failure, Job};
use crate::protocol::wire::Progress;
use crate::report::stats::{ErrorKind, Gap, Stats};
use crate::run::queue::Queue;
use crate::run::redial::Redialer;
use crate::run::routing::{ReadyOperation, Routing};

use recovery::RecoveryState;

mod answers;
mod recovery;

/// The two instants at which the caller reads its own accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The measured window opens.
    Begin,
    /// The measured window has closed; the load still runs.
    End,
}

/// The source of a thread's operations.
#[derive(Debug)]
pub(crate) enum Source {
    /// Closed loop: the next operation when one has ended, with the indices `next`, `next + step`
    /// ...
    Closed { next: u64, step: u64 },
    /// Open loop: operations by the clock.
    Open(Pacer),
    /// Every row once, with the keys `next`, `next + step` ... below `end`.
    Rows { next: u64, step: u64, end: u64 },
}

impl Source {
    /// Returns the next operation, if one may be sent now.
    #[inline]
    fn take(&mut self, now_ns: u64) -> Option<Due> {
        let (next, step) = match self {
            Self::Open(pacer) => return pacer.take(now_ns),
            Self::Rows { next, end, .. } if *next >= *end => return None,
            Self::Rows { next, step, .. } | Self::Closed { next, step } => (next, *step),
        };
        let index = *next;
        *next += step;
        Some(Due { index, intended_ns: now_ns })
    }

    fn is_exhausted(&self) -> bool {
        matches!(self, Self::Rows { next, end, .. } if next >= end)
    }
}

/// When a load begins, is divided and ends, in ns on the clock of `clock::now_ns`.
#[derive(Clone, Debug)]
pub(crate) struct WindowTimes {
    /// The first boundary opens the measured window, the last closes it. Empty: nothing is
    /// measured.
    pub(crate) boundaries: Vec<u64>,
    /// No operation is sent from this time on.
    pub(crate) stop_ns: u64,
    /// After the stop, requests in flight are given up after this time without any answer.
    pub(crate) silence_ns: u64,
    /// They are given up at the latest this long after the stop.
    pub(crate) drain_ns: u64,
}

/// What all threads of a load share.
pub(crate) struct SharedState<'a> {
    pub(crate) stop: &'a AtomicBool,
    /// Connections that still work.
    pub(crate) alive: AtomicUsize,
    /// Operations that ended, successfully or not; counted only while rows are written.
    pub(crate) done: AtomicU64,
    /// Called by the first thread at the edges of the window.
    pub(crate) edge: &'a (dyn Fn(Edge) + Sync),
    /// Set once the caller has read its accounts at the last edge, which ends the load.
    pub(crate) accounts_read: Option<&'a AtomicBool>,
    /// When an operation of any thread last succeeded, accurate to `SERVED_NS`.
    pub(crate) served_ns: AtomicU64,
}

/// The counts of one thread.
pub(crate) enum StretchCounts {
    /// Counts of the stretch between two boundaries, numbered from 0.
    Stretch(usize, Stats),
    /// Counts after the last boundary: ends of operations that belong to the window, and errors.
    Tail(Stats),
}

/// What a thread does and when.
pub(crate) struct WorkerPlan {
    pub(crate) source: Source,
    pub(crate) timetable: WindowTimes,
    /// True for the one thread that calls `SharedState::edge`.
    pub(crate) first: bool,
    /// What to do about failures.
    pub(crate) recovery: Recovery,
    /// Reconnects broken connections, if that is wanted.
    pub(crate) redialer: Option<Redialer>,
}

/// The interval between two looks at the stop flag, in ns.
const ATTENTION_NS: u64 = 100_000_000;
/// The same after the window, while the caller reads its accounts, in ns.
const READ_CHECK_NS: u64 = 500_000;
/// The interval at which threads report service to each other, in ns; long enough for their caches
/// to share the word.
const SERVED_NS: u64 = 1_000_000;
/// The most events taken from the queue at once. Edges are noticed between two such batches.
const EVENTS_MAX: usize = 64;

pub(crate) struct Worker<'a> {
    connections: &'a mut [Connection],
    job: &'a Job,
    shared: &'a SharedState<'a>,
    source: Source,
    /// Set if there are several nodes or shards.
    routing: Option<Routing<'a>>,
    timetable: WindowTimes,
    first: bool,
    chunks: Sender<StretchCounts>,
    queue: Queue,
    stats: Stats,
    /// How many boundaries have been crossed.
    crossed: usize,
    /// The span whose operations count, as planned.
    window_ns: (u64, u64),
    /// The thread's CPU clock at the last boundary.
    cpu_ns: u64,
    /// Operations that have been sent and have not ended.
    in_flight: usize,
    /// The most of them, over all connections, and by connection.
    in_flight_max: usize,
    limits: Vec<i16>,
    recoverer: RecoveryState,
    /// Attempts that failed in the current batch of answers.
    failed: Vec<(Slot, Failure)>,
    /// Attempts whose operation another attempt completed first.
    beaten: Vec<AttemptRef>,
    /// Open loop: the connection at which the search for room continues.
    turn: usize,
    /// Connections that got something to send in this turn.
    given: Vec<usize>,
    /// Connections with possibly more to receive.
    again: Vec<usize>,
    /// When the last answer came, or the load began.
    answer_ns: u64,
    /// When the thread stopped sending.
    stopped_ns: Option<u64>,
    /// The earliest intended start among failures since the last success.
    unserved_ns: Option<u64>,
    run_delay: RunDelay,
    /// The thread's run delay at the last boundary.
    run_delay_ns: Option<u64>,
}

impl<'a> Worker<'a> {
    /// Adds the connections to an event queue of the calling thread.
    pub(crate) fn new(
        connections: &'a mut [Connection],
        ring: &'a Ring,
        job: &'a Job,
        shared: &'a SharedState<'a>,
        plan: WorkerPlan,
        chunks: Sender<StretchCounts>,
    ) -> Result<Self, LoadError> {
        let queue = Queue::new(connections)?;
        let routing = Routing::new(connections, ring);
        let boundaries = &plan.timetable.boundaries;
        let window_ns = match (boundaries.first(), boundaries.last()) {
            (Some(&begin), Some(&end)) => (begin, end),
            _ => (u64::MAX, u64::MAX),
        };
        Ok(Self {
            connections,
            job,
            shared,
            source: plan.source,
            routing,
            timetable: plan.timetable,
            first: plan.first,
            chunks,
            queue,
            stats: Stats::new(),
            crossed: 0,
            window_ns,
            cpu_ns: 0,
            in_flight: 0,
            in_flight_max: 0,
            limits: Vec::new(),
            recoverer: RecoveryState::new(plan.recovery, plan.redialer),
            failed: Vec::new(),
            beaten: Vec::new(),
            turn: 0,
            given: Vec::new(),
            again: Vec::new(),
            answer_ns: 0,
            stopped_ns: None,
            unserved_ns: None,
            run_delay: RunDelay::of_this_thread(),
            run_delay_ns: None,
        })
    }

    /// Runs the load to its end. `in_flight` has the most requests in flight for each connection.
    pub(crate) fn run(mut self, in_flight: &[i16]) -> Result<(), LoadError> {
        for (connection, &limit) in self.connections.iter_mut().zip(in_flight) {
            connection.reserve(limit);
            self.in_flight_max += usize::try_from(limit).unwrap_or_default();
        }
        self.limits.extend_from_slice(in_flight);
        self.given.reserve(self.connections.len());
        self.answer_ns = clock::now_ns();
        if !matches!(self.source, Source::Open(_)) {
            let now_ns = self.answer_ns;
            for index in 0..self.connections.len() {
                self.fill(index, now_ns);
                self.flush(index);
            }
        }
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let now_ns = clock::now_ns();
            self.cross_boundaries(now_ns);
            if self.is_over(now_ns) {
                break;
            }
            self.recover(now_ns);
            if self.stopped_ns.is_none() && matches!(self.source, Source::Open(_)) {
                self.send_due(now_ns);
            }
            let unfinished = self.again.len();
            self.wait(&mut events)?;
            for event in &events {
                match usize::try_from(event.data.u64()) {
                    Ok(index) if index < self.connections.len() => self.serve(index),
                    _ => {}
                }
            }
            for turn in 0..unfinished {
                self.serve(self.again[turn]);
            }
            self.again.drain(..unfinished);
        }
        self.abandon();
        self.send_chunk(StretchCounts::Tail);
        Ok(())
    }

    /// Returns true once nothing is sent and nothing is awaited any more.
    fn is_over(&mut self, now_ns: u64) -> bool {
        let interrupted = self.shared.stop.load(Ordering::Relaxed);
        let dead =
            !self.recoverer.wanted.reconnect && self.shared.alive.load(Ordering::Relaxed) == 0;
        let is_read = self.shared.accounts_read.is_some_and(|read| read.load(Ordering::Relaxed));
        let is_done = is_read && self.is_past_window();
        let is_due = now_ns >= self.timetable.stop_ns || is_done;
        if self.stopped_ns.is_none() && (is_due || interrupted || dead) {
            self.stopped_ns = Some(now_ns);
            self.answer_ns = self.answer_ns.max(now_ns);
            self.end_window_early(now_ns);
            if let (Source::Open(pacer), true) = (&self.source, self.crossed > 0) {
                self.stats.dropped = pacer.not_taken(self.window_ns.0, self.window_ns.1);
            }
        }
        let silent = now_ns.saturating_sub(self.answer_ns) >= self.timetable.silence_ns;
        if let Some(stopped_ns) = self.stopped_ns {
            return self.in_flight == 0 || silent || now_ns >= stopped_ns + self.timetable.drain_ns;
        }
        let waiting = self.routing.as_ref().is_some_and(Routing::has_waiting);
        if self.source.is_exhausted() && self.in_flight == 0 && !waiting {
            return true;
        }
        // While rows are written, silence is the only limit; a measured load ends by the clock.
        matches!(self.source, Source::Rows { .. }) && silent
    }

    /// Whether the measured window has closed.
    fn is_past_window(&self) -> bool {
        self.crossed == self.timetable.boundaries.len()
    }

    fn cross_boundaries(&mut self, now_ns: u64) {
        while self.timetable.boundaries.get(self.crossed).is_some_and(|&at_ns| at_ns <= now_ns) {
            self.cross(now_ns);
        }
    }

    /// Crosses the next boundary now.
    fn cross(&mut self, now_ns: u64) {
        let cpu_ns = clock::thread_cpu_ns();
        let run_delay_ns = self.run_delay.read_ns();
        let is_last = self.crossed + 1 == self.timetable.boundaries.len();
        if self.crossed == 0 {
            if self.first {
                (self.shared.edge)(Edge::Begin);
            }
            // Counts from before the window do not matter, but a broken connection does.
            let before = std::mem::replace(&mut self.stats, Stats::new());
            for (kind, errors) in before.errors {
                if matches!(kind, ErrorKind::ConnectionClosed | ErrorKind::Malformed) {
                    self.stats.error(kind, &errors.first, errors.count);
                }
            }
        } else {
            self.stats.end_ns = now_ns;
            self.stats.cpu_ns = cpu_ns - self.cpu_ns;
            self.stats.busiest_thread_ns = self.stats.cpu_ns;
            let delays = run_delay_ns.zip(self.run_delay_ns);
            self.stats.run_delay_ns = delays.map(|(now, before)| now.saturating_sub(before));
            if is_last {
                if self.first {
                    (self.shared.edge)(Edge::End);
                }
                if self.is_waiting(now_ns) {
                    let served_ns = self.shared.served_ns.load(Ordering::Relaxed);
                    self.note_gap(served_ns, now_ns);
                }
            }
            let number = self.crossed - 1;
            self.send_chunk(|stats| StretchCounts::Stretch(number, stats));
        }
        self.crossed += 1;
        self.stats.begin_ns = now_ns;
        self.cpu_ns = cpu_ns;
        self.run_delay_ns = run_delay_ns;
    }

    /// Returns true if anything is due or in flight, or has failed since the last success.
    fn is_waiting(&self, now_ns: u64) -> bool {
        let is_due = match &self.source {
            Source::Open(pacer) => pacer.next_due_ns() < now_ns,
            source => !source.is_exhausted(),
        };
        is_due || self.in_flight > 0 || self.unserved_ns.is_some()
    }

    /// Notes that operations succeeded now. The one that should have started first was due at
    /// `intended_ns`.
    #[inline]
    fn note_success(&mut self, intended_ns: u64, now_ns: u64) {
        let unserved_ns = self.unserved_ns.take();
        if now_ns < self.shared.served_ns.load(Ordering::Relaxed) + SERVED_NS {
            return;
        }
        let served_ns = self.shared.served_ns.fetch_max(now_ns, Ordering::Relaxed);
        // In a closed loop there is always an operation to send.
        let from_ns = match &self.source {
            Source::Open(_) => served_ns.max(unserved_ns.unwrap_or(u64::MAX).min(intended_ns)),
            _ => served_ns,
        };
        self.note_gap(from_ns, now_ns);
    }

    /// Notes that an operation failed that should have started at `intended_ns`.
    fn note_failure(&mut self, intended_ns: u64) {
        let earliest_ns = self.unserved_ns.unwrap_or(u64::MAX).min(intended_ns);
        self.unserved_ns = Some(earliest_ns);
    }

    /// Counts a gap in service if it is long enough and in the window.
    fn note_gap(&mut self, from_ns: u64, to_ns: u64) {
        let gap =
            Gap { from_ns: from_ns.max(self.window_ns.0), to_ns: to_ns.min(self.window_ns.1) };
        if gap.to_ns.saturating_sub(gap.from_ns) >= Gap::LEAST_NS {
            self.stats.gaps.push(gap);
        }
    }

    /// Closes the window now if it is open; a window that has not begun stays empty.
    fn end_window_early(&mut self, now_ns: u64) {
        let remaining = self.timetable.boundaries.len() - self.crossed;
        if remaining == 0 {
            return;
        }
        self.timetable.boundaries.truncate(self.crossed);
        if self.crossed > 0 {
            self.timetable.boundaries.push(now_ns);
            self.window_ns.1 = now_ns;
            self.cross(now_ns);
        }
    }

    fn send_chunk(&mut self, chunk: impl FnOnce(Stats) -> StretchCounts) {
        let stats = std::mem::replace(&mut self.stats, Stats::new());
        // The receiver lives as long as the threads; without it nobody wants the figures.
        let _ = self.chunks.send(chunk(stats));
    }

    /// Open loop: hands everything that is due to the connections in turn.
    fn send_due(&mut self, now_ns: u64) {
        while let Some(index) = self.next_connection() {
            let Some(due) = self.source.take(now_ns) else { break };
            let operation = self.job.operation(due.index);
            let owner = self.routing.as_ref().and_then(|routing| {
                let owner = routing.owner(self.job.token(operation))?;
                self.connection_with_room(|index| routing.leads_to(index, owner))
            });
            let index = owner.unwrap_or(index);
            self.turn = index + 1;
            if self.connections[index].queued.is_empty() {
                self.given.push(index);
            }
            self.encode(index, ReadyOperation { operation, intended_ns: due.intended_ns });
        }
        while let Some(index) = self.given.pop() {
            self.flush(index);
        }
    }

    /// Returns the next connection, in turn, that can take a request. Where answers come in order,
    /// an idle one comes first: behind another request this one would wait for that one's answer.
    #[inline]
    fn next_connection(&self) -> Option<usize> {
        let any = || self.connection_with_room(|_| true);
        let in_order = self.connections.first().is_some_and(|one| one.key_value.is_some());
        if !in_order {
            return any();
        }
        self.connection_with_room(|index| self.connections[index].in_flight() == 0).or_else(any)
    }

    /// Returns the next suitable connection, in turn, that can take a request.
    #[inline]
    fn connection_with_room(&self, suits: impl Fn(usize) -> bool) -> Option<usize> {
        let count = self.connections.len();
        (0..count)
            .map(|offset| {
                let index = self.turn + offset;
                if index >= count { index % count } else { index }
            })
            .find(|&index| self.connections[index].has_room() && suits(index))
    }

    /// Closed loop: puts as many operations on a connection as it may have in flight.
    #[inline]
    fn fill(&mut self, index: usize, now_ns: u64) {
        while self.in_flight < self.in_flight_max && self.connections[index].has_room() {
            let (source, job) = (&mut self.source, self.job);
            let mut take = || {
                let due = source.take(now_ns)?;
                let operation = job.operation(due.index);
                Some(ReadyOperation { operation, intended_ns: due.intended_ns })
            };
            let ready = match &mut self.routing {
                None => take(),
                Some(routing) => routing.next(index, || {
                    let ready = take()?;
                    Some((ready, job.token(ready.operation)))
                }),
            };
            let Some(ready) = ready else { break };
            self.encode(index, ready);
        }
    }

    #[inline]
    fn encode(&mut self, index: usize, ready: ReadyOperation) {
        let connection = &mut self.connections[index];
        let slot = Slot::new(ready.operation, ready.intended_ns);
        let Some(stream) = connection.take_stream(slot) else {
            return;
        };
        self.in_flight += 1;
        let head = connection.head(stream);
        let encoded =
            self.job.encode(ready.operation, &connection.prepared, head, &mut connection.out);
        assert!(encoded, "the engine prepares every connection before the load");
    }

    /// Sends what is encoded for a connection.
    #[inline]
    fn flush(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if !connection.has_output() {
            return;
        }
        let now_ns = clock::now_ns();
        if matches!(self.source, Source::Open(_)) {
            for &stream in &connection.queued {
                let slot = &connection.slots[usize::try_from(stream).unwrap_or_default()];
                let Slot { intended_ns, sent_ns: 0, .. } = *slot else { continue };
                if intended_ns >= self.window_ns.0 && intended_ns < self.window_ns.1 {
                    self.stats.sent_late(now_ns.saturating_sub(intended_ns));
                }
            }
        }
        if connection.flush(now_ns) == Progress::Ended {
            self.drop_connection(index, ErrorKind::ConnectionClosed, "cannot send");
        }
    }

    /// Waits for answers, at most until the next boundary or due operation.
    fn wait(&mut self, events: &mut Vec<Event>) -> Result<(), LoadError> {
        let now_ns = clock::now_ns();
        let mut until_ns = (now_ns + ATTENTION_NS).min(self.recoverer.next_check_ns(now_ns));
        if let Some(&boundary_ns) = self.timetable.boundaries.get(self.crossed) {
            until_ns = until_ns.min(boundary_ns);
        }
        if self.stopped_ns.is_none() {
            until_ns = until_ns.min(self.timetable.stop_ns);
            if self.shared.accounts_read.is_some() && self.is_past_window() {
                until_ns = until_ns.min(now_ns + READ_CHECK_NS);
            }
            if let Source::Open(pacer) = &self.source
                && self.connections.iter().any(Connection::has_room)
            {
                let due_ns = pacer.next_due_ns();
                if due_ns < until_ns {
                    until_ns = self.queue.early(due_ns);
                }
            }
        }
        let until_ns = if self.again.is_empty() { until_ns } else { now_ns };
        self.queue.wait(events, now_ns, until_ns)
    }
}
