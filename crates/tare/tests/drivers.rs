//! Systems weighed with other people's load tools, through the built program: a tiny study each, in a process and
//! in a container, and the host as it was afterwards.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{Need, run_in, skipped, stderr};

const ALWAYS: [Need; 4] =
    [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];

/// Runs a study of one workload in a process and in a container, and returns it with its folder.
fn weigh(
    driver: &str,
    system: &str,
    schedule: &str,
    workload: &str,
) -> (Output, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let study = format!(
        "name = \"tiny\"\nbaseline = \"native\"\ndriver = \"{driver}\"\n\
         [system]\nname = \"{system}\"\n\
         [schedule]\nrounds = 2\nrounds_min = 1\nstop_width_percent = 0\nbudget = \"5m\"\nseed = 7\n{schedule}\n\
         [[environment]]\nname = \"native\"\nruntime = \"process\"\n\
         [[environment]]\nname = \"box\"\nruntime = \"oci:runc\"\n\
         [[workload]]\nname = \"w\"\n{workload}\n"
    );
    fs::write(folder.path().join("study.toml"), study).unwrap();
    let state = folder.path().join("state");
    let words = ["weigh", "study.toml", "--output", "out.tare", "--json", "--state"];
    let output = run_in(folder.path(), words.into_iter().chain([state.to_str().unwrap()]));
    (output, folder)
}

/// Every environment has figures in these phases, service time and the client's CPU time among them,
/// and nothing of the run is left.
fn assert_weighed(output: &Output, folder: &Path, phases: &[&str]) {
    let said = stderr(output);
    assert!(output.status.success(), "{said}");
    let database = rusqlite::Connection::open(folder.join("out.tare")).unwrap();
    for environment in ["native", "native again", "box"] {
        for phase in phases {
            let count: u32 = database
                .query_row(
                    "SELECT count(*) FROM slice_figures f JOIN histograms h ON h.slice = f.id \
                     WHERE environment = ?1 AND phase = ?2 AND void IS NULL AND kind = 'service' \
                     AND operations_per_s > 0 AND client_cpu_us_per_operation > 0 \
                     AND server_cpu_us_per_operation > 0",
                    [environment, phase],
                    |row| row.get(0),
                )
                .unwrap();
            assert!(count >= 1, "{environment} in {phase}\n{said}");
        }
    }
    let state = fs::read_dir(folder.join("state")).into_iter().flatten().flatten();
    let left: Vec<_> = state.map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("tare-")), "{left:?}");
    let name = folder.to_string_lossy().into_owned();
    let processes = tare_host::process::all().into_iter().filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&name)
    });
    let left: Vec<u32> = processes.collect();
    assert!(left.is_empty(), "processes are left: {left:?}");
}

/// Doubts of a kind in the record.
fn doubts(folder: &Path, kind: &str) -> u32 {
    let database = rusqlite::Connection::open(folder.join("out.tare")).unwrap();
    let count = "SELECT count(*) FROM doubts WHERE kind = ?1";
    database.query_row(count, [kind], |row| row.get(0)).unwrap()
}

const SHORT: &str = "window = \"500ms\"\nlead_in = \"200ms\"";

#[test]
fn redis_is_weighed_with_redis_benchmark() {
    let test = "redis_is_weighed_with_redis_benchmark";
    let own = [Need::Program("redis-server"), Need::Program("redis-benchmark")];
    if skipped(test, &ALWAYS) || skipped(test, &own) {
        return;
    }
    let words = "latency_share = 0\nredis-benchmark = { clients = 8, keyspace = 1000 }";
    let (output, folder) = weigh("redis-benchmark", "redis", SHORT, words);
    assert_weighed(&output, folder.path(), &["capacity"]);
    assert_eq!(doubts(folder.path(), "latency_beyond_window"), 3);
    let words = "redis-benchmark = { clients = 8 }";
    let (output, _folder) = weigh("redis-benchmark", "redis", SHORT, words);
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains("write latency_share = 0"), "{said}");
}

#[test]
fn postgres_is_weighed_with_pgbench() {
    let test = "postgres_is_weighed_with_pgbench";
    if skipped(test, &ALWAYS) || skipped(test, &[Need::Program("pgbench")]) {
        return;
    }
    let words = "latency_share = 0.3\npgbench = { clients = 4 }";
    let (output, folder) = weigh("pgbench", "postgres", SHORT, words);
    assert_weighed(&output, folder.path(), &["capacity", "latency"]);
    assert_eq!(doubts(folder.path(), "coordinated_omission"), 0);
}

#[test]
fn the_database_is_weighed_with_workloads_by_name() {
    let test = "the_database_is_weighed_with_workloads_by_name";
    if skipped(test, &ALWAYS) {
        return;
    }
    let words = "workload = \"ycsb-a\"\nrows = 2000\nlatency_share = 0.3\n\
                 [[workload]]\nname = \"scans\"\nworkload = \"ycsb-e\"\nrows = 2000\nlatency_share = 0";
    let short = "window = \"200ms\"\nlead_in = \"50ms\"";
    let (output, folder) = weigh("tare-load", "tare-db", short, words);
    assert_weighed(&output, folder.path(), &["capacity", "latency"]);
    assert_eq!(doubts(folder.path(), "operation_errors"), 0);
    let page = fs::read_to_string(folder.path().join("out.html")).unwrap();
    assert!(page.contains("ycsb-e, a workload that ships"), "the page says what was asked");
    let (output, _folder) = weigh("tare-load", "tare-db", short, "workload = \"ycsb-z\"");
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains("did you mean \"ycsb-"), "{said}");
}
