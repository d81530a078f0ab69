//! Systems weighed with third-party load tools, through the built program: a tiny study each, in a
//! process and, where the tool starts quickly, in a container; the host is unchanged afterwards.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use common::{stderr, tare};
use tare_testkit::downloads::cached;
use tare_testkit::{Need, skipped};

const ALWAYS: [Need; 4] =
    [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];

/// The baseline, and a container.
const PROCESS: &str = "[[environment]]\nname = \"native\"\nruntime = \"process\"\n";
const BOX: &str = "[[environment]]\nname = \"box\"\nruntime = \"oci:runc\"\n";

/// Runs a study of one workload, and returns it with its folder.
fn weigh(
    pair: [&str; 2],
    environments: &[&str],
    schedule: &str,
    workload: &str,
) -> (Output, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let output = study(folder.path(), pair, environments, schedule, workload).output().unwrap();
    (output, folder)
}

/// Writes a study of one workload into a folder, and returns the command that runs it there.
fn study(
    folder: &Path,
    [driver, system]: [&str; 2],
    environments: &[&str],
    schedule: &str,
    workload: &str,
) -> Command {
    let environments = environments.concat();
    let study = format!(
        "name = \"tiny\"\nbaseline = \"native\"\ndriver = \"{driver}\"\n\
         [system]\nname = \"{system}\"\n\
         [schedule]\nrounds_min = 1\nstop_width_percent = 0\nbudget = \"5m\"\nseed = 7\n{schedule}\n\
         {environments}[[workload]]\nname = \"w\"\n{workload}\n"
    );
    fs::write(folder.join("study.toml"), study).unwrap();
    let state = folder.join("state");
    let words = ["weigh", "study.toml", "--output", "out.tare", "--json", "--state"];
    let mut command = tare();
    command.args(words).arg(&state).current_dir(folder);
    // Fast start-up matters more here than peak speed.
    command.env("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC");
    command
}

/// Checks that every environment has figures in these phases, including the client's CPU time, each
/// with a histogram of this kind, and that nothing of the run is left.
fn assert_weighed(output: &Output, folder: &Path, phases: &[(&str, &str)]) {
    let said = stderr(output);
    assert!(output.status.success(), "{said}");
    let database = rusqlite::Connection::open(folder.join("out.tare")).unwrap();
    let all = |query: &str| -> Vec<String> {
        let mut rows = database.prepare(query).unwrap();
        let rows = rows.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let voids = all("SELECT void FROM slices WHERE void IS NOT NULL");
    let environments = all("SELECT name FROM environments");
    assert!(environments.len() >= 2, "{environments:?}");
    for environment in &environments {
        for (phase, kind) in phases {
            let count: u32 = database
                .query_row(
                    "SELECT count(*) FROM slice_figures f JOIN histograms h ON h.slice = f.id \
                     WHERE environment = ?1 AND phase = ?2 AND void IS NULL AND kind = ?3 \
                     AND operations_per_s > 0 AND client_cpu_us_per_operation > 0 \
                     AND server_cpu_us_per_operation > 0",
                    [environment, *phase, *kind],
                    |row| row.get(0),
                )
                .unwrap();
            assert!(count >= 1, "no {kind} of {environment} in {phase}\n{voids:?}\n{said}");
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

/// Returns the number of doubts of a kind in the record.
fn doubts(folder: &Path, kind: &str) -> u32 {
    let database = rusqlite::Connection::open(folder.join("out.tare")).unwrap();
    let count = "SELECT count(*) FROM doubts WHERE kind = ?1";
    database.query_row(count, [kind], |row| row.get(0)).unwrap()
}

const SHORT: &str = "rounds = 2\nwindow = \"500ms\"\nlead_in = \"200ms\"";
/// The schedule for tools that take seconds to start.
const ONCE: &str = "rounds = 1\nwindow = \"1s\"\nlead_in = \"400ms\"";

#[test]
fn redis_is_weighed_with_redis_benchmark() {
    let test = "redis_is_weighed_with_redis_benchmark";
    let own = [Need::Program("redis-server"), Need::Program("redis-benchmark")];
    if skipped(test, &ALWAYS) || skipped(test, &own) {
        return;
    }
    let words = "latency_share = 0\nredis-benchmark = { clients = 8, keyspace = 1000 }";
    let (output, folder) = weigh(["redis-benchmark", "redis"], &[PROCESS, BOX], SHORT, words);
    assert_weighed(&output, folder.path(), &[("capacity", "service")]);
    // Two environments and their two controls.
    assert_eq!(doubts(folder.path(), "latency_beyond_window"), 4);
    let words = "redis-benchmark = { clients = 8 }";
    let (output, _folder) = weigh(["redis-benchmark", "redis"], &[PROCESS, BOX], SHORT, words);
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains("write latency_share = 0"), "{said}");
}

/// Keys and values, at capacity and at a rate.
fn assert_weighed_by_tare_load(test: &str, system: &str, program: &'static str) {
    if skipped(test, &ALWAYS) || skipped(test, &[Need::Program(program)]) {
        return;
    }
    let words = "latency_share = 0.3\nwrite_share = 0.5\nrows = 1000\nconnections = 8";
    let (output, folder) = weigh(["tare-load", system], &[PROCESS, BOX], SHORT, words);
    assert_weighed(&output, folder.path(), &[("capacity", "service"), ("latency", "response")]);
    // A workload of the user's.
    let folder = tempfile::tempdir().unwrap();
    let own = "[table]\nkeyspace = \"own\"\nname = \"own\"\nrows = 500\n\
               [[partition]]\nname = \"id\"\ntype = \"bigint\"\n\
               [[column]]\nname = \"value\"\ntype = \"blob\"\nsize = 300\n\
               [[query]]\nkind = \"read\"\nweight = 9\n[[query]]\nkind = \"insert\"\n";
    fs::write(folder.path().join("own.toml"), own).unwrap();
    let words = "latency_share = 0\nworkload = \"own.toml\"";
    let mut command = study(folder.path(), ["tare-load", system], &[PROCESS], SHORT, words);
    assert_weighed(&command.output().unwrap(), folder.path(), &[("capacity", "service")]);
    let words = "workload = \"ycsb-e\"\nrows = 1000";
    let (output, _folder) = weigh(["tare-load", system], &[PROCESS, BOX], SHORT, words);
    let said = stderr(&output);
    assert!(said.contains("the load's query is scan; it must be read, write or insert"), "{said}");
}

#[test]
fn redis_is_weighed_with_tare_load() {
    assert_weighed_by_tare_load("redis_is_weighed_with_tare_load", "redis", "redis-server");
}

#[test]
fn valkey_is_weighed_with_tare_load() {
    assert_weighed_by_tare_load("valkey_is_weighed_with_tare_load", "valkey", "valkey-server");
}

#[test]
fn memcached_is_weighed_with_tare_load() {
    assert_weighed_by_tare_load("memcached_is_weighed_with_tare_load", "memcached", "memcached");
}

#[test]
fn postgres_is_weighed_with_pgbench() {
    let test = "postgres_is_weighed_with_pgbench";
    if skipped(test, &ALWAYS) || skipped(test, &[Need::Program("pgbench")]) {
        return;
    }
    let words = "latency_share = 0.3\npgbench = { clients = 4 }";
    let (output, folder) = weigh(["pgbench", "postgres"], &[PROCESS, BOX], SHORT, words);
    assert_weighed(&output, folder.path(), &[("capacity", "service"), ("latency", "response")]);
    assert_eq!(doubts(folder.path(), "coordinated_omission"), 0);
}

/// Returns the blocks of code of a language in the section of the guide about HTTP.
fn guide(language: &str) -> Vec<&'static str> {
    let guide = include_str!("../../../docs/guides/systems.md");
    let (_, section) = guide.split_once("## Web servers and etcd\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let start = format!("```{language}\n");
    section.split(&start).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Runs a study of the guide with short slices. Its files are in the folder of the test.
fn weigh_guide(folder: &Path, study: &str) -> Output {
    let study = study.replace("/srv/", &format!("{}/", folder.display()));
    let text = format!(
        "name = \"tiny\"\nbaseline = \"native\"\n{study}\n[schedule]\nrounds_min = 1\n\
         stop_width_percent = 0\nbudget = \"5m\"\nseed = 7\n{SHORT}\n{PROCESS}{BOX}"
    );
    fs::write(folder.join("study.toml"), text).unwrap();
    let words = ["weigh", "study.toml", "--output", "out.tare", "--json", "--state"];
    let mut command = tare();
    command.args(words).arg(folder.join("state")).current_dir(folder);
    command.output().unwrap()
}

#[test]
fn nginx_of_the_guide_is_weighed_with_h2load() {
    let test = "nginx_of_the_guide_is_weighed_with_h2load";
    let own = [Need::Program("nginx"), Need::Program("h2load")];
    if skipped(test, &ALWAYS) || skipped(test, &own) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("nginx.conf"), guide("nginx")[0]).unwrap();
    let study = guide("toml")[0];
    let output = weigh_guide(folder.path(), study);
    assert_weighed(&output, folder.path(), &[("capacity", "service")]);
    assert_eq!(doubts(folder.path(), "latency_beyond_window"), 0);
    // A body that is not there, and a rate, which it cannot hold.
    let missing = study.replace("path = \"/\"", "path = \"/\", data = \"/no/such\"");
    let said = stderr(&weigh_guide(folder.path(), &missing));
    assert!(
        said.contains("data is \"/no/such\"; it must be the absolute path of a file"),
        "{said}"
    );
    let rated = study.replace("latency_share = 0 ", "latency_share = 0.5 ");
    let said = stderr(&weigh_guide(folder.path(), &rated));
    assert!(said.contains("write latency_share = 0"), "{said}");
}

#[test]
fn etcd_of_the_guide_is_weighed_with_h2load() {
    let test = "etcd_of_the_guide_is_weighed_with_h2load";
    let own = [Need::Program("etcd"), Need::Program("h2load")];
    if skipped(test, &ALWAYS) || skipped(test, &own) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("put.json"), r#"{"key": "Zm9v", "value": "YmFy"}"#).unwrap();
    let output = weigh_guide(folder.path(), guide("toml")[1]);
    assert_weighed(&output, folder.path(), &[("capacity", "service")]);
}

#[test]
fn postgres_is_weighed_with_own_queries() {
    let test = "postgres_is_weighed_with_own_queries";
    if skipped(test, &ALWAYS) || skipped(test, &[Need::Program("pgbench"), Need::Program("psql")]) {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let setup = file(
        "setup.sql",
        "CREATE TABLE readings (sensor int PRIMARY KEY, value text);\n\
         INSERT INTO readings SELECT n, repeat('x', 100) FROM generate_series(1, 1000) n;\n",
    );
    let script = file(
        "script.sql",
        "\\set sensor random(1, 1000)\nSELECT value FROM readings WHERE sensor = :sensor;\n",
    );
    let words = |script: &str, setup: &str| {
        let paths = format!("script = \"{script}\", setup = \"{setup}\"");
        format!("latency_share = 0.3\npgbench = {{ clients = 4, {paths} }}")
    };
    let run = |words: &str| weigh(["pgbench", "postgres"], &[PROCESS, BOX], SHORT, words);
    let (output, folder) = run(&words(&script, &setup));
    assert_weighed(&output, folder.path(), &[("capacity", "service"), ("latency", "response")]);
    let refused = |words: &str, expect: &str| {
        let said = stderr(&run(words).0);
        assert!(said.contains(expect), "{said}");
    };
    refused(&words(&script, "setup.sql"), "setup is \"setup.sql\"; it must be the absolute path");
    refused(&words("/no/such.sql", &setup), "script is \"/no/such.sql\"; it must be the absolute");
    let alone = format!("pgbench = {{ setup = \"{setup}\" }}");
    refused(&alone, "pgbench needs script: the built-in ones need pgbench's own tables");
    let wrong = file("wrong.sql", "CREATE TABEL readings ();\n");
    refused(&words(&script, &wrong), "syntax error at or near \"TABEL\"");
}

#[test]
fn mariadb_is_weighed_with_sysbench() {
    let test = "mariadb_is_weighed_with_sysbench";
    let own = [Need::Program("mariadbd"), Need::Program("sysbench")];
    if skipped(test, &ALWAYS) || skipped(test, &own) {
        return;
    }
    let words = |name: &str, more: &str| {
        format!("latency_share = 0\nsysbench = {{ test = \"{name}\", threads = 4, {more} }}")
    };
    let small = "tables = 2, table_size = 1000";
    let two = format!(
        "{}\n[[workload]]\nname = \"update\"\n{}",
        words("oltp_point_select", small),
        words("oltp_read_write", small)
    );
    let pair = ["sysbench", "mariadb"];
    let (output, folder) = weigh(pair, &[PROCESS, BOX], ONCE, &two);
    assert_weighed(&output, folder.path(), &[("capacity", "service")]);
    assert_eq!(doubts(folder.path(), "operation_errors"), 0);
    assert!(doubts(folder.path(), "latency_beyond_window") > 0);
    let other = words("oltp_insert", "tables = 3, table_size = 1000");
    for (workload, expect) in [
        ("sysbench = { threads = 4 }".to_string(), "write latency_share = 0"),
        (words("oltp_fast", small), "oltp_fast"),
        (words("oltp_insert", "table = 1"), "did you mean"),
        (words("oltp_insert", "tables = 0"), "it must be a whole number in its range"),
        (words("oltp_insert", "program = \"/nowhere/sysbench\""), "/nowhere/sysbench"),
        (format!("{two}\n[[workload]]\nname = \"x\"\n{other}"), "its tables are the same"),
    ] {
        let (output, _folder) = weigh(pair, &[PROCESS], ONCE, &workload);
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(expect), "{expect}: {said}");
    }
}

#[test]
fn tare_db_is_weighed_with_named_workloads() {
    let test = "tare_db_is_weighed_with_named_workloads";
    if skipped(test, &ALWAYS) {
        return;
    }
    let words = "workload = \"ycsb-a\"\nrows = 2000\nlatency_share = 0.3\n\
                 [[workload]]\nname = \"scans\"\nworkload = \"ycsb-e\"\nrows = 2000\nlatency_share = 0";
    let short = "rounds = 2\nwindow = \"200ms\"\nlead_in = \"50ms\"";
    let pair = ["tare-load", "tare-db"];
    let (output, folder) = weigh(pair, &[PROCESS, BOX], short, words);
    assert_weighed(&output, folder.path(), &[("capacity", "service"), ("latency", "response")]);
    assert_eq!(doubts(folder.path(), "operation_errors"), 0);
    let page = fs::read_to_string(folder.path().join("out.html")).unwrap();
    assert!(page.contains("ycsb-e, a workload that ships"), "the page names the workload");
    let (output, _folder) = weigh(pair, &[PROCESS], short, "workload = \"ycsb-z\"");
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains("did you mean \"ycsb-"), "{said}");
}

/// Every instance has a process of the tool of its own, with all clients of the workload.
#[test]
fn each_instance_is_loaded_by_a_tool_of_its_own() {
    let test = "each_instance_is_loaded_by_a_tool_of_its_own";
    let own = [Need::Program("redis-server"), Need::Program("redis-benchmark")];
    if skipped(test, &ALWAYS) || skipped(test, &own) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let two = format!("{PROCESS}instances = 2\n");
    let words = "latency_share = 0\nredis-benchmark = { clients = 8, keyspace = 1000 }";
    let pair = ["redis-benchmark", "redis"];
    let mut command = study(folder.path(), pair, &[&two], SHORT, words);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The most processes that load at the same time.
    let mut most = Vec::new();
    while child.try_wait().unwrap().is_none() {
        let loading = loading_tools(child.id());
        if loading.len() > most.len() {
            most = loading;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    assert_weighed(&output, folder.path(), &[("capacity", "service")]);
    assert_eq!(most.len(), 2, "{most:?}");
    assert_ne!(most[0].address, most[1].address, "{most:?}");
    assert!(most.iter().all(|one| one.clients == "8"), "{most:?}");
}

/// A process of redis-benchmark: the system that it loads, and its number of clients.
#[derive(Debug)]
struct LoadingTool {
    address: [String; 2],
    clients: String,
}

/// Returns the processes of redis-benchmark that descend from this process.
fn loading_tools(ancestor: u32) -> Vec<LoadingTool> {
    let read = |pid: u32| -> Option<LoadingTool> {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let words: Vec<&str> = line.split('\0').collect();
        if !words[0].ends_with("redis-benchmark") {
            return None;
        }
        let after = |option: &str| {
            let at = words.iter().position(|word| *word == option)?;
            words.get(at + 1).map(|word| word.to_string())
        };
        Some(LoadingTool { address: [after("-h")?, after("-p")?], clients: after("-c")? })
    };
    tare_host::process::tree(ancestor).into_iter().filter_map(read).collect()
}

/// pkolaczk's latte omits the start times that it misses, hence the doubts.
#[test]
fn tare_db_is_weighed_with_latte() {
    let test = "tare_db_is_weighed_with_latte";
    if skipped(test, &ALWAYS) {
        return;
    }
    let Some(latte) = cached(test, "latte", "latte/bin/latte") else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("write.rn");
    fs::write(&script, common::LATTE_SCRIPT).unwrap();
    let words = format!(
        "rate_per_s = 200\nlatte = {{ script = {script:?}, concurrency = 8, program = {latte:?} }}"
    );
    let (output, folder) = weigh(["latte", "tare-db"], &[PROCESS], ONCE, &words);
    assert_weighed(&output, folder.path(), &[("capacity", "service"), ("latency", "service")]);
    assert_eq!(doubts(folder.path(), "coordinated_omission"), 2);
}

/// Tools in Java. Each of their slices takes a quarter of a minute, so they start early: tests run
/// in the order of their names.
mod java {
    use super::*;

    #[test]
    fn tare_db_is_weighed_with_cassandra_stress() {
        let test = "tare_db_is_weighed_with_cassandra_stress";
        if skipped(test, &ALWAYS) || skipped(test, &[Need::Program("java")]) {
            return;
        }
        let file = |file: &str| cached(test, "cassandra-stress", file);
        let Some(home) = file("java/target/apache-cassandra-4.0-alpha2") else { return };
        let Some(jar) = file("java/target/lib/HdrHistogram-2.1.12.jar") else { return };
        let words = format!(
            "rate_per_s = 200\ncassandra-stress = {{ command = \"mixed\", rows = 2000, threads = 8, \
             home = {home:?}, hdrhistogram = {jar:?} }}"
        );
        let (output, folder) = weigh(["cassandra-stress", "tare-db"], &[PROCESS], ONCE, &words);
        assert_weighed(&output, folder.path(), &[("capacity", "service"), ("latency", "response")]);
        assert_eq!(doubts(folder.path(), "coordinated_omission"), 0);
        assert_eq!(doubts(folder.path(), "latency_beyond_window"), 0);
    }

    /// YCSB's own Cassandra binding is not on Maven Central: `tests/drivers` builds one of ours.
    #[test]
    fn tare_db_is_weighed_with_ycsb() {
        let test = "tare_db_is_weighed_with_ycsb";
        if skipped(test, &ALWAYS) || skipped(test, &[Need::Program("java")]) {
            return;
        }
        let Some(home) = cached(test, "ycsb", "ycsb/target") else { return };
        let options = |letter| {
            format!(
                "ycsb = {{ workload = \"{letter}\", threads = 16, rows = 2000, home = {home:?}, \
                 binding = \"tare.ycsb.CqlBinding\" }}"
            )
        };
        let (a, d) = (options("a"), options("d"));
        let words =
            format!("rate_per_s = 200\n{a}\n[[workload]]\nname = \"D\"\nlatency_share = 0\n{d}");
        let once = "rounds = 1\nwindow = \"2s\"\nlead_in = \"1s\"";
        let pair = ["ycsb", "tare-db"];
        let (output, folder) = weigh(pair, &[PROCESS], once, &words);
        assert_weighed(&output, folder.path(), &[("capacity", "service"), ("latency", "response")]);
        for doubt in ["coordinated_omission", "latency_beyond_window", "operation_errors"] {
            assert_eq!(doubts(folder.path(), doubt), 0, "{doubt}");
        }
        let page = fs::read_to_string(folder.path().join("out.html")).unwrap();
        assert!(page.contains("tare.ycsb.CqlBinding"), "the page names the binding");
        let words = words.replace("tare.ycsb.CqlBinding", "tare.ycsb.None");
        let (output, _folder) = weigh(pair, &[PROCESS], once, &words);
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains("no class tare.ycsb.None"), "{said}");
    }
}
