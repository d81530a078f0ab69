//! Studies whose load comes from other projects' tools on other machines, through the built
//! program. The machines are network namespaces with an sshd of their own.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{slices, stderr, stdout, tare};
use serde_json::Value;
use tare_testkit::downloads::cached;
use tare_testkit::ssh_bed::SshBed;
use tare_testkit::{Need, skipped};

/// Two environments and their schedule, for a system with a driver.
fn study(
    directory: &Path,
    [driver, system]: [&str; 2],
    (window, rounds): (&str, u32),
    workload: &str,
) {
    let text = format!(
        "name = \"l\"\nbaseline = \"native\"\ndriver = \"{driver}\"\n[system]\nname = \"{system}\"\n\
         [schedule]\nwindow = \"{window}\"\nlead_in = \"300ms\"\nrounds = {rounds}\n\
         rounds_min = {rounds}\nstop_width_percent = 0\nbudget = \"5m\"\nseed = 1\n\
         [[loader]]\nhost = \"ssh:load1\"\n[[loader]]\nhost = \"ssh:load2\"\n\
         [[environment]]\nname = \"native\"\nruntime = \"process\"\n\
         [[workload]]\nname = \"w\"\n{workload}\n"
    );
    fs::write(directory.join("l.toml"), text).unwrap();
}

fn weigh(bed: &SshBed, directory: &Path) -> Command {
    let mut command = tare();
    command
        .args(["weigh", "l.toml", "-o", "l.tare", "--state", "state", "--json"])
        .current_dir(directory)
        .env("TARE_SSH_CONFIG", bed.config());
    command
}

/// Checks that both loaders have a part of each slice that was measured, and that the slice's
/// figures are their sums. Returns the record.
fn assert_summed(output: &Output, least: usize) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    let record: Value = serde_json::from_str(&stdout(output)).unwrap();
    let measured = slices::summed(&record);
    let void: Vec<_> =
        record["slices"].as_array().unwrap().iter().map(|one| &one["void"]).collect();
    assert!(measured.len() >= least, "{void:?}\n{}", stderr(output));
    for slice in measured {
        let parts = slice["loaders"].as_array().unwrap();
        let count = |one: &&Value| one["operations"].as_u64().unwrap() > 0;
        assert_eq!(parts.iter().filter(count).count(), 2, "{slice}");
    }
    for loader in record["loaders"].as_array().unwrap() {
        assert!(loader["cpu_share"].as_f64().unwrap() > 0.0, "{loader}");
        assert!(loader["edge_distance_us"]["median"].as_f64().is_some(), "{loader}");
    }
    record
}

/// Returns how many processes of a machine have a word in their command line.
fn processes(bed: &SshBed, name: &str, word: &str) -> usize {
    let count = format!("ps -e -o args= | grep -v grep | grep -c -- '{word}' || true");
    bed.run(name, "sh", &["-c", &count]).trim().parse().unwrap()
}

/// Checks that nothing of a study runs on its loaders and nothing is left in their directories.
fn assert_clean(bed: &SshBed, tool: &str) {
    for name in ["load1", "load2"] {
        let began = Instant::now();
        while processes(bed, name, "load-agent") + processes(bed, name, tool) > 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "{name}");
            std::thread::sleep(Duration::from_millis(100));
        }
        let left = bed.run(name, "sh", &["-c", "ls /var/tmp | grep loader || true"]);
        assert_eq!(left.trim(), "", "{name}");
    }
}

const REDIS: [&str; 2] = ["redis-benchmark", "redis"];

fn start_redis(test: &str) -> Option<SshBed> {
    if skipped(test, &[Need::Program("redis-server"), Need::Program("redis-benchmark")]) {
        return None;
    }
    SshBed::start(test, &["load1", "load2"])
}

/// Five clients: three on one loader, two on the other.
#[test]
fn redis_benchmark_runs_on_two_loaders() {
    let Some(bed) = start_redis("redis_benchmark_runs_on_two_loaders") else { return };
    let here = tempfile::tempdir().unwrap();
    let words = "latency_share = 0\nredis-benchmark = { clients = 5, keyspace = 1000 }";
    study(here.path(), REDIS, ("2s", 2), words);
    let output = weigh(&bed, here.path()).output().unwrap();
    let record = assert_summed(&output, 2);
    let doubts = record["doubts"].to_string();
    assert!(doubts.contains("latency_beyond_window"), "{doubts}");
    assert_clean(&bed, "redis-benchmark");
    // Fewer clients than loaders.
    let words = "latency_share = 0\nredis-benchmark = { clients = 1 }";
    study(here.path(), REDIS, ("2s", 2), words);
    let said = stderr(&weigh(&bed, here.path()).output().unwrap());
    let line = "clients = 1 cannot be divided among 2 loaders; write at least 2, one for each";
    assert!(said.contains(line), "{said}");
}

#[test]
fn tool_that_a_loader_lacks_is_one_line() {
    let Some(bed) = start_redis("tool_that_a_loader_lacks_is_one_line") else { return };
    let place = "mkdir /var/tmp/bin && cp \"$(command -v redis-benchmark)\" /var/tmp/bin";
    bed.run("load1", "sh", &["-c", place]);
    let here = tempfile::tempdir().unwrap();
    let words =
        "latency_share = 0\nredis-benchmark = { program = \"/var/tmp/bin/redis-benchmark\" }";
    study(here.path(), REDIS, ("2s", 2), words);
    let output = weigh(&bed, here.path()).output().unwrap();
    let said = stderr(&output);
    let line = said.lines().last().unwrap();
    let expect = "redis-benchmark cannot load from ssh:load2: /var/tmp/bin/redis-benchmark is not \
                  there: apt-get install redis-tools";
    assert!(!output.status.success() && line.contains(expect), "{said}");
    assert!(!here.path().join("l.tare").exists(), "nothing has been started");
    let asked = tare()
        .args(["doctor", "--loader", "ssh:load1,ssh:load2", "--state", "state"])
        .current_dir(here.path())
        .env("TARE_SSH_CONFIG", bed.config())
        .output()
        .unwrap();
    let text = stdout(&asked);
    assert!(asked.status.success(), "{}", stderr(&asked));
    let known = text.lines().filter(|line| line.contains("driver redis-benchmark"));
    assert!(
        known.clone().count() == 2 && known.clone().all(|line| line.starts_with("ok")),
        "{text}"
    );
    assert!(text.contains("ssh:load2\n") && !text.contains("driver fio"), "{text}");
}

#[test]
fn killed_loader_with_a_tool_costs_one_slice() {
    let Some(bed) = start_redis("killed_loader_with_a_tool_costs_one_slice") else { return };
    let here = tempfile::tempdir().unwrap();
    let words = "latency_share = 0\nredis-benchmark = { clients = 4, keyspace = 1000 }";
    study(here.path(), REDIS, ("2s", 3), words);
    let errors = fs::File::create(here.path().join("stderr")).unwrap();
    let printed = fs::File::create(here.path().join("stdout")).unwrap();
    let mut run = weigh(&bed, here.path()).stdout(printed).stderr(errors).spawn().unwrap();
    let began = Instant::now();
    // In a slice: the tool runs on it.
    while processes(&bed, "load2", "redis-benchmark -h") == 0 {
        assert!(began.elapsed() < Duration::from_secs(120) && run.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(100));
    }
    let kill = "kill -9 $(ps -e -o pid=,args= | awk '/[l]oad-agent/ { print $1 }')";
    bed.run("load2", "sh", &["-c", kill]);
    let status = run.wait().unwrap();
    let read = |name| fs::read(here.path().join(name)).unwrap();
    let output = Output { status, stdout: read("stdout"), stderr: read("stderr") };
    assert_summed(&output, 4);
    assert_clean(&bed, "redis-benchmark");
}

#[test]
fn pgbench_runs_on_two_loaders() {
    let test = "pgbench_runs_on_two_loaders";
    if skipped(test, &[Need::Program("pgbench")]) {
        return;
    }
    let Some(bed) = SshBed::start(test, &["load1", "load2"]) else { return };
    let here = tempfile::tempdir().unwrap();
    let words = "latency_share = 0.3\npgbench = { clients = 5 }";
    study(here.path(), ["pgbench", "postgres"], ("2s", 1), words);
    let output = weigh(&bed, here.path()).output().unwrap();
    let record = assert_summed(&output, 2);
    let measured = slices::summed(&record);
    assert!(measured.iter().any(|one| one["phase"] == "latency"), "{}", stderr(&output));
    assert_clean(&bed, "pgbench");
}

#[test]
fn sysbench_runs_on_two_loaders() {
    let test = "sysbench_runs_on_two_loaders";
    if skipped(test, &[Need::Program("sysbench"), Need::Program("mariadbd")]) {
        return;
    }
    let Some(bed) = SshBed::start(test, &["load1", "load2"]) else { return };
    let here = tempfile::tempdir().unwrap();
    let words = "latency_share = 0\nsysbench = { threads = 5, table_size = 2000 }";
    study(here.path(), ["sysbench", "mariadb"], ("2s", 1), words);
    let output = weigh(&bed, here.path()).output().unwrap();
    assert_summed(&output, 2);
    assert_clean(&bed, "sysbench");
}

#[test]
fn cassandra_stress_runs_on_two_loaders() {
    let test = "cassandra_stress_runs_on_two_loaders";
    if skipped(test, &[Need::Program("java")]) {
        return;
    }
    let file = |file: &str| -> Option<PathBuf> { cached(test, "cassandra-stress", file) };
    let Some(home) = file("java/target/apache-cassandra-4.0-alpha2") else { return };
    let Some(jar) = file("java/target/lib/HdrHistogram-2.1.12.jar") else { return };
    let Some(bed) = SshBed::start(test, &["load1", "load2"]) else { return };
    let here = tempfile::tempdir().unwrap();
    let words = format!(
        "latency_share = 0\ncassandra-stress = {{ command = \"mixed\", rows = 2000, threads = 7, \
         home = {home:?}, hdrhistogram = {jar:?} }}"
    );
    study(here.path(), ["cassandra-stress", "tare-db"], ("4s", 1), &words);
    let output = weigh(&bed, here.path()).output().unwrap();
    assert_summed(&output, 2);
    assert_clean(&bed, "org.apache.cassandra");
}

#[test]
fn latte_runs_on_two_loaders() {
    let test = "latte_runs_on_two_loaders";
    let Some(latte) = cached(test, "latte", "latte/bin/latte") else { return };
    let Some(bed) = SshBed::start(test, &["load1", "load2"]) else { return };
    let here = tempfile::tempdir().unwrap();
    let script = here.path().join("write.rn");
    fs::write(&script, common::LATTE_SCRIPT).unwrap();
    let words = format!(
        "latency_share = 0\nlatte = {{ script = {script:?}, threads = 2, concurrency = 8, \
         program = {latte:?} }}"
    );
    study(here.path(), ["latte", "tare-db"], ("2s", 1), &words);
    let output = weigh(&bed, here.path()).output().unwrap();
    assert_summed(&output, 2);
    assert_clean(&bed, "write.rn");
    // A script that is not there is one line, by loader.
    fs::remove_file(&script).unwrap();
    let output = weigh(&bed, here.path()).stdin(Stdio::null()).output().unwrap();
    let said = stderr(&output);
    assert!(
        said.contains("latte cannot load from ssh:load1: workload \"w\": latte's script"),
        "{said}"
    );
}
