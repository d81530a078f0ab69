//! `tare weigh` attached to systems that run already, through the built program: figures and layers
//! as found, and everything of the user as before, also after an error and after kill -9.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "attach/bed.rs"]
mod bed;
#[path = "attach/cassandra.rs"]
mod cassandra;
mod common;
#[path = "attach/compose.rs"]
mod compose;
#[path = "attach/explain.rs"]
mod explain;
#[path = "attach/hosts.rs"]
mod hosts;

use std::fs;
use std::io::Read;
use std::process::Command;

use bed::{
    Bed, UnitCgroup, answer, attach, free_port, json, study, wait_for_line, wait_for_round, weigh,
};
use common::{run_in, stderr, stdout};
use tare_testkit::host_state::HostState;
use tare_testkit::{Need, Reason, skip, skipped};

const NEEDS: [Need; 4] =
    [Need::Root, Need::Program("redis-server"), Need::Program("nft"), Need::Program("ip")];

/// Returns the value of a layer in the first environment of a report.
fn layer(report: &serde_json::Value, name: &str) -> (String, String) {
    let layers = report["environments"][0]["layers"].as_array().unwrap();
    let found = layers.iter().find(|one| one["layer"] == name).unwrap();
    let text = |key: &str| found[key].as_str().unwrap().to_string();
    (text("wanted"), text("found"))
}

fn has_doubt(report: &serde_json::Value, kind: &str) -> bool {
    report.to_string().contains(&format!("\"{kind}\""))
}

#[test]
fn one_redis_by_pid_is_measured_alone() {
    if skipped("one_redis_by_pid_is_measured_alone", &NEEDS) {
        return;
    }
    let bed = Bed::new();
    let redis = bed.redis();
    let before = HostState::read();
    let text = study("redis", &attach("mine", &format!("pid = {}", redis.pid()), redis.port));
    let output = weigh(bed.path(), &text, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    redis.assert_as_before();
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
    let report = json(&stdout(&output));
    let (wanted, found) = layer(&report, "runtime");
    assert_eq!(wanted, "as found");
    assert_eq!(found, format!("process {} (redis-server)", redis.pid()));
    assert!(layer(&report, "network").1.contains("is the host's"), "{report}");
    assert!(!has_doubt(&report, "not_frozen"), "{report}");
    let own = &report["analysis"]["findings"][0]["own_account"];
    assert!(own["server_mean_ns"].as_f64().unwrap() > 0.0, "{own}");
    assert!(own["server"]["p99_ns"].as_u64() > Some(0), "{own}");
    let terminal = run_in(bed.path(), ["report", "s.tare"]);
    assert!(terminal.status.success(), "{}", stderr(&terminal));
    assert!(stdout(&terminal).contains("mine"), "{}", stdout(&terminal));
}

#[test]
fn cgroup_of_a_unit_is_compared_with_another_process() {
    if skipped("cgroup_of_a_unit_is_compared_with_another_process", &NEEDS) {
        return;
    }
    let bed = Bed::new();
    let (one, other) = (bed.redis(), bed.redis());
    let unit = UnitCgroup::with(one.pid());
    let by_unit = attach("unit", &format!("unit = {:?}", unit.name), one.port);
    let by_pid = attach("bare", &format!("pid = {}", other.pid()), other.port);
    let output = weigh(bed.path(), &study("redis", &(by_unit + &by_pid)), &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&stdout(&output));
    let cgroup = layer(&report, "cgroup").1;
    assert!(cgroup.ends_with(&unit.name), "{cgroup}");
    assert!(has_doubt(&report, "not_frozen"), "{report}");
    // The same by the path of the cgroup.
    let by_path = attach("path", &format!("cgroup = {:?}", unit.path()), one.port);
    let output = weigh(bed.path(), &study("redis", &by_path), &["-o", "path.tare"]);
    assert!(output.status.success(), "{}", stderr(&output));
    one.assert_as_before();
    other.assert_as_before();
}

#[test]
fn container_of_docker_is_found() {
    let test = "container_of_docker_is_found";
    if skipped(test, &[Need::Root, Need::Program("nft"), Need::Program("docker")]) {
        return;
    }
    // In a thread of its own, which enters the network of the engine.
    let run = std::thread::spawn(move || container_is_found(test)).join();
    run.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn container_is_found(test: &str) {
    let bed = Bed::new();
    let container = match bed::enter_network_of_engine("docker").and_then(|()| bed.container()) {
        Ok(container) => container,
        Err(said) => return skip(test, Reason::unavailable("docker", &said)),
    };
    let target = format!("container = \"docker:{}\"", container.name);
    let output =
        weigh(bed.path(), &study("tare-db", &attach("box", &target, container.port)), &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&stdout(&output));
    let runtime = layer(&report, "runtime").1;
    assert!(runtime.contains(&container.name), "{runtime}");
    assert!(layer(&report, "network").1.contains("is its own"), "{report}");
    assert!(container.runs_since_its_start());
}

#[test]
fn redis_that_ends_while_it_is_measured_ends_the_study() {
    if skipped("redis_that_ends_while_it_is_measured_ends_the_study", &NEEDS) {
        return;
    }
    let bed = Bed::new();
    let mut redis = bed.redis();
    let text = study("redis", &attach("mine", &format!("pid = {}", redis.pid()), redis.port));
    let mut child = bed.start_long(&text);
    let mut output = wait_for_round(&mut child);
    redis.restart();
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    assert!(!child.wait().unwrap().success(), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("has ended")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains("its process"), "{said}");
    // The one that runs now is another process, and nothing is done to it.
    redis.assert_runs();
}

#[test]
fn redis_that_ends_before_the_first_slice_ends_the_study() {
    if skipped("redis_that_ends_before_the_first_slice_ends_the_study", &NEEDS) {
        return;
    }
    let bed = Bed::new();
    let mut redis = bed.redis();
    let text = study("redis", &attach("mine", &format!("pid = {}", redis.pid()), redis.port));
    let text = text.replace("window = \"100ms\"", "window = \"5s\"");
    let mut child = bed.start_long(&text);
    let mut output = wait_for_line(&mut child, "warming up");
    redis.restart();
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    assert!(!child.wait().unwrap().success(), "{said}");
    let expect = "has ended while it was measured; start it, and write its new pid into the study";
    assert_eq!(said.lines().filter(|line| line.contains(expect)).count(), 1, "{said}");
    assert!(!said.lines().any(|line| line.starts_with("round")), "{said}");
    redis.assert_runs();
}

#[test]
fn system_that_no_longer_answers_is_named() {
    if skipped("system_that_no_longer_answers_is_named", &NEEDS) {
        return;
    }
    let bed = Bed::new();
    // Without a fixed rate the first slice of a round shows it, and otherwise the calibration.
    for latency_share in ["latency_share = 0.3", "latency_share = 0"] {
        let redis = bed.redis_with_parent();
        let text = study("redis", &attach("mine", &format!("pid = {}", redis.pid()), redis.port));
        let text = text.replace("window = \"100ms\"", "window = \"5s\"");
        let text = text.replace("latency_share = 0.3", latency_share);
        let mut child = bed.start_long(&text);
        let mut output = wait_for_line(&mut child, "warming up");
        answer(redis.port, "SHUTDOWN NOSAVE");
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        assert!(!child.wait().unwrap().success(), "{said}");
        let expect = format!(
            "\"mine\": pid {} runs, but does not serve the load at 127.0.0.1:{} any more: ",
            redis.pid(),
            redis.port
        );
        assert_eq!(said.lines().filter(|line| line.contains(&expect)).count(), 1, "{said}");
        assert!(!said.contains("in a row"), "{said}");
        fs::remove_file(bed.path().join("long.tare")).unwrap();
    }
}

#[test]
fn clean_after_kill_removes_only_the_rows_of_the_load() {
    if skipped("clean_after_kill_removes_only_the_rows_of_the_load", &NEEDS) {
        return;
    }
    let bed = Bed::new();
    let redis = bed.redis();
    let before = HostState::read();
    let text = study("redis", &attach("mine", &format!("pid = {}", redis.pid()), redis.port));
    let mut child = bed.start_long(&text);
    let _output = wait_for_round(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(answer(redis.port, "DBSIZE"), redis.size, "the load has left no rows");
    let state = bed.path().join("state");
    let clean = run_in(bed.path(), ["clean", "--state", state.to_str().unwrap()]);
    assert!(clean.status.success(), "{}{}", stdout(&clean), stderr(&clean));
    redis.assert_as_before();
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
}

#[test]
fn mistakes_are_one_line_each() {
    if skipped("mistakes_are_one_line_each", &NEEDS) {
        return;
    }
    let bed = Bed::new();
    let (redis, other) = (bed.redis(), bed.redis());
    let before = HostState::read();
    let check_with = |words: &[&str], system: &str, target: &str, port: u16, expect: &str| {
        let output = weigh(bed.path(), &study(system, &attach("mine", target, port)), words);
        assert!(!output.status.success(), "{target} is accepted");
        let said = stderr(&output);
        let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("tare: ")).collect();
        assert_eq!(errors.len(), 1, "{said}");
        assert!(errors[0].contains(expect), "{expect:?} is not in {said}");
        let _ = fs::remove_file(bed.path().join("s.tare"));
    };
    let check = |system: &str, target: &str, port: u16, expect: &str| {
        check_with(&[], system, target, port, expect);
    };
    let mine = format!("pid = {}", redis.pid());
    let elsewhere = ["--hosts", "ssh:nowhere"];
    check_with(&elsewhere, "redis", &mine, redis.port, "at which this host reaches ssh:nowhere");
    let several = ["--hosts", "ssh:nowhere,ssh:else"];
    check_with(
        &several,
        "redis",
        &mine,
        redis.port,
        "runs on one host, and hosts of [system] has 2",
    );
    check("redis", "pid = 4194303", redis.port, "there is no process 4194303");
    check("redis", &mine, free_port(), "answer");
    check("redis", &mine, other.port, &format!("process {} (redis-server) answers", other.pid()));
    check("redis", "unit = \"no-such.service\"", redis.port, "no-such.service has no process");
    check("redis", "cgroup = \"/no/such\"", redis.port, "cgroup /no/such has no process");
    check("redis", "container = \"docker:tare-none\"", redis.port, "docker");
    let read_only = format!("{mine}, read_only = true");
    check("redis", &read_only, redis.port, "read_only = true: Redis has no keys of yours");
    answer(redis.port, "CONFIG SET maxmemory 100mb");
    answer(redis.port, "CONFIG SET maxmemory-policy allkeys-lru");
    check("redis", &mine, redis.port, "maxmemory_policy = allkeys-lru");
    redis.assert_as_before();
    other.assert_as_before();
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
}

#[test]
fn own_table_is_only_read() {
    if skipped("own_table_is_only_read", &[Need::Root, Need::Program("nft"), Need::Program("ip")]) {
        return;
    }
    let bed = Bed::new();
    let database = bed.database();
    let mine = "title = \"mine\"\n[table]\nkeyspace = \"shop\"\nname = \"orders\"\nrows = 500\n\
                [[partition]]\nname = \"id\"\ntype = \"bigint\"\n\
                [[column]]\nname = \"note\"\ntype = \"text\"\nsize = 20\n\
                [[query]]\nname = \"read\"\nkind = \"read\"\n";
    fs::write(bed.path().join("mine.toml"), mine).unwrap();
    let address = format!("127.0.0.1:{}", database.port());
    let filled = run_in(
        bed.path(),
        ["load", &address, "--workload", "mine.toml", "--populate", "--duration", "1s"],
    );
    assert!(filled.status.success(), "{}", stderr(&filled));
    let before = database.keyspaces();
    let target = format!("pid = {}, read_only = true", database.pid());
    let text = study("tare-db", &attach("mine", &target, database.port()));
    let text = text.replace("rows = 500\n", "workload = \"mine.toml\"\n");
    let output = weigh(bed.path(), &text, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(database.keyspaces(), before);
    // Without a table of the user, or with writes, it is refused.
    let plain = text.replace("workload = \"mine.toml\"\n", "rows = 500\n");
    let output = weigh(bed.path(), &plain, &["-o", "plain.tare"]);
    assert!(stderr(&output).contains("has no table of yours"), "{}", stderr(&output));
    fs::write(bed.path().join("mine.toml"), mine.replace("\"read\"", "\"write\"")).unwrap();
    let output = weigh(bed.path(), &text, &["-o", "writes.tare"]);
    assert!(stderr(&output).contains("writes; leave only"), "{}", stderr(&output));
}

#[test]
fn pgbench_has_a_database_of_its_own() {
    let test = "pgbench_has_a_database_of_its_own";
    if skipped(test, &[Need::Root, Need::Program("pgbench"), Need::Program("psql")]) {
        return;
    }
    let bed = Bed::new();
    let Some(postgres) = bed.postgres() else {
        return skip(test, Reason::not_installed("postgresql"));
    };
    postgres.run("CREATE TABLE mine (n int)");
    postgres.run("INSERT INTO mine VALUES (42)");
    let before = postgres.run("SELECT datname FROM pg_database ORDER BY 1");
    let target = format!("pid = {}", postgres.pid());
    let own = study("postgres", &attach("mine", &target, postgres.port));
    let output = weigh(bed.path(), &own, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&stdout(&output));
    let account = &report["analysis"]["findings"][0]["own_account"];
    assert!(account["server_mean_ns"].as_f64().unwrap() > 0.0, "{account}");
    assert!(account["server"].is_null() && !account["service"].is_null(), "{account}");
    assert_eq!(postgres.run("SELECT datname FROM pg_database ORDER BY 1"), before);
    // A script of the user reads tables of the user, and cannot write.
    let script = bed.path().join("mine.sql");
    let with_script = |sql: &str, record: &str| {
        fs::write(&script, sql).unwrap();
        let target = format!("{target}, read_only = true");
        let text = study("postgres", &attach("mine", &target, postgres.port));
        let options = format!("pgbench = {{ clients = 2, script = {script:?} }}");
        let text = text.replace("pgbench = { clients = 2 }", &options);
        weigh(bed.path(), &text, &["-o", record])
    };
    let output = with_script("SELECT n FROM mine;\n", "reads.tare");
    assert!(output.status.success(), "{}", stderr(&output));
    let output = with_script("INSERT INTO mine VALUES (1);\n", "writes.tare");
    assert!(stderr(&output).contains("read-only transaction"), "{}", stderr(&output));
    assert_eq!(postgres.run("SELECT count(*) FROM mine").trim(), "1");
}

#[test]
fn layers_of_attached_systems_are_not_changed() {
    let bed = Bed::new();
    let path = bed.path().join("s.toml");
    fs::write(&path, study("redis", &attach("mine", "pid = 1", 6379))).unwrap();
    for command in [["explain", "s.toml"].as_slice(), &["tune", "prove", "s.toml"]] {
        let output = run_in(bed.path(), command);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("use tare weigh"), "{said}");
    }
    let help =
        Command::new(env!("CARGO_BIN_EXE_tare")).args(["list", "runtimes"]).output().unwrap();
    assert!(stdout(&help).contains("attached"), "{}", stdout(&help));
}
