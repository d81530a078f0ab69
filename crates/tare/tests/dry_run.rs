//! `--dry-run` of `tare weigh` and `tare explain`, `tare list studies`, and the part of a study
//! that `--budget` chooses, through the built program.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;

use common::{run_in, stderr, stdout};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
}

fn files(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

#[test]
fn dry_run_prints_the_plan_and_starts_nothing() {
    let here = tempfile::tempdir().unwrap();
    let words = ["--state", "state", "weigh", "fake", "--dry-run"];
    let output = run_in(here.path(), words);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("fake: up to "), "{text}");
    for part in [
        "rounds of 6 environments under 1 workload",
        "\nTime\n  whole study",
        "\n  --quick",
        "\nCPUs\n",
        "\n  system  ",
        "\n  client  ",
        "\nEnvironments: 6 of 6\n",
        "nothing again",
        "at capacity, and latency at 50 % of the baseline's capacity",
        "fake.tare",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert_eq!(files(here.path()), 0, "a dry run writes no file");
}

#[test]
fn dry_run_of_an_explanation_plans_every_combination_of_layers() {
    let here = tempfile::tempdir().unwrap();
    let to = ["--from", "nothing", "--to", "a proxy and 10 % CPU, pinned"];
    let words = ["--state", "state", "explain", "fake", "--dry-run", "--json", "--rounds", "7"];
    let output = run_in(here.path(), words.iter().chain(&to));
    assert!(output.status.success(), "{}", stderr(&output));
    let plan = json(&stdout(&output));
    let found = plan["environments"].as_array().unwrap();
    // Three layers in every combination, and the control.
    assert_eq!(found.iter().filter(|one| one["role"] != "control").count(), 8, "{plan}");
    assert_eq!(plan["record"], "fake-explained.tare");
    assert_eq!(plan["time"]["rounds"], 7);
    assert_eq!(files(here.path()), 0, "a dry run writes no file");
}

#[test]
fn dry_run_names_what_this_host_lacks() {
    let here = tempfile::tempdir().unwrap();
    let study = include_str!("../../../studies/quick.toml");
    // No host has this runtime, in an environment that is not optional.
    let study = study.replacen("oci:runc", "oci:no-such-runtime", 1);
    fs::write(here.path().join("own.toml"), study).unwrap();
    let words = ["--state", "state", "weigh", "own.toml", "--dry-run", "--json"];
    let output = run_in(here.path(), words);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let plan = json(&stdout(&output));
    let found = plan["environments"].as_array().unwrap();
    let of = |name: &str| found.iter().find(|one| one["name"] == name).unwrap();
    assert!(of("container default")["left_out"].as_str().unwrap().contains("no-such-runtime"));
    assert_eq!(of("native")["left_out"], Value::Null);
    assert_eq!(of("native again")["role"], "control");
    let obstacles = names(&plan["obstacles"]);
    assert!(obstacles.iter().any(|text| text.contains("is not optional")), "{obstacles:?}");
    assert!(plan["time"]["seconds"].as_f64().unwrap() > 0.0);
    assert!(plan["memory"]["needed_bytes"].as_u64().unwrap() > 0);
    assert!(plan["disk"]["data_bytes"].as_u64().unwrap() > 0);
    assert_eq!(files(here.path()), 1, "a dry run writes no file");
}

#[test]
fn dry_run_refuses_what_weigh_refuses() {
    let here = tempfile::tempdir().unwrap();
    let check = |words: &[&str], exit: i32, message: &str| {
        let output = run_in(here.path(), words);
        assert_eq!(output.status.code(), Some(exit), "{words:?}: {}", stderr(&output));
        let text = stdout(&output) + &stderr(&output);
        assert!(text.contains(message), "{message:?} is not in:\n{text}");
    };
    check(&["weigh", "--dry-run", "--resume", "x.tare"], 2, "--resume");
    check(&["weigh", "--dry-run", "--serve"], 2, "--serve");
    check(&["weigh", "no-such-study", "--dry-run"], 3, "cannot read the study");
    check(&["weigh", "quick", "--quick", "--dry-run"], 3, "has no quick part");
    check(&["explain", "--dry-run", "--csv"], 2, "--csv");
    check(&["explain", "x.tare", "--dry-run"], 2, "leave out --dry-run");
    fs::write(here.path().join("x.tare"), "").unwrap();
    check(&["explain", "fake", "-o", "x.tare", "--dry-run"], 3, "x.tare exists already");
    check(&["weigh", "fake", "-o", "x.tare", "--dry-run"], 3, "x.tare exists already");
}

#[test]
fn budget_chooses_environments_in_the_order_of_the_file() {
    let here = tempfile::tempdir().unwrap();
    let words = ["weigh", "fake", "--budget", "150s", "--seed", "1", "-o", "b.tare", "--json"];
    let output = run_in(here.path(), words.iter().chain(&["--state", "state"]));
    assert!(output.status.success(), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(message.contains("no time for 40 rounds within --budget 2m30s"), "{message}");

    let record = json(&stdout(&output));
    let study = &record["study"];
    assert!(study["title"].as_str().unwrap().ends_with("(part for 2m30s)"), "{study}");
    let left = names(&study["budget_part"]["environments"]);
    let cut = ["3 % CPU", "30 % CPU, 20 % throughput", "a proxy", "a proxy and 10 % CPU, pinned"];
    assert_eq!(left, cut);
    assert_eq!(study["budget_part"]["rounds_min"], 40);
    let ran: Vec<&str> = record["environments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(ran, ["nothing", "no cost", "nothing again"]);
    assert_eq!(record["analysis"]["blocks"], 40, "those that are measured get all their rounds");

    let text = stdout(&run_in(here.path(), ["report", "b.tare"]));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("4 environments of the study: no time for 40 rounds"), "{text}");
    assert!(text.contains("give a larger one: 3 % CPU; 30 % CPU"), "{text}");
    assert!(
        text.contains("did not fit into the budget"),
        "a published relation gives the reason: {text}"
    );
    let page = fs::read_to_string(here.path().join("b.html")).unwrap();
    assert!(page.contains("no time for 40 rounds within --budget 2m30s"));
}

#[test]
fn budget_for_all_changes_nothing() {
    let here = tempfile::tempdir().unwrap();
    let words = ["weigh", "fake", "--budget", "1h", "--rounds", "2", "--state", "state", "--json"];
    let output = run_in(here.path(), words);
    assert!(output.status.success(), "{}", stderr(&output));
    let record = json(&stdout(&output));
    assert_eq!(record["study"]["budget_part"], Value::Null);
    assert_eq!(record["environments"].as_array().unwrap().len(), 7);
}

#[test]
fn studies_are_listed_with_time_and_needs() {
    let here = tempfile::tempdir().unwrap();
    let text = stdout(&run_in(here.path(), ["list", "studies"]));
    assert!(text.contains(" h; quick part up to "), "{text}");
    assert!(text.contains("root, runc; for some environments docker"), "{text}");
    let list = json(&stdout(&run_in(here.path(), ["list", "studies", "--json"])));
    let studies = list["studies"].as_array().unwrap();
    for study in studies {
        let summary = &study["study"];
        assert!(summary["time_s"].as_f64().unwrap() > 0.0, "{study}");
        assert!(summary["needs"]["always"].is_array(), "{study}");
        let long = summary["time_s"].as_f64().unwrap() > 86_400.0;
        assert_eq!(long, study["name"] == "storage-options", "{study}");
        let quick = study["name"] == "quick";
        assert_eq!(summary["quick_time_s"].is_null(), quick, "{study}");
    }
}
