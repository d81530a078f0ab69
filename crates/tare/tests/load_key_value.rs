//! `tare load` against a real Redis and a real memcached: rows come back as they were written, at a
//! rate and as fast as the server answers, and every mismatch is one line.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{stderr, stdout, tare};
use serde_json::Value;
use tare_testkit::{Need, skipped};

/// A server that ends with the test.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn redis(data: &Path, words: &[&str]) -> Self {
        Self::start(|port| {
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--save", "", "--dir"]).arg(data);
            if !words.contains(&"--tls-port") {
                command.args(["--port", &port.to_string()]);
            }
            command.args(words.iter().map(|word| word.replace("PORT", &port.to_string())));
            command
        })
    }

    fn memcached(words: &[&str]) -> Self {
        Self::start(|port| {
            let mut command = Command::new("memcached");
            command.args(["-l", "127.0.0.1", "-u", "nobody", "-p", &port.to_string()]).args(words);
            command
        })
    }

    fn start(command: impl Fn(u16) -> Command) -> Self {
        let port = free_port();
        let mut command = command(port);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut server = Self { child, port };
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(server.child.try_wait().unwrap().is_none(), "{command:?} ended");
            assert!(began.elapsed() < Duration::from_secs(30), "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Both servers, or `None` where one of them is not installed.
fn servers(test: &str, data: &Path) -> Option<[(&'static str, Server); 2]> {
    if skipped(test, &[Need::Program("redis-server"), Need::Program("memcached")]) {
        return None;
    }
    Some([("redis", Server::redis(data, &[])), ("memcached", Server::memcached(&[]))])
}

fn load(port: u16, protocol: &str, words: &[&str]) -> Output {
    let mut command = tare();
    command.args(["load", &format!("127.0.0.1:{port}"), "--protocol", protocol]);
    command.args(["--lead-in", "0s", "--duration", "300ms", "--json"]).args(words);
    if !words.contains(&"--rows") {
        command.args(["--rows", "500"]);
    }
    if !words.contains(&"--workload") {
        command.args(["--columns", "3", "--column-bytes", "20"]);
    }
    if !words.contains(&"--operation") && !words.contains(&"--workload") {
        command.args(["--operation", "mixed"]);
    }
    command.output().unwrap()
}

fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{}{}", stderr(output), stdout(output));
    serde_json::from_str(&stdout(output)).unwrap()
}

/// Returns the one line of the error.
fn failure(output: &Output) -> String {
    let text = stderr(output);
    assert!(!output.status.success());
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    text
}

/// Asks a server something and returns the first line of its answer.
fn ask(port: u16, request: &str) -> String {
    use std::io::{BufRead, BufReader, Write};
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim_end().into()
}

#[test]
fn rows_come_back_as_they_were_written() {
    let data = tempfile::tempdir().unwrap();
    let Some(servers) = servers("rows_come_back_as_they_were_written", data.path()) else { return };
    for (protocol, server) in &servers {
        let run = |words: &[&str]| load(server.port, protocol, words);
        let filled = report(&run(&["--populate", "--verify", "--connections", "8"]));
        assert!(filled["operations"].as_u64().unwrap() > 100, "{filled}");
        assert!(filled["verify"]["checked"].as_u64().unwrap() > 50, "{filled}");
        // Requests that wait for each other, and a rate.
        let queued = ["--verify", "--connections", "2", "--in-flight", "64"];
        report(&run(&queued));
        let paced = report(&run(&["--verify", "--rate", "2000"]));
        assert!(paced["response"]["p99_ns"].as_u64().is_some(), "{paced}");
        // The value is the three columns.
        let asked = match *protocol {
            "redis" => ask(server.port, "STRLEN tare:000000000499\r\n"),
            _ => ask(server.port, "get tare:000000000499\r\n"),
        };
        assert!(asked == ":60" || asked == "VALUE tare:000000000499 0 60", "{asked}");
        // A value that Tare did not write.
        let spoil = match *protocol {
            "redis" => format!("SET tare:000000000001 {}\r\n", "x".repeat(60)),
            _ => format!("set tare:000000000001 0 0 60\r\n{}\r\n", "x".repeat(60)),
        };
        ask(server.port, &spoil);
        let reads = ["--operation", "read", "--verify"];
        let found = run(&reads);
        assert_eq!(found.status.code(), Some(1), "{}", stdout(&found));
        assert!(stdout(&found).contains("row differs from what was written"), "{}", stdout(&found));
    }
}

#[test]
fn missing_rows_and_refusals_are_counted() {
    let test = "missing_rows_and_refusals_are_counted";
    let data = tempfile::tempdir().unwrap();
    let Some(servers) = servers(test, data.path()) else { return };
    for (protocol, server) in &servers {
        let found = load(server.port, protocol, &["--operation", "read"]);
        assert_eq!(found.status.code(), Some(1), "{}", stdout(&found));
        assert!(stdout(&found).contains("row missing"), "{}", stdout(&found));
    }
    let full = Server::redis(data.path(), &["--maxmemory", "1mb"]);
    // Few enough that a busy host needs no line of progress for them.
    let said = failure(&load(full.port, "redis", &["--populate", "--rows", "5000"]));
    assert!(said.contains("of the writes failed, the first: OOM command not allowed"), "{said}");
}

#[test]
fn mismatches_are_explained() {
    let data = tempfile::tempdir().unwrap();
    let Some(servers) = servers("mismatches_are_explained", data.path()) else { return };
    let [redis, memcached] = servers.each_ref().map(|(_, server)| server.port);
    let check = |port, protocol, words: &[&str], expect: &str| {
        let said = failure(&load(port, protocol, words));
        assert!(said.contains(expect), "{said}");
    };
    check(memcached, "redis", &[], "answered the greeting with the line \"ERROR\"");
    check(redis, "memcached", &[], "answered the greeting with the line \"-ERR unknown command");
    check(redis, "redis", &["--workload", "ycsb-a"], "the load's query is update; it must be read");
    let login = ["--user", "ann"];
    let with_password = |port, protocol, words: &[&str]| {
        let mut command = tare();
        command.args(["load", &format!("127.0.0.1:{port}"), "--protocol", protocol]).args(words);
        command.args(["--rows", "10", "--duration", "100ms", "--lead-in", "0s", "--populate"]);
        command.env("TARE_PASSWORD", "sesame").output().unwrap()
    };
    let said = failure(&with_password(memcached, "memcached", &login));
    assert!(said.contains("has no login; leave out --user"), "{said}");
    let guarded = Server::redis(data.path(), &["--requirepass", "sesame"]);
    check(guarded.port, "redis", &[], "asks for a login (NOAUTH");
    let right = with_password(guarded.port, "redis", &["--user", "default"]);
    assert!(right.status.success(), "{}", stderr(&right));
    let said = failure(&with_password(guarded.port, "redis", &login));
    assert!(said.contains("refused the login of \"ann\": WRONGPASS"), "{said}");
}

#[test]
fn redis_is_loaded_over_tls() {
    if skipped("redis_is_loaded_over_tls", &[Need::Program("redis-server")]) {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tare-db/tests/tls");
    let file = |name: &str| folder.join(name).display().to_string();
    let (certificate, key) = (file("certificate.pem"), file("key.pem"));
    let data = tempfile::tempdir().unwrap();
    let words = ["--port", "0", "--tls-port", "PORT", "--tls-auth-clients", "no"];
    let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
    let server = Server::redis(data.path(), &[&words[..], &files[..]].concat());
    let trust = ["--populate", "--verify", "--tls-ca", &certificate];
    report(&load(server.port, "redis", &trust));
    let said = failure(&load(server.port, "redis", &[]));
    assert!(said.contains("TLS"), "{said}");
}
