//! Starts the shards, waits, stops them.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tare_store::{Limits, OpenError, Recovered, Store};

use crate::net::access::{AccessControl, AccessError, Logins};
use crate::net::balancer::ConnectionBalancer;
use crate::net::reactor::{Chosen, Engine, ReactorError};
use crate::node::announce::{Found, announce, report_of, say};
use crate::node::clock::Clock;
use crate::node::config::Config;
use crate::node::directory::{Directory, DirectoryError, ShardFiles};
use crate::node::environment::{Environment, EnvironmentError};
use crate::node::inject::{self, Busy, FilterError};
use crate::node::memory::{self, Budget, MemoryError, Resident};
use crate::node::metrics::{self, ServerInfo, SharedCounters};
use crate::node::placement::{self, Placement, PlacementError};
use crate::node::report::Report;
use crate::query::catalog::{SharedCatalog, hash_uuid, journal::JournalError};
use crate::query::system::Node;
use crate::shard::mailbox::Mailbox;
use crate::shard::message::Message;
use crate::shard::stall::{self, Detector};
use crate::shard::{Shard, ShardSettings, ShardStart, SharedState};

/// Size of a commit log segment: reserved on disk when it is begun.
const SEGMENT_BYTES: u64 = 32 << 20;
/// How long an address is waited for that another server has just left: after `kill -9` its io_uring
/// lets go of the listening socket only when the kernel has taken it down.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(2);
/// How often the waiting thread looks whether it should stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Why a server cannot start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error(transparent)]
    Schema(#[from] JournalError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot listen on {address}; choose another address or port")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot serve metrics on {address}; choose another address or port (--metrics)")]
    ServeMetrics { address: SocketAddr, source: io::Error },
    #[error(
        "metrics would be for everybody who can reach {address}: only a loopback address is taken \
         unless --insecure says otherwise"
    )]
    MetricsExposed { address: SocketAddr },
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("cannot make the metrics file {}", .path.display())]
    Metrics { path: PathBuf, source: io::Error },
    #[error("cannot start shard {shard}")]
    Thread { shard: usize, source: io::Error },
    #[error("cannot pin shard {shard} to CPU {cpu}")]
    Pin { shard: usize, cpu: u32, source: io::Error },
    #[error("shard {shard} cannot go on")]
    Shard { shard: usize, source: ReactorError },
    #[error("shard {shard} died of a bug; its message is above")]
    Died { shard: usize },
    #[error("cannot write the log")]
    Log { source: io::Error },
}

/// What a shard is started with.
struct Start {
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

type Ready = Result<(Chosen, Recovered), DbError>;

/// Runs a server until `stop` is set, which a signal handler may do: then it stops accepting,
/// answers what it was asked, makes the log durable, and returns. What it finds and chooses goes
/// to `log`, one line each, and to `report.json`. A failure sets `stop` too.
pub fn serve(
    config: &Config,
    stop: &'static AtomicBool,
    log: &mut dyn Write,
) -> Result<(), DbError> {
    // Before any thread is started: threads inherit the filter.
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
    let address = SocketAddr::new(config.listen, config.port);
    let (listener, address) = listen(address)?;
    // With one shard there is nothing to choose.
    let aware = config.shard_aware_port.filter(|_| shards > 1);
    let aware = aware.map(|port| listen(SocketAddr::new(config.listen, port))).transpose()?;
    let shard_aware_port = aware.as_ref().map(|(_, address)| address.port());
    let metrics_listener =
        config.metrics.map(|address| listen_for_metrics(address, config.insecure)).transpose()?;
    let path = directory.file(metrics::FILE);
    let accounts = metrics::create(&path, shards)
        .map_err(|source| DbError::Metrics { path: path.clone(), source })?;

    let mailboxes = (0..shards).map(|_| Mailbox::new());
    let mailboxes = mailboxes.collect::<io::Result<Vec<_>>>();
    let mailboxes = mailboxes.map_err(|source| DbError::Thread { shard: 0, source })?;
    let (mailboxes, messages): (Vec<_>, Vec<_>) = mailboxes.into_iter().unzip();
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
    // Each engine has one listener: the shard-aware port is the second shard's.
    let mut listeners = [Some(listener), aware.map(|(listener, _)| listener)].into_iter().flatten();
    let mut threads = Vec::new();
    let parts = accounts.iter().copied().zip(messages).zip(detectors);
    for (number, ((counters, messages), stalls)) in parts.enumerate() {
        let start = Start {
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
    let mut chosen = None;
    let mut replayed = 0;
    let mut failure = None;
    for (number, Running { ready, .. }) in threads.iter().enumerate() {
        match ready.recv() {
            Ok(Ok((engine, recovered))) => {
                replayed += recovered.entries;
                if let Some(torn) = &recovered.torn {
                    let (file, offset) = (&torn.file, torn.offset);
                    say(log, &format!("cut the torn tail of {file} at offset {offset}"))?;
                }
                chosen.get_or_insert(engine);
            }
            Ok(Err(error)) => failure = failure.or(Some(error)),
            Err(_) => failure = failure.or(Some(DbError::Died { shard: number })),
        }
    }
    if let (None, Some(chosen)) = (&failure, &chosen) {
        let found = Found { environment: &environment, placement: &placement, budget, chosen };
        let mut report = report_of(config, &directory, &found, address, replayed);
        report.memory_bytes = memory_bytes;
        report.shard_aware_port = shard_aware_port;
        let about = ServerInfo {
            version: report.version.clone(),
            io_engine: report.io_engine.clone(),
            memory_bytes,
            resident_bytes: 0,
        };
        failure = serve_metrics(metrics_listener, &mut report, accounts, about)
            .and_then(|()| announce(&directory, &report, &found, log))
            .err();
    }
    // Nobody is answered before the report is written: who is answered may read it.
    let threads: Vec<_> = threads.into_iter().map(|running| running.release(&failure)).collect();
    if failure.is_some() {
        stop.store(true, Ordering::Relaxed);
    }
    let period_ns = u64::try_from(STOP_CHECK.as_nanos()).unwrap_or(u64::MAX);
    watchdog.look(clock.now_ns(), u64::MAX);
    while !stop.load(Ordering::Relaxed) && threads.iter().all(|thread| !thread.is_finished()) {
        std::thread::sleep(STOP_CHECK);
        for line in watchdog.look(clock.now_ns(), period_ns) {
            // Whoever started the server may have closed the log; that is no reason to end.
            let _ = say(log, &line);
        }
        shared.resident.measure(memory_bytes, clock.now_ns());
    }
    // A shard that ended takes the others with it: a part of the data would be missing.
    stop.store(true, Ordering::Relaxed);
    shared.mailboxes.iter().for_each(Mailbox::wake);
    for (number, thread) in threads.into_iter().enumerate() {
        match thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => failure = failure.or(Some(error)),
            Err(_) => failure = failure.or(Some(DbError::Died { shard: number })),
        }
    }
    match failure {
        Some(failure) => Err(failure),
        None => say(log, "stopped: the log is durable"),
    }
}

/// Listens; returns the address with the port that it has got.
fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), DbError> {
    let failed = |source| DbError::Listen { address, source };
    let listener = bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// A shard's thread: it says when it is ready, and waits to be released.
struct Running {
    thread: JoinHandle<Result<(), DbError>>,
    ready: Receiver<Ready>,
    go: Sender<()>,
}

impl Running {
    /// Lets the shard serve, or end where something has failed.
    fn release(self, failure: &Option<DbError>) -> JoinHandle<Result<(), DbError>> {
        if failure.is_none() {
            // A shard that has ended by itself is found by its thread.
            let _ = self.go.send(());
        }
        self.thread
    }
}

fn spawn(start: Start) -> Result<Running, DbError> {
    let shard = start.number;
    let (tell, ready) = channel();
    let (go, gone) = channel();
    let builder = std::thread::Builder::new().name(format!("shard-{shard}"));
    let thread = builder.spawn(move || run(start, &tell, &gone));
    let thread = thread.map_err(|source| DbError::Thread { shard, source })?;
    Ok(Running { thread, ready, go })
}

/// The life of a shard's thread.
fn run(start: Start, ready: &Sender<Ready>, go: &Receiver<()>) -> Result<(), DbError> {
    let shard = start.number;
    let tell = |message| {
        // The server waits for it; if it has gone there is nobody to tell.
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

fn prepare(start: Start) -> Result<(Shard, Chosen, Recovered), DbError> {
    let Start { number, config, placement, shared, mut files, budget, clock, .. } = start;
    if let Some(&cpu) = placement.pinned.get(number) {
        let failed = |source| DbError::Pin { shard: number, cpu, source };
        placement::pin(cpu).map_err(failed)?;
    }
    let limits = Limits {
        memtable_bytes: budget.memtable_bytes,
        cache_bytes: budget.cache_bytes,
        background_bytes: budget.log_bytes / 2,
        pending_bytes: budget.pending_bytes(),
        segment_bytes: SEGMENT_BYTES,
        durability: config.durability.for_store(),
    };
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

/// Binds, and waits a little for an address that is being given up.
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

/// Starts to serve metrics if that is wanted, and notes where.
fn serve_metrics(
    listener: Option<TcpListener>,
    report: &mut Report,
    accounts: Vec<SharedCounters>,
    about: ServerInfo,
) -> Result<(), DbError> {
    let Some(listener) = listener else { return Ok(()) };
    let address = listener.local_addr().ok();
    let failed = |source| {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        DbError::ServeMetrics { address: address.unwrap_or(unknown), source }
    };
    report.metrics = Some(metrics::serve(listener, accounts, about).map_err(failed)?);
    Ok(())
}
