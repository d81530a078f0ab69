//! The built-in driver. It starts this program again as `load-agent` on the client's CPUs, in the
//! client's network namespace if there is one, and sends it orders (`protocol`).
//!
//! The agent is a process of its own, because its CPU time and its place in the network are part of
//! the measurement. It ends when its standard input closes, so it cannot outlive the harness. Every
//! wait has a deadline; an agent that misses one is killed.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tare_lab::PartError;
use tare_lab::access::ClientAccess;
use tare_lab::driver::{Driver, Edge, SliceLoad, SliceOrder, TargetId};
use tare_lab::study::WorkloadSpec;
use tare_load::access::Protocol;
use tare_std::cpus::CpuSet;

use crate::agent::link::{AgentPipes, Event, Link, NoPipe};
use crate::agent::protocol::{ACCOUNTS_READ, Answer, Order, SliceResult};
use crate::printed::and_printed;
use crate::sharing::{self, Needs, Sharing};
use crate::{Client, DriverInfo, PlacementError, Saturation, placement};

mod engine;
#[cfg(test)]
mod tests;
mod workload;

pub use workload::StudyWorkloadError;
pub(crate) use workload::check_read_only;

pub(super) const INFO: DriverInfo = DriverInfo {
    name: "tare-load",
    help: "the built-in load generator: closed loop and open loop, one thread per client CPU",
    speaks: &["cql", "redis", "memcached"],
    options: &[],
    load_options: &[],
    program: None,
    check: |study, speaks| {
        let protocol = Protocol::find(speaks).unwrap_or_default();
        study.workloads.iter().try_for_each(|spec| workload::check(spec, protocol))
    },
    saturation: Saturation::InFlight,
    scale: tare_lab::study::scale_load,
    make: |client| Ok(Box::new(TareLoad::start(client)?)),
    sharing: Some(Sharing {
        divide: sharing::by_connections,
        each_writes_rows: true,
        doubts: |_| Vec::new(),
        needs: |_| Ok(Needs::default()),
        serve: |context| Ok(Box::new(engine::LoadEngine::start(context)?)),
        options: &[],
    }),
};

/// The environment variable that marks the processes of a study, so that leftovers are found.
const RUN_VARIABLE: &str = "TARE_RUN";
/// Time limit beyond the time that an order itself may take.
const GRACE: Duration = Duration::from_secs(30);
/// Time limit for each line of progress while rows are written, and after the last.
const PROGRESS: Duration = Duration::from_secs(90);

/// Errors between the driver and its agent, and errors that the agent reported.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error(transparent)]
    Place(#[from] PlacementError),
    #[error("cannot start {program} as load agent", program = program.display())]
    Spawn { program: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Pipe(#[from] NoPipe),
    #[error("the load agent ended{}", and_printed(.stderr))]
    Ended { stderr: String },
    #[error("the load agent did not answer {order} within {waited_s:.0} s and was killed")]
    Silent { order: &'static str, waited_s: f64 },
    #[error("the load agent answered {order} with {line:?}")]
    UnexpectedAnswer { order: &'static str, line: String },
    #[error("{error}")]
    Failed { error: String },
    #[error("the load agent has been stopped")]
    Stopped,
}

/// A running load agent.
#[derive(Debug)]
pub struct TareLoad {
    link: Option<Link>,
    answers: Receiver<Event>,
    access: ClientAccess,
}

/// Starts `program` with these arguments, bound to `cpus`, in a network namespace, marked with
/// `run`. Its standard streams are pipes.
pub(crate) fn spawn_agent(
    program: &Path,
    arguments: &[String],
    cpus: &CpuSet,
    network_namespace: Option<&Path>,
    run: &str,
) -> Result<Child, DriverError> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env(RUN_VARIABLE, run)
        // The terminal's interrupt goes to the harness, which stops the agent cleanly.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A child inherits namespace and affinity from the thread that starts it, here a new one, so
    // that no other thread moves.
    placement::within(network_namespace, || {
        placement::bind(cpus)?;
        command.spawn().map_err(|source| DriverError::Spawn { program: program.into(), source })
    })?
}

impl TareLoad {
    /// Starts the program with the arguments `load-agent --cpus CPUS --speaks PROTOCOL`, where the
    /// client is to be.
    pub fn start(client: &Client<'_>) -> Result<Self, DriverError> {
        let Client { program, cpus, namespace, run, speaks, .. } = *client;
        let arguments = ["load-agent", "--cpus", &cpus.to_string(), "--speaks", speaks];
        let child = spawn_agent(program, &arguments.map(String::from), cpus, namespace, run)?;
        let (sender, answers) = mpsc::channel();
        let link = Link::new(AgentPipes::of_child(child)?, 0, 0, &sender);
        Ok(Self { link: Some(link), answers, access: client.access.clone() })
    }

    /// Sends an order and passes every answer to `last` until that returns a result.
    fn request<T>(
        &mut self,
        name: &'static str,
        order: &Order,
        patience: Duration,
        mut last: impl FnMut(Answer, &Link) -> Result<Option<T>, Answer>,
    ) -> Result<T, DriverError> {
        let link = self.link.as_ref().ok_or(DriverError::Stopped)?;
        link.send(order);
        loop {
            let waiting = Instant::now();
            let line = match self.answers.recv_timeout(patience) {
                Ok(Event { line: Some(line), .. }) => line,
                Ok(Event { line: None, .. }) | Err(RecvTimeoutError::Disconnected) => {
                    let stderr = link.said();
                    self.link = None;
                    return Err(DriverError::Ended { stderr });
                }
                Err(RecvTimeoutError::Timeout) => {
                    // The agent cannot be trusted to stop loading the system either.
                    self.link = None;
                    let waited_s = waiting.elapsed().as_secs_f64();
                    return Err(DriverError::Silent { order: name, waited_s });
                }
            };
            match serde_json::from_str(&line) {
                Ok(Answer::Failed { error }) => return Err(DriverError::Failed { error }),
                Ok(answer) => match last(answer, link) {
                    Ok(Some(result)) => return Ok(result),
                    Ok(None) => {}
                    Err(_) => return Err(DriverError::UnexpectedAnswer { order: name, line }),
                },
                Err(_) => return Err(DriverError::UnexpectedAnswer { order: name, line }),
            }
        }
    }
}

impl Driver for TareLoad {
    fn open(
        &mut self,
        addresses: &[SocketAddr],
        deadline: Duration,
    ) -> Result<TargetId, PartError> {
        let access = Box::new(self.access.clone());
        let order = Order::Open { addresses: addresses.to_vec(), deadline, access };
        let opened = self.request("open", &order, deadline + GRACE, |answer, _| match answer {
            Answer::Opened { target } => Ok(Some(target)),
            other => Err(other),
        })?;
        Ok(opened)
    }

    fn populate(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
        seed: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), PartError> {
        let order = Order::Populate { target, workload: workload.clone(), seed, part: None };
        self.request("populate", &order, PROGRESS, |answer, _| match answer {
            Answer::Progress { done, all } => {
                progress(done, all);
                Ok(None)
            }
            Answer::Populated => Ok(Some(())),
            other => Err(other),
        })?;
        Ok(())
    }

    fn assume_rows(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
        seed: u64,
    ) -> Result<(), PartError> {
        let order = Order::Rows { target, workload: workload.clone(), seed };
        self.request("rows", &order, GRACE, |answer, _| match answer {
            Answer::Populated => Ok(Some(())),
            other => Err(other),
        })?;
        Ok(())
    }

    fn run(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        edge: &mut dyn FnMut(Edge),
    ) -> Result<SliceLoad, PartError> {
        let patience = order.lead_in + order.window + GRACE;
        let order = Order::Run { target, order: order.clone(), shared: None };
        let ran: SliceResult =
            self.request("run", &order, patience, |answer, link| match answer {
                Answer::Begin => {
                    edge(Edge::Begin);
                    Ok(None)
                }
                Answer::End => {
                    edge(Edge::End);
                    link.signal(ACCOUNTS_READ);
                    Ok(None)
                }
                Answer::Ran(ran) => Ok(Some(*ran)),
                other => Err(other),
            })?;
        Ok(SliceLoad::try_from(ran)?)
    }

    fn loads_at_edges(&self) -> bool {
        true
    }

    fn close(&mut self, target: TargetId) -> Result<(), PartError> {
        self.request("close", &Order::Close { target }, GRACE, |answer, _| match answer {
            Answer::Closed => Ok(Some(())),
            other => Err(other),
        })?;
        Ok(())
    }

    fn pids(&self) -> Vec<u32> {
        self.link.iter().filter_map(|link| link.pid).collect()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.link = None;
        Ok(())
    }
}
