//! `tare explain` through the built program: injected costs are found, shares add up, a record
//! alone is enough, and a real container is explained layer by layer.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::path::Path;
use std::process::Output;

use common::{run_in, stderr, stdout};
use serde_json::Value;
use tare_testkit::host_state::{self, HostState};
use tare_testkit::{Need, skipped, tiny};

const TO: &str = "a proxy and 10 % CPU, pinned";

fn explain(here: &Path, extra: &[&str]) -> Output {
    let state = here.join("state");
    let mut arguments = vec!["explain", "--state", state.to_str().unwrap()];
    arguments.extend(extra);
    run_in(here, arguments)
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    let text = stdout(output);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
}

/// The explanation of the only workload.
fn found(report: &Value) -> &Value {
    &report["workloads"][0]["explanation"]
}

fn us(value: &Value) -> f64 {
    value["us"]["value"].as_f64().unwrap()
}

fn assert_shares_add_up(found: &Value) {
    let shares = found["shares"].as_array().unwrap();
    let sum: f64 = shares.iter().map(us).sum();
    let whole = found["whole_us"]["value"].as_f64().unwrap();
    assert!((sum - whole).abs() < 1e-9, "{sum} is not {whole}");
}

#[test]
fn explain_finds_the_injected_costs() {
    let here = tempfile::tempdir().unwrap();
    for seed in ["1", "2", "3", "4", "5"] {
        let output = format!("{seed}.tare");
        let words = ["fake", "--to", TO, "--seed", seed, "-o", &output, "--json"];
        let report = json(&explain(here.path(), &words));
        let found = found(&report);
        assert_shares_add_up(found);
        let shares = found["shares"].as_array().unwrap();
        let names: Vec<&str> = shares.iter().map(|s| s["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["network", "runtime", "cpu"], "the costliest comes first");
        for (share, truth) in shares.iter().zip([5.0, 0.8, 0.0]) {
            assert!((us(share) - truth).abs() < 0.1, "{share} is not {truth}");
        }
        assert_eq!(shares[0]["verdict"], "costs");
        assert_eq!(shares[1]["verdict"], "costs");
        assert!(["not_found", "within_noise"].contains(&shares[2]["verdict"].as_str().unwrap()));
        assert_eq!(found["interactions"].as_array().unwrap().len(), 3);
        assert_eq!(report["plan"]["orders_possible"], 6);
        assert_eq!(report["plan"]["environments"].as_array().unwrap().len(), 8);
    }
    let page = std::fs::read_to_string(here.path().join("1.html")).unwrap();
    assert!(page.contains("id=\"explanation\"") && page.contains("id=\"waterfall-0-t\""));
    // The record alone gives the same explanation, without its study.
    let text = stdout(&explain(here.path(), &["1.tare"]));
    for part in [
        "network costs the most",
        "The shares add up",
        "not distinguishable from zero",
        "all 6 orders",
        "bridge → bridge+proxy",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn an_environment_limit_samples_the_orders() {
    let here = tempfile::tempdir().unwrap();
    let words = ["fake", "--to", TO, "--seed", "3", "--environments", "6", "--json"];
    let report = json(&explain(here.path(), &words));
    assert_shares_add_up(found(&report));
    let plan = &report["plan"];
    let orders = plan["orders"].as_array().unwrap();
    assert_eq!((orders.len(), plan["orders_possible"].as_u64()), (2, Some(6)));
    let reversed: Vec<&Value> = orders[1].as_array().unwrap().iter().rev().collect();
    assert_eq!(orders[0].as_array().unwrap().iter().collect::<Vec<_>>(), reversed);
    let text = stdout(&explain(here.path(), &["fake-explained.tare"]));
    assert!(text.contains("2 of the 6 orders (drawn with seed 3"), "{text}");
    assert!(text.contains("say nothing about the orders"), "{text}");
    let output = explain(here.path(), &["fake", "--to", TO, "--environments", "3"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains("needs 4 environments"), "{}", stderr(&output));
}

#[test]
fn a_record_lacking_intermediate_environments_names_them() {
    let here = tempfile::tempdir().unwrap();
    let state = here.path().join("state");
    let words = ["weigh", "fake", "--rounds", "12", "--state", state.to_str().unwrap()];
    assert!(run_in(here.path(), words).status.success());
    // These two differ in one layer.
    let report = json(&explain(here.path(), &["fake.tare", "--to", "a proxy", "--json"]));
    assert_eq!(found(&report)["shares"][0]["name"], "network");
    let output = explain(here.path(), &["fake.tare", "--to", TO]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    for part in ["lacks 5 of the 8", "nothing + runtime, network", "tare explain fake --from"] {
        assert!(stderr(&output).contains(part), "{part:?} is not in:\n{}", stderr(&output));
    }
    // An unknown or pointless `--to` is refused.
    let output = explain(here.path(), &["fake", "--to", "a prxy"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("a proxy"), "{}", stderr(&output));
    let output = explain(here.path(), &["fake", "--to", "nothing"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("nothing to explain"), "{}", stderr(&output));
}

#[test]
fn a_container_is_explained_and_leaves_nothing() {
    let needs = [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];
    if skipped("a_container_is_explained_and_leaves_nothing", &needs) {
        return;
    }
    let _alone = host_state::alone();
    let here = tempfile::tempdir().unwrap();
    tiny::write(here.path(), "slices", 3);
    let before = HostState::read();
    let words = ["tiny.toml", "--to", "runc proxy", "--seed", "7", "-o", "x.tare", "--json"];
    let report = json(&explain(here.path(), &words));
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
    assert_shares_add_up(found(&report));
    // runtime, network, security (after the runtime), cgroup.
    let plan = &report["plan"];
    assert_eq!(plan["orders_possible"], 12);
    assert_eq!(plan["environments"].as_array().unwrap().len(), 12);
    assert_eq!(plan["needs"], serde_json::json!([[0, 2]]));
    assert_eq!(found(&report)["blocks"], 3);
    // An existing record is never overwritten.
    let output = explain(here.path(), &["tiny.toml", "-o", "x.tare"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}
