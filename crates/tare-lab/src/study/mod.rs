//! A study after parsing and checking.
//!
//! `parse` makes one from TOML text and a `Vocabulary`; every error says file, line and column,
//! shows the line with a caret and names the nearest valid word.

mod checks;
mod environments;
mod expand;
mod parse;
mod published;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::environment::EnvironmentSpec;

pub use crate::cpus::CpuSpec;
pub use parse::{defaults, parse, parse_quick};
pub use published::{Claim, Expected, Percentile, PublishedRelation, Sign};
pub use tare_toml::{Hint, Problem, TomlError as StudyError, ValueError, parse_share};
pub use vocabulary::{KnownOption, KnownPart, KnownWorkload, OptionInfo, Vocabulary};

/// Every key of a study with its meaning and default, as a file that can be run.
pub const TEMPLATE: &str = include_str!("template.toml");

/// Name of the baseline's second copy, the A/A control, which every study gets.
pub fn control_name(baseline: &str) -> String {
    format!("{baseline} again")
}

/// A checked study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    pub name: String,
    /// One line: what the study asks.
    pub title: String,
    /// Name of the environment that all others are compared with.
    pub baseline: String,
    pub system: SystemSpec,
    /// Name of the driver.
    pub driver: String,
    pub schedule: ScheduleSpec,
    pub cpus: CpuSpec,
    /// In the order of the file. The A/A control is added by the campaign, not listed here.
    pub environments: Vec<EnvironmentSpec>,
    pub workloads: Vec<WorkloadSpec>,
    /// Published relations for the same question, shown beside ours with a verdict.
    pub published: Vec<PublishedRelation>,
    /// Set where this is the quick part of the study (`tare weigh --quick`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quick: Option<QuickPart>,
}

/// The environments and workloads that the quick part of a study leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuickPart {
    /// Names of environments of the study file that are not in this part.
    pub environments: Vec<String>,
    /// Names of workloads of the study file that are not in this part.
    pub workloads: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SystemSpec {
    /// `tare-db`, ...
    pub name: String,
    /// Options of the system, such as `durability = "periodic"`, in the order of the file.
    pub options: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// All environments up, loaded and frozen but one; short slices in random rounds.
    Slices,
    /// Whole runs, interleaved by round, a fresh data directory each.
    Trials,
}

/// How the rows of the workloads get into an environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataStart {
    /// The driver writes them after each start.
    #[default]
    Loaded,
    /// The driver writes them once, in the baseline; each start begins with a copy of what that
    /// left. Where a system's data cannot be kept, or not put into an environment, they are loaded.
    Restored,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleSpec {
    pub kind: ScheduleKind,
    #[serde(default)]
    pub data: DataStart,
    /// Measured window of a slice or trial.
    pub window: Duration,
    /// Load before the window, not measured.
    pub lead_in: Duration,
    /// At most this many rounds. A round is a round: every environment once, in random order.
    pub rounds: u32,
    /// At least this many rounds before an early stop.
    pub rounds_min: u32,
    /// Time for the whole study, set-up and teardown included.
    pub budget: Duration,
    /// Stop early once every cost's 95 % interval is narrower than this, in percentage points from
    /// end to end. 0 never stops early.
    pub stop_width_percent: f64,
    /// Seed of the order, the keys and the rows. `None` takes one from the system and records it.
    pub seed: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadSpec {
    pub name: String,
    /// One that the driver knows by name (`ycsb-a`). Then its shares, columns and keys are its own,
    /// and those below say nothing, and are 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Share of writes among the operations, 0 to 1; the rest are reads by key.
    pub write_share: f64,
    /// Rows that exist before the load and that keys are drawn from.
    pub rows: u64,
    pub columns: u32,
    pub column_bytes: u32,
    pub keys: KeyDistribution,
    /// Connections to the system.
    pub connections: u32,
    /// Requests in flight over all connections (closed loop; the limit of an open loop is far
    /// above).
    pub in_flight: u32,
    /// Fixed rate of the latency phase as a share of the baseline's capacity; 0 skips the phase.
    pub latency_share: f64,
    /// Fixed rate of the latency phase in operations/s, instead of a share.
    pub rate_per_s: Option<f64>,
    /// What is asked, in the words of a driver that has its own, as (name, value). Then rows, keys
    /// and connections above say nothing, and are 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum KeyDistribution {
    Uniform,
    Sequential,
    /// As cassandra-stress's `gaussian(1..N)`: mean at half of the rows, deviation a sixth of them,
    /// unless set (both as shares of the rows).
    Gaussian {
        mean_share: f64,
        deviation_share: f64,
    },
}
