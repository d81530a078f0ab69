//! Containers of an engine that speaks docker's API on a unix socket of this host: Docker with any
//! runtime that it knows, and Podman.
//!
//! The image is made from the one static program and imported, or from a root file system of ours;
//! or it is one that the engine has, and the program is bind-mounted. Nothing is pulled. The
//! client's namespace is linked to the engine's by a veth pair, whose far end is where the client
//! dials:
//! - `host`: the system listens there, in the engine's namespace.
//! - `bridge`: the engine publishes the port there, and DNAT takes it (the packet comes from
//!   outside, as a client on another host would send it).
//! - `bridge+proxy`: the same, but an nft table of ours, hooked before the engine's, maps the
//!   connection to itself, so that the engine's DNAT finds it mapped already and it arrives at the
//!   userland proxy, which Docker runs for every published port.
//!
//! Freezing is by signal (SIGSTOP), not by cgroup: on cgroup v1 a frozen process cannot be killed,
//! and after a crash the engine would wait for it for ever. Only gVisor is paused by the engine,
//! because its processes trace each other and would see the signal.
//!
//! Limits: `cgroup = "none"` is refused, an engine has no such switch. An engine that maps users
//! (userns-remap, rootless) cannot write the data directory. What the engine itself says of a
//! container is asked once per start; what /proc says, at every reading.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bollard::models::ContainerState;
use tare_host::exec::{Command, ExecError};
use tare_host::journal::{Entry, EntryId};
use tare_host::process::ProcessHandle;
use tare_host::program::Program;
use tare_host::{mounts, netns, process};
use tare_lab::PartError;
use tare_lab::environment::{
    DataSnapshot, Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes,
    RestoreStats, Usage,
};
use tare_std::cpus::CpuSet;

use super::contract::{self, Argument, Runtime};
use super::gvisor::{self, SandboxView};
use super::kata;
use crate::layer::network::{self, PORT};
use crate::layer::{self, Layers, rootfs, security};
use crate::run_context::RunContext;
use crate::storage::{self, At, DataLocation, InitialData, MountView, Storage};
use crate::system::{self, System};
use crate::unavailable::Unavailable;
use crate::undo::ContainerEntry;
use tare_lab::layer::Network;

mod base;
mod engine;
mod image;
mod read_back;
mod request;

use base::Base;
use engine::{Engine, Kind};
use read_back::InspectedContainer;
use request::Request;

/// How long SIGSTOP may take to stop every thread.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How long the engine may take to notice that a container's process has ended.
const ENDED_LIMIT: Duration = Duration::from_secs(1);

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

/// Why an engine's container could not be made an environment.
#[derive(Debug, thiserror::Error)]
pub enum DockerError {
    #[error(
        "environment {environment:?}: {engine} puts every container into a cgroup; \
         set cgroup = \"own\" or take an oci runtime"
    )]
    Cgroup { environment: String, engine: &'static str },
    #[error(
        "environment {environment:?}: {engine} runs no userland proxy for a published port; \
         take network = \"bridge\", or switch the engine's userland-proxy on"
    )]
    NoProxy { environment: String, engine: &'static str },
    #[error("cannot make {}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot lead connections to the userland proxy")]
    Table(#[source] ExecError),
    #[error("the container of environment {environment:?} ended at once with {code}: {log}")]
    Ended { environment: String, code: i64, log: String },
    #[error("environment {environment:?} is not started")]
    NotStarted { environment: String },
}

fn needs(kind: Kind, argument: Option<&str>) -> Result<(), Unavailable> {
    let engine = Engine::connect(kind)?;
    let Some(asked) = argument else { return Ok(()) };
    let what = format!("{}:{asked}", kind.name());
    if kata::is_kata(asked) {
        kata::needs(what.clone())?;
    }
    match engine.runtimes() {
        // A name with dots is a shim, which an engine finds on its PATH when it is asked.
        Ok((names, _)) if names.iter().any(|name| name == asked) || asked.contains('.') => Ok(()),
        Ok((names, _)) => Err(Unavailable {
            what,
            why: format!("the engine knows only {}", names.join(", ")),
            remedy: "install the runtime, add it to \"runtimes\" in /etc/docker/daemon.json and \
                     restart the engine"
                .into(),
        }),
        Err(error) => Err(Unavailable {
            what,
            why: error.to_string(),
            remedy: "look at the engine's log".into(),
        }),
    }
}

/// The words that work on this host.
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
    /// Where the runtime is gVisor.
    sandbox: Option<gvisor::Options>,
    /// What the container is made from.
    base: Base,
    /// The runtime that was asked for; the engine's default otherwise.
    runtime: Option<String>,
    number: u32,
    name: String,
    /// The data as the host sees it.
    data: PathBuf,
    entries: Vec<EntryId>,
    config: Option<String>,
    running: Option<Running>,
}

/// What a start has journalled and makes next.
struct Planned {
    /// The nftables table that sends the client's packets to the userland proxy.
    proxy_table: Option<String>,
    /// Whether the engine needs the data's mount in its own mount namespace.
    mount_elsewhere: bool,
    /// The name of the volume that holds the data.
    volume: Option<String>,
}

struct Running {
    system: System,
    /// What the engine was asked for, as `cpuset_cpus` and `security_opt`.
    cpuset: String,
    security_opt: Vec<String>,
    /// What the engine says of the container, once it was asked.
    inspected: Option<InspectedContainer>,
    /// What a process sees in gVisor's sandbox or Kata's guest, once it was asked, or why it cannot
    /// be.
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

    /// Imports the image unless another environment of the run has.
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

    /// The option `seccomp=`: Docker takes the profile itself, Podman the path of a file.
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

    /// The CPUs to confine the container to, where the engine itself may use more.
    fn cpuset(&self) -> Option<String> {
        let wanted = self.layers.cpu.set(self.context.cpus());
        let allowed = process::status_field(self.engine.pid(), "Cpus_allowed_list");
        let allowed = allowed.and_then(|list| CpuSet::parse_list(&list).ok());
        (allowed.as_ref() != Some(wanted)).then(|| wanted.to_string())
    }

    /// Starts the system in a new container and returns where clients reach it.
    fn begin(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        let context = Arc::clone(&self.context);
        let program = self.base.program(launch)?;
        let folder = self.folder();
        let at = At { context: &context, folder: &folder };
        let planned = self.write_journal(&at)?;
        let volume = self.make_storage(&at, &planned)?;

        let namespace = self.engine.namespace();
        let bridge = matches!(self.layers.network, Network::Bridge { .. });
        let address =
            context.client().link(context.journal(), context.slot().number(), Some(&namespace))?;
        let port = netns::within(&namespace, || match launch.port {
            Some(port) if !bridge => network::must_be_free(port),
            _ => network::free_port(address),
        })??;
        let published = SocketAddrV4::new(address, port);
        let (cpuset, security_opt) =
            self.create_container(launch, &program, &planned, published)?;
        self.engine.start(&self.name)?;

        let inspected = self.engine.inspect(&self.name)?;
        let state = inspected.state.unwrap_or_default();
        let graph = inspected.graph_driver.unwrap_or_default();
        let upper = graph.data.get("UpperDir").cloned();
        let Some(pid) = pid_of(&state) else {
            return Err(self.last_words(&state).into());
        };
        let proxy = self.wire_proxy(&planned, published, &namespace)?;
        let system = self.system(pid, &inspected.id.unwrap_or_default(), proxy)?;
        self.running =
            Some(Running { system, cpuset, security_opt, inspected: None, inside: None });
        let data = match self.storage.location() {
            DataLocation::Directory => at.data(),
            DataLocation::Volume => volume.unwrap_or_default(),
            // The host reaches the data through the process alone where a driver has no upper
            // layer, or a cache of its own (fuse-overlayfs).
            DataLocation::Root => upper
                .filter(|_| MountView::root(pid).is("overlay"))
                .map(|upper| Path::new(&upper).join(rootfs::DATA.trim_start_matches('/')))
                .filter(|path| path.exists())
                .unwrap_or_else(|| format!("/proc/{pid}/root{}", rootfs::DATA).into()),
        };
        self.data.clone_from(&data);
        Ok(Endpoint { address: published.into(), data: Some(data) })
    }

    /// Journals what this start makes, and imports the image. The container's entry comes last,
    /// because a container is removed before its image.
    fn write_journal(&mut self, at: &At<'_>) -> Result<Planned, PartError> {
        let context = at.context;
        let mut entries = vec![Entry::directory(at.folder.to_path_buf())];
        let proxy = self.layers.network == (Network::Bridge { proxy: true });
        let proxy_table = proxy.then(|| format!("{}-p{}", context.prefix(), self.number));
        if let Some(table) = &proxy_table {
            // An engine in our own namespace may have another process when the entry is undone.
            let inode = |pid| process::namespace_inode(pid, "net");
            let elsewhere = inode(self.engine.pid()) != inode(std::process::id());
            let namespace = elsewhere.then(|| self.engine.namespace());
            entries.push(Entry::nft_table("ip", table.clone(), namespace));
        }
        let made = self.storage.entries(at);
        let mounted = made.contains(&Entry::mount(at.data()));
        // An engine in another mount namespace does not see our mounts.
        let (pid, path) = (self.engine.pid(), at.data());
        let mount_elsewhere = mounted && mounts::is_elsewhere(pid);
        entries.extend(made);
        entries.extend(mount_elsewhere.then_some(Entry::mount_elsewhere(path, pid)));
        let volume = self.storage.location() == DataLocation::Volume;
        let volume = volume.then(|| format!("{}-data", self.name));
        entries.extend(volume.as_ref().map(|name| {
            Entry::from(ContainerEntry::Volume {
                engine: self.engine.kind().name().into(),
                socket: self.engine.socket().into(),
                name: name.clone(),
            })
        }));
        self.entries = context.journal().write(entries)?;
        self.provide_image()?;
        let container = ContainerEntry::Container {
            engine: self.engine.kind().name().into(),
            socket: self.engine.socket().into(),
            name: self.name.clone(),
        };
        self.entries.extend(context.journal().write(vec![container.into()])?);
        Ok(Planned { proxy_table, mount_elsewhere, volume })
    }

    /// Makes the directory of the start and the storage. Returns the host's path of the volume,
    /// where the data is in one.
    fn make_storage(
        &mut self,
        at: &At<'_>,
        planned: &Planned,
    ) -> Result<Option<PathBuf>, PartError> {
        fs::create_dir_all(at.folder)
            .map_err(|source| DockerError::File { path: at.folder.to_path_buf(), source })?;
        self.storage.make(at)?;
        // Volumes and container roots exist only after the engine has started the system.
        if self.storage.location() == DataLocation::Directory {
            self.initial_data.put(&at.data())?;
        }
        if planned.mount_elsewhere {
            let (path, pid) = (at.data(), self.engine.pid());
            mounts::show_to(pid, &path).map_err(|source| storage::StorageError::Show {
                path,
                pid,
                source,
            })?;
        }
        let volume = planned.volume.as_ref().map(|name| self.engine.create_volume(name));
        Ok(volume.transpose()?)
    }

    /// Creates the container. Returns the request's `cpuset_cpus` and `security_opt`.
    fn create_container(
        &mut self,
        launch: &Launch,
        program: &Program,
        planned: &Planned,
        published: SocketAddrV4,
    ) -> Result<(String, Vec<String>), PartError> {
        let context = Arc::clone(&self.context);
        let folder = self.folder();
        let data = match (&planned.volume, self.storage.location()) {
            (Some(name), _) => request::Data::Volume(name),
            (None, DataLocation::Root) => request::Data::Root,
            (None, _) => request::Data::Bind(At { context: &context, folder: &folder }.data()),
        };
        let inner = launch.port.unwrap_or(PORT);
        let listen = match self.layers.network {
            Network::Bridge { .. } => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, inner),
            Network::Host => published,
        };
        let image_config = self.base.config();
        let cpuset = self.cpuset();
        let request = Request {
            kind: self.engine.kind(),
            image: &self.base.image(&context),
            program: (!matches!(self.base, Base::Program)).then(|| context.program()),
            read_only: !self.writes_root(),
            port: inner,
            run: context.run(),
            environment: &self.spec.name,
            runtime: self.runtime.as_deref(),
            layers: &self.layers,
            cpuset: cpuset.clone(),
            published,
            data: &data,
            arguments: system::arguments(launch, listen, rootfs::DATA, program, image_config),
            files: &program.files,
            seccomp: self.seccomp(&folder)?,
        };
        let body = request.body();
        let security_opt = body.host_config.as_ref().and_then(|host| host.security_opt.clone());
        self.config = Some(request::shown(&body, self.layers.security));
        self.engine.create(&self.name, body)?;
        Ok((cpuset.unwrap_or_default(), security_opt.unwrap_or_default()))
    }

    /// The pid of the engine's userland proxy behind a bridge, and the client's packets sent to it
    /// where the layer is `bridge+proxy`.
    fn wire_proxy(
        &self,
        planned: &Planned,
        published: SocketAddrV4,
        namespace: &Path,
    ) -> Result<Option<u32>, PartError> {
        let proxy = match self.layers.network {
            Network::Bridge { .. } => engine::userland_proxy(namespace, published.port()),
            Network::Host => None,
        };
        if let Some(table) = &planned.proxy_table {
            if proxy.is_none() {
                let (environment, engine) = (self.spec.name.clone(), self.engine.kind().name());
                return Err(DockerError::NoProxy { environment, engine }.into());
            }
            lead_to_proxy(table, published, namespace)?;
        }
        Ok(proxy)
    }

    /// The container's processes, by its first process and its id, which names its cgroup.
    fn system(&self, pid: u32, id: &str, proxy: Option<u32>) -> Result<System, PartError> {
        let cgroups = self.context.cgroups();
        let paths = cgroups.of_process(Path::new("/proc"), &pid.to_string())?;
        let group = paths.into_iter().find(|(_, path)| !id.is_empty() && path.contains(id));
        let group = group.map(|(_, path)| cgroups.group(&path));
        let mut system = System::new(pid, group, proxy, &self.layers);
        if self.sandbox.is_some() {
            let gofers = gvisor::gofers(&system.pids());
            gofers.into_iter().for_each(|pid| system.add_server(Some((gvisor::GOFER, pid))));
        }
        Ok(system)
    }

    /// Whether the root file system can be written inside.
    fn writes_root(&self) -> bool {
        self.base.config().is_some() || self.storage.location() == DataLocation::Root
    }

    /// Whether the host cannot look into it: its process and mount tables are another kernel's.
    fn is_hidden(&self) -> bool {
        self.is_gvisor() || self.runtime.as_deref().is_some_and(kata::is_kata)
    }

    fn is_gvisor(&self) -> bool {
        self.sandbox.is_some()
    }

    /// The image's entry, when no other container of this engine was made from it.
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

/// Maps connections to the published port to the very port, before the engine's chain (priority
/// -100) maps them to the container: a connection is mapped once (nf_nat_inet_fn in the kernel's
/// net/netfilter/nf_nat_core.c), so it stays here and meets the userland proxy.
fn lead_to_proxy(table: &str, to: SocketAddrV4, namespace: &Path) -> Result<(), DockerError> {
    let (address, port) = (to.ip(), to.port());
    let text = format!(
        "table ip {table} {{\n  chain prerouting {{\n    \
         type nat hook prerouting priority -110; policy accept;\n    \
         ip daddr {address} tcp dport {port} dnat to {address}:{port}\n  }}\n}}\n"
    );
    let command = Command::new("nft").args(["-f", "-"]).input(text).in_namespace(namespace);
    command.run().map(drop).map_err(DockerError::Table)
}

impl Environment for Container {
    fn spec(&self) -> &EnvironmentSpec {
        &self.spec
    }

    fn start_from(&mut self, data: &Rc<dyn DataSnapshot>) {
        self.initial_data.set(data);
    }

    fn restored(&self) -> Option<RestoreStats> {
        self.initial_data.restored()
    }

    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        self.stop()?;
        let started = self.begin(launch);
        started.map_err(|error| {
            // A container that ended while it was being read is the reason, and its words tell
            // more.
            let error = self.ended().map_or(error, Into::into);
            // What is left is in the journal.
            let _ = self.stop();
            error
        })
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        self.read_layers()
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.running()?;
        match self.is_gvisor() {
            true => Ok(self.engine.pause(&self.name)?),
            false => Ok(process::stop(&self.running()?.system.pids(), STOP_LIMIT)?),
        }
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.running()?;
        match self.is_gvisor() {
            true => Ok(self.engine.unpause(&self.name)?),
            false => Ok(process::resume(&self.running()?.system.pids())?),
        }
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        self.running()?.system.usage()
    }

    fn processes(&mut self) -> Processes {
        self.running.as_ref().map(|running| running.system.processes()).unwrap_or_default()
    }

    fn config(&self) -> Option<String> {
        self.config.clone()
    }

    fn log_tail(&self) -> String {
        self.engine.log_tail(&self.name).unwrap_or_default().trim_end().to_string()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        if self.entries.is_empty() {
            return Ok(());
        }
        if let Some(running) = self.running.take() {
            // A paused container would wait for its end for ever; one that runs is refused, no
            // error.
            if self.is_gvisor() {
                let _ = self.engine.unpause(&self.name);
            }
            // Faster than the engine, which asks first. What has ended already is no error.
            let _ = process::kill(&running.system.pids(), contract::KILL_LIMIT)?;
        }
        self.entries.extend(self.image_to_drop());
        Ok(contract::undo(&self.context, &self.spec.name, &mut self.entries)?)
    }
}

impl Container {
    /// That the process ended, with its code and what it printed last.
    fn last_words(&self, state: &ContainerState) -> DockerError {
        let environment = self.spec.name.clone();
        let code = state.exit_code.unwrap_or(-1);
        DockerError::Ended { environment, code, log: self.log_tail() }
    }

    /// What became of a container whose process has ended, once the engine has noticed it.
    fn ended(&self) -> Option<DockerError> {
        let deadline = Instant::now() + ENDED_LIMIT;
        loop {
            let state = self.engine.inspect(&self.name).ok()?.state?;
            match pid_of(&state) {
                // Made, but never started: the first error says why.
                None if state.started_at.as_ref().is_none_or(|time| time.starts_with("0001-")) => {
                    return None;
                }
                None => return Some(self.last_words(&state)),
                Some(pid) => {
                    let alive =
                        ProcessHandle::open(pid).is_some_and(|process| !process.has_ended());
                    if alive || Instant::now() > deadline {
                        return None;
                    }
                    thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }
}

/// The container's first process; `None` when it does not run.
fn pid_of(state: &ContainerState) -> Option<u32> {
    state.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0)
}

impl Drop for Container {
    fn drop(&mut self) {
        // Whoever wants to know calls `stop`; the journal keeps what is left.
        let _ = self.stop();
    }
}
