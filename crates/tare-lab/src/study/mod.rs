//! A study after parsing and checking.
//!
//! `parse` reads a study from TOML text, with the names of a `Vocabulary`. Every error has file,
//! line and column, shows the line with a caret, and suggests the nearest valid word.

mod attach;
mod checks;
mod connection;
mod environments;
mod expand;
mod hosts;
mod load;
mod loaders;
mod neighbours;
mod parse;
mod published;
mod runtimes;
mod slo;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attach::{Attach, AttachedRows};
use crate::environment::EnvironmentSpec;

pub use crate::cpus::CpuSpec;
pub use attach::AttachedHostError;
pub use connection::{AccessSpec, ClientConnection, Compression, LoginSpec, PasswordSource};
pub use hosts::{HOSTS_MAX, HostsError, SystemHost, SystemHostError};
pub use load::{Climb, ClimbEnd, ClimbStep, LoadCpus, LoadSize, Saturate, scale_load};
pub use loaders::{LOADERS_MAX, LoaderSelector, LoaderSpec, SelectedLoadersError};
pub use parse::{defaults, parse, parse_quick, workload_files};
pub use published::{Claim, Expected, Percentile, PublishedRelation, Sign};
pub use runtimes::runtime_control;
pub use slo::{BadSlo, Slo};
pub use tare_toml::{Hint, Problem, TomlError as StudyError, ValueError, parse_share};
pub use vocabulary::{KnownOption, KnownPart, KnownWorkload, OptionInfo, Vocabulary};

/// A study file that runs, with the meaning and the default of every key.
pub const TEMPLATE: &str = include_str!("template.toml");

/// Returns the name of the baseline's second copy, the A/A control of every study.
pub fn control_name(baseline: &str) -> String {
    format!("{baseline} again")
}

/// A checked study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    pub name: String,
    /// The question of the study, on one line.
    pub title: String,
    /// Name of the environment with which all others are compared.
    pub baseline: String,
    pub system: SystemSpec,
    /// Name of the driver.
    pub driver: String,
    pub schedule: ScheduleSpec,
    pub cpus: CpuSpec,
    /// In the order of the file, without the A/A control, which the campaign adds. The controls of
    /// runtimes are among them ([`Study::add_runtime_controls`]).
    pub environments: Vec<EnvironmentSpec>,
    pub workloads: Vec<WorkloadSpec>,
    /// Published relations, which reports compare with the measured ones.
    pub published: Vec<PublishedRelation>,
    /// Set if this is the quick part of the study (`tare weigh --quick`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quick: Option<QuickPart>,
    /// Set if only the part that fits into a budget runs (`tare weigh --budget`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_part: Option<BudgetPart>,
    /// Names of the environments that [`Study::add_runtime_controls`] has added. They are left out
    /// where the host has no room for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtime_controls: Vec<String>,
    /// The hosts that load the system together. Empty: the client of this host does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaders: Vec<LoaderSpec>,
    /// Loaders whose nodes are not known yet ([`Study::place_loaders`]). A record has their nodes
    /// instead.
    #[serde(skip)]
    pub loader_selectors: Vec<LoaderSelector>,
    /// The hosts of the system, each with one instance. Empty: this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<SystemHost>,
    /// Where the login and the certificates for attached systems are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessSpec>,
}

impl Study {
    /// Returns the environment with which all others are compared. A checked study has it.
    pub fn baseline_environment(&self) -> Option<&EnvironmentSpec> {
        self.environments.iter().find(|spec| spec.name == self.baseline)
    }

    /// Returns the attached systems of the environments.
    pub fn attached(&self) -> impl Iterator<Item = &Attach> {
        self.environments.iter().filter_map(|spec| spec.attach.as_ref())
    }

    /// Checks that its attached systems are on the hosts of its system; on this host, if it names
    /// none.
    ///
    /// # Errors
    /// If there are several hosts, or the client of this host cannot dial a system there.
    pub fn check_attached_hosts(&self) -> Result<(), AttachedHostError> {
        attach::check_hosts(self.attached(), &self.hosts)
    }

    /// Returns whether an environment tunes the host.
    pub fn tunes_host(&self) -> bool {
        self.environments.iter().any(|spec| !spec.host.is_as_is())
    }

    /// Adds the baseline's layers under every other runtime of the study, unless an environment has
    /// them ([`runtime_control`]). Each follows the first environment of its runtime.
    pub fn add_runtime_controls(&mut self) {
        let missing = self
            .baseline_environment()
            .map(|baseline| runtimes::missing(&self.environments, baseline))
            .unwrap_or_default();
        for control in missing {
            let first = self.environments.iter().position(|one| one.runtime == control.runtime);
            self.runtime_controls.push(control.name.clone());
            self.environments.insert(first.map_or(self.environments.len(), |at| at + 1), control);
        }
    }
}

/// The environments and workloads that the quick part of a study leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuickPart {
    /// Names of the environments that this part leaves out.
    pub environments: Vec<String>,
    /// Names of the workloads that this part leaves out.
    pub workloads: Vec<String>,
}

/// The environments and workloads that a study leaves out so that the others get their least number
/// of rounds within a budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetPart {
    pub budget: Duration,
    /// The number of rounds that did not fit for all.
    pub rounds_min: u32,
    /// Names of the environments that are left out.
    pub environments: Vec<String>,
    /// Names of the workloads that are left out.
    pub workloads: Vec<String>,
}

/// The system under test and its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SystemSpec {
    /// `tare-db`, ...
    pub name: String,
    /// Options of the system, such as `durability = "periodic"`, in the order of the file.
    pub options: Vec<(String, String)>,
}

impl SystemSpec {
    /// Returns the system with the options of an environment in place of its own.
    #[must_use]
    pub fn with_options(&self, options: &[(String, String)]) -> Self {
        let replaced = |name: &str| options.iter().any(|(other, _)| other == name);
        let mut all = self.options.clone();
        all.retain(|(name, _)| !replaced(name));
        all.extend_from_slice(options);
        Self { name: self.name.clone(), options: all }
    }
}

/// How the slices of the environments alternate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// All environments run and are loaded, and all but one are frozen. Short slices in random
    /// order.
    Slices,
    /// Whole runs, interleaved by round, each with a fresh data directory.
    Trials,
}

/// How the rows of the workloads get into an environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataStart {
    /// The driver writes them after each start.
    #[default]
    Loaded,
    /// The driver writes them once, in the baseline, and each start begins with a copy. If the data
    /// cannot be saved, or not restored into an environment, the driver writes them after the
    /// start.
    Restored,
}

/// The schedule of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleSpec {
    pub kind: ScheduleKind,
    #[serde(default)]
    pub data: DataStart,
    /// Whether restored data is neither taken from the cache of this host nor kept there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_data_cache: bool,
    /// Measured window of a slice or trial.
    pub window: Duration,
    /// Set if the host chooses the window before the rounds (`window = "auto"`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_window: Option<AutoWindow>,
    /// Load before the window, not measured.
    pub lead_in: Duration,
    /// Maximum number of rounds. A round runs every environment once, in random order.
    pub rounds: u32,
    /// Minimum number of rounds before an early stop.
    pub rounds_min: u32,
    /// Time for the whole study, including set-up and teardown.
    pub budget: Duration,
    /// The study stops early once the 95 % interval of every cost is narrower than this, in
    /// percentage points from end to end. 0 never stops early.
    pub stop_width_percent: f64,
    /// Seed of the order, the keys and the rows. `None` draws one and records it.
    pub seed: Option<u64>,
    /// How often each environment is started again during the rounds of slices.
    #[serde(default)]
    pub restarts: u32,
    /// Load of each workload in each environment after a start, before the rounds of slices. Not
    /// measured.
    #[serde(default)]
    pub warm_up: Duration,
}

/// The choice of the window on the host. Only slices of the capacity phase have this window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AutoWindow {
    /// The windows that were tried, the shortest first. Empty until the choice.
    pub tried: Vec<TriedWindow>,
    /// Why none was tried and the longest is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_because: Option<String>,
}

/// A window that was tried with the baseline and its second copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriedWindow {
    pub window: Duration,
    /// Number of pairs.
    pub pairs: u32,
    /// Standard deviation of the log ratio of a pair in CPU time per operation, in percent.
    pub noise_percent: f64,
    /// Mean time of a pair, from thaw to freeze.
    pub pair_time: Duration,
}

impl AutoWindow {
    /// The windows to choose from.
    pub const CANDIDATES: [Duration; 4] = [
        Duration::from_millis(25),
        Duration::from_millis(50),
        Duration::from_millis(100),
        Duration::from_millis(200),
    ];
    /// The window of slices at a fixed rate. Shorter ones cut off the tail of response times.
    pub const AT_RATE: Duration = Duration::from_millis(200);

    /// The window that a forecast expects: what quiet hosts choose.
    pub const EXPECTED: Duration = Duration::from_millis(50);

    /// Whether the window is known.
    pub fn is_decided(&self) -> bool {
        !self.tried.is_empty() || self.kept_because.is_some()
    }
}

impl ScheduleSpec {
    /// Returns the window of the slices at a fixed rate.
    pub fn window_at_rate(&self) -> Duration {
        let least = self.auto_window.as_ref().map_or(Duration::ZERO, |_| AutoWindow::AT_RATE);
        self.window.max(least)
    }

    /// Returns the number of slices of each workload that warm an environment up, at least 1.
    pub fn warm_up_turns(&self) -> u32 {
        let slice = (self.window_at_rate() + self.lead_in).as_nanos().max(1);
        u32::try_from(self.warm_up.as_nanos().div_ceil(slice)).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the time in which this many environments, counted once for each workload, warm up.
    /// `extra` is the time of a slice beside its lead-in and window.
    pub fn warm_up_time(&self, environments: u32, extra: Duration) -> Duration {
        let slice = self.window_at_rate() + self.lead_in + extra;
        slice.saturating_mul(environments).saturating_mul(self.warm_up_turns())
    }
}

/// A workload of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadSpec {
    pub name: String,
    /// Name of a predefined workload (`ycsb-a`) or of a file, which has its own shares, columns and
    /// keys. The fields for these are then unused and 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// What the file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_text: Option<String>,
    /// Share of writes among the operations, 0 to 1; the rest are reads by key.
    pub write_share: f64,
    /// Number of rows before the load, and range of the keys.
    pub rows: u64,
    pub columns: u32,
    pub column_bytes: u32,
    pub keys: KeyDistribution,
    /// Number of connections to the system.
    pub connections: u32,
    /// Requests in flight over all connections in a closed loop. An open loop has a far higher
    /// limit.
    pub in_flight: u32,
    #[serde(default, skip_serializing_if = "LoadSize::is_named")]
    pub load: LoadSize,
    /// Fixed rate of the latency phase as a share of the baseline's capacity; 0 skips the phase.
    pub latency_share: f64,
    /// Fixed rate of the latency phase in operations/s, instead of a share.
    pub rate_per_s: Option<f64>,
    /// Whether it is measured at the fixed rate alone, without a closed loop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rate_only: bool,
    /// The objective under which the capacity of each environment is searched, from the fixed rate
    /// on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
    /// The share of reads that are to come from disk, 0 to 1; a doubt if it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_from_disk: Option<f64>,
    #[serde(default, skip_serializing_if = "Replicas::is_default")]
    pub replicas: Replicas,
    /// How the clients connect. Its fields are those of the workload in JSON.
    #[serde(flatten)]
    pub connection: ClientConnection,
    /// Where the rows are, in a study with attached systems. The run sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached_rows: Option<AttachedRows>,
    /// Options of a driver that defines its own workloads, as (name, value). The fields for rows,
    /// keys and connections are then unused and 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<(String, String)>,
}

impl WorkloadSpec {
    /// Returns whether its rows are those of another workload, which has written them.
    pub(crate) fn has_rows_of(&self, other: &Self) -> bool {
        let rows = |one: &Self| Self {
            name: String::new(),
            write_share: 0.0,
            keys: KeyDistribution::Uniform,
            connections: 0,
            in_flight: 0,
            load: LoadSize::default(),
            latency_share: 0.0,
            rate_per_s: None,
            rate_only: false,
            slo: None,
            reads_from_disk: None,
            connection: ClientConnection::default(),
            ..one.clone()
        };
        self.options.is_empty() && rows(self) == rows(other)
    }
}

/// How often a row is stored, and how many of its replicas answer an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// The replication factor of the keyspace that the load creates.
    pub replication: u32,
    /// A consistency level of CQL in lower case, such as `quorum`.
    pub consistency: String,
}

impl Replicas {
    /// The consistency levels that a workload may name.
    pub const CONSISTENCIES: [&str; 5] = ["one", "quorum", "all", "local_one", "local_quorum"];

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Replicas {
    fn default() -> Self {
        Self { replication: 1, consistency: "one".into() }
    }
}

/// The distribution of the keys of operations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum KeyDistribution {
    Uniform,
    Sequential,
    /// Both values are shares of the rows. The defaults are those of cassandra-stress's
    /// `gaussian(1..N)`: a mean of 1/2 and a deviation of 1/6.
    Gaussian {
        mean_share: f64,
        deviation_share: f64,
    },
}
