//! Which CPUs take interrupts and which compute.

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

use super::Options;
use crate::machine::Machine;

/// How the CPUs are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// By the number of cores and threads.
    #[default]
    Auto,
    /// Interrupts and compute share all CPUs.
    Mq,
    /// One hardware thread takes the interrupts.
    Sq,
    /// One core, with all its threads, takes the interrupts.
    SqSplit,
    /// Interrupts are left where they are.
    None,
}

/// The division of the CPUs. `irq` and `compute` are equal or disjoint; together they are `universe`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSets {
    /// All CPUs that the database and its interrupts use.
    pub universe: CpuSet,
    pub irq: CpuSet,
    pub compute: CpuSet,
    /// The rule that gave them, with this machine's figures.
    pub why: String,
}

/// Why the CPUs cannot be divided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuSetsError {
    #[error("placeholder")]
    Empty,
}

/// Divides the CPUs of a machine.
///
/// # Errors
/// When the options name CPUs that are not there, leave none to compute, or leave NUMA nodes uneven.
pub fn choose(machine: &Machine, options: &Options) -> Result<CpuSets, CpuSetsError> {
    let _ = (machine, options);
    Ok(CpuSets::default())
}

/// What the user should know of the division.
pub fn notes(machine: &Machine, options: &Options, cpus: &CpuSets) -> Vec<String> {
    let _ = (machine, options, cpus);
    Vec::new()
}
