//! The loaders of a study: connects to their hosts before anything starts here, finds the address
//! at which all of them reach this host, and starts the agents.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use tare_driver::Client;
use tare_driver::loaders::{AgentPipes, AgentProcess, LocalAgent, MultiLoader, StartAgent};
use tare_lab::PartError;
use tare_lab::study::{LoaderSpec, Study};
use tare_remote::{RemoteError, RemoteHost, RemoteProcess};
use tare_std::cpus::CpuSet;

use super::fit;
use crate::exit::{Exit, ExitWith};
use crate::remote_run::Connections;
use crate::stream::say;

/// The driver whose agents run on loaders.
const DRIVER: &str = "tare-load";

/// The loaders of a study, with the connections to their hosts.
pub(super) struct ConnectedLoaders {
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
}

impl ConnectedLoaders {
    /// Connects to every loader and copies the program there; `None` for a study without loaders.
    ///
    /// # Errors
    /// If a host cannot be reached or does not run the program, the study cannot have loaders, or
    /// no address of this host serves all of them.
    pub(super) fn connect(study: &Study, state: &Path) -> anyhow::Result<Option<Self>> {
        if study.loaders.is_empty() {
            return Ok(None);
        }
        check(study).exit_with(Exit::Input)?;
        let connections = Connections::open(state)?;
        let mut loaders = Vec::new();
        for spec in &study.loaders {
            let Some(address) = spec.host.ssh() else {
                loaders.push((spec.clone(), None));
                continue;
            };
            say(&format!("connecting to {}", spec.name()));
            let connected = connections.connect(address)?;
            let seen_from = connected.host.basics().exit_with(Exit::Host)?.seen_from;
            let (host, program) = (connected.host, connected.program);
            say(&format!(
                "loader {} is ready: connected in {:.2} s, program checked or copied in {:.2} s",
                spec.name(),
                connected.connecting.as_secs_f64(),
                connected.copying.as_secs_f64()
            ));
            loaders.push((spec.clone(), Some(RemoteLoader { host, program, seen_from })));
        }
        let reach = common_address(&loaders).exit_with(Exit::Host)?;
        Ok(Some(Self { loaders, reach, connections }))
    }

    /// Returns the address of this host at which all loaders reach it; `None` if all run here.
    pub(super) fn reach(&self) -> Option<IpAddr> {
        self.reach
    }

    /// Starts the agents and compares the clocks.
    pub(super) fn start(&self, client: &Client<'_>) -> anyhow::Result<MultiLoader> {
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
            let of_client = spec.host.ssh().is_none().then(|| client.cpus.clone());
            (agent, spec.cpus.clone().or(of_client))
        });
        let agents: Vec<(Box<dyn StartAgent>, Option<CpuSet>)> = agents.collect();
        MultiLoader::start(agents).exit_with(Exit::Host)
    }
}

/// Refuses a study whose load cannot be divided among loaders.
fn check(study: &Study) -> anyhow::Result<()> {
    if study.driver != DRIVER {
        return Err(anyhow!(
            "the driver {} cannot run on [[loader]] hosts; use {DRIVER}, or no [[loader]]",
            study.driver
        ));
    }
    if fit::instances(study) > 1 && !fit::is_cluster(study) {
        return Err(anyhow!(
            "[[loader]] hosts load one system or one cluster, not separate instances; write \
             cluster = true, or instances = 1"
        ));
    }
    Ok(())
}

/// Returns the address of this host that every loader elsewhere reaches.
fn common_address(
    loaders: &[(LoaderSpec, Option<RemoteLoader>)],
) -> anyhow::Result<Option<IpAddr>> {
    let mut seen: Vec<(String, IpAddr)> = Vec::new();
    for (spec, remote) in loaders {
        let Some(remote) = remote else { continue };
        let address = spec.address.or(remote.seen_from).ok_or_else(|| {
            anyhow!(
                "{} does not tell how it sees this host; write its address = \"...\"",
                spec.name()
            )
        })?;
        seen.push((spec.name(), address));
    }
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

impl RemoteAgent {
    /// Connects again if the connection is gone.
    fn reconnect(&mut self) -> Result<(), RemoteError> {
        if self.loader.host.check().is_ok() {
            return Ok(());
        }
        let host = RemoteHost::connect(self.loader.host.address(), &self.directory)?;
        self.loader.program = host.install(&self.own_program)?;
        self.loader.host = host;
        Ok(())
    }
}

impl StartAgent for RemoteAgent {
    fn host(&self) -> &str {
        &self.name
    }

    fn start(&mut self, arguments: &[String]) -> Result<AgentPipes, PartError> {
        self.reconnect()?;
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
struct AgentThere(RemoteProcess);

impl AgentProcess for AgentThere {
    fn end(&mut self, limit: Duration) {
        // Its line may be cut; then it ends after its limit of silence.
        let _ = self.0.wait_at_most(limit);
    }
}
