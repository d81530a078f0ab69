//! The hosts of a system: their agents, and orders to all of them at once.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use tare_env::Peers;
use tare_lab::PartError;
use tare_lab::campaign::system_cpus;
use tare_lab::cpus::CpuPlan;
use tare_lab::environment::{Environment, EnvironmentSpec};
use tare_lab::layer::Network;
use tare_lab::probe::Probe;
use tare_lab::study::{Study, SystemHost};
use tare_remote::RemoteHost;
use tare_std::host_address::RemoteAddress;

use crate::environment::ClusterEnvironment;
use crate::error::{ClusterError, OpenError};
use crate::link::{Link, Process};
use crate::probe::ClusterProbe;
use crate::protocol::{Answer, Kubeconfig, Opening, Order};
use crate::shared::{HostFacts, PORTS, Shared, exchange};

/// The command of the program that serves a host's orders.
const COMMAND: &str = "host-agent";
/// What a system on several hosts needs.
#[derive(Clone, Copy, Debug)]
pub struct ClusterOptions<'a> {
    /// The study, which names the hosts.
    pub study: &'a Study,
    /// The division on this host.
    pub plan: &'a CpuPlan,
    pub destroy: &'a [PathBuf],
    /// Tare's own program.
    pub program: &'a Path,
    /// The state directory of this host.
    pub state: &'a Path,
    /// How each host of the study is reached, in its order.
    pub hosts: &'a [ReachedHost],
    /// The run's id: four hexadecimal digits.
    pub run: &'a str,
}

/// How a host of a system is reached.
#[derive(Clone, Debug)]
pub struct ReachedHost {
    /// The connection, and Tare's program there; `None` for this host.
    pub there: Option<(RemoteHost, String)>,
    /// The address of its instance, where neither the study nor ssh names one.
    pub address: Option<Ipv4Addr>,
    /// Whether it is this host, which may also be named as a node of its cluster.
    pub is_here: bool,
    /// Access to the cluster of the node, for instances that are pods.
    pub kubeconfig: Option<Kubeconfig>,
}

/// The hosts of a system. Dropping it ends their agents, which remove what they made.
#[derive(Clone)]
pub struct Cluster(Rc<Shared>);

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("hosts", &self.0.hosts).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Starts an agent on each host.
    ///
    /// # Errors
    /// When a host cannot be reached, is another kind of machine, or refuses the agent.
    pub fn open(options: &ClusterOptions<'_>) -> Result<Self, OpenError> {
        let mut links = Vec::new();
        let mut addresses = Vec::new();
        for (host, reached) in options.study.hosts.iter().zip(options.hosts) {
            let (link, address) = start(host, reached, options)?;
            links.push(link);
            addresses.push(address);
        }
        let mut specs = options.study.environments.iter();
        let is_published = specs.any(|spec| spec.network != Network::Host);
        let order = |(host, address): (&ReachedHost, &Ipv4Addr)| {
            let plan = host.is_here.then(|| options.plan.clone());
            let (cpus, destroy) = (options.study.cpus.clone(), options.destroy.to_vec());
            let reach = is_published.then_some(*address);
            let kubeconfig = host.kubeconfig.clone();
            Order::Open(Box::new(Opening { cpus, plan, destroy, reach, kubeconfig }))
        };
        let orders: Vec<Order> = options.hosts.iter().zip(&addresses).map(order).collect();
        let mut hosts = Vec::new();
        let answers = exchange(&mut links, &orders)?;
        for (number, (_, answer)) in answers.into_iter().enumerate() {
            let Answer::Opened(opened) = answer else {
                return Err(links[number].unexpected(&orders[number], &answer).into());
            };
            let (name, address) = (links[number].host().to_string(), addresses[number]);
            let is_here = options.hosts[number].is_here;
            hosts.push(HostFacts { name, address, is_here, opened: *opened });
        }
        let cpus = hosts.iter().map(|host| system_cpus(options.study, &host.opened.plan));
        let instance_cpus = cpus.min().unwrap_or(1).max(1);
        // Runs begin at different ports, to avoid races for the same one.
        let first = u16::from_str_radix(options.run, 16).unwrap_or(0) % PORTS;
        Ok(Self(Rc::new(Shared {
            links: RefCell::new(links),
            hosts,
            system: options.study.system.clone(),
            instance_cpus,
            next_environment: Cell::new(0),
            next_port: Cell::new(first),
        })))
    }

    /// Returns what is known about each host, in the order of the study.
    pub fn hosts(&self) -> &[HostFacts] {
        &self.0.hosts
    }

    /// Returns the CPUs of an instance: those of the host that gives it the fewest, so that all of
    /// them start alike.
    pub fn instance_cpus(&self) -> usize {
        self.0.instance_cpus
    }

    /// Returns why an environment cannot run on a host, if it cannot: one reason for each of
    /// `specs`.
    ///
    /// # Errors
    /// When a host is lost.
    pub fn check(&self, specs: &[EnvironmentSpec]) -> Result<Vec<Option<String>>, ClusterError> {
        let order = Order::Check { specs: specs.to_vec() };
        let mut all = vec![None; specs.len()];
        for (number, (_, answer)) in self.0.all(&order)?.into_iter().enumerate() {
            let Answer::Checked { reasons } = answer else {
                return Err(self.0.unexpected(number, &order, &answer));
            };
            for (known, reason) in all.iter_mut().zip(reasons) {
                let named = |reason| format!("{}: {reason}", self.0.hosts[number].name);
                *known = known.take().or(reason.map(named));
            }
        }
        Ok(all)
    }

    /// Makes an environment of one instance on each host, without starting it.
    ///
    /// # Errors
    /// Names the host that cannot run it, and why.
    pub fn environment(&self, spec: &EnvironmentSpec) -> Result<Box<dyn Environment>, PartError> {
        let (port, node_port) = self.0.free_ports()?;
        let all: Vec<Ipv4Addr> = self.0.hosts.iter().map(|host| host.address).collect();
        let id = self.0.next_environment.replace(self.0.next_environment.get() + 1);
        let system = self.0.system.with_options(&spec.system);
        let orders: Vec<Order> = all
            .iter()
            .map(|own| {
                let peers = Peers { own: *own, all: all.clone(), port, node_port };
                let (spec, system) = (Box::new(spec.clone()), system.clone());
                Order::Create { id, spec, system, peers }
            })
            .collect();
        self.0.each(&orders)?;
        Ok(Box::new(ClusterEnvironment::new(Rc::clone(&self.0), id, spec.clone())))
    }

    /// Returns the probes of all hosts: one that reads them all, and one for each that fails where
    /// a host could not read it.
    pub fn probes(&self) -> Vec<Box<dyn Probe>> {
        let all = ClusterProbe::new(Rc::clone(&self.0));
        let mut names: Vec<&String> = Vec::new();
        for name in self.0.hosts.iter().flat_map(|host| &host.opened.probes) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let mut probes: Vec<Box<dyn Probe>> = Vec::new();
        for name in names {
            probes.push(Box::new(all.reporter(name)));
        }
        probes.insert(0, Box::new(all));
        probes
    }

    /// Returns why a host is lost, if one is.
    pub fn lost(&self) -> Option<String> {
        let links = self.0.links.borrow();
        links.iter().find_map(|link| link.lost().map(ToString::to_string))
    }

    /// Removes what the agents made, and returns what they could not remove.
    pub fn close(&self) -> Vec<String> {
        let mut links = self.0.links.borrow_mut();
        let mut left = Vec::new();
        for link in links.iter_mut() {
            if let Err(error) = link.send(&Order::Close) {
                left.push(format!("{error}; run tare clean on {}", link.host()));
            }
        }
        for link in links.iter_mut().filter(|link| link.lost().is_none()) {
            match link.answer(&Order::Close) {
                Ok((_, Answer::Closed { left: there })) => {
                    let host = link.host().to_string();
                    left.extend(there.into_iter().map(|what| format!("{host}: {what}")));
                }
                Ok((_, other)) => left.push(link.unexpected(&Order::Close, &other).to_string()),
                Err(error) => left.push(format!("{error}; run tare clean on {}", link.host())),
            }
        }
        left
    }
}

/// Starts the agent of a host. Returns the address of its instances.
fn start(
    host: &SystemHost,
    reached: &ReachedHost,
    options: &ClusterOptions<'_>,
) -> Result<(Link, Ipv4Addr), OpenError> {
    let name = host.host.to_string();
    let no_address = || OpenError::NoAddress { host: name.clone() };
    let Some((remote, program)) = &reached.there else {
        let address = host.address.ok_or_else(no_address)?;
        let mut command = Command::new(options.program);
        command.arg("--state").arg(options.state).arg(COMMAND);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |source| OpenError::Start { program: options.program.into(), source };
        let mut child = command.spawn().map_err(failed)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(failed(std::io::ErrorKind::BrokenPipe.into()));
        };
        let link = Link::new(name, Process::Here(child), Box::new(stdin), stdout, stderr);
        return Ok((link, address));
    };
    if let RemoteAddress::Ssh(ssh) = remote.address()
        && !remote.basics()?.is_root
    {
        let ssh_name = ssh.host().to_string();
        return Err(OpenError::NoRoot { host: name, name: ssh_name });
    }
    let is_ssh = matches!(remote.address(), RemoteAddress::Ssh(_));
    let by_ssh = || -> Result<Option<Ipv4Addr>, OpenError> {
        // SSH_CONNECTION is CLIENT PORT SERVER PORT.
        let text = remote.output("sh", &["-c", "echo \"$SSH_CONNECTION\""], std::io::empty())?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let address = text.split_whitespace().nth(2).and_then(|word| word.parse().ok());
        Ok(address.and_then(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(address) => address.to_ipv4_mapped(),
        }))
    };
    let address = match host.address.or(reached.address) {
        Some(address) => address,
        None if is_ssh => by_ssh()?.ok_or_else(no_address)?,
        None => return Err(no_address()),
    };
    let mut process = remote.start(program, &[COMMAND])?;
    let pipes = (process.stdin.take(), process.stdout.take(), process.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else { return Err(no_address()) };
    let link = Link::new(name, Process::There(Box::new(process)), Box::new(stdin), stdout, stderr);
    Ok((link, address))
}
