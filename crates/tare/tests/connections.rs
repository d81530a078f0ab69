//! How clients connect in a study, through the built program: TLS beside plain connections, a
//! system that listens for TLS alone, and attached systems with a login and certificates.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "attach/bed.rs"]
#[allow(dead_code, reason = "of the tests of attached systems, which need all of it")]
mod bed;
mod common;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use bed::{Bed, attach, json, study, wait_for_round, weigh};
use common::{run_in, stderr, stdout, tare};
use tare_cql::request::{encode_auth_response, encode_startup};
use tare_db::report::{self, Report};
use tare_testkit::cql::Connection;
use tare_testkit::database::Server;
use tare_testkit::host_state::HostState;
use tare_testkit::{Need, skipped};

const NEEDS: [Need; 4] =
    [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];

/// Returns a study of a system in a process and in a container.
fn started(system: &str, workloads: &str) -> String {
    format!(
        r#"name = "s"
baseline = "process"
[system]
name = "{system}"
[schedule]
window = "60ms"
lead_in = "20ms"
rounds = 3
rounds_min = 3
budget = "10m"
[[environment]]
name = "process"
runtime = "process"
[[environment]]
name = "runc"
runtime = "oci:runc"
network = "bridge"
{workloads}"#
    )
}

/// Whether a record has a text anywhere.
fn record_has(folder: &Path, text: &str) -> bool {
    let bytes = fs::read(folder.join("s.tare")).unwrap();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn tls_is_weighed_beside_plain_connections() {
    if skipped("tls_is_weighed_beside_plain_connections", &NEEDS) {
        return;
    }
    let bed = Bed::new();
    let before = HostState::read();
    let workloads = "[[workload]]\nname = \"read\"\nwrite_share = 0.5\nrows = 500\ntls = true\n\
                     compression = \"lz4\"\nprotocol_version = 5\nlatency_share = 0\n\
                     [[sweep]]\nworkload = \"read\"\noption = \"tls\"\nvalues = [false]\n";
    let output = weigh(bed.path(), &started("tare-db", workloads), &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
    let report = json(&stdout(&output));
    let all = report["study"]["workloads"].as_array().unwrap();
    assert_eq!((&all[0]["tls"], &all[0]["compression"]), (&true.into(), &"lz4".into()));
    assert_eq!((&all[1]["name"], all[1].get("tls")), (&"read, tls false".into(), None));
    let slices = report["slices"].as_array().unwrap();
    for name in ["read", "read, tls false"] {
        let good = slices.iter().filter(|slice| slice["workload"] == name);
        let good = good.filter(|slice| slice["operations"].as_u64() > Some(0));
        assert!(good.count() >= 9, "{name} was not measured: {report}");
    }
    assert!(!record_has(bed.path(), "PRIVATE KEY-----"), "the record has a private key");
    assert!(record_has(bed.path(), "(private key)"), "the container's configuration");
    let terminal = run_in(bed.path(), ["report", "s.tare"]);
    let text = stdout(&terminal);
    assert!(text.contains("connected with TLS, LZ4, protocol version 5"), "{text}");
    assert!(text.contains("connected with LZ4, protocol version 5"), "{text}");
    let page = fs::read_to_string(bed.path().join("s.html")).unwrap();
    assert!(page.contains("TLS, LZ4, protocol version 5"), "the page has no connections");
}

#[test]
fn redis_listens_for_tls_alone() {
    if skipped(
        "redis_listens_for_tls_alone",
        &[&NEEDS[..], &[Need::Program("redis-server")]].concat(),
    ) {
        return;
    }
    let bed = Bed::new();
    let with = "[[workload]]\nname = \"w\"\nrows = 500\ntls = true\nlatency_share = 0\n";
    let output = weigh(bed.path(), &started("redis", with), &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let slices = json(&stdout(&output))["slices"].as_array().unwrap().len();
    assert_eq!(slices, 12, "three rounds of two environments, the control and that of the runtime");
    let refused = |system: &str, workloads: &str, expect: &str| {
        let output = weigh(bed.path(), &started(system, workloads), &["-o", "refused.tare"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert_eq!(said.lines().filter(|line| line.starts_with("tare: ")).count(), 1, "{said}");
        assert!(said.contains(expect), "{expect:?} is not in {said}");
    };
    let mixed = format!("{with}[[workload]]\nname = \"plain\"\nrows = 500\n");
    refused("redis", &mixed, "weigh them in two studies");
    refused("memcached", with, "Tare starts memcached without TLS");
    refused("redis", "[[workload]]\nname = \"w\"\ncompression = \"lz4\"\n", "are of CQL");
}

/// A database of a user with TLS and a password.
struct Guarded {
    server: Server<Report>,
    certificate: PathBuf,
}

impl Guarded {
    fn start(folder: &Path) -> Self {
        let tls = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tare-db/tests/tls");
        let certificate = tls.join("certificate.pem");
        fs::write(folder.join("password"), "open sesame\n").unwrap();
        let hashed = tare()
            .args(["db", "password", "ann"])
            .stdin(fs::File::open(folder.join("password")).unwrap())
            .output()
            .unwrap();
        fs::write(folder.join("users"), hashed.stdout).unwrap();
        let data = folder.join("data");
        let mut command = tare();
        command.args(["db", "--port", "0", "--smp", "1", "--overprovisioned", "yes", "--data"]);
        command.arg(&data).arg("--auth-file").arg(folder.join("users"));
        command.arg("--tls-cert").arg(&certificate).arg("--tls-key").arg(tls.join("key.pem"));
        // The test looks into it without TLS.
        command.arg("--tls-optional");
        let server = Server::start(command, &data.join(report::FILE), report::read).unwrap();
        Self { server, certificate }
    }

    /// Returns a study attached to it.
    fn study(&self, access: &str) -> String {
        let target = format!("pid = {}", self.server.child.id());
        let text = study("tare-db", &attach("mine", &target, self.server.report.port));
        text.replace("rows = 500\n", "rows = 500\nconnections = 1\ntls = true\n") + access
    }

    fn access(&self, password: &str) -> String {
        format!("[access]\nusername = \"ann\"\n{password}\ntls_ca = {:?}\n", self.certificate)
    }

    /// Returns the names of its keyspaces.
    fn keyspaces(&self) -> Vec<Vec<u8>> {
        let mut client = Connection::open((Ipv4Addr::LOCALHOST, self.server.report.port)).unwrap();
        let version = [("CQL_VERSION", tare_cql::CQL_VERSION)];
        client.ask(|out| encode_startup(out, 0, &version)).unwrap();
        client.ask(|out| encode_auth_response(out, 0, Some(b"\0ann\0open sesame"))).unwrap();
        client.keyspaces()
    }
}

#[test]
fn login_and_certificates_of_an_attached_system_are_used_and_not_recorded() {
    let test = "login_and_certificates_of_an_attached_system_are_used_and_not_recorded";
    if skipped(test, &[Need::Root, Need::Program("nft"), Need::Program("ip")]) {
        return;
    }
    let bed = Bed::new();
    let guarded = Guarded::start(bed.path());
    let before = guarded.keyspaces();
    let by_file = guarded.access("password_file = \"password\"");
    let output = weigh(bed.path(), &guarded.study(&by_file), &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(guarded.keyspaces(), before);
    let report = json(&stdout(&output));
    assert_eq!(report["study"]["access"]["login"]["password"]["file"], "password", "{report}");
    assert!(!record_has(bed.path(), "open sesame"), "the record has the password");
    let refused = |access: &str, expect: &str| {
        let output = weigh(bed.path(), &guarded.study(access), &["-o", "refused.tare"]);
        let said = stderr(&output);
        assert!(!output.status.success(), "{access} is accepted");
        assert_eq!(said.lines().filter(|line| line.starts_with("tare: ")).count(), 1, "{said}");
        assert!(said.contains(expect), "{expect:?} is not in {said}");
        assert!(!said.contains("open barley"), "{said}");
    };
    fs::write(bed.path().join("wrong"), "open barley\n").unwrap();
    refused(&guarded.access("password_file = \"wrong\""), "refused the login of \"ann\"");
    refused(&guarded.access("password_file = \"none\""), "cannot read the password in none");
    refused(&guarded.access("password_variable = \"TARE_NONE\""), "variable TARE_NONE");
    let other = format!("{by_file}tls_name = \"db.invalid\"\n");
    refused(&other, "certificate");
    assert_eq!(guarded.keyspaces(), before);
}

#[test]
fn clean_after_kill_logs_in_to_remove_the_rows() {
    let test = "clean_after_kill_logs_in_to_remove_the_rows";
    if skipped(test, &[Need::Root, Need::Program("nft"), Need::Program("ip")]) {
        return;
    }
    let bed = Bed::new();
    let guarded = Guarded::start(bed.path());
    let before = guarded.keyspaces();
    let text = guarded.study(&guarded.access("password_file = \"password\""));
    let mut child = bed.start_long(&text);
    let _output = wait_for_round(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(guarded.keyspaces(), before, "the load has left no rows");
    let state = bed.path().join("state");
    let journals = Command::new("grep").args(["-r", "open sesame"]).arg(&state).output().unwrap();
    assert!(journals.stdout.is_empty(), "a journal has the password: {}", stdout(&journals));
    let clean = run_in(bed.path(), ["clean", "--state", state.to_str().unwrap()]);
    assert!(clean.status.success(), "{}{}", stdout(&clean), stderr(&clean));
    assert_eq!(guarded.keyspaces(), before);
}
