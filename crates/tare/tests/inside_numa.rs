//! A study in a guest with two NUMA nodes, each of two cores with two hardware threads: the plan
//! of the record keeps the groups on cores of their own, and the memory of every environment is
//! bound to the node of the system's CPUs.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use common::guest::{cannot_start, weigh};
use common::stderr;
use tare_testkit::host_state;

/// QEMU's `-smp 8,sockets=2,cores=2,threads=2`, with a NUMA node for each socket.
const GUEST: &str = "vm:qemu,vcpus=8,nodes=2,threads=2,memory=2G,disk=2G";

const STUDY: &str = r#"
name = "numa"
title = "Two NUMA nodes"
baseline = "native"
driver = "tare-load"
[system]
name = "tare-db"
durability = "periodic"
[cpus]
interrupts = 4
[schedule]
kind = "slices"
window = "1s"
lead_in = "200ms"
rounds = 1
rounds_min = 1
budget = "10m"
[[environment]]
name = "native"
runtime = "process"
network = "host"
cpu = "pinned"
security = "none"
cgroup = "none"
[[environment]]
name = "own cgroup"
extends = "native"
cgroup = "own"
[[environment]]
name = "not pinned"
extends = "native"
cpu = "shared"
[[environment]]
name = "runc"
extends = "own cgroup"
runtime = "oci:runc"
optional = true
[[workload]]
name = "write"
write_share = 1.0
rows = 50
columns = 2
column_bytes = 64
keys = "gaussian"
connections = 2
in_flight = 2
"#;

#[test]
fn groups_and_memory_follow_the_nodes_of_a_guest() {
    let test = "groups_and_memory_follow_the_nodes_of_a_guest";
    if cannot_start(test, GUEST) {
        return;
    }
    let _lock = host_state::beside_others();
    let folder = tempfile::tempdir().unwrap();
    let (output, record) = weigh(folder.path(), GUEST, STUDY);

    // Core n is the CPUs 2n and 2n+1; cores 0 and 1 are on node 0. Interrupts get the first core of
    // each node, the system half of the others, on the last node.
    let plan = &record.cpu_plan;
    let groups = [&plan.interrupts, &plan.client, &plan.system, &plan.shared];
    let expect = ["0-1,4-5", "2-3", "6-7", "0-1,4-7"];
    assert_eq!(groups.map(|cpus| cpus.to_string()), expect, "{plan:?}");
    let nodes: Vec<_> = plan.nodes.iter().map(|node| (node.id, node.cpus.to_string())).collect();
    assert_eq!(nodes, [(0, "0-3".to_string()), (1, "4-7".to_string())]);
    assert_eq!(plan.cores.len(), 4, "{plan:?}");

    let mut seen = Vec::new();
    for environment in &record.environments {
        let name = environment.spec.name.as_str();
        if let Some(why) = &environment.left_out {
            assert!(["runc", "native in oci:runc"].contains(&name), "{name}: {why}");
            continue;
        }
        let cpu = environment.layers.iter().find(|layer| layer.layer == "cpu").unwrap();
        assert!(cpu.in_force, "{name}: {cpu:?}");
        // A cgroup binds by its cpuset, a plain process by its memory policy.
        let bound = match name {
            "own cgroup" | "runc" => Some("Mems_allowed_list: 1, policy default"),
            "not pinned" => None,
            _ => Some("Mems_allowed_list: 0-1, policy bind:1"),
        };
        match bound {
            Some(bound) => assert!(cpu.found.contains(bound), "{name}: {}", cpu.found),
            None => assert!(!cpu.found.contains("memory"), "{name}: {}", cpu.found),
        }
        seen.push(name);
    }
    for name in ["native", "own cgroup", "not pinned"] {
        assert!(seen.contains(&name), "{name} did not run: {seen:?}");
    }
    let distant = "the client is on NUMA node 0 and the system on another";
    assert!(stderr(&output).contains(distant), "{}", stderr(&output));
}
