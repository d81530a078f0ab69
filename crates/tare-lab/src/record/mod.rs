//! The record of a whole study run. Reports read `Record`; only this module knows the SQLite file
//! that stores it.
//!
//! Anyone can open the file with sqlite3, pandas or DuckDB: the tables are in `schema.sql`.

mod error;
mod opening;
mod read;
mod rows;
mod stacks;
#[cfg(test)]
mod tests;
mod write;

use serde::{Deserialize, Serialize};

use crate::doubt::Doubt;
use crate::environment::{CpuPlan, EnvironmentSpec, LayerState};
use crate::probe::Counter;
use crate::study::Study;
use crate::system::OwnAccount;

pub use error::RecordError;
pub use opening::Opening;
pub use stacks::read_stacks;
pub use write::{RecordWriter, free_path};

/// SQLite's `application_id` of a record: `TARE` in ASCII.
pub const APPLICATION_ID: i32 = 0x5441_5245;
/// SQLite's `user_version` of the records that this version writes.
pub const SCHEMA_VERSION: i32 = 7;
/// The first whose environments have a host layer; in older ones the host was as it is.
const VERSION_WITH_HOST: i64 = 2;
/// The first that may hold sampled stacks; older ones have no tables for them.
const VERSION_WITH_STACKS: i64 = 3;
/// The first whose environments have storage, options of a virtual machine and injected costs.
const VERSION_WITH_STORAGE: i64 = 4;
/// The first that may hold traced slices, and stacks of waiting beside those of work.
const VERSION_WITH_TRACED: i64 = 5;
/// The first whose environments have options of gVisor.
const VERSION_WITH_SANDBOX: i64 = 6;
/// The first whose environments say what their root file system is made of.
const VERSION_WITH_ROOTFS: i64 = 7;

/// Everything in a record file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub header: Header,
    pub study: Study,
    /// The study file as it was given.
    pub study_text: String,
    pub cpu_plan: CpuPlan,
    pub host: Vec<HostFact>,
    /// In the order of the study; the A/A control last.
    pub environments: Vec<EnvironmentRecord>,
    /// In the order in which they were run.
    pub slices: Vec<Slice>,
    pub doubts: Vec<DoubtRecord>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub tare_version: String,
    pub started_unix_ms: u64,
    /// `None` while it runs or after a crash.
    pub ended_unix_ms: Option<u64>,
    pub seed: u64,
    /// The command line, as typed.
    pub command: Vec<String>,
    /// Why it ended: `rounds done`, `intervals narrow enough`, `budget spent`, `interrupted`.
    pub ending: Option<String>,
    /// Fixed rate of the latency phase per workload, in operations/s, once it is known.
    pub rates: Vec<(String, f64)>,
}

/// A fact of the host: section (`cpu`, `kernel`, `network`, `versions` ...), key, value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFact {
    pub section: String,
    pub key: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnvironmentRecord {
    pub spec: EnvironmentSpec,
    /// The baseline's second copy (A/A).
    pub control: bool,
    /// Why it was left out, from the start or after failures; it usually has no slices.
    pub left_out: Option<String>,
    pub layers: Vec<LayerState>,
    /// What the system detected and chose.
    pub settings: Vec<(String, String)>,
    pub config: Option<String>,
    /// Time from the start command until the system answered, in ns.
    pub ready_ns: Option<u64>,
    pub teardown_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Closed loop, as fast as it goes.
    Capacity,
    /// Open loop at the rate that all environments share.
    Latency,
    /// The latency phase with probes that disturb it. Kept apart from all other figures.
    Traced,
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Capacity => "capacity",
        Phase::Latency => "latency",
        Phase::Traced => "traced",
    }
}

/// The table's CHECK admits no other names.
fn phase_of(name: &str) -> Phase {
    match name {
        "latency" => Phase::Latency,
        "traced" => Phase::Traced,
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
    /// Number of the round, from 0. The record calls rounds blocks.
    pub block: u32,
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
    /// The system's own account over the window, where it keeps one.
    pub own_account: Option<OwnAccount>,
    pub client_cpu_ns: u64,
    pub throttled_ns: Option<u64>,
    /// HdrHistogram V2 (compressed), ns; empty in a closed loop.
    pub response: Vec<u8>,
    /// HdrHistogram V2 (compressed), ns.
    pub service: Vec<u8>,
    pub counters: Vec<Counter>,
    /// Why the slice is void. `None`: it counts.
    pub void: Option<String>,
}

impl Slice {
    /// Returns the CPU time that the system spent in idle polling, by its own account, in ns.
    ///
    /// A system keeps its account by a clock, which goes on while the hypervisor or another task
    /// has the CPU. Where busy and idle time together exceed the CPU time, both are scaled down to
    /// it, so that time lost while idle does not look like free work. The result never exceeds the
    /// slice's CPU time.
    pub(crate) fn idle_poll_cpu_ns(&self) -> u64 {
        let Some(account) = self.own_account else { return 0 };
        let clocked = u128::from(account.busy_ns) + u128::from(account.idle_poll_ns);
        let cpu = u128::from(self.system_cpu_ns);
        if clocked <= cpu {
            return account.idle_poll_ns;
        }
        let scaled = u128::from(account.idle_poll_ns) * cpu / clocked;
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
