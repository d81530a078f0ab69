//! Divides the CPUs between the system, the client and the interrupts. Pure.
//!
//! Two hardware threads of a core share its execution units and its first caches, so each group
//! gets whole cores: on the same core, each would be measured with the other's load.

mod divide;
mod error;
mod plan;
mod topology;

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

pub use error::{PlanError, Unusable};
pub use plan::{CpuPlan, PlanNode};
pub use topology::{CpuTopology, ExcludedCpus, Node};

/// The CPUs of system, client and interrupts. `None` lets Tare divide them by cores, caches and
/// NUMA nodes; without a number or a list no CPU is kept for interrupts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSpec {
    pub system: Option<CpuSet>,
    pub client: Option<CpuSet>,
    /// The number of the system's CPUs, where `system` is a number and not a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_count: Option<u32>,
    /// CPUs that are kept for interrupts. An empty set keeps none, on a tuned host too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<CpuSet>,
    /// The number of those CPUs, where `interrupts` is a number and not a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts_count: Option<u32>,
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

impl CpuSpec {
    /// Returns whether the study says which CPUs are kept for interrupts, or that none are.
    pub fn says_interrupts(&self) -> bool {
        self.interrupts.is_some() || self.interrupts_count.is_some()
    }
}

/// Divides the CPUs of `topology`, which this process may use, between client, system and
/// interrupts.
///
/// CPUs that the study names come first. Interrupts get the first cores of each node, only on
/// request. Of the other cores the system gets half, the odd one included, or as many as the study
/// requests, in one last-level cache and one NUMA node if they fit. The client gets the rest, the
/// cores of the system's nodes first; where the system's number is given, at most as many cores as
/// the system. A single core is divided by its hardware threads, and a single CPU serves both,
/// which is a doubt on every figure.
///
/// # Errors
/// If the study requests CPUs that cannot be used or that leave none for another group.
pub fn plan(topology: &CpuTopology, spec: &CpuSpec) -> Result<CpuPlan, PlanError> {
    if topology.cpus().is_empty() {
        return Err(PlanError::NoCpu { isolated: topology.excluded.isolated.clone() });
    }
    check_topology(topology, spec)?;
    let mut part = topology.clone();
    if let Some(node) = spec.node {
        part.nodes.retain(|one| one.id == node);
        if part.nodes.is_empty() {
            let nodes: Vec<String> =
                topology.nodes.iter().map(|node| node.id.to_string()).collect();
            return Err(PlanError::NoSuchNode { wanted: node, nodes: nodes.join(", ") });
        }
    }
    check_named(topology, &part, spec)?;
    let interrupts = interrupts(&part, spec)?;
    let free = part.without_cores_of(&interrupts);
    let (system, client) = match (&spec.system, &spec.client) {
        (None, None) => automatic(&free, spec)?,
        (Some(system), Some(client)) => (system.clone(), client.clone()),
        (Some(system), None) => {
            (system.clone(), left_by(&free, system, "system", "client", spec.smt)?)
        }
        (None, Some(client)) => {
            (left_by(&free, client, "client", "system", spec.smt)?, client.clone())
        }
    };
    let all = system.union(&client);
    let room = part.cores().count() > CORES_WITHOUT_ROOM && system.is_disjoint(&client);
    let shared = if room { system.union(&interrupts) } else { all.clone() };
    let several = topology.nodes.len() > 1 || topology.memory.len() > 1;
    let node = |node: &Node| PlanNode { id: node.id, cpus: node.cpus() };
    Ok(CpuPlan {
        all,
        system,
        client,
        interrupts,
        shared,
        cores: topology.multithreaded_cores(),
        nodes: if several { topology.nodes.iter().map(node).collect() } else { Vec::new() },
        memory: if several { topology.memory.clone() } else { CpuSet::new() },
    })
}

/// With at most this many cores, a system that is not pinned shares the client's CPUs: otherwise it
/// would have no more than a pinned one, and each core matters.
const CORES_WITHOUT_ROOM: usize = 2;

/// Checks that the topology shows what the study refers to.
fn check_topology(topology: &CpuTopology, spec: &CpuSpec) -> Result<(), PlanError> {
    if topology.is_flat && spec.smt == SmtUse::LeaveIdle {
        return Err(PlanError::NoTopology);
    }
    match spec.node {
        Some(wanted) if !topology.memory.is_empty() && !topology.memory.contains(wanted) => {
            // A node without CPUs has another error.
            let has_cpus = topology.nodes.iter().any(|node| node.id == wanted);
            let with_memory = topology.memory.clone();
            if has_cpus { Err(PlanError::NoMemory { wanted, with_memory }) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// Checks that the CPUs that a study names may be used, and by one group each.
fn check_named(
    topology: &CpuTopology,
    part: &CpuTopology,
    spec: &CpuSpec,
) -> Result<(), PlanError> {
    for (key, wanted) in
        [("system", &spec.system), ("client", &spec.client), ("interrupts", &spec.interrupts)]
    {
        let Some(wanted) = wanted else { continue };
        // Interrupts may be on any node.
        let usable = if key == "interrupts" { topology.cpus() } else { part.cpus() };
        let missing = wanted.difference(&usable);
        if !missing.is_empty() {
            let (why, missing) = topology.why_unusable(&missing);
            return Err(PlanError::NotUsable { key, wanted: wanted.clone(), missing, why, usable });
        }
        let taken = spec.interrupts.as_ref().filter(|_| key != "interrupts");
        let both = taken.map(|taken| wanted.intersection(taken)).unwrap_or_default();
        if !both.is_empty() {
            return Err(PlanError::TakesInterrupts { key, wanted: wanted.clone(), both });
        }
    }
    Ok(())
}

/// Returns the CPUs that are kept for interrupts, if any.
fn interrupts(part: &CpuTopology, spec: &CpuSpec) -> Result<CpuSet, PlanError> {
    let taken = match (&spec.interrupts, spec.interrupts_count) {
        (Some(named), _) => named.clone(),
        (None, Some(wanted)) => {
            let wanted = wanted as usize;
            let threads = part.cores().map(CpuSet::len).max().unwrap_or(1);
            let cores = divide::interrupt_cores(part, wanted.div_ceil(threads));
            let taken: CpuSet = cores.iter().flat_map(CpuSet::iter).take(wanted).collect();
            if taken.len() < wanted {
                return Err(interrupts_take_all(part, wanted));
            }
            taken
        }
        (None, None) => CpuSet::new(),
    };
    if !taken.is_empty() && part.without_cores_of(&taken).cpus().len() < 2 {
        return Err(interrupts_take_all(part, taken.len()));
    }
    Ok(taken)
}

fn interrupts_take_all(part: &CpuTopology, wanted: usize) -> PlanError {
    let cores: Vec<&CpuSet> = part.cores().collect();
    // One core with two threads, or two cores, are enough for the system and the client.
    let kept = if cores.last().is_some_and(|core| core.len() > 1) { 1 } else { 2 };
    let most = cores.iter().rev().skip(kept).map(|core| core.len()).sum();
    PlanError::InterruptsTakeAll { wanted, usable: part.cpus(), most }
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
    let usable = topology.cpus();
    let rest = rest(topology, taken, smt);
    match rest.is_empty() {
        false => Ok(rest),
        true if usable.len() > 1 => {
            Err(PlanError::NothingLeft { key, wanted: taken.clone(), usable, other })
        }
        true => Ok(usable),
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
    let [first, others @ ..] = cores.as_slice() else {
        return Err(PlanError::NoCpu { isolated: CpuSet::new() });
    };
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
    let (system, client) = (topology.nodes_of(&plan.system), topology.nodes_of(&plan.client));
    let apart = !client.is_empty() && client.iter().all(|node| !system.contains(node));
    apart.then_some(client)
}

/// Returns the NUMA nodes of the system that have no memory: every access to memory goes to another
/// node. `None` if all have some.
pub fn nodes_without_memory(topology: &CpuTopology, plan: &CpuPlan) -> Option<Vec<u32>> {
    let mut nodes = topology.nodes_of(&plan.system);
    nodes.retain(|node| !topology.memory.contains(*node));
    (!topology.memory.is_empty() && !nodes.is_empty()).then_some(nodes)
}

#[cfg(test)]
mod tests;
