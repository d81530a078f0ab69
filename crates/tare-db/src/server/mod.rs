//! Starts the shards, waits for them, and stops them.

mod access;
mod announce;
mod error;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tare_store::{Recovered, Store};

use crate::net::balancer::ConnectionBalancer;
use crate::net::reactor::{Engine, EngineChoice, ReactorError};
use crate::node::clock::Clock;
use crate::node::config::Config;
use crate::node::directory::{Directory, ShardFiles};
use crate::node::environment::Environment;
use crate::node::inject::{self, Busy};
use crate::node::memory::{self, Budget, Resident};
use crate::node::metrics::{self, ServerInfo, SharedCounters};
use crate::node::placement::{self, Placement};
use crate::node::report::Report;
use crate::query::catalog::{SharedCatalog, hash_uuid};
use crate::query::system::Node;
use crate::shard::mailbox::Mailbox;
use crate::shard::message::Message;
use crate::shard::stall::{self, Detector};
use crate::shard::{Shard, ShardSettings, ShardStart, SharedState};
use access::{AccessControl, Logins};
use announce::{StartupFacts, announce, log_line, report_of};

pub use access::AccessError;
pub use error::DbError;

/// Size of a commit log segment, which is reserved on disk when the segment begins.
const SEGMENT_BYTES: u64 = 32 << 20;
/// How long to wait for an address that another server has just left. After `kill -9` the kernel
/// releases the listening socket only when it has torn down the server's io_uring.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(2);
/// How often the main thread checks whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Everything that a shard's thread starts with.
struct ThreadStart {
    number: usize,
    config: Config,
    placement: Placement,
    shared: Arc<SharedState>,
    files: ShardFiles,
    budget: Budget,
    clock: Clock,
    stalls: Detector,
    counters: SharedCounters,
    messages: Receiver<Message>,
    listener: Option<OwnedFd>,
}

type Ready = Result<(EngineChoice, Recovered), DbError>;

/// Runs a server until `stop` is set, for example by a signal handler. Then the server stops
/// accepting, answers the requests that it has, makes the log durable, and returns. What it finds
/// and chooses goes to `log`, one line each, and to `report.json`. A failure sets `stop` too.
pub fn serve(
    config: &Config,
    stop: &'static AtomicBool,
    log: &mut dyn Write,
) -> Result<(), DbError> {
    // Threads inherit the filter, so it is installed before any thread starts.
    if let Some(instructions) = config.inject.filter {
        inject::install_filter(instructions)?;
    }
    let guard = AccessControl::prepare(config)?;
    memory::tune_heap();
    let directory = Directory::open(&config.data)?;
    let environment = Environment::find()?;
    let placement = placement::place(config, &environment)?;
    let shards = placement.shards;
    let memory_bytes = memory::memory_bytes(config.memory, &environment, shards)?;
    let budget = Budget::new(memory_bytes, shards, environment.open_files_max);
    directory.agree_on_shards(shards)?;
    let Sockets { listeners, address, shard_aware_port, metrics: metrics_listener } =
        Sockets::open(config, shards)?;
    let path = directory.file(metrics::FILE);
    let accounts = metrics::create(&path, shards)
        .map_err(|source| DbError::Metrics { path: path.clone(), source })?;

    let (mailboxes, messages) = make_mailboxes(shards)?;
    let AccessControl { tls, logins } = guard;
    let host = config.data.as_os_str().as_encoded_bytes();
    let shared = Arc::new(SharedState {
        catalog: SharedCatalog::open(&directory.file("schema.log"))?,
        prepared: Mutex::default(),
        mailboxes,
        node: Node { address, host_id: hash_uuid(&[host]) },
        balancer: ConnectionBalancer::new(shards, shard_aware_port),
        logins: logins.as_ref().map(Logins::queue),
        tls,
        stop,
        drained: AtomicUsize::new(0),
        resident: Resident::default(),
    });

    logins.map(|logins| logins.start(&shared)).transpose()?;
    let clock = Clock::new();
    let (detectors, mut watchdog) = stall::detectors(shards, config.stall_threshold);
    // Each engine has one listener: the second shard listens on the shard-aware port.
    let mut listeners = listeners.into_iter();
    let mut threads = Vec::new();
    let parts = accounts.iter().copied().zip(messages).zip(detectors);
    for (number, ((counters, messages), stalls)) in parts.enumerate() {
        let start = ThreadStart {
            number,
            config: config.clone(),
            placement: placement.clone(),
            shared: Arc::clone(&shared),
            files: directory.files(number)?,
            budget,
            clock,
            stalls,
            counters,
            messages,
            listener: listeners.next().map(OwnedFd::from),
        };
        threads.push(spawn(start)?);
    }
    let Readiness { chosen, replayed, mut failure } = wait_until_ready(&threads, log)?;
    if let (None, Some(chosen)) = (&failure, &chosen) {
        let found =
            StartupFacts { environment: &environment, placement: &placement, budget, chosen };
        let mut report = report_of(config, &directory, &found, address, replayed);
        report.memory_bytes = memory_bytes;
        report.shard_aware_port = shard_aware_port;
        failure = serve_metrics(metrics_listener, &mut report, accounts)
            .and_then(|()| announce(&directory, &report, &found, log))
            .err();
    }
    // Clients may read the report, so no shard answers before it is written.
    let threads: Vec<_> = threads.into_iter().map(|running| running.release(&failure)).collect();
    if failure.is_some() {
        stop.store(true, Ordering::Relaxed);
    }
    let period_ns = u64::try_from(STOP_CHECK.as_nanos()).unwrap_or(u64::MAX);
    watchdog.check(clock.now_ns(), u64::MAX);
    let has_ended = |threads: &[JoinHandle<_>]| threads.iter().any(JoinHandle::is_finished);
    while !stop.load(Ordering::Relaxed) && !has_ended(&threads) {
        std::thread::sleep(STOP_CHECK);
        // The reader of the log may have closed it; the server goes on.
        let _ = watchdog.check(clock.now_ns(), period_ns).iter().try_for_each(|l| log_line(log, l));
        shared.resident.measure(memory_bytes, clock.now_ns());
    }
    // When a shard ends, the others end too, because a part of the data is missing.
    stop.store(true, Ordering::Relaxed);
    shared.mailboxes.iter().for_each(Mailbox::wake);
    let failure = join(threads, failure);
    match failure {
        Some(failure) => Err(failure),
        None => log_line(log, "stopped: the log is durable"),
    }
}

/// The two sides of each shard's mailbox.
type Mailboxes = (Vec<Mailbox<Message>>, Vec<Receiver<Message>>);

fn make_mailboxes(shards: usize) -> Result<Mailboxes, DbError> {
    let mailboxes = (0..shards).map(|_| Mailbox::new()).collect::<io::Result<Vec<_>>>();
    let mailboxes = mailboxes.map_err(|source| DbError::Thread { shard: 0, source })?;
    Ok(mailboxes.into_iter().unzip())
}

/// The sockets that a server listens on.
struct Sockets {
    /// The usual port, then the shard-aware one if there is one.
    listeners: Vec<TcpListener>,
    /// The address of the usual port.
    address: SocketAddr,
    shard_aware_port: Option<u16>,
    metrics: Option<TcpListener>,
}

impl Sockets {
    fn open(config: &Config, shards: usize) -> Result<Self, DbError> {
        let (listener, address) = listen(SocketAddr::new(config.listen, config.port))?;
        let mut listeners = vec![listener];
        let mut shard_aware_port = None;
        // With one shard, clients have nothing to choose.
        if let Some(port) = config.shard_aware_port.filter(|_| shards > 1) {
            let (listener, address) = listen(SocketAddr::new(config.listen, port))?;
            listeners.push(listener);
            shard_aware_port = Some(address.port());
        }
        let metrics = config.metrics.map(|address| listen_for_metrics(address, config.insecure));
        Ok(Self { listeners, address, shard_aware_port, metrics: metrics.transpose()? })
    }
}

/// The reports of all shards about their start.
struct Readiness {
    /// The engine of the first shard that reported.
    chosen: Option<EngineChoice>,
    /// Entries of the commit logs that were replayed.
    replayed: u64,
    failure: Option<DbError>,
}

/// Waits until every shard is ready or has failed.
fn wait_until_ready(threads: &[ShardThread], log: &mut dyn Write) -> Result<Readiness, DbError> {
    let mut readiness = Readiness { chosen: None, replayed: 0, failure: None };
    for (number, ShardThread { ready, .. }) in threads.iter().enumerate() {
        let error = match ready.recv() {
            Ok(Ok((engine, recovered))) => {
                readiness.replayed += recovered.entries;
                if let Some(torn) = &recovered.torn {
                    let (file, offset) = (&torn.file, torn.offset);
                    log_line(log, &format!("cut the torn tail of {file} at offset {offset}"))?;
                }
                readiness.chosen.get_or_insert(engine);
                continue;
            }
            Ok(Err(error)) => error,
            Err(_) => DbError::Died { shard: number },
        };
        readiness.failure.get_or_insert(error);
    }
    Ok(readiness)
}

/// Waits until all shards have ended. Returns the first failure.
fn join(
    threads: Vec<JoinHandle<Result<(), DbError>>>,
    mut failure: Option<DbError>,
) -> Option<DbError> {
    for (number, thread) in threads.into_iter().enumerate() {
        let error = match thread.join() {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(_) => DbError::Died { shard: number },
        };
        failure.get_or_insert(error);
    }
    failure
}

/// Listens, and returns the address with the port that the kernel chose.
fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), DbError> {
    let failed = |source| DbError::Listen { address, source };
    let listener = bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// A shard's thread. It reports when it is ready and waits to be released.
struct ShardThread {
    thread: JoinHandle<Result<(), DbError>>,
    ready: Receiver<Ready>,
    go: Sender<()>,
}

impl ShardThread {
    /// Lets the shard serve, or end if something has failed.
    fn release(self, failure: &Option<DbError>) -> JoinHandle<Result<(), DbError>> {
        if failure.is_none() {
            // If the shard has ended by itself, joining its thread reports why.
            let _ = self.go.send(());
        }
        self.thread
    }
}

fn spawn(start: ThreadStart) -> Result<ShardThread, DbError> {
    let shard = start.number;
    let (tell, ready) = channel();
    let (go, gone) = channel();
    let builder = std::thread::Builder::new().name(format!("shard-{shard}"));
    let thread = builder.spawn(move || run(start, &tell, &gone));
    let thread = thread.map_err(|source| DbError::Thread { shard, source })?;
    Ok(ShardThread { thread, ready, go })
}

/// Runs a shard's thread.
fn run(start: ThreadStart, ready: &Sender<Ready>, go: &Receiver<()>) -> Result<(), DbError> {
    let shard = start.number;
    let tell = |message| {
        // If the server has ended, nobody needs the message.
        let _ = ready.send(message);
    };
    match prepare(start) {
        Ok((mut shard_, chosen, recovered)) => {
            tell(Ok((chosen, recovered)));
            if go.recv().is_err() {
                return Ok(());
            }
            let ended = shard_.run();
            ended.map_err(|source| DbError::Shard { shard, source })
        }
        Err(error) => {
            tell(Err(error));
            Ok(())
        }
    }
}

fn prepare(start: ThreadStart) -> Result<(Shard, EngineChoice, Recovered), DbError> {
    let ThreadStart { number, config, placement, shared, mut files, budget, clock, .. } = start;
    if let Some(&cpu) = placement.pinned.get(number) {
        let failed = |source| DbError::Pin { shard: number, cpu, source };
        placement::pin(cpu).map_err(failed)?;
    }
    let limits = budget.limits(config.durability, SEGMENT_BYTES);
    let catalog = shared.catalog.current();
    let (store, recovered) = Store::open(&mut files, limits, catalog.options(), clock.now())?;
    let failed = |source| DbError::Shard { shard: number, source };
    let wakeup = shared.mailboxes[number].wakeup();
    let (mut engine, chosen) = Engine::new(config.io, wakeup).map_err(failed)?;
    if let Some(listener) = start.listener {
        engine.listen(listener).map_err(|source| failed(ReactorError::Epoll { source }))?;
    }
    let busy = config.inject.busy_ns.map(|ns| Busy::new(ns, clock));
    let settings =
        ShardSettings { durability: config.durability, polling: placement.polling, budget };
    let shard = Shard::new(ShardStart {
        number,
        shared,
        settings,
        store,
        files,
        engine,
        clock,
        counters: start.counters,
        stalls: start.stalls,
        messages: start.messages,
        busy,
    });
    Ok((shard, chosen, recovered))
}

/// Binds, and waits a short time for an address that is still in use.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    const STEP: Duration = Duration::from_millis(20);
    let mut left = ADDRESS_PATIENCE;
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && !left.is_zero() => {
                std::thread::sleep(STEP);
                left = left.saturating_sub(STEP);
            }
            bound => return bound,
        }
    }
}

fn listen_for_metrics(address: SocketAddr, insecure: bool) -> Result<TcpListener, DbError> {
    if !address.ip().is_loopback() && !insecure {
        return Err(DbError::MetricsExposed { address });
    }
    bind(address).map_err(|source| DbError::ServeMetrics { address, source })
}

/// Starts to serve metrics if the configuration asks for it, and notes the address in the report.
fn serve_metrics(
    listener: Option<TcpListener>,
    report: &mut Report,
    accounts: Vec<SharedCounters>,
) -> Result<(), DbError> {
    let Some(listener) = listener else { return Ok(()) };
    let server = ServerInfo {
        version: report.version.clone(),
        io_engine: report.io_engine.clone(),
        memory_bytes: report.memory_bytes,
        resident_bytes: 0,
    };
    let address = listener.local_addr().ok();
    let failed = |source| {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        DbError::ServeMetrics { address: address.unwrap_or(unknown), source }
    };
    report.metrics = Some(metrics::serve(listener, accounts, server).map_err(failed)?);
    Ok(())
}
