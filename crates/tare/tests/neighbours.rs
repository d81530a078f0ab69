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

/// Another system that is a neighbour.
const OTHER: &str = "kind = \"system\"\nsystem = { name = \"tare-db\", overprovisioned = \"yes\" }\n\
                     size = \"256M\"\nworkload = { rows = 200, write_share = 1 }";

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
    // Eight containers behind a bridge beside a stressor and another system, killed while they
    // start, while they are loaded with rows and later.
    let layers = "runtime = \"oci:runc\"\nnetwork = \"bridge\"\ninstances = 8";
    let eight = STUDY
        .replace("ROUNDS", "2000")
        .replace(
            "[[neighbour]]",
            &format!("[[neighbour]]\nname = \"other\"\n{OTHER}\n[[neighbour]]"),
        )
        .replace("neighbours = [", &format!("{layers}\nneighbours = [\"other\", "));
    assert!(eight.contains(layers) && eight.contains(OTHER));
    // From the start of the study, and from that of the last neighbour.
    let moments =
        [(false, 300), (false, 1000), (false, 2500), (true, 0), (true, 500), (true, 3000)];
    for (after_neighbours, wait_ms) in moments {
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
        while after_neighbours && stressors(state) == 0 {
            assert_eq!(child.try_wait().unwrap(), None, "the study ended before it was killed");
            assert!(Instant::now() < deadline, "no neighbour has started");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(wait_ms));
        assert_eq!(child.try_wait().unwrap(), None, "the study ended before it was killed");
        child.kill().unwrap();
        child.wait().unwrap();
        let clean = run_in(here.path(), ["clean", "--state", state]);
        assert!(clean.status.success(), "{}", stderr(&clean));
        assert_eq!(stressors(state), 0, "{}", stdout(&clean));
        let left = before.difference(&HostState::read());
        let moment = format!("{wait_ms} ms, after neighbours: {after_neighbours}");
        let printed = stdout(&clean);
        assert!(left.is_empty(), "{moment}: left on the host: {left:?}\nclean printed:\n{printed}");
    }
}

/// Runs a study with this neighbour and checks its account and its finding.
fn check_system(tables: &str, expect: &str) {
    let _alone = host_state::alone();
    let before = HostState::read();
    let here = tempfile::tempdir().unwrap();
    let state = here.path().join("state");
    let text = STUDY.replace("ROUNDS", "8").replace("kind = \"cpu\"", tables);
    fs::write(here.path().join("s.toml"), text).unwrap();
    let words = ["weigh", "s.toml", "-o", "r.tare", "--json", "--state"];
    let output = run_in(here.path(), words.into_iter().chain([state.to_str().unwrap()]));
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let environments = report["environments"].as_array().unwrap();
    let beside = environments.iter().find(|one| one["name"] == "beside").unwrap();
    assert!(beside["left_out"].is_null(), "{beside}");
    let layers = beside["layers"].as_array().unwrap();
    assert!(layers.iter().all(|layer| layer["in_force"] == true), "{layers:?}");
    let counters = beside["counters"].as_array().unwrap();
    let account = counters.iter().find(|one| one["name"] == "neighbour_cpu_ns").unwrap();
    assert!(account["value"]["value"].as_f64().unwrap() > 0.0, "{account}");
    let wanted = layers.iter().find(|layer| layer["layer"] == "neighbours").unwrap();
    assert!(wanted["wanted"].as_str().unwrap().contains(expect), "{wanted}");
    // On a busy host a doubt may forbid the finding.
    let statements = report["statements"].as_array().unwrap();
    let of_rule = |one: &&Value| one["rule"].as_str().unwrap().starts_with("neighbours");
    for one in statements.iter().filter(of_rule) {
        assert!(one["text"].as_str().unwrap().contains("\"burner\" (system "), "{one}");
    }
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "left on the host: {left:?}");
}

#[test]
fn another_database_under_load_is_a_neighbour() {
    let needs = [Need::Root, Need::Program("nft"), Need::Program("ip")];
    if skipped("another_database_under_load_is_a_neighbour", &needs) {
        return;
    }
    check_system(OTHER, "tare-db overprovisioned=yes, tare-load, 200 rows, 100 % writes");
    let at_rate = OTHER.replace("rows = 200", "rows = 200, rate_per_s = 500");
    check_system(&at_rate, "64 in flight, 500 op/s");
}

#[test]
fn redis_under_load_is_a_neighbour() {
    let tools = [Need::Program("redis-server"), Need::Program("redis-benchmark")];
    let needs = [[Need::Root, Need::Program("nft")], tools].concat();
    if skipped("redis_under_load_is_a_neighbour", &needs) {
        return;
    }
    let redis = "kind = \"system\"\nsystem = { name = \"redis\" }\ndriver = \"redis-benchmark\"\n\
                 workload = { test = \"set\", keyspace = 1000 }";
    check_system(redis, "redis, redis-benchmark test=set keyspace=1000, closed loop");
}

#[test]
fn bad_neighbours_are_one_clear_line() {
    let here = tempfile::tempdir().unwrap();
    let refused = |old: &str, new: &str, expect: &str| {
        let text = STUDY.replace("ROUNDS", "9").replace(old, new);
        fs::write(here.path().join("s.toml"), text).unwrap();
        let output = run_in(here.path(), ["weigh", "s.toml", "--dry-run"]);
        assert!(!output.status.success());
        let said = stdout(&output) + &stderr(&output);
        assert!(said.contains(expect), "{said}");
    };
    refused("kind = \"cpu\"", "kind = \"gpu\"", "did you mean \"cpu\"?");
    refused("[\"burner\"]", "[\"turner\"]", "no neighbour has that name");
    refused("kind = \"cpu\"", "kind = \"command\"", "lacks the key \"command\"");
    refused("kind = \"cpu\"", "kind = \"cpu\"\nload = 0", "0.01 to 1");
    refused("kind = \"cpu\"", "kind = \"system\"", "lacks the key \"system\"");
    let system = |words: &str| format!("kind = \"system\"\nsystem = {{ name = {words} }}");
    let of = |words: &str, expect: &str| refused("kind = \"cpu\"", &system(words), expect);
    of("\"redos\"", "did you mean \"redis\"?");
    of("\"tare-db\", instances = 2", "a neighbour is one instance on this host");
    of("\"fio\"", "the system fio is no neighbour");
    let other = "\"command\", command = \"sleep 9\", speaks = \"mysql\"";
    of(other, "the driver tare-load cannot load the system command");
    of("\"tare-db\", memory = \"lots\"", "is not an amount");
}
