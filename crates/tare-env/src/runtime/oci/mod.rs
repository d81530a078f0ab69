//! OCI runtimes: runc, crun, runsc and any other that supports `create`, `start`, `state` and
//! `delete`. containerd, which creates the same containers through its shims, is another engine
//! here (`engine`). Tare writes the bundle and creates the network itself, so each layer can be
//! switched alone.
//!
//! Method: `create` leaves the container's first process waiting. Tare then sets its CPUs, and with
//! `cgroup = "none"` moves it out of its cgroups, before the system's first instruction. With
//! `none` the runtime still creates a cgroup; Tare moves the processes from it to Tare's own cgroup
//! and removes it. No runtime can do without one, and this works with all of them.
//!
//! Limits: crun up to 1.8 refuses hybrid cgroups; it is started in a mount namespace where the v2
//! tree is unmounted. `runtime::gvisor` describes the differences of gVisor.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tare_host::journal::Entry;
use tare_host::process;
use tare_lab::PartError;
use tare_lab::environment::{Endpoint, Environment, EnvironmentSpec, Launch, LayerState};
use tare_std::cpus::CpuSet;

use super::bundle;
use super::contract::{self, Argument, Runtime};
use super::gvisor::{self, SandboxView};
use super::host_environment::{Common, HostEnvironment, HostRuntime};
use super::kata;
use crate::groups::Groups;
use crate::layer::confinement::{self, Confined};
use crate::layer::limits::Link;
use crate::layer::network::SystemNetwork;
use crate::layer::{self, Layers, limits, rootfs, security};
use crate::outcome_cache;
use crate::rootfs::{Root, Source, overlay};
use crate::run_context::RunContext;
use crate::storage::{self, At, MountView};
use crate::system::{self, System};
use crate::unavailable::Unavailable;

mod engine;
mod program;

pub(super) use engine::{Creation, Engine, Place};
use program::Program;

pub use super::bundle::BundleError;

pub const RUNTIME: Runtime = Runtime {
    name: "oci",
    help: "a container that Tare creates with an OCI runtime: runc, crun, runsc, youki ...",
    argument: Argument::Required("RUNTIME, a program on PATH or an absolute path"),
    options: &[("sandbox", "options of gVisor (oci:runsc): platform, network, directfs")],
    needs,
    cleanup: "processes killed, the runtime's delete, cgroup and directory removed",
    read_back: "the runtime's state; the pid namespace of the system's process",
    found: || {
        let names = ["runc", "crun", "runsc", "youki"].into_iter();
        names
            .filter(|name| gvisor::find(name).is_some())
            .map(|name| format!("oci:{name}"))
            .collect()
    },
    make,
};

/// Why a container could not be created or ended.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    #[error("cannot create {}", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{runtime} left no process id in {}", .path.display())]
    NoPid { runtime: String, path: PathBuf },
    #[error("cannot try gVisor's platform {platform}")]
    Trial { platform: &'static str, source: io::Error },
    #[error("gVisor's platform {platform} does not work on this host: {why}")]
    Platform { platform: &'static str, why: String },
    #[error("cannot set the CPUs of process {pid}")]
    Pin { pid: u32, source: io::Error },
    #[error("processes {pids:?} of environment {environment:?} do not end after SIGKILL")]
    Unkillable { environment: String, pids: Vec<u32> },
}

fn needs(argument: Option<&str>) -> Result<(), Unavailable> {
    let program = argument.unwrap_or_default();
    if gvisor::find(program).is_some() {
        return match kata::is_kata(program) {
            true => kata::needs_oci(program),
            false => Ok(()),
        };
    }
    let remedy = match program {
        "runc" | "crun" => format!("apt-get install {program}"),
        "runsc" => gvisor::REMEDY.into(),
        _ => "put it on PATH or give its absolute path".into(),
    };
    Err(Unavailable {
        what: format!("oci:{program}"),
        why: format!("there is no program {program}"),
        remedy,
    })
}

fn make(
    context: &Arc<RunContext>,
    spec: EnvironmentSpec,
    layers: Layers,
    argument: Option<&str>,
) -> Result<Box<dyn Environment>, PartError> {
    let program = argument.unwrap_or_default().to_string();
    let runsc = gvisor::is_gvisor(&program).then(|| gvisor::find(&program)).flatten();
    let cgroups = context.cgroups();
    let engine =
        |flags: Vec<String>| Box::new(Program::new(&program, cgroups, flags)) as Box<dyn Engine>;
    environment(context, (spec, layers), &program, runsc, engine)
}

/// Returns an environment whose containers an engine creates. `program` names the OCI runtime, or
/// the engine's shim of it; `runsc` is gVisor's program, if it is gVisor. `engine` gets the flags
/// of `runsc`.
pub(super) fn environment(
    context: &Arc<RunContext>,
    (spec, layers): (EnvironmentSpec, Layers),
    program: &str,
    runsc: Option<PathBuf>,
    engine: impl FnOnce(Vec<String>) -> Box<dyn Engine>,
) -> Result<Box<dyn Environment>, PartError> {
    let common = Common::new(context, spec, layers)?;
    let sandbox = match gvisor::is_gvisor(program) {
        true => Some(gvisor::Options::parse(&common.spec, &common.layers)?),
        false => None,
    };
    let root = match Source::parse(&common.spec)? {
        Some(source) => Some(context.roots().provide(&source)?),
        None => None,
    };
    let writes_root = writes_root(&common, root.as_ref());
    let mappable = !writes_root && common.storage.node().is_none();
    confinement::check_data(&common.spec, mappable)?;
    let flags = sandbox.iter().flat_map(|options| options.flags(writes_root)).collect();
    let (program, engine) = (program.to_string(), engine(flags));
    let oci = Oci { common, sandbox, root, program, runsc, engine, config: None, running: None };
    Ok(Box::new(HostEnvironment(oci)))
}

/// Returns whether the root file system is writable inside.
fn writes_root(common: &Common, root: Option<&Root>) -> bool {
    let image = root.is_some_and(|root| root.config.is_some());
    image || common.storage.location() == storage::DataLocation::Root
}

/// Pins the processes of a container, and moves them out of the runtime's cgroups if they have none
/// of their own.
fn place(
    context: &RunContext,
    groups: &Groups,
    pids: &[u32],
    cpus: &CpuSet,
) -> Result<(), PartError> {
    for pid in pids.iter().copied() {
        if groups.own().is_none() {
            context.cgroups().move_to_ours(pid)?;
            groups.add(pid)?;
        }
        // Entering a cpuset may have widened the affinity (kernels before 6.2).
        process::pin(pid, cpus).map_err(|source| OciError::Pin { pid, source })?;
    }
    Ok(())
}

struct Oci {
    common: Common,
    /// gVisor's options, if the runtime is gVisor.
    sandbox: Option<gvisor::Options>,
    /// The root file system, unless it is empty but for mount points.
    root: Option<Root>,
    /// The OCI runtime, or the engine's shim of it.
    program: String,
    /// gVisor's program, if it is gVisor.
    runsc: Option<PathBuf>,
    engine: Box<dyn Engine>,
    config: Option<String>,
    running: Option<Running>,
}

struct Running {
    system: System,
    network: SystemNetwork,
    /// The link, if the network is limited.
    link: Option<Link>,
    /// The container's state as the runtime reports it. Read once, because each query starts a
    /// process.
    state: Option<String>,
    /// What a process sees in gVisor's sandbox, or why that cannot be read. Read once.
    inside: Option<Result<SandboxView, String>>,
}

impl Oci {
    fn place(&self) -> Place<'_> {
        let id = format!("{}-e{}", self.common.context.prefix(), self.common.number);
        Place { context: &self.common.context, folder: self.common.folder(), id }
    }

    fn writes_root(&self) -> bool {
        writes_root(&self.common, self.root.as_ref())
    }

    /// Returns whether another kernel than the host's has the processes and mounts of the system.
    fn is_hidden(&self) -> bool {
        self.sandbox.is_some() || kata::is_kata(&self.program)
    }

    /// Creates the container and returns its first process, which waits.
    fn create(&self, cpus: &CpuSet, nodes: Option<&CpuSet>) -> Result<u32, PartError> {
        // Two files: gVisor reopens its outputs, so one would overwrite the other in a shared file.
        let logs = self.common.logs();
        let open = |path: &PathBuf| {
            let file = File::options().read(true).append(true).create(true).open(path);
            file.map_err(|source| OciError::Directory { path: path.clone(), source })
        };
        let outputs = [open(&logs[0])?, open(&logs[1])?];
        let [out, err] = &logs;
        let config = self.config.as_deref().unwrap_or_default();
        let how = Creation { config, outputs, logs: [out, err], cpus, nodes };
        self.engine.create(&self.place(), how)
    }

    /// Checks that a platform other than the default does not hang.
    fn try_platform(&self, folder: &Path) -> Result<(), OciError> {
        let Some(platform) = self.sandbox.map(|options| options.platform) else { return Ok(()) };
        if platform == gvisor::Platform::Systrap {
            return Ok(());
        }
        let Some(program) = &self.runsc else { return Ok(()) };
        let cache = Path::new(outcome_cache::FOLDER);
        let here = gvisor::PlatformTrial { cache, folder, run: self.common.context.run() };
        let word = platform.word();
        let outcome = here
            .outcome(program, platform)
            .map_err(|source| OciError::Trial { platform: word, source })?;
        match outcome.usable {
            true => Ok(()),
            false => Err(OciError::Platform { platform: word, why: outcome.detail }),
        }
    }

    /// Reads what a process sees in a sandbox or a guest. Returns `None` if there is neither.
    fn read_inside(&self) -> Option<Result<SandboxView, String>> {
        self.is_hidden().then(|| {
            let words = [rootfs::PROGRAM, gvisor::inside::COMMAND];
            let output = self.engine.exec(&self.place(), &words)?;
            SandboxView::parse(&output).ok_or_else(|| format!("the program printed {output:?}"))
        })
    }

    fn read_security(&self, system: &System) -> LayerState {
        let wanted = self.common.spec.security;
        let mode = system.read_seccomp();
        let found = mode.map_or("unreadable".into(), |mode| format!("Seccomp: {mode}"));
        // gVisor's sandbox always filters itself; the filter inside counts.
        let in_force = self.is_hidden() || mode == Some(security::status_mode(wanted));
        system::state("security", wanted, found, in_force)
    }

    /// Returns the storage of the data, as seen from inside if that can be read.
    fn read_storage(&self, system: &System) -> LayerState {
        let at = At { context: &self.common.context, folder: &self.common.folder() };
        let data = self.common.storage.data(&at);
        let seen = match self.is_hidden() {
            true => MountView::from_host(&at.in_root(self.common.storage.location(), &data)),
            false => MountView::of(system.pid, Path::new(rootfs::DATA), &data),
        };
        storage::state(&self.common.spec, self.common.storage.read_back(&at, &seen))
    }

    fn read_rootfs(&self, system: &System) -> LayerState {
        let writable = self.writes_root();
        let wanted = if writable { "writable" } else { "read-only" };
        let read_only = rootfs::root_is_read_only(&system.mount_table());
        let found = match read_only {
            Some(true) => "read-only",
            Some(false) => "writable",
            None => "unreadable",
        };
        system::state("rootfs", wanted, found.into(), read_only == Some(!writable))
    }

    /// Returns the source of the root file system, and whether it is a layer of the mounted one.
    fn read_made_of(&self) -> Option<LayerState> {
        let root = self.root.as_ref()?;
        let layers = overlay::layers(root, &self.common.folder());
        let mounted = overlay::is_mounted(&layers);
        let found = match mounted {
            true => root.text.clone(),
            false => format!("no mount has {layers}"),
        };
        Some(system::state("rootfs.made_of", &self.common.spec.rootfs, found, mounted))
    }
}

impl HostRuntime for Oci {
    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    fn system(&mut self) -> Option<&mut System> {
        self.running.as_mut().map(|running| &mut running.system)
    }

    fn network(&mut self) -> Option<&mut SystemNetwork> {
        self.running.as_mut().map(|running| &mut running.network)
    }

    fn begin(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        let context = Arc::clone(&self.common.context);
        let program = system::program_in(launch, self.root.as_ref())?;
        self.common.number = context.next_environment();
        let Place { folder, id, .. } = self.place();
        let groups = Groups::plan(&context, self.common.number, self.common.layers.cgroup);
        let group = groups.of_runtime(&context);
        let name = group.name().to_string();

        let (layer, number) = (self.common.layers.network, self.common.number);
        let (network_entries, router) = SystemNetwork::plan(&context, layer, number, launch.port)?;
        let mut entries = vec![Entry::directory(folder.clone())];
        let at = At { context: &context, folder: &folder };
        entries.extend(self.root.iter().map(|_| Entry::mount(folder.join("rootfs"))));
        entries.extend(self.common.storage.entries(&at));
        entries.extend(network_entries);
        let confinement = self.common.layers.confinement;
        entries.extend(confinement::entries(&context, self.common.number, confinement));
        entries.push(self.engine.entry(&self.place()));
        // Undone before the container, because a frozen process cannot be killed.
        entries.push(groups.entry());
        entries.extend(groups.own().is_none().then(|| context.cgroups().entry(&name)));
        self.engine.prepare(&context)?;
        self.common.entries = context.journal().write(entries)?;

        // The root comes before the storage, which may be mounted over it.
        bundle::write_root(&folder, &program.files)?;
        self.root.as_ref().map_or(Ok(()), |root| overlay::mount_at(root, &folder))?;
        self.common.storage.make(&at)?;
        let (location, data) = (self.common.storage.location(), self.common.storage.data(&at));
        self.common.initial_data.put(&at.in_root(location, &data))?;
        let confinement = self.common.layers.confinement;
        let confined = Confined::make(&context, self.common.number, confinement)?;
        let shown = match location {
            storage::DataLocation::Directory => Some(confined.data(&folder, data.clone())?),
            _ => None,
        };
        let network = SystemNetwork::make(&context, layer, router, launch.port)?;
        let link = network.limited(&context, &self.common.layers.limits)?;
        let nodes =
            context.memory_nodes(self.common.layers.cpu, self.common.layers.confinement.node);
        let contents = bundle::Contents {
            id: &id,
            run: context.run(),
            program: context.program(),
            data: shown.as_deref(),
            device: self.common.storage.node().and_then(|_| storage::number_of(&data)),
            arguments: system::arguments(
                launch,
                network.addresses(),
                &at.path_inside(&*self.common.storage, Path::new(rootfs::DATA)),
                &program,
                self.root.as_ref().and_then(|root| root.config.as_ref()),
            ),
            files: &program.files,
            path: if self.root.is_some() { rootfs::PATH } else { "/" },
            read_only: !self.writes_root(),
            cgroup: &name,
            network: network.namespace.as_deref(),
            cpus: context.cpus(),
            nodes: nodes.clone(),
            kernel: bundle::kernel(),
            profile: confined.profile(),
        };
        self.config = Some(bundle::write(&folder, &contents, &self.common.layers)?);

        self.try_platform(&folder)?;
        match groups.own() {
            Some(_) => groups.make_parent()?,
            None => groups.make()?,
        }
        let cpus = self.common.layers.cpu.set(context.cpus());
        let own = self.common.layers.cgroup == layer::Cgroup::Own;
        let pid = self.create(&cpus, nodes.as_ref().filter(|_| !own))?;
        let gofers = self.sandbox.map(|_| gvisor::gofers(&group.pids())).unwrap_or_default();
        let proxy = network.router.as_ref().and_then(|router| router.proxy_pid());
        let mut system = System::new(pid, own.then(|| group.clone()), proxy, &self.common.layers);
        system.add_server(self.common.storage.server(&at));
        gofers.into_iter().for_each(|pid| system.add_server(Some((gvisor::GOFER, pid))));
        if !own {
            // gVisor's gofer is not a child of the first process.
            system.others = group.pids().into_iter().filter(|other| *other != pid).collect();
        }
        let roots = system.pids();
        let disk = storage::disk_path(&*self.common.storage, &at.in_root(location, &data));
        // gVisor's sentry has a network stack of its own in the namespace.
        let inside = self.sandbox.is_none().then(|| process::network_namespace(pid));
        let endpoint = Endpoint { address: network.address, data: Some(data), inside };
        self.running = Some(Running { system, network, link, state: None, inside: None });
        groups.own().map_or(Ok(()), |own| limits::apply(own, &self.common.layers, &disk))?;
        place(&context, &groups, &roots, &cpus)?;
        if !own {
            group.remove_empty();
        }
        self.engine.start(&self.place())?;
        Ok(endpoint)
    }

    fn read_layers(&mut self) -> Result<Vec<LayerState>, PartError> {
        let pid = self.started()?.pid;
        if self.running.as_ref().is_some_and(|running| running.state.is_none()) {
            let state = self.engine.state(&self.place(), pid);
            let inside = self.read_inside();
            if let Some(running) = &mut self.running {
                (running.state, running.inside) = (Some(state), inside);
            }
        }
        let network = self.read_network()?;
        let (layers, spec, plan) =
            (&self.common.layers, &self.common.spec, self.common.context.cpus());
        let Some(running) = &self.running else { return Err(self.common.not_started().into()) };
        let system = &running.system;
        let status = running.state.clone().unwrap_or_default();
        let inside = process::namespace_inode(pid, "pid");
        let host = process::namespace_inode(std::process::id(), "pid");
        let apart = inside.is_some() && inside != host;
        let pid_namespace =
            if apart { "its own pid namespace" } else { "the host's pid namespace" };
        let name = self.engine.name();
        let found = format!("{name} reports {status}; process {pid} in {pid_namespace}");
        // The process of a guest is its monitor, which has the host's.
        let apart = apart || kata::is_kata(&self.program);
        // crun reports a container that has left its cgroup as stopped.
        let runs = status == "running" || layers.cgroup == layer::Cgroup::None;
        let mut states = vec![
            system::state("runtime", &spec.runtime, found, apart && runs),
            network,
            system.read_cpu(layers, plan),
            self.read_security(system),
            system.read_cgroup(layers),
            system.read_weight(&self.common.context, layers),
            self.read_rootfs(system),
            self.read_storage(system),
        ];
        states.extend(self.read_made_of());
        let at = At { context: &self.common.context, folder: &self.common.folder() };
        let data = at.in_root(self.common.storage.location(), &self.common.storage.data(&at));
        let disk = storage::disk_path(&*self.common.storage, &data);
        states.extend(limits::read(system.group.as_ref(), layers, &disk, running.link.as_ref()));
        states.extend(system.read_confinement(layers));
        if let Some(inside) = &running.inside {
            let filter = self.sandbox.map(|_| system.read_seccomp().unwrap_or_default());
            gvisor::read_inside(&mut states, inside, filter);
        }
        if let Some(options) = self.sandbox {
            states.extend(gvisor::read_options(pid, options, |_| true));
        }
        if kata::is_kata(&self.program) {
            states.extend(kata::states(&self.program));
        }
        Ok(states)
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.started()?;
        // `gvisor` explains why its processes are not frozen.
        match self.sandbox {
            Some(_) => self.engine.pause(&self.place()),
            None => self.started()?.freeze(),
        }
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.started()?;
        match self.sandbox {
            Some(_) => self.engine.resume(&self.place()),
            None => self.started()?.thaw(),
        }
    }

    fn config(&self) -> Option<String> {
        self.config.clone()
    }

    fn end(&mut self) -> Result<(), PartError> {
        if let Some(mut running) = self.running.take() {
            // The rules let the clients see the end of their connections, which the kernel would
            // keep in its table for days.
            let _ = running.network.publish(&self.common.context);
            // On cgroup v1 a frozen process cannot be killed. Thawing an ended process fails.
            let _ = running.system.thaw();
            let pids = process::kill(&running.system.pids(), contract::KILL_LIMIT)?;
            if !pids.is_empty() {
                let environment = self.common.spec.name.clone();
                return Err(OciError::Unkillable { environment, pids }.into());
            }
            running.network.withdraw(&self.common.context)?;
            if let Some(router) = &mut running.network.router {
                router.end_proxy()?;
            }
        }
        Ok(())
    }
}
