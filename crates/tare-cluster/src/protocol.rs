//! The orders and answers between the harness and the agents of its hosts: one JSON object a line.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tare_env::Peers;
use tare_lab::cpus::{CpuPlan, CpuSpec};
use tare_lab::environment::{EnvironmentSpec, LayerState, Processes, Usage};
use tare_lab::probe::Counter;
use tare_lab::study::SystemSpec;

/// How often the harness shows that it is there.
pub const ALIVE_EVERY: Duration = Duration::from_secs(5);
/// An agent that hears nothing for this long removes what it made and ends.
pub const ALIVE_LIMIT: Duration = Duration::from_secs(45);

/// What an agent needs to begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    /// How the host divides its CPUs.
    pub cpus: CpuSpec,
    /// The division, where the harness has made it because it is on the same host.
    pub plan: Option<CpuPlan>,
    /// Block devices that may be overwritten.
    pub destroy: Vec<PathBuf>,
    /// The address at which instances behind a bridge are published, if an environment has such.
    pub reach: Option<Ipv4Addr>,
    /// Access to the cluster of which the host is a node, for instances that are pods. It is not
    /// printed and not logged.
    pub kubeconfig: Option<Kubeconfig>,
}

/// Access to a cluster, with a credential.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Kubeconfig(pub String);

impl std::fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kubeconfig(..)")
    }
}

/// An order. Every order but `Alive` has one answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// The harness is there.
    Alive,
    /// The first order.
    Open(Box<Opening>),
    /// Whether the host can run these environments.
    Check {
        specs: Vec<EnvironmentSpec>,
    },
    /// Whether these ports of an address are free.
    PortsFree {
        address: Ipv4Addr,
        ports: Vec<u16>,
    },
    /// Makes an environment without starting it. `id` names it from then on.
    Create {
        id: u32,
        spec: Box<EnvironmentSpec>,
        system: SystemSpec,
        peers: Peers,
    },
    /// Starts an instance, counted from 0, for this many CPUs. `pods` are the addresses of the
    /// instances before it, where they are pods with addresses of their own.
    Start {
        id: u32,
        cpus: usize,
        number: u32,
        pods: Vec<Ipv4Addr>,
    },
    Freeze {
        id: u32,
    },
    /// After all hosts have frozen an environment behind a bridge.
    Withdraw {
        id: u32,
    },
    /// Before any host thaws it.
    Publish {
        id: u32,
    },
    /// Prepares the probes for an environment and thaws it.
    Thaw {
        id: u32,
    },
    Usage {
        id: u32,
    },
    ReadBack {
        id: u32,
    },
    Processes {
        id: u32,
    },
    Settings {
        id: u32,
    },
    Config {
        id: u32,
    },
    Log {
        id: u32,
    },
    /// Whether a system that ran already has ended.
    Lost {
        id: u32,
    },
    BeginProbes,
    EndProbes,
    Stop {
        id: u32,
    },
    /// The last order.
    Close,
}

/// What an agent found when it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    pub plan: CpuPlan,
    /// Facts of the host: (section, key, value).
    pub facts: Vec<(String, String, String)>,
    /// The names of the probes that are read there.
    pub probes: Vec<String>,
    /// Probes that cannot be read there, with the reasons.
    pub missing_probes: Vec<(String, String)>,
    /// Whether the CPU accounts of running threads are exact.
    pub accounts_are_exact: bool,
    /// NAT tables and bridges, which cost time for every packet of a native run.
    pub overheads: Option<String>,
}

/// The answer to an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    Done,
    Opened(Box<Opened>),
    /// Why each environment cannot run; `None` if it can.
    Checked {
        reasons: Vec<Option<String>>,
    },
    Free {
        free: bool,
    },
    Started {
        address: SocketAddr,
    },
    /// The accounts, with the system's own in the only element of `nodes`.
    Usage {
        usage: Usage,
    },
    Layers {
        layers: Vec<LayerState>,
    },
    Processes {
        processes: Processes,
    },
    Settings {
        settings: Vec<(String, String)>,
    },
    Text {
        text: Option<String>,
    },
    /// Counters, and the probes that failed with the reasons.
    Counters {
        counters: Vec<Counter>,
        failed: Vec<(String, String)>,
    },
    /// What could not be removed.
    Closed {
        left: Vec<String>,
    },
    Failed {
        error: String,
    },
}

impl Order {
    /// Returns how long the answer may take.
    pub(crate) fn limit(&self) -> Duration {
        match self {
            // The first start of a guest or of an engine's image takes long.
            Self::Open(_) | Self::Check { .. } | Self::Create { .. } | Self::Start { .. } => {
                Duration::from_secs(300)
            }
            Self::Stop { .. } | Self::Close => Duration::from_secs(120),
            _ => Duration::from_secs(30),
        }
    }
}
