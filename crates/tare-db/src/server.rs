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

use crate::catalog::{Shared, hash_uuid, journal::JournalError};
use crate::clock::Clock;
use crate::config::Config;
use crate::directory::{Directory, DirectoryError, ShardFiles};
use crate::inject::{self, Busy, FilterError};
use crate::mailbox::Mailbox;
use crate::message::Message;
use crate::metrics::{self, Account};
use crate::placement::{self, Placement, PlacementError};
use crate::reactor::{Chosen, Engine, ReactorError};
use crate::report::{self, Report};
use crate::shard::{Common, Shard, State};
use crate::system::Node;

/// Size of a commit log segment: reserved on disk when it is begun.
const SEGMENT_BYTES: u64 = 32 << 20;
/// Bytes that may wait for one shard's log while the disk is behind.
const PENDING_BYTES: usize = 64 << 20;
/// How often the waiting thread looks whether it should stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Why a server cannot start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
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
    common: Arc<Common>,
    files: ShardFiles,
    memory_bytes: usize,
    account: Account,
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
    let directory = Directory::open(&config.data)?;
    let allowed = placement::allowed()?;
    let placement = placement::place(config, &allowed, &placement::online(&allowed))?;
    let shards = placement.shards;
    directory.agree_on_shards(shards)?;
    let address = SocketAddr::new(config.listen, config.port);
    let listen = |source| DbError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let path = directory.file(metrics::FILE);
    let accounts = metrics::create(&path, shards)
        .map_err(|source| DbError::Metrics { path: path.clone(), source })?;
    let memory_bytes = config.memory.unwrap_or_else(default_memory);

    let mailboxes = (0..shards).map(|_| Mailbox::new());
    let mailboxes = mailboxes.collect::<io::Result<Vec<_>>>();
    let mailboxes = mailboxes.map_err(|source| DbError::Thread { shard: 0, source })?;
    let (mailboxes, messages): (Vec<_>, Vec<_>) = mailboxes.into_iter().unzip();
    let host = config.data.as_os_str().as_encoded_bytes();
    let common = Arc::new(Common {
        schema: Shared::open(&directory.file("schema.log"))?,
        prepared: Mutex::default(),
        mailboxes,
        node: Node { address, host_id: hash_uuid(&[host]) },
        stop,
        drained: AtomicUsize::new(0),
    });

    let mut listener = Some(OwnedFd::from(listener));
    let mut threads = Vec::new();
    for (number, (account, messages)) in accounts.into_iter().zip(messages).enumerate() {
        let start = Start {
            number,
            config: config.clone(),
            placement: placement.clone(),
            common: Arc::clone(&common),
            files: directory.files(number)?,
            memory_bytes: usize::try_from(memory_bytes).unwrap_or(usize::MAX) / shards,
            account,
            messages,
            listener: listener.take(),
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
        let report = report_of(config, &placement, address, chosen, memory_bytes, replayed);
        let announced = announce(&directory, &report, log);
        failure = announced.err();
    }
    // Nobody is answered before the report is written: who is answered may read it.
    let threads: Vec<_> = threads.into_iter().map(|running| running.release(&failure)).collect();
    if failure.is_some() {
        stop.store(true, Ordering::Relaxed);
    }
    while !stop.load(Ordering::Relaxed) && threads.iter().all(|thread| !thread.is_finished()) {
        std::thread::sleep(STOP_CHECK);
    }
    // A shard that ended takes the others with it: a part of the data would be missing.
    stop.store(true, Ordering::Relaxed);
    common.mailboxes.iter().for_each(Mailbox::wake);
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
    let Start { number, config, placement, common, mut files, memory_bytes, .. } = start;
    if let Some(&cpu) = placement.pinned.get(number) {
        let failed = |source| DbError::Pin { shard: number, cpu, source };
        placement::pin(cpu).map_err(failed)?;
    }
    let limits = Limits {
        memtable_bytes: memory_bytes,
        cache_bytes: 0,
        pending_bytes: PENDING_BYTES,
        segment_bytes: SEGMENT_BYTES,
        durability: config.durability.for_store(),
    };
    let clock = Clock::new();
    let catalog = common.schema.current();
    let (store, recovered) =
        Store::open(&mut files, limits, |store| catalog.options(store), clock.now())?;
    let failed = |source| DbError::Shard { shard: number, source };
    let wakeup = common.mailboxes[number].wakeup();
    let (mut engine, chosen) = Engine::new(config.io, wakeup).map_err(failed)?;
    if let Some(listener) = start.listener {
        engine.listen(listener).map_err(|source| failed(ReactorError::Epoll { source }))?;
    }
    let shard = Shard {
        busy: config.inject.busy_ns.map(|ns| Busy::new(ns, clock)),
        number,
        common,
        store,
        files,
        durability: config.durability,
        engine,
        polling: placement.polling,
        clock,
        account: start.account,
        messages: start.messages,
        state: State::default(),
    };
    Ok((shard, chosen, recovered))
}

fn report_of(
    config: &Config,
    placement: &Placement,
    address: SocketAddr,
    chosen: &Chosen,
    memory_bytes: u64,
    replayed: u64,
) -> Report {
    let (durability, period_ms) = Report::durability(config.durability);
    Report {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        listen: address.ip(),
        port: address.port(),
        shards: placement.shards,
        cpus: placement.cpus.clone(),
        pinned: placement.pinned.clone(),
        polling: placement.polling,
        polling_why: placement.why.clone(),
        io_engine: chosen.engine.into(),
        io_engine_why: chosen.why.clone(),
        durability,
        period_ms,
        memory_bytes,
        replayed,
        injected_busy_ns: config.inject.busy_ns,
        injected_filter: config.inject.filter,
    }
}

fn announce(directory: &Directory, report: &Report, log: &mut dyn Write) -> Result<(), DbError> {
    let Report { shards, cpus, io_engine, io_engine_why, durability, .. } = report;
    let polling = if report.polling { "polling" } else { "sleeping when idle" };
    say(log, &format!("{shards} shards on CPUs {cpus}, {polling}: {}", report.polling_why))?;
    say(log, &format!("I/O engine {io_engine}: {io_engine_why}"))?;
    say(log, &format!("durability {durability}; {} log entries replayed", report.replayed))?;
    let json = serde_json::to_vec_pretty(report).map_err(io::Error::other);
    let path = directory.file(report::FILE);
    let json = json.map_err(|source| DirectoryError::File { path: path.clone(), source })?;
    directory.write(&path, &json)?;
    say(log, &format!("listening on {}", SocketAddr::new(report.listen, report.port)))
}

fn say(log: &mut dyn Write, line: &str) -> Result<(), DbError> {
    writeln!(log, "{line}").and_then(|()| log.flush()).map_err(|source| DbError::Log { source })
}

/// Half of what the host has available and the cgroup allows, in bytes.
fn default_memory() -> u64 {
    let number = |path: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
    });
    let limits = [
        available,
        number("/sys/fs/cgroup/memory.max"),
        number("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ];
    limits.into_iter().flatten().min().unwrap_or(1 << 30) / 2
}
