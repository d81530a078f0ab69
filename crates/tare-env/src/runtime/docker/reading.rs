//! Reading back: what the engine says of a container, and what the host's /proc says of its process.
//! A layer is in force when both say so.

use std::path::Path;

use tare_host::process;
use tare_lab::PartError;
use tare_lab::environment::LayerState;
use tare_lab::layer::Network;

use super::Container;
use super::base::Base;
use super::engine::Kind;
use crate::layer::{rootfs, security};
use crate::runtime::gvisor::{self, Inside};
use crate::runtime::kata;
use crate::storage::{self, At, Place, Seen};
use crate::system;

/// What an engine says of a running container.
#[derive(Clone)]
pub(super) struct Told {
    /// Name and version.
    engine: String,
    /// Whether it is the process that we look at.
    same_process: bool,
    runtime: String,
    /// Whether that is the runtime that was asked for.
    runtime_as_asked: bool,
    network_mode: String,
    cpuset: String,
    security_opt: Vec<String>,
    driver: String,
    /// The image that the container was made from, by its id.
    image: String,
    /// The id of the image that it was to be made from.
    image_asked: String,
}

impl Container {
    /// Reads every layer back.
    pub(super) fn read_layers(&mut self) -> Result<Vec<LayerState>, PartError> {
        let pid = self.running()?.system.pid;
        let told = match self.running()?.told.clone() {
            Some(told) => told,
            None => self.ask_engine(pid)?,
        };
        self.running()?.told = Some(told.clone());
        if let (true, None) = (self.is_hidden(), &self.running()?.inside) {
            self.running()?.inside = Some(self.look_inside());
        }
        let (layers, spec) = (self.layers.clone(), self.spec.clone());
        let plan = self.ground.cpus().clone();
        let (hidden, options) = (self.is_hidden(), self.sandbox);
        let (writes_root, made_of) = (self.writes_root(), self.base.text());
        let kata = self.runtime.clone().filter(|name| kata::is_kata(name));
        let at = At { ground: &self.ground, folder: &self.folder() };
        let in_root = self.storage.place() == Place::Root;
        let seen = match hidden {
            true => Seen::from_host(&self.data),
            false => Seen::of(pid, Path::new(rootfs::DATA), &self.data),
        };
        let mut storage = storage::state(&spec, self.storage.read_back(&at, &seen));
        if in_root {
            storage.found += &format!("; the engine's driver: {}", told.driver);
        }
        let engine_ns = process::namespace_inode(self.engine.pid(), "net");
        let running = self.running()?;
        let system = &running.system;

        let name = process::name(pid).unwrap_or_default();
        let found = format!("{}, runtime {}, process {pid} ({name})", told.engine, told.runtime);
        let in_force = told.same_process && told.runtime_as_asked && !name.is_empty();
        let mut states = vec![system::state("runtime", &spec.runtime, found, in_force)];

        let inode = process::namespace_inode(pid, "net");
        let apart = inode != engine_ns && told.network_mode != "host";
        let in_force = inode.is_some()
            && match layers.network {
                Network::Host => inode == engine_ns && told.network_mode == "host",
                Network::Bridge { proxy: false } => apart,
                Network::Bridge { proxy: true } => {
                    apart && system.proxy.is_some_and(|proxy| process::name(proxy).is_some())
                }
            };
        let number = |inode: Option<u64>| inode.map_or("unreadable".into(), |n| n.to_string());
        let found = format!(
            "network mode {}, net:[{}], the engine's is net:[{}]",
            told.network_mode,
            number(inode),
            number(engine_ns)
        );
        states.push(system::state("network", &spec.network, found, in_force));

        let mut cpu = system.read_cpu(&layers, &plan);
        cpu.in_force &= told.cpuset == running.cpuset;
        cpu.found += &format!("; the engine's cpuset: {:?}", told.cpuset);
        states.push(cpu);

        let seccomp = system.read_seccomp();
        let as_asked = told.security_opt == running.security_opt;
        let filtered = seccomp == Some(security::status_mode(spec.security));
        let found = format!(
            "Seccomp: {}; the engine {} the profile that it was given",
            seccomp.map_or("unreadable".into(), |mode| mode.to_string()),
            if as_asked { "names" } else { "does not name" }
        );
        let in_force = as_asked && (filtered || hidden);
        states.push(system::state("security", &spec.security, found, in_force));

        let path = system.group.as_ref().map(|group| format!("/{}", group.name()));
        let in_force = path.is_some();
        let found = path.unwrap_or_else(|| "no cgroup with the container's id".into());
        states.push(system::state("cgroup", &spec.cgroup, found, in_force));

        let read_only = rootfs::root_is_read_only(&system.mount_table());
        let found = match read_only {
            Some(true) => "read-only",
            Some(false) => "writable",
            None => "unreadable",
        };
        let in_force = read_only == Some(!writes_root);
        let wanted = if writes_root { "writable" } else { "read-only" };
        states.push(system::state("rootfs", wanted, found.into(), in_force));
        if let Some(made_of) = made_of {
            let found = format!("{made_of}; the container's image is {}", told.image);
            let in_force = !told.image.is_empty() && told.image == told.image_asked;
            states.push(system::state("rootfs.made_of", &spec.rootfs, found, in_force));
        }
        states.push(storage);
        states.extend(system.read_memory(&layers));
        if let Some(inside) = &running.inside {
            gvisor::read_inside(&mut states, inside, options.map(|_| seccomp.unwrap_or_default()));
        }
        if let Some(options) = options {
            let on_host = layers.network == Network::Host;
            let asked = |name: &str| {
                spec.sandbox.iter().any(|(asked, _)| asked == name) || name == "network" && on_host
            };
            states.extend(gvisor::read_options(pid, options, asked));
        }
        states.extend(kata.iter().flat_map(|name| kata::states(name)));
        Ok(states)
    }

    /// Asks a sandbox or a guest what a process sees there.
    fn look_inside(&self) -> Result<Inside, String> {
        let words = [rootfs::PROGRAM, gvisor::inside::COMMAND];
        let said = self.engine.exec(&self.name, &words);
        let said = said.map_err(|error| tare_host::error_line(&error))?;
        Inside::parse(&said).ok_or_else(|| format!("the program printed {said:?}"))
    }

    /// Asks the engine what it says of the running container.
    fn ask_engine(&self, pid: u32) -> Result<Told, PartError> {
        let inspected = self.engine.inspect(&self.name)?;
        let host = inspected.host_config.unwrap_or_default();
        let runtime = host.runtime.unwrap_or_default();
        let runtime_as_asked = match &self.runtime {
            Some(asked) => runtime == *asked,
            // Podman does not name its own here.
            None if self.engine.kind() == Kind::Podman => true,
            None => Some(&runtime) == self.engine.runtimes()?.1.as_ref(),
        };
        Ok(Told {
            engine: self.engine.version()?,
            same_process: inspected.state.and_then(|state| state.pid) == Some(i64::from(pid)),
            runtime,
            runtime_as_asked,
            network_mode: host.network_mode.unwrap_or_default(),
            cpuset: host.cpuset_cpus.unwrap_or_default(),
            security_opt: host.security_opt.unwrap_or_default(),
            driver: self.engine.driver()?,
            image: inspected.image.unwrap_or_default(),
            image_asked: match &self.base {
                Base::Program => String::new(),
                Base::Root(_) => self.engine.image(&self.base.image(&self.ground))?.0,
                Base::Named { id, .. } => id.clone(),
            },
        })
    }
}
