//! `tare tune flags --from` as a user runs it: a container of a real engine, whose changed command
//! really runs and has the flags in force; compose files and units; and bad input.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};

mod common;

use common::{run_in, stderr, stdout};
use rustix::net::sockopt::socket_peercred;
use serde_json::Value;
use tare_testkit::{Machine, Need, Reason, skip, skipped};

fn flags(directory: &Path, arguments: &[&str]) -> Output {
    run_in(directory, ["tune", "flags"].iter().chain(arguments))
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

/// Skips the test where the host exposes no CPU topology.
fn no_topology(test: &str, directory: &Path) -> bool {
    let missing = stderr(&flags(directory, &["--for", "tare-db"]))
        .contains("does not report the CPU topology");
    if missing {
        skip(test, Machine::NoCpuTopology);
    }
    missing
}

/// A container of a user and its image, removed at the end.
struct Container {
    engine: &'static str,
    name: String,
    image: String,
}

impl Container {
    fn run_engine(&self, arguments: &[&str]) -> String {
        let output = Command::new(self.engine).args(arguments).output().unwrap();
        assert!(output.status.success(), "{} {arguments:?}: {}", self.engine, stderr(&output));
        stdout(&output).trim().to_string()
    }

    fn inspect(&self) -> Value {
        let text = self.run_engine(&["inspect", &self.name]);
        let found: Value = serde_json::from_str(&text).unwrap();
        found[0].clone()
    }

    /// Removes the container and makes it again by a command of a shell.
    fn make_again(&self, command: &str) {
        self.run_engine(&["rm", "--force", &self.name]);
        let mut bash = Command::new("bash");
        let output = bash.args(["-c", command]).env("DB_PASSWORD", "hunter2").output().unwrap();
        assert!(output.status.success(), "{}\n{command}", stderr(&output));
    }
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

/// Imports an image with only the program, and runs the database in it with options of a user.
fn start(engine: &'static str, folder: &Path) -> Container {
    let root = folder.join("root");
    for directory in ["data", "proc", "sys", "dev", "tmp", "etc"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::copy(env!("CARGO_BIN_EXE_tare"), root.join("tare")).unwrap();
    let archive = folder.join("image.tar");
    let mut tar = Command::new("tar");
    assert!(tar.arg("-cf").arg(&archive).arg("-C").arg(&root).arg(".").status().unwrap().success());
    let name = format!("tare-from-{}-{engine}", std::process::id());
    let image = format!("localhost/{name}/tare:test");
    let container = Container { engine, name, image };
    container.run_engine(&["import", archive.to_str().unwrap(), &container.image]);
    let data = format!("{}:/data", folder.join("data").display());
    fs::create_dir_all(folder.join("data")).unwrap();
    let name = format!("--name={}", container.name);
    let own = [
        "run",
        "--detach",
        &name,
        "--publish=127.0.0.1:19143:9042",
        "--cpus=1",
        "--memory=512m",
        "--env=DB_PASSWORD=hunter2",
        "--env=MODE=a b",
        "--label=team=the database's",
        "--volume",
        &data,
        "--tmpfs=/scratch:size=1m",
        "--ulimit=nofile=2000:4000",
        "--ulimit=nproc=4000:4000",
        "--sysctl=net.core.somaxconn=1024",
        "--cap-add=SYS_NICE",
        "--oom-score-adj=100",
        "--stop-timeout=5",
        "--add-host=seed:10.0.0.1",
        "--hostname=db1",
    ];
    let words = [
        "/tare",
        "db",
        "--data=/data",
        "--listen=127.0.0.1",
        "--port=19142",
        "--memory=64M",
        "--smp",
        "1",
    ];
    // Podman does not tell sysctls.
    let own = own.iter().copied().filter(|option| engine == "docker" || !option.contains("sysctl"));
    let own: Vec<&str> = own.collect();
    container.run_engine(&[&own[..], &[container.image.as_str()], &words].concat());
    container
}

/// Whether an engine of the tests answers. Podman's client without a service would create
/// containers in the host's own storage.
fn has_engine(engine: &str, test: &str) -> bool {
    let variable = if engine == "docker" { "DOCKER_HOST" } else { "CONTAINER_HOST" };
    let answers = std::env::var_os(variable).is_some()
        && Command::new(engine).arg("info").output().is_ok_and(|output| output.status.success());
    if !answers {
        skip(test, Reason::not_installed(format!("a {engine} that answers")));
    }
    answers
}

/// Returns the network namespace of the engine's process.
fn network_of_engine(engine: &str) -> String {
    let variable = if engine == "docker" { "DOCKER_HOST" } else { "CONTAINER_HOST" };
    let socket = std::env::var(variable).unwrap();
    let stream = UnixStream::connect(socket.strip_prefix("unix://").unwrap()).unwrap();
    let pid = socket_peercred(&stream).unwrap().pid.as_raw_nonzero();
    fs::read_link(format!("/proc/{pid}/ns/net")).unwrap().display().to_string()
}

/// The configuration of a container without what differs for every container.
fn configuration(inspected: &Value) -> (Value, Value) {
    let (mut host, mut own) = (inspected["HostConfig"].clone(), inspected["Config"].clone());
    let sorted = |list: &mut Value| {
        if let Some(items) = list.as_array_mut() {
            items.sort_by_key(Value::to_string);
        }
    };
    sorted(&mut own["Env"]);
    sorted(&mut host["Ulimits"]);
    // How the command was written, which Podman keeps.
    own["CreateCommand"] = Value::Null;
    // A file of the container, and the time of its creation, with Podman.
    host["LogConfig"]["Path"] = Value::Null;
    for part in [&mut host, &mut own] {
        part["Annotations"]["io.kubernetes.cri-o.Created"] = Value::Null;
    }
    (host, own)
}

fn check_container(engine: &'static str, test: &str) {
    let needs = [Need::Root, Need::Program(engine), Need::Program("bash"), Need::Program("tar")];
    if skipped(test, &needs) || !has_engine(engine, test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    if no_topology(test, folder.path()) {
        return;
    }
    let container = start(engine, folder.path());
    let before = container.inspect();
    let from = format!("{engine}:{}", container.name);
    let output = flags(folder.path(), &["--from", &from]);
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for part in [
        "--network=host",
        "-  --cpus=1 \\",
        "--publish: 127.0.0.1:19143:9042 -> none",
        "moby #7857",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let found = json(&flags(folder.path(), &["--from", &from, "--json"]));
    assert!(!text.contains("hunter2") && !found.to_string().contains("hunter2"), "{text}");
    // Nothing was started, stopped or changed.
    assert_eq!(container.inspect()["State"], before["State"]);
    // The command as it is now makes the same container.
    container.make_again(found["now"].as_str().unwrap());
    assert_eq!(configuration(&container.inspect()), configuration(&before), "{}", found["now"]);
    // The changed command runs, with the flags in force.
    container.make_again(found["wanted"].as_str().unwrap());
    let made = container.inspect();
    let pid = made["State"]["Pid"].as_u64().unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let change = |place: &str| {
        let changes = found["changes"].as_array().unwrap();
        let change = changes.iter().find(|change| change["place"] == place).unwrap();
        change["wanted"].as_str().unwrap().to_string()
    };
    assert_eq!(allowed.unwrap().trim(), change("--cpuset-cpus"), "{status}");
    let network = fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    assert_eq!(network.display().to_string(), network_of_engine(engine));
    assert_eq!(made["HostConfig"]["Memory"], before["HostConfig"]["Memory"]);
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let wanted = change("--ulimit");
    assert_eq!(
        files.split_whitespace().nth(3),
        wanted.strip_prefix("nofile=").and_then(|w| w.split(':').next())
    );
    assert_eq!(configuration(&made).1["Env"], configuration(&before).1["Env"]);
    // With the flags in force there is nothing to change.
    let again = json(&flags(folder.path(), &["--from", &from, "--json"]));
    assert_eq!(again["changes"], serde_json::json!([]), "{again}");
    drop(container);
}

#[test]
fn the_changed_command_of_a_docker_container_runs() {
    check_container("docker", "the_changed_command_of_a_docker_container_runs");
}

#[test]
fn the_changed_command_of_a_podman_container_runs() {
    check_container("podman", "the_changed_command_of_a_podman_container_runs");
}

#[test]
fn the_drop_in_of_a_unit_is_a_diff() {
    let folder = tempfile::tempdir().unwrap();
    let host = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hosts/recorded/i3.8xlarge");
    let unit = "[Service]\nExecStart=/usr/bin/cassandra\nCPUQuota=400%\n";
    fs::write(folder.path().join("shop-db.service"), unit).unwrap();
    let output = flags(folder.path(), &["--from", "shop-db.service", "--snapshot", host]);
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    let head = "--- /dev/null\n+++ /etc/systemd/system/shop-db.service.d/tare.conf\n";
    for part in [
        head,
        "+AllowedCPUs=",
        "+LimitMEMLOCK=infinity\n",
        "+CPUQuota=\n",
        "CPUQuota: 400% -> none",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(folder.path().join("unit.diff"), &text).unwrap();
    if !tare_testkit::skipped("the drop-in of a unit is applied", &[Need::Program("patch")]) {
        let mut patch = Command::new("patch");
        patch.args(["-p1", "-i", "../unit.diff"]).current_dir(&root);
        let output = patch.output().unwrap();
        assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
        let made = root.join("etc/systemd/system/shop-db.service.d/tare.conf");
        assert!(fs::read_to_string(made).unwrap().starts_with("[Service]\nAllowedCPUs="));
    }
}

#[test]
fn bad_input_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let host = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hosts/recorded/i3.8xlarge");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("two.yaml", "services:\n  a: {image: redis}\n  b: {image: redis}\n");
    write("large.yaml", "services:\n  a: {image: redis, cpus: 64}\n");
    write("none.service", "[Unit]\nDescription=x\n");
    write("wide.service", "[Service]\nCPUQuota=6400%\n");
    let refused = |arguments: &[&str], code: i32, reason: &str| {
        let output = flags(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stderr(&output).trim().lines().count(), 1, "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    };
    let on_host = |from: &str, more: &[&str], code: i32, reason: &str| {
        refused(&[&["--snapshot", host, "--from", from], more].concat(), code, reason);
    };
    on_host(
        "two.yaml",
        &[],
        3,
        "two.yaml has the services a, b; choose the database's with --object SERVICE",
    );
    on_host("two.yaml", &["--object", "c"], 3, "two.yaml has no service c: it has a, b");
    on_host("two.yaml", &["--object", "a", "--container", "x"], 2, "a compose file has services");
    on_host("two.yaml", &["--for", "docker", "--object", "a"], 2, "choose in a manifest");
    on_host("large.yaml", &[], 1, "service a: it needs 64 CPUs of its own, but this host has 30");
    on_host("missing.yaml", &[], 3, "cannot read missing.yaml");
    on_host("none.service", &[], 3, "none.service has no section [Service]");
    on_host("wide.service", &[], 1, "it needs 64 CPUs of its own");
    on_host("docker:db", &[], 2, "leave --snapshot out");
    refused(&["--from", "container:db"], 2, "--from docker:db or podman:db");
    refused(&["--from", "docker:"], 2, "--from docker:NAME");
    refused(&["--from", "unit:x.service", "--object", "x"], 2, "leave them out");
    refused(&["--from", "docker:db", "--for", "compose"], 2, "leave --for out");
    refused(&["--from", "docker:db", "--image", "x"], 2, "leave --image out");
    refused(
        &["--from", "docker:a", "--from", "docker:b"],
        2,
        "at most one record and one manifest",
    );
    refused(&[], 2, "give --for CONSUMER, or --from");
    if no_topology("bad_input_is_one_line", folder.path()) {
        return;
    }
    refused(&["--from", "unit:tare-no-such.service"], 3, "has no unit tare-no-such.service");
    refused(&["--from", "unit:redis"], 3, "write unit:NAME.service");
    let output = Command::new(env!("CARGO_BIN_EXE_tare"))
        .args(["tune", "flags", "--from", "docker:db"])
        .env("DOCKER_HOST", "unix:///nonexistent/docker.sock")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains("there is no socket"), "{}", stderr(&output));
    let test = "a container that an engine does not have";
    if has_engine("docker", test) {
        refused(&["--from", "docker:tare-none"], 3, "docker has no container tare-none");
    }
}
