//! The read-back of a container: from the engine, and from the process in the host's /proc. A layer
//! is in force if both agree.

use std::path::Path;
use std::sync::Arc;

use tare_host::process;
use tare_lab::PartError;
use tare_lab::environment::LayerState;
use tare_lab::layer::{Network, Security};

use super::Container;
use super::base::Base;
use super::engine::Kind;
use crate::layer::network::read_reach;
use crate::layer::{limits, rootfs, security};
use crate::runtime::gvisor::{self, SandboxView};
use crate::runtime::kata;
use crate::storage::{self, At, DataLocation, MountView};
use crate::system::{self, System};

/// A running container as the engine describes it.
#[derive(Clone)]
pub(super) struct InspectedContainer {
    /// Name and version.
    engine: String,
    /// Whether its process is the one that Tare reads.
    same_process: bool,
    runtime: String,
    /// Whether that is the requested runtime.
    runtime_as_requested: bool,
    network_mode: String,
    cpuset: String,
    memory_nodes: String,
    security_opt: Vec<String>,
    driver: String,
    /// The id of the container's image.
    image: String,
    /// The id of the requested image.
    image_requested: String,
}

impl InspectedContainer {
    /// Reads the network layer: the engine's network mode, and the network namespace of the
    /// process.
    fn network_state(
        &self,
        wanted: Network,
        system: &System,
        engine_inode: Option<u64>,
    ) -> LayerState {
        let inode = process::namespace_inode(system.pid, "net");
        let host_mode = self.network_mode == "host";
        let apart = inode != engine_inode && !host_mode;
        let in_force = inode.is_some()
            && match wanted {
                Network::Host => inode == engine_inode && host_mode,
                Network::Bridge { proxy: false } => apart,
                Network::Bridge { proxy: true } => {
                    apart && system.proxy.is_some_and(|proxy| process::name(proxy).is_some())
                }
                // `Layers::checked` refuses them.
                _ => false,
            };
        let number = |inode: Option<u64>| inode.map_or("unreadable".into(), |n| n.to_string());
        let (own, engine) = (number(inode), number(engine_inode));
        let mode = &self.network_mode;
        let found = format!("network mode {mode}, net:[{own}], the engine's is net:[{engine}]");
        system::state("network", wanted, found, in_force)
    }
}

/// Reads the security layer: whether the engine reports the profile of the request, and the
/// process's filter. The host cannot read the filter of a system that is `hidden` behind another
/// kernel.
fn security_state(
    wanted: Security,
    seccomp: Option<u32>,
    as_requested: bool,
    hidden: bool,
) -> LayerState {
    let filtered = seccomp == Some(security::status_mode(wanted));
    let found = format!(
        "Seccomp: {}; the engine {} the profile of the request",
        seccomp.map_or("unreadable".into(), |mode| mode.to_string()),
        if as_requested { "reports" } else { "does not report" }
    );
    system::state("security", wanted, found, as_requested && (filtered || hidden))
}

/// Reads the rootfs layer: whether the root is writable in the process's mount table.
fn rootfs_state(system: &System, writable: bool) -> LayerState {
    let read_only = rootfs::root_is_read_only(&system.mount_table());
    let found = match read_only {
        Some(true) => "read-only",
        Some(false) => "writable",
        None => "unreadable",
    };
    let wanted = if writable { "writable" } else { "read-only" };
    system::state("rootfs", wanted, found.into(), read_only == Some(!writable))
}

impl Container {
    /// Reads every layer back.
    pub(super) fn read_layers(&mut self) -> Result<Vec<LayerState>, PartError> {
        let pid = self.running()?.system.pid;
        let inspected = match self.running()?.inspected.clone() {
            Some(inspected) => inspected,
            None => self.query_engine(pid)?,
        };
        self.running()?.inspected = Some(inspected.clone());
        if let (true, None) = (self.is_hidden(), &self.running()?.inside) {
            self.running()?.inside = Some(self.read_inside());
        }
        let (layers, spec) = (self.layers.clone(), self.spec.clone());
        let context = Arc::clone(&self.context);
        let plan = context.cpus().clone();
        let (hidden, options) = (self.is_hidden(), self.sandbox);
        let (writes_root, made_of) = (self.writes_root(), self.base.text());
        let kata = self.runtime.clone().filter(|name| kata::is_kata(name));
        let at = At { context: &self.context, folder: &self.folder() };
        let in_root = self.storage.location() == DataLocation::Root;
        let seen = match hidden {
            true => MountView::from_host(&self.data),
            false => MountView::of(pid, Path::new(rootfs::DATA), &self.data),
        };
        let mut storage = storage::state(&spec, self.storage.read_back(&at, &seen));
        if in_root {
            storage.found += &format!("; the engine's driver: {}", inspected.driver);
        }
        let disk = storage::disk_path(&*self.storage, &self.data);
        let engine_ns = process::namespace_inode(self.engine.pid(), "net");
        let running = self.running()?;
        let system = &running.system;

        let name = process::name(pid).unwrap_or_default();
        let engine = format!("{}, runtime {}", inspected.engine, inspected.runtime);
        let found = format!("{engine}, process {pid} ({name})");
        let in_force = inspected.same_process && inspected.runtime_as_requested && !name.is_empty();
        let mut states = vec![system::state("runtime", &spec.runtime, found, in_force)];
        let network = inspected.network_state(layers.network, system, engine_ns);
        states.push(read_reach(&context, running.published.into(), None, network));

        let mut cpu = system.read_cpu(&layers, &plan);
        cpu.in_force &= inspected.cpuset == running.cpuset;
        cpu.found += &format!("; the engine's cpuset: {:?}", inspected.cpuset);
        let asked = layers.confinement.node;
        if let Some(nodes) = context.memory_nodes(layers.cpu, asked) {
            cpu.in_force &= inspected.memory_nodes == nodes.to_string();
            cpu.found += &format!(", memory nodes {:?}", inspected.memory_nodes);
        }
        states.push(cpu);

        let seccomp = system.read_seccomp();
        let as_requested = inspected.security_opt == running.security_opt;
        states.push(security_state(spec.security, seccomp, as_requested, hidden));
        let path = system.group.as_ref().map(|group| format!("/{}", group.name()));
        let in_force = path.is_some();
        let found = path.unwrap_or_else(|| "no cgroup with the container's id".into());
        states.push(system::state("cgroup", spec.cgroup, found, in_force));
        states.push(system.read_weight(&context, &layers));
        states.push(rootfs_state(system, writes_root));
        if let Some(made_of) = made_of {
            let found = format!("{made_of}; the container's image is {}", inspected.image);
            let in_force =
                !inspected.image.is_empty() && inspected.image == inspected.image_requested;
            states.push(system::state("rootfs.made_of", &spec.rootfs, found, in_force));
        }
        states.push(storage);
        states.extend(limits::read(system.group.as_ref(), &layers, &disk, running.link.as_ref()));
        states.extend(system.read_confinement(&layers));
        if let Some(inside) = &running.inside {
            gvisor::read_inside(&mut states, inside, options.map(|_| seccomp.unwrap_or_default()));
        }
        if let Some(options) = options {
            let on_host = layers.network == Network::Host;
            let requested = |name: &str| {
                spec.sandbox.iter().any(|(requested, _)| requested == name)
                    || name == "network" && on_host
            };
            states.extend(gvisor::read_options(pid, options, requested));
        }
        states.extend(kata.iter().flat_map(|name| kata::states(name)));
        Ok(states)
    }

    /// Reads what a process sees in a sandbox or a guest.
    fn read_inside(&self) -> Result<SandboxView, String> {
        let words = [rootfs::PROGRAM, gvisor::inside::COMMAND];
        let output = self.engine.exec(&self.name, &words);
        let output = output.map_err(|error| tare_host::error_line(&error))?;
        SandboxView::parse(&output).ok_or_else(|| format!("the program printed {output:?}"))
    }

    /// Queries the engine for the running container.
    fn query_engine(&self, pid: u32) -> Result<InspectedContainer, PartError> {
        let inspected = self.engine.inspect(&self.name)?;
        let host = inspected.host_config.unwrap_or_default();
        let runtime = host.runtime.unwrap_or_default();
        let runtime_as_requested = match &self.runtime {
            Some(requested) => runtime == *requested,
            // Podman does not report its default runtime here.
            None if self.engine.kind() == Kind::Podman => true,
            None => Some(&runtime) == self.engine.runtimes()?.1.as_ref(),
        };
        Ok(InspectedContainer {
            engine: self.engine.version()?,
            same_process: inspected.state.and_then(|state| state.pid) == Some(i64::from(pid)),
            runtime,
            runtime_as_requested,
            network_mode: host.network_mode.unwrap_or_default(),
            cpuset: host.cpuset_cpus.unwrap_or_default(),
            memory_nodes: host.cpuset_mems.unwrap_or_default(),
            security_opt: host.security_opt.unwrap_or_default(),
            driver: self.engine.driver()?,
            image: inspected.image.unwrap_or_default(),
            image_requested: match &self.base {
                Base::Program => String::new(),
                Base::Root(_) => self.engine.image(&self.base.image(&self.context))?.0,
                Base::Named { id, .. } => id.clone(),
            },
        })
    }
}
