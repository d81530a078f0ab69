//! `tare load` against a real `tare db` that is stopped, killed, or too slow for the objective; and
//! its log on a full disk.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{stderr, stdout, tare};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tare_testkit::{Need, skipped};

/// No load of these tests takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A database that ends with the test.
struct Database {
    child: Child,
    address: String,
    _data: tempfile::TempDir,
}

impl Database {
    fn start() -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = port.expect("a free port").to_string();
        let port = address.rsplit(':').next().unwrap_or_default();
        let child = tare()
            .args(["db", "--overprovisioned", "yes", "--port", port, "--data"])
            .arg(data.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let database = Self { child: child.expect("the program starts"), address, _data: data };
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(&database.address).is_err() {
            assert!(Instant::now() < end, "tare db does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        database
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("the database is there");
    }

    fn load(&self, words: &[&str]) -> Command {
        let mut command = tare();
        command.args(["load", &self.address, "--rows", "500", "--json"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a load to its end, and `between` once it has printed its first second.
fn while_loading(mut command: Command, between: impl FnOnce(&Child)) -> (Option<i32>, Value) {
    let mut child = command.spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while lines.read_line(&mut line).expect("text") > 0 && !line.contains(" op/s ") {
        line.clear();
    }
    between(&child);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("text");
    let output = child.wait_with_output().expect("the program ends");
    (output.status.code(), json(&output))
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {} {}", stdout(output), stderr(output));
    })
}

fn count(value: &Value) -> u64 {
    value.as_u64().expect("a count")
}

#[test]
fn a_stopped_server_is_charged_for_all_delayed_operations() {
    let database = Database::start();
    let load =
        database.load(&["--populate", "--rate", "200", "--duration", "4s", "--lead-in", "0s"]);
    let (code, report) = while_loading(load, |_| {
        database.signal(Signal::STOP);
        std::thread::sleep(Duration::from_secs(1));
        database.signal(Signal::CONT);
    });
    assert_eq!(code, Some(0), "{report}");
    let answered = count(&report["response"]["count"]);
    assert_eq!(answered + count(&report["dropped"]), 800, "{report}");
    let without = &report["without_service"];
    assert!(without["longest_s"].as_f64().is_some_and(|s| s >= 0.9), "{without}");
    assert!(count(&report["response"]["max_ns"]) >= 900_000_000, "{report}");
    // A fifth of the operations were due in that second; half of them waited for half of it.
    assert!(count(&report["response"]["p90_ns"]) >= 400_000_000, "{report}");
}

#[test]
fn a_killed_server_is_a_result() {
    let database = Database::start();
    let load =
        database.load(&["--populate", "--rate", "200", "--duration", "5s", "--lead-in", "0s"]);
    let (code, report) = while_loading(load, |_| database.signal(Signal::KILL));
    assert_eq!(code, Some(1), "{report}");
    assert!(count(&report["operations"]) >= 100, "{report}");
    assert!(report["errors"][0]["kind"] == "connection closed", "{report}");
    let failed: u64 =
        report["errors"].as_array().into_iter().flatten().map(|e| count(&e["count"])).sum();
    let answered = count(&report["response"]["count"]);
    assert!(answered + count(&report["dropped"]) + failed >= 1_000, "{report}");
    assert!(report["without_service"]["longest_s"].as_f64().is_some_and(|s| s >= 1.0), "{report}");
    let kinds = report["doubts"].as_array().into_iter().flatten();
    let kinds: Vec<&str> = kinds.filter_map(|doubt| doubt["kind"].as_str()).collect();
    assert!(kinds.contains(&"rate_not_reached"), "{kinds:?}");
}

#[test]
fn a_missed_objective_has_its_exit_code() {
    let database = Database::start();
    let output = database
        .load(&["--populate", "--rate", "4", "--duration", "300ms", "--lead-in", "0s"])
        .args(["--find-max", "--slo", "p50=1us"])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    let report = json(&output);
    assert!(report["rate_per_s"].is_null() && report["is_unfinished"] == false, "{report}");
    assert!(report["runs"].as_array().is_some_and(|runs| runs.len() >= 2), "{report}");
}

/// A small file system; unmounted on drop.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(path: &'a Path) -> Self {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=16k", "tare-small"])
            .arg(path)
            .status();
        assert!(status.is_ok_and(|status| status.success()), "a tmpfs can be mounted");
        Self(path)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_keeps_a_valid_log_and_the_result() {
    let name = "a_full_disk_keeps_a_valid_log_and_the_result";
    if skipped(name, &[Need::Root, Need::Program("mount")]) {
        return;
    }
    let database = Database::start();
    let folder = tempfile::tempdir().expect("a directory");
    let disk = SmallDisk::mount(folder.path());
    let log = folder.path().join("load.hdr");
    let log = log.to_str().expect("a path in text");
    // The filler leaves room for an interval or two.
    std::fs::write(folder.path().join("filler"), vec![1; 8 << 10]).expect("room for a filler");
    let output = database
        .load(&["--populate", "--operation", "mixed", "--rate", "2000", "--duration", "4s"])
        .args(["--lead-in", "0s", "--hdr", log])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stderr(&output);
    let last = text.lines().last().unwrap_or_default();
    assert!(last.contains("cannot write the histogram log") && last.contains("No space"), "{text}");
    let report = json(&output);
    assert!(count(&report["operations"]) > 0 && report["log_error"].is_string(), "{report}");
    // The log is valid: it can be read, and it counts no more operations than there were.
    let merged =
        tare().args(["load", "merge", log, "--json"]).output().expect("the program starts");
    assert!(merged.status.success(), "{}", stderr(&merged));
    let merged = json(&merged);
    let tags = merged["tags"].as_array().into_iter().flatten();
    let logged: u64 = tags
        .filter(|tag| tag["tag"].as_str().is_some_and(|tag| tag.ends_with("-response")))
        .map(|tag| count(&tag["count"]))
        .sum();
    assert!(logged > 0 && logged < count(&report["response"]["count"]), "{merged}");
    drop(disk);
}

/// Resident set of a process in KiB: `VmRSS` of `/proc/PID/status`.
fn resident_kib(child: &Child) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("a status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a VmRSS");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

#[test]
fn memory_is_small_and_does_not_grow() {
    let database = Database::start();
    let words = ["--populate", "--operation", "mixed", "--in-flight", "10000", "--duration", "6s"];
    let (_, report) = while_loading(database.load(&words), |child| {
        let early_kib = resident_kib(child);
        std::thread::sleep(Duration::from_secs(4));
        let late_kib = resident_kib(child);
        // 32 MiB, and histograms: two times for each of two kinds of operations, 260 KiB each, in
        // the current interval, in the printed ones and in the sum.
        assert!(late_kib <= (32 << 10) + 8 * 4 * 260, "{late_kib} KiB");
        assert!(late_kib <= early_kib + (2 << 10), "from {early_kib} to {late_kib} KiB");
    });
    assert!(count(&report["operations"]) > 10_000, "{report}");
}
