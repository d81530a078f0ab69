//! The agent of a host: makes the environments of its instance by the orders of the harness, and
//! removes everything when its pipe closes, or when it hears nothing for a while.
//!
//! A thread reads the orders, so that a slow one does not hide the end of the pipe.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use tare_env::{EnvironmentFactory, FactoryError, FactoryOptions, ReachOptions, StartedPods};
use tare_host::{error_line, facts};
use tare_lab::PartError;
use tare_lab::cpus::CpuPlan;
use tare_lab::environment::{Endpoint, Environment, NodeUsage, Usage};
use tare_lab::layer::Network;
use tare_lab::probe::{Probe, Scope};
use tare_lab::system::System;
use tare_probe::{AccountRefresh, ProbeCpus, Roots};
use tare_system::ClientRoute;

use crate::protocol::{ALIVE_LIMIT, Answer, Kubeconfig, Opened, Opening, Order};

/// What the caller of an agent provides.
#[derive(Debug)]
pub struct AgentOptions {
    /// Where journals and data are kept.
    pub state: PathBuf,
    /// Tare's own program.
    pub program: PathBuf,
}

/// Why an agent ended early.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("{line:?} is no order")]
    Order { line: String, source: serde_json::Error },
    #[error("cannot answer")]
    Answer(#[source] io::Error),
}

/// Why an order failed.
#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error("the first order must be open")]
    NotOpen,
    #[error("there is no environment {id}")]
    NoEnvironment { id: u32 },
    #[error("environment {id} is not started")]
    NotStarted { id: u32 },
    #[error("there is no system {name}")]
    NoSystem { name: String },
    #[error(transparent)]
    Factory(#[from] FactoryError),
}

/// Serves orders until the end of `input`. `divide` divides the CPUs of this host.
///
/// # Errors
/// When a line is no order or the harness does not read the answers. Everything is removed then
/// too.
pub fn serve(
    options: &AgentOptions,
    divide: &dyn Fn(&Opening) -> Result<CpuPlan, PartError>,
    input: impl BufRead + Send + 'static,
    output: &mut dyn Write,
) -> Result<(), AgentError> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in input.lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut agent = Agent { options, divide, host: None };
    while let Some(line) = next(&lines) {
        let order = serde_json::from_str(&line);
        let order = order.map_err(|source| AgentError::Order { line, source })?;
        if order == Order::Alive {
            continue;
        }
        let last = order == Order::Close;
        let answer = agent.obey(order).unwrap_or_else(|error| {
            let error = error_line(&*error);
            Answer::Failed { error }
        });
        write(output, &answer).map_err(AgentError::Answer)?;
        if last {
            break;
        }
    }
    Ok(())
}

/// Returns the next line; `None` once the pipe is closed or nothing came for too long.
fn next(lines: &Receiver<String>) -> Option<String> {
    lines.recv_timeout(ALIVE_LIMIT).ok()
}

fn write(output: &mut dyn Write, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

struct Agent<'a> {
    options: &'a AgentOptions,
    divide: &'a dyn Fn(&Opening) -> Result<CpuPlan, PartError>,
    host: Option<Host>,
}

/// What runs on this host.
struct Host {
    // Before the factory, so that the environments end before it.
    instances: BTreeMap<u32, Instance>,
    probes: Vec<Box<dyn Probe>>,
    /// Why each probe cannot be read in this slice; `None` if it can.
    unread: Vec<Option<String>>,
    /// Whether the probes observe the environment that runs.
    prepared: bool,
    /// The environment that runs.
    current: Option<u32>,
    refresh: AccountRefresh,
    factory: EnvironmentFactory,
}

struct Instance {
    environment: Box<dyn Environment>,
    /// The pods of the instances before it.
    pods: StartedPods,
    system: Box<dyn System>,
    endpoint: Option<Endpoint>,
}

impl Agent<'_> {
    fn obey(&mut self, order: Order) -> Result<Answer, PartError> {
        if let Order::Open(opening) = &order {
            let (host, opened) = self.open(opening)?;
            self.host = Some(host);
            return Ok(Answer::Opened(Box::new(opened)));
        }
        let host = self.host.as_mut().ok_or(OrderError::NotOpen)?;
        Ok(match order {
            Order::Alive | Order::Open(_) => Answer::Done,
            Order::Check { specs } => {
                let reason = |spec| {
                    let checked = tare_env::runtime::check(spec);
                    let checked = checked
                        .and_then(|()| tare_env::runtime::check_boot(spec, &self.options.state));
                    checked.err().map(|error| error_line(&*error))
                };
                Answer::Checked { reasons: specs.iter().map(reason).collect() }
            }
            Order::PortsFree { address, ports } => {
                Answer::Free { free: ports.iter().all(|port| is_free(address, *port)) }
            }
            Order::Create { id, spec, system, peers } => {
                let info = tare_system::find(&system.name);
                let info = info.ok_or(OrderError::NoSystem { name: system.name.clone() })?;
                // This host's own packets do not pass the rules that publish a port.
                let published = spec.network != Network::Host;
                let namespace = published.then(|| host.factory.client_namespace().into());
                let route = ClientRoute { namespace, ..ClientRoute::default() };
                let system = match spec.attach {
                    Some(_) => info.make_attached(&system, &route)?,
                    None => info.make(&system, &route)?,
                };
                let pods = StartedPods::default();
                let environment = host.factory.environment_among(&spec, peers, pods.clone())?;
                let instance = Instance { environment, pods, system, endpoint: None };
                host.instances.insert(id, instance);
                Answer::Done
            }
            Order::Start { id, cpus, number, pods } => {
                host.instance(id)?.pods.set(pods);
                host.start(id, cpus, number)?
            }
            Order::Thaw { id } => {
                host.current = Some(id);
                host.prepare();
                host.instance(id)?.environment.thaw()?;
                Answer::Done
            }
            Order::Freeze { id } => {
                host.instance(id)?.environment.freeze()?;
                Answer::Done
            }
            Order::Withdraw { id } => {
                host.instance(id)?.environment.withdraw()?;
                Answer::Done
            }
            Order::Publish { id } => {
                host.instance(id)?.environment.publish()?;
                Answer::Done
            }
            Order::Usage { id } => Answer::Usage { usage: host.usage(id)? },
            Order::ReadBack { id } => {
                Answer::Layers { layers: host.instance(id)?.environment.read_back()? }
            }
            Order::Processes { id } => {
                Answer::Processes { processes: host.instance(id)?.environment.processes() }
            }
            Order::Settings { id } => {
                let instance = host.instance(id)?;
                let at = instance.endpoint.as_ref().ok_or(OrderError::NotStarted { id })?;
                Answer::Settings { settings: instance.system.settings(at)? }
            }
            Order::Config { id } => Answer::Text { text: host.instance(id)?.environment.config() },
            Order::Log { id } => {
                Answer::Text { text: Some(host.instance(id)?.environment.log_tail()) }
            }
            Order::Lost { id } => Answer::Text { text: host.instance(id)?.environment.lost() },
            Order::BeginProbes => host.begin_probes(),
            Order::EndProbes => host.end_probes(),
            Order::Stop { id } => {
                host.current = host.current.filter(|current| *current != id);
                let stopped = host.instance(id)?.environment.stop();
                host.instances.remove(&id);
                stopped?;
                Answer::Done
            }
            Order::Close => {
                host.instances.clear();
                let left = host.factory.close().iter().map(|error| error_line(error)).collect();
                Answer::Closed { left }
            }
        })
    }

    fn open(&self, opening: &Opening) -> Result<(Host, Opened), PartError> {
        let plan = match &opening.plan {
            Some(plan) => plan.clone(),
            None => (self.divide)(opening)?,
        };
        let factory = EnvironmentFactory::open(FactoryOptions {
            state: self.options.state.clone(),
            program: self.options.program.clone(),
            cpus: plan.clone(),
            destroy: opening.destroy.clone(),
            // Only the loads of a cluster's own hosts come to its pods.
            reach: opening.reach.map(|address| ReachOptions {
                address: address.into(),
                from_cluster: opening.kubeconfig.is_some(),
            }),
        })
        .map_err(OrderError::from)?;
        if let Some(Kubeconfig(text)) = &opening.kubeconfig {
            factory.use_kubeconfig(text)?;
        }
        let (probes, missing) = tare_probe::open_all(&Roots::default(), &ProbeCpus::new(&plan));
        let missing_probes = missing
            .into_iter()
            .map(|(probe, error)| (probe.to_string(), error_line(&error)))
            .collect();
        let refresh = AccountRefresh::start(&plan.all);
        let facts = facts::read(Path::new("/proc"), Path::new("/sys")).into_iter();
        let opened = Opened {
            facts: facts
                .map(|fact| (fact.section.to_string(), fact.key.to_string(), fact.value))
                .collect(),
            plan,
            probes: probes.iter().map(|probe| probe.name().to_string()).collect(),
            missing_probes,
            accounts_are_exact: refresh.cpus() > 0,
            overheads: facts::network_overheads(),
        };
        let (instances, prepared, current) = (BTreeMap::new(), false, None);
        let unread = probes.iter().map(|_| None).collect();
        Ok((Host { instances, probes, unread, prepared, current, refresh, factory }, opened))
    }
}

impl Host {
    fn instance(&mut self, id: u32) -> Result<&mut Instance, OrderError> {
        self.instances.get_mut(&id).ok_or(OrderError::NoEnvironment { id })
    }

    fn start(&mut self, id: u32, cpus: usize, number: u32) -> Result<Answer, PartError> {
        let instance = self.instance(id)?;
        // Here, because programs and files are those of this host.
        let launch = instance.system.launch_instance(cpus, number);
        let endpoint = instance.environment.start(&launch)?;
        let address = endpoint.address;
        instance.endpoint = Some(endpoint);
        self.current = Some(id);
        Ok(Answer::Started { address })
    }

    /// Reads the accounts of an environment, and its system's own.
    fn usage(&mut self, id: u32) -> Result<Usage, PartError> {
        self.refresh.refresh();
        let instance = self.instance(id)?;
        let mut usage = instance.environment.usage()?;
        let (mut busy, mut counts) = (None, None);
        if let Some(data) = instance.endpoint.as_ref().and_then(|at| at.data.as_ref()) {
            busy = instance.system.busy_time(data)?;
            counts = instance.system.own_counts(data)?;
        }
        let system_cpu_ns = usage.system_cpu_ns;
        usage.nodes = vec![NodeUsage { system_cpu_ns, busy, counts, late_ns: 0 }];
        Ok(usage)
    }

    /// Prepares the probes for the environment that runs.
    fn prepare(&mut self) {
        let Some(instance) = self.current.and_then(|id| self.instances.get_mut(&id)) else {
            return;
        };
        let processes = instance.environment.processes();
        let scope = Scope {
            system: processes.system,
            layer: processes.layer,
            client: Vec::new(),
            data: instance.endpoint.iter().filter_map(|at| at.data.clone()).collect(),
            by_second: false,
        };
        let prepared = self.probes.iter_mut().map(|probe| probe.prepare(&scope));
        self.unread = prepared.map(|done| done.err().map(|error| error_line(&*error))).collect();
        self.prepared = true;
    }

    fn begin_probes(&mut self) -> Answer {
        if !self.prepared {
            self.prepare();
        }
        for (probe, unread) in self.probes.iter_mut().zip(&mut self.unread) {
            if unread.is_none() {
                *unread = probe.begin().err().map(|error| error_line(&*error));
            }
        }
        Answer::Done
    }

    fn end_probes(&mut self) -> Answer {
        self.prepared = false;
        let (mut counters, mut failed) = (Vec::new(), Vec::new());
        for (probe, unread) in self.probes.iter_mut().zip(&self.unread) {
            let read = match unread {
                Some(reason) => Err(reason.clone()),
                None => probe.end().map_err(|error| error_line(&*error)),
            };
            match read {
                Ok(found) => counters.extend(found),
                Err(reason) => failed.push((probe.name().to_string(), reason)),
            }
        }
        Answer::Counters { counters, failed }
    }
}

/// Returns whether nothing listens on a port of an address of this host.
fn is_free(address: Ipv4Addr, port: u16) -> bool {
    TcpListener::bind((address, port)).is_ok()
}
