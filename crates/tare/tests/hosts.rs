//! Systems on several hosts, through the built program: "other machines" of a bed with their own
//! sshd, an instance on each, and what is left there.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{stderr, tare};
use tare_testkit::downloads::cassandra;
use tare_testkit::ssh_bed::SshBed;
use tare_testkit::{Need, skipped};
use tempfile::TempDir;

const NATIVE: &str = "[[environment]]\nname = \"native\"\nruntime = \"process\"\n";
const BOX: &str = "[[environment]]\nname = \"box\"\nextends = \"native\"\nruntime = \"oci:runc\"\n\
     network = \"host\"\nsecurity = \"default\"\n";

/// An environment whose instances are published at the addresses of their hosts.
const BRIDGED: &str =
    "[[environment]]\nname = \"bridged\"\nextends = \"box\"\nnetwork = \"bridge\"\n";

/// The environments with valid slices.
const MEASURED: &str =
    "SELECT name FROM environments WHERE id IN (SELECT environment FROM slices WHERE void IS NULL)";

/// The same, one for each slice.
const ALL_MEASURED: &str = "SELECT environments.name FROM slices JOIN environments ON environments.id = environment WHERE void IS NULL";

fn study(system: &str, schedule: &str, workload: &str) -> String {
    format!(
        "name = \"tiny\"\nbaseline = \"native\"\n[system]\n{system}\n\
         [schedule]\nrounds_min = 1\nstop_width_percent = 0\nseed = 7\n{schedule}\n\
         {NATIVE}{BOX}[[workload]]\nname = \"w\"\nlatency_share = 0\n{workload}\n"
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

/// Loaders, as tables of a study.
fn loaders(names: &[&str]) -> String {
    names.iter().map(|name| format!("[[loader]]\nhost = \"ssh:{name}\"\n")).collect()
}

/// Kills the agents of a run on a machine with SIGKILL.
fn kill_agents(bed: &SshBed, name: &str) {
    let kill = "kill -9 $(ps -e -o pid=,args= | awk '/[h]ost-agent/ { print $1 }')";
    bed.run(name, "sh", &["-c", kill]);
}

/// Starts a run, and waits until it has measured something.
fn run_until_measured(mut command: Command, record: &Path) -> Child {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(240);
    while !record.exists() || values(record, MEASURED).is_empty() {
        assert!(Instant::now() < deadline, "nothing was measured");
        thread::sleep(Duration::from_millis(200));
    }
    child
}

/// A study of `tare-db` on two hosts that has measured something and would go on for minutes.
struct LongRun {
    bed: SshBed,
    folder: TempDir,
    record: PathBuf,
    child: Child,
}

impl LongRun {
    /// Starts it, with the environments of `more` besides; `None` if the test is skipped.
    fn start(test: &str, more: &str) -> Option<Self> {
        if skipped(test, &[Need::Root, Need::Program("runc"), Need::Program("nft")]) {
            return None;
        }
        let bed = SshBed::start(test, &["db1", "db2"])?;
        let folder = tempfile::tempdir().unwrap();
        let schedule = "window = \"100ms\"\nlead_in = \"20ms\"\nrounds = 5000\nbudget = \"10m\"";
        let system = "name = \"tare-db\"\nhosts = [\"ssh:db1\", \"ssh:db2\"]";
        let text = study(system, schedule, "rows = 200\nconnections = 2\nin_flight = 4") + more;
        let record = folder.path().join("out.tare");
        let child = run_until_measured(weigh(&bed, folder.path(), &text, &[]), &record);
        Some(Self { bed, folder, record, child })
    }
}

fn values(record: &Path, query: &str) -> Vec<String> {
    let database = rusqlite::Connection::open(record).unwrap();
    // A record that was just created has no tables yet.
    let Ok(mut rows) = database.prepare(query) else { return Vec::new() };
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

/// Returns the journals and directories of runs, the processes, network devices and rules that are
/// left on a machine.
fn left(bed: &SshBed, name: &str) -> String {
    // What goes while find looks is no error.
    let script = "find /var/lib/tare -path '*/runs/*' -o -name 'tare-*' 2>/dev/null; \
                  ip -o link show | grep -o 'tare-[^:@]*'; nft list tables | grep tare-; \
                  ps -e -o args= | grep '[h]ost-agent'; true";
    bed.run(name, "sh", &["-c", script]).trim().to_string()
}

fn assert_nothing_left(bed: &SshBed, name: &str) {
    assert_eq!(left(bed, name), "", "left on {name}");
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
    let text = text + BRIDGED;
    let words = ["--hosts", "ssh:db1,ssh:db2"];
    let output = weigh(&bed, folder.path(), &text, &words).output().unwrap();
    assert_measured(&output, folder.path(), 2);
    let slices = values(&folder.path().join("out.tare"), MEASURED);
    assert!(slices.iter().any(|name| name == "bridged"), "{slices:?}: {}", stderr(&output));
    assert_nothing_left(&bed, "db1");
    assert_nothing_left(&bed, "db2");
    let settings = values(&folder.path().join("out.tare"), "SELECT key FROM settings");
    assert!(settings.iter().any(|name| name == "io_engine"), "{settings:?}");
}

#[test]
fn lost_host_ends_the_run() {
    let test = "lost_host_ends_the_run";
    let Some(LongRun { mut bed, folder: _folder, record, child }) = LongRun::start(test, "") else {
        return;
    };
    bed.kill("db2");
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("ssh:db2 is lost") && said.contains("--resume"), "{said}");
    assert_nothing_left(&bed, "db1");
    assert!(!values(&record, MEASURED).is_empty());
}

/// What a killed agent leaves is cleaned from here, and the run goes on.
#[test]
fn killed_agent_is_cleaned_and_the_run_resumes() {
    let test = "killed_agent_is_cleaned_and_the_run_resumes";
    let Some(LongRun { bed, folder, record, child }) = LongRun::start(test, BRIDGED) else {
        return;
    };
    kill_agents(&bed, "db2");
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("ssh:db2 is lost") && said.contains("--resume"), "{said}");
    assert_nothing_left(&bed, "db1");
    let measured = values(&record, ALL_MEASURED).len();
    let again = |words: &[&str]| {
        let mut command = tare();
        command.args(words).arg("--state").arg(folder.path().join("state"));
        command.current_dir(folder.path()).env("TARE_SSH_CONFIG", bed.config());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    };
    again(&["clean", "--on", "ssh:db2"]);
    assert_nothing_left(&bed, "db2");
    let rounds = (measured + 10).to_string();
    again(&["weigh", "--resume", "out.tare", "--rounds", &rounds, "--json"]);
    assert!(values(&record, ALL_MEASURED).len() > measured);
    assert_nothing_left(&bed, "db1");
    assert_nothing_left(&bed, "db2");
}

#[test]
fn killed_harness_leaves_nothing_on_hosts() {
    let test = "killed_harness_leaves_nothing_on_hosts";
    let Some(LongRun { bed, folder, mut child, .. }) = LongRun::start(test, BRIDGED) else {
        return;
    };
    child.kill().unwrap();
    child.wait().unwrap();
    // What it left here goes first, so that it does not stay if the test fails. This reaches no
    // other host.
    let cleaned = tare().arg("clean").arg("--state").arg(folder.path().join("state")).output();
    let cleaned = cleaned.unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    for name in ["db1", "db2"] {
        while !left(&bed, name).is_empty() {
            assert!(Instant::now() < deadline, "left on {name}: {}", left(&bed, name));
            thread::sleep(Duration::from_millis(200));
        }
    }
    assert!(cleaned.status.success(), "{}", stderr(&cleaned));
}

/// The load of separate instances comes from other machines than the systems and the harness.
#[test]
fn instances_on_hosts_are_loaded_from_loaders() {
    let test = "instances_on_hosts_are_loaded_from_loaders";
    if skipped(test, &[Need::Root, Need::Program("runc"), Need::Program("nft")]) {
        return;
    }
    let hosts = ["db1", "db2", "load1", "load2"];
    let Some(bed) = SshBed::start(test, &hosts) else { return };
    bed.connect_all();
    let folder = tempfile::tempdir().unwrap();
    let schedule = "window = \"1s\"\nlead_in = \"100ms\"\nrounds = 2\nbudget = \"4m\"";
    let system = "name = \"tare-db\"\nhosts = [\"ssh:db1\", \"ssh:db2\"]";
    let text = study(system, schedule, "rows = 200\nconnections = 2\nin_flight = 4");
    let text = text + BRIDGED + &loaders(&["load1", "load2"]);
    let output = weigh(&bed, folder.path(), &text, &[]).output().unwrap();
    assert_measured(&output, folder.path(), 2);
    let record = folder.path().join("out.tare");
    for name in ["native", "box", "bridged"] {
        assert!(values(&record, MEASURED).iter().any(|one| one == name), "{}", stderr(&output));
    }
    let parts = "SELECT DISTINCT CAST(loader AS TEXT) FROM slice_loaders WHERE operations > 0";
    assert_eq!(values(&record, parts).len(), 2);
    hosts.iter().for_each(|name| assert_nothing_left(&bed, name));
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

/// A real cluster of three nodes on hosts of their own, each row on all of them: in containers with
/// the network of their host, and behind a bridge. Two more machines load it. One runtime, so that
/// the study has one control and starts the nodes three times.
#[test]
fn cassandra_cluster_runs_on_three_hosts() {
    let test = "cassandra_cluster_runs_on_three_hosts";
    if skipped(test, &[Need::Root, Need::Program("runc"), Need::Program("java")]) {
        return;
    }
    let Some(directory) = cassandra(test) else { return };
    let names = ["db1", "db2", "db3", "load1", "load2"];
    let Some(bed) = SshBed::start(test, &names) else { return };
    bed.connect_all();
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
    let text = study(&system, schedule, workload) + &loaders(&["load1", "load2"]);
    let text = text.replace(NATIVE, "").replace("baseline = \"native\"", "baseline = \"box\"");
    let text = text.replace("extends = \"native\"\n", "") + BRIDGED;
    let output = weigh(&bed, folder.path(), &text, &[]).output().unwrap();
    assert_measured(&output, folder.path(), 3);
    let slices = values(&folder.path().join("out.tare"), MEASURED);
    assert!(slices.iter().any(|name| name == "bridged"), "{slices:?}: {}", stderr(&output));
    names.iter().for_each(|name| assert_nothing_left(&bed, name));
}
