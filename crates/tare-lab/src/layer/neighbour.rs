//! The neighbours layer: other programs that run on the host while the environment runs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

use super::Layer;
use super::text::{BadLayerValue, serde_as_text};
use crate::cpus::CpuPlan;

/// The most workers of one neighbour.
pub const NEIGHBOUR_WORKERS_MAX: u32 = 1024;

/// What a neighbour does to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourKind {
    Cpu,
    MemoryBandwidth,
    LastLevelCache,
    Disk,
    Network,
    PageCache,
    SystemCalls,
    /// Another system and its load.
    System,
    /// A command of the study.
    Command,
}

impl NeighbourKind {
    /// Every kind, as studies write it, with one line of help.
    pub const ALL: [(Self, &'static str, &'static str); 9] = [
        (Self::Cpu, "cpu", "computes; load is its share of a CPU for each worker"),
        (
            Self::MemoryBandwidth,
            "memory bandwidth",
            "reads and writes memory: size (256M) for each worker, at most rate per second",
        ),
        (
            Self::LastLevelCache,
            "last level cache",
            "reads and writes memory of the size of the last level cache",
        ),
        (
            Self::Disk,
            "disk",
            "random direct writes and reads of a file of size (256M) for each worker, on the device of the data",
        ),
        (
            Self::Network,
            "network",
            "TCP over the loopback device of a network namespace of its own",
        ),
        (
            Self::PageCache,
            "page cache",
            "reads a file of size (1G) for each worker through the page cache, on the device of the data",
        ),
        (Self::SystemCalls, "system calls", "calls get*(2), which change nothing"),
        (
            Self::System,
            "system",
            "runs system (its name and options) under the load of driver with workload",
        ),
        (Self::Command, "command", "runs command, a list of words"),
    ];

    /// Returns the kind as studies write it.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, _)| name)
    }

    /// Whether it has workers of its own number.
    pub fn has_workers(self) -> bool {
        !matches!(self, Self::Command | Self::System)
    }

    /// Returns the size for each worker if the study gives none; `None` if the kind has no size.
    pub fn default_size_bytes(self) -> Option<u64> {
        match self {
            Self::MemoryBandwidth | Self::Disk => Some(256 << 20),
            Self::PageCache | Self::System => Some(1 << 30),
            _ => None,
        }
    }

    /// Whether it writes files.
    pub fn uses_disk(self) -> bool {
        matches!(self, Self::Disk | Self::PageCache)
    }
}

impl fmt::Display for NeighbourKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for NeighbourKind {
    type Err = BadLayerValue;

    fn from_str(text: &str) -> Result<Self, BadLayerValue> {
        let found = Self::ALL.iter().find(|(_, name, _)| *name == text);
        found.map(|(kind, ..)| *kind).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(_, name, _)| *name).collect();
            let wanted = format!("use one of {}", names.join(", "));
            BadLayerValue::new(Layer::Neighbours, text, &wanted)
        })
    }
}

serde_as_text!(NeighbourKind);

/// The CPUs of a neighbour, seen from the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    #[default]
    SameCpus,
    SiblingThreads,
    SameNode,
    Anywhere,
}

/// The CPUs on which a neighbour is to run are none on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    #[error(
        "the cores of the system have no second hardware thread that is free; use where = \"same \
         CPUs\" or a host with SMT"
    )]
    NoSiblings,
    #[error(
        "the NUMA node of the system has no CPU that neither the system nor the client uses; use \
         where = \"same CPUs\", or give the system fewer CPUs ([cpus])"
    )]
    NoCpuOfNode,
}

impl Placement {
    /// Every placement, as studies write it, with one line of help.
    pub const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::SameCpus, "same CPUs", "the CPUs on which the system may run"),
        (
            Self::SiblingThreads,
            "sibling threads",
            "the other hardware threads of the system's cores, without the client's",
        ),
        (
            Self::SameNode,
            "same node",
            "CPUs of the system's NUMA node that neither the system nor the client has",
        ),
        (Self::Anywhere, "anywhere", "every CPU of the run, those of the client too"),
    ];

    /// Returns the placement as studies write it.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(place, ..)| *place == self).map_or("", |(_, name, _)| name)
    }

    /// Returns the CPUs of a neighbour of a system that may run on `system`. They are among those
    /// of the plan: of the groups, and of the NUMA nodes and cores that it knows.
    ///
    /// # Errors
    /// If there are none on this host.
    pub fn cpus(self, system: &CpuSet, plan: &CpuPlan) -> Result<CpuSet, NoPlace> {
        let taken = system.union(&plan.client).union(&plan.interrupts);
        let found = |cpus: CpuSet, none: NoPlace| {
            if cpus.is_empty() { Err(none) } else { Ok(cpus) }
        };
        match self {
            Self::SameCpus => Ok(system.clone()),
            Self::Anywhere => Ok(plan.all.clone()),
            Self::SiblingThreads => {
                let cores = plan.cores.iter().filter(|core| !core.is_disjoint(system));
                let threads = cores.fold(CpuSet::new(), |all, core| all.union(core));
                found(threads.difference(&taken), NoPlace::NoSiblings)
            }
            Self::SameNode => {
                let cpus = match plan.nodes.as_slice() {
                    // One node: its CPUs that are known are those of the groups and the cores.
                    [] => plan.cores.iter().fold(plan.all.clone(), |all, core| all.union(core)),
                    nodes => {
                        let near = nodes.iter().filter(|node| !node.cpus.is_disjoint(system));
                        near.fold(CpuSet::new(), |all, node| all.union(&node.cpus))
                    }
                };
                found(cpus.difference(&taken), NoPlace::NoCpuOfNode)
            }
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Placement {
    type Err = BadLayerValue;

    fn from_str(text: &str) -> Result<Self, BadLayerValue> {
        let found = Self::ALL.iter().find(|(_, name, _)| *name == text);
        found.map(|(place, ..)| *place).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(_, name, _)| *name).collect();
            let wanted = format!("use one of {}", names.join(", "));
            BadLayerValue::new(Layer::Neighbours, text, &wanted)
        })
    }
}

serde_as_text!(Placement);

/// Another system and its load, for [`NeighbourKind::System`]. Both run in the neighbour's cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherSystem {
    /// Name of the system, such as `redis`, and its options.
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<(String, String)>,
    /// Name of the driver that loads it.
    pub driver: String,
    /// Open loop: operations per second. `None`: a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u32>,
    /// For a driver that loads rows; `None` for one that has options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<RowsLoad>,
    /// Options of a driver that defines its own workloads, as (name, value).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub driver_options: Vec<(String, String)>,
}

/// What is asked of the rows of another system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowsLoad {
    pub rows: u64,
    pub write_percent: u32,
    pub connections: u32,
    pub in_flight: u32,
}

impl fmt::Display for OtherSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = |f: &mut fmt::Formatter<'_>, options: &[(String, String)]| {
            options.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
        };
        write!(f, "{}", self.name)?;
        pairs(f, &self.options)?;
        write!(f, ", {}", self.driver)?;
        pairs(f, &self.driver_options)?;
        if let Some(RowsLoad { rows, write_percent, connections, in_flight }) = self.rows {
            write!(
                f,
                ", {rows} rows, {write_percent} % writes, {connections} connections, {in_flight} in \
                 flight"
            )?;
        }
        match self.rate_per_s {
            Some(rate) => write!(f, ", {rate} op/s"),
            None => write!(f, ", closed loop"),
        }
    }
}

/// A neighbour of a study: a program that runs beside the system while an environment runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Name, unique in the study.
    pub name: String,
    pub kind: NeighbourKind,
    /// Words of the command, for `NeighbourKind::Command` alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[serde(rename = "where")]
    pub placement: Placement,
    /// Number of workers. `None`: one for each of its CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Share of a CPU that each worker of kind `cpu` uses, in percent. `None`: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_percent: Option<u32>,
    /// The system of kind `system`, and its load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<Box<OtherSystem>>,
    /// Size of the memory or the file of each worker; memory of another system and its load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Most bytes per second that each worker reads, and that it writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes: Option<u64>,
}

impl Neighbour {
    /// Returns the size of the memory or the file of each worker, if the kind has one.
    pub fn size_bytes(&self) -> Option<u64> {
        self.size_bytes.or(self.kind.default_size_bytes())
    }

    /// Returns the number of workers on this many CPUs.
    pub fn workers_on(&self, cpus: usize) -> u32 {
        let one_each = u32::try_from(cpus).unwrap_or(NEIGHBOUR_WORKERS_MAX);
        match self.kind.has_workers() {
            true => self.workers.unwrap_or(one_each.clamp(1, NEIGHBOUR_WORKERS_MAX)),
            false => 1,
        }
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {}", self.name, self.kind, self.placement)?;
        match self.workers {
            Some(1) => write!(f, ", 1 worker")?,
            Some(workers) => write!(f, ", {workers} workers")?,
            None if !self.kind.has_workers() => {}
            None => write!(f, ", a worker for each CPU")?,
        }
        if let Some(percent) = self.load_percent {
            write!(f, ", load {percent} %")?;
        }
        if let Some(bytes) = self.size_bytes() {
            write!(f, ", size {bytes} bytes")?;
        }
        if let Some(bytes) = self.rate_bytes {
            write!(f, ", rate {bytes} bytes/s")?;
        }
        if !self.command.is_empty() {
            write!(f, ", {}", self.command.join(" "))?;
        }
        if let Some(system) = &self.system {
            write!(f, ", {system}")?;
        }
        write!(f, ")")
    }
}

/// Returns the value of the layer as text.
pub(crate) fn text(neighbours: &[Neighbour]) -> String {
    let all: Vec<String> = neighbours.iter().map(Neighbour::to_string).collect();
    if all.is_empty() { "none".into() } else { all.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::PlanNode;

    fn list(text: &str) -> CpuSet {
        CpuSet::parse_list(text).unwrap()
    }

    #[test]
    fn placement_keeps_to_the_plan() {
        let plan = CpuPlan {
            all: list("0-3"),
            system: list("0-1"),
            client: list("2-3"),
            ..CpuPlan::default()
        };
        let on = |place: Placement, plan: &CpuPlan| {
            place.cpus(&plan.system, plan).map(|cpus| cpus.to_string())
        };
        assert_eq!(on(Placement::SameCpus, &plan).unwrap(), "0-1");
        assert_eq!(on(Placement::Anywhere, &plan).unwrap(), "0-3");
        assert_eq!(on(Placement::SiblingThreads, &plan), Err(NoPlace::NoSiblings));
        assert_eq!(on(Placement::SameNode, &plan), Err(NoPlace::NoCpuOfNode));

        let smt = CpuPlan {
            all: list("0-1,4"),
            system: list("0-1"),
            client: list("4"),
            cores: vec![list("0,8"), list("1,9"), list("4,12")],
            nodes: vec![
                PlanNode { id: 0, cpus: list("0-3,8-11") },
                PlanNode { id: 1, cpus: list("4-7,12-15") },
            ],
            ..CpuPlan::default()
        };
        assert_eq!(on(Placement::SiblingThreads, &smt).unwrap(), "8-9");
        assert_eq!(on(Placement::SameNode, &smt).unwrap(), "2-3,8-11");
        assert_eq!(on(Placement::Anywhere, &smt).unwrap(), "0-1,4");
    }

    #[test]
    fn text_has_every_property() {
        let one = Neighbour {
            name: "burner".into(),
            kind: NeighbourKind::MemoryBandwidth,
            command: Vec::new(),
            placement: Placement::SameNode,
            workers: Some(2),
            load_percent: None,
            system: None,
            size_bytes: None,
            rate_bytes: Some(1 << 20),
        };
        let all = "burner (memory bandwidth, same node, 2 workers, size 268435456 bytes, rate 1048576 \
                   bytes/s)";
        assert_eq!(text(std::slice::from_ref(&one)), all);
        assert_eq!(text(&[]), "none");
        let other = Neighbour {
            kind: NeighbourKind::System,
            workers: None,
            rate_bytes: None,
            system: Some(Box::new(OtherSystem {
                name: "redis".into(),
                options: vec![("appendonly".into(), "always".into())],
                driver: "redis-benchmark".into(),
                rate_per_s: None,
                rows: None,
                driver_options: vec![("test".into(), "set".into())],
            })),
            ..one.clone()
        };
        let all = "burner (system, same node, size 1073741824 bytes, redis appendonly=always, \
                   redis-benchmark test=set, closed loop)";
        assert_eq!(other.to_string(), all);
        let json = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<Neighbour>(&json).unwrap(), one);
        assert!(json.contains(r#""where":"same node""#), "{json}");
    }
}
