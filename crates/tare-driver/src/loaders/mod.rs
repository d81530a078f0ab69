//! Several loaders, on this host and on others, load one system as one: the driver of a study with
//! `[[loader]]`.
//!
//! Each loader runs an agent that serves the study's driver, and takes the same orders over a pipe,
//! which is ssh's where the host is another. Connections, requests in flight and rate are divided
//! (`division`, `crate::sharing`), and as the driver can also keys and the rows to write.
//!
//! They begin and end together, because the edges of a window are times, not messages: `clock`
//! compares the clocks, an order says when to begin on the loader's own clock, and the harness
//! reads its accounts when its own clock shows that time. Each loader reports when its window
//! really opened and closed. Drivers that cannot begin at a time, because they start a tool, load
//! the system before that, and the window begins once all of them do.
//!
//! What a slice costs beyond a local one: the order goes out one longest round trip before the
//! lead-in, so that it is there in time, and the load goes on for half a round trip after the
//! accounts were read, and its result takes another half: two round trips. The answer to the order
//! compares the clocks again, so that costs nothing more. Before the first slice of a system or a
//! workload one more exchange opens connections and prepares statements.
//!
//! A loader that is lost (killed, its line cut, silent beyond a deadline) voids the slice. The next
//! slice connects it again and opens its connections to the system; after [`ATTEMPTS`] the driver
//! gives up, and the campaign ends.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use tare_lab::PartError;
use tare_lab::access::ClientAccess;
use tare_lab::doubt::Doubt;
use tare_lab::driver::{Driver, Edge, SliceLoad, SliceOrder, TargetId};
use tare_lab::loader::Loader as LoaderRecord;
use tare_lab::study::WorkloadSpec;
use tare_load::clock_ns;
use tare_load::histogram::DecodeError;
use tare_std::cpus::CpuSet;

use crate::agent::link::{Event, Link};
use crate::agent::protocol::{Answer, LoaderPart, Order};
use crate::printed::and_printed;
use crate::sharing::{self, Sharing};
use crate::targets::{NoTarget, Targets};
use crate::{DriverInfo, MultiInstanceError};
use clock::ClockComparison;

mod clock;
mod conversation;
mod division;
mod local;
mod slice;

pub use crate::agent::link::{AgentPipes, AgentProcess, SILENCE, StartAgent};
pub use local::LocalAgent;

/// How often a lost loader is connected again, and the pause after each attempt.
pub const ATTEMPTS: usize = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// Time limit beyond the time that an order itself may take.
const GRACE: Duration = Duration::from_secs(30);
/// Time limit for each line of progress while rows are written.
const PROGRESS: Duration = Duration::from_secs(90);
/// Exchanges that compare the clocks of a loader that was just connected, and of one whose last
/// exchange is older than [`CLOCK_AGE`].
const EXCHANGES_FIRST: usize = 8;
const EXCHANGES: usize = 3;
const CLOCK_AGE: Duration = Duration::from_secs(3);

/// Why loaders cannot load a system.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    #[error("cannot start the load agent on {host}")]
    Start { host: String, source: PartError },
    #[error("the loader {host} is lost{}", and_printed(.stderr))]
    Lost { host: String, stderr: String },
    #[error("the loader {host} did not answer {order} within {waited_s:.0} s")]
    Silent { host: String, order: &'static str, waited_s: f64 },
    #[error("the loader {host} answered {order} with {line:?}")]
    UnexpectedAnswer { host: String, order: &'static str, line: String },
    #[error("the loader {host} failed: {error}")]
    Failed { host: String, error: String },
    #[error("{0}")]
    GivenUp(String),
    #[error("the driver {driver} cannot run on loaders")]
    Driver { driver: &'static str },
    #[error(
        "the loaders did not start to load together: one had to wait {longest_s:.0} s for another"
    )]
    NotTogether { longest_s: f64 },
    #[error("the load is too small to be divided among {loaders} loaders")]
    NoShare { loaders: usize },
    #[error("the loader {host} sent a result that cannot be decoded")]
    Result { host: String, source: base64::DecodeError },
    #[error(transparent)]
    Merge(#[from] MultiInstanceError),
    #[error("a loader's latency cannot be read")]
    Histogram(#[from] DecodeError),
    #[error(transparent)]
    NoTarget(#[from] NoTarget),
}

/// The loaders of a run.
#[expect(missing_debug_implementations, reason = "loaders hold trait objects without Debug")]
pub struct MultiLoader {
    sharing: Sharing,
    /// Whether the load goes on at the edges of a window.
    loads_at_edges: bool,
    /// The longest time that a loader had to wait for the others once it was ready.
    longest_wait: Option<Duration>,
    loaders: Vec<Loader>,
    sender: Sender<Event>,
    events: Receiver<Event>,
    targets: Targets<OpenTarget>,
    given_up: Option<String>,
    access: ClientAccess,
}

/// A loader, connected or not.
struct Loader {
    agent: Box<dyn StartAgent>,
    arguments: Vec<String>,
    record: LoaderRecord,
    link: Option<Link>,
    /// How often it has been connected.
    connected: u32,
    clock: ClockComparison,
    /// The numbers that its agent gave the open systems.
    opened: HashMap<TargetId, TargetId>,
    /// The workload for which the connections to a system are ready.
    prepared: HashMap<TargetId, WorkloadSpec>,
}

/// A system as every loader has to open it.
struct OpenTarget {
    addresses: Vec<SocketAddr>,
    deadline: Duration,
    /// The workloads whose rows have been written, and their seeds.
    rows: Vec<(WorkloadSpec, u64)>,
}

impl MultiLoader {
    /// Starts an agent of this driver for each loader, on these CPUs of its host or on all that it
    /// may use there, and compares the clocks.
    ///
    /// # Errors
    /// If a loader cannot be started.
    pub fn start(
        driver: &DriverInfo,
        speaks: &str,
        access: &ClientAccess,
        agents: Vec<(Box<dyn StartAgent>, Option<CpuSet>)>,
    ) -> Result<Self, LoaderError> {
        let name = driver.name;
        let sharing = driver.sharing.ok_or(LoaderError::Driver { driver: name })?;
        let (sender, events) = mpsc::channel();
        let new = |(agent, cpus)| Loader::new([name, speaks], agent, cpus);
        let mut all = Self {
            sharing,
            // The run of another project's program ends by itself.
            loads_at_edges: driver.program.is_none(),
            longest_wait: None,
            loaders: agents.into_iter().map(new).collect(),
            sender,
            events,
            targets: Targets::default(),
            given_up: None,
            access: access.clone(),
        };
        for index in 0..all.loaders.len() {
            all.connect(index)?;
        }
        let everyone: Vec<usize> = (0..all.loaders.len()).collect();
        all.compare_clocks(&everyone, EXCHANGES_FIRST)?;
        Ok(all)
    }

    /// Returns by how much the clock of each loader is ahead of this host's, and the bound of the
    /// error, in ns.
    pub fn clock_offsets(&self) -> Vec<(i64, u64)> {
        let now_ns = clock_ns();
        let best = |loader: &Loader| loader.clock.best(now_ns);
        self.loaders
            .iter()
            .map(|loader| {
                best(loader).map_or((0, u64::MAX), |best| (best.offset_ns, best.error_ns))
            })
            .collect()
    }

    fn count(&self) -> u32 {
        u32::try_from(self.loaders.len()).unwrap_or(u32::MAX)
    }

    fn part(&self, index: usize) -> LoaderPart {
        LoaderPart { index: u32::try_from(index).unwrap_or(0), count: self.count() }
    }

    /// Starts the agent of a loader.
    fn connect(&mut self, index: usize) -> Result<(), LoaderError> {
        let loader = &mut self.loaders[index];
        loader.forget();
        let host = loader.record.host.clone();
        let started = loader.agent.start(&loader.arguments);
        let pipes = started.map_err(|source| LoaderError::Start { host: host.clone(), source })?;
        loader.connected += 1;
        let link = Link::new(pipes, index, loader.connected, &self.sender);
        link.keep_alive();
        loader.link = Some(link);
        let mut found = None;
        self.ask(&[(index, Order::Host)], "host", GRACE, |_, answer| match answer {
            Answer::Host { cpus, kernel, architecture } => {
                found = Some(LoaderRecord { host: host.clone(), cpus, kernel, architecture });
                Ok(true)
            }
            other => Err(other),
        })?;
        if let Some(found) = found {
            self.loaders[index].record = found;
        }
        Ok(())
    }

    /// Exchanges messages with these loaders at the same time, so often.
    fn compare_clocks(&mut self, indexes: &[usize], times: usize) -> Result<(), LoaderError> {
        for _ in 0..times {
            let orders: Vec<_> = indexes.iter().map(|index| (*index, Order::Clock)).collect();
            let sent_ns = clock_ns();
            let mut exchanged = Vec::new();
            self.ask(&orders, "clock", GRACE, |arrival, answer| match answer {
                Answer::Clock { ns } => {
                    exchanged.push((arrival, ns));
                    Ok(true)
                }
                other => Err(other),
            })?;
            for (arrival, there_ns) in exchanged {
                self.loaders[arrival.loader].clock.add(sent_ns, there_ns, arrival.at_ns);
            }
        }
        Ok(())
    }

    /// Connects lost loaders again, and opens in them the systems that they do not have.
    fn connect_lost(&mut self) -> Result<(), LoaderError> {
        if let Some(why) = &self.given_up {
            return Err(LoaderError::GivenUp(why.clone()));
        }
        for index in 0..self.loaders.len() {
            if self.loaders[index].link.is_some() {
                continue;
            }
            let mut attempt = 1;
            loop {
                let again = self
                    .connect(index)
                    .and_then(|()| self.compare_clocks(&[index], EXCHANGES_FIRST));
                let Err(error) = again else { break };
                self.loaders[index].forget();
                if attempt == ATTEMPTS {
                    let why = tare_std::error_line(&error);
                    self.given_up = Some(format!("{ATTEMPTS} attempts to connect again: {why}"));
                    return Err(error);
                }
                std::thread::sleep(PAUSE * u32::try_from(attempt).unwrap_or(1));
                attempt += 1;
            }
        }
        Ok(())
    }

    /// Opens a system in every loader that does not have it.
    fn open_missing(&mut self, target: TargetId) -> Result<(), LoaderError> {
        let open = self.targets.get(target)?;
        let lacks = |index: &usize| !self.loaders[*index].opened.contains_key(&target);
        let missing: Vec<usize> = (0..self.loaders.len()).filter(lacks).collect();
        let (deadline, rows) = (open.deadline, open.rows.clone());
        let order = |index: &usize| {
            let mut addresses = open.addresses.clone();
            // A loader's connections begin at the first node, so loaders with fewer connections
            // than there are nodes would load the same ones.
            let first = index % addresses.len().max(1);
            addresses.rotate_left(first);
            let access = Box::new(self.access.clone());
            (*index, Order::Open { addresses, deadline, access })
        };
        let orders: Vec<_> = missing.iter().map(order).collect();
        let mut opened = Vec::new();
        let result = self.ask(&orders, "open", deadline + GRACE, |arrival, answer| match answer {
            Answer::Opened { target } => {
                opened.push((arrival.loader, target));
                Ok(true)
            }
            other => Err(other),
        });
        for (index, theirs) in &opened {
            self.loaders[*index].opened.insert(target, *theirs);
        }
        result?;
        for (workload, seed) in rows {
            self.tell_rows(&opened, &workload, seed)?;
        }
        Ok(())
    }

    /// Tells loaders, each with its number of the target, that the rows of a workload are there.
    fn tell_rows(
        &mut self,
        opened: &[(usize, TargetId)],
        workload: &WorkloadSpec,
        seed: u64,
    ) -> Result<(), LoaderError> {
        let order = |(index, theirs): &(usize, TargetId)| {
            (*index, Order::Rows { target: *theirs, workload: workload.clone(), seed })
        };
        let orders: Vec<_> = opened.iter().map(order).collect();
        self.ask(&orders, "rows", GRACE, |_, answer| match answer {
            Answer::Populated => Ok(true),
            other => Err(other),
        })
    }
}

impl Loader {
    fn new([driver, speaks]: [&str; 2], agent: Box<dyn StartAgent>, cpus: Option<CpuSet>) -> Self {
        let host = agent.host().to_string();
        let arguments = ["load-agent", "--driver", driver, "--speaks", speaks];
        let mut arguments = arguments.map(String::from).to_vec();
        if let Some(cpus) = &cpus {
            arguments.extend(["--cpus".to_string(), cpus.to_string()]);
        }
        arguments.extend(["--silence".to_string(), SILENCE.as_secs().to_string()]);
        let (kernel, architecture) = (String::new(), String::new());
        let record = LoaderRecord { host, cpus: cpus.unwrap_or_default(), kernel, architecture };
        Self {
            agent,
            arguments,
            record,
            link: None,
            connected: 0,
            clock: ClockComparison::default(),
            opened: HashMap::new(),
            prepared: HashMap::new(),
        }
    }

    /// Drops the connection and what was known about the agent.
    fn forget(&mut self) {
        self.link = None;
        self.clock = ClockComparison::default();
        self.opened.clear();
        self.prepared.clear();
    }
}

impl Driver for MultiLoader {
    fn open(
        &mut self,
        addresses: &[SocketAddr],
        deadline: Duration,
    ) -> Result<TargetId, PartError> {
        self.connect_lost()?;
        let addresses = addresses.to_vec();
        let target = self.targets.add(OpenTarget { addresses, deadline, rows: Vec::new() });
        if let Err(error) = self.open_missing(target) {
            self.close(target)?;
            return Err(error.into());
        }
        Ok(target)
    }

    fn populate(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
        seed: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), PartError> {
        self.connect_lost()?;
        self.open_missing(target)?;
        self.write_rows(target, workload, seed, progress)?;
        self.targets.get_mut(target)?.rows.push((workload.clone(), seed));
        Ok(())
    }

    fn assume_rows(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
        seed: u64,
    ) -> Result<(), PartError> {
        self.connect_lost()?;
        self.open_missing(target)?;
        let loaders = self.loaders.iter().enumerate();
        let opened =
            loaders.filter_map(|(index, loader)| Some((index, *loader.opened.get(&target)?)));
        let opened: Vec<_> = opened.collect();
        self.tell_rows(&opened, workload, seed)?;
        self.targets.get_mut(target)?.rows.push((workload.clone(), seed));
        Ok(())
    }

    fn loads_at_edges(&self) -> bool {
        self.loads_at_edges
    }

    fn run(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        edge: &mut dyn FnMut(Edge),
    ) -> Result<SliceLoad, PartError> {
        self.connect_lost()?;
        self.open_missing(target)?;
        Ok(self.run_slice(target, order, edge)?)
    }

    fn doubts(&mut self, target: TargetId) -> Vec<Doubt> {
        let Ok(open) = self.targets.get(target) else { return Vec::new() };
        let of = |(workload, _): &(WorkloadSpec, u64)| (self.sharing.doubts)(workload);
        sharing::distinct(open.rows.iter().flat_map(of))
    }

    fn close(&mut self, target: TargetId) -> Result<(), PartError> {
        self.targets.remove(target)?;
        let mut orders = Vec::new();
        for (index, loader) in self.loaders.iter_mut().enumerate() {
            loader.prepared.remove(&target);
            let theirs = loader.opened.remove(&target).filter(|_| loader.link.is_some());
            orders.extend(theirs.map(|target| (index, Order::Close { target })));
        }
        self.ask(&orders, "close", GRACE, |_, answer| match answer {
            Answer::Closed => Ok(true),
            other => Err(other),
        })?;
        Ok(())
    }

    fn pids(&self) -> Vec<u32> {
        let links = self.loaders.iter().filter_map(|loader| loader.link.as_ref());
        links.filter_map(|link| link.pid).collect()
    }

    fn loaders(&self) -> Vec<LoaderRecord> {
        self.loaders.iter().map(|loader| loader.record.clone()).collect()
    }

    fn given_up(&self) -> Option<String> {
        self.given_up.clone()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        for loader in &mut self.loaders {
            if let Some(link) = &loader.link {
                link.send(&Order::Quit);
            }
        }
        self.loaders.iter_mut().for_each(Loader::forget);
        self.targets.clear();
        self.given_up = Some("the loaders have been stopped".into());
        Ok(())
    }
}
