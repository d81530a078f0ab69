//! Reads the topology from /sys/devices/system/{cpu,node}.
//!
//! Source of the files: Documentation/admin-guide/cputopology.rst and
//! Documentation/ABI/{testing/sysfs-devices-system-cpu,stable/sysfs-devices-node} of the kernel.

use std::collections::{BTreeMap, BTreeSet};

use tare_std::cpus::CpuSet;

use super::{Core, Node, Topology, TopologyError};
use crate::snapshot::Snapshot;

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

/// An efficiency core has at most this share (in percent) of the capacity of the fastest core.
/// Cores of the same kind also differ by some percent (favoured cores), so any lower capacity would
/// be too strict.
const EFFICIENCY_PERCENT_MAX: u32 = 75;

pub(super) fn read(snapshot: &Snapshot) -> Result<Topology, TopologyError> {
    let online = online(snapshot)?;
    let cores = cores(snapshot, &online)?;
    let nodes = nodes(snapshot, &online)?;
    let nodes = nodes.into_iter().map(|(id, cpus)| Node {
        id,
        cores: cores.iter().filter_map(|core| part(core, &cpus)).collect(),
    });
    let mut topology = Topology {
        nodes: nodes.filter(|node| !node.cores.is_empty()).collect(),
        domains: domains(snapshot, &online)?,
        last_level_caches: last_level_caches(snapshot, &online)?,
        ..Topology::default()
    };
    special(snapshot, &online, &mut topology)?;
    topology.sort();
    Ok(topology)
}

pub(super) fn flat(snapshot: &Snapshot) -> Result<Topology, TopologyError> {
    let online = online(snapshot)?;
    let nodes = nodes(snapshot, &online)?.into_iter().map(|(id, cpus)| Node {
        id,
        cores: cpus.iter().map(|cpu| Core { cpus: [cpu].into_iter().collect() }).collect(),
    });
    let mut topology = Topology { nodes: nodes.collect(), flat: true, ..Topology::default() };
    special(snapshot, &online, &mut topology)?;
    topology.sort();
    Ok(topology)
}

fn online(snapshot: &Snapshot) -> Result<CpuSet, TopologyError> {
    let path = format!("{CPU}/online");
    list(snapshot, &path)?.ok_or(TopologyError::Missing { path })
}

fn part(core: &CpuSet, cpus: &CpuSet) -> Option<Core> {
    let cpus = core.intersection(cpus);
    (!cpus.is_empty()).then_some(Core { cpus })
}

/// Returns the online threads of each core.
fn cores(snapshot: &Snapshot, online: &CpuSet) -> Result<Vec<CpuSet>, TopologyError> {
    let mut cores = Vec::new();
    let mut seen = BTreeSet::new();
    let mut by_id: BTreeMap<(i64, i64), CpuSet> = BTreeMap::new();
    for cpu in online.iter() {
        if seen.contains(&cpu) {
            continue;
        }
        let folder = format!("{CPU}/cpu{cpu}/topology");
        // `thread_siblings_list` is the older name of `core_cpus_list`.
        let siblings = match list(snapshot, &format!("{folder}/core_cpus_list"))? {
            Some(siblings) => Some(siblings),
            None => list(snapshot, &format!("{folder}/thread_siblings_list"))?,
        };
        let threads = siblings.map(|threads| threads.intersection(online));
        match threads.filter(|threads| threads.contains(cpu)) {
            Some(threads) => {
                seen.extend(threads.iter());
                cores.push(threads);
            }
            None => {
                let Some(core) = snapshot.read_number(&format!("{folder}/core_id")) else {
                    return Err(TopologyError::Missing { path: folder });
                };
                let package = snapshot.read_number(&format!("{folder}/physical_package_id"));
                by_id.entry((package.unwrap_or(0), core)).or_default().insert(cpu);
            }
        }
    }
    cores.extend(by_id.into_values());
    Ok(cores)
}

/// Returns the online CPUs by NUMA node. A kernel without NUMA has no node folders: all CPUs are in
/// node 0.
fn nodes(snapshot: &Snapshot, online: &CpuSet) -> Result<BTreeMap<u32, CpuSet>, TopologyError> {
    let mut nodes = BTreeMap::new();
    let mut rest = online.clone();
    for name in snapshot.names(NODE) {
        let Some(id) = name.strip_prefix("node").and_then(|id| id.parse().ok()) else { continue };
        let cpus = list(snapshot, &format!("{NODE}/{name}/cpulist"))?.unwrap_or_default();
        let cpus = cpus.intersection(&rest);
        rest = rest.difference(&cpus);
        if !cpus.is_empty() {
            nodes.insert(id, cpus);
        }
    }
    if !rest.is_empty() {
        // CPUs that no node lists.
        let mut first = nodes.first_entry();
        match &mut first {
            Some(first) => {
                let all = first.get().union(&rest);
                first.insert(all);
            }
            None => drop(nodes.insert(0, rest)),
        }
    }
    Ok(nodes)
}

/// Returns packages, dies and caches with more than one CPU.
fn domains(snapshot: &Snapshot, online: &CpuSet) -> Result<Vec<CpuSet>, TopologyError> {
    let mut domains = BTreeSet::new();
    for names in [["package_cpus_list", "core_siblings_list"], ["die_cpus_list", ""]] {
        let paths = |cpu| names.map(|name| format!("{CPU}/cpu{cpu}/topology/{name}"));
        partition(snapshot, online, paths, &mut domains)?;
    }
    let first = online.iter().next().unwrap_or(0);
    for index in snapshot.names(&format!("{CPU}/cpu{first}/cache")) {
        // hwloc ignores instruction caches.
        let kind = snapshot.read(&format!("{CPU}/cpu{first}/cache/{index}/type"));
        if index.starts_with("index") && kind != Some("Instruction") {
            let path = |cpu| [format!("{CPU}/cpu{cpu}/cache/{index}/shared_cpu_list")];
            partition(snapshot, online, path, &mut domains)?;
        }
    }
    Ok(domains.into_iter().collect())
}

/// Returns the CPUs of each cache of the highest level, ascending. A CPU without caches in sysfs is
/// in none.
fn last_level_caches(snapshot: &Snapshot, online: &CpuSet) -> Result<Vec<CpuSet>, TopologyError> {
    let mut caches = BTreeSet::new();
    for cpu in online.iter() {
        let folder = format!("{CPU}/cpu{cpu}/cache");
        let level = |index: &&str| snapshot.read_number::<u32>(&format!("{folder}/{index}/level"));
        let last = snapshot.names(&folder).into_iter().max_by_key(level);
        let Some(index) = last.filter(|index| level(index).is_some()) else { continue };
        if let Some(cpus) = list(snapshot, &format!("{folder}/{index}/shared_cpu_list"))? {
            caches.insert(cpus.intersection(online));
        }
    }
    Ok(caches.into_iter().collect())
}

/// Adds the set in a file of each CPU. A CPU that is already in a set is skipped.
fn partition<const N: usize>(
    snapshot: &Snapshot,
    online: &CpuSet,
    paths: impl Fn(u32) -> [String; N],
    domains: &mut BTreeSet<CpuSet>,
) -> Result<(), TopologyError> {
    let mut seen = BTreeSet::new();
    for cpu in online.iter() {
        if seen.contains(&cpu) {
            continue;
        }
        for path in paths(cpu) {
            let Some(cpus) = list(snapshot, &path)? else { continue };
            let cpus = cpus.intersection(online);
            seen.extend(cpus.iter());
            if cpus.len() > 1 {
                domains.insert(cpus);
            }
            break;
        }
    }
    Ok(())
}

/// Reads the special CPUs: offline, isolated, without a tick, efficiency cores.
fn special(
    snapshot: &Snapshot,
    online: &CpuSet,
    topology: &mut Topology,
) -> Result<(), TopologyError> {
    let of = |path: &str| Ok(list(snapshot, path)?.unwrap_or_default());
    // `offline` also lists CPUs that could be hot-plugged: up to 128 of them in a small VM.
    topology.offline = of(&format!("{CPU}/present"))?.difference(online);
    topology.isolated = of(&format!("{CPU}/isolated"))?;
    topology.nohz_full = of(&format!("{CPU}/nohz_full"))?;
    let unified = of("/sys/fs/cgroup/unified/cpuset.cpus.isolated")?;
    topology.partitioned = of("/sys/fs/cgroup/cpuset.cpus.isolated")?.union(&unified);
    topology.efficiency = match list(snapshot, "/sys/devices/cpu_atom/cpus")? {
        Some(cpus) => cpus.intersection(online),
        None => slower(snapshot, online),
    };
    if topology.efficiency == *online {
        topology.efficiency = CpuSet::new();
    }
    Ok(())
}

fn slower(snapshot: &Snapshot, online: &CpuSet) -> CpuSet {
    let capacity = |cpu| snapshot.read_number::<u32>(&format!("{CPU}/cpu{cpu}/cpu_capacity"));
    let capacities = online.iter().filter_map(|cpu| Some((cpu, capacity(cpu)?)));
    let capacities: Vec<(u32, u32)> = capacities.collect();
    let max = capacities.iter().map(|(_, capacity)| *capacity).max().unwrap_or(0);
    let slow = |capacity: u32| {
        u64::from(capacity) * 100 <= u64::from(max) * u64::from(EFFICIENCY_PERCENT_MAX)
    };
    capacities.iter().filter(|(_, capacity)| slow(*capacity)).map(|(cpu, _)| *cpu).collect()
}

/// Reads a file with a list of CPUs; `None` when it does not exist.
fn list(snapshot: &Snapshot, path: &str) -> Result<Option<CpuSet>, TopologyError> {
    match snapshot.read(path) {
        None => Ok(None),
        // The kernel prints this for a set that was never allocated (nohz_full without its option).
        Some("(null)") => Ok(Some(CpuSet::new())),
        Some(text) => CpuSet::parse_list(text)
            .map(Some)
            .map_err(|_| TopologyError::Set { path: path.into(), text: text.into() }),
    }
}
