//! A study in a guest whose kernel has cgroup v2 alone: every environment, whatever its runtime and
//! cgroup layer, competes with the same weight in a cgroup of its own below the run's.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use common::guest::{cannot_start, weigh};
use std::collections::BTreeSet;
use tare_testkit::host_state;

const GUEST: &str = "vm:qemu,vcpus=2,memory=1536M,disk=2G,accelerator=tcg";

const STUDY: &str = r#"
name = "weights"
title = "The same weight under cgroup v2"
baseline = "native"
driver = "tare-load"
[system]
name = "tare-db"
durability = "periodic"
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
name = "quota"
extends = "own cgroup"
cpu = "quota=0.5"
[[environment]]
name = "runc"
extends = "own cgroup"
runtime = "oci:runc"
optional = true
[[environment]]
name = "crun"
extends = "own cgroup"
runtime = "oci:crun"
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
latency_share = 0.0
"#;

#[test]
fn inside_cgroup2_every_environment_has_the_same_weight() {
    let test = "inside_cgroup2_every_environment_has_the_same_weight";
    if cannot_start(test, GUEST) {
        return;
    }
    let _lock = host_state::beside_others();
    let folder = tempfile::tempdir().unwrap();
    let (_, record) = weigh(folder.path(), GUEST, STUDY);

    let version = record.host.iter().find(|one| one.section == "cgroup" && one.key == "version");
    assert_eq!(version.map(|fact| fact.value.as_str()), Some("v2"), "{:?}", record.host);
    let runtimes: BTreeSet<&str> = ["oci:runc", "oci:crun"].into();
    let mut paths = BTreeSet::new();
    for environment in &record.environments {
        let (name, spec) = (environment.spec.name.as_str(), &environment.spec);
        if let Some(why) = &environment.left_out {
            assert!(runtimes.contains(spec.runtime.as_str()), "{name}: {why}");
            continue;
        }
        let weight = environment.layers.iter().find(|layer| layer.layer == "cpu.weight").unwrap();
        assert!(weight.in_force, "{name}: {weight:?}");
        // `/tare-RUN 100, /tare-RUN/eN 100, nice 0`, and one level more with a cgroup of its own.
        let levels: Vec<&str> = weight.found.split(", ").collect();
        let (nice, levels) = levels.split_last().unwrap();
        assert_eq!(*nice, "nice 0", "{name}: {weight:?}");
        assert!(levels.len() >= 2 && levels[0].starts_with("/tare-"), "{name}: {weight:?}");
        assert!(levels.iter().all(|level| level.ends_with(" 100")), "{name}: {weight:?}");
        let own = levels[1].trim_end_matches(" 100").rsplit('/').next().unwrap();
        assert!(own.starts_with('e'), "{name}: {weight:?}");
        assert!(paths.insert(levels[1].to_string()), "{name} shares its group: {weight:?}");
    }
    assert!(paths.len() >= 4, "native, its copy, own cgroup and quota ran: {paths:?}");
}
