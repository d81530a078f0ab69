//! The stack of isolation layers that a system runs in, as the core sees it.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

use crate::PartError;
use crate::layer::{Cgroup, Cpu, Host, Inject, Network, Rootfs, Runtime, Security};

/// One environment of a study after `extends` is resolved: every layer has a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnvironmentSpec {
    /// Name, unique in the study.
    pub name: String,
    /// `process`, `oci:runc`, `docker`, `docker:runsc`, ...
    pub runtime: Runtime,
    pub network: Network,
    pub cpu: Cpu,
    pub security: Security,
    pub cgroup: Cgroup,
    /// The host around the environment while it runs.
    #[serde(default, skip_serializing_if = "Host::is_as_is")]
    pub host: Host,
    /// What the system's data lies on.
    #[serde(default, skip_serializing_if = "StorageSpec::is_directory")]
    pub storage: StorageSpec,
    /// Options of a virtual machine (`vcpus`, `memory`, ...) as (name, value). Empty: its defaults, or
    /// a runtime that is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vm: Vec<(String, String)>,
    /// Options of gVisor (`platform`, `network`, ...) as (name, value). Empty: its defaults, or
    /// another runtime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox: Vec<(String, String)>,
    /// What a container's root file system is made of.
    #[serde(default, skip_serializing_if = "Rootfs::is_none")]
    pub rootfs: Rootfs,
    /// A known cost that is added so that the instrument itself can be tried.
    #[serde(default, skip_serializing_if = "Inject::is_nothing")]
    pub inject: Inject,
    pub limits: Limits,
    /// True: where the host cannot run it, the study goes on without it and says so.
    #[serde(default)]
    pub optional: bool,
}

/// The storage layer of an environment whose data lies in Tare's own work directory.
pub const DIRECTORY: &str = "directory";

/// Name of the layer state of a virtual machine that says what runs the guest's instructions:
/// `kvm`, or `tcg`, which emulates the CPU, or `uml`, a kernel in user mode, which runs them on the CPU
/// but intercepts every system call; then a colon and why.
pub const ACCELERATOR: &str = "accelerator";

/// Section of the host facts of a study that ran inside a guest of Tare's own: its kernel, and what
/// runs its instructions.
pub const INSIDE: &str = "inside";

/// What the system's data lies on: a kind of storage and its options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageSpec {
    /// `directory`, `ext4`, `xfs`, ...
    pub kind: String,
    /// Options as (name, value), such as (`size`, `2G`), in the order in which the study has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<(String, String)>,
}

impl StorageSpec {
    /// Whether it is plainly Tare's own work directory.
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

/// `vcpus = 2, memory = 1G`.
pub fn options_text(options: &[(String, String)]) -> String {
    let pairs: Vec<String> =
        options.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    pairs.join(", ")
}

/// Resource limits of an environment. `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.memory_bytes {
            Some(bytes) => write!(f, "memory {bytes} bytes"),
            None => f.pad("none"),
        }
    }
}

/// Which CPUs belong to whom during a study.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPlan {
    /// Every CPU that Tare may use.
    pub all: CpuSet,
    /// CPUs of the system under test where its `cpu` layer is `pinned`.
    pub system: CpuSet,
    /// CPUs of the client. Disjoint from `system` unless the host has a single CPU.
    pub client: CpuSet,
}

/// What an environment is asked to run: always the Tare binary itself, with these arguments.
///
/// In `arguments` the environment replaces `{listen}` by the address to listen on, `{port}` by the
/// port, `{data}` by the data directory, `{program}` by the path of `program` and `{beside}` by the
/// directory that it is in, all as seen from inside; `{advertised}` by the address that clients
/// reach it at, as far as that is known before it runs; `{node}` by the one at which other instances
/// of its environment do, which no other system of the same network has, and `{seeds}` by those of
/// all instances, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    pub arguments: Vec<String>,
    /// A program that Tare's own starts inside.
    pub program: Option<HostProgram>,
    /// It starts what the environment's image says, which `{image}` stands for in `arguments`: the
    /// object `config` of the OCI's image configuration, as JSON.
    pub from_image: bool,
    /// The port that it listens on, where it cannot be told another one.
    pub port: Option<u16>,
}

/// A program of the host. Every environment shows it, its loader and its libraries inside,
/// read-only, at the paths that they have on the host. An environment that has a root file system
/// takes the program of that name from it, and shows `named` alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostProgram {
    /// A name on PATH, or an absolute path.
    pub name: String,
    /// Files, or directories of files, that it opens by name while it runs, such as plug-ins.
    pub files: Vec<PathBuf>,
    /// Directories of its installation that it reads, shown whole as they are.
    pub folders: Vec<PathBuf>,
    /// Directories that the study names, shown whole wherever the program comes from.
    pub named: Vec<PathBuf>,
}

/// Where a started system answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address that the client dials from where it stands.
    pub address: SocketAddr,
    /// The system's data directory as the host sees it, where the host can see it.
    pub data: Option<PathBuf>,
}

/// Data that was loaded once and that a system can be started on. Implementations live in
/// `tare-system`.
pub trait KeptData: fmt::Debug {
    /// Puts it into a directory as the host sees it, which is there and in which the system has
    /// written nothing yet. What is put there belongs to that system alone.
    fn put(&self, to: &Path) -> Result<Restored, PartError>;
}

/// What putting kept data in place came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Bytes of files that are shared by hard links, and of those that are copied.
    pub linked_bytes: u64,
    pub copied_bytes: u64,
    pub took: Duration,
}

/// An environment that is made for one instance of a system was asked for another number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment {environment:?} runs one instance of a system, not {asked}")]
pub struct NotOne {
    pub environment: String,
    pub asked: usize,
}

/// One layer as it was asked for and as it was found, from inside the environment and from the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerState {
    /// `runtime`, `network`, `cpu`, `security`, `cgroup`, `limits.memory`, `io_engine`, ...
    pub layer: String,
    pub wanted: String,
    /// What was read, in the words of its source (`Cpus_allowed_list: 1`).
    pub found: String,
    pub in_force: bool,
}

/// CPU time and throttling of an environment since it was started. Only differences mean anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all threads of the system in the environment, in ns.
    pub system_cpu_ns: u64,
    /// CPU time of what the layer adds outside the system: (`userland proxy`, ns), (`gofer`, ns).
    pub layer_cpu_ns: Vec<(String, u64)>,
    /// Time for which the CPU quota held the environment back, in ns. `None` without a quota.
    pub throttled_ns: Option<u64>,
}

/// Processes of an environment that is up, as the host numbers them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    /// Those of the system (with a sentry: the sandbox's), the first one first.
    pub system: Vec<u32>,
    /// Those that the layer adds outside the system, such as a userland proxy.
    pub layer: Vec<u32>,
}

/// A place for a system to run in. Implementations live in `tare-env`, one file per runtime.
///
/// Teardown (`stop`) is idempotent, runs on failure and signal, and through the host's journal
/// after `kill -9`.
pub trait Environment {
    fn spec(&self) -> &EnvironmentSpec;

    /// Starts from now on begin with this data. An environment into whose storage the host cannot put
    /// files leaves it at that: `restored` tells.
    fn begin_with(&mut self, _data: &Rc<dyn KeptData>) {}

    /// What putting the data in place came to in the start that runs; `None` where it began with
    /// nothing, and its data has to be loaded.
    fn restored(&self) -> Option<Restored> {
        None
    }

    /// Makes what the environment needs, journalled first, and starts the system in it. Returns
    /// once the process runs; the driver finds out when it answers.
    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError>;

    /// Starts several instances of a system, each with its own share of the layers' limits. They
    /// are there, frozen, thawed, accounted for and ended together.
    fn start_all(&mut self, launches: &[Launch]) -> Result<Vec<Endpoint>, PartError> {
        match launches {
            [launch] => Ok(vec![self.start(launch)?]),
            _ => {
                let (environment, asked) = (self.spec().name.clone(), launches.len());
                Err(NotOne { environment, asked }.into())
            }
        }
    }

    /// Reads every layer back while the system runs.
    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError>;

    /// Stops all of the system's threads until `thaw`, so that it costs nothing.
    fn freeze(&mut self) -> Result<(), PartError>;

    fn thaw(&mut self) -> Result<(), PartError>;

    /// Reads the CPU accounts. Called at the edges of each slice, so it takes well under 1 ms.
    fn usage(&mut self) -> Result<Usage, PartError>;

    /// The processes that are there now, for the probes. None where the host cannot see them.
    fn processes(&mut self) -> Processes {
        Processes::default()
    }

    /// The configuration handed to the runtime (OCI config.json, the engine's create request), so
    /// that two environments differ by a printed diff.
    fn config(&self) -> Option<String>;

    /// Last lines that the system or the runtime printed, for the error when it does not answer.
    fn log_tail(&self) -> String;

    /// Ends the system and removes everything that `start` made. Idempotent.
    fn stop(&mut self) -> Result<(), PartError>;
}
