//! `tare weigh` through the built program, on real runtimes: result, record, page, resume, signals,
//! and an unchanged host.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{run_in, stderr, stdout, tare};
use tare_testkit::host_state::{self, HostState};
use tare_testkit::{Need, skipped, tiny};

const NEEDS: [Need; 4] =
    [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];

/// Long enough for a loaded machine; a hang fails this test instead of blocking the run.
const PATIENCE: Duration = Duration::from_secs(240);

fn weigh(here: &Path, extra: &[&str]) -> Output {
    let state = here.join("state");
    let mut arguments = vec!["weigh", "--state", state.to_str().unwrap()];
    arguments.extend(extra);
    run_in(here, arguments)
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
}

/// Checks that the host is in the same state as before.
fn assert_host_unchanged(before: &HostState) {
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
}

#[test]
fn weigh_finds_the_injected_costs_of_the_fake_study() {
    let _alone = host_state::alone();
    let here = tempfile::tempdir().unwrap();
    let output = weigh(here.path(), &["fake", "--seed", "5", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&stdout(&output));
    let findings = report["analysis"]["findings"].as_array().unwrap();
    let cost = |name: &str, field: &str| {
        let finding = findings.iter().find(|one| one["environment"] == name).unwrap();
        finding[field]["percent"]["value"].as_f64().unwrap()
    };
    let near = |value: f64, truth: f64| assert!((value - truth).abs() < 1.5, "{value} {truth}");
    near(cost("3 % CPU", "server_cpu_cost"), 3.0);
    near(cost("30 % CPU, 20 % throughput", "server_cpu_cost"), 30.0);
    near(cost("30 % CPU, 20 % throughput", "throughput_cost"), 20.0);
    // A study with both fake and real environments is refused.
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/fake.toml"));
    let text = text.unwrap().replacen("runtime = \"fake\"", "runtime = \"process\"", 1);
    fs::write(here.path().join("mixed.toml"), text).unwrap();
    let output = weigh(here.path(), &["mixed.toml"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("mixes fake and real"), "{}", stderr(&output));
}

#[test]
fn slices_produce_costs_a_record_and_a_page() {
    if skipped("slices_produce_costs_a_record_and_a_page", &NEEDS) {
        return;
    }
    let _alone = host_state::alone();
    let here = tempfile::tempdir().unwrap();
    tiny::write(here.path(), "slices", 3);
    let before = HostState::read();
    let output = weigh(here.path(), &["tiny.toml", "-o", "out.tare", "--seed", "7"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_host_unchanged(&before);
    let text = stdout(&output);
    for part in ["native again", "runc bridge", "runc proxy", "out.tare", "out.html"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let page = fs::read_to_string(here.path().join("out.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("runc bridge"));
    assert!(
        !page.contains("http://") || !page.contains("<script src"),
        "the page needs no network"
    );

    // The report needs the record alone and has the same content.
    let report = run_in(here.path(), ["report", "out.tare", "--json"]);
    assert!(report.status.success(), "{}", stderr(&report));
    let report = json(&stdout(&report));
    assert_eq!(report["header"]["seed"].as_u64(), Some(7));
    let lines = stdout(&run_in(here.path(), ["report", "out.tare", "--csv"]));
    // At least 4 environments with the control, 2 phases, 3 rounds, and the heading.
    assert!(lines.lines().count() > 4 * 2 * 3, "{lines}");
    let again = stdout(&run_in(here.path(), ["report", "out.tare"]));
    assert!(again.contains("runc proxy"), "{again}");

    // An existing record is never overwritten.
    let output = weigh(here.path(), &["tiny.toml", "-o", "out.tare"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("out.tare"));

    // A record of a newer version is refused in one line.
    fs::copy(here.path().join("out.tare"), here.path().join("newer.tare")).unwrap();
    let connection = rusqlite::Connection::open(here.path().join("newer.tare")).unwrap();
    connection.pragma_update(None, "user_version", 1_000_000).unwrap();
    drop(connection);
    let output = run_in(here.path(), ["report", "newer.tare"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("newer"), "{}", stderr(&output));

    // Two records side by side.
    fs::copy(here.path().join("out.tare"), here.path().join("copy.tare")).unwrap();
    let output = run_in(here.path(), ["compare", "out.tare", "copy.tare"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("runc bridge"));
}

#[test]
fn trials_restore_the_rows_from_a_shared_copy() {
    if skipped("trials_restore_the_rows_from_a_shared_copy", &NEEDS) {
        return;
    }
    let _alone = host_state::alone();
    let here = tempfile::tempdir().unwrap();
    tiny::write(here.path(), "trials", 2);
    let before = HostState::read();
    let output = weigh(here.path(), &["tiny.toml", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&stdout(&output));
    assert!(here.path().join("tiny.tare").exists() && here.path().join("tiny.html").exists());
    // All are on the state directory's file system, so they share the loaded rows by links.
    for name in ["native", "native again", "runc bridge", "runc proxy"] {
        let came = data_of(&report, name);
        assert!(
            came.starts_with("restored in ") && !came.contains(" 0.0 MiB shared"),
            "{name}: {came}"
        );
    }
    assert_host_unchanged(&before);
}

/// Trials of eleven seconds at a fixed rate on a disk: the load and the disk by the second.
#[test]
fn long_trials_are_recorded_by_the_second() {
    if skipped("long_trials_are_recorded_by_the_second", &NEEDS) {
        return;
    }
    let _alone = host_state::alone();
    let here = tempfile::tempdir().unwrap();
    let study = "name = \"long\"\ntitle = \"?\"\nbaseline = \"native\"\n[system]\nname = \"tare-db\"\n\
                 memory = \"128M\"\n[schedule]\nkind = \"trials\"\nrounds = 1\nwindow = \"11s\"\n\
                 stop_width_percent = 0\n[[environment]]\nname = \"native\"\nruntime = \"process\"\n\
                 storage = { kind = \"ext4\", size = \"512M\" }\n[[workload]]\nname = \"steady\"\n\
                 write_share = 0.5\nrows = 20000\nrate_per_s = 2000\nrate_only = true\n";
    fs::write(here.path().join("long.toml"), study).unwrap();
    let before = HostState::read();
    let output = weigh(here.path(), &["long.toml", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("native: steady at the fixed rate for 11 s: "));
    assert_host_unchanged(&before);
    let report = json(&stdout(&output));
    let by_second = report["by_second"].as_array().unwrap();
    assert_eq!(by_second.len(), 2, "native and its control: {by_second:?}");
    for one in by_second {
        assert_eq!((one["phase"].as_str(), one["seconds"].as_u64()), (Some("latency"), Some(11)));
        let per_s = one["load"]["operations_per_s"].as_f64().unwrap();
        assert!((1900.0..2100.0).contains(&per_s), "{one}");
        assert!(one["writes"]["peak_ns"].as_f64() > one["writes"]["mean_ns"].as_f64(), "{one}");
    }
    let record = rusqlite::Connection::open(here.path().join("long.tare")).unwrap();
    let count = |table: &str| -> i64 {
        let sql = format!("SELECT COUNT(*) FROM {table}");
        record.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count("load_seconds"), 22);
    assert!((20..=22).contains(&count("disk_seconds")));
    let page = fs::read_to_string(here.path().join("long.html")).unwrap();
    assert!(page.contains("Every second at the fixed rate") && page.contains("Longest I/O"));
    let csv = stdout(&run_in(here.path(), ["report", "long.tare", "--seconds-csv"]));
    assert_eq!(csv.lines().count(), 23, "{csv}");
}

/// Returns how the rows were brought into an environment.
fn data_of(report: &serde_json::Value, environment: &str) -> String {
    let environments = report["environments"].as_array().unwrap();
    let found = environments.iter().find(|one| one["name"] == environment).unwrap();
    let layers = found["layers"].as_array().unwrap();
    let layer = layers.iter().find(|layer| layer["layer"] == "data");
    layer.unwrap_or_else(|| panic!("{environment}: {layers:?}"))["found"].as_str().unwrap().into()
}

#[test]
fn rows_loaded_once_are_read_from_every_storage() {
    let needs = [NEEDS.as_slice(), &[Need::Program("mkfs.ext4")]].concat();
    if skipped("rows_loaded_once_are_read_from_every_storage", &needs) {
        return;
    }
    let _alone = host_state::alone();
    let here = tempfile::tempdir().unwrap();
    let study = r#"
name = "kept"
baseline = "native"
[schedule]
data = "restored"
window = "100ms"
lead_in = "30ms"
rounds = 2
rounds_min = 2
[[environment]]
name = "native"
runtime = "process"
cpu = "pinned"
[[environment]]
name = "ext4"
extends = "native"
storage = { kind = "ext4", size = "256M" }
[[environment]]
name = "overlay"
runtime = "oci:runc"
cpu = "pinned"
storage = { kind = "rootfs", driver = "overlay" }
[[workload]]
name = "read"
write_share = 0
rows = 20_000
latency_share = 0
"#;
    std::fs::write(here.path().join("kept.toml"), study).unwrap();
    let before = HostState::read();
    let output = weigh(here.path(), &["kept.toml", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&stdout(&output));
    let native = data_of(&report, "native");
    assert!(native.contains("restored in ") && !native.contains(" 0.0 MiB shared"), "{native}");
    for name in ["ext4", "overlay"] {
        let came = data_of(&report, name);
        let whole = came.contains(" 0.0 MiB shared") && !came.contains(" 0.0 MiB copied");
        assert!(came.starts_with("restored in ") && whole, "{name}: {came}");
    }
    // Every read returns a row of 5 x 64 bytes.
    for environment in report["environments"].as_array().unwrap() {
        let counters = environment["counters"].as_array().unwrap();
        let sent = counters.iter().find(|one| one["name"] == "system_net_out_bytes").unwrap();
        let bytes = sent["value"]["value"].as_f64().unwrap();
        assert!(bytes >= 320.0, "{}: {bytes} bytes per operation", environment["name"]);
    }
    assert_host_unchanged(&before);
}

fn start(here: &Path, arguments: &[&str]) -> Child {
    let state = here.join("state");
    let mut command: Command = tare();
    command.args(arguments).args(["--state", state.to_str().unwrap()]);
    command.current_dir(here).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the built program starts")
}

fn wait(child: &mut Child) -> std::process::ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("the program did not end within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the number of slices in a record, which another process may be writing.
fn slices(record: &Path) -> i64 {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let count = |connection: rusqlite::Connection| {
        connection.query_row("SELECT count(*) FROM slices", [], |row| row.get(0))
    };
    rusqlite::Connection::open_with_flags(record, flags).and_then(count).unwrap_or(0)
}

#[test]
fn a_killed_study_resumes_in_the_same_order() {
    if skipped("a_killed_study_resumes_in_the_same_order", &NEEDS) {
        return;
    }
    let _alone = host_state::alone();
    let here = tempfile::tempdir().unwrap();
    let before = HostState::read();
    tiny::write(here.path(), "slices", 4);
    let order = |record: &str| {
        let text = stdout(&run_in(here.path(), ["report", record, "--csv"]));
        let column = |line: &str, names: &[&str], heading: &str| {
            let heading: Vec<&str> = heading.split(',').collect();
            let cells: Vec<&str> = line.split(',').collect();
            let cell = |name: &&str| heading.iter().position(|h| h == name).map(|at| cells[at]);
            names.iter().filter_map(cell).collect::<Vec<_>>().join(",")
        };
        let heading = text.lines().next().unwrap_or_default().to_string();
        let names = ["block", "position", "environment", "workload", "phase"];
        text.lines().skip(1).map(|line| column(line, &names, &heading)).collect::<Vec<_>>()
    };
    let output = weigh(here.path(), &["tiny.toml", "-o", "whole.tare", "--seed", "11"]);
    assert!(output.status.success(), "{}", stderr(&output));

    let mut child = start(here.path(), &["weigh", "tiny.toml", "-o", "cut.tare", "--seed", "11"]);
    let cut = here.path().join("cut.tare");
    let started = Instant::now();
    while slices(&cut) < 14 {
        assert!(started.elapsed() < PATIENCE, "the study makes no progress");
        assert_eq!(child.try_wait().unwrap(), None, "the study ended before it could be killed");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = slices(&cut);

    let output = weigh(here.path(), &["--resume", "cut.tare"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(slices(&cut) > kept);
    assert_eq!(order("cut.tare"), order("whole.tare"));
    assert_host_unchanged(&before);
}

#[test]
fn a_signal_ends_a_study_cleanly() {
    if skipped("a_signal_ends_a_study_cleanly", &NEEDS) {
        return;
    }
    let _alone = host_state::alone();
    // While the environments start, and in the middle of the slices.
    for delay_ms in [60, 300, 2500] {
        let here = tempfile::tempdir().unwrap();
        let before = HostState::read();
        tiny::write(here.path(), "slices", 2000);
        let mut child = start(here.path(), &["weigh", "tiny.toml", "-o", "s.tare"]);
        std::thread::sleep(Duration::from_millis(delay_ms));
        let pid = i32::try_from(child.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let status = wait(&mut child);
        assert_eq!(status.code(), Some(130), "after {delay_ms} ms");
        assert_host_unchanged(&before);
        if here.path().join("s.tare").exists() {
            let report = run_in(here.path(), ["report", "s.tare"]);
            assert!(report.status.success(), "after {delay_ms} ms: {}", stderr(&report));
        }
    }
}
