//! `tare explain --attach`: what the layers around a running system cost in a record of this host.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tare_testkit::host_state::HostState;
use tare_testkit::{Need, Reason, skip, skipped};

use crate::NEEDS;
use crate::bed::{self, Bed, UnitCgroup, json, weigh};
use crate::common::{run_in, stderr, stdout};

/// A study of the reference database that separates the cgroup.
const STUDY: &str = r#"
name = "cgroups"
baseline = "native"
driver = "tare-load"
[system]
name = "tare-db"
[schedule]
window = "100ms"
lead_in = "20ms"
rounds = 4
rounds_min = 4
[[environment]]
name = "native"
runtime = "process"
network = "host"
cpu = "shared"
security = "none"
cgroup = "none"
[[environment]]
name = "group"
extends = "native"
cgroup = "own"
[[workload]]
name = "w"
rows = 500
latency_share = 0
"#;

fn explain(here: &Path, target: &str, words: &[&str]) -> Output {
    run_in(here, ["explain", "--attach", target].iter().chain(words))
}

/// Returns a layer of the result by its name.
fn layer<'v>(found: &'v serde_json::Value, name: &str) -> Option<&'v serde_json::Value> {
    found["layers"].as_array().unwrap().iter().find(|layer| layer["name"] == name)
}

#[test]
fn explain_names_the_costs_of_a_record_of_this_host() {
    if skipped("explain_names_the_costs_of_a_record_of_this_host", &NEEDS) {
        return;
    }
    let bed = Bed::new();
    let redis = bed.redis();
    let unit = UnitCgroup::with(redis.pid());
    let target = format!("unit:{}", unit.name);
    let before = HostState::read();
    // Without a record there is no figure, and a command that measures it.
    let found = explain(bed.path(), &target, &["--json"]);
    assert!(found.status.success(), "{}", stderr(&found));
    let found = json(&stdout(&found));
    assert_eq!(found["schema"], "tare-attached");
    assert_eq!(found["ports"], serde_json::json!([redis.port]));
    let cgroup = layer(&found, "cgroup accounting").unwrap();
    assert_eq!(cgroup["found"], unit.path());
    assert_eq!(cgroup["costs"], serde_json::json!([]));
    assert_eq!(cgroup["measure"], "tare weigh quick");
    assert!(layer(&found, "network namespace").is_none(), "{found}");
    // With a record it has the record's figure.
    let weighed = weigh(bed.path(), STUDY, &[]);
    assert!(weighed.status.success(), "{}", stderr(&weighed));
    let record = fs::read_dir(bed.path()).unwrap().flatten();
    let record = record
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "tare"));
    let record = record.unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let found = json(&stdout(&explain(bed.path(), &target, &["--json"])));
    let cost = &layer(&found, "cgroup accounting").unwrap()["costs"][0];
    assert_eq!(
        (&cost["rule"], &cost["with"], &cost["without"]),
        (&"cgroup".into(), &"group".into(), &"native".into())
    );
    assert!(cost["cpu_us"]["low"].as_f64() < cost["cpu_us"]["high"].as_f64(), "{cost}");
    let used = &found["records"][0];
    assert_eq!(
        (&used["name"], &used["study"], &used["system"]),
        (&record.as_str().into(), &"cgroups".into(), &"tare-db".into())
    );
    assert!(used["other_kernel"].is_null(), "{used}");
    let text = stdout(&explain(bed.path(), &target, &[&record]));
    for part in [
        &format!("layers around unit {}", unit.name),
        "[1] \"group\" against",
        "tare-db in the study cgroups",
        "this machine and kernel",
        &format!("tare tune flags --from {target}"),
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    redis.assert_as_before();
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
}

#[test]
fn explain_finds_the_layers_of_a_container() {
    let test = "explain_finds_the_layers_of_a_container";
    if skipped(test, &[Need::Root, Need::Program("nft"), Need::Program("docker")]) {
        return;
    }
    // In a thread of its own, which enters the network of the engine.
    let run = std::thread::spawn(move || container_is_explained(test)).join();
    run.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn container_is_explained(test: &str) {
    let bed = Bed::new();
    let container = match bed::enter_network_of_engine("docker").and_then(|()| bed.container()) {
        Ok(container) => container,
        Err(said) => return skip(test, Reason::unavailable("docker", &said)),
    };
    let target = format!("docker:{}", container.name);
    let found = explain(bed.path(), &target, &["--json"]);
    assert!(found.status.success(), "{}", stderr(&found));
    let found = json(&stdout(&found));
    assert_eq!(found["ports"], serde_json::json!([9042]));
    let network = layer(&found, "network namespace").unwrap();
    assert_eq!(
        (&network["flag"], &network["measure"]),
        (&"--network=host".into(), &"tare weigh quick".into())
    );
    for name in ["seccomp filter", "container", "cgroup accounting"] {
        assert!(layer(&found, name).is_some(), "{name}: {found}");
    }
    assert!(container.runs_since_its_start());
}

#[test]
fn mistakes_of_explain_are_one_line_each() {
    if skipped("mistakes_of_explain_are_one_line_each", &NEEDS) {
        return;
    }
    let bed = Bed::new();
    let redis = bed.redis();
    let mut silent = Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap();
    let check = |target: &str, words: &[&str], code: i32, expect: &str| {
        let output = explain(bed.path(), target, words);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{target} {words:?}: {said}");
        assert!(said.contains(expect), "{expect:?} is not in {said}");
        assert!(stdout(&output).is_empty(), "{}", stdout(&output));
    };
    let mine = format!("pid:{}", redis.pid());
    check("docker:tare-none", &[], 3, "docker");
    check("pid:4194303", &[], 3, "there is no process 4194303");
    check("unit:no-such.service", &[], 3, "no-such.service has no process");
    check(&format!("pid:{}", silent.id()), &[], 3, "(sleep) listens on no TCP port");
    // A shared record does not tell its host.
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/redis-quick.tare");
    check(&mine, &[shared], 3, "was measured on another host");
    fs::write(bed.path().join("not.tare"), "text").unwrap();
    check(&mine, &["not.tare"], 3, "not.tare");
    check(&mine, &["none.tare"], 3, "none.tare");
    check("redis", &[], 2, "write docker:NAME");
    check(&mine, &["--rounds", "3"], 2, "cannot be used with");
    // In a directory what is not of this host is left out, with a note.
    let output = explain(bed.path(), &mine, &[]);
    assert!(stdout(&output).contains("1 record left out: cannot be read"), "{}", stdout(&output));
    silent.kill().unwrap();
    silent.wait().unwrap();
    redis.assert_as_before();
}
