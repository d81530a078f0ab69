//! The engine: connections to systems, and one thread per CPU that loads them.
//!
//! The connections to a system stay open between loads, so a system may be frozen meanwhile:
//! nothing is sent to it and nothing is awaited from it. Each thread owns its share of the
//! connections; threads share nothing while they run.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet as Affinity, sched_setaffinity};
use tare_std::cpus::CpuSet;

use crate::access::{self, Access, Host, Protocol, Recovery};
use crate::clock;
use crate::error::LoadError;
use crate::pacing::{Pace, Pacer};
use crate::protocol::cluster::Cluster;
use crate::protocol::connection::Connection;
use crate::protocol::dial::Dialer;
use crate::protocol::key_value;
use crate::protocol::request::Job;
use crate::report::stats::Stats;
use crate::run::gather::StatsMerger;
use crate::run::redial::{ConnectionSpec, Redialer};
pub use crate::run::worker::Edge;
use crate::run::worker::{SharedState, Source, WindowTimes, Worker, WorkerPlan};
use crate::workload::operation::{Operations, Part};
use crate::workload::table::Table;
use crate::workload::{QueryKind, Workload, schema};

/// The load goes on for this time after the window.
const TAIL: Duration = Duration::from_millis(10);
/// The longest time that the load goes on if the caller tells when it has read its accounts, which
/// takes longer on a busy host.
const TAIL_MAX: Duration = Duration::from_secs(1);
/// Time between two attempts to reach a server.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Time limit for an exchange that is not part of a load.
const EXCHANGE: Duration = Duration::from_secs(30);
/// Requests in flight are given up after this time without any answer.
const SILENCE: Duration = Duration::from_secs(5);
const SILENCE_POPULATE: Duration = Duration::from_secs(30);
/// A load waits for answers at most this long after its end.
const DRAIN: Duration = Duration::from_secs(20);
/// The most requests in flight over all connections of an open loop.
const OPEN_IN_FLIGHT: u32 = 1 << 16;
/// The fewest requests in flight while rows are written.
const POPULATE_IN_FLIGHT: u32 = 256;
/// How often a failed write of a row is sent again.
const POPULATE_RETRIES: u8 = 3;
/// Stream ids are positive 16-bit numbers (CQL protocol v4, section 2.3).
const STREAMS_MAX: u32 = 16 << 10;

/// Runs load threads, one on each of its CPUs.
#[derive(Clone, Debug)]
pub struct Engine {
    cpus: Vec<u32>,
}

/// A system with its connections.
#[derive(Debug)]
pub struct Target {
    /// The node that the user named.
    address: SocketAddr,
    dialer: Dialer,
    cluster: Cluster,
    recovery: Recovery,
    /// The connection for schema statements; it also proves that the system answers.
    control: Connection,
    /// The connections for the load.
    connections: Vec<Connection>,
    /// The seeds of the rows that were written, by table.
    row_seeds: Vec<(String, u64)>,
    /// Tables that are known to match the workload.
    known: Vec<KnownTable>,
}

/// A table that matches a workload, and whether it does for slices too.
#[derive(Debug)]
struct KnownTable {
    table: Table,
    slices: bool,
}

/// A workload, the loader's part of it, and over how many connections it runs.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    pub workload: Arc<Workload>,
    /// This loader's part of the rows.
    pub part: Part,
    pub connections: u32,
    /// Requests in flight over all connections of a closed loop.
    pub in_flight: u32,
}

/// One load to run.
#[derive(Clone, Debug)]
pub struct LoadOrder<'a> {
    pub spec: &'a LoadSpec,
    /// The pace, which sets the length of the measured window.
    pub pace: &'a Pace,
    pub lead_in: Duration,
    /// The length of the stretches that the window is divided into; steps of a schedule divide it
    /// too.
    pub stretch: Duration,
    pub seed: u64,
    pub verify: bool,
    /// When the lead-in begins. `None`: at once.
    pub start: Option<StartTime>,
}

/// When a load begins that other loaders share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartTime {
    /// Beginning of the lead-in, on the clock of [`crate::clock_ns`]. A load that is late begins at
    /// once, and its window stays.
    pub at_ns: u64,
    /// Open loop: this much later, so that the operations of several loaders do not coincide.
    pub phase_ns: u64,
}

/// How the caller observes and stops a load.
pub struct LoadObserver<'a> {
    pub stop: &'a AtomicBool,
    /// Called on a load thread at the edges of the window.
    pub edge: &'a (dyn Fn(Edge) + Sync),
    /// Set by the caller once it has read its accounts at the last edge. The load then ends.
    /// `None`: it goes on for a fixed time.
    pub accounts_read: Option<&'a AtomicBool>,
    /// Called with the counts of every stretch once all threads have handed theirs over.
    pub stretch: &'a mut dyn FnMut(&Stats),
    /// True: a system that goes away in the window is part of the result. False: it is an error.
    pub outlives: bool,
}

impl fmt::Debug for LoadObserver<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow").field("outlives", &self.outlives).finish_non_exhaustive()
    }
}

impl Target {
    /// Connects to a node and finds the others, if asked to.
    fn reach(
        host: &Host,
        dialer: &Dialer,
        access: &Access,
        deadline: Instant,
    ) -> Result<Self, LoadError> {
        let mut control = dialer.open(host, None, deadline)?;
        let mut cluster = match access.discover && access.protocol.is_cql() {
            true => Cluster::discover(host.clone(), &mut control, deadline)?,
            false => Cluster::single(host.clone()),
        };
        cluster.learn_sharding(&control);
        Ok(Self {
            address: host.address,
            dialer: dialer.clone(),
            cluster,
            recovery: access.recovery,
            control,
            connections: Vec::new(),
            row_seeds: Vec::new(),
            known: Vec::new(),
        })
    }

    /// Notes that the rows of a workload's table were written with this seed, through other
    /// connections.
    pub fn assume_rows(&mut self, workload: &Workload, seed: u64) {
        let table = workload.table.full_name();
        self.row_seeds.retain(|(other, _)| *other != table);
        self.row_seeds.push((table, seed));
    }

    /// Creates the table of a workload, or makes sure that it is that.
    fn create_table(&mut self, workload: &Workload) -> Result<(), LoadError> {
        let [keyspace, table] = workload.table.schema();
        for (what, statement) in [("CREATE KEYSPACE", &keyspace), ("CREATE TABLE", &table)] {
            self.control.query(what, statement, Instant::now() + EXCHANGE, |_| ())?;
        }
        self.cluster.wait_for_schema(&mut self.control, Instant::now() + EXCHANGE)?;
        self.check_table(workload)
    }

    /// Refuses a missing table, or one that does not match the workload.
    fn check_table(&mut self, workload: &Workload) -> Result<(), LoadError> {
        if !self.dialer.protocol.is_cql() {
            return Ok(());
        }
        let table = &workload.table;
        let slices = workload.queries.iter().any(|query| query.kind == QueryKind::Slice);
        let is_known = |known: &KnownTable| known.table == *table && (known.slices || !slices);
        if self.known.iter().any(is_known) {
            return Ok(());
        }
        let (question, deadline) = (schema::columns_query(table), Instant::now() + EXCHANGE);
        let asked = self.control.query("a question about the table", &question, deadline, |rows| {
            rows.map(|rows| schema::server_columns(&rows))
        });
        let (address, name) = (self.address, table.full_name());
        match asked {
            Ok(Some(columns)) if columns.is_empty() => {
                return Err(LoadError::NoTable { address, table: name });
            }
            Ok(Some(columns)) => {
                schema::compare(table, &columns, slices).map_err(|difference| {
                    let difference = Box::new(difference);
                    LoadError::OtherTable { address, table: name, difference }
                })?;
            }
            // The server cannot tell; PREPARE will.
            Ok(None) | Err(LoadError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
        self.known.push(KnownTable { table: table.clone(), slices });
        Ok(())
    }
}

impl Engine {
    pub fn new(cpus: &CpuSet) -> Result<Self, LoadError> {
        if cpus.is_empty() {
            return Err(LoadError::NoCpus);
        }
        Ok(Self { cpus: cpus.iter().collect() })
    }

    /// Returns how many CPUs the load has.
    pub(crate) fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Connects to a system; tries again until it answers or `deadline` has passed.
    pub fn open(
        &self,
        access: &Access,
        deadline: Duration,
        stop: &AtomicBool,
    ) -> Result<Target, LoadError> {
        let dialer = Dialer::new(access)?;
        let begin = Instant::now();
        let end = begin + deadline;
        let port = access.protocol.port();
        let hosts: Vec<Host> = access
            .nodes
            .iter()
            .map(|node| access::resolve(node, port))
            .collect::<Result<_, _>>()?;
        let mut candidates = hosts.iter().cycle();
        // The deadline may cut the last attempt short; that is not the reason to report.
        let mut failed = None;
        loop {
            let host = candidates.next().ok_or(LoadError::NoNode)?;
            // A hanging attempt, such as at a frozen server, must not use up the time of the
            // others.
            let attempt = end.min(Instant::now() + Duration::from_secs(2));
            let error = match Target::reach(host, &dialer, access, attempt) {
                Ok(target) => return Ok(target),
                Err(error) if !error.may_pass() => return Err(error),
                Err(error) => error,
            };
            let cut_short = attempt == end && error.is_time_out();
            if failed.is_none() || !cut_short {
                failed = Some((host.address, error));
            }
            if Instant::now() >= end || stop.load(Ordering::Relaxed) {
                let waited_s = begin.elapsed().as_secs_f64();
                let (address, error) = failed.ok_or(LoadError::NoNode)?;
                return Err(LoadError::NotReady { address, waited_s, source: Box::new(error) });
            }
            // Short pauses at first, because a starting server is waited for here; longer ones
            // later.
            let pause = (begin.elapsed() / 16).clamp(PAUSE_MIN, PAUSE_MAX);
            std::thread::sleep(pause);
        }
    }

    /// Creates the schema and writes every row of the workload once.
    pub fn populate(
        &self,
        target: &mut Target,
        spec: &LoadSpec,
        seed: u64,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), LoadError> {
        let protocol = target.dialer.protocol;
        let (first, rows) = check(spec, protocol)?;
        if protocol.is_cql() {
            target.create_table(&spec.workload)?;
        }
        let job = Job::populate(Arc::clone(&spec.workload), seed, first, clock::since_epoch_us());
        let job = job.speaking(protocol);
        let limits = limits(spec.connections, spec.in_flight.max(POPULATE_IN_FLIGHT));
        let timetable = WindowTimes {
            boundaries: Vec::new(),
            stop_ns: u64::MAX,
            silence_ns: nanoseconds(SILENCE_POPULATE),
            drain_ns: nanoseconds(DRAIN),
        };
        self.connect(target, &job.statements(), spec.connections)?;
        let table = spec.workload.table.full_name();
        let source = |part, parts| Source::Rows { next: part, step: parts, end: rows };
        let mut follow = LoadObserver {
            stop,
            edge: &|_| {},
            accounts_read: None,
            stretch: &mut |_| {},
            outlives: false,
        };
        let total =
            self.drive(target, &job, &limits, &timetable, &source, &mut follow, &mut |n| {
                progress(n, rows);
            })?;
        if let Some(errors) = total.errors.values().next() {
            let count = total.errors.values().map(|errors| errors.count).sum();
            return Err(LoadError::Populate {
                address: target.address,
                table,
                count,
                first: errors.first.clone(),
            });
        }
        if stop.load(Ordering::Relaxed) {
            return Err(LoadError::PopulateInterrupted { table });
        }
        target.assume_rows(&spec.workload, seed);
        progress(rows, rows);
        Ok(())
    }

    /// Opens the connections of a load and prepares its statements, so that it begins at once.
    pub fn prepare(
        &self,
        target: &mut Target,
        spec: &LoadSpec,
        seed: u64,
    ) -> Result<(), LoadError> {
        let protocol = target.dialer.protocol;
        check(spec, protocol)?;
        target.check_table(&spec.workload)?;
        let operations = Operations::new(&spec.workload, seed, spec.part);
        let job = Job::load(Arc::clone(&spec.workload), seed, operations, None).speaking(protocol);
        self.connect(target, &job.statements(), spec.connections)
    }

    /// Runs one load and returns what was counted in its window.
    pub fn run(
        &self,
        target: &mut Target,
        order: &LoadOrder<'_>,
        follow: &mut LoadObserver<'_>,
    ) -> Result<Stats, LoadError> {
        let (spec, protocol) = (order.spec, target.dialer.protocol);
        check(spec, protocol)?;
        target.check_table(&spec.workload)?;
        let table = spec.workload.table.full_name();
        let seeds = &target.row_seeds;
        let row_seed = seeds.iter().find(|(other, _)| *other == table).map(|&(_, seed)| seed);
        let job = Job::load(
            Arc::clone(&spec.workload),
            row_seed.unwrap_or(order.seed),
            Operations::new(&spec.workload, order.seed, spec.part),
            order.verify.then(clock::since_epoch_us),
        )
        .speaking(protocol);
        let connections = spec.connections;
        let limits = match order.pace {
            Pace::Closed(_) => limits(connections, spec.in_flight),
            Pace::Open(_) => limits(connections, OPEN_IN_FLIGHT.max(connections)),
        };
        self.connect(target, &job.statements(), connections)?;
        // Threads need a moment to start; an operation due before that would be late.
        let soon_ns = clock::now_ns() + 1_000_000 + 100_000 * self.cpus.len() as u64;
        let (start_ns, phase_ns) =
            order.start.map_or((soon_ns, 0), |start| (start.at_ns, start.phase_ns));
        wait_for_start(order.start, follow.stop);
        let begin_ns = start_ns + nanoseconds(order.lead_in);
        let boundaries = boundaries(order.pace, begin_ns, nanoseconds(order.stretch).max(1));
        let end_ns = boundaries.last().copied().unwrap_or(begin_ns);
        let timetable = WindowTimes {
            boundaries,
            stop_ns: end_ns
                + nanoseconds(if follow.accounts_read.is_some() { TAIL_MAX } else { TAIL }),
            silence_ns: nanoseconds(SILENCE),
            drain_ns: nanoseconds(DRAIN),
        };
        let source = |part, parts| match order.pace {
            Pace::Closed(_) => Source::Closed { next: part, step: parts },
            Pace::Open(schedule) => {
                let part = (part, parts);
                let start_ns = start_ns + phase_ns;
                Source::Open(Pacer::new(schedule, order.lead_in, start_ns, part, order.seed))
            }
        };
        self.drive(target, &job, &limits, &timetable, &source, follow, &mut |_| {})
    }

    /// Opens or closes connections until `count` of them work and are prepared.
    fn connect(
        &self,
        target: &mut Target,
        statements: &[String],
        count: u32,
    ) -> Result<(), LoadError> {
        let count = count as usize;
        // If one is gone, the others do not cover all nodes and shards evenly.
        if !target.connections.iter().all(Connection::is_idle) {
            target.connections.clear();
        }
        target.connections.truncate(count);
        while target.connections.len() < count {
            let number = target.connections.len();
            let deadline = Instant::now() + EXCHANGE;
            let connection = target.cluster.connect(&target.dialer, number, deadline)?;
            target.connections.push(connection);
        }
        for connection in &mut target.connections {
            connection.prepare(statements, Instant::now() + EXCHANGE)?;
        }
        Ok(())
    }

    /// Runs the threads. `limits` has the most requests in flight for each connection; connections
    /// beyond it stay idle.
    #[expect(
        clippy::too_many_arguments,
        reason = "private, called twice, and each argument is of its own kind"
    )]
    fn drive(
        &self,
        target: &mut Target,
        job: &Job,
        limits: &[i16],
        timetable: &WindowTimes,
        source: &dyn Fn(u64, u64) -> Source,
        follow: &mut LoadObserver<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Stats, LoadError> {
        let shared = SharedState {
            stop: follow.stop,
            alive: AtomicUsize::new(limits.len()),
            done: AtomicU64::new(0),
            edge: follow.edge,
            accounts_read: follow.accounts_read,
            served_ns: AtomicU64::new(clock::now_ns()),
        };
        let share = limits.len().div_ceil(self.cpus.len());
        let (sender, receiver) = mpsc::channel();
        let mut gathered = StatsMerger::new(limits.len().div_ceil(share));
        // Filling a table is not measured, but every row must be written in the end.
        let recovery = match job.is_populating() {
            true => Recovery { retries: POPULATE_RETRIES, ..Recovery::default() },
            false => target.recovery,
        };
        let statements = job.statements();
        let (dialer, cluster) = (&target.dialer, &target.cluster);
        let spec = |part: u64| ConnectionSpec {
            dialer: dialer.clone(),
            cluster: cluster.clone(),
            statements: statements.clone(),
            first: usize::try_from(part).unwrap_or_default() * share,
        };
        let result = std::thread::scope(|scope| {
            let mut parts = Vec::new();
            let connections = &mut target.connections[..limits.len()];
            let ring = &cluster.ring;
            let shares = connections.chunks_mut(share).zip(limits.chunks(share));
            let count = shares.len() as u64;
            for (part, ((connections, limits), &cpu)) in (0..).zip(shares.zip(&self.cpus)) {
                let plan = WorkerPlan {
                    source: source(part, count),
                    timetable: timetable.clone(),
                    first: part == 0,
                    recovery,
                    redialer: recovery.reconnect.then(|| Redialer::new(spec(part))),
                };
                let (shared, chunks) = (&shared, sender.clone());
                let work = move || {
                    pin(cpu)?;
                    Worker::new(connections, ring, job, shared, plan, chunks)?.run(limits)
                };
                let thread = std::thread::Builder::new().name(format!("load-{cpu}"));
                parts.push(thread.spawn_scoped(scope, work));
            }
            drop(sender);
            loop {
                match receiver.recv_timeout(Duration::from_millis(200)) {
                    Ok(chunk) => gathered.take(chunk, follow.stretch),
                    Err(RecvTimeoutError::Timeout) => {
                        progress(shared.done.load(Ordering::Relaxed));
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            parts.into_iter().try_for_each(|part| {
                match part.map_err(|source| LoadError::Thread { source })?.join() {
                    Ok(result) => result,
                    // A panic in a thread is a bug of the generator, so it must be visible.
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            })
        });
        let total = gathered.finish(follow.stretch);
        result?;
        let is_result = follow.outlives && total.operations > 0;
        if shared.alive.load(Ordering::Relaxed) == 0 && !is_result {
            let mut reasons = total.errors.iter().map(|(kind, errors)| (kind.name(), errors));
            let reason = reasons.next_back();
            let reason = reason
                .map_or_else(String::new, |(kind, errors)| format!("{kind}: {}", errors.first));
            return Err(LoadError::NoConnection { address: target.address, reason });
        }
        Ok(total)
    }
}

/// Sleeps until a load that has a time for it begins, less what its threads need to start.
fn wait_for_start(start: Option<StartTime>, stop: &AtomicBool) {
    const BEFORE_NS: u64 = 1_000_000;
    const NAP_NS: u64 = 100_000_000;
    let Some(start) = start else { return };
    while !stop.load(Ordering::Relaxed) {
        let left_ns = start.at_ns.saturating_sub(BEFORE_NS + clock::now_ns());
        if left_ns == 0 {
            return;
        }
        std::thread::sleep(Duration::from_nanos(left_ns.min(NAP_NS)));
    }
}

/// Returns the boundaries of the window's stretches, every `stretch_ns` from the beginning of each
/// step on.
fn boundaries(pace: &Pace, begin_ns: u64, stretch_ns: u64) -> Vec<u64> {
    let lengths: Vec<Duration> = match pace {
        Pace::Closed(window) => vec![*window],
        Pace::Open(schedule) => schedule.steps().iter().map(|step| step.length).collect(),
    };
    let mut boundaries = Vec::new();
    let mut at_ns = begin_ns;
    for length in lengths {
        let end_ns = at_ns + nanoseconds(length);
        while at_ns < end_ns {
            boundaries.push(at_ns);
            at_ns += stretch_ns;
        }
        at_ns = end_ns;
    }
    boundaries.push(at_ns);
    boundaries
}

/// Divides `in_flight` over `connections`; the first ones get the remainder. Connections without a
/// share are left out.
fn limits(connections: u32, in_flight: u32) -> Vec<i16> {
    let connections = connections.min(in_flight);
    let (each, more) = (in_flight / connections, in_flight % connections);
    (0..connections)
        .map(|index| (each + u32::from(index < more)).min(STREAMS_MAX))
        .map(|limit| i16::try_from(limit).expect("at most STREAMS_MAX"))
        .collect()
}

/// Refuses settings that the engine cannot run. Returns the first of this loader's rows and their
/// number.
fn check(spec: &LoadSpec, protocol: Protocol) -> Result<(u64, u64), LoadError> {
    let refuse = |what, value: String, expected| Err(LoadError::Setting { what, value, expected });
    let LoadSpec { connections, in_flight, part, .. } = *spec;
    let rows = spec.workload.rows;
    if rows == 0 || rows > 1 << 62 {
        return refuse("number of rows", rows.to_string(), "at least 1 and at most 2^62");
    }
    if connections == 0 || connections > 10_000 {
        return refuse("number of connections", connections.to_string(), "from 1 to 10000");
    }
    if in_flight == 0 || in_flight.div_ceil(connections) > STREAMS_MAX {
        let expected = "at least 1 and at most 16384 a connection";
        return refuse("number of requests in flight", in_flight.to_string(), expected);
    }
    let weights: f64 = spec.workload.queries.iter().map(|query| query.weight).sum();
    if !(weights.is_finite() && weights > 0.0) {
        return refuse("weights of queries", weights.to_string(), "above 0 together");
    }
    check_protocol(&spec.workload, protocol)?;
    let (first, count) = part.of(rows);
    if count == 0 {
        let expected = "a part with at least one row of the workload";
        return refuse("part", part.to_string(), expected);
    }
    Ok((first, count))
}

/// Refuses a workload that cannot be run in a protocol.
///
/// # Errors
/// If the protocol has keys and values only, and the workload has other queries or too many rows.
pub fn check_protocol(workload: &Workload, protocol: Protocol) -> Result<(), LoadError> {
    if protocol.is_cql() {
        return Ok(());
    }
    let refuse = |what, value: String, expected| Err(LoadError::Setting { what, value, expected });
    let whole = [QueryKind::Read, QueryKind::Write, QueryKind::Insert];
    if let Some(query) = workload.queries.iter().find(|query| !whole.contains(&query.kind)) {
        let expected = "read, write or insert, where rows are the values of keys";
        return refuse("query", query.kind.name().into(), expected);
    }
    if let Some(column) = workload.table.columns.iter().find(|column| !column.is_fixed_size()) {
        let expected = "a blob or text of one size, where rows are the values of keys";
        return refuse("column", column.name.clone(), expected);
    }
    if workload.rows > key_value::ROWS_MAX / 2 {
        let expected = "at most 5 * 10^11, where rows are the values of keys";
        return refuse("number of rows", workload.rows.to_string(), expected);
    }
    Ok(())
}

/// Binds the calling thread to a CPU.
fn pin(cpu: u32) -> Result<(), LoadError> {
    let mut affinity = Affinity::new();
    if (cpu as usize) < Affinity::MAX_CPU {
        affinity.set(cpu as usize);
    }
    sched_setaffinity(None, &affinity).map_err(|errno| LoadError::Pin { cpu, source: errno.into() })
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn in_flight_is_divided_without_loss(connections in 1u32..300, in_flight in 1u32..5_000) {
            let limits = limits(connections, in_flight);
            prop_assert_eq!(limits.len(), connections.min(in_flight) as usize);
            prop_assert_eq!(limits.iter().map(|&n| i64::from(n)).sum::<i64>(), i64::from(in_flight));
            let spread = limits.iter().max().unwrap() - limits.iter().min().unwrap();
            prop_assert!(spread <= 1);
        }
    }
}
