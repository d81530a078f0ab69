//! Compares what a container has with the settings of `container`, for containers that run and for
//! compose files. Units share the choice of CPUs.
//!
//! Method: amounts that the user chose stay: the number of CPUs (a quota becomes as many whole
//! CPUs), memory, higher limits. Only what differs becomes a step.
//!
//! Limits: which CPUs other containers have is not known here, except for `Request::instances`.

use tare_std::cpus::CpuSet;

use super::container::{self, Kind, Setting};
use super::{Context, Engine, Flag, FlagsError, Instance, InstancesError, Layer, instances};
use crate::machine::Topology;

/// Networks that an engine has by itself.
pub(super) const ENGINES_OWN: [&str; 2] = ["bridge", "podman"];

/// What a container has, in neutral form.
#[derive(Clone, Debug, Default)]
pub(super) struct Present {
    pub(super) cpus: Option<CpuSet>,
    /// A quota in thousandths of a CPU.
    pub(super) quota_millis: Option<u64>,
    /// NUMA nodes for memory.
    pub(super) nodes: Option<CpuSet>,
    pub(super) network: PresentNetwork,
    /// Limits by their names (`nofile`), soft and hard.
    pub(super) limits: Vec<(String, Limit, Limit)>,
    /// Capabilities that are added, without `CAP_`.
    pub(super) capabilities: Vec<String>,
    pub(super) privileged: bool,
    pub(super) seccomp: PresentSeccomp,
    /// The most processes; `None`: no limit.
    pub(super) pids: Option<u64>,
    pub(super) shared_memory: Option<u64>,
    /// In bytes; `None`: no limit.
    pub(super) memory: Option<u64>,
    /// Memory and swap together, in bytes; `None`: no limit, or the engine's default.
    pub(super) memory_and_swap: Option<u64>,
    pub(super) log: PresentLog,
    pub(super) restarts: bool,
    /// Whether it is removed when it ends.
    pub(super) removed: bool,
    /// Directories inside with a mount.
    pub(super) mounts: Vec<String>,
}

/// A limit of a process; `None`: unlimited.
pub(super) type Limit = Option<u64>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum PresentNetwork {
    Host,
    /// A network of the engine, with its name.
    Own(String),
    /// None, or that of another container.
    Left(String),
    #[default]
    Default,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PresentSeccomp {
    #[default]
    Default,
    /// No filter, or the wanted one.
    Fits,
    /// A profile of the user.
    Own,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum PresentLog {
    /// Its size is limited, or it is no file.
    Fits,
    /// A driver whose files grow without limit.
    Unlimited(String),
    /// A driver that writes files, perhaps with a limit.
    Unknown,
    /// The engine's default.
    #[default]
    Default,
}

/// A published port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    /// Empty: every address of the host.
    pub(super) address: String,
    /// Empty: the engine chooses one.
    pub(super) outside: String,
    pub(super) inside: String,
}

/// One thing that has to change.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Set(Setting),
    /// The CPU quota goes.
    DropQuota,
}

/// A step with its reason, and what there is now.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    pub(super) step: Step,
    pub(super) now: Option<String>,
    pub(super) flag: Flag,
}

/// Chooses the CPUs: those that it has, as many as its quota, or an instance's share.
///
/// # Errors
/// When the host has too few.
pub(super) fn size(context: &Context<'_>, present: &Present) -> Result<Instance, FlagsError> {
    let Context { topology, cpus, .. } = context;
    let own = present.cpus.clone().filter(|own| !own.is_empty());
    let of_quota = present.quota_millis.map(|millis| instances::cpus_of_millis(topology, millis));
    if let (Some(own), None) = (&own, of_quota)
        && own.is_subset(&cpus.compute)
    {
        return Ok(Instance {
            number: 1,
            nodes: instances::nodes_of(topology, own),
            cpus: own.clone(),
        });
    }
    let inside = own.as_ref().map(|own| own.intersection(&cpus.compute));
    let set = match (of_quota, inside) {
        (Some(count), Some(own)) if own.len() >= count => first_cores(topology, &own, count),
        (Some(count), _) => first_cores(topology, &cpus.compute, count),
        (None, Some(own)) if !own.is_empty() => own,
        (None, _) => {
            instances::divide(topology, &cpus.compute, context.request.instances)?
                .swap_remove(0)
                .cpus
        }
    };
    if let Some(count) = of_quota
        && set.len() < count
    {
        let available = cpus.compute.len();
        return Err(InstancesError::TooFew { wanted: count, available }.into());
    }
    Ok(Instance { number: 1, nodes: instances::nodes_of(topology, &set), cpus: set })
}

/// Returns the CPUs of the first whole cores of a set, at most `count`.
fn first_cores(topology: &Topology, pool: &CpuSet, count: usize) -> CpuSet {
    let part = topology.restrict(pool);
    let mut set = CpuSet::new();
    for core in part.cores() {
        if set.len() + core.cpus.len() <= count {
            set = set.union(&core.cpus);
        }
    }
    // Cores of which only a part is in the set.
    let rest = pool.difference(&set);
    set.union(&rest.iter().take(count - set.len()).collect())
}

/// Returns what has to change, and notes about what is left alone.
///
/// # Errors
/// When the memory is too little for the database.
pub(super) fn missing(
    context: &Context<'_>,
    instance: &Instance,
    kind: Kind,
    present: &Present,
) -> Result<(Vec<Missing>, Vec<String>), FlagsError> {
    let mut missing = Vec::new();
    let mut notes = Vec::new();
    for (setting, flag) in container::settings(context, instance, kind)? {
        let needed = needed(context.engine, &setting, present, &mut notes);
        if matches!(setting, Setting::Cpus(_))
            && let Some(millis) = present.quota_millis
        {
            missing.push(quota(context, millis));
        }
        if let Some(now) = needed {
            missing.push(Missing { step: Step::Set(setting), now, flag });
        }
    }
    Ok((missing, notes))
}

fn quota(context: &Context<'_>, millis: u64) -> Missing {
    let whole = millis as f64 / 1000.0;
    Missing { step: Step::DropQuota, now: Some(whole.to_string()), flag: no_quota(context) }
}

/// Returns the reason for having no CPU quota.
pub(super) fn no_quota(context: &Context<'_>) -> Flag {
    context.flag(
        String::new(),
        "A quota throttles the database for the rest of each period when it has used its share. \
         CPUs of its own are as many, without pauses.",
        "Documentation/scheduler/sched-bwc.rst",
        Some(Layer::Cpu),
    )
}

/// Returns what the container has now of a setting that it lacks; `None` if nothing has to change.
fn needed(
    engine: Engine,
    setting: &Setting,
    present: &Present,
    notes: &mut Vec<String>,
) -> Option<Option<String>> {
    match setting {
        Setting::Cpus(cpus) => differs(present.cpus.as_ref(), cpus),
        Setting::Nodes(nodes) => differs(present.nodes.as_ref(), nodes),
        Setting::HostNetwork => network(&present.network, notes),
        Setting::Files(wanted) => limit(present, "nofile", Some(*wanted)),
        Setting::Processes(wanted) => limit(present, "nproc", Some(*wanted)),
        Setting::LockedMemory(wanted) => limit(present, "memlock", *wanted),
        Setting::Capability(name) => {
            let has = present.capabilities.iter().any(|has| has == name || has == "ALL");
            (!has && !present.privileged).then_some(None)
        }
        Setting::Seccomp(path) => match present.seccomp {
            _ if present.privileged => None,
            PresentSeccomp::Fits => None,
            PresentSeccomp::Default => Some(None),
            PresentSeccomp::Own => {
                notes.push(format!(
                    "The container has a seccomp profile of its own, which is left alone: allow the \
                     calls of io_uring in it as {path} does."
                ));
                None
            }
        },
        Setting::Pids(wanted) => {
            let low = present.pids.filter(|pids| *pids < u64::from(*wanted))?;
            Some(Some(low.to_string()))
        }
        // What another database needs of it is not known.
        Setting::SharedMemory(_) | Setting::Volume { .. } if engine == Engine::Other => None,
        Setting::SharedMemory(wanted) => match present.shared_memory {
            Some(has) if has >= *wanted => None,
            has => Some(has.map(|has| has.to_string())),
        },
        Setting::Memory(wanted) => {
            let swaps = present.memory_and_swap != Some(*wanted);
            let now = present.memory.map(|memory| match present.memory_and_swap {
                Some(both) if both > memory => format!("{memory} and {} of swap", both - memory),
                _ => memory.to_string(),
            });
            (present.memory != Some(*wanted) || swaps).then_some(now)
        }
        Setting::Volume { inside, .. } => {
            if !is_mounted(&present.mounts, inside) {
                notes.push(format!(
                    "Nothing is mounted at {inside}, so the data is in the container's own layer, \
                     which is lost with it and copies a whole file at its first write: copy the data \
                     out and mount a directory there before the container is removed."
                ));
            }
            None
        }
        Setting::Log => match &present.log {
            PresentLog::Fits => None,
            PresentLog::Unlimited(driver) => Some(Some(driver.clone())),
            PresentLog::Default => Some(None),
            PresentLog::Unknown => {
                notes.push(
                    "The engine does not say whether the size of its log is limited: without \
                     --log-opt=max-size=100m the file grows without limit."
                        .into(),
                );
                None
            }
        },
        Setting::Restart if present.removed => {
            notes.push(
                "It is removed when it ends (--rm), so it has no restart policy: a crash or a reboot \
                 ends the database."
                    .into(),
            );
            None
        }
        Setting::Restart => (!present.restarts).then_some(None),
    }
}

fn differs(now: Option<&CpuSet>, wanted: &CpuSet) -> Option<Option<String>> {
    (now != Some(wanted)).then(|| now.map(CpuSet::to_string))
}

fn network(present: &PresentNetwork, notes: &mut Vec<String>) -> Option<Option<String>> {
    match present {
        PresentNetwork::Host => None,
        PresentNetwork::Default => Some(None),
        PresentNetwork::Own(name) => Some(Some(name.clone())),
        PresentNetwork::Left(what) => {
            notes.push(format!("Its network is {what}, which is left alone."));
            None
        }
    }
}

/// Returns notes about where clients find a container that comes onto the host's network.
pub(super) fn reached(ports: &[Port], network: &PresentNetwork) -> Vec<String> {
    let mut notes = Vec::new();
    let moved = ports.iter().filter(|port| port.outside != port.inside).map(|port| {
        let outside = if port.outside.is_empty() { "any" } else { &port.outside };
        format!("{outside} -> {}", port.inside)
    });
    let moved: Vec<String> = moved.collect();
    if !moved.is_empty() {
        notes.push(format!(
            "Its ports are no longer mapped, and clients connect to its own: {}.",
            moved.join(", ")
        ));
    }
    let mut narrow: Vec<&str> = ports.iter().map(|port| port.address.as_str()).collect();
    narrow.retain(|address| !["", "0.0.0.0", "::"].contains(address));
    narrow.sort_unstable();
    narrow.dedup();
    notes.push(match narrow.is_empty() {
        true => {
            "On the host's network the database decides at which addresses it is reached, and a \
                 firewall of the host decides by whom: check its listen address."
                .into()
        }
        false => format!(
            "It is published at {} only. On the host's network its own listen address decides who \
             reaches it: set that to the same address before it starts.",
            narrow.join(", ")
        ),
    });
    if let PresentNetwork::Own(name) = network
        && !ENGINES_OWN.contains(&name.as_str())
    {
        notes.push(format!(
            "Containers on the network {name} no longer find it by name: give them the host's address."
        ));
    }
    notes
}

/// Returns the present limit if it is lower than the wanted one.
fn limit(present: &Present, name: &str, wanted: Limit) -> Option<Option<String>> {
    let found = present.limits.iter().find(|(found, ..)| found == name);
    let Some((_, soft, hard)) = found else { return Some(None) };
    let enough = |has: &Limit| match (has, wanted) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(has), Some(wanted)) => *has >= wanted,
    };
    let written = |limit: &Limit| limit.map_or("unlimited".to_string(), |limit| limit.to_string());
    match enough(soft) && enough(hard) {
        true => None,
        false => Some(Some(format!("{}:{}", written(soft), written(hard)))),
    }
}

/// Whether a mount is at a path, above or below it.
fn is_mounted(mounts: &[String], path: &str) -> bool {
    let below =
        |path: &str, at: &str| path.strip_prefix(at).is_some_and(|rest| rest.starts_with('/'));
    mounts
        .iter()
        .map(|at| at.trim_end_matches('/'))
        .any(|at| path == at || (!at.is_empty() && below(path, at)) || below(at, path))
}
