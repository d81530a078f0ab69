//! Systems on several hosts, through the built program: "other machines" of a bed with their own
//! sshd, an instance on each, and what is left there.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{stderr, tare};
use tare_testkit::ssh_bed::SshBed;
use tare_testkit::{Need, Reason, skip::skip, skipped};

const ENVIRONMENTS: &str = "[[environment]]\nname = \"native\"\nruntime = \"process\"\n\
     [[environment]]\nname = \"box\"\nextends = \"native\"\nruntime = \"oci:runc\"\nnetwork = \"host\"\nsecurity = \"default\"\n";

/// The environments with valid slices.
const MEASURED: &str =
    "SELECT name FROM environments WHERE id IN (SELECT environment FROM slices WHERE void IS NULL)";

fn study(system: &str, schedule: &str, workload: &str) -> String {
    format!(
        "name = \"tiny\"\nbaseline = \"native\"\n[system]\n{system}\n\
         [schedule]\nrounds_min = 1\nstop_width_percent = 0\nseed = 7\n{schedule}\n\
         {ENVIRONMENTS}[[workload]]\nname = \"w\"\nlatency_share = 0\n{workload}\n"
    )
}

/// Returns the command that weighs a study in a folder with the machines of a bed.
fn weigh(bed: &SshBed, folder: &Path, text: &str, words: &[&str]) -> Command {
    fs::write(folder.join("study.toml"), text).unwrap();
    let mut command = tare();
    command.args(["weigh", "study.toml", "--output", "out.tare", "--json", "--state"]);
    command.arg(folder.join("state")).args(words).current_dir(folder);
    command.env("TARE_SSH_CONFIG", bed.config());
    command
}

fn values(record: &Path, query: &str) -> Vec<String> {
    let database = rusqlite::Connection::open(record).unwrap();
    let mut rows = database.prepare(query).unwrap();
    let rows = rows.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn assert_measured(output: &Output, folder: &Path, nodes: usize) {
    assert!(output.status.success(), "{}", stderr(output));
    let record = folder.join("out.tare");
    let slices = values(&record, MEASURED);
    assert!(slices.iter().any(|name| name == "box"), "{slices:?}");
    for node in 1..=nodes {
        let query =
            format!("SELECT name FROM counters WHERE name = 'node_{node}_cpu_ns' AND value > 0");
        assert!(!values(&record, &query).is_empty(), "node {node} used no CPU time");
    }
}

/// Checks that no journal and no directory of a run is left on a machine.
fn assert_nothing_left(bed: &SshBed, name: &str) {
    let words = ["/var/lib/tare", "-path", "*/runs/*", "-o", "-name", "tare-*"];
    let left = bed.run(name, "find", &words);
    assert_eq!(left.trim(), "", "left on {name}");
}

#[test]
fn separate_instances_run_on_two_hosts() {
    let test = "separate_instances_run_on_two_hosts";
    if skipped(test, &[Need::Root, Need::Program("runc"), Need::Program("nft")]) {
        return;
    }
    let Some(bed) = SshBed::start(test, &["db1", "db2"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let schedule = "window = \"100ms\"\nlead_in = \"20ms\"\nrounds = 2\nbudget = \"60s\"";
    let text = study("name = \"tare-db\"", schedule, "rows = 200\nconnections = 2\nin_flight = 4");
    let words = ["--hosts", "ssh:db1,ssh:db2"];
    let output = weigh(&bed, folder.path(), &text, &words).output().unwrap();
    assert_measured(&output, folder.path(), 2);
    assert_nothing_left(&bed, "db1");
    assert_nothing_left(&bed, "db2");
    let settings = values(&folder.path().join("out.tare"), "SELECT key FROM settings");
    assert!(settings.iter().any(|name| name == "io_engine"), "{settings:?}");
}

#[test]
fn lost_host_ends_the_run_which_resumes() {
    let test = "lost_host_ends_the_run_which_resumes";
    if skipped(test, &[Need::Root, Need::Program("runc"), Need::Program("nft")]) {
        return;
    }
    let Some(mut bed) = SshBed::start(test, &["db1", "db2"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let schedule = "window = \"100ms\"\nlead_in = \"20ms\"\nrounds = 5000\nbudget = \"10m\"";
    let system = "name = \"tare-db\"\nhosts = [\"ssh:db1\", \"ssh:db2\"]";
    let text = study(system, schedule, "rows = 200\nconnections = 2\nin_flight = 4");
    let mut command = weigh(&bed, folder.path(), &text, &[]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let record = folder.path().join("out.tare");
    let deadline = Instant::now() + Duration::from_secs(120);
    let measured = || record.exists() && !values(&record, MEASURED).is_empty();
    while !measured() {
        assert!(Instant::now() < deadline, "nothing was measured");
        thread::sleep(Duration::from_millis(200));
    }
    bed.kill("db2");
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("ssh:db2 is lost") && said.contains("--resume"), "{said}");
    assert_nothing_left(&bed, "db1");
    assert!(!values(&record, MEASURED).is_empty());
}

#[test]
fn hosts_that_cannot_be_used_are_one_line() {
    let test = "hosts_that_cannot_be_used_are_one_line";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let Some(bed) = SshBed::start(test, &["db1"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let check = |hosts: &str, workload: &str, expect: &str| {
        let text = study("name = \"tare-db\"", "rounds = 1", workload);
        let output = weigh(&bed, folder.path(), &text, &["--hosts", hosts]).output().unwrap();
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(expect), "{hosts}: {said}");
    };
    check("ssh:nowhere", "", "cannot connect to ssh:nowhere");
    check("ssh:bench@db1", "", "the agent runs as root");
    check("ssh:db1,ssh:db1", "", "named twice");
    check("ssh:db1", "replication = 3", "replicate nothing");
}

/// A real cluster of three nodes, each row on all of them.
#[test]
fn cassandra_cluster_runs_on_three_hosts() {
    let test = "cassandra_cluster_runs_on_three_hosts";
    let Ok(directory) = std::env::var("TARE_CASSANDRA") else {
        return skip(test, Reason::Unset { variable: "TARE_CASSANDRA" });
    };
    if skipped(test, &[Need::Root, Need::Program("runc"), Need::Program("java")]) {
        return;
    }
    let names = ["db1", "db2", "db3"];
    let Some(bed) = SshBed::start(test, &names) else { return };
    let folder = tempfile::tempdir().unwrap();
    let system = format!(
        "name = \"cassandra\"\ndirectory = {directory:?}\nheap = \"256M\"\n\
         jvm = \"-XX:TieredStopAtLevel=1\"\ncluster = true\n\
         hosts = [\"ssh:db1\", \"ssh:db2\", \"ssh:db3\"]"
    );
    let schedule = "kind = \"trials\"\ndata = \"loaded\"\nwindow = \"2s\"\nlead_in = \"1s\"\n\
                    rounds = 1\nbudget = \"10m\"";
    let workload = "write_share = 0.5\nrows = 500\nconnections = 3\nin_flight = 12\n\
                    replication = 3\nconsistency = \"quorum\"";
    let text = study(&system, schedule, workload);
    let output = weigh(&bed, folder.path(), &text, &[]).output().unwrap();
    assert_measured(&output, folder.path(), 3);
    names.iter().for_each(|name| assert_nothing_left(&bed, name));
}
