//! OCI runtimes: runc, crun, runsc and whatever else understands `create`, `start`, `state` and
//! `delete`. Tare writes the bundle and makes the network itself, so each layer is switched alone.
//!
//! Method: `create` leaves the container's first process waiting, so that its CPUs are set, and
//! with `cgroup = "none"` its cgroups left, before the system's first instruction. With `none` the
//! runtime still makes a cgroup, from which the processes are moved to Tare's own and which is then
//! removed: no runtime can do without, and this way works with all of them.
//!
//! Limits: crun up to 1.8 refuses hybrid cgroups; it is started in a mount namespace where the v2
//! tree is unmounted. What is special about gVisor stands in `runtime::gvisor`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tare_host::cgroup::{Layout, Version};
use tare_host::exec::Command;
use tare_host::journal::{Entry, EntryId};
use tare_host::{RUN_VARIABLE, error_line, process};
use tare_lab::PartError;
use tare_lab::environment::{
    DataSnapshot, Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes,
    RestoreStats, Usage,
};

use super::contract::{self, Argument, Runtime};
use super::gvisor::{self, SandboxView};
use super::kata;
use crate::layer::network::SystemNetwork;
use crate::layer::{self, Layers, rootfs, security};
use crate::rootfs::{Root, Source, overlay};
use crate::run_context::RunContext;
use crate::storage::{self, At, InitialData, MountView, Storage};
use crate::system::{self, System};
use crate::unavailable::Unavailable;
use crate::undo::ContainerEntry;

pub(crate) mod bundle;

pub use bundle::BundleError;

pub const RUNTIME: Runtime = Runtime {
    name: "oci",
    help: "a container that Tare makes with an OCI runtime: runc, crun, runsc, youki ...",
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

/// Starts a runtime where it does not see the v2 tree of a hybrid host: `$0` is where that is
/// mounted, `$@` the runtime's command line.
const WITHOUT_UNIFIED: &str = "umount \"$0\" && exec \"$@\"";

/// How long gVisor may take to execute a program in a sandbox that is up.
const INSIDE_LIMIT: Duration = Duration::from_secs(10);

/// Why a container could not be made.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    #[error("cannot make {}", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{runtime} left no process id in {}", .path.display())]
    NoPid { runtime: String, path: PathBuf },
    #[error("cannot try gVisor's platform {platform}")]
    Trial { platform: &'static str, source: io::Error },
    #[error("gVisor's platform {platform} does not work on this host: {why}")]
    Platform { platform: &'static str, why: String },
    #[error("cannot set the CPUs of process {pid}")]
    Pin { pid: u32, source: io::Error },
    #[error("environment {environment:?} is not started")]
    NotStarted { environment: String },
    #[error("processes {pids:?} of environment {environment:?} do not end when killed")]
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
    let context = Arc::clone(context);
    let program = argument.unwrap_or_default().to_string();
    let storage = storage::parse(&spec)?;
    let sandbox = match gvisor::is_gvisor(&program) {
        true => Some(gvisor::Options::parse(&spec, &layers)?),
        false => None,
    };
    let mut command = command(&program, context.cgroups());
    let root = match Source::parse(&spec)? {
        Some(source) => Some(context.roots().provide(&source)?),
        None => None,
    };
    let image = root.as_ref().is_some_and(|root| root.config.is_some());
    let writes_root = image || storage.location() == storage::DataLocation::Root;
    command.extend(sandbox.iter().flat_map(|options| options.flags(writes_root)));
    let entries = Vec::new();
    let oci = Oci {
        context,
        spec,
        layers,
        storage,
        initial_data: InitialData::default(),
        sandbox,
        root,
        program,
        command,
        number: 0,
        entries,
        log: String::new(),
        config: None,
        running: None,
    };
    Ok(Box::new(oci))
}

/// The words before `--root`: the runtime, with what it needs around it and its own options.
fn command(program: &str, cgroups: &Layout) -> Vec<String> {
    let mut words = Vec::new();
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or(program);
    if let (true, Version::Hybrid, Some(unified)) =
        (name.contains("crun"), cgroups.version(), cgroups.unified())
    {
        let unified = unified.to_string_lossy().into_owned();
        words.extend(["unshare", "--mount", "sh", "-c", WITHOUT_UNIFIED].map(String::from));
        words.push(unified);
    }
    let found = gvisor::find(program).map(|path| path.to_string_lossy().into_owned());
    words.push(found.unwrap_or_else(|| program.into()));
    words
}

struct Oci {
    context: Arc<RunContext>,
    spec: EnvironmentSpec,
    layers: Layers,
    storage: Box<dyn Storage>,
    initial_data: InitialData,
    /// Where the runtime is gVisor.
    sandbox: Option<gvisor::Options>,
    /// What its root file system is made of besides mount points.
    root: Option<Root>,
    program: String,
    command: Vec<String>,
    /// Of the last start.
    number: u32,
    entries: Vec<EntryId>,
    /// What the last system printed last.
    log: String,
    config: Option<String>,
    running: Option<Running>,
}

struct Running {
    system: System,
    network: SystemNetwork,
    /// What the runtime said of the container, asked once: it costs a process.
    state: Option<String>,
    /// What a process sees in gVisor's sandbox, asked once, or why it cannot be.
    inside: Option<Result<SandboxView, String>>,
}

impl Oci {
    fn folder(&self) -> PathBuf {
        self.context.work().join(format!("e{}", self.number))
    }

    fn state_folder(&self) -> PathBuf {
        self.folder().join("runtime")
    }

    fn id(&self) -> String {
        format!("{}-e{}", self.context.prefix(), self.number)
    }

    /// Whether the root file system can be written inside.
    fn writes_root(&self) -> bool {
        let image = self.root.as_ref().is_some_and(|root| root.config.is_some());
        image || self.storage.location() == storage::DataLocation::Root
    }

    fn logs(&self) -> [PathBuf; 2] {
        ["stdout", "stderr"].map(|name| self.folder().join(name))
    }

    /// The runtime with its own options, ready for a verb.
    fn runtime(&self) -> Command {
        // The command is never empty: it ends with the program.
        let (program, options) = self.command.split_first().unwrap_or((&self.program, &[]));
        Command::new(program)
            .args(options)
            .arg("--root")
            .arg(self.state_folder())
            .variable(RUN_VARIABLE, self.context.run())
    }

    fn running(&mut self) -> Result<&mut Running, OciError> {
        let environment = self.spec.name.clone();
        self.running.as_mut().ok_or(OciError::NotStarted { environment })
    }

    fn begin(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        let context = Arc::clone(&self.context);
        let program = system::program_in(launch, self.root.as_ref())?;
        self.number = context.next_environment();
        let (folder, id) = (self.folder(), self.id());
        let name = format!("{}/e{}", context.prefix(), self.number);
        let group = context.cgroups().group(&name);

        let (network_entries, router) =
            SystemNetwork::plan(&context, self.layers.network, self.number)?;
        let mut entries = vec![Entry::directory(folder.clone())];
        let at = At { context: &context, folder: &folder };
        entries.extend(self.root.iter().map(|_| Entry::mount(folder.join("rootfs"))));
        entries.extend(self.storage.entries(&at));
        entries.extend(network_entries);
        let (command, root) = (self.command.clone(), self.state_folder());
        entries.push(ContainerEntry::OciContainer { command, root, id: id.clone() }.into());
        // Undone before the container: a frozen process could not be killed.
        entries.push(context.cgroups().entry(&name));
        self.entries = context.journal().write(entries)?;

        // The root is there before the storage, which may be mounted over it.
        bundle::write_root(&folder, &program.files)?;
        self.root.as_ref().map_or(Ok(()), |root| overlay::make(root, &folder))?;
        self.storage.make(&at)?;
        let (location, data) = (self.storage.location(), self.storage.data(&at));
        self.initial_data.put(&at.in_root(location, &data))?;
        let mounted = (location == storage::DataLocation::Directory).then_some(data.as_path());
        let network = SystemNetwork::make(&context, self.layers.network, router, launch.port)?;
        let contents = bundle::Contents {
            id: &id,
            run: context.run(),
            program: context.program(),
            data: mounted,
            device: self.storage.node().and_then(|_| storage::number_of(&data)),
            arguments: system::arguments(
                launch,
                network.addresses(),
                &at.path_inside(&*self.storage, Path::new(rootfs::DATA)),
                &program,
                self.root.as_ref().and_then(|root| root.config.as_ref()),
            ),
            files: &program.files,
            path: if self.root.is_some() { rootfs::PATH } else { "/" },
            read_only: !self.writes_root(),
            cgroup: &name,
            network: network.namespace.as_deref(),
            cpus: context.cpus(),
            kernel: bundle::kernel(),
        };
        self.config = Some(bundle::write(&folder, &contents, &self.layers)?);

        self.try_platform(&folder)?;
        let pid_file = folder.join("pid");
        let cpus = self.layers.cpu.set(context.cpus());
        // Two files: gVisor opens its output anew, and would write over itself in one.
        let [out, err] = self.logs().map(|path| {
            let file = File::options().read(true).append(true).create(true).open(&path);
            file.map_err(|source| OciError::Directory { path, source })
        });
        let create = self.runtime().arg("create").arg("--bundle").arg(&folder);
        let create = create.arg("--pid-file").arg(&pid_file).arg(&id);
        create.on_cpus(cpus).output_to(out?, err?).run()?;
        let pid = fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok());
        let no_pid = || OciError::NoPid { runtime: self.program.clone(), path: pid_file };
        let pid: u32 = pid.ok_or_else(no_pid)?;
        let gofers = self.sandbox.map(|_| gvisor::gofers(&group.pids())).unwrap_or_default();
        let proxy = network.router.as_ref().and_then(|router| router.proxy_pid());
        let own = self.layers.cgroup == layer::Cgroup::Own;
        let mut system = System::new(pid, own.then(|| group.clone()), proxy, &self.layers);
        system.add_server(self.storage.server(&at));
        gofers.into_iter().for_each(|pid| system.add_server(Some((gvisor::GOFER, pid))));
        if !own {
            // gVisor's gofer is no child of the first process.
            system.others = group.pids().into_iter().filter(|other| *other != pid).collect();
        }
        let roots = system.pids();
        let endpoint = Endpoint { address: network.address, data: Some(data) };
        self.running = Some(Running { system, network, state: None, inside: None });
        for pid in roots {
            if !own {
                context.cgroups().move_to_ours(pid)?;
            }
            // Entering a cpuset may have widened the affinity (kernels before 6.2).
            process::pin(pid, cpus).map_err(|source| OciError::Pin { pid, source })?;
        }
        if !own {
            group.remove_empty();
        }
        self.runtime().args(["start", &id]).run()?;
        Ok(endpoint)
    }

    /// Makes sure that a platform other than the default does not hang.
    fn try_platform(&self, folder: &Path) -> Result<(), OciError> {
        let Some(platform) = self.sandbox.map(|options| options.platform) else { return Ok(()) };
        if platform == gvisor::Platform::Systrap {
            return Ok(());
        }
        let Some(program) = gvisor::find(&self.program) else { return Ok(()) };
        // The work directory of a run lies in the state directory.
        let state = self.context.work().parent().unwrap_or(Path::new("/"));
        let here = gvisor::PlatformTrial { state, folder, run: self.context.run() };
        let word = platform.word();
        let outcome = here
            .outcome(&program, platform)
            .map_err(|source| OciError::Trial { platform: word, source })?;
        match outcome.usable {
            true => Ok(()),
            false => Err(OciError::Platform { platform: word, why: outcome.detail }),
        }
    }

    /// What the runtime says of the container: `running`, and the same process.
    fn state(&self, pid: u32) -> String {
        match self.runtime().args(["state", &self.id()]).run() {
            Ok(output) => {
                let state: serde_json::Value =
                    serde_json::from_str(&output.stdout).unwrap_or_default();
                let status = state["status"].as_str().unwrap_or("unreadable");
                match state["pid"].as_u64() == Some(pid.into()) {
                    true => status.to_string(),
                    false => format!("{status}, but as process {}", state["pid"]),
                }
            }
            Err(error) => error.to_string(),
        }
    }

    /// Asks the sandbox, where there is one.
    fn look_inside(&self) -> Option<Result<SandboxView, String>> {
        self.sandbox?;
        let exec = self.runtime().args(["exec", &self.id(), rootfs::PROGRAM]);
        let said = exec.arg(gvisor::inside::COMMAND).time_limit(INSIDE_LIMIT).run();
        Some(said.map_err(|error| error_line(&error)).and_then(|output| {
            SandboxView::parse(&output.stdout)
                .ok_or_else(|| format!("the program printed {:?}", output.stdout))
        }))
    }

    fn read_security(&self, system: &System) -> LayerState {
        let wanted = self.spec.security;
        let mode = system.read_seccomp();
        let found = mode.map_or("unreadable".into(), |mode| format!("Seccomp: {mode}"));
        // gVisor's sandbox filters itself, whatever was asked; what is inside counts.
        let in_force = self.sandbox.is_some() || mode == Some(security::status_mode(wanted));
        system::state("security", wanted, found, in_force)
    }

    /// What the data lies on, from inside where that can be read.
    fn read_storage(&self, system: &System) -> LayerState {
        let at = At { context: &self.context, folder: &self.folder() };
        let data = self.storage.data(&at);
        let seen = match self.sandbox.is_some() {
            true => MountView::from_host(&at.in_root(self.storage.location(), &data)),
            false => MountView::of(system.pid, Path::new(rootfs::DATA), &data),
        };
        storage::state(&self.spec, self.storage.read_back(&at, &seen))
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

    /// What the root file system is made of, and that it is below what was mounted.
    fn read_made_of(&self) -> Option<LayerState> {
        let root = self.root.as_ref()?;
        let layers = overlay::layers(root, &self.folder());
        let mounted = overlay::is_mounted(&layers);
        let found = match mounted {
            true => root.text.clone(),
            false => format!("no mount has {layers}"),
        };
        Some(system::state("rootfs.made_of", &self.spec.rootfs, found, mounted))
    }
}

impl Environment for Oci {
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
        if started.is_err() {
            // The first error is the one that tells; what is left is in the journal.
            let _ = self.stop();
        }
        started
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        let running = self.running()?;
        let pid = running.system.pid;
        if running.state.is_none() {
            let (state, inside) = (self.state(pid), self.look_inside());
            let running = self.running()?;
            (running.state, running.inside) = (Some(state), inside);
        }
        let (layers, spec, plan) = (&self.layers, &self.spec, self.context.cpus());
        let environment = || spec.name.clone();
        let running = self.running.as_ref();
        let running = running.ok_or_else(|| OciError::NotStarted { environment: environment() })?;
        let system = &running.system;
        let said = running.state.clone().unwrap_or_default();
        let inside = process::namespace_inode(pid, "pid");
        let host = process::namespace_inode(std::process::id(), "pid");
        let apart = inside.is_some() && inside != host;
        let pid_namespace =
            if apart { "a pid namespace of its own" } else { "the host's pid namespace" };
        let found = format!("{} says {said}; process {pid} in {pid_namespace}", self.program);
        // crun takes a container that has left its cgroup for stopped.
        let runs = said == "running" || layers.cgroup == layer::Cgroup::None;
        let mut states = vec![
            system::state("runtime", &spec.runtime, found, apart && runs),
            system.read_network(layers),
            system.read_cpu(layers, plan),
            self.read_security(system),
            system.read_cgroup(layers),
            self.read_rootfs(system),
            self.read_storage(system),
        ];
        states.extend(self.read_made_of());
        states.extend(system.read_memory(layers));
        if let (Some(options), Some(inside)) = (self.sandbox, &running.inside) {
            let filter = system.read_seccomp().unwrap_or_default();
            gvisor::read_inside(&mut states, inside, Some(filter));
            states.extend(gvisor::read_options(pid, options, |_| true));
        }
        if kata::is_kata(&self.program) {
            states.extend(kata::states(&self.program));
        }
        Ok(states)
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.running()?;
        // Why its processes are not frozen stands in `gvisor`.
        match self.sandbox {
            Some(_) => Ok(self.runtime().args(["pause", &self.id()]).run().map(drop)?),
            None => self.running()?.system.freeze(),
        }
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.running()?;
        match self.sandbox {
            Some(_) => Ok(self.runtime().args(["resume", &self.id()]).run().map(drop)?),
            None => self.running()?.system.thaw(),
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
        let logs = self.logs();
        match self.entries.is_empty() {
            true => self.log.clone(),
            false => system::log_tail(&[&logs[0], &logs[1]]),
        }
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.log = self.log_tail();
        if let Some(mut running) = self.running.take() {
            // On cgroup v1 a frozen process cannot be killed. One that is gone cannot be thawed.
            let _ = running.system.thaw();
            let pids = process::kill(&running.system.pids(), contract::KILL_LIMIT)?;
            if !pids.is_empty() {
                let environment = self.spec.name.clone();
                return Err(OciError::Unkillable { environment, pids }.into());
            }
            if let Some(router) = &mut running.network.router {
                router.end_proxy()?;
            }
        }
        Ok(contract::undo(&self.context, &self.spec.name, &mut self.entries)?)
    }
}

impl Drop for Oci {
    fn drop(&mut self) {
        // Whoever wants to know calls `stop`; the journal keeps what is left.
        let _ = self.stop();
    }
}
