//! Stacks through the built program: sampled with perf in real environments, printed, drawn, and
//! the message where there are none.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{run_in, stderr, stdout, tare};
use tare_testkit::host_state::{self, HostState};
use tare_testkit::{Need, skipped, tiny};

fn weigh(here: &Path, extra: &[&str]) -> Output {
    let state = here.join("state");
    let mut arguments = vec!["weigh", "--state", state.to_str().unwrap()];
    arguments.extend(extra);
    run_in(here, arguments)
}

fn succeed(output: Output) -> String {
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
}

#[test]
fn stacks_are_reported_or_their_absence_is_explained() {
    let here = tempfile::tempdir().unwrap();
    let none = ["fake", "--rounds", "2", "--seed", "1", "-o", "none.tare"];
    succeed(weigh(here.path(), &none));
    let output = run_in(here.path(), ["report", "none.tare", "--stacks"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("--resume none.tare --stacks"), "{}", stderr(&output));
    let some = ["--resume", "none.tare", "--stacks", "--stack-rounds", "3"];
    succeed(weigh(here.path(), &some));
    let text = succeed(run_in(here.path(), ["report", "none.tare", "--stacks"]));
    assert!(text.contains("network stack") && text.contains("a proxy"), "{text}");
    let extra = ["report", "none.tare", "--stacks", "--to", "a proxy"];
    let text = succeed(run_in(here.path(), extra));
    let proxy = text.lines().find(|line| line.trim().starts_with("userland proxy")).unwrap();
    assert!(proxy.trim().ends_with("new"), "{text}");
    let wrong = ["report", "none.tare", "--stacks", "--to", "nobody"];
    let output = run_in(here.path(), wrong);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr(&output).contains("a proxy"),
        "the message lists the environments: {}",
        stderr(&output)
    );
}

#[test]
fn stacks_of_real_environments_add_up_and_leave_no_trace() {
    let needs = [
        Need::Root,
        Need::Program("runc"),
        Need::Program("nft"),
        Need::Program("ip"),
        Need::Program("perf"),
    ];
    if skipped("stacks_of_real_environments_add_up_and_leave_no_trace", &needs) {
        return;
    }
    let _alone = host_state::alone();
    let before = HostState::read();
    let here = tempfile::tempdir().unwrap();
    tiny::write(here.path(), "slices", 1);
    let extra = ["tiny.toml", "-o", "s.tare", "--stacks", "--syscalls", "--stack-rounds", "2"];
    succeed(weigh(here.path(), &[&extra[..], &["--stack-window", "500ms"]].concat()));
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
    let arguments = ["report", "s.tare", "--stacks", "--from", "native", "--to", "runc proxy"];
    let extra = [&arguments[..], &["--json", "--flamegraph", "f.html"]].concat();
    let value = json(&succeed(run_in(here.path(), extra)));
    let us = |row: &serde_json::Value, side: &str| row[side]["us"].as_f64().unwrap();
    for side in ["from", "to"] {
        let rows = value["subsystems"].as_array().unwrap();
        let sum: f64 = rows.iter().map(|row| us(row, side)).sum();
        let whole = us(&value["sum"], side);
        assert!(whole > 0.0 && (sum - whole).abs() < 1e-6 * whole, "{sum} is not {whole}");
        assert!(value["samples"][side].as_u64().unwrap() > 0);
    }
    let row = |name: &str| {
        let rows = value["subsystems"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name)
    };
    // A client behind the proxy is served by a process that the native run does not have.
    let proxy = row("userland proxy").expect("the proxy was sampled");
    assert!(us(proxy, "from") == 0.0 && us(proxy, "to") > 0.0, "{proxy}");
    // Functions inside the container have names, though the program has another path there.
    let functions = value["functions"].as_array().unwrap();
    let named = |row: &&serde_json::Value| {
        row["name"].as_str().unwrap().contains("tare_db::") && us(row, "to") > 0.0
    };
    assert!(functions.iter().any(|row| named(&row)), "{functions:#?}");
    let page = fs::read_to_string(here.path().join("f.html")).unwrap();
    assert!(page.contains("id=\"graph\"") && page.contains("runc proxy"));
    assert_waits_have_reasons(here.path());
    assert_syscalls_are_counted(here.path());
}

/// An open-loop client waits for its next start time or for an answer. Behind a proxy that does not
/// keep the rate it may always have something to send, but other threads wait there too.
fn assert_waits_have_reasons(here: &Path) {
    let arguments = ["report", "s.tare", "--stacks", "--kind", "off-cpu", "--to", "runc proxy"];
    let value = json(&succeed(run_in(here, [&arguments[..], &["--json"]].concat())));
    assert_eq!(value["kind"], "off-cpu");
    let rows = value["subsystems"].as_array().unwrap();
    let events = rows.iter().find(|row| row["name"] == "events").expect("a thread waits for work");
    assert!(events["from"]["us"].as_f64().unwrap() > 0.0, "{events}");
    assert!(value["sum"]["to"]["us"].as_f64().unwrap() > 0.0, "{value}");
}

/// The proxy forwards every request and every answer, with system calls of its own.
fn assert_syscalls_are_counted(here: &Path) {
    let value = json(&succeed(run_in(here, ["report", "s.tare", "--json"])));
    let environments = value["environments"].as_array().unwrap();
    let proxy = environments.iter().find(|one| one["name"] == "runc proxy").unwrap();
    let traced =
        proxy["counters"].as_array().unwrap().iter().filter(|one| one["phase"] == "traced");
    let calls: Vec<_> = traced.filter(|one| one["name"] == "layer_syscalls").collect();
    let per_operation = calls[0]["value"]["value"].as_f64().unwrap();
    assert!(calls.len() == 1 && per_operation > 0.0, "{proxy}");
}

#[test]
fn a_study_without_perf_continues_with_a_doubt() {
    let needs = [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];
    if skipped("a_study_without_perf_continues_with_a_doubt", &needs) {
        return;
    }
    let _alone = host_state::alone();
    let here = tempfile::tempdir().unwrap();
    tiny::write(here.path(), "slices", 1);
    // A PATH with everything that a study runs, and no perf.
    let tools = here.path().join("bin");
    fs::create_dir(&tools).unwrap();
    for tool in ["ip", "nft", "runc", "true"] {
        let path = std::env::var_os("PATH").unwrap();
        let found = std::env::split_paths(&path).map(|folder| folder.join(tool));
        let found = found.into_iter().find(|path| path.is_file()).unwrap();
        std::os::unix::fs::symlink(found, tools.join(tool)).unwrap();
    }
    let state = here.path().join("state");
    let output = tare()
        .args(["weigh", "tiny.toml", "-o", "s.tare", "--stacks", "--json", "--state"])
        .arg(&state)
        .current_dir(here.path())
        .env("PATH", &tools)
        .output()
        .unwrap();
    let value = json(&succeed(output));
    let text = value.to_string();
    assert!(text.contains("linux-perf"), "the doubt names the package: {text}");
}
