//! The record of a whole study run. Reports read `Record`; only this module accesses the SQLite
//! file that stores it.
//!
//! `schema.sql` has the tables, for sqlite3, pandas or DuckDB.

mod columns;
mod copy;
mod error;
mod loaders;
mod opening;
mod paths;
mod read;
mod response_times;
mod rows;
mod seconds;
mod share;
mod stacks;
#[cfg(test)]
mod tests;
mod write;

use serde::{Deserialize, Serialize};

use crate::doubt::Doubt;
use crate::environment::{CpuPlan, EnvironmentSpec, LayerState};
use crate::loader::{Loader, LoaderSlice};
use crate::path::LoaderPath;
use crate::probe::Counter;
use crate::seconds::Seconds;
use crate::study::{Study, control_name};
use crate::system::BusyTime;

pub use copy::{copy_record, logs_of};
pub use error::RecordError;
pub use opening::Opening;
pub use share::{Keep, share};
pub use stacks::read_stacks;
pub use write::{RecordWriter, free_path};

/// SQLite's `application_id` of a record: `TARE` in ASCII.
pub const APPLICATION_ID: i32 = 0x5441_5245;
/// SQLite's `user_version` of the records that this version writes.
pub const SCHEMA_VERSION: i32 = 10;
/// The first version with the host layer. In older ones the host was as found.
const VERSION_WITH_HOST: i64 = 2;
/// The first version with tables for sampled stacks.
const VERSION_WITH_STACKS: i64 = 3;
/// The first version with the layers storage, vm and inject.
const VERSION_WITH_STORAGE: i64 = 4;
/// The first version with traced slices and off-CPU stacks.
const VERSION_WITH_TRACED: i64 = 5;
/// The first version with the layer sandbox.
const VERSION_WITH_SANDBOX: i64 = 6;
/// The first version with the layer rootfs.
const VERSION_WITH_ROOTFS: i64 = 7;
/// The first version with the whole CPU plan. Older ones have system and client only.
const VERSION_WITH_CPU_PLAN: i64 = 8;
/// The first version with the start of the environment and the span of the accounts of a slice.
const VERSION_WITH_STARTS: i64 = 9;
/// The first version with slices that search the capacity under an objective.
const VERSION_WITH_SLO: i64 = 10;

/// Everything in a record file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub header: Header,
    pub study: Study,
    /// The text of the study file.
    pub study_text: String,
    pub cpu_plan: CpuPlan,
    pub host: Vec<HostFact>,
    /// In the order of the study; the A/A control last.
    pub environments: Vec<EnvironmentRecord>,
    /// In the order in which they ran.
    pub slices: Vec<Slice>,
    /// The hosts that loaded the system together; empty: the client of this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaders: Vec<Loader>,
    /// The network paths of the loaders, or of the client of this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<LoaderPath>,
    pub doubts: Vec<DoubtRecord>,
}

impl Record {
    /// Gives an environment another name, and its second copy if it is the baseline. Doubts keep
    /// the names in their texts.
    pub fn rename_environment(&mut self, from: &str, to: &str) {
        let (control, new_control) = (control_name(from), control_name(to));
        let rename = |name: &mut String| {
            if *name == from {
                *name = to.to_string();
            } else if *name == control {
                name.clone_from(&new_control);
            }
        };
        rename(&mut self.study.baseline);
        self.study.environments.iter_mut().for_each(|spec| rename(&mut spec.name));
        self.study.runtime_controls.iter_mut().for_each(rename);
        self.environments.iter_mut().for_each(|one| rename(&mut one.spec.name));
        self.slices.iter_mut().for_each(|slice| rename(&mut slice.environment));
        self.doubts.iter_mut().filter_map(|doubt| doubt.environment.as_mut()).for_each(rename);
    }
}

/// Facts about the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub tare_version: String,
    pub started_unix_ms: u64,
    /// `None` while the study runs, and after a crash.
    pub ended_unix_ms: Option<u64>,
    pub seed: u64,
    /// The command line, as typed.
    pub command: Vec<String>,
    /// Why the study ended: `rounds done`, `intervals narrow enough`, `question answered`,
    /// `budget spent`, `interrupted`.
    pub ending: Option<String>,
    /// Fixed rate of the latency phase per workload, in operations/s, once it is known.
    pub rates: Vec<(String, f64)>,
}

/// The section of the facts about host tuning during a study.
pub const TUNING_FACTS: &str = "tune";

/// A fact of the host: section (`cpu`, `kernel`, `network`, `versions` ...), key, value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFact {
    pub section: String,
    pub key: String,
    pub value: String,
}

/// An environment and its last start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnvironmentRecord {
    pub spec: EnvironmentSpec,
    /// Whether this is the baseline's second copy (A/A).
    pub control: bool,
    /// Why the environment was left out, from the start or after failures. It usually has no
    /// slices.
    pub left_out: Option<String>,
    pub layers: Vec<LayerState>,
    /// What the system detected and chose.
    pub settings: Vec<(String, String)>,
    pub config: Option<String>,
    /// Time from the start command until the system answered, in ns. The teardown time is in ns
    /// too.
    pub ready_ns: Option<u64>,
    pub teardown_ns: Option<u64>,
}

/// The kind of load of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Closed loop, at full speed.
    Capacity,
    /// Open loop, at a fixed rate that all environments share.
    Latency,
    /// The latency phase with probes that disturb it. Its figures never mix with others.
    Traced,
    /// Open loop, at a rate of the environment's own: the search for its capacity under the
    /// workload's objective ([`crate::staircase`]).
    Slo,
}

impl Phase {
    /// Returns the name that records and CSV have.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Capacity => "capacity",
            Phase::Latency => "latency",
            Phase::Traced => "traced",
            Phase::Slo => "slo",
        }
    }

    /// Returns under which load its slices are, as texts say it.
    pub fn load(self) -> &'static str {
        match self {
            Phase::Capacity => "at capacity",
            Phase::Latency => "at the fixed rate",
            Phase::Traced => "traced, at the fixed rate",
            Phase::Slo => "at the rates of the search",
        }
    }
}

/// Parses a phase. The table's CHECK allows no other names.
fn phase_of(name: &str) -> Phase {
    match name {
        "latency" => Phase::Latency,
        "traced" => Phase::Traced,
        "slo" => Phase::Slo,
        _ => Phase::Capacity,
    }
}

fn as_json<T: Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// One slice (or trial): one environment, one workload, one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    pub id: i64,
    /// Number of the round, from 0. The record's format calls rounds blocks.
    #[serde(rename = "block")]
    pub round: u32,
    /// Position inside the round, from 0.
    pub position: u32,
    /// Name of the environment.
    pub environment: String,
    pub workload: String,
    pub phase: Phase,
    pub started_unix_ms: u64,
    pub window_ns: u64,
    pub operations: u64,
    pub errors: Vec<(String, u64)>,
    pub unsent: u64,
    pub rate_per_s: Option<f64>,
    pub system_cpu_ns: u64,
    /// CPU time that the layer adds outside the system (`userland proxy`, ...), in ns.
    pub layer_cpu_ns: Vec<(String, u64)>,
    /// The system's busy time in the window, if the system measures it.
    #[serde(rename = "own_account")]
    pub busy_time: Option<BusyTime>,
    pub client_cpu_ns: u64,
    pub throttled_ns: Option<u64>,
    /// HdrHistogram V2 (compressed), ns; empty in a closed loop.
    pub response: Vec<u8>,
    /// HdrHistogram V2 (compressed), ns.
    pub service: Vec<u8>,
    pub counters: Vec<Counter>,
    /// Why the slice is void. `None` for a valid slice.
    pub void: Option<String>,
    /// Number of the start of its environment, from 0 (`schedule.restarts`).
    #[serde(default)]
    pub start: u32,
    /// Time between the two readings of the CPU accounts, in ns. If the driver loads the system at
    /// both, the accounts are converted from this span to the window. `None` in records before
    /// version 9.
    #[serde(default)]
    pub account_ns: Option<u64>,
    /// Latency inside the system, by its own account. HdrHistogram V2 (compressed), ns. Empty if
    /// the system has none.
    #[serde(default)]
    pub server: Vec<u8>,
    /// What each loader did, where the study has loaders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaders: Vec<LoaderSlice>,
    /// What happened in each second of a long window.
    #[serde(default, skip_serializing_if = "Seconds::is_empty")]
    pub seconds: Seconds,
}

impl Slice {
    /// Returns the CPU time that the system spent in idle polling, in ns.
    ///
    /// A system measures its busy time by a clock, which runs on while the hypervisor or another
    /// task has the CPU. If busy and idle time together exceed the CPU time, both are scaled down
    /// to it. Otherwise, time lost while idle would look like free work. The result never exceeds
    /// the slice's CPU time.
    pub(crate) fn idle_poll_cpu_ns(&self) -> u64 {
        let Some(time) = self.busy_time else { return 0 };
        let clocked = u128::from(time.busy_ns) + u128::from(time.idle_poll_ns);
        let cpu = u128::from(self.system_cpu_ns);
        if clocked <= cpu {
            return time.idle_poll_ns;
        }
        let scaled = u128::from(time.idle_poll_ns) * cpu / clocked;
        u64::try_from(scaled).unwrap_or(self.system_cpu_ns)
    }
}

/// A doubt about a slice, an environment, or (with neither) the whole record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DoubtRecord {
    pub slice: Option<i64>,
    pub environment: Option<String>,
    pub doubt: Doubt,
}
