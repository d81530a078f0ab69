//! Injected costs through the built program: each is read back and found, and nothing is left on
//! the host.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;

use common::{run_in, stderr, stdout};
use serde_json::Value;
use tare_testkit::host_state::{self, HostState};
use tare_testkit::{Need, skipped};

const NEEDS: [Need; 3] = [Need::Root, Need::Program("nft"), Need::Program("ip")];

const STUDY: &str = r#"
name = "injected"
baseline = "native"

[system]
name = "tare-db"

[schedule]
window = "100ms"
lead_in = "30ms"
rounds = 7
rounds_min = 7
budget = "10m"

[[environment]]
name = "native"
runtime = "process"
network = "host"
cpu = "pinned"
cgroup = "own"

[[environment]]
name = "busy"
extends = "native"
inject = "busy=200us"

[[environment]]
name = "all"
extends = "native"
inject = "busy=200us+filter=1000+quota=90%+delay=200us"

[[workload]]
name = "write"
rows = 500
connections = 4
in_flight = 16
latency_share = 0.0
"#;

#[test]
fn injected_costs_are_read_back_and_found() {
    if skipped("injected_costs_are_read_back_and_found", &NEEDS) {
        return;
    }
    let _alone = host_state::alone();
    let before = HostState::read();
    let here = tempfile::tempdir().unwrap();
    let state = here.path().join("state");
    fs::write(here.path().join("s.toml"), STUDY).unwrap();
    let words = ["weigh", "s.toml", "-o", "r.tare", "--json", "--state"];
    let output = run_in(here.path(), words.into_iter().chain([state.to_str().unwrap()]));
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();

    let injected = |name: &str| -> Option<Value> {
        let environments = report["environments"].as_array().unwrap();
        let found = environments.iter().find(|one| one["name"] == name).unwrap();
        assert!(found["left_out"].is_null(), "{found}");
        let layers = found["layers"].as_array().unwrap();
        assert!(layers.iter().all(|layer| layer["in_force"] == true), "{layers:?}");
        layers.iter().find(|layer| layer["layer"] == "inject").cloned()
    };
    assert!(injected("native").is_none());
    assert_eq!(injected("busy").unwrap()["found"], "--inject-busy-ns 200000");
    let all = injected("all").unwrap()["found"].as_str().unwrap().to_string();
    for part in ["--inject-filter 1000", "Seccomp: 2", "quota:", "relay: --delay 200000ns"] {
        assert!(all.contains(part), "{part} is not in {all}");
    }

    let finding = |name: &str| {
        let findings = report["analysis"]["findings"].as_array().unwrap();
        findings.iter().find(|one| one["environment"] == name).unwrap().clone()
    };
    let us = |name: &str| finding(name)["server_cpu_us"]["value"].as_f64().unwrap();
    // 200 µs are ten times what an operation takes otherwise. The CPU times of a window of 100 ms
    // may be off by a tick of the kernel at each end (4 ms each, of some 400 operations: 20 µs),
    // and other load on the machine makes each operation more expensive, not cheaper.
    let more = us("busy") - us("native");
    assert!((120.0..600.0).contains(&more), "200 µs were injected, {more} found");
    assert_eq!(finding("busy")["server_cpu_cost"]["found"], true);
    assert_eq!(HostState::read(), before);
}

#[test]
fn other_runtimes_refuse_injection() {
    let here = tempfile::tempdir().unwrap();
    let study =
        STUDY.replace("inject = \"busy=200us\"", "runtime = \"oci:runc\"\ninject = \"busy=200us\"");
    fs::write(here.path().join("s.toml"), study).unwrap();
    let state = here.path().join("state");
    let words = ["weigh", "s.toml", "-o", "r.tare", "--state", state.to_str().unwrap()];
    let output = run_in(here.path(), words);
    assert!(!output.status.success());
    let text = stderr(&output);
    assert!(text.contains("inject") && text.contains("process"), "{text}");
}
