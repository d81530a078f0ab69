//! The load agent: a process that loads systems with one driver, as ordered over a pipe. It runs on
//! the client's CPUs and in the client's network namespace, on this host or as a loader on another.
//! `protocol` has the messages, and [`link`] is the other end of the pipe.
//!
//! Alone, it reports the edges of a slice when they are there. As one of several loaders
//! (`SharedRun`) it begins at a time of its own clock, and reports when its window really opened
//! and closed. An agent on another host has a limit of silence: a harness whose line is cut cannot
//! close its input, so it ends when it hears nothing for that long.

use std::error::Error;
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tare_lab::PartError;
use tare_lab::access::ClientAccess;
use tare_lab::driver::{Edge, SliceLoad, SliceOrder, TargetId};
use tare_lab::study::WorkloadSpec;
use tare_load::clock_ns;
use tare_std::cpus::CpuSet;
use tare_std::error_line;

pub(crate) mod link;
pub(crate) mod path;
pub(crate) mod protocol;

use protocol::{
    ACCOUNTS_READ, ALIVE, Answer, LoaderPart, Order, STOP, SharedResult, SharedRun, SliceResult,
};

/// Why the agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("the driver {driver:?} cannot be served by a load agent")]
    Driver { driver: String },
    #[error("cannot start the driver")]
    Start { source: PartError },
    #[error("cannot write an answer to the harness")]
    Output { source: std::io::Error },
    #[error("the harness was silent for {} s", .limit.as_secs())]
    Silent { limit: Duration },
}

/// What an agent is to be.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The driver that it serves, by its name in a study.
    pub driver: String,
    /// CPUs of the load.
    pub cpus: CpuSet,
    /// The longest time without a line of the harness.
    pub silence: Option<Duration>,
    /// Tare's own program, which starts load tools (`crate::become_tool`).
    pub program: PathBuf,
    /// The protocol of the systems.
    pub speaks: String,
}

/// What a driver is made from in an agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentContext {
    pub(crate) cpus: CpuSet,
    pub(crate) program: PathBuf,
    pub(crate) speaks: String,
    pub(crate) signals: Arc<Signals>,
}

/// A driver as an agent serves it: alone, or as one of several loaders.
pub(crate) trait AgentDriver {
    /// Connects to all instances of a system, and waits until it answers, at most `deadline`.
    fn open(
        &mut self,
        addresses: &[SocketAddr],
        deadline: Duration,
        access: &ClientAccess,
    ) -> Result<TargetId, PartError>;

    /// Creates the schema and writes the rows, or one loader's part of them.
    fn populate(
        &mut self,
        target: TargetId,
        rows: &Rows,
        part: Option<LoaderPart>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), PartError>;

    /// Takes note that another agent wrote the rows.
    fn assume_rows(&mut self, target: TargetId, rows: &Rows) -> Result<(), PartError>;

    /// Gets ready for a slice. Calls `alive` when that takes long.
    fn prepare(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        preparation: Preparation,
        alive: &mut dyn FnMut(),
    ) -> Result<Readiness, PartError>;

    /// Drops what was prepared for a slice that will not come.
    fn release(&mut self);

    /// Runs a slice, and calls `edge` at the two edges of its window; or one loader's part of a
    /// slice, and returns when its window opened and closed.
    fn run(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        shared: Option<SharedRun>,
        edge: &(dyn Fn(Edge) + Sync),
    ) -> Result<(SliceLoad, Option<SharedResult>), PartError>;

    /// Drops the connections to one system.
    fn close(&mut self, target: TargetId) -> Result<(), PartError>;
}

/// The rows of a workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rows {
    pub(crate) workload: WorkloadSpec,
    pub(crate) seed: u64,
}

/// What a loader has to know to get ready for a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preparation {
    pub(crate) part: LoaderPart,
    /// The longest time that it may have to wait for other loaders once it is ready.
    pub(crate) wait: Duration,
}

/// How a loader is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// For all slices of the workload.
    Connected,
    /// For this slice: it loads the system already, and the lead-in is over.
    Loading,
}

/// Serves a driver: executes orders until `quit` or the end of `input`.
///
/// # Errors
/// `Silent`, and `Output` if the harness does not read any more. Errors of a system are answered
/// and do not end the agent.
pub(crate) fn serve(
    make: impl FnOnce(Arc<Signals>) -> Result<Box<dyn AgentDriver>, PartError>,
    options: &AgentOptions,
    input: impl BufRead + Send + 'static,
    output: impl Write + Send,
) -> Result<(), AgentError> {
    let (sender, orders) = mpsc::channel();
    let signals = Arc::new(Signals::new());
    let driver = make(Arc::clone(&signals)).map_err(|source| AgentError::Start { source })?;
    let mut agent = Agent { cpus: options.cpus.clone(), driver, output: Mutex::new(output) };
    let reader = Arc::clone(&signals);
    // This thread runs until the input ends, which may be after the agent.
    std::thread::spawn(move || reader.take_lines(input, &sender));
    if let Some(limit) = options.silence {
        let signals = Arc::clone(&signals);
        std::thread::spawn(move || signals.watch(limit));
    }
    loop {
        let line = match options.silence {
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(limit) => orders.recv_timeout(limit),
        };
        let line = match (line, options.silence) {
            (Ok(line), _) => line,
            (Err(RecvTimeoutError::Timeout), Some(limit)) if signals.silent_for() < limit => {
                continue;
            }
            (Err(RecvTimeoutError::Timeout), Some(limit)) => {
                return Err(AgentError::Silent { limit });
            }
            (Err(_), _) => return Ok(()),
        };
        if line.trim().is_empty() {
            continue;
        }
        let answer = match serde_json::from_str(&line) {
            Ok(Order::Quit) => return Ok(()),
            Ok(order) => agent.execute(order).unwrap_or_else(|error| failed(&*error)),
            Err(error) => Answer::Failed { error: format!("cannot understand the order: {error}") },
        };
        say(&agent.output, &answer)?;
    }
}

/// What the harness says to a running load, apart from the queue of orders.
#[derive(Debug)]
pub(crate) struct Signals {
    /// The load is to end now.
    pub(crate) stop: AtomicBool,
    /// The harness has read its accounts at the end of the window.
    pub(crate) read: AtomicBool,
    began: Instant,
    /// When the last line came, in ms from `began`.
    heard_ms: AtomicU64,
}

impl Signals {
    fn new() -> Self {
        Self {
            stop: AtomicBool::new(false),
            read: AtomicBool::new(false),
            began: Instant::now(),
            heard_ms: AtomicU64::new(0),
        }
    }

    /// Takes the harness's lines until they end.
    fn take_lines(&self, input: impl BufRead, orders: &mpsc::Sender<String>) {
        for line in input.lines() {
            let Ok(line) = line else { break };
            self.heard_ms.store(self.elapsed_ms(), Ordering::Relaxed);
            match line.trim() {
                // They concern the running load, so they do not wait in the queue of orders.
                ACCOUNTS_READ => self.read.store(true, Ordering::Relaxed),
                STOP => self.stop.store(true, Ordering::Relaxed),
                ALIVE => {}
                _ => {
                    // A load of several loaders can be stopped before it begins, so what was said
                    // to the one before is dropped here.
                    self.stop.store(false, Ordering::Relaxed);
                    self.read.store(false, Ordering::Relaxed);
                    if orders.send(line).is_err() {
                        break;
                    }
                }
            }
        }
        // The harness is gone, so a running load must end.
        self.stop.store(true, Ordering::Relaxed);
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn silent_for(&self) -> Duration {
        let heard_ms = self.heard_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.elapsed_ms().saturating_sub(heard_ms))
    }

    /// Ends a load whose harness is silent for too long.
    fn watch(&self, limit: Duration) {
        while self.silent_for() < limit {
            std::thread::sleep(Duration::from_secs(1).min(limit));
        }
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Agent<W> {
    cpus: CpuSet,
    driver: Box<dyn AgentDriver>,
    output: Mutex<W>,
}

impl<W: Write + Send> Agent<W> {
    fn execute(&mut self, order: Order) -> Result<Answer, PartError> {
        // A harness that does not read is noticed with the next answer.
        let mut progress = |done, all| {
            let _ = say(&self.output, &Answer::Progress { done, all });
        };
        match order {
            Order::Open { addresses, deadline, access } => {
                Ok(Answer::Opened { target: self.driver.open(&addresses, deadline, &access)? })
            }
            Order::Populate { target, workload, seed, part } => {
                self.driver.populate(target, &Rows { workload, seed }, part, &mut progress)?;
                Ok(Answer::Populated)
            }
            Order::Rows { target, workload, seed } => {
                self.driver.assume_rows(target, &Rows { workload, seed })?;
                Ok(Answer::Populated)
            }
            Order::Prepare { target, order, part, wait } => {
                let preparation = Preparation { part, wait };
                let mut alive = || progress(0, 0);
                let ready = self.driver.prepare(target, &order, preparation, &mut alive)?;
                Ok(Answer::Prepared { loading: ready == Readiness::Loading })
            }
            Order::Release => {
                self.driver.release();
                Ok(Answer::Released)
            }
            Order::Run { target, order, shared } => self.run(target, &order, shared),
            Order::Host => Ok(self.host()),
            Order::Clock => Ok(Answer::Clock { ns: clock_ns() }),
            Order::Close { target } => {
                self.driver.close(target)?;
                Ok(Answer::Closed)
            }
            Order::Quit => Ok(Answer::Closed),
        }
    }

    fn host(&self) -> Answer {
        let named = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        Answer::Host {
            cpus: self.cpus.clone(),
            kernel: text(named.release()),
            architecture: text(named.machine()),
        }
    }

    fn run(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        shared: Option<SharedRun>,
    ) -> Result<Answer, PartError> {
        let output = &self.output;
        if shared.is_some() {
            // At once, because the harness compares the clocks by it.
            let _ = say(output, &Answer::Accepted { ns: clock_ns() });
        }
        let edge = |edge| {
            let answer = match edge {
                Edge::Begin => Answer::Begin,
                Edge::End => Answer::End,
            };
            let _ = say(output, &answer);
        };
        let (load, shared) = self.driver.run(target, order, shared, &edge)?;
        Ok(Answer::Ran(Box::new(SliceResult::new(&load, shared))))
    }
}

/// Writes one whole line.
fn say(output: &Mutex<impl Write>, answer: &Answer) -> Result<(), AgentError> {
    let mut line = serde_json::to_string(answer)
        .map_err(|error| AgentError::Output { source: error.into() })?;
    line.push('\n');
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    output
        .write_all(line.as_bytes())
        .and_then(|()| output.flush())
        .map_err(|source| AgentError::Output { source })
}

fn failed(error: &dyn Error) -> Answer {
    Answer::Failed { error: error_line(error) }
}
