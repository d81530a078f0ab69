//! The runtime without isolation: the static program as an ordinary process of the host, with or
//! without its own cgroup. It is the baseline of most studies.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use tare_host::exec::Command;
use tare_host::journal::Entry;
use tare_host::memory_policy::PAGES_VARIABLE;
use tare_host::{RUN_VARIABLE, process};
use tare_lab::PartError;
use tare_lab::environment::{Endpoint, Environment, EnvironmentSpec, Launch, LayerState};

use super::contract::{self, Argument, Runtime};
use super::host_environment::{Common, HostEnvironment, HostRuntime};
use crate::groups::Groups;
use crate::layer::confinement::{self, Confined, huge_pages};
use crate::layer::inject::Relay;
use crate::layer::limits::Link;
use crate::layer::network::SystemNetwork;
use crate::layer::{Layers, inject, limits};
use crate::run_context::RunContext;
use crate::storage::{self, At, MountView};
use crate::system::{self, System};
use crate::unavailable::Unavailable;

pub const RUNTIME: Runtime = Runtime {
    name: "process",
    help: "the static program as a process of the host",
    argument: Argument::None,
    options: &[("security", "only none: a plain process has no seccomp filter")],
    needs: |_| needs_shell(),
    cleanup: "the process and its children are killed, its directory removed",
    read_back: "/proc/PID/ns/pid is the host's and its parent is Tare",
    found: || vec!["process".into()],
    make,
};

/// Delays the program until it is in its cgroups, and starts it in a session of its own, as a
/// container is, if the host has `setsid` (util-linux). `$0` is the program, `$@` its arguments.
pub(super) const GATE: &str =
    "own=$(command -v setsid); read -r go && exec $own \"$0\" \"$@\" </dev/null";

/// The shell that runs [`GATE`].
const SHELL: &str = "/bin/sh";

/// Some nodes of clusters have no shell.
fn needs_shell() -> Result<(), Unavailable> {
    match Path::new(SHELL).is_file() {
        true => Ok(()),
        false => Err(Unavailable {
            what: "process".into(),
            why: format!("it is started by {SHELL}, which this host does not have"),
            remedy: "take containers or pods, also as the baseline".into(),
        }),
    }
}

/// Why a process environment failed.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("cannot create {}", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot start the system in environment {environment:?}")]
    Start { environment: String, source: io::Error },
    #[error("process {pid} of environment {environment:?} does not end after SIGKILL")]
    Unkillable { environment: String, pid: u32 },
}

fn make(
    context: &Arc<RunContext>,
    spec: EnvironmentSpec,
    layers: Layers,
    _argument: Option<&str>,
) -> Result<Box<dyn Environment>, PartError> {
    let common = Common::new(context, spec, layers)?;
    confinement::check_data(&common.spec, common.storage.node().is_none())?;
    Ok(Box::new(HostEnvironment(Process { common, running: None })))
}

struct Process {
    common: Common,
    running: Option<Running>,
}

struct Running {
    child: Child,
    system: System,
    network: SystemNetwork,
    relay: Option<Relay>,
    /// The link, if the network is limited.
    link: Option<Link>,
    /// The user namespace and the profile, which exist while it runs.
    confined: Confined,
}

impl HostRuntime for Process {
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
        let program = system::program(launch)?;
        self.common.number = context.next_environment();
        let folder = self.common.folder();
        let groups = Groups::plan(&context, self.common.number, self.common.layers.cgroup);

        let mut entries = vec![Entry::directory(folder.clone())];
        let (layer, number) = (self.common.layers.network, self.common.number);
        let (network_entries, router) = SystemNetwork::plan(&context, layer, number, launch.port)?;
        let at = At { context: &context, folder: &folder };
        entries.extend(self.common.storage.entries(&at));
        entries.extend(network_entries);
        let confinement = self.common.layers.confinement;
        entries.extend(confinement::entries(&context, number, confinement));
        entries.push(groups.entry());
        self.common.entries = context.journal().write(entries)?;

        fs::create_dir(&folder)
            .map_err(|source| ProcessError::Directory { path: folder.clone(), source })?;
        self.common.storage.make(&at)?;
        let data = at.data();
        self.common.initial_data.put(&data)?;
        let network = SystemNetwork::make(&context, layer, router, launch.port)?;
        groups.make()?;
        let nodes =
            context.memory_nodes(self.common.layers.cpu, self.common.layers.confinement.node);
        if let Some(group) = groups.own() {
            let disk = storage::disk_path(&*self.common.storage, &data);
            limits::confine(group, &self.common.layers, &context)?;
            limits::apply(group, &self.common.layers, &disk)?;
        }
        let link = network.limited(&context, &self.common.layers.limits)?;

        let cpus = self.common.layers.cpu.set(context.cpus());
        let launch = inject::launch(self.common.layers.inject, launch)?;
        let confinement = self.common.layers.confinement;
        let confined = Confined::make(&context, self.common.number, confinement)?;
        let shown = confined.data(&folder, data.clone())?;
        let path = at.path_inside(&*self.common.storage, &shown);
        let words = system::arguments(&launch, network.addresses(), &path, &program, None);
        let mut command = Command::new(SHELL).args(["-c", GATE]).args(confined.words());
        command = command.arg(context.program());
        if let Some(pages) = huge_pages::variable(confinement.pages) {
            command = command.variable(PAGES_VARIABLE, pages);
        }
        command = command.args(words).variable(RUN_VARIABLE, context.run()).on_cpus(&cpus);
        if let Some(namespace) = &network.namespace {
            command = command.in_namespace(namespace);
        }
        if let (Some(nodes), None) = (&nodes, groups.own()) {
            command = command.on_nodes(nodes);
        }
        let start =
            |source| ProcessError::Start { environment: self.common.spec.name.clone(), source };
        let relay = match self.common.layers.inject.delay {
            Some(delay) => Some(Relay::start(&context, network.listen, delay)?),
            None => None,
        };
        let [out, err] = self.common.logs().map(File::create);
        let (out, err) = (out.map_err(start)?, err.map_err(start)?);
        let child = command.spawn(Stdio::piped(), out.into(), err.into())?;
        let proxy = network.router.as_ref().and_then(|router| router.proxy_pid());
        let proxy = proxy.or(relay.as_ref().map(Relay::pid));
        let system = System::new(child.id(), groups.own().cloned(), proxy, &self.common.layers);
        let address = relay.as_ref().map_or(network.address, |relay| relay.address().into());
        let inside = Some(process::network_namespace(child.id()));
        let endpoint = Endpoint { address, data: Some(data), inside };
        // From here on `stop` ends the process, even if one of the next steps fails.
        let running =
            self.running.insert(Running { child, system, network, relay, link, confined });
        let pid = running.child.id();
        groups.add(pid)?;
        // Entering a cpuset may have widened the affinity (kernels before 6.2).
        process::pin(pid, &cpus)?;
        let gate = running.child.stdin.take();
        gate.map_or(Ok(()), |mut gate| gate.write_all(b"go\n")).map_err(start)?;
        Ok(endpoint)
    }

    fn read_layers(&mut self) -> Result<Vec<LayerState>, PartError> {
        let (layers, spec) = (self.common.layers.clone(), self.common.spec.clone());
        let context = Arc::clone(&self.common.context);
        let plan = context.cpus().clone();
        let pid = self.started()?.pid;
        let at = At { context: &self.common.context, folder: &self.common.folder() };
        let data = at.data();
        let running = self.running.as_ref();
        let shown = running.map(|running| running.confined.shown(&self.common.folder(), &data));
        let seen = MountView::of(pid, shown.as_deref().unwrap_or(&data), &data);
        let storage = storage::state(&spec, self.common.storage.read_back(&at, &seen));
        let network = self.read_network()?;
        let system = self.started()?;
        let parent = process::status_field(pid, "PPid").unwrap_or_default();
        let inside = process::namespace_inode(pid, "pid");
        let host = process::namespace_inode(std::process::id(), "pid");
        let found = format!("pid {pid}, parent {parent}, in the pid namespace of the host");
        let in_force = inside == host && parent == std::process::id().to_string();
        let seccomp = system.read_seccomp();
        let found_seccomp = seccomp.map_or("unreadable".into(), |mode| format!("Seccomp: {mode}"));
        // 2 means a filter: only the injected one is allowed.
        let filtered = if layers.inject.filter.is_some() { 2 } else { 0 };
        let mut states = vec![
            system::state("runtime", &spec.runtime, found, in_force),
            network,
            system.read_cpu(&layers, &plan),
            system::state("security", spec.security, found_seccomp, seccomp == Some(filtered)),
            system.read_cgroup(&layers),
            system.read_weight(&context, &layers),
            storage,
        ];
        states.extend(system.read_inject(&layers, &plan));
        let disk = storage::disk_path(&*self.common.storage, &data);
        let running = self.running.as_ref();
        let link = running.and_then(|running| running.link.as_ref());
        let group = running.and_then(|running| running.system.group.as_ref());
        states.extend(limits::read(group, &layers, &disk, link));
        states.extend(
            running.map(|running| running.system.read_confinement(&layers)).unwrap_or_default(),
        );
        Ok(states)
    }

    fn end(&mut self) -> Result<(), PartError> {
        let environment = || self.common.spec.name.clone();
        if let Some(mut running) = self.running.take() {
            // The rules let the clients see the end of their connections, which the kernel would
            // keep in its table for days.
            let _ = running.network.publish(&self.common.context);
            // On cgroup v1 a frozen process cannot be killed. Thawing an ended process fails.
            let _ = running.system.thaw();
            let alive = process::kill(&running.system.pids(), contract::KILL_LIMIT)?;
            if let Some(pid) = alive.first() {
                let pid = *pid;
                return Err(ProcessError::Unkillable { environment: environment(), pid }.into());
            }
            running.child.kill()?;
            running.child.wait()?;
            running.network.withdraw(&self.common.context)?;
            if let Some(router) = &mut running.network.router {
                router.end_proxy()?;
            }
            if let Some(mut relay) = running.relay.take() {
                relay.stop()?;
            }
        }
        Ok(())
    }
}
