//! The load agent: a process with connections to all systems of a study that loads one of them at a
//! time, as ordered. It runs on the client's CPUs and in the client's network namespace. `protocol`
//! has the messages.
//!
//! A load thread reports the edges of a slice at the moment at which it reads its CPU clock, so
//! that the harness reads its CPU times at the same time. The load continues after the window until
//! the harness has read them (`read`); then the agent waits for the requests in flight and leaves
//! the system idle. Connections that break meanwhile are replaced, as by `tare load`.
//!
//! As one of several loaders (`SharedRun`) it begins at a time of its own clock, and reports when
//! its window really opened and closed. An agent on another host has a limit of silence: a driver
//! whose line is cut cannot close its input, so it ends when it hears nothing for that long.

use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tare_lab::driver::{Pacing, SliceLoad, SliceOrder, TargetId};
use tare_load::access::{Access, Recovery};
use tare_load::engine::{self, Edge, Engine, LoadObserver, StartTime, Target};
use tare_load::pacing::ScheduleError;
use tare_load::{LoadError, Stats, clock_ns, histogram};
use tare_std::cpus::CpuSet;
use tare_std::error_line;

use crate::targets::{NoTarget, Targets};

use super::path::Paths;
use super::protocol::{
    ACCOUNTS_READ, ALIVE, Answer, Order, STOP, SharedResult, SharedRun, SliceResult,
};
use super::workload::{self, StudyWorkloadError};

/// Why the agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("cannot write an answer to the driver")]
    Output { source: std::io::Error },
    #[error("the driver was silent for {} s", .limit.as_secs())]
    Silent { limit: Duration },
}

/// Executes orders until `quit` or the end of `input`, with one load thread on each of the CPUs.
/// `silence` is the longest time without a line of the driver.
///
/// # Errors
/// `LoadError::NoCpus`, `Silent`, and `Output` if the driver does not read any more. Errors of a
/// system are answered and do not end the agent.
pub fn agent(
    cpus: &CpuSet,
    silence: Option<Duration>,
    input: impl BufRead + Send + 'static,
    output: impl Write + Send,
) -> Result<(), AgentError> {
    let (sender, orders) = mpsc::channel();
    let signals = Arc::new(Signals::new());
    let mut agent = Agent {
        cpus: cpus.clone(),
        engine: Engine::new(cpus)?,
        targets: Targets::default(),
        paths: Paths::default(),
        signals: Arc::clone(&signals),
        output: Mutex::new(output),
    };
    let reader = Arc::clone(&signals);
    // This thread runs until the input ends, which may be after the agent.
    std::thread::spawn(move || reader.take_lines(input, &sender));
    if let Some(limit) = silence {
        let signals = Arc::clone(&signals);
        std::thread::spawn(move || signals.watch(limit));
    }
    loop {
        let line = match silence {
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(limit) => orders.recv_timeout(limit),
        };
        let line = match (line, silence) {
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
            Ok(order) => agent.execute(order).unwrap_or_else(|error| failed(&error)),
            Err(error) => Answer::Failed { error: format!("cannot understand the order: {error}") },
        };
        agent.say(&answer)?;
    }
}

/// What the driver says to a running load, apart from the queue of orders.
#[derive(Debug)]
struct Signals {
    /// The load is to end now.
    stop: AtomicBool,
    /// The harness has read its accounts at the end of the window.
    read: AtomicBool,
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

    /// Takes the driver's lines until they end.
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
                    if line.starts_with("{\"run\"") {
                        self.stop.store(false, Ordering::Relaxed);
                        self.read.store(false, Ordering::Relaxed);
                    }
                    if orders.send(line).is_err() {
                        break;
                    }
                }
            }
        }
        // The driver is gone, so a running load must end.
        self.stop.store(true, Ordering::Relaxed);
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn silent_for(&self) -> Duration {
        let heard_ms = self.heard_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.elapsed_ms().saturating_sub(heard_ms))
    }

    /// Ends a load whose driver is silent for too long.
    fn watch(&self, limit: Duration) {
        while self.silent_for() < limit {
            std::thread::sleep(Duration::from_secs(1).min(limit));
        }
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Agent<W> {
    cpus: CpuSet,
    engine: Engine,
    targets: Targets<Target>,
    paths: Paths,
    signals: Arc<Signals>,
    output: Mutex<W>,
}

/// Why an order was not executed.
#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error(transparent)]
    NoTarget(#[from] NoTarget),
    #[error(transparent)]
    Workload(#[from] StudyWorkloadError),
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl<W: Write + Send> Agent<W> {
    fn execute(&mut self, order: Order) -> Result<Answer, OrderError> {
        match order {
            Order::Open { addresses, deadline } => {
                let recovery = Recovery { reconnect: true, ..Recovery::default() };
                let access = Access { recovery, ..Access::to_all(&addresses) };
                let opened = self.engine.open(&access, deadline, &self.signals.stop)?;
                let target = self.targets.add(opened);
                self.paths.open(target, addresses);
                Ok(Answer::Opened { target })
            }
            Order::Populate { target, workload, seed, part } => {
                let opened = self.targets.get_mut(target)?;
                let mut progress = |done, all| {
                    // A driver that does not read is noticed with the next answer.
                    let _ = say(&self.output, &Answer::Progress { done, all });
                };
                self.engine.populate(
                    opened,
                    &workload::load_spec(&workload, part)?,
                    seed,
                    &self.signals.stop,
                    &mut progress,
                )?;
                Ok(Answer::Populated)
            }
            Order::Rows { target, workload, seed } => {
                let spec = workload::load_spec(&workload, None)?;
                self.targets.get_mut(target)?.assume_rows(&spec.workload, seed);
                Ok(Answer::Populated)
            }
            Order::Prepare { target, workload, part } => {
                let opened = self.targets.get_mut(target)?;
                self.engine.prepare(opened, &workload::load_spec(&workload, Some(part))?, 0)?;
                Ok(Answer::Prepared)
            }
            Order::Run { target, order, shared } => self.run(target, &order, shared),
            Order::Host => Ok(self.host()),
            Order::Clock => Ok(Answer::Clock { ns: clock_ns() }),
            Order::Close { target } => {
                self.targets.remove(target)?;
                self.paths.close(target);
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
    ) -> Result<Answer, OrderError> {
        let opened = self.targets.get_mut(target)?;
        let output = &self.output;
        if shared.is_some() {
            // At once, because the driver compares the clocks by it.
            let _ = say(output, &Answer::Accepted { ns: clock_ns() });
        }
        let edge = |edge| {
            if shared.is_some() {
                return;
            }
            let answer = match edge {
                Edge::Begin => Answer::Begin,
                Edge::End => Answer::End,
            };
            let _ = say(output, &answer);
        };
        let spec = workload::load_spec(&order.workload, shared.map(|shared| shared.part))?;
        let pace = workload::pace(order.pacing, order.window)?;
        let load = engine::LoadOrder {
            spec: &spec,
            pace: &pace,
            lead_in: order.lead_in,
            stretch: order.window,
            seed: order.seed,
            verify: false,
            start: shared
                .map(|shared| StartTime { at_ns: shared.at_ns, phase_ns: shared.phase_ns }),
        };
        let mut follow = LoadObserver {
            stop: &self.signals.stop,
            edge: &edge,
            accounts_read: Some(&self.signals.read),
            stretch: &mut |_| {},
            outlives: false,
        };
        let stats = self.engine.run(opened, &load, &mut follow)?;
        let mut ran: SliceResult = (&slice_load(&stats, order.pacing)).into();
        let (begin_ns, end_ns) = stats.edges_ns();
        ran.shared = shared.map(|_| SharedResult {
            begin_ns,
            end_ns,
            busiest_thread_ns: stats.busiest_thread_ns,
            waited_ns: stats.run_delay_ns,
        });
        ran.path = self.paths.sample(target);
        Ok(Answer::Ran(Box::new(ran)))
    }

    fn say(&self, answer: &Answer) -> Result<(), AgentError> {
        say(&self.output, answer)
    }
}

/// Returns the result of a slice for the driver.
fn slice_load(stats: &Stats, pacing: Pacing) -> SliceLoad {
    let response = match pacing {
        Pacing::Closed => Vec::new(),
        Pacing::Open { .. } => histogram::encode(&stats.response()),
    };
    SliceLoad {
        window_ns: stats.window_ns(),
        operations: stats.operations,
        errors: stats.errors_by_kind(),
        unsent: stats.dropped,
        client_cpu_ns: stats.cpu_ns,
        busiest_thread_ns: 0,
        response,
        service: histogram::encode(&stats.service()),
        loaders: Vec::new(),
        paths: Vec::new(),
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
