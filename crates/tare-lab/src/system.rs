//! The system under test, as the core sees it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::PartError;
use crate::environment::Launch;

/// A system's own account of its CPU time since it was started, in ns. A polling system burns its
/// CPUs whether or not it works, so this says how much of the burning was waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnAccount {
    /// Time spent working.
    pub busy_ns: u64,
    /// CPU time burnt in polling without finding work.
    pub idle_poll_ns: u64,
}

/// A database or another server that a study weighs. Implementations live in `tare-system`.
pub trait System {
    /// Name as in the study and in `tare list`.
    fn name(&self) -> &str;

    /// What to start. `cpus` is how many CPUs the baseline gives the system: every environment
    /// starts the same number of shards, so that only the layer differs.
    fn launch(&self, cpus: usize) -> Launch;

    /// What the system found in its environment and chose (I/O engine, polling, shards ...), from
    /// its data directory as the host sees it.
    fn settings(&self, data: &Path) -> Result<Vec<(String, String)>, PartError>;

    /// The system's own account of its CPU time, where it keeps one. Takes well under 1 ms.
    fn own_account(&self, data: &Path) -> Result<Option<OwnAccount>, PartError>;
}
