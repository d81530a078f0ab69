//! `--serve` through the built program: the page of a running study and of a finished record, and
//! the requests that are refused.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use common::{run_in, stderr, tare};
use rustix::process::{Pid, Signal, kill_process};
use tare_testkit::host_state::{self, HostState};
use tare_testkit::{Need, skipped, tiny};

/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// A program that serves a page; killed on drop.
struct Serving {
    child: Child,
    errors: BufReader<ChildStderr>,
    at: SocketAddr,
}

impl Serving {
    /// Starts the program and waits until it prints the page's address.
    fn start(here: &Path, arguments: &[&str]) -> Serving {
        let mut command = tare();
        command.args(arguments).args(["--state", "state"]).current_dir(here);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let at = loop {
            let mut line = String::new();
            assert!(errors.read_line(&mut line).unwrap() > 0, "no page is served: {said}");
            if let Some(rest) = line.strip_prefix("page: http://") {
                break rest.split('/').next().unwrap().parse().unwrap();
            }
            said.push_str(&line);
        };
        Serving { child, errors, at }
    }

    /// Sends a request and returns the status and the whole response.
    fn request(&self, method: &str, host: &str, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        stream.shutdown(Shutdown::Both).ok();
        (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.request("GET", &self.at.to_string(), path)
    }

    /// Repeats the request until the response contains this text, and returns it.
    fn wait_for(&self, path: &str, part: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let (_, text) = self.get(path);
            if text.contains(part) {
                return text;
            }
            assert!(Instant::now() < until, "{part:?} never appears:\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn assert_refuses_foreign_requests(&self) {
        let own = self.at.to_string();
        for (method, host, path, status) in [
            ("HEAD", own.as_str(), "/", 200),
            ("GET", own.as_str(), "/nothing", 404),
            ("GET", own.as_str(), "/../Cargo.toml", 404),
            ("POST", own.as_str(), "/", 405),
            ("GET", "evil.example", "/", 421),
            ("GET", "evil.example:80", "/state", 421),
        ] {
            assert_eq!(self.request(method, host, path).0, status, "{method} {host} {path}");
        }
    }

    fn signal(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
    }

    /// Waits for the program to exit; returns the rest of its standard error and its exit code.
    fn end(mut self) -> (String, Option<i32>) {
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        (said, self.child.wait().unwrap().code())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_record_is_served_until_interrupted() {
    let here = tempfile::tempdir().unwrap();
    let output =
        run_in(here.path(), ["weigh", "fake", "--rounds", "3", "--seed", "1", "-o", "a.tare"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let serving = Serving::start(here.path(), &["report", "a.tare", "--serve"]);
    assert!(serving.at.ip().is_loopback());
    let page = serving.wait_for("/", "3 % CPU");
    assert!(page.contains("/refresh.js?version=") && page.contains("content-security-policy"));
    assert!(serving.get("/refresh.js").1.contains("location.reload"));
    assert!(serving.get("/state").1.contains(r#""ended":true"#));
    serving.assert_refuses_foreign_requests();
    // A connection that never sends its request does not block others.
    let _silent = TcpStream::connect(serving.at).unwrap();
    assert_eq!(serving.get("/").0, 200);
    serving.signal();
    assert_eq!(serving.end().1, Some(0));

    // The page on disk lacks the refresh script of the server.
    let file = std::fs::read_to_string(here.path().join("a.html")).unwrap();
    assert!(!file.contains("refresh.js"));
}

#[test]
fn non_loopback_addresses_are_refused() {
    let here = tempfile::tempdir().unwrap();
    let output = run_in(here.path(), ["report", "a.tare", "--serve=0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("not on the loopback interface"), "{}", stderr(&output));
}

#[test]
fn a_running_study_is_served_until_it_ends() {
    const NEEDS: [Need; 4] =
        [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];
    if skipped("a_running_study_is_served_until_it_ends", &NEEDS) {
        return;
    }
    let _alone = host_state::alone();
    let here = tempfile::tempdir().unwrap();
    let before = HostState::read();
    tiny::write(here.path(), "slices", 12);
    let serving =
        Serving::start(here.path(), &["weigh", "tiny.toml", "-o", "tiny.tare", "--serve"]);
    // The page is requested repeatedly, so it is drawn while the study runs.
    let page = serving.wait_for("/", "Not finished, after");
    assert!(page.contains("runc bridge"), "{page}");
    assert!(serving.get("/state").1.contains(r#""ended":false"#));
    serving.assert_refuses_foreign_requests();
    serving.wait_for("/state", r#""ended":true"#);
    let last = serving.get("/").1;
    assert!(!last.contains("Not finished"), "{last}");
    let (said, code) = serving.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the study has ended, and its page is no longer served"), "{said}");
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
}
