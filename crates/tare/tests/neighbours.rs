//! Neighbours through the built program: one on the CPUs of the system costs it throughput, has its
//! own account, and is gone after the study, also if that is killed.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{run_in, stderr, stdout, tare};
use serde_json::Value;
use tare_testkit::host_state::{self, HostState};
use tare_testkit::{Need, skipped};

const NEEDS: [Need; 4] =
    [Need::Root, Need::Program("nft"), Need::Program("ip"), Need::Program("stress-ng")];

/// How long the neighbour of a killed study may take to start.
const START_LIMIT: Duration = Duration::from_secs(60);

const STUDY: &str = r#"
name = "beside"
baseline = "alone"

[system]
name = "tare-db"

[schedule]
window = "100ms"
lead_in = "30ms"
rounds = ROUNDS
rounds_min = ROUNDS
budget = "10m"

[[neighbour]]
name = "burner"
kind = "cpu"
where = "same CPUs"

[[environment]]
name = "alone"
runtime = "process"
network = "host"
cpu = "pinned"
cgroup = "own"

[[environment]]
name = "beside"
extends = "alone"
neighbours = ["burner"]

[[workload]]
name = "write"
rows = 500
connections = 4
in_flight = 16
latency_share = 0.0
"#;

/// Processes of stress-ng whose environment has this state directory in its path of temporary
/// files.
fn stressors(state: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
    let ours = |line: &Vec<u8>| {
        let text = String::from_utf8_lossy(line);
        text.starts_with("stress-ng") && text.contains(state)
    };
    lines.filter(ours).count()
}

#[test]
fn neighbour_on_the_same_cpus_costs_throughput() {
    if skipped("neighbour_on_the_same_cpus_costs_throughput", &NEEDS) {
        return;
    }
    let _alone = host_state::alone();
    let before = HostState::read();
    let here = tempfile::tempdir().unwrap();
    let state = here.path().join("state");
    fs::write(here.path().join("s.toml"), STUDY.replace("ROUNDS", "10")).unwrap();
    let words = ["weigh", "s.toml", "-o", "r.tare", "--json", "--state"];
    let output = run_in(here.path(), words.into_iter().chain([state.to_str().unwrap()]));
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();

    let environments = report["environments"].as_array().unwrap();
    let beside = environments.iter().find(|one| one["name"] == "beside").unwrap();
    assert!(beside["left_out"].is_null(), "{beside}");
    let layers = beside["layers"].as_array().unwrap();
    assert!(layers.iter().all(|layer| layer["in_force"] == true), "{layers:?}");
    assert!(layers.iter().any(|layer| layer["layer"] == "neighbours"), "{layers:?}");
    let counters = beside["counters"].as_array().unwrap();
    let account = counters.iter().find(|one| one["name"] == "neighbour_cpu_ns").unwrap();
    assert!(account["value"]["value"].as_f64().unwrap() > 0.0, "{account}");
    // The scheduler gives the neighbour half of the CPU.
    let findings = report["analysis"]["findings"].as_array().unwrap();
    let finding = findings.iter().find(|one| one["environment"] == "beside").unwrap();
    let cost = &finding["throughput_cost"];
    assert_eq!(cost["found"], true, "{finding}");
    assert!(cost["percent"]["value"].as_f64().unwrap() > 10.0, "{cost}");
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "left on the host: {left:?}");
}

#[test]
fn killed_study_leaves_no_neighbour_after_clean() {
    let needs = [NEEDS.as_slice(), &[Need::Program("runc")]].concat();
    if skipped("killed_study_leaves_no_neighbour_after_clean", &needs) {
        return;
    }
    let _alone = host_state::alone();
    let before = HostState::read();
    // Eight containers beside a neighbour, killed while they start, while they are loaded with rows
    // and later.
    let eight = STUDY
        .replace("ROUNDS", "2000")
        .replace("neighbours = [", "runtime = \"oci:runc\"\ninstances = 8\nneighbours = [");
    assert!(eight.contains("instances = 8"));
    for wait_ms in [0, 500, 3000] {
        let here = tempfile::tempdir().unwrap();
        let state = here.path().join("state");
        let state = state.to_str().unwrap();
        fs::write(here.path().join("s.toml"), &eight).unwrap();
        let mut child = tare()
            .args(["weigh", "s.toml", "-o", "r.tare", "--state", state])
            .current_dir(here.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + START_LIMIT;
        while stressors(state) == 0 {
            assert_eq!(child.try_wait().unwrap(), None, "the study ended before it was killed");
            assert!(Instant::now() < deadline, "no neighbour has started");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(wait_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        let clean = run_in(here.path(), ["clean", "--state", state]);
        assert!(clean.status.success(), "{}", stderr(&clean));
        assert_eq!(stressors(state), 0, "{}", stdout(&clean));
        let left = before.difference(&HostState::read());
        assert!(left.is_empty(), "left on the host: {left:?}\nclean printed:\n{}", stdout(&clean));
    }
}

#[test]
fn bad_neighbours_are_one_clear_line() {
    let here = tempfile::tempdir().unwrap();
    let refused = |old: &str, new: &str, expect: &str| {
        let text = STUDY.replace("ROUNDS", "9").replace(old, new);
        fs::write(here.path().join("s.toml"), text).unwrap();
        let output = run_in(here.path(), ["weigh", "s.toml", "--dry-run"]);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(expect), "{}", stderr(&output));
    };
    refused("kind = \"cpu\"", "kind = \"gpu\"", "did you mean \"cpu\"?");
    refused("[\"burner\"]", "[\"turner\"]", "no neighbour has that name");
    refused("kind = \"cpu\"", "kind = \"command\"", "lacks the key \"command\"");
}
