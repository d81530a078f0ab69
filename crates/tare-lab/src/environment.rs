//! The trait of environments: the stack of isolation layers in which a system runs.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::PartError;
use crate::attach::Attach;
use crate::layer::{
    Cgroup, Confinement, Cpu, Host, Inject, Layer, Neighbour, Network, Rootfs, Runtime, Security,
    Sidecar, neighbours_text,
};

use crate::own_accounts::{BusyTime, OwnCounts};

pub use crate::cpus::CpuPlan;
pub use crate::layer::Limits;

/// One environment of a study after `extends` is resolved: every layer has a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnvironmentSpec {
    /// Name, unique in the study.
    pub name: String,
    /// `process`, `oci:runc`, `docker`, `docker:runsc`, ...
    pub runtime: Runtime,
    /// Set if the system runs already. The layers are then read, and have defaults here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<Attach>,
    pub network: Network,
    pub cpu: Cpu,
    pub security: Security,
    /// Capabilities, user namespace, AppArmor profile, huge pages and NUMA node.
    #[serde(default, skip_serializing_if = "Confinement::is_default")]
    pub confinement: Confinement,
    pub cgroup: Cgroup,
    /// The host around the environment while it runs.
    #[serde(default, skip_serializing_if = "Host::is_as_is")]
    pub host: Host,
    /// The storage of the system's data.
    #[serde(default, skip_serializing_if = "StorageSpec::is_directory")]
    pub storage: StorageSpec,
    /// Options of a virtual machine (`vcpus`, `memory`, ...) as (name, value). Empty: the defaults,
    /// or another runtime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vm: Vec<(String, String)>,
    /// Options of gVisor (`platform`, `network`, ...) as (name, value). Empty: the defaults, or
    /// another runtime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox: Vec<(String, String)>,
    /// The source of a container's root file system.
    #[serde(default, skip_serializing_if = "Rootfs::is_none")]
    pub rootfs: Rootfs,
    /// Options of the system in this environment as (name, value), which replace those of the
    /// study's system. Empty: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub system: Vec<(String, String)>,
    /// A known cost, injected to test Tare itself.
    #[serde(default, skip_serializing_if = "Inject::is_nothing")]
    pub inject: Inject,
    pub limits: Limits,
    /// How many instances of the system it runs; `None`: as many as the system's options say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<u32>,
    /// Other programs that run while the environment runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<Neighbour>,
    /// The second container in the pod of the system.
    #[serde(default, skip_serializing_if = "Sidecar::is_none")]
    pub sidecar: Sidecar,
    /// Whether a host that cannot run the environment leaves it out, with a doubt.
    #[serde(default)]
    pub optional: bool,
}

/// The option of a system that says how many instances there are.
pub const INSTANCES: &str = "instances";

impl EnvironmentSpec {
    /// Returns the options that replace those of the study's system here, the number of instances
    /// included.
    pub fn system_options(&self) -> Vec<(String, String)> {
        let instances = self.instances.map(|count| (INSTANCES.to_string(), count.to_string()));
        self.system.iter().cloned().chain(instances).collect()
    }

    /// Returns whether it is a pod of a Kubernetes cluster.
    pub fn is_pod(&self) -> bool {
        self.runtime.kind() == "kubernetes"
    }

    /// Returns whether it is a pod with an address of its own.
    pub fn has_pod_network(&self) -> bool {
        self.is_pod() && self.network != Network::Host
    }
}

/// The layers of an environment, one by one.
impl Layer {
    /// Returns an environment's value of this layer as text. Two environments differ in a layer if
    /// and only if these texts differ.
    pub fn text(self, spec: &EnvironmentSpec) -> String {
        // Without `..`: a new field does not compile until it has a layer here.
        let EnvironmentSpec {
            name: _,
            runtime,
            attach,
            network,
            cpu,
            security,
            confinement,
            cgroup,
            host,
            storage,
            vm,
            sandbox,
            rootfs,
            system,
            inject,
            limits,
            instances,
            neighbours,
            sidecar,
            optional: _,
        } = spec;
        if let Some(attach) = attach {
            return match self {
                Self::Runtime => attach.to_string(),
                _ => AS_FOUND.into(),
            };
        }
        match self {
            Self::Runtime => runtime.to_string(),
            Self::Network => network.to_string(),
            Self::Cpu => cpu.to_string(),
            Self::Security => security.to_string(),
            Self::Capabilities => confinement.capabilities.to_string(),
            Self::User => confinement.user.to_string(),
            Self::Apparmor => confinement.apparmor.to_string(),
            Self::Pages => confinement.pages.to_string(),
            Self::Node => confinement.node_text(),
            Self::Cgroup => cgroup.to_string(),
            Self::Host => host.to_string(),
            Self::Storage => storage.to_string(),
            Self::Vm => options_text(vm),
            Self::Sandbox => options_text(sandbox),
            Self::Rootfs => rootfs.to_string(),
            Self::System => options_text(system),
            Self::Inject => inject.to_string(),
            Self::Limits => limits.to_string(),
            Self::Instances => instances.map_or("as the system".into(), |count| count.to_string()),
            Self::Neighbours => neighbours_text(neighbours),
            Self::Sidecar => sidecar.to_string(),
        }
    }

    /// Copies the value of this layer from one environment to another.
    pub fn copy(self, from: &EnvironmentSpec, to: &mut EnvironmentSpec) {
        match self {
            Self::Runtime => {
                to.runtime.clone_from(&from.runtime);
                to.attach.clone_from(&from.attach);
            }
            Self::Network => to.network = from.network,
            Self::Cpu => to.cpu = from.cpu,
            Self::Security => to.security = from.security,
            Self::Capabilities => to.confinement.capabilities = from.confinement.capabilities,
            Self::User => to.confinement.user = from.confinement.user,
            Self::Apparmor => to.confinement.apparmor = from.confinement.apparmor,
            Self::Pages => to.confinement.pages = from.confinement.pages,
            Self::Node => to.confinement.node = from.confinement.node,
            Self::Cgroup => to.cgroup = from.cgroup,
            Self::Host => to.host.clone_from(&from.host),
            Self::Storage => to.storage.clone_from(&from.storage),
            Self::Vm => to.vm.clone_from(&from.vm),
            Self::Sandbox => to.sandbox.clone_from(&from.sandbox),
            Self::Rootfs => to.rootfs.clone_from(&from.rootfs),
            Self::System => to.system.clone_from(&from.system),
            Self::Inject => to.inject = from.inject,
            Self::Limits => to.limits = from.limits,
            Self::Instances => to.instances = from.instances,
            Self::Neighbours => to.neighbours.clone_from(&from.neighbours),
            Self::Sidecar => to.sidecar = from.sidecar,
        }
    }

    /// Returns whether two environments differ in this layer.
    pub fn differs(self, one: &EnvironmentSpec, other: &EnvironmentSpec) -> bool {
        self.text(one) != self.text(other)
    }
}

/// The wanted value of every layer of an attached system.
pub const AS_FOUND: &str = "as found";

/// The kind of storage that is a directory in Tare's own work directory.
pub const DIRECTORY: &str = "directory";

/// Name of the layer state that holds a virtual machine's accelerator, followed by a colon and the
/// reason: `kvm`; `tcg`, which emulates the CPU; or `uml`, a kernel in user mode, which runs
/// instructions on the CPU but intercepts every system call.
pub const ACCELERATOR: &str = "accelerator";

/// Section of the host facts about a guest in which Tare ran the whole study: its kernel and its
/// accelerator.
pub const INSIDE: &str = "inside";

/// Name of the layer state that records how an environment received its data, and where that is
/// from after a semicolon.
pub const DATA_LAYER: &str = "data";

/// The storage of the system's data: a kind and its options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageSpec {
    /// `directory`, `ext4`, `xfs`, ...
    pub kind: String,
    /// Options as (name, value), such as (`size`, `2G`), in the order in which the study has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<(String, String)>,
}

impl StorageSpec {
    /// Returns whether it is a directory in Tare's own work directory, without options.
    pub fn is_directory(&self) -> bool {
        self.kind == DIRECTORY && self.options.is_empty()
    }
}

impl Default for StorageSpec {
    fn default() -> Self {
        Self { kind: DIRECTORY.to_string(), options: Vec::new() }
    }
}

impl fmt::Display for StorageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if self.options.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", options_text(&self.options))
    }
}

/// Formats options as `vcpus = 2, memory = 1G`.
pub fn options_text(options: &[(String, String)]) -> String {
    let pairs: Vec<String> =
        options.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    pairs.join(", ")
}

/// The command that an environment runs: the Tare binary itself, with these arguments.
///
/// In `arguments` the environment replaces these names, as seen from inside: `{listen}` by the
/// address to listen on, `{port}` by the port, `{data}` by the data directory, `{program}` by the
/// path of `program`, and `{beside}` by the directory of that path. `{advertised}` becomes the
/// address for clients, as far as it is known before the start; `{node}` the address for the other
/// instances of the environment, unique in its network, on which this instance listens;
/// `{advertised_node}` the one at which they reach it; `{node_port}` the port of both; and
/// `{seeds}` the `{advertised_node}` addresses of all instances, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    pub arguments: Vec<String>,
    /// The program that the Tare binary starts inside the environment.
    pub program: Option<HostProgram>,
    /// True: start the command of the environment's image. `{image}` in `arguments` becomes the
    /// object `config` of the OCI image configuration, as JSON.
    pub from_image: bool,
    /// The port on which the system listens, if it is fixed.
    pub port: Option<u16>,
}

/// A program of the host. Every environment mounts it, its loader and its libraries inside,
/// read-only, at their paths on the host. An environment with its own root file system takes the
/// program of that name from there, and mounts only `named`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostProgram {
    /// A name on PATH, or an absolute path.
    pub name: String,
    /// Files, or directories of files, that the program opens at run time, such as plug-ins.
    pub files: Vec<PathBuf>,
    /// Directories of its installation, mounted whole.
    pub folders: Vec<PathBuf>,
    /// Directories that the study names, mounted whole wherever the program comes from.
    pub named: Vec<PathBuf>,
}

/// The address and the data of a started instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address as the client reaches it.
    pub address: SocketAddr,
    /// The system's data directory as the host sees it; `None` if the host cannot see it.
    pub data: Option<PathBuf>,
    /// The network namespace of the system's process, such as `/proc/PID/ns/net`; `None` if the
    /// host cannot enter it, or the system has another network stack than the kernel's in it.
    pub inside: Option<PathBuf>,
}

/// Saved data from which systems can start. `tare-system` has the implementations.
pub trait DataSnapshot: fmt::Debug {
    /// Returns the directory of the saved files, to which nothing writes.
    fn folder(&self) -> &Path;

    /// Returns what [`System::open_data`] needs to know of the files in another directory.
    ///
    /// [`System::open_data`]: crate::system::System::open_data
    fn description(&self) -> String {
        String::new()
    }

    /// Restores the data into an existing, empty directory of the host. One system owns the copy.
    fn restore(&self, to: &Path) -> Result<RestoreStats, PartError>;
}

/// The size and time of one restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreStats {
    /// Bytes of files shared by hard links.
    pub linked_bytes: u64,
    /// Bytes of files shared by reflinks.
    pub cloned_bytes: u64,
    /// Bytes of files copied.
    pub copied_bytes: u64,
    pub took: Duration,
}

/// The caller requested several instances from an environment that runs only one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment {environment:?} runs one instance of a system, not {asked}")]
pub struct SingleInstanceOnly {
    pub environment: String,
    pub asked: usize,
}

/// One layer as requested and as read back, from inside the environment and from the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerState {
    /// `runtime`, `network`, `cpu`, `security`, `cgroup`, `limits.memory`, `io_engine`, ...
    pub layer: String,
    pub wanted: String,
    /// The value read back, as its source words it (`Cpus_allowed_list: 1`).
    pub found: String,
    pub in_force: bool,
}

/// CPU time and throttling of an environment since its start. Only differences are meaningful.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of all threads of the system in the environment, in ns.
    pub system_cpu_ns: u64,
    /// CPU time of processes that the layer adds: (`userland proxy`, ns), (`gofer`, ns).
    pub layer_cpu_ns: Vec<(String, u64)>,
    /// Time that the CPU quota throttled the environment, in ns, which the kernel sums over its
    /// CPUs (`unthrottle_cfs_rq` in kernel/sched/fair.c). It is the mean of several instances, and
    /// `None` without a quota.
    pub throttled_ns: Option<u64>,
    /// CPU time of each instance, if there are several on one host, in ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instance_cpu_ns: Vec<u64>,
    /// CPU time of each neighbour, in ns, in the order of the environment's neighbours. It is in no
    /// other account.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbour_cpu_ns: Vec<u64>,
    /// The accounts of each host, if the instances run on several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeUsage>,
}

/// The accounts of one host of an environment on several hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUsage {
    /// CPU time of all threads of the instance there, in ns.
    pub system_cpu_ns: u64,
    /// The system's own accounts, if it has them.
    pub busy: Option<BusyTime>,
    pub counts: Option<OwnCounts>,
    /// The most that this reading is later than those of the other hosts, in ns.
    pub late_ns: u64,
}

/// The host's process ids of a running environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// Processes of the system (with a sentry: of the sandbox), the first started one first.
    pub system: Vec<u32>,
    /// Processes that the layer adds, such as a userland proxy.
    pub layer: Vec<u32>,
}

/// What a system detected and chose, as (name, value).
pub type SystemSettings = Vec<(String, String)>;

/// Runs a system inside a stack of layers. `tare-env` has the implementations, one file per
/// runtime.
///
/// Teardown (`stop`) is idempotent and runs on failure and signal. After `kill -9` the host's
/// journal undoes what is left.
pub trait Environment {
    fn spec(&self) -> &EnvironmentSpec;

    /// Makes all later starts restore this data. An environment whose storage the host cannot
    /// write ignores it; `restored` then returns `None`.
    fn start_from(&mut self, _data: &Rc<dyn DataSnapshot>) {}

    /// Returns how the last start restored its data, or `None` if it started empty and needs a
    /// load.
    fn restored(&self) -> Option<RestoreStats> {
        None
    }

    /// Creates the environment, after a journal entry, and starts the system in it. Returns once
    /// the process runs; the caller waits until it answers.
    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError>;

    /// Starts several instances of a system, each with its share of the layers' limits. All other
    /// methods treat the instances as one.
    fn start_all(&mut self, launches: &[Launch]) -> Result<Vec<Endpoint>, PartError> {
        match launches {
            [launch] => Ok(vec![self.start(launch)?]),
            _ => {
                let (environment, asked) = (self.spec().name.clone(), launches.len());
                Err(SingleInstanceOnly { environment, asked }.into())
            }
        }
    }

    /// Reads every layer back while the system runs.
    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError>;

    /// Returns why the system is no longer the one of the start, if an attached one has ended.
    fn lost(&self) -> Option<String> {
        None
    }

    /// Stops all threads of the system until `thaw`, so that it uses no CPU. An attached system
    /// runs on.
    fn freeze(&mut self) -> Result<(), PartError>;

    fn thaw(&mut self) -> Result<(), PartError>;

    /// Withdraws what publishes one of several instances on different hosts, after all of them have
    /// been frozen: the kernel would answer what one that still runs sends to the others with a
    /// reset. A freeze withdraws it anywhere else.
    fn withdraw(&mut self) -> Result<(), PartError> {
        Ok(())
    }

    /// Publishes it again, before any of them is thawed.
    fn publish(&mut self) -> Result<(), PartError> {
        Ok(())
    }

    /// Reads the CPU accounts. Called at the edges of each slice, so it takes well under 1 ms.
    fn usage(&mut self) -> Result<Usage, PartError>;

    /// Returns the current processes, for the probes. Empty if the host cannot see them.
    fn processes(&mut self) -> Processes {
        Processes::default()
    }

    /// Returns what each instance detected and chose, if the instances run on other hosts, where
    /// only the environment can read it. Otherwise the system reads it.
    fn settings(&mut self) -> Result<Option<Vec<SystemSettings>>, PartError> {
        Ok(None)
    }

    /// Returns the runtime's configuration (OCI config.json, the engine's create request), which
    /// reports print as a diff between environments.
    fn config(&self) -> Option<String>;

    /// Returns the last lines printed by the system or the runtime, for error messages.
    fn log_tail(&self) -> String;

    /// Ends the system and removes everything that `start` created. Idempotent.
    fn stop(&mut self) -> Result<(), PartError>;
}
