//! The division of the CPUs on known hosts (`fixtures/hosts`).

use std::fmt::Write as _;
use std::fs;

use tare_lab::cpus::{self, CpuPlan};
use tare_lab::study::CpuSpec;
use tare_tune::fixture::Host;
use tare_tune::plan::Options;
use tare_tune::planner;

use super::*;

fn shown(topology: &CpuTopology, plan: &CpuPlan) -> String {
    let mut text = format!("system {}; client {}", plan.system, plan.client);
    if !plan.interrupts.is_empty() {
        write!(text, "; interrupts {}", plan.interrupts).unwrap();
    }
    if plan.shared != plan.system {
        write!(text, "; shared {}", plan.shared).unwrap();
    }
    if let Some(nodes) = plan.memory_nodes(&plan.system) {
        write!(text, "; memory of node {nodes}").unwrap();
    }
    if let Some(nodes) = cpus::distant_client(topology, plan) {
        write!(text, "; the client is on other nodes: {nodes:?}").unwrap();
    }
    text
}

#[test]
fn known_hosts_match_golden_plans() {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
    let mut snapshots: BTreeMap<String, Snapshot> = BTreeMap::new();
    for entry in fs::read_dir(&hosts).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let host = Host::parse(&fs::read_to_string(&path).unwrap()).unwrap();
            snapshots.insert(name, host.build());
        }
    }
    for entry in fs::read_dir(hosts.join("recorded")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        snapshots.insert(format!("recorded/{name}"), Snapshot::load(&path).unwrap());
    }
    let mut text = String::new();
    for (name, snapshot) in snapshots {
        let topology = of_snapshot(&snapshot).unwrap();
        let plan = cpus::plan(&topology, &CpuSpec::default()).unwrap();
        writeln!(text, "{name}: {}", shown(&topology, &plan)).unwrap();
        // The tuner does not plan for a host without a topology.
        let tuned = planner::plan(&snapshot, &Options::default()).ok();
        if let Some(interrupts) = tuned.and_then(|tuned| tuned.cpus.interrupts_alone()) {
            let spec = CpuSpec { interrupts: Some(interrupts), ..CpuSpec::default() };
            let plan = cpus::plan(&topology, &spec).unwrap();
            writeln!(text, "  tuned: {}", shown(&topology, &plan)).unwrap();
        }
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/golden/cpu-plans.txt");
    tare_testkit::golden(&golden, text);
}

#[test]
fn a_process_gets_its_cpus_and_memory_nodes() {
    let list = |text: &str| CpuSet::parse_list(text).unwrap();
    let mut host = Host::new(2, 4, 2);
    host.cpus.offline = list("3,11");
    host.cpus.isolated = list("2,10");
    let snapshot = host.build();
    let all = of_process(&snapshot, &list("0-2,4-10,12-15"), None);
    assert_eq!(all.cpus(), list("0-1,4-9,12-15"));
    assert_eq!((all.memory.clone(), all.is_flat), (list("0-1"), false));
    let ExcludedCpus { offline, isolated, not_allowed } = &all.excluded;
    assert_eq!([offline, isolated, not_allowed], [&list("3,11"), &list("2,10"), &list("")]);

    let part = of_process(&snapshot, &list("0-1,4"), Some(&list("0")));
    assert_eq!((part.cpus(), part.memory), (list("0-1,4"), list("0")));
    assert_eq!(part.excluded.not_allowed, list("5-9,12-15"));

    // A kernel that shows nothing, or other CPUs than the process has.
    let flat = of_process(&Snapshot::default(), &list("0-3"), None);
    assert!(flat.is_flat && flat.cpus() == list("0-3"), "{flat:?}");
    assert!(of_process(&snapshot, &list("0-40"), None).is_flat);
}
