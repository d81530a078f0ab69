//! Runs an instance of a system on this host by the orders of a harness, for `tare weigh`.

use std::io::BufReader;
use std::path::Path;

use tare_cluster::agent::{self, AgentOptions};
use tare_cluster::protocol::Opening;
use tare_lab::PartError;
use tare_lab::cpus::{self, CpuPlan};

use crate::exit::Exit;
use crate::{cleanup, topology};

pub(crate) fn run(state: &Path) -> anyhow::Result<Exit> {
    // Ctrl-C reaches the harness too, which orders the end.
    let _ignored = crate::signals::stop_flag()?;
    // What a killed run left behind would disturb the measurement.
    cleanup::before_run(state);
    let options = AgentOptions { state: state.into(), program: crate::own_program()? };
    let input = BufReader::new(std::io::stdin());
    agent::serve(&options, &divide, input, &mut std::io::stdout())?;
    Ok(Exit::Success)
}

/// Divides the CPUs of this host. There is no client on it, so the system gets all that are not
/// kept for interrupts.
fn divide(opening: &Opening) -> Result<CpuPlan, PartError> {
    let topology = topology::allowed_here()?;
    let mut spec = opening.cpus.clone();
    let kept = spec.interrupts.clone().unwrap_or_default();
    let all = topology.cpus().difference(&kept);
    let system = spec.system.take().unwrap_or(all);
    spec.client = Some(system.clone());
    spec.system = Some(system);
    let mut plan = cpus::plan(&topology, &spec)?;
    plan.client = tare_std::cpus::CpuSet::new();
    plan.shared = plan.system.clone();
    Ok(plan)
}
