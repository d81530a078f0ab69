//! A reader that closes the output early (`tare list | head -1`): the program exits silently with
//! an exit code of its own, and a running study is removed from the host.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{run_in, stderr, tare};
use tare_testkit::host_state::{self, HostState};
use tare_testkit::{Need, skipped, tiny};

/// `Exit::OutputClosed`.
const CLOSED: Option<i32> = Some(141);

/// A study with fake environments, which does not touch the host.
const FAKE: &str = r#"
name = "fake"
title = "Nothing real"
baseline = "native"
driver = "fake"
[system]
name = "fake"
[schedule]
kind = "slices"
window = "2s"
rounds = 4
rounds_min = 4
budget = "10m"
[[environment]]
name = "native"
runtime = "fake"
network = "host"
cpu = "pinned"
security = "none"
cgroup = "none"
[[environment]]
name = "bridge"
extends = "native"
network = "bridge"
[[workload]]
name = "write"
rows = 1000
columns = 2
column_bytes = 64
keys = "gaussian"
"#;

/// A standard stream whose reader is already closed, so that the first write fails.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Runs the command with standard output closed; returns its exit code and its standard error.
fn without_reader(words: &[&str], folder: &Path) -> (Option<i32>, String) {
    let output = tare().args(words).current_dir(folder).stdout(closed()).output().unwrap();
    (output.status.code(), stderr(&output))
}

fn fake_record(folder: &Path) {
    fs::write(folder.join("fake.toml"), FAKE).unwrap();
    let output = run_in(folder, ["weigh", "fake.toml", "-o", "fake.tare"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn commands_exit_silently_when_stdout_is_closed() {
    // `tare doctor` and `tare list` boot a user-mode kernel where one is installed.
    let _alone = host_state::alone();
    let here = tempfile::tempdir().unwrap();
    let folder = here.path();
    fake_record(folder);
    let state = folder.join("state");
    let state = state.to_str().unwrap();
    let commands: &[&[&str]] = &[
        &["--help"],
        &["--version"],
        &["help", "weigh"],
        &["list", "--state", state],
        &["list", "studies", "--json"],
        &["report", "fake.tare"],
        &["report", "fake.tare", "--json"],
        &["report", "fake.tare", "--csv"],
        &["compare", "fake.tare", "fake.tare"],
        &["explain", "fake.tare"],
        &["completions", "bash"],
        &["doctor", "--state", state],
        &["clean", "--state", state],
        &["load", "--show", "write"],
    ];
    for words in commands {
        let usual = tare().args(*words).current_dir(folder).output().unwrap();
        assert!(!usual.stdout.is_empty(), "{words:?} prints something: {}", stderr(&usual));
        assert_eq!(without_reader(words, folder), (CLOSED, String::new()), "{words:?}");
    }
}

#[test]
fn a_closed_stderr_has_the_same_exit_code() {
    let here = tempfile::tempdir().unwrap();
    for words in [&["report", "missing.tare"][..], &["no-such-command"]] {
        let status = tare()
            .args(words)
            .current_dir(here.path())
            .stdout(Stdio::null())
            .stderr(closed())
            .status()
            .unwrap();
        assert_eq!(status.code(), CLOSED, "{words:?}");
    }
}

#[test]
fn the_record_is_complete_when_stdout_is_closed() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("fake.toml"), FAKE).unwrap();
    let words = ["weigh", "fake.toml", "-o", "fake.tare", "--progress", "lines"];
    // Standard output is closed before the result is printed; standard error is read to the end.
    let (code, said) = without_reader(&words, here.path());
    assert_eq!(code, CLOSED, "{said}");
    assert!(!said.contains("panic") && !said.contains("tare:"), "{said}");
    let report = run_in(here.path(), ["report", "fake.tare"]);
    assert!(report.status.success(), "{}", stderr(&report));
}

/// Runs the command with both streams on one pipe, whose reader is closed after `lines` lines.
/// Returns the exit code and those lines.
fn read_some(mut command: Command, lines: usize) -> (Option<i32>, Vec<String>) {
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut child = command.spawn().unwrap();
    // `command` holds the writing ends too.
    drop(command);
    let mut reader = BufReader::new(reader);
    let mut seen = Vec::new();
    for _ in 0..lines {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        seen.push(line);
    }
    drop(reader);
    (child.wait().unwrap().code(), seen)
}

#[test]
fn a_reader_leaving_mid_study_leaves_the_host_unchanged() {
    let needs = [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];
    if skipped("a_reader_leaving_mid_study_leaves_the_host_unchanged", &needs) {
        return;
    }
    let _alone = host_state::alone();
    let before = HostState::read();
    // While the environments start, and once all of them run.
    for lines in [1, 3] {
        let here = tempfile::tempdir().unwrap();
        let state = here.path().join("state");
        tiny::write(here.path(), "slices", 2000);
        let mut command = tare();
        command
            .args(["weigh", "tiny.toml", "-o", "k.tare", "--state", state.to_str().unwrap()])
            .args(["--progress", "lines"])
            .current_dir(here.path());
        let (code, seen) = read_some(command, lines);
        assert_eq!(code, CLOSED, "{seen:?}");
        assert!(seen.iter().all(|line| !line.is_empty()), "the output ended early: {seen:?}");
        let left = before.difference(&HostState::read());
        assert!(left.is_empty(), "after {lines} lines:\n{}", left.join("\n"));
        let journals: Vec<_> = fs::read_dir(state.join("runs")).unwrap().collect();
        assert!(journals.is_empty(), "{journals:?}");
        let mut head = [0; 16];
        File::open(here.path().join("k.tare")).unwrap().read_exact(&mut head).unwrap();
        assert_eq!(&head, b"SQLite format 3\0");
    }
}
