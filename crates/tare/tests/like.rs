//! `tare load spec` and `tare weigh --like`, through the built program: real traffic that tcpdump
//! captures in a network namespace of the test becomes the workload that made it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{run_in, stderr, stdout, tare};
use rustix::process::{Pid, Signal, kill_process};
use tare_load::keys::Keys;
use tare_load::workload::{Workload, parse};
use tare_testkit::database::until;
use tare_testkit::{Need, host_state, skipped, tiny};

/// The load that is captured.
const KNOWN: &str = r#"
[table]
keyspace = "shop"
name = "carts"
rows = 5000

[[partition]]
name = "user"
type = "text"
size = 14

[[column]]
name = "goods"
type = "blob"
size = "uniform:200:800"
compressed_to = "50%"

[[column]]
name = "state"
type = "tinyint"

[[query]]
kind = "read"
weight = 70
keys = "zipfian:0.9"
misses = 0.05

[[query]]
kind = "write"
weight = 25
keys = "zipfian:0.9"

[[query]]
kind = "update"
columns = 1
weight = 5
"#;

/// A program that ends with the test.
struct Running(Child);

impl Running {
    /// Starts a program and waits until it listens.
    fn server(mut command: Command, port: u16) -> Self {
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let running = Self(child.unwrap());
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok();
        until("the server listens", connect);
        running
    }

    /// Starts to capture the packets of a port of this namespace.
    fn tcpdump(file: &Path, port: u16) -> Self {
        let mut child = Command::new("tcpdump")
            .args(["-i", "lo", "-n", "-Z", "root", "--immediate-mode", "-B", "65536", "-w"])
            .arg(file)
            .args(["tcp", "port", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "tcpdump ended");
        }
        // It would end at a closed pipe.
        std::thread::spawn(move || said.lines().count());
        Self(child)
    }

    /// Ends a capture, once the last packets have reached it.
    fn finish(mut self) {
        std::thread::sleep(Duration::from_millis(1500));
        let pid = Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a test on a loopback device of its own.
fn in_network(work: impl FnOnce() + Send) {
    tare_host::netns::in_scratch(|| {
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success());
        work();
    })
    .unwrap();
}

fn good(output: Output) -> String {
    assert!(output.status.success(), "{}\n{}", stdout(&output), stderr(&output));
    stdout(&output)
}

fn load(here: &Path, words: &str) -> String {
    good(run_in(here, ["load"].into_iter().chain(words.split_whitespace())))
}

/// Makes the workload of a capture, writes it to `like.toml`, and reads it.
fn like(here: &Path) -> (String, Workload) {
    let text = load(here, "spec --like trace.pcap");
    fs::write(here.join("like.toml"), &text).unwrap();
    let workload = parse(&text, "like.toml", "like").unwrap_or_else(|e| panic!("{e}\n{text}"));
    (text, workload)
}

#[track_caller]
fn near(what: &str, found: f64, truth: f64, band: f64, text: &str) {
    assert!((found - truth).abs() <= band, "{what}: {found}, not {truth} ± {band}:\n{text}");
}

/// Checks that a workload is the known one, within the noise of some 20,000 operations.
fn check_known(text: &str, workload: &Workload) {
    assert_eq!(workload.table.full_name(), "shop.carts", "{text}");
    assert_eq!(workload.query_names(), ["read", "write", "update"], "{text}");
    let all: f64 = workload.queries.iter().map(|query| query.weight).sum();
    near("operations", all, 24_000.0, 1200.0, text);
    for (query, share) in workload.queries.iter().zip([0.7, 0.25, 0.05]) {
        near(&query.name, query.weight / all, share, 0.02, text);
    }
    for query in &workload.queries[..2] {
        let Keys::Zipfian { exponent } = query.keys else { panic!("{text}") };
        near("exponent", exponent, 0.9, 0.08, text);
    }
    near("misses", workload.queries[0].misses, 0.05, 0.015, text);
    near("rows", workload.rows as f64, 5000.0, 1250.0, text);
    for part in ["name = \"user\"\ntype = \"text\"\nsize = 14\n", "\ncolumns = 1\n"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let size = text.split("size = \"uniform:").nth(1).and_then(|rest| rest.split('"').next());
    let (least, most) = size.and_then(|size| size.split_once(':')).expect(text);
    near("least size", least.parse().unwrap(), 200.0, 30.0, text);
    near("most size", most.parse().unwrap(), 800.0, 30.0, text);
    let share = text.split("compressed_to = \"").nth(1).and_then(|rest| rest.split('%').next());
    near("compressed", share.expect(text).parse().unwrap(), 50.0, 5.0, text);
    assert!(text.contains("Arrivals: at random") || text.contains("Arrivals: in bursts"), "{text}");
}

#[test]
fn captured_cql_is_loaded_again() {
    let test = "captured_cql_is_loaded_again";
    if skipped(test, &[Need::Root, Need::Program("tcpdump"), Need::Program("ip")]) {
        return;
    }
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    fs::write(here.join("known.toml"), KNOWN).unwrap();
    in_network(|| {
        let mut database = tare();
        database.args(["db", "--overprovisioned", "yes", "--memory", "256M", "--smp", "1"]);
        database.arg("--data").arg(here.join("data"));
        let _database = Running::server(database, 9042);
        load(here, "127.0.0.1 --workload known.toml --populate --duration 100ms --lead-in 0s");
        sampled_table_is_loaded(here);
        for words in ["--protocol 4", "--protocol 5 --lz4"] {
            let capture = Running::tcpdump(&here.join("trace.pcap"), 9042);
            let pace = "--rate 3000 --arrivals poisson --duration 8s --lead-in 0s --connections 4";
            load(here, &format!("127.0.0.1 --workload known.toml {pace} {words}"));
            capture.finish();
            let (text, workload) = like(here);
            check_known(&text, &workload);
            let json = load(here, "spec --like trace.pcap --json");
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            near("rate", json["rate_per_s"].as_f64().unwrap(), 3000.0, 150.0, &text);
            assert_eq!(json["connections"], 4);
            assert_eq!(json["table"], "shop.carts");
            let pace = "--rate 2000 --duration 1s --lead-in 0s";
            load(here, &format!("127.0.0.1 --workload like.toml --populate {pace}"));
        }
    });
    study_takes_the_load(here);
}

/// Makes a workload of the table itself.
fn sampled_table_is_loaded(here: &Path) {
    let text = load(here, "spec --table shop.carts 127.0.0.1");
    let workload = parse(&text, "table.toml", "table").unwrap_or_else(|e| panic!("{e}\n{text}"));
    near("rows", workload.rows as f64, 5000.0, 250.0, &text);
    assert_eq!(workload.query_names(), ["read", "write"], "{text}");
    fs::write(here.join("table.toml"), &text).unwrap();
    load(here, "127.0.0.1 --workload table.toml --populate --duration 500ms --lead-in 0s");
    let missing = run_in(here, ["load", "spec", "--table", "shop.none", "127.0.0.1"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("has no such table"), "{}", stderr(&missing));
}

/// Weighs environments under the captured load.
fn study_takes_the_load(here: &Path) {
    let needs = [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];
    if skipped("study_takes_the_load", &needs) {
        return;
    }
    let _alone = host_state::alone();
    tiny::write(here, "slices", 2);
    let words = ["--state", "state", "weigh", "tiny.toml", "--like", "trace.pcap"];
    let plan = run_in(here, words.iter().chain(&["--dry-run"]));
    assert!(plan.status.success(), "{}", stderr(&plan));
    let said = stderr(&plan);
    assert!(said.contains("Load of trace.pcap: ") && said.contains(" read (zipfian:"), "{said}");
    let text = stdout(&plan);
    assert!(
        text.contains("(with the load of trace.pcap)") && text.contains("latency at "),
        "{text}"
    );
    good(run_in(here, words.iter().chain(&["-o", "out.tare"])));
    let report = good(run_in(here, ["report", "out.tare", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let workloads = report["study"]["workloads"].as_array().unwrap();
    assert_eq!(workloads.len(), 1);
    assert_eq!(workloads[0]["name"], "trace");
    assert!(workloads[0]["workload_text"].as_str().unwrap().contains("keyspace = \"shop\""));
    let facts = report["host"].as_array().unwrap();
    let fact = |key: &str| {
        let is = |fact: &&serde_json::Value| fact["section"] == "trace" && fact["key"] == key;
        facts.iter().find(is).unwrap()["value"].as_str().unwrap().to_string()
    };
    assert_eq!(fact("file"), "trace.pcap");
    assert_eq!(fact("sha256").len(), 64);
    assert!(fact("operations").contains(" write (zipfian:"), "{}", fact("operations"));
}

#[test]
fn captured_redis_is_loaded_again() {
    let test = "captured_redis_is_loaded_again";
    let needs = ["tcpdump", "ip", "redis-server"].map(Need::Program);
    if skipped(test, &[Need::Root]) || skipped(test, &needs) {
        return;
    }
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    in_network(|| {
        let mut redis = Command::new("redis-server");
        redis.args(["--bind", "127.0.0.1", "--save", "", "--dir"]).arg(here);
        let _redis = Running::server(redis, 6379);
        let words = "127.0.0.1 --protocol redis --operation mixed --write-share 0.25 \
                     --keys uniform --rows 2000 --columns 2 --column-bytes 100 --lead-in 0s";
        load(here, &format!("{words} --populate --duration 100ms"));
        let capture = Running::tcpdump(&here.join("trace.pcap"), 6379);
        load(here, &format!("{words} --rate 2000 --duration 5s"));
        capture.finish();
        let (text, workload) = like(here);
        let [read, write] = workload.queries.as_slice() else { panic!("{text}") };
        near("reads", read.weight / (read.weight + write.weight), 0.75, 0.02, &text);
        assert_eq!((read.keys, write.keys), (Keys::Uniform, Keys::Uniform), "{text}");
        near("rows", workload.rows as f64, 2000.0, 200.0, &text);
        assert!(text.contains("size = 200\n"), "{text}");
        let again = "127.0.0.1 --protocol redis --workload like.toml --populate --duration 500ms";
        load(here, again);
    });
}

#[test]
fn bad_traces_are_one_line() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    fs::write(here.join("empty.pcap"), b"").unwrap();
    fs::write(here.join("text.pcap"), b"no packets\n").unwrap();
    let check = |words: &str, code: i32, expect: &str| {
        let output = run_in(here, words.split_whitespace());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{words}: {said}");
        assert!(said.contains(expect), "{words}: {said}");
        assert!(code == 2 || said.trim().lines().count() == 1, "{words}: {said}");
        assert_eq!(stdout(&output), "");
    };
    check("load spec --like none.pcap", 3, "cannot read the trace none.pcap");
    check("load spec --like empty.pcap", 3, "the trace empty.pcap is empty");
    check("load spec --like text.pcap", 3, "text.pcap is no packet capture");
    check("weigh fake --like text.pcap", 3, "text.pcap is no packet capture");
    check("load spec", 2, "--like");
    check("load spec --table carts", 2, "write KEYSPACE.TABLE");
    check("load spec --table a.b --protocol redis", 2, "reads a table of CQL");
    check("load spec --table a.b 127.0.0.1:1", 1, "cannot sample a.b");
}
