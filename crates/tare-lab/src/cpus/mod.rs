//! Divides the CPUs between the client and the system. Pure.
//!
//! Two hardware threads of a core share its execution units and its first caches, so the client and
//! the system get whole cores: on the same core, each would be measured with the other's load.

mod divide;
mod topology;

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

pub use topology::{CpuTopology, Node};

/// The CPUs of system and client. `None` lets Tare divide them by cores, caches and NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSpec {
    pub system: Option<CpuSet>,
    pub client: Option<CpuSet>,
    /// The number of the system's CPUs, where `system` is a number and not a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_count: Option<u32>,
    /// The only NUMA node whose CPUs are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    #[serde(default, skip_serializing_if = "SmtUse::is_default")]
    pub smt: SmtUse,
}

/// The hardware threads of a core that are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SmtUse {
    /// All of them.
    #[default]
    Use,
    /// The first; its siblings are left idle.
    LeaveIdle,
}

impl SmtUse {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The CPUs of system and client during a study.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPlan {
    /// Every CPU that Tare may use.
    pub all: CpuSet,
    /// CPUs of the system under test where its `cpu` layer is `pinned`.
    pub system: CpuSet,
    /// CPUs of the client. Disjoint from `system` unless the host has a single CPU.
    pub client: CpuSet,
    /// The host's cores with more than one hardware thread, which is how two CPUs share a core.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<CpuSet>,
}

/// Why the CPUs cannot be divided as a study requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(
        "[cpus] {key} = \"{wanted}\" names CPU {missing}, which may not be used here; there are {online}"
    )]
    NotOnline { key: &'static str, wanted: CpuSet, missing: CpuSet, online: CpuSet },
    #[error("[cpus] {key} = \"{wanted}\" takes every CPU ({online}); leave one for the {other}")]
    NothingLeft { key: &'static str, wanted: CpuSet, online: CpuSet, other: &'static str },
    #[error(
        "[cpus] system = {wanted} leaves no core for the client: {cores} cores with {cpus} CPUs may \
         be used here; request at most {most}"
    )]
    TooMany { wanted: u32, cores: usize, cpus: usize, most: usize },
    #[error(
        "[cpus] node = {wanted}: no CPU of that NUMA node may be used here; there are nodes {nodes}"
    )]
    NoSuchNode { wanted: u32, nodes: String },
    #[error("there is no CPU to use")]
    NoCpu,
}

/// Divides the CPUs of `topology`, which this process may use, between client and system.
///
/// CPUs that the study names come first. Otherwise the system gets half of the cores, the odd one
/// included, or as many as the study requests, in one last-level cache and one NUMA node if they
/// fit. The client gets the other cores, those of the system's nodes first; where the system's
/// number is given, at most as many cores as the system. A single core is divided by its hardware
/// threads, and a single CPU serves both, which is a doubt on every figure.
///
/// # Errors
/// If the study requests CPUs that do not exist or that leave none for the other side.
pub fn plan(topology: &CpuTopology, spec: &CpuSpec) -> Result<CpuPlan, PlanError> {
    if topology.cpus().is_empty() {
        return Err(PlanError::NoCpu);
    }
    let mut part = topology.clone();
    if let Some(node) = spec.node {
        part.nodes.retain(|one| one.id == node);
        if part.nodes.is_empty() {
            let nodes: Vec<String> =
                topology.nodes.iter().map(|node| node.id.to_string()).collect();
            return Err(PlanError::NoSuchNode { wanted: node, nodes: nodes.join(", ") });
        }
    }
    check_named(&part, spec)?;
    let (system, client) = match (&spec.system, &spec.client) {
        (None, None) => automatic(&part, spec)?,
        (Some(system), Some(client)) => (system.clone(), client.clone()),
        (Some(system), None) => {
            (system.clone(), left_by(&part, system, "system", "client", spec.smt)?)
        }
        (None, Some(client)) => {
            (left_by(&part, client, "client", "system", spec.smt)?, client.clone())
        }
    };
    let all = system.union(&client);
    Ok(CpuPlan { all, system, client, cores: topology.multithreaded_cores() })
}

/// Checks that the CPUs that a study names may be used.
fn check_named(topology: &CpuTopology, spec: &CpuSpec) -> Result<(), PlanError> {
    let online = topology.cpus();
    for (key, wanted) in [("system", &spec.system), ("client", &spec.client)] {
        let Some(wanted) = wanted else { continue };
        let missing = wanted.difference(&online);
        if !missing.is_empty() {
            let wanted = wanted.clone();
            return Err(PlanError::NotOnline { key, wanted, missing, online });
        }
    }
    Ok(())
}

/// Returns the CPUs that the set of one side, `key`, leaves for the other. A single CPU serves
/// both.
fn left_by(
    topology: &CpuTopology,
    taken: &CpuSet,
    key: &'static str,
    other: &'static str,
    smt: SmtUse,
) -> Result<CpuSet, PlanError> {
    let online = topology.cpus();
    let rest = rest(topology, taken, smt);
    match rest.is_empty() {
        false => Ok(rest),
        true if online.len() > 1 => {
            Err(PlanError::NothingLeft { key, wanted: taken.clone(), online, other })
        }
        true => Ok(online),
    }
}

/// Returns the cores without a CPU of `taken`; if there is none, all CPUs that are not taken.
fn rest(topology: &CpuTopology, taken: &CpuSet, smt: SmtUse) -> CpuSet {
    let free = |core: &&CpuSet| core.is_disjoint(taken);
    let usable = |core: &CpuSet| -> Vec<u32> {
        let threads = if smt == SmtUse::LeaveIdle { 1 } else { core.len() };
        core.iter().take(threads).collect()
    };
    let cores: CpuSet = topology.cores().filter(free).flat_map(usable).collect();
    if cores.is_empty() { topology.cpus().difference(taken) } else { cores }
}

fn automatic(topology: &CpuTopology, spec: &CpuSpec) -> Result<(CpuSet, CpuSet), PlanError> {
    let usable = match spec.smt {
        SmtUse::Use => topology.clone(),
        SmtUse::LeaveIdle => topology.first_threads(),
    };
    let cores: Vec<&CpuSet> = usable.cores().collect();
    let [first, others @ ..] = cores.as_slice() else { return Err(PlanError::NoCpu) };
    if others.is_empty() {
        return one_core(first, spec.system_count);
    }
    let threads = cores.iter().map(|core| core.len()).max().unwrap_or(1);
    let count = match spec.system_count {
        Some(wanted) => {
            let count = (wanted as usize).div_ceil(threads);
            if count == 0 || count >= cores.len() {
                let cpus = usable.cpus().len();
                let most = (cores.len() - 1) * threads;
                return Err(PlanError::TooMany { wanted, cores: cores.len(), cpus, most });
            }
            count
        }
        None => cores.len().div_ceil(2),
    };
    let chosen = divide::system_cores(&usable, count);
    let system_cores: CpuSet = chosen.iter().flat_map(CpuSet::iter).collect();
    let system = match spec.system_count {
        Some(wanted) => system_cores.iter().take(wanted as usize).collect(),
        None => system_cores.clone(),
    };
    let most = if spec.system_count.is_some() { count } else { cores.len() };
    Ok((system, client(&usable, &system_cores, most)))
}

/// Returns at most `most` of the other cores, those of the system's nodes first.
fn client(topology: &CpuTopology, system: &CpuSet, most: usize) -> CpuSet {
    let free = |core: &&CpuSet| core.is_disjoint(system);
    let near = |node: &&Node| node.cores().any(|core| !free(&core));
    let (near, far): (Vec<&Node>, Vec<&Node>) = topology.nodes.iter().partition(near);
    let cores = near.into_iter().chain(far).flat_map(Node::cores).filter(free);
    cores.take(most).flat_map(CpuSet::iter).collect()
}

/// Divides the hardware threads of a single core: the client gets the lower half.
fn one_core(core: &CpuSet, wanted: Option<u32>) -> Result<(CpuSet, CpuSet), PlanError> {
    let cpus = core.len();
    let system = wanted.map_or(cpus - (cpus / 2).max(1), |wanted| wanted as usize);
    match wanted {
        _ if cpus == 1 && system <= 1 => return Ok((core.clone(), core.clone())),
        Some(wanted) if system == 0 || system >= cpus => {
            return Err(PlanError::TooMany { wanted, cores: 1, cpus, most: cpus - 1 });
        }
        _ => (),
    }
    let client: CpuSet = core.iter().take(cpus - system).collect();
    Ok((core.difference(&client), client))
}

/// Returns the NUMA nodes of the client if the system uses none of them: every packet between the
/// two then crosses the interconnect of the nodes.
pub fn distant_client(topology: &CpuTopology, plan: &CpuPlan) -> Option<Vec<u32>> {
    let nodes_of = |cpus: &CpuSet| -> Vec<u32> {
        let on = |node: &&Node| node.cores().any(|core| !core.is_disjoint(cpus));
        topology.nodes.iter().filter(on).map(|node| node.id).collect()
    };
    let (system, client) = (nodes_of(&plan.system), nodes_of(&plan.client));
    let apart = !client.is_empty() && client.iter().all(|node| !system.contains(node));
    apart.then_some(client)
}

#[cfg(test)]
mod tests;
