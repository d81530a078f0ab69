//! The environments of one instance on each host, used as one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use tare_env::multi_instance;
use tare_lab::PartError;
use tare_lab::environment::{
    Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes, SingleInstanceOnly,
    SystemSettings, Usage,
};
use tare_lab::layer::Network;

use crate::error::ClusterError;
use crate::protocol::{Answer, Order};
use crate::shared::Shared;

/// One environment on each host.
pub(crate) struct ClusterEnvironment {
    cluster: Rc<Shared>,
    id: u32,
    spec: EnvironmentSpec,
    config: Option<String>,
    log: String,
    running: bool,
}

impl ClusterEnvironment {
    pub(crate) fn new(cluster: Rc<Shared>, id: u32, spec: EnvironmentSpec) -> Self {
        Self { cluster, id, spec, config: None, log: String::new(), running: false }
    }

    /// Sends an order to all hosts and takes the same part of every answer.
    fn ask<T>(
        &self,
        order: &Order,
        take: impl Fn(Answer) -> Result<T, Answer>,
    ) -> Result<Vec<T>, ClusterError> {
        let answers = self.cluster.all(order)?.into_iter().enumerate();
        let taken = answers.map(|(host, (_, answer))| {
            take(answer).map_err(|answer| self.cluster.unexpected(host, order, &answer))
        });
        taken.collect()
    }

    fn done(&self, order: &Order) -> Result<(), PartError> {
        let done = |answer| if answer == Answer::Done { Ok(()) } else { Err(answer) };
        self.ask(order, done)?;
        Ok(())
    }

    fn start_order(&self, number: u32, pods: Vec<Ipv4Addr>) -> Order {
        Order::Start { id: self.id, cpus: self.cluster.instance_cpus(), number, pods }
    }

    fn started(&self, host: usize, order: &Order, answer: Answer) -> Result<SocketAddr, PartError> {
        match answer {
            Answer::Started { address } => Ok(address),
            other => Err(self.cluster.unexpected(host, order, &other).into()),
        }
    }

    /// Starts all instances at the same time, and returns their addresses.
    fn start_at_once(&self) -> Result<Vec<SocketAddr>, PartError> {
        let orders =
            (0..).take(self.cluster.count()).map(|host| self.start_order(host, Vec::new()));
        let orders: Vec<Order> = orders.collect();
        let answers = self.cluster.each(&orders)?.into_iter().zip(&orders).enumerate();
        answers.map(|(host, ((_, answer), order))| self.started(host, order, answer)).collect()
    }

    /// Starts the instances one after the other, so that each knows the addresses of those before
    /// it, and returns their addresses.
    fn start_pods(&self) -> Result<Vec<SocketAddr>, PartError> {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for (number, host) in (0..).zip(0..self.cluster.count()) {
            let known = addresses.iter().filter_map(|address| match address.ip() {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            });
            let order = self.start_order(number, known.collect());
            let answer = self.cluster.one(host, &order)?;
            addresses.push(self.started(host, &order, answer)?);
        }
        Ok(addresses)
    }

    /// Returns the texts of all hosts, each after the host's name.
    fn texts(&self, order: &Order) -> Option<String> {
        let text = |answer| match answer {
            Answer::Text { text } => Ok(text),
            other => Err(other),
        };
        let texts = self.ask(order, text).ok()?.into_iter().enumerate();
        let named = texts.filter_map(|(host, text)| {
            let text = text.filter(|text| !text.is_empty())?;
            Some(format!("{}: {text}", self.cluster.name(host)))
        });
        let all: Vec<String> = named.collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }
}

impl Environment for ClusterEnvironment {
    fn spec(&self) -> &EnvironmentSpec {
        &self.spec
    }

    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        let single = SingleInstanceOnly { environment: self.spec.name.clone(), asked: 0 };
        let started = self.start_all(std::slice::from_ref(launch))?;
        Ok(started.into_iter().next().ok_or(single)?)
    }

    /// Starts an instance on each host. The agents have the commands: programs and files are those
    /// of their hosts.
    fn start_all(&mut self, launches: &[Launch]) -> Result<Vec<Endpoint>, PartError> {
        if launches.len() != self.cluster.count() {
            let (environment, asked) = (self.spec.name.clone(), launches.len());
            return Err(SingleInstanceOnly { environment, asked }.into());
        }
        self.running = true;
        // Their addresses are known only once they run.
        let addresses = match self.spec.has_pod_network() {
            true => self.start_pods()?,
            false => self.start_at_once()?,
        };
        // The data is on the other host, where the agent reads it.
        let endpoint = |address| Endpoint { address, data: None, inside: None };
        let endpoints = addresses.into_iter().map(endpoint).collect();
        self.config = self.texts(&Order::Config { id: self.id });
        Ok(endpoints)
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        let layers = self.ask(&Order::ReadBack { id: self.id }, |answer| match answer {
            Answer::Layers { layers } => Ok(layers),
            other => Err(other),
        })?;
        Ok(multi_instance::join(layers))
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.done(&Order::Freeze { id: self.id })?;
        match self.spec.network {
            Network::Host => Ok(()),
            _ => self.done(&Order::Withdraw { id: self.id }),
        }
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        if self.spec.network != Network::Host {
            self.done(&Order::Publish { id: self.id })?;
        }
        self.done(&Order::Thaw { id: self.id })
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        let order = Order::Usage { id: self.id };
        let mut sum = Usage::default();
        for (host, (took, answer)) in self.cluster.all(&order)?.into_iter().enumerate() {
            let Answer::Usage { mut usage } = answer else {
                return Err(self.cluster.unexpected(host, &order, &answer).into());
            };
            let mut nodes = std::mem::take(&mut usage.nodes);
            for node in &mut nodes {
                // The reading was somewhere between the order and the answer: on average in the
                // middle.
                node.late_ns = u64::try_from(took.as_nanos() / 2).unwrap_or(u64::MAX);
            }
            multi_instance::add(&mut sum, usage);
            sum.nodes.extend(nodes);
        }
        Ok(sum)
    }

    /// Returns the processes of the first host, with the ids there, if every host has some.
    fn processes(&mut self) -> Processes {
        let processes = self.ask(&Order::Processes { id: self.id }, |answer| match answer {
            Answer::Processes { processes } => Ok(processes),
            other => Err(other),
        });
        let processes = processes.unwrap_or_default();
        match processes.iter().any(|one| one.system.is_empty()) {
            true => Processes::default(),
            false => processes.into_iter().next().unwrap_or_default(),
        }
    }

    fn lost(&self) -> Option<String> {
        self.spec.attach.as_ref()?;
        self.texts(&Order::Lost { id: self.id })
    }

    fn settings(&mut self) -> Result<Option<Vec<SystemSettings>>, PartError> {
        let settings = self.ask(&Order::Settings { id: self.id }, |answer| match answer {
            Answer::Settings { settings } => Ok(settings),
            other => Err(other),
        });
        match settings {
            Ok(settings) => Ok(Some(settings)),
            // It may ask for a login, which only the harness has.
            Err(_) if self.spec.attach.is_some() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn config(&self) -> Option<String> {
        self.config.clone()
    }

    fn log_tail(&self) -> String {
        match self.running {
            true => self.texts(&Order::Log { id: self.id }).unwrap_or_default(),
            false => self.log.clone(),
        }
    }

    fn stop(&mut self) -> Result<(), PartError> {
        if !self.running {
            return Ok(());
        }
        self.log = self.log_tail();
        self.running = false;
        self.done(&Order::Stop { id: self.id })
    }
}

impl Drop for ClusterEnvironment {
    fn drop(&mut self) {
        // Callers that need the error call `stop`; the journals of the hosts keep what is left.
        let _ = self.stop();
    }
}
