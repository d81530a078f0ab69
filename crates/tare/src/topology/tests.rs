//! The division of the CPUs on known hosts (`fixtures/hosts`).

use std::fmt::Write as _;
use std::fs;

use tare_lab::cpus;
use tare_lab::study::CpuSpec;
use tare_tune::fixture::Host;

use super::*;

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
        let distant = match cpus::distant_client(&topology, &plan) {
            Some(nodes) => format!("; the client is on other nodes: {nodes:?}"),
            None => String::new(),
        };
        let (system, client) = (plan.system, plan.client);
        writeln!(text, "{name}: system {system}; client {client}{distant}").unwrap();
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/golden/cpu-plans.txt");
    tare_testkit::golden(&golden, text);
}
