//! `tare load` against peers that are not CQL servers and against servers that misbehave from the
//! start or halfway through: one clear line, the documented exit code, and what was measured until
//! then.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{stderr, stdout, tare};
use tare_testkit::fake_server::{FakeServer, ServerBehaviour};

fn load(address: SocketAddr, words: &[&str]) -> Output {
    let mut command = tare();
    command.args(["load", &address.to_string(), "--rows", "500", "--columns", "3", "--json"]);
    command.args(["--operation", "mixed", "--duration", "400ms", "--lead-in", "0s"]).args(words);
    command.output().expect("the program starts")
}

/// Returns the one line of the error; checks the exit code and that there is no result.
fn failure(output: &Output, exit: i32) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(exit), "{text}");
    let message: Vec<&str> = text.lines().filter(|line| line.starts_with("tare: ")).collect();
    assert!(stdout(output).is_empty() && message.len() == 1, "{text}");
    message[0].to_string()
}

/// A port that handles every connection in the same way until it is dropped.
struct Port {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Port {
    fn open(handle: fn(TcpStream)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        thread::spawn(move || {
            let sockets = listener.incoming().take_while(|_| !stopped.load(Ordering::Relaxed));
            sockets.flatten().for_each(|socket| {
                thread::spawn(move || handle(socket));
            });
        });
        Self { address, stop }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// Reads and drops everything until the peer closes the connection.
fn drain(mut socket: TcpStream) {
    while socket.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {}
}

#[test]
fn a_peer_that_is_no_cql_server_is_one_line() {
    let greets = |mut socket: TcpStream| {
        // The peer may have closed the connection.
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        drain(socket);
    };
    let unused = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let unused = unused.expect("a free port");
    let (garbage, closes) = (Port::open(greets), Port::open(drop));
    let silent = Port::open(drain);
    let cases = [
        (garbage.address, "did not answer OPTIONS with the CQL protocol, version 4"),
        (closes.address, "closed the connection instead of answering OPTIONS; does it expect TLS?"),
        (silent.address, "cannot send OPTIONS"),
        (unused, "Connection refused"),
    ];
    // The load waits for a server that may still be starting, so the cases run in parallel.
    thread::scope(|scope| {
        for (address, expect) in cases {
            scope.spawn(move || {
                let message = failure(&load(address, &[]), 1);
                assert!(
                    message.contains(&address.to_string()) && message.contains(expect),
                    "{message}"
                );
            });
        }
    });
}

#[test]
fn a_misbehaving_server_is_reported_by_kind() {
    let check = |behaviour: ServerBehaviour, kind: &str| {
        let server = FakeServer::start(behaviour);
        let output = load(server.address, &["--populate", "--verify"]);
        let report: serde_json::Value = serde_json::from_str(&stdout(&output))
            .unwrap_or_else(|error| panic!("{behaviour:?} {error}: {}", stderr(&output)));
        assert!(report["operations"].as_u64() > Some(0), "{behaviour:?} {report}");
        let errors = report["errors"].as_array().into_iter().flatten();
        let kinds: Vec<&str> = errors.filter_map(|error| error["kind"].as_str()).collect();
        let (exit, expect) = if kind.is_empty() { (0, vec![]) } else { (1, vec![kind]) };
        assert_eq!(output.status.code(), Some(exit), "{behaviour:?} {report}");
        assert!(expect.iter().all(|kind| kinds.contains(kind)), "{behaviour:?} {report}");
        assert!(kind.is_empty() == kinds.is_empty(), "{behaviour:?} {report}");
    };
    thread::scope(|scope| {
        let cases = [
            (ServerBehaviour::CloseOnce(1_500), "connection closed"),
            (ServerBehaviour::CloseAfter(1_500), "connection closed"),
            (ServerBehaviour::GarbageAfter(1_500), "garbage on the connection"),
            (ServerBehaviour::OtherStreams(1_500), "garbage on the connection"),
            (ServerBehaviour::SilentAfter(1_500), "no answer"),
            (ServerBehaviour::Reversed, ""),
            (ServerBehaviour::Corrupt, "row differs from what was written"),
            (ServerBehaviour::Stale, "row stale"),
        ];
        for (behaviour, kind) in cases {
            scope.spawn(move || check(behaviour, kind));
        }
    });
}

#[test]
fn a_failed_population_is_one_line() {
    let server = FakeServer::start(ServerBehaviour::Refuses);
    let message = failure(&load(server.address, &["--populate"]), 1);
    assert!(
        message.contains("cannot fill tare.row3x64") && message.contains("overloaded"),
        "{message}"
    );
}

#[test]
fn a_search_keeps_its_runs_when_the_server_disappears() {
    // Three closed connections in a row mean that the server has gone; its port is closed too.
    let server = FakeServer::start(ServerBehaviour::CloseAfter(2_000));
    let words = ["--populate", "--rate", "500", "--find-max", "--slo", "p50=10s", "--no-reconnect"];
    let output = load(server.address, &words);
    let (text, report) = (stderr(&output), stdout(&output));
    let report: serde_json::Value =
        serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(output.status.code(), Some(1), "{report} {text}");
    assert!(report["runs"].as_array().is_some_and(|runs| !runs.is_empty()), "{report}");
    assert!(report["error"].is_string() && report["is_unfinished"] == true, "{report}");
    assert!(text.lines().any(|line| line.starts_with("tare: the search failed: ")), "{text}");
}

#[test]
fn unusable_files_have_their_exit_code() {
    let here = tempfile::tempdir().expect("a directory");
    let empty = here.path().join("empty");
    std::fs::write(&empty, "").expect("a file");
    let empty = empty.display().to_string();
    let check = |words: &[&str], exit: i32, expect: &str| {
        let mut command = tare();
        command.args(["load", "127.0.0.1:1"]).args(words).env_remove("TARE_PASSWORD");
        let message = failure(&command.output().expect("the program starts"), exit);
        assert!(message.contains(expect), "{words:?}: {message}");
    };
    check(&["--user", "ann"], 2, "pass --password-file");
    check(&["--user", "ann", "--password-file", &empty], 3, "write the password there");
    check(&["--user", "ann", "--password-file", "/nowhere"], 3, "cannot read the password");
    check(&["--tls-ca", &empty], 3, "cannot read the trusted authorities");
    check(&["--tls-ca", "/nowhere"], 3, "cannot read the trusted authorities in /nowhere");
    check(&["--tls-name", "db"], 2, "the authorities to trust");
    check(&["--workload", "/nowhere.toml"], 3, "cannot read the workload");
    check(&["--workload", "ycsb-z"], 2, "did you mean \"ycsb-");
    check(&["--hdr", "/nowhere/log.hdr"], 1, "cannot write the histogram log /nowhere/log.hdr");
}
