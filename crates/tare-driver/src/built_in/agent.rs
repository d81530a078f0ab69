//! The load agent: a process with connections to all systems of a study that loads one of them at a
//! time, as ordered. It runs on the client's CPUs and in the client's network namespace. `protocol`
//! has the messages.
//!
//! A load thread reports the edges of a slice at the moment at which it reads its CPU clock, so
//! that the harness reads its CPU times at the same time. The load continues after the window until
//! the harness has read them (`read`); then the agent waits for the requests in flight and leaves
//! the system idle. Connections that break meanwhile are replaced, as by `tare load`.

use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use tare_lab::driver::{Pacing, SliceLoad, SliceOrder, TargetId};
use tare_load::access::{Access, Recovery};
use tare_load::engine::{self, Edge, Engine, LoadObserver, Target};
use tare_load::pacing::ScheduleError;
use tare_load::{LoadError, Stats, histogram};
use tare_std::cpus::CpuSet;
use tare_std::error_line;

use crate::targets::{NoTarget, Targets};

use super::protocol::{ACCOUNTS_READ, Answer, Order};
use super::workload::{self, StudyWorkloadError};

/// Why the agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("cannot write an answer to the driver")]
    Output { source: std::io::Error },
}

/// Executes orders until `quit` or the end of `input`, with one load thread on each of the CPUs.
///
/// # Errors
/// `LoadError::NoCpus`, and `Output` if the driver does not read any more. Errors of a system are
/// answered and do not end the agent.
pub fn agent(
    cpus: &CpuSet,
    input: impl BufRead + Send + 'static,
    output: impl Write + Send,
) -> Result<(), AgentError> {
    let mut agent = Agent {
        engine: Engine::new(cpus)?,
        targets: Targets::default(),
        stop: Arc::new(AtomicBool::new(false)),
        read: Arc::new(AtomicBool::new(false)),
        output: Mutex::new(output),
    };
    let (sender, orders) = mpsc::channel();
    let (stop, read) = (Arc::clone(&agent.stop), Arc::clone(&agent.read));
    // This thread runs until the input ends, which may be after the agent.
    std::thread::spawn(move || {
        for line in input.lines() {
            let Ok(line) = line else { break };
            // It concerns the running load, so it does not wait in the queue of orders.
            if line.trim() == ACCOUNTS_READ {
                read.store(true, Ordering::Relaxed);
                continue;
            }
            if sender.send(line).is_err() {
                break;
            }
        }
        // The driver is gone, so a running load must end.
        stop.store(true, Ordering::Relaxed);
    });
    while let Ok(line) = orders.recv() {
        if line.trim().is_empty() {
            continue;
        }
        let answer = match serde_json::from_str(&line) {
            Ok(Order::Quit) => break,
            Ok(order) => agent.execute(order).unwrap_or_else(|error| failed(&error)),
            Err(error) => Answer::Failed { error: format!("cannot understand the order: {error}") },
        };
        agent.say(&answer)?;
    }
    Ok(())
}

struct Agent<W> {
    engine: Engine,
    targets: Targets<Target>,
    stop: Arc<AtomicBool>,
    /// The harness has read its accounts at the end of the window.
    read: Arc<AtomicBool>,
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
                let opened = self.engine.open(&access, deadline, &self.stop)?;
                Ok(Answer::Opened { target: self.targets.add(opened) })
            }
            Order::Populate { target, workload, seed } => {
                let opened = self.targets.get_mut(target)?;
                let mut progress = |done, all| {
                    // A driver that does not read is noticed with the next answer.
                    let _ = say(&self.output, &Answer::Progress { done, all });
                };
                self.engine.populate(
                    opened,
                    &workload::load_spec(&workload)?,
                    seed,
                    &self.stop,
                    &mut progress,
                )?;
                Ok(Answer::Populated)
            }
            Order::Run { target, order } => self.run(target, &order),
            Order::Close { target } => {
                self.targets.remove(target)?;
                Ok(Answer::Closed)
            }
            Order::Quit => Ok(Answer::Closed),
        }
    }

    fn run(&mut self, target: TargetId, order: &SliceOrder) -> Result<Answer, OrderError> {
        let opened = self.targets.get_mut(target)?;
        self.read.store(false, Ordering::Relaxed);
        let output = &self.output;
        let edge = |edge| {
            let answer = match edge {
                Edge::Begin => Answer::Begin,
                Edge::End => Answer::End,
            };
            let _ = say(output, &answer);
        };
        let spec = workload::load_spec(&order.workload)?;
        let pace = workload::pace(order.pacing, order.window)?;
        let load = engine::LoadOrder {
            spec: &spec,
            pace: &pace,
            lead_in: order.lead_in,
            stretch: order.window,
            seed: order.seed,
            verify: false,
        };
        let mut follow = LoadObserver {
            stop: &self.stop,
            edge: &edge,
            accounts_read: Some(&self.read),
            stretch: &mut |_| {},
            outlives: false,
        };
        let stats = self.engine.run(opened, &load, &mut follow)?;
        Ok(Answer::Ran((&slice_load(&stats, order.pacing)).into()))
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
