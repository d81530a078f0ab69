//! `--inside` through the built program: the record of a study that ran in a guest is written to
//! the usual path and names the guest; Ctrl-C copies the record out; `tare clean` removes what a
//! killed harness leaves.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::guest::cannot_start;
use common::{run_in, stderr, stdout, tare};
use tare_testkit::host_state;

/// Long enough for a guest under TCG on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(600);

const QEMU: &str = "vm:qemu,memory=1G,disk=2G,accelerator=tcg";
/// Its CPU is not emulated, so that it takes a fraction of the time.
const USER_MODE: &str = "vm:uml,memory=1G,disk=2G";

/// A study of a thin pool, which the host may lack.
const STUDY: &str = r#"
name = "thin"
title = "A thin pool below a database"
baseline = "directory"
driver = "tare-load"
[system]
name = "tare-db"
durability = "periodic"
[schedule]
kind = "slices"
window = "2s"
lead_in = "200ms"
rounds = ROUNDS
rounds_min = 2
budget = "10m"
[[environment]]
name = "directory"
runtime = "process"
network = "host"
cpu = "shared"
security = "none"
cgroup = "own"
[[environment]]
name = "direct-lvm"
extends = "directory"
storage = { kind = "direct-lvm", size = "256M" }
[[workload]]
name = "write"
write_share = 1.0
rows = 200
columns = 2
column_bytes = 64
keys = "gaussian"
connections = 2
in_flight = 2
latency_share = 0.5
"#;

fn words<'a>(guest: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec![more[0], "--state", "state", "--inside", guest];
    words.extend(&more[1..]);
    words
}

fn study(here: &Path, rounds: u32) {
    fs::write(here.join("thin.toml"), STUDY.replace("ROUNDS", &rounds.to_string())).unwrap();
}

/// Checks that no run is left in the state directory, and no process of one.
fn assert_clean(here: &Path) {
    let runs = here.join("state/runs");
    let left: Vec<_> = fs::read_dir(runs).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
    let name = here.file_name().unwrap().to_string_lossy().into_owned();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let is_guest = words.contains("qemu") || words.contains("linux.uml");
        assert!(!(is_guest && words.contains(&name)), "{words}");
    }
}

fn spawn(here: &Path, more: &[&str]) -> Child {
    let mut command = tare();
    command.args(words(USER_MODE, more)).current_dir(here);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::from(fs::File::create(here.join("progress")).unwrap()));
    command.spawn().unwrap()
}

/// Waits until the progress output contains this.
fn wait_for(here: &Path, part: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(here.join("progress")).unwrap();
        if text.contains(part) {
            return;
        }
        assert!(Instant::now() < deadline, "no {part:?} in:\n{text}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn json(output: &Output) -> serde_json::Value {
    let text = stdout(output);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
}

#[test]
fn a_study_runs_inside_a_guest() {
    if cannot_start("a_study_runs_inside_a_guest", QEMU) {
        return;
    }
    let _lock = host_state::beside_others();
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    study(here, 2);
    let output =
        run_in(here, words(QEMU, &["weigh", "thin.toml", "-o", "out.tare", "--seed", "7"]));
    assert!(output.status.success(), "{}", stderr(&output));
    for part in ["inside Linux", "direct-lvm: ready", "round 2"] {
        assert!(stderr(&output).contains(part), "{part:?} is not in:\n{}", stderr(&output));
    }
    let text = stdout(&output);
    for part in ["Inside a guest (Linux ", "CPU emulated", "out.tare", "out.html"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let page = fs::read_to_string(here.join("out.html")).unwrap();
    assert!(page.contains("a guest: Linux"), "the page does not name the guest");
    let report = json(&run_in(here, ["report", "out.tare", "--json"]));
    assert_eq!(report["header"]["seed"].as_u64(), Some(7));
    assert_clean(here);

    // No guest is booted if the record cannot be written; `--serve` does not work from a guest.
    let again = run_in(here, words(QEMU, &["weigh", "thin.toml", "-o", "out.tare"]));
    assert_eq!(again.status.code(), Some(3), "{}", stderr(&again));
    let served = run_in(here, words(QEMU, &["weigh", "thin.toml", "--serve"]));
    assert_eq!(served.status.code(), Some(2), "{}", stderr(&served));

    // A disk of the guest, and exit codes from inside the guest.
    let typed = ["disk", "/var/lib/tare", "--budget", "5s", "--size", "256M", "--json"];
    let disk = run_in(here, words(QEMU, &typed));
    assert!(disk.status.success(), "{}", stderr(&disk));
    let doubts = json(&disk)["doubts"].to_string();
    assert!(doubts.contains("inside") && doubts.contains("tcg"), "{doubts}");
    let missing = run_in(here, words(QEMU, &["disk", "/no/such/place"]));
    assert_eq!(missing.status.code(), Some(4), "{}", stderr(&missing));
    assert_clean(here);
}

#[test]
fn a_study_inside_a_guest_is_interrupted_and_killed() {
    if cannot_start("a_study_inside_a_guest_is_interrupted_and_killed", USER_MODE) {
        return;
    }
    let _lock = host_state::beside_others();
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    study(here, 500);
    let mut child = spawn(here, &["weigh", "thin.toml"]);
    wait_for(here, "round 1 ");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let status = child.wait().unwrap();
    let progress = fs::read_to_string(here.join("progress")).unwrap();
    assert_eq!(status.code(), Some(130), "{progress}");
    let report = json(&run_in(here, ["report", "thin.tare", "--json"]));
    assert_eq!(report["header"]["ending"], "interrupted", "{report}");
    assert_clean(here);

    // The record is resumed inside another guest.
    study(here, 500);
    let mut child = spawn(here, &["weigh", "--resume", "thin.tare"]);
    wait_for(here, "round ");
    child.kill().unwrap();
    child.wait().unwrap();
    let cleaned = run_in(here, ["clean", "--state", "state"]);
    assert!(cleaned.status.success(), "{}", stderr(&cleaned));
    assert_clean(here);
    let left: Vec<_> = fs::read_dir(here.join("state")).unwrap().flatten().collect();
    assert!(left.iter().all(|e| !e.file_name().to_string_lossy().starts_with("tare-")), "{left:?}");
}
