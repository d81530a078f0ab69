//! The loaders of a study: connects to their hosts before anything starts here, finds the address
//! at which all of them reach this host, and starts the agents.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use tare_driver::loaders::{AgentPipes, AgentProcess, LocalAgent, MultiLoader, StartAgent};
use tare_driver::{Client, DriverInfo};
use tare_env::ReachOptions;
use tare_kube::TareImage;
use tare_lab::PartError;
use tare_lab::driver::Driver;
use tare_lab::study::{LoaderSpec, Study};
use tare_lab::system::Instances;
use tare_remote::{RemoteError, RemoteHost, RemoteProcess};
use tare_std::cpus::CpuSet;
use tare_std::host_address::{HostAddress, RemoteAddress};

use super::fit;
use crate::exit::{Exit, ExitWith};
use crate::remote_run::{Connected, Connections, NodeView, Place};
use crate::stream::say;

/// The loaders of a study, with the connections to their hosts.
pub(crate) struct ConnectedLoaders {
    loaders: Vec<(LoaderSpec, Option<RemoteLoader>)>,
    reach: Option<IpAddr>,
    /// The directory of the sockets, removed at the end.
    connections: Connections,
}

/// A loader on another host.
#[derive(Clone, Debug)]
struct RemoteLoader {
    host: RemoteHost,
    /// Tare's program there.
    program: String,
    seen_from: Option<IpAddr>,
    /// What the API says of it, if it is in a cluster.
    view: NodeView,
}

impl RemoteLoader {
    /// Connects to a loader and copies the program there; `None` for one on this host.
    fn connect(spec: &LoaderSpec, connections: &Connections) -> anyhow::Result<Option<Self>> {
        let Some(address) = spec.host.remote() else { return Ok(None) };
        say(&format!("connecting to {}", spec.name()));
        let Connected { host, program, connecting, copying } = connections.connect(address)?;
        say(&format!(
            "loader {} is ready: connected in {:.2} s, program checked or copied in {:.2} s",
            spec.name(),
            connecting.as_secs_f64(),
            copying.as_secs_f64()
        ));
        let view = connections.view(address)?;
        match view.place {
            Place::Elsewhere => {}
            Place::Here => say(&format!(
                "loader {} is on this node, so it shares CPUs, memory and kernel with the system; a \
                 loader on another node does not",
                spec.name()
            )),
            Place::SameMachine => say(&format!(
                "the node of loader {} is on this machine, so it shares CPUs, memory and kernel with \
                 the system; a loader on another machine does not",
                spec.name()
            )),
        }
        let seen_from = program.basics.seen_from.or(view.address_here);
        Ok(Some(Self { host, program: program.path, seen_from, view }))
    }

    fn is_on_this_machine(&self) -> bool {
        self.view.place != Place::Elsewhere
    }

    /// Connects again if the connection is gone.
    fn reconnect(&mut self, directory: &Path, own_program: &Path) -> Result<(), RemoteError> {
        if self.host.check().is_ok() {
            return Ok(());
        }
        let host = self.host.again(directory)?;
        self.program = host.install(own_program)?.path;
        self.host = host;
        Ok(())
    }
}

impl ConnectedLoaders {
    /// Connects to all loaders at once and copies the program there; `None` for a study without
    /// loaders.
    ///
    /// # Errors
    /// If a host cannot be reached or does not run the program, the study cannot have loaders, or
    /// no address of this host serves all of them.
    pub(crate) fn connect(
        study: &Study,
        state: &Path,
        image: Option<&TareImage>,
    ) -> anyhow::Result<Option<Self>> {
        if study.loaders.is_empty() {
            return Ok(None);
        }
        assert!(study.loader_selectors.is_empty(), "selectors are placed on nodes before");
        check(study).exit_with(Exit::Input)?;
        say_shared_nodes(study);
        let connections = Connections::open(state, image.cloned())?;
        let connected: Vec<anyhow::Result<Option<RemoteLoader>>> = std::thread::scope(|scope| {
            let connect = |spec| RemoteLoader::connect(spec, &connections);
            let start = |spec| scope.spawn(move || connect(spec));
            let threads: Vec<_> = study.loaders.iter().map(start).collect();
            let lost = || Err(anyhow!("a thread panicked"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
        });
        let mut loaders = Vec::new();
        for (spec, connected) in study.loaders.iter().zip(connected) {
            loaders.push((spec.clone(), connected?));
        }
        // A connection ends when it is not used for a minute, and others may have taken longer.
        for remote in loaders.iter_mut().filter_map(|(_, remote)| remote.as_mut()) {
            remote.reconnect(connections.directory(), &crate::own_program()?)?;
        }
        check_tools(study, &loaders).exit_with(Exit::Host)?;
        let reach = match study.hosts.is_empty() {
            true => common_address(&loaders).exit_with(Exit::Host)?,
            // Loaders reach the addresses of those hosts.
            false => None,
        };
        Ok(Some(Self { loaders, reach, connections }))
    }

    /// Returns how all loaders reach this host; `None` if all run here, or the system runs on other
    /// hosts.
    pub(super) fn reach(&self) -> Option<ReachOptions> {
        let mut remote = self.loaders.iter().filter_map(|(_, remote)| remote.as_ref());
        let from_cluster = remote.all(|remote| remote.view.address_here.is_some());
        self.reach.map(|address| ReachOptions { address, from_cluster })
    }

    /// Returns each loader on another host with the address at which it sees this one.
    ///
    /// # Errors
    /// If neither the study nor a loader tells it.
    pub(super) fn addresses_seen(&self) -> anyhow::Result<Vec<(String, IpAddr)>> {
        addresses_seen(&self.loaders).exit_with(Exit::Host)
    }

    /// Starts the agents, which load a cluster as one and separate instances each on its own.
    pub(super) fn start(
        &self,
        driver: &DriverInfo,
        client: &Client<'_>,
        instances: Instances,
    ) -> anyhow::Result<Box<dyn Driver>> {
        if instances.cluster || instances.count < 2 {
            return Ok(Box::new(self.start_agents(driver, client)?));
        }
        let one = |_| Ok(Box::new(self.start_agents(driver, client)?) as Box<dyn Driver + Send>);
        let all = (0..instances.count).map(one).collect::<anyhow::Result<_>>()?;
        Ok(tare_driver::separate(all))
    }

    /// Starts an agent on each loader and compares the clocks.
    fn start_agents(
        &self,
        driver: &DriverInfo,
        client: &Client<'_>,
    ) -> anyhow::Result<MultiLoader> {
        let agents = self.loaders.iter().map(|(spec, remote)| {
            let agent: Box<dyn StartAgent> = match remote {
                None => Box::new(LocalAgent::new(client)),
                Some(remote) => Box::new(RemoteAgent {
                    name: spec.name(),
                    loader: remote.clone(),
                    directory: self.connections.directory().into(),
                    own_program: client.program.into(),
                }),
            };
            let is_here = remote.as_ref().is_none_or(RemoteLoader::is_on_this_machine);
            let of_client = is_here.then(|| client.cpus.clone());
            (agent, spec.cpus.clone().or(of_client))
        });
        let agents: Vec<(Box<dyn StartAgent>, Option<CpuSet>)> = agents.collect();
        MultiLoader::start(driver, client.speaks, client.access, agents).exit_with(Exit::Host)
    }
}

/// Says which loaders are on nodes of the system.
fn say_shared_nodes(study: &Study) {
    let node = |host: &HostAddress| match host.remote() {
        Some(RemoteAddress::Node(node) | RemoteAddress::Pod(node)) => Some(node.clone()),
        Some(RemoteAddress::Ssh(_)) | None => None,
    };
    let nodes: Vec<_> = study.hosts.iter().filter_map(|one| node(&one.host)).collect();
    let is_shared =
        |loader: &&LoaderSpec| node(&loader.host).is_some_and(|one| nodes.contains(&one));
    for loader in study.loaders.iter().filter(is_shared) {
        say(&format!(
            "loader {} is on a node of the system, so it shares CPUs, memory and kernel with its \
             instance; a loader on another node does not",
            loader.name()
        ));
    }
}

/// Refuses a loader that lacks what the driver needs for the workloads of the study. The driver
/// without a tool needs nothing, so its loaders are not asked.
fn check_tools(
    study: &Study,
    loaders: &[(LoaderSpec, Option<RemoteLoader>)],
) -> anyhow::Result<()> {
    if tare_driver::find(&study.driver).is_none_or(|driver| driver.program.is_none()) {
        return Ok(());
    }
    let workloads = serde_json::to_vec(&study.workloads)?;
    for (spec, remote) in loaders {
        let missing = match remote {
            None => tare_driver::missing(&study.driver, &study.workloads),
            Some(remote) => {
                let words = ["load-agent", "--missing", "--driver", &study.driver];
                let told = remote.host.output(&remote.program, &words, &*workloads)?;
                serde_json::from_slice(&told)?
            }
        };
        if !missing.is_empty() {
            let (driver, host) = (&study.driver, spec.name());
            return Err(anyhow!("{driver} cannot load from {host}: {}", missing.join("; ")));
        }
    }
    Ok(())
}

/// Refuses a study whose load cannot be divided among its loaders.
pub(super) fn check(study: &Study) -> anyhow::Result<()> {
    if study.loaders.is_empty() {
        return Ok(());
    }
    let one_host = study.hosts.is_empty() && fit::instances(study) > 1 && fit::is_cluster(study);
    if one_host && study.system.name == "scylla" {
        return Err(anyhow!(
            "scylla tells clients the addresses of its nodes without ports, and [[loader]] hosts reach \
             all nodes of this host at one address; name hosts in [system] hosts, or leave out [[loader]]"
        ));
    }
    Ok(())
}

/// Returns each loader elsewhere with the address at which it sees this host.
fn addresses_seen(
    loaders: &[(LoaderSpec, Option<RemoteLoader>)],
) -> anyhow::Result<Vec<(String, IpAddr)>> {
    let elsewhere =
        loaders.iter().filter_map(|(spec, remote)| Some((spec, remote.as_ref()?.seen_from)));
    let address = |(spec, seen_from): (&LoaderSpec, Option<IpAddr>)| {
        let unknown = || {
            anyhow!(
                "{} does not tell how it sees this host; write its address = \"...\"",
                spec.name()
            )
        };
        Ok((spec.name(), spec.address.or(seen_from).ok_or_else(unknown)?))
    };
    elsewhere.map(address).collect()
}

/// Returns the address of this host that every loader elsewhere reaches.
fn common_address(
    loaders: &[(LoaderSpec, Option<RemoteLoader>)],
) -> anyhow::Result<Option<IpAddr>> {
    let seen = addresses_seen(loaders)?;
    let Some((_, first)) = seen.first() else { return Ok(None) };
    if seen.iter().all(|(_, address)| address == first) {
        return Ok(Some(*first));
    }
    let mut tried = Vec::new();
    for (_, address) in &seen {
        if tried.contains(address) {
            continue;
        }
        tried.push(*address);
        if all_reach(loaders, *address) {
            return Ok(Some(*address));
        }
    }
    let list: Vec<String> =
        seen.iter().map(|(name, address)| format!("{name} {address}")).collect();
    Err(anyhow!(
        "the loaders see different addresses of this host ({}), and none of these serves all of \
         them; write address = \"...\" for each [[loader]], with one that all reach",
        list.join(", ")
    ))
}

/// Returns whether every loader elsewhere connects to this host at an address.
fn all_reach(loaders: &[(LoaderSpec, Option<RemoteLoader>)], address: IpAddr) -> bool {
    let Ok(listener) = TcpListener::bind(SocketAddr::new(address, 0)) else { return false };
    let Ok(at) = listener.local_addr() else { return false };
    // The kernel accepts the connections; nothing is said on them.
    loaders.iter().filter_map(|(_, remote)| remote.as_ref()).all(|remote| {
        let arguments = ["load-agent", "--reach", &at.to_string()];
        remote.host.output(&remote.program, &arguments, std::io::empty()).is_ok()
    })
}

/// Starts agents on another host.
struct RemoteAgent {
    name: String,
    loader: RemoteLoader,
    /// The directory of ssh's sockets.
    directory: std::path::PathBuf,
    own_program: std::path::PathBuf,
}

impl StartAgent for RemoteAgent {
    fn host(&self) -> &str {
        &self.name
    }

    fn start(&mut self, arguments: &[String]) -> Result<AgentPipes, PartError> {
        self.loader.reconnect(&self.directory, &self.own_program)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut process = self.loader.host.start(&self.loader.program, &arguments)?;
        let lost = || format!("{} has no pipes", self.name);
        Ok(AgentPipes {
            orders: Box::new(process.stdin.take().ok_or_else(lost)?),
            answers: Box::new(process.stdout.take().ok_or_else(lost)?),
            errors: Box::new(process.stderr.take().ok_or_else(lost)?),
            // Its process is not on this host.
            pid: None,
            process: Box::new(AgentThere(process)),
        })
    }
}

/// An agent on another host, which ends when its pipes close.
#[derive(Debug)]
struct AgentThere(RemoteProcess);

impl AgentProcess for AgentThere {
    fn end(&mut self, limit: Duration) {
        // Its line may be cut; then it ends after its limit of silence.
        let _ = self.0.wait_at_most(limit);
    }
}
