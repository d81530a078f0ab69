//! `tare tune flags` as a user runs it: the flags for this host, the seccomp profile, and a docker
//! container started by the printed script.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

mod common;

use common::{run_in, stderr, stdout};
use tare_testkit::{Machine, Need, Reason, skip, skipped};

const CONSUMERS: [&str; 10] = [
    "docker",
    "podman",
    "nerdctl",
    "compose",
    "kubernetes",
    "quadlet",
    "systemd",
    "scylla",
    "cassandra",
    "tare-db",
];

fn flags(directory: &Path, arguments: &[&str]) -> Output {
    run_in(directory, ["tune", "flags"].iter().chain(arguments))
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

/// Skips the test where the host exposes no CPU topology.
fn no_topology(test: &str, directory: &Path) -> bool {
    let output = flags(directory, &["--for", "tare-db"]);
    let missing = stderr(&output).contains("does not report the CPU topology");
    if missing {
        tare_testkit::skip(test, Machine::NoCpuTopology);
    }
    missing
}

#[test]
fn every_consumer_gets_flags_of_this_host() {
    let folder = tempfile::tempdir().unwrap();
    if no_topology("every_consumer_gets_flags_of_this_host", folder.path()) {
        return;
    }
    for consumer in CONSUMERS {
        let image = ["--image", "postgres:18", "--for", consumer];
        let flags = json(&flags(folder.path(), &[&image[..], &["--json"]].concat()));
        assert_eq!(flags["consumer"], consumer);
        assert_eq!(flags["instances"].as_array().unwrap().len(), 1);
        assert!(flags["instances"][0]["texts"][0]["body"].as_str().unwrap().len() > 20);
    }
}

#[test]
fn invalid_arguments_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    if no_topology("invalid_arguments_are_refused", folder.path()) {
        return;
    }
    let refused = |arguments: &[&str], code: i32, reason: &str| {
        let output = flags(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    };
    refused(&["--for", "lxc"], 2, "docker, podman");
    refused(&["--for", "docker", "--image", "a;reboot"], 2, "is not an image name");
    refused(&["--for", "docker", "--instances", "4000"], 1, "use at most");
    refused(&["--for", "docker", "--from", "missing.tare"], 3, "missing.tare");
}

const MANIFEST: &str = "\
# The comments stay.
apiVersion: v1
kind: Pod
metadata: {name: db}
spec:
  restartPolicy: Always  # as ever
  containers:
  - name: db
    image: scylladb/scylla:6.2.0
    resources:
      limits: {cpu: 3500m, memory: 16Gi}
";

/// Returns the arguments for a manifest on a recorded host with 16 cores.
fn manifest_arguments<'a>(file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let host = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hosts/recorded/i3.8xlarge");
    [&["--for", "kubernetes", "--snapshot", host, "--from", file], more].concat()
}

#[test]
fn the_diff_of_a_manifest_applies_and_leaves_nothing_to_change() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pod.yaml");
    fs::write(&file, MANIFEST).unwrap();
    let output = flags(folder.path(), &manifest_arguments("pod.yaml", &[]));
    let diff = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for line in [
        "--- pod.yaml\n+++ pod.yaml\n",
        "+  hostNetwork: true\n",
        "+      limits: {cpu: \"4\", memory: 16Gi}\n",
        "+      - \"--smp=4\"\n",
    ] {
        assert!(diff.contains(line), "{line}: {diff}");
    }
    fs::write(folder.path().join("pod.diff"), &diff).unwrap();
    let git = Command::new("git")
        .args(["apply", "-p0", "pod.diff"])
        .env("GIT_CEILING_DIRECTORIES", folder.path().parent().unwrap())
        .current_dir(folder.path())
        .output();
    let git = git.unwrap();
    assert!(git.status.success(), "{}", stderr(&git));
    let changed = fs::read_to_string(&file).unwrap();
    assert!(
        changed.starts_with("# The comments stay.\n") && changed.contains("Always  # as ever\n")
    );
    let again = json(&flags(folder.path(), &manifest_arguments("pod.yaml", &["--json"])));
    assert_eq!((&again["diff"], again["changes"].as_array().unwrap().len()), (&"".into(), 0));
}

#[test]
fn a_manifest_is_read_from_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tare"))
        .args(["tune", "flags"])
        .args(manifest_arguments("-", &["--json"]))
        .current_dir(folder.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), MANIFEST.as_bytes()).unwrap();
    let found = json(&child.wait_with_output().unwrap());
    assert_eq!((&found["object"], &found["file"]), (&"Pod/db".into(), &"pod.yaml".into()));
}

#[test]
fn manifests_that_cannot_be_read_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| fs::write(folder.path().join(name), text).unwrap();
    write("two.yaml", b"kind: Pod\nmetadata: {name: a}\n---\nkind: Pod\nmetadata: {name: b}\n");
    write("broken.yaml", b"kind: [");
    write("binary.yaml", &[0xff, 0xfe]);
    write("pod.yaml", MANIFEST.as_bytes());
    write("large.yaml", MANIFEST.replace("3500m", "99").as_bytes());
    let refused = |file: &str, more: &[&str], code: i32, reason: &str| {
        let output = flags(folder.path(), &manifest_arguments(file, more));
        assert_eq!(output.status.code(), Some(code), "{file} {more:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
        assert_eq!(stderr(&output).trim().lines().count(), 1, "{}", stderr(&output));
    };
    refused("two.yaml", &[], 3, "Pod/a, Pod/b; choose one with --object KIND/NAME");
    refused("two.yaml", &["--object", "Pod/c"], 3, "has no object Pod/c");
    refused("broken.yaml", &[], 3, "cannot read broken.yaml as YAML");
    refused("binary.yaml", &[], 3, "cannot read binary.yaml");
    refused("missing.yaml", &[], 3, "cannot read missing.yaml");
    refused("large.yaml", &[], 1, "asks for 100 CPUs, but this node has 30 for pods");
    refused("pod.yaml", &["--container", "x"], 3, "has no container x: it has db");
    refused("pod.yaml", &["--image", "postgres"], 2, "leave --image out");
    refused("pod.yaml", &["--from", "two.yaml"], 2, "at most one record and one manifest");
    let docker = flags(folder.path(), &["--for", "docker", "--from", "-"]);
    assert_eq!(docker.status.code(), Some(2), "{}", stderr(&docker));
}

#[test]
fn a_profile_has_the_format_of_its_engine_and_replaces_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    if no_topology(
        "a_profile_has_the_format_of_its_engine_and_replaces_no_other_file",
        folder.path(),
    ) {
        return;
    }
    let profile = |consumer: &str, file: &str| -> serde_json::Value {
        let output = flags(folder.path(), &["--for", consumer, "--seccomp", file]);
        assert!(output.status.success(), "{}", stderr(&output));
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let allows = |profile: &serde_json::Value, call: &str| {
        let rules = profile["syscalls"].as_array().unwrap();
        let named = |rule: &&serde_json::Value| {
            rule["names"].as_array().unwrap().iter().any(|name| name == call)
        };
        rules.iter().filter(named).any(|rule| rule["action"] == "SCMP_ACT_ALLOW")
    };
    let moby = profile("docker", "moby.json");
    assert!(allows(&moby, "io_uring_setup") && !moby["archMap"].is_null());
    // Conditions on capabilities are resolved: what only CAP_SYS_ADMIN may do is not in it.
    let oci = profile("nerdctl", "oci.json");
    assert!(allows(&oci, "io_uring_enter") && allows(&oci, "mbind") && !allows(&oci, "mount"));
    assert!(oci["archMap"].is_null() && oci["architectures"].is_array());
    // Writing the same profile again changes nothing; another file is kept.
    profile("docker", "moby.json");
    fs::write(folder.path().join("mine"), "precious").unwrap();
    let output = flags(folder.path(), &["--for", "docker", "--seccomp", "mine"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(folder.path().join("mine")).unwrap(), "precious");
}

/// A container and its image, removed at the end.
struct Container {
    engine: &'static str,
    name: String,
    image: String,
}

impl Drop for Container {
    fn drop(&mut self) {
        for arguments in
            [["rm", "--force", self.name.as_str()], ["rmi", "--force", self.image.as_str()]]
        {
            let _removed = Command::new(self.engine).args(arguments).output();
        }
    }
}

/// Runs the engine and returns its trimmed output.
fn run_engine(engine: &str, arguments: &[&str]) -> String {
    let output = Command::new(engine).args(arguments).output().unwrap();
    assert!(output.status.success(), "{engine} {arguments:?}: {}", stderr(&output));
    stdout(&output).trim().to_string()
}

/// Creates an image with only the program, runs the printed script, and reads back the limits in
/// force.
fn check_flags_in_force(engine: &'static str, test: &str) {
    let wanted = [Need::Root, Need::Program(engine), Need::Program("bash"), Need::Program("tar")];
    if skipped(test, &wanted) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    if no_topology(test, folder.path()) {
        return;
    }
    // Podman's client without a service would create containers in the host's own storage.
    let variable = if engine == "docker" { "DOCKER_HOST" } else { "CONTAINER_HOST" };
    let answers = std::env::var_os(variable).is_some()
        && Command::new(engine).arg("info").output().is_ok_and(|output| output.status.success());
    if !answers {
        return skip(test, Reason::not_installed(format!("a {engine} that answers")));
    }
    let root = folder.path().join("root");
    for directory in ["data", "proc", "sys", "dev", "tmp", "etc"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::copy(env!("CARGO_BIN_EXE_tare"), root.join("tare")).unwrap();
    let archive = folder.path().join("image.tar");
    let packed =
        Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&root).arg(".").status();
    assert!(packed.unwrap().success());
    let image = format!("tare-flags-{}/tare:test", std::process::id());
    // A unique name.
    let name = format!("tare-flags-{}-{engine}", std::process::id());
    let container = Container { engine, name: name.clone(), image: image.clone() };
    run_engine(engine, &["import", archive.to_str().unwrap(), &image]);

    let image = if engine == "podman" { format!("localhost/{image}") } else { image };
    let extra = ["--for", engine, "--image", &image, "--cpus", "1", "--memory", "512M"];
    let output = flags(folder.path(), &[&extra[..], &["--seccomp", "profile.json"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    // The script is run unchanged except for the data directory, the name and the port.
    let script = stdout(&output)
        .replace("/srv/tare-db:", &format!("{}:", data.display()))
        .replace("--name=tare-db", &format!("--name={name}"))
        .replace("--port=9042", "--port=19042");
    let path = folder.path().join("run.sh");
    fs::write(&path, &script).unwrap();
    let ran = Command::new("bash").arg(&path).output().unwrap();
    assert!(ran.status.success(), "{}\n{script}", stderr(&ran));

    let inspect = |format: &str| run_engine(engine, &["inspect", "--format", format, &name]);
    let pid = inspect("{{.State.Pid}}");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let log = run_engine(engine, &["logs", &name]);
    let line = |key: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        found.trim().to_string()
    };
    assert_eq!(line("Cpus_allowed_list:"), "1", "{status}\n{log}");
    assert_eq!(line("Seccomp:"), "2", "{status}");
    assert_eq!(inspect("{{.HostConfig.NetworkMode}}"), "host");
    assert_eq!(inspect("{{.HostConfig.Memory}}"), (512 << 20).to_string());
    assert_eq!(inspect("{{.HostConfig.Privileged}}"), "false");
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let wanted = script.lines().find_map(|line| line.trim().strip_prefix("--ulimit=nofile="));
    let (soft, _) = wanted.unwrap().split_once(':').unwrap();
    assert_eq!(files.split_whitespace().nth(3), Some(soft), "{files}");
    drop(container);
}

#[test]
fn a_docker_container_has_the_flags_in_force() {
    check_flags_in_force("docker", "a_docker_container_has_the_flags_in_force");
}
