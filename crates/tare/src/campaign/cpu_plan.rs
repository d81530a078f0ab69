//! The division of this host's CPUs for a study.

use std::path::Path;

use tare_lab::cpus::{self, CpuTopology};
use tare_lab::environment::CpuPlan;
use tare_lab::study::Study;
use tare_tune::plan::Options;

use super::{CampaignConfig, fit, interrupts};
use crate::exit::{Exit, ExitWith};
use crate::stream::warn;
use crate::topology;

/// Divides the CPUs that this process may use as the study says. Where the study does not say which
/// CPUs are kept for interrupts, those of the tuner are, if it has tuned this host or will tune it
/// for the study with `options`.
pub(crate) fn of_study(study: &Study, options: &Options, state: &Path) -> anyhow::Result<CpuPlan> {
    let (topology, plan) = divide(study, options, state)?;
    for line in notes(&topology, &plan, study) {
        warn(&line);
    }
    Ok(plan)
}

/// Divides them, and prints nothing about it.
pub(crate) fn quietly(config: &CampaignConfig, state: &Path) -> anyhow::Result<CpuPlan> {
    Ok(divide(&config.study, &config.plan_options, state)?.1)
}

fn divide(
    study: &Study,
    options: &Options,
    state: &Path,
) -> anyhow::Result<(CpuTopology, CpuPlan)> {
    let topology = topology::allowed_here()?;
    let mut spec = study.cpus.clone();
    if !spec.says_interrupts() {
        let interrupts = interrupts::of_tuner(study, options, state)?;
        let interrupts = interrupts.map(|cpus| cpus.intersection(&topology.cpus()));
        spec.interrupts = interrupts.filter(|cpus| !cpus.is_empty());
    }
    let plan = cpus::plan(&topology, &spec).exit_with(Exit::Input)?;
    Ok((topology, plan))
}

/// Returns what makes a plan worse than it could be, one line each with what to write instead.
fn notes(topology: &CpuTopology, plan: &CpuPlan, study: &Study) -> Vec<String> {
    let mut lines = Vec::new();
    let list = |nodes: &[u32]| nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    if let Some(nodes) = cpus::distant_client(topology, plan) {
        lines.push(format!(
            "the client is on NUMA node {} and the system on another, so that packets cross the \
             interconnect; [cpus] node = N in the study keeps both on one node",
            list(&nodes)
        ));
    }
    if let Some(nodes) = cpus::nodes_without_memory(topology, plan) {
        let others: Vec<u32> = topology.memory.iter().collect();
        lines.push(format!(
            "the system is on NUMA node {}, which has no memory, so that every access goes to \
             another node; write [cpus] node = N with N one of {}",
            list(&nodes),
            list(&others)
        ));
    }
    let named = study.cpus.system.is_some() && study.cpus.client.is_some();
    if topology.is_flat && plan.all.len() > 2 && !named {
        lines.push(
            "this kernel does not show which CPUs share a core (/sys/devices/system/cpu), so that \
             client and system may; if CPUs are hardware threads, name whole cores: [cpus] system = \
             \"...\", client = \"...\""
                .into(),
        );
    }
    let instances = if study.hosts.is_empty() { fit::instances(study) } else { 1 };
    let cores = plan.cores_of(&plan.system).len();
    if instances as usize > cores {
        let cores = if cores == 1 { "core".into() } else { format!("{cores} cores") };
        lines.push(format!(
            "the {instances} instances share the {cores} of the system (CPUs {}); for a core each, \
             write fewer instances, or give the system more CPUs with [cpus] system = N",
            plan.system
        ));
    }
    lines
}
