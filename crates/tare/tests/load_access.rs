//! `tare load` against a real `tare db`: every combination of TLS, login, protocol version and
//! compression, and every mismatch between the two sides.

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{stderr, stdout, tare};
use tare_testkit::Reason;

/// A `tare db` with two shards that ends with the test.
struct Database {
    child: Child,
    port: u16,
}

impl Database {
    fn start(data: &Path, port: u16, words: &[&str]) -> Self {
        let mut child = tare()
            .args(["db", "--smp", "2", "--overprovisioned", "yes", "--memory", "256M"])
            .args(["--durability", "periodic", "--port", &port.to_string(), "--data"])
            .arg(data)
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let log: Box<dyn BufRead + Send> =
            Box::new(BufReader::new(child.stderr.take().expect("a pipe")));
        let port = listening_port(log).or_else(|| {
            listening_port(Box::new(BufReader::new(child.stdout.take().expect("a pipe"))))
        });
        Self { child, port: port.expect("tare db prints the address that it listens on") }
    }

    fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the port of the log line "listening on"; the rest of the log is read and dropped.
fn listening_port(log: Box<dyn BufRead + Send>) -> Option<u16> {
    let mut lines = log.lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let address = line.strip_prefix("listening on ")?.split(',').next()?.to_string();
        address.rsplit_once(':')?.1.parse().ok()
    });
    std::thread::spawn(move || lines.for_each(drop));
    port
}

fn key_pair() -> (PathBuf, PathBuf) {
    // The key is public: it is valid for 127.0.0.1 and used by tests only.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tare-db/tests/tls");
    (folder.join("certificate.pem"), folder.join("key.pem"))
}

fn load(port: u16, words: &[&str]) -> Command {
    let mut command = tare();
    command.args(["load", &format!("127.0.0.1:{port}"), "--rows", "200", "--lead-in", "0s"]);
    command.args(["--operation", "mixed", "--json"]).args(words);
    if !words.contains(&"--duration") {
        command.args(["--duration", "200ms"]);
    }
    command
}

fn report(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_str(&stdout(output)).expect("a report")
}

/// Returns the one line of the error; checks the exit code of a failure.
fn failure(output: &Output) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    text
}

#[test]
fn connection_options_work_and_mismatches_are_explained() {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let plain = Database::start(&scratch.path().join("plain"), 0, &[]);
    let right = file("right", "open sesame\n");
    let wrong = file("wrong", "open barley\n");
    let hashed = {
        let mut child = tare();
        child.args(["db", "password", "ann"]).stdin(std::fs::File::open(&right).unwrap());
        child.output().unwrap()
    };
    let users = file("users", &stdout(&hashed));
    let (certificate, key) = key_pair();
    let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
    let guard = ["--auth-file", &users, "--tls-cert", &certificate, "--tls-key", &key];
    let guarded = Database::start(&scratch.path().join("guarded"), 0, &guard);

    // Few connections, because each costs the server a password hash, which is slow by design.
    let login = ["--tls-ca", &certificate, "--user", "ann", "--password-file", &right];
    let login = [&login[..], &["--connections", "2"]].concat();
    let ways: [&[&str]; 4] = [&[], &["--lz4"], &["--protocol", "5"], &["--protocol", "5", "--lz4"]];
    for way in ways {
        for (database, words) in [(&plain, &[][..]), (&guarded, &login[..])] {
            let words = [words, way, &["--populate", "--verify"]].concat();
            let report = report(&load(database.port, &words).output().unwrap());
            assert!(report["operations"].as_u64() > Some(0), "{words:?} {report}");
            assert_eq!(report["errors"].as_array().map(Vec::len), Some(0), "{words:?} {report}");
        }
    }

    let check = |port: u16, words: &[&str], expect: &str| {
        let text = failure(&load(port, words).output().unwrap());
        assert!(text.contains(expect), "{words:?}: {text}");
    };
    check(guarded.port, &[], "speaks TLS; name the trusted authorities with --tls-ca");
    check(plain.port, &["--tls-ca", &certificate], "does it speak TLS");
    check(guarded.port, &["--tls-insecure"], "asks for a login");
    let wrong_login = ["--tls-insecure", "--user", "ann", "--password-file", &wrong];
    check(guarded.port, &wrong_login, "refused the login of \"ann\"");
    check(guarded.port, &["--tls-ca", &certificate, "--tls-name", "db.invalid"], "not valid");
    check(plain.port, &["--columns", "7"], "there is no table tare.row7x64");
    let unknown = tare().args(["load", "no-such-host.invalid"]).output().unwrap();
    assert!(failure(&unknown).contains("cannot find the host no-such-host.invalid"));
}

#[test]
fn load_reconnects_to_a_restarted_database() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    let mut database = Database::start(&data, 0, &[]);
    let port = database.port;
    report(&load(port, &["--populate"]).output().unwrap());
    let words = ["--duration", "8s", "--rate", "500"];
    let child = load(port, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(2_500));
    database.kill();
    // The load reconnects to the same port, which no other process may have taken meanwhile.
    let deadline = Instant::now() + Duration::from_secs(30);
    let database = Database::start(&data, port, &[]);
    assert!(Instant::now() < deadline, "the database took too long to come back");
    let output = child.wait_with_output().unwrap();
    drop(database);
    let report: serde_json::Value = serde_json::from_str(&stdout(&output))
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    assert!(report["recovery"]["reconnects"].as_u64() > Some(0), "{report}");
    assert!(report["operations"].as_u64() > Some(1_000), "{report}");
    // Operations failed, so the exit code is that of a failure.
    assert_eq!(output.status.code(), Some(1), "{report}");
    let errors = report["errors"].as_array().unwrap();
    assert!(errors.iter().any(|error| error["kind"] == "connection closed"), "{report}");
}

/// Loads a Cassandra, or any other CQL server, at $TARE_TEST_CQL (`HOST:PORT`), with the user
/// $TARE_TEST_CQL_USER if it requires a login; the password is in TARE_PASSWORD.
#[test]
fn an_external_cql_server_is_loaded() {
    let name = "an_external_cql_server_is_loaded";
    let Ok(node) = std::env::var("TARE_TEST_CQL") else {
        return tare_testkit::skip(name, Reason::Unset { variable: "TARE_TEST_CQL" });
    };
    let user = std::env::var("TARE_TEST_CQL_USER").ok();
    let ways: [&[&str]; 4] = [&[], &["--lz4"], &["--protocol", "5"], &["--protocol", "5", "--lz4"]];
    for way in ways {
        for operation in ["write", "read"] {
            let mut command = tare();
            command.args(["load", &node, "--rows", "1000", "--duration", "2s", "--json"]);
            command.args(["--operation", operation, "--populate", "--verify", "--retry", "3"]);
            command.args(user.iter().flat_map(|user| ["--user", user])).args(way);
            let report = report(&command.output().unwrap());
            assert!(report["operations"].as_u64() > Some(0), "{way:?} {report}");
        }
    }
}
