//! Studies whose environments run different numbers of instances, through the built program.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::process::Command;

use common::{stderr, stdout, tare};
use serde_json::Value;
use tare_testkit::{Need, skipped};
use tempfile::TempDir;

const STUDY: &str = r#"
name = "many"
baseline = "one"
[system]
name = "tare-db"
memory_per_cpu = "64M"
[schedule]
window = "100ms"
lead_in = "20ms"
rounds = 3
rounds_min = 3
seed = 7
[[environment]]
name = "one"
runtime = "process"
cgroup = "own"
instances = 1
[[sweep]]
environment = "one"
option = "instances"
values = [2]
[[environment]]
name = "three boxes"
runtime = "oci:runc"
network = "bridge"
instances = 3
[[workload]]
name = "w"
rows = 200
connections = 2
in_flight = 8
"#;

fn weigh(folder: &TempDir, text: &str) -> Command {
    fs::write(folder.path().join("study.toml"), text).unwrap();
    let mut command = tare();
    command.args(["weigh", "study.toml", "--output", "out.tare", "--json", "--state", "state"]);
    command.current_dir(folder.path());
    command
}

#[test]
fn every_instance_has_figures_of_its_own() {
    let test = "every_instance_has_figures_of_its_own";
    if skipped(test, &[Need::Root, Need::Program("nft"), Need::Program("runc")]) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let output = weigh(&folder, STUDY).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report = tare().args(["report", "--json"]).arg(folder.path().join("out.tare")).output();
    let json: Value = serde_json::from_slice(&report.unwrap().stdout).unwrap();
    let tables = &json["instances"][0];
    let figures = tables["instances"].as_array().unwrap();
    let counts: Vec<(&str, usize)> = figures
        .iter()
        .map(|one| {
            (one["environment"].as_str().unwrap(), one["instances"].as_array().unwrap().len())
        })
        .collect();
    assert_eq!(counts, [("three boxes", 3), ("one, instances 2", 2)]);
    for one in figures {
        let fairness = one["fairness"].as_f64().unwrap();
        assert!(fairness > 0.0 && fairness <= 1.0, "{one}");
        assert!(one["worst_p99_ns"].as_f64().unwrap() > 0.0 && one["is_at_rate"] == true, "{one}");
        let sum: f64 = one["instances"]
            .as_array()
            .unwrap()
            .iter()
            .map(|instance| {
                assert!(instance["cpu_us"].as_f64().unwrap() > 0.0, "{one}");
                instance["operations_per_s"].as_f64().unwrap()
            })
            .sum();
        // Medians of the parts add up to about the whole.
        let name = one["environment"].as_str().unwrap();
        let findings = json["analysis"]["findings"].as_array().unwrap();
        let whole = findings.iter().find(|finding| finding["environment"] == name).unwrap();
        let whole = whole["throughput_per_s"]["value"].as_f64().unwrap();
        assert!(sum > whole / 2.0 && sum < whole * 2.0, "{sum} of {whole}");
    }
    // The environments that differ in the number alone are a curve.
    let points = tables["scaling"][0]["points"].as_array().unwrap();
    let numbers: Vec<u64> = points.iter().map(|one| one["instances"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2]);
    assert!(points[1]["times"]["value"].as_f64().unwrap() > 0.0);
}

#[test]
fn sweeps_over_layers_are_checked() {
    let folder = TempDir::new().unwrap();
    let dry = |option: &str, values: &str| {
        let sweep = format!("option = \"{option}\"\nvalues = [{values}]");
        let burner =
            "[[neighbour]]\nname = \"b\"\nkind = \"command\"\ncommand = [\"sleep\", \"9\"]\n";
        let text = STUDY.replace("option = \"instances\"\nvalues = [2]", &sweep);
        fs::write(folder.path().join("s.toml"), format!("{text}{burner}")).unwrap();
        let output =
            tare().args(["weigh", "s.toml", "--dry-run"]).current_dir(folder.path()).output();
        let output = output.unwrap();
        (output.status.code(), stdout(&output) + &stderr(&output))
    };
    let refused = |option: &str, values: &str, wanted: &str| {
        let (code, text) = dry(option, values);
        assert_eq!(code, Some(3), "{option}: {text}");
        assert!(text.contains(wanted), "{option}: {text}");
    };
    refused("instances", "0", "it must be from 1");
    refused("limits.cpu_weight", "50, 20000", "it must be from 1 to 10000");
    refused("limits.memroy", "\"1G\"", "did you mean \"memory\"?");
    refused("limits.memory", "\"8M\"", "raise the limit of the environment");
    refused("neighbours", "\"b\"", "must be a list of names of neighbours");
    refused("neighbours", "[\"c\"]", "no neighbour has that name");
    refused("cpu", "\"cpus=900\"", "asks for more CPUs than the system has");
    if skipped("sweeps_over_layers_are_checked", &[Need::Root, Need::Program("runc")]) {
        return;
    }
    let (code, text) = dry("neighbours", "[\"b\"], []");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("one, neighbours b") && text.contains("one, neighbours none"), "{text}");
    // More instances than CPUs are no error; the study says what they share.
    let many = std::thread::available_parallelism().unwrap().get() + 1;
    let (code, text) = dry("instances", &many.to_string());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&format!("the {many} instances share the core")), "{text}");
}

#[test]
fn impossible_numbers_of_instances_are_one_line_each() {
    let test = "impossible_numbers_of_instances_are_one_line_each";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let refused = |old: &str, new: &str, wanted: &str| {
        let text = STUDY.replace(old, new);
        assert_ne!(text, STUDY, "{old}");
        let output = weigh(&folder, &text).output().unwrap();
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{new}: {error}");
        assert!(error.contains(wanted), "{new}: {error}");
        assert!(!folder.path().join("out.tare").exists(), "{new}: a record without a study");
    };
    refused("values = [2]", "values = [1000]", "can run at most");
    refused("instances = 3", "instances = 0", "it must be from 1");
    refused("instances = 3", "system = { instances = 3 }", "write it as instances = N");
    refused(
        "memory_per_cpu = \"64M\"",
        "memory_per_cpu = \"64M\"\nhosts = [\"ssh:a\", \"ssh:b\"]",
        "leave out one of the two",
    );
    let fio = STUDY
        .replace("name = \"tare-db\"\nmemory_per_cpu = \"64M\"", "name = \"fio\"")
        .replace("[system]", "driver = \"fio\"\n[system]")
        .replace("rows = 200\nconnections = 2\nin_flight = 8", "fio = { rw = \"randread\" }");
    let output = weigh(&folder, &fio).output().unwrap();
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("an environment runs one instance of fio"), "{error}");
    let large = STUDY.replace("\"64M\"", "\"9000G\"");
    let output = weigh(&folder, &large).output().unwrap();
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(error.contains("MiB of memory and") && error.contains("are available"), "{error}");
    fs::remove_file(folder.path().join("out.tare")).ok();
    let limit = "instances = 3\nlimits = { memory = \"96M\" }";
    refused("instances = 3", limit, "for each of 3 instances");
    let quota = "instances = 3\ncpu = \"quota=0.02\"";
    refused("instances = 3", quota, "too small to divide among 3 instances");
}
