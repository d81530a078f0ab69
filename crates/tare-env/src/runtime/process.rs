//! The runtime without isolation: the static program as an ordinary process of the host, in a
//! cgroup of its own or not. The baseline of most studies.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::rc::Rc;
use std::sync::Arc;

use tare_host::exec::Command;
use tare_host::journal::{Entry, EntryId};
use tare_host::{RUN_VARIABLE, process};
use tare_lab::PartError;
use tare_lab::environment::{
    DataSnapshot, Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes,
    RestoreStats, Usage,
};

use super::contract::{self, Argument, Runtime};
use crate::layer::inject::Relay;
use crate::layer::network::SystemNetwork;
use crate::layer::{self, Layers, inject};
use crate::run_context::RunContext;
use crate::storage::{self, At, InitialData, MountView, Storage};
use crate::system::{self, System};
use tare_lab::layer::Cpu;

pub const RUNTIME: Runtime = Runtime {
    name: "process",
    help: "the static program as a process of the host",
    argument: Argument::None,
    options: &[("security", "only none: a plain process has no seccomp filter")],
    needs: |_| Ok(()),
    cleanup: "the process and its children are killed, its directory removed",
    read_back: "/proc/PID/ns/pid is the host's and its parent is Tare",
    found: || vec!["process".into()],
    make,
};

/// Holds the program back until it is in its cgroups. `$0` is the program, `$@` its arguments.
pub(super) const GATE: &str = "read -r go && exec \"$0\" \"$@\" </dev/null";

/// Why a process could not be made an environment.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("cannot make {}", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot start the system in environment {environment:?}")]
    Start { environment: String, source: io::Error },
    #[error("environment {environment:?} is not started")]
    NotStarted { environment: String },
    #[error("process {pid} of environment {environment:?} does not end when killed")]
    Unkillable { environment: String, pid: u32 },
}

fn make(
    context: &Arc<RunContext>,
    spec: EnvironmentSpec,
    layers: Layers,
    _argument: Option<&str>,
) -> Result<Box<dyn Environment>, PartError> {
    let context = Arc::clone(context);
    let storage = storage::parse(&spec)?;
    Ok(Box::new(Process {
        context,
        spec,
        layers,
        storage,
        initial_data: InitialData::default(),
        number: 0,
        entries: Vec::new(),
        log: String::new(),
        running: None,
    }))
}

struct Process {
    context: Arc<RunContext>,
    spec: EnvironmentSpec,
    layers: Layers,
    storage: Box<dyn Storage>,
    initial_data: InitialData,
    /// Of the last start.
    number: u32,
    entries: Vec<EntryId>,
    /// What the last system printed last.
    log: String,
    running: Option<Running>,
}

struct Running {
    child: Child,
    system: System,
    network: SystemNetwork,
    relay: Option<Relay>,
}

impl Process {
    fn folder(&self) -> PathBuf {
        self.context.work().join(format!("e{}", self.number))
    }

    fn system(&mut self) -> Result<&mut System, ProcessError> {
        let environment = self.spec.name.clone();
        let running = self.running.as_mut();
        Ok(&mut running.ok_or(ProcessError::NotStarted { environment })?.system)
    }

    fn begin(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        let context = Arc::clone(&self.context);
        let program = system::program(launch)?;
        self.number = context.next_environment();
        let folder = self.folder();
        let own = self.layers.cgroup == layer::Cgroup::Own;
        let group = format!("{}/e{}", context.prefix(), self.number);
        let group = own.then(|| context.cgroups().group(&group));

        let mut entries = vec![Entry::directory(folder.clone())];
        let (network_entries, router) =
            SystemNetwork::plan(&context, self.layers.network, self.number)?;
        let at = At { context: &context, folder: &folder };
        entries.extend(self.storage.entries(&at));
        entries.extend(network_entries);
        entries.extend(group.iter().map(|group| context.cgroups().entry(group.name())));
        self.entries = context.journal().write(entries)?;

        fs::create_dir(&folder)
            .map_err(|source| ProcessError::Directory { path: folder.clone(), source })?;
        self.storage.make(&at)?;
        let data = at.data();
        self.initial_data.put(&data)?;
        let network = SystemNetwork::make(&context, self.layers.network, router, launch.port)?;
        if let Some(group) = &group {
            group.make_folders()?;
            match self.layers.cpu {
                Cpu::Pinned => group.set_cpuset(&context.cpus().system)?,
                Cpu::Quota(cpus) => group.set_quota(cpus)?,
                Cpu::Shared => {}
            }
            if let Some(cpus) = self.layers.inject.quota_cpus(context.cpus()) {
                group.set_quota(cpus)?;
            }
            if let Some(bytes) = self.layers.memory_bytes {
                group.set_memory(bytes)?;
            }
        }

        let cpus = self.layers.cpu.set(context.cpus());
        let launch = inject::launch(self.layers.inject, launch)?;
        let path = at.path_inside(&*self.storage, &data);
        let words = system::arguments(&launch, network.addresses(), &path, &program, None);
        let mut command = match own {
            true => Command::new("/bin/sh").args(["-c", GATE]).arg(context.program()),
            false => Command::new(context.program()),
        };
        command = command.args(words).variable(RUN_VARIABLE, context.run()).on_cpus(cpus);
        if let Some(namespace) = &network.namespace {
            command = command.in_namespace(namespace);
        }
        let start = |source| ProcessError::Start { environment: self.spec.name.clone(), source };
        let relay = match self.layers.inject.delay {
            Some(delay) => Some(Relay::start(&context, network.listen, delay)?),
            None => None,
        };
        let [out, err] = self.logs().map(File::create);
        let stdin = if own { Stdio::piped() } else { Stdio::null() };
        let (out, err) = (out.map_err(start)?, err.map_err(start)?);
        let child = command.spawn(stdin, out.into(), err.into())?;
        let proxy = network.router.as_ref().and_then(|router| router.proxy_pid());
        let proxy = proxy.or(relay.as_ref().map(Relay::pid));
        let system = System::new(child.id(), group.clone(), proxy, &self.layers);
        let address = relay.as_ref().map_or(network.address, |relay| relay.address().into());
        let endpoint = Endpoint { address, data: Some(data) };
        // From here on `stop` ends the process, also when one of the next steps fails.
        let running = self.running.insert(Running { child, system, network, relay });
        if let Some(group) = group {
            let pid = running.child.id();
            group.add(pid)?;
            // Entering a cpuset may have widened the affinity (kernels before 6.2).
            process::pin(pid, cpus)?;
            let gate = running.child.stdin.take();
            gate.map_or(Ok(()), |mut gate| gate.write_all(b"go\n")).map_err(start)?;
        }
        Ok(endpoint)
    }

    fn logs(&self) -> [PathBuf; 2] {
        ["stdout", "stderr"].map(|name| self.folder().join(name))
    }
}

impl Environment for Process {
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
        let (layers, spec) = (self.layers.clone(), self.spec.clone());
        let plan = self.context.cpus().clone();
        let pid = self.system()?.pid;
        let at = At { context: &self.context, folder: &self.folder() };
        let seen = MountView::of(pid, &at.data(), &at.data());
        let storage = storage::state(&spec, self.storage.read_back(&at, &seen));
        let system = self.system()?;
        let parent = process::status_field(pid, "PPid").unwrap_or_default();
        let inside = process::namespace_inode(pid, "pid");
        let host = process::namespace_inode(std::process::id(), "pid");
        let found = format!("pid {pid}, parent {parent}, in the pid namespace of the host");
        let in_force = inside == host && parent == std::process::id().to_string();
        let seccomp = system.read_seccomp();
        let found_seccomp = seccomp.map_or("unreadable".into(), |mode| format!("Seccomp: {mode}"));
        // 2 is a filter: only the injected one may be there.
        let filtered = if layers.inject.filter.is_some() { 2 } else { 0 };
        let mut states = vec![
            system::state("runtime", &spec.runtime, found, in_force),
            system.read_network(&layers),
            system.read_cpu(&layers, &plan),
            system::state("security", spec.security, found_seccomp, seccomp == Some(filtered)),
            system.read_cgroup(&layers),
            storage,
        ];
        states.extend(system.read_memory(&layers));
        states.extend(inject::read_back(layers.inject, system, &plan));
        Ok(states)
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.system()?.freeze()
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.system()?.thaw()
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        self.system()?.usage()
    }

    fn processes(&mut self) -> Processes {
        self.running.as_ref().map(|running| running.system.processes()).unwrap_or_default()
    }

    fn config(&self) -> Option<String> {
        None
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
        let environment = || self.spec.name.clone();
        if let Some(mut running) = self.running.take() {
            // On cgroup v1 a frozen process cannot be killed. One that is gone cannot be thawed.
            let _ = running.system.thaw();
            let alive = process::kill(&running.system.pids(), contract::KILL_LIMIT)?;
            if let Some(pid) = alive.first() {
                let pid = *pid;
                return Err(ProcessError::Unkillable { environment: environment(), pid }.into());
            }
            running.child.kill()?;
            running.child.wait()?;
            if let Some(router) = &mut running.network.router {
                router.end_proxy()?;
            }
            if let Some(mut relay) = running.relay.take() {
                relay.end()?;
            }
        }
        Ok(contract::undo(&self.context, &self.spec.name, &mut self.entries)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Whoever wants to know calls `stop`; the journal keeps what is left.
        let _ = self.stop();
    }
}
