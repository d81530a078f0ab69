//! The guard against a plan that hurts: more queues on an interrupt CPU than it can serve.

use super::{CpuSets, Options};
use crate::machine::Machine;

/// A plan that would overload the CPUs of interrupts.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GuardError {
    #[error("placeholder")]
    Queues,
}

/// Checks a division of the CPUs against the queues that will deliver to them.
///
/// # Errors
/// When an interrupt CPU would get more than it can serve.
pub fn check(
    machine: &Machine,
    options: &Options,
    cpus: &CpuSets,
    notes: &mut Vec<String>,
) -> Result<(), GuardError> {
    let _ = (machine, options, cpus, notes);
    Ok(())
}
