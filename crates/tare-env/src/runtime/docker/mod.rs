//! Containers of an engine with docker's API on a unix socket of this host: Docker with any of its
//! runtimes, and Podman.
//!
//! Tare imports an image of the one static program or of a root file system, or it uses an image of
//! the engine and bind-mounts the program. Nothing is pulled. A veth pair links the client's
//! namespace to the engine's; the client dials the address of its far end:
//! - `host`: the system listens there, in the engine's namespace.
//! - `bridge`: the engine publishes the port there and its DNAT maps the connection (the packet
//!   comes from outside, as from a client on another host).
//! - `bridge+proxy`: the same, but an nft table of Tare's, hooked before the engine's, maps the
//!   connection to its own destination. The engine's DNAT then skips it, and it arrives at the
//!   userland proxy, which Docker runs for every published port.
//!
//! With loaders or instances on other hosts the address is this host's. The engine's rules stand
//! all the time.
//!
//! Freezing is by signal (SIGSTOP), not by cgroup: on cgroup v1 a frozen process cannot be killed,
//! and after a crash the engine would wait for it forever. Only gVisor is paused by the engine,
//! because its processes trace each other and would see the signal.
//!
//! Limits: `cgroup = "none"` is refused because engines have no such option. An engine that maps
//! users (userns-remap, rootless) cannot write the data directory. The engine is queried once per
//! start, /proc at every read-back.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tare_host::exec::ExecError;
use tare_host::journal::{Entry, EntryId};
use tare_host::process;
use tare_lab::PartError;
use tare_lab::environment::{Environment, EnvironmentSpec};
use tare_std::cpus::CpuSet;

use super::contract::{Argument, Runtime};
use super::gvisor::{self, SandboxView};
use super::kata;
use crate::layer::limits::Link;
use crate::layer::{self, Layers, security};
use crate::run_context::RunContext;
use crate::storage::{self, DataLocation, InitialData, Storage};
use crate::system::System;
use crate::unavailable::Unavailable;
use crate::undo::ContainerEntry;
use tare_lab::layer::Network;

mod base;
mod compose;
mod engine;
mod environment;
mod inspect;
mod network;
mod read_back;
mod request;
mod start;

use base::Base;
use engine::{Engine, Kind};
pub use inspect::{InspectError, inspect};
use read_back::InspectedContainer;

pub const RUNTIME: Runtime = Runtime {
    name: "docker",
    help: "a container of the Docker engine, through its API",
    argument: Argument::Optional("RUNTIME"),
    options: &[
        ("cgroup", "only own: an engine puts every container into a cgroup"),
        (
            "sandbox",
            "options of gVisor (docker:runsc), read back; the engine's runtime has to have them",
        ),
        ("network", "bridge and host are the engine's; bridge+proxy needs its userland proxy"),
    ],
    needs: |argument| needs(Kind::Docker, argument),
    cleanup: "container and image are removed through the engine, the nft table with nft",
    read_back: "the engine's inspection, and /proc/PID of the container's process",
    found: || found(Kind::Docker),
    make: |context, spec, layers, argument| make(Kind::Docker, context, spec, layers, argument),
};

pub const PODMAN: Runtime = Runtime {
    name: "podman",
    help: "a container of Podman, through the socket of its service",
    argument: Argument::None,
    options: &[
        ("cgroup", "only own: the API has no switch"),
        ("network", "bridge and host; Podman has no userland proxy"),
    ],
    needs: |argument| needs(Kind::Podman, argument),
    cleanup: "container and image are removed through the engine",
    read_back: "the engine's inspection, and /proc/PID of the container's process",
    found: || found(Kind::Podman),
    make: |context, spec, layers, argument| make(Kind::Podman, context, spec, layers, argument),
};

/// A container of the user.
pub(super) struct FoundContainer {
    /// Its first process; `None` if it does not run.
    pub(super) pid: Option<u32>,
    /// What it is, in words.
    pub(super) what: String,
}

/// Returns a container of an engine, by its name or id. Nothing is changed.
///
/// # Errors
/// If the engine does not answer, or has no such container.
pub(super) fn find_container(engine: &str, name: &str) -> Result<FoundContainer, PartError> {
    let kind = if engine == Kind::Podman.name() { Kind::Podman } else { Kind::Docker };
    let engine = Engine::connect(kind)?;
    let found = engine.inspect(name)?;
    let pid = found.state.as_ref().and_then(environment::pid_of);
    let driver = found.graph_driver.map(|graph| graph.name).unwrap_or_default();
    let runtime = found.host_config.and_then(|config| config.runtime).unwrap_or_default();
    let image = found.config.and_then(|config| config.image).unwrap_or_default();
    let what = format!(
        "{} container {name} of the image {image}, runtime {runtime}, storage driver {driver}",
        engine.version()?
    );
    Ok(FoundContainer { pid, what })
}

/// Returns the engine and the name of the one running container of a service of a compose file.
///
/// # Errors
/// One line: no engine answers, or none or several of its containers run.
pub(super) fn find_service(file: &Path, service: &str) -> Result<(&'static str, String), String> {
    compose::find(file, service)
}

/// Why an environment of an engine failed.
#[derive(Debug, thiserror::Error)]
pub enum DockerError {
    #[error(
        "environment {environment:?}: {engine} puts every container into a cgroup; \
         set cgroup = \"own\" or use an oci runtime"
    )]
    Cgroup { environment: String, engine: &'static str },
    #[error(
        "environment {environment:?}: {engine} runs no userland proxy for a published port; \
         take network = \"bridge\", or switch the engine's userland-proxy on"
    )]
    NoProxy { environment: String, engine: &'static str },
    #[error(
        "environment {environment:?}: {engine} runs in a network namespace without the address \
         {address}, at which other hosts reach this one; use runtime = \"oci:runc\", or an engine of \
         this host"
    )]
    Elsewhere { environment: String, engine: &'static str, address: Ipv4Addr },
    #[error("cannot create {}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot redirect connections to the userland proxy")]
    Table(#[source] ExecError),
    #[error(
        "the container of environment {environment:?} ended early with exit code {code}: {log}"
    )]
    Ended { environment: String, code: i64, log: String },
    #[error("environment {environment:?} is not started")]
    NotStarted { environment: String },
}

fn needs(kind: Kind, argument: Option<&str>) -> Result<(), Unavailable> {
    let engine = Engine::connect(kind)?;
    let Some(requested) = argument else { return Ok(()) };
    let what = format!("{}:{requested}", kind.name());
    if kata::is_kata(requested) {
        kata::needs(what.clone())?;
    }
    match engine.runtimes() {
        // A name with dots is a shim, which the engine looks up on its PATH at the start.
        Ok((names, _)) if names.iter().any(|name| name == requested) || requested.contains('.') => {
            Ok(())
        }
        Ok((names, _)) => Err(Unavailable {
            what,
            why: format!("the engine has only the runtimes {}", names.join(", ")),
            remedy: "install the runtime, add it to \"runtimes\" in /etc/docker/daemon.json and \
                     restart the engine"
                .into(),
        }),
        Err(error) => {
            Err(Unavailable { what, why: error.to_string(), remedy: "see the engine's log".into() })
        }
    }
}

/// Returns the names that work on this host, as studies write them.
fn found(kind: Kind) -> Vec<String> {
    let Ok(engine) = Engine::connect(kind) else { return Vec::new() };
    let mut words = vec![kind.name().to_string()];
    if kind == Kind::Docker
        && let Ok((names, _)) = engine.runtimes()
    {
        let names = names.iter().filter(|name| !name.contains('.'));
        words.extend(names.map(|name| format!("{}:{name}", kind.name())));
    }
    words
}

fn make(
    kind: Kind,
    context: &Arc<RunContext>,
    spec: EnvironmentSpec,
    layers: Layers,
    argument: Option<&str>,
) -> Result<Box<dyn Environment>, PartError> {
    let (environment, engine) = (spec.name.clone(), kind.name());
    if layers.cgroup == layer::Cgroup::None {
        return Err(DockerError::Cgroup { environment, engine }.into());
    }
    if kind == Kind::Podman && layers.network == (Network::Bridge { proxy: true }) {
        return Err(DockerError::NoProxy { environment, engine }.into());
    }
    let engine = Engine::connect(kind)?;
    let storage = storage::parse(&spec)?;
    let sandbox = match argument.is_some_and(gvisor::is_gvisor) {
        true => Some(gvisor::Options::parse(&spec, &layers)?),
        false => None,
    };
    if let Some(driver) = storage.driver() {
        driver.check_engine(&engine.version()?, &engine.driver()?)?;
    }
    let number = context.next_environment();
    Ok(Box::new(Container {
        name: format!("{}-e{number}", context.prefix()),
        runtime: argument.map(str::to_owned),
        base: Base::of(&spec, context, &engine)?,
        context: Arc::clone(context),
        engine,
        spec,
        layers,
        storage,
        initial_data: InitialData::default(),
        sandbox,
        number,
        data: PathBuf::new(),
        entries: Vec::new(),
        config: None,
        running: None,
    }))
}

struct Container {
    context: Arc<RunContext>,
    engine: Engine,
    spec: EnvironmentSpec,
    layers: Layers,
    storage: Box<dyn Storage>,
    initial_data: InitialData,
    /// gVisor's options, if the runtime is gVisor.
    sandbox: Option<gvisor::Options>,
    /// The source of the container's image.
    base: Base,
    /// The runtime that the study names; `None` is the engine's default.
    runtime: Option<String>,
    number: u32,
    name: String,
    /// The host's path of the data.
    data: PathBuf,
    entries: Vec<EntryId>,
    config: Option<String>,
    running: Option<Running>,
}

struct Running {
    system: System,
    /// The address that clients dial.
    published: SocketAddrV4,
    /// `cpuset_cpus` of the request.
    cpuset: String,
    /// `security_opt` of the request.
    security_opt: Vec<String>,
    /// The container's link to the bridge, if the network is limited.
    link: Option<Link>,
    /// The container as the engine describes it, after the first read-back.
    inspected: Option<InspectedContainer>,
    /// What a process sees in gVisor's sandbox or Kata's guest, or why that cannot be read, after
    /// the first read-back.
    inside: Option<Result<SandboxView, String>>,
}

impl Container {
    fn folder(&self) -> PathBuf {
        self.context.work().join(format!("e{}", self.number))
    }

    fn running(&mut self) -> Result<&mut Running, DockerError> {
        let environment = self.spec.name.clone();
        self.running.as_mut().ok_or(DockerError::NotStarted { environment })
    }

    /// Imports the image unless another environment of the run has imported it.
    fn provide_image(&self) -> Result<(), PartError> {
        if !self.base.is_ours() {
            return Ok(());
        }
        let journal = self.context.journal();
        let entry = self.image_entry();
        if journal.live().iter().any(|(_, live)| *live == entry) {
            return Ok(());
        }
        let ids = journal.write(vec![entry])?;
        let imported = self.base.import(&self.context, &self.engine);
        if imported.is_err() {
            journal.undo(&ids);
        }
        imported
    }

    fn image_entry(&self) -> Entry {
        ContainerEntry::Image {
            engine: self.engine.kind().name().into(),
            socket: self.engine.socket().into(),
            name: self.base.image(&self.context),
        }
        .into()
    }

    /// Returns the value of `seccomp=`: the profile itself for Docker, the path of a file for
    /// Podman.
    fn seccomp(&self, folder: &Path) -> Result<String, PartError> {
        let Some(profile) = security::moby_json(self.layers.security)? else {
            return Ok("unconfined".into());
        };
        if self.engine.kind() == Kind::Docker {
            return Ok(profile);
        }
        let path = folder.join("seccomp.json");
        fs::write(&path, profile)
            .map_err(|source| DockerError::File { path: path.clone(), source })?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// Returns the CPUs to confine the container to, or `None` if the engine's own are the same.
    fn cpuset(&self) -> Option<String> {
        let wanted = self.layers.cpu.set(self.context.cpus());
        let allowed = process::status_field(self.engine.pid(), "Cpus_allowed_list");
        let allowed = allowed.and_then(|list| CpuSet::parse_list(&list).ok());
        (allowed.as_ref() != Some(&wanted)).then(|| wanted.to_string())
    }

    /// Returns whether the root file system is writable inside.
    fn writes_root(&self) -> bool {
        self.base.config().is_some() || self.storage.location() == DataLocation::Root
    }

    /// Returns whether the process and mount tables of the system are another kernel's, which the
    /// host cannot read.
    fn is_hidden(&self) -> bool {
        self.is_gvisor() || self.runtime.as_deref().is_some_and(kata::is_kata)
    }

    fn is_gvisor(&self) -> bool {
        self.sandbox.is_some()
    }

    /// Returns the image's journal entry, unless another container of this engine uses the image.
    fn image_to_drop(&self) -> Option<EntryId> {
        let live = self.context.journal().live();
        let here = self.engine.socket();
        let in_use = live.iter().any(|(_, entry)| match entry.read() {
            Ok(ContainerEntry::Container { socket, name, .. }) => {
                socket == here && name != self.name
            }
            _ => false,
        });
        let image = self.image_entry();
        let found = live.iter().find(|(_, entry)| *entry == image);
        found.filter(|_| !in_use).map(|(id, _)| *id)
    }
}
