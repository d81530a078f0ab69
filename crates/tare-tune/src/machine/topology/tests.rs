use super::*;
use crate::fixture::{Cpus, Host, Numbering};
use crate::snapshot::Node as Entry;

fn list(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn sets(topology: &Topology) -> Vec<Vec<String>> {
    let node = |node: &Node| node.cores.iter().map(|core| core.cpus.to_string()).collect();
    topology.nodes.iter().map(node).collect()
}

fn file(snapshot: &mut Snapshot, path: &str, text: &str) {
    snapshot.insert(path, Entry::File(text.into()));
}

#[test]
fn reads_both_numberings() {
    let mut host = Host::new(2, 2, 2);
    let topology = Topology::read(&host.build()).unwrap();
    assert_eq!(sets(&topology), [["0,4", "1,5"], ["2,6", "3,7"]]);
    host.cpus.numbering = Numbering::Adjacent;
    let topology = Topology::read(&host.build()).unwrap();
    assert_eq!(sets(&topology), [["0-1", "2-3"], ["4-5", "6-7"]]);
    assert_eq!(topology.cpus(), list("0-7"));
}

#[test]
fn offline_cpus_are_in_no_core() {
    let mut host = Host::new(2, 2, 2);
    host.cpus.offline = list("0,4,7");
    let topology = Topology::read(&host.build()).unwrap();
    assert_eq!(sets(&topology), [vec!["1,5"], vec!["2,6", "3"]]);
    assert_eq!(topology.offline, list("0,4,7"));
}

#[test]
fn hot_pluggable_cpus_are_not_offline() {
    // A virtual machine with 4 CPUs that may get 128.
    let mut snapshot = Host::new(1, 2, 2).build();
    file(&mut snapshot, "/sys/devices/system/cpu/possible", "0-127");
    file(&mut snapshot, "/sys/devices/system/cpu/offline", "4-127");
    assert_eq!(Topology::read(&snapshot).unwrap().offline, list(""));
}

#[test]
fn reads_special_cpus() {
    let mut host = Host::new(1, 8, 1);
    assert_eq!(Topology::read(&host.build()).unwrap().nohz_full, list(""));
    host.cpus.isolated = list("1");
    host.cpus.nohz_full = list("2-3");
    host.cpus.partitioned = list("4");
    host.cpus.efficiency = list("6-7");
    let topology = Topology::read(&host.build()).unwrap();
    assert_eq!(topology.isolated, list("1"));
    assert_eq!(topology.nohz_full, list("2-3"));
    assert_eq!(topology.partitioned, list("4"));
    assert_eq!(topology.efficiency, list("6-7"));
}

#[test]
fn slow_cores_of_arm_are_efficiency_cores() {
    let capacities = |capacities: &[u32]| {
        let cores = u32::try_from(capacities.len()).unwrap();
        let mut snapshot = Host::new(1, cores, 1).build();
        for (cpu, capacity) in capacities.iter().enumerate() {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity");
            file(&mut snapshot, &path, &capacity.to_string());
        }
        Topology::read(&snapshot).unwrap().efficiency.to_string()
    };
    assert_eq!(capacities(&[446, 446, 1024, 1024]), "0-1");
    assert_eq!(capacities(&[1024, 1024, 1024]), "");
    // Favoured cores are not another kind of core.
    assert_eq!(capacities(&[1024, 1009, 990]), "");
}

#[test]
fn reads_older_files_and_reports_missing_ones() {
    let cpu = "/sys/devices/system/cpu";
    let mut snapshot = Host::new(2, 2, 2).build();
    let expect = sets(&Topology::read(&snapshot).unwrap());
    for number in 0..8 {
        snapshot.remove(&format!("{cpu}/cpu{number}/topology/core_cpus_list"));
    }
    assert_eq!(sets(&Topology::read(&snapshot).unwrap()), expect);
    for number in 0..8 {
        snapshot.remove(&format!("{cpu}/cpu{number}/topology/thread_siblings_list"));
    }
    assert_eq!(sets(&Topology::read(&snapshot).unwrap()), expect);
    // A kernel without NUMA.
    snapshot.remove("/sys/devices/system/node");
    let topology = Topology::read(&snapshot).unwrap();
    assert_eq!((topology.nodes.len(), topology.nodes[0].id), (1, 0));
    assert_eq!(topology.nodes[0].cores.len(), 4);
    file(&mut snapshot, &format!("{cpu}/online"), "0-7,x");
    let error = Topology::read(&snapshot).unwrap_err().to_string();
    assert_eq!(error, "/sys/devices/system/cpu/online contains \"0-7,x\", which is not a CPU set");
    snapshot.remove(&format!("{cpu}/online"));
    let error = Topology::read(&snapshot).unwrap_err();
    assert_eq!(error, TopologyError::Missing { path: format!("{cpu}/online") });
}

#[test]
fn flat_topology_has_nodes_and_one_core_per_cpu() {
    let mut host = Host::new(2, 4, 1);
    host.cpus.topology = false;
    let snapshot = host.build();
    assert!(Topology::read(&snapshot).is_err());
    let topology = Topology::flat(&snapshot).unwrap();
    assert_eq!(sets(&topology), [["0", "1", "2", "3"], ["4", "5", "6", "7"]]);
    assert!(topology.flat);
}

#[test]
fn caches_and_packages_are_domains() {
    let host = Host { cpus: Cpus { cores_per_cache: 2, ..Cpus::new(2, 4, 1) }, ..Host::default() };
    let topology = Topology::read(&host.build()).unwrap();
    let domains: Vec<String> = topology.domains.iter().map(CpuSet::to_string).collect();
    assert_eq!(domains, ["0-1", "0-3", "2-3", "4-5", "4-7", "6-7"]);
}

#[test]
fn reads_largest_machine() {
    let topology = Topology::read(&Host::new(8, 256, 2).build()).unwrap();
    assert_eq!(topology.cpus().len(), 4096);
    let shapes: Vec<usize> = topology.nodes.iter().map(|node| node.cores.len()).collect();
    assert_eq!(shapes, [256; 8]);
    let one_node = topology.restrict(&topology.nodes[7].cpus());
    assert_eq!((one_node.nodes.len(), one_node.cpus().len()), (1, 512));
}
