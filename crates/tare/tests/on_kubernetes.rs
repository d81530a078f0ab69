//! `--on kubernetes:NODE`: a command runs on the node of a real cluster as it does here, its files
//! come back, and nothing stays there, however it ends.
//!
//! `scripts/kubernetes` starts a cluster of one node, or of two. The node has namespaces of its
//! own, so each test runs again in a process in its network namespace.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
#![allow(clippy::print_stderr, reason = "each kill and each refusal")]

#[path = "on_kubernetes/attached.rs"]
mod attached;
mod common;
#[path = "on_kubernetes/daemon.rs"]
mod daemon;
#[path = "on_kubernetes/hosts.rs"]
mod hosts;
#[path = "on_kubernetes/image.rs"]
mod image;
#[path = "on_kubernetes/kills.rs"]
mod kills;
#[path = "on_kubernetes/loaders.rs"]
mod loaders;
#[path = "on_kubernetes/operators.rs"]
mod operators;
#[path = "on_kubernetes/rights.rs"]
mod rights;
#[path = "on_kubernetes/selected.rs"]
mod selected;
#[path = "on_kubernetes/server.rs"]
mod server;

use std::fs;
use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use common::{stderr, stdout, tare};
use serde_json::Value;
use tare_kube::{Access, Cluster, Streams};
use tare_testkit::kubernetes::{alone_on_node, answer, request};
use tare_testkit::{Need, skipped};
use tempfile::TempDir;

/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

const STUDY: &str = "name = \"small\"\nbaseline = \"native\"\n\
     [system]\nname = \"tare-db\"\noverprovisioned = \"yes\"\n\
     [schedule]\nwindow = \"100ms\"\nrounds = ROUNDS\nrounds_min = 1\nstop_width_percent = 0\n\
     budget = \"10m\"\nseed = 1\n\
     [[environment]]\nname = \"native\"\nruntime = \"process\"\n\
     [[environment]]\nname = \"box\"\nruntime = \"oci:runc\"\n\
     [[workload]]\nname = \"w\"\nrows = 1000\nlatency_share = 0\n";

/// The cluster, its node, and a directory here.
struct Case {
    cluster: Cluster,
    node: String,
    here: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Case {
    /// Returns the cluster if a test must go on in this process, which is in the node's network
    /// namespace. Otherwise it has passed in a process there, or it was skipped.
    fn start(test: &str) -> Option<Self> {
        let alone = alone_on_node(test)?;
        if skipped(test, &[Need::Program("runc")]) {
            return None;
        }
        let cluster = Cluster::connect(&Access::find().unwrap()).unwrap();
        let node = cluster.node_here().unwrap().name;
        // Sockets need a short path.
        let here = tempfile::Builder::new().prefix("k").tempdir_in("/tmp").unwrap();
        Some(Self { cluster, node, here, _alone: alone })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = tare();
        command.arg("--state").arg(self.here.path().join("state")).args(words);
        command.args(["--on", &format!("kubernetes:{}", self.node)]);
        command.current_dir(self.here.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn study(&self, rounds: u32) {
        let text = STUDY.replace("ROUNDS", &rounds.to_string());
        fs::write(self.here.path().join("small.toml"), text).unwrap();
    }

    /// Writes a study with a pod, in addition to that of `study`.
    fn study_with_pod(&self, rounds: u32) {
        let pod = "runtime = \"oci:runc\"\n[[environment]]\nname = \"pod\"\nruntime = \"kubernetes\"\n\
                   network = \"host\"\ncgroup = \"own\"\n";
        let text = STUDY.replace("ROUNDS", &rounds.to_string());
        let text = text.replace("runtime = \"oci:runc\"\n", pod);
        fs::write(self.here.path().join("small.toml"), text).unwrap();
    }

    /// Returns what `report` says of a record here.
    fn record(&self, file: &str) -> Value {
        let mut report = tare();
        report.args(["report", file, "--json"]).current_dir(self.here.path());
        let reported = report.output().unwrap();
        assert!(reported.status.success(), "{}", stderr(&reported));
        serde_json::from_str(&stdout(&reported)).unwrap()
    }

    /// Checks that a record has slices of the pod.
    fn assert_pod_measured(&self, record: &str, said: &str) {
        let record = self.record(record);
        let slices = record["slices"].as_array().unwrap();
        let good = |slice: &&Value| slice["environment"] == "pod" && slice["void"].is_null();
        assert!(slices.iter().filter(good).count() >= 1, "{said}");
    }

    /// Runs a command that knows no node, with the state directory of this one.
    fn run_here(&self, words: &[&str]) -> Output {
        let mut command = tare();
        command.arg("--state").arg(self.here.path().join("state")).args(words);
        command.current_dir(self.here.path()).stdin(Stdio::null()).output().unwrap()
    }

    /// Weighs here with this access, or with the administrator's, which is refused. Returns the
    /// exit code and what was printed.
    fn refused_weigh(&self, access: Option<&std::path::Path>) -> (Option<i32>, String) {
        let mut command = tare();
        command.arg("--state").arg(self.here.path().join("state")).args(["weigh", "small.toml"]);
        if let Some(access) = access {
            command.env("KUBECONFIG", access);
        }
        let weighed = command.current_dir(self.here.path()).stdin(Stdio::null()).output().unwrap();
        let said = stderr(&weighed);
        assert!(!weighed.status.success(), "{said}");
        (weighed.status.code(), said)
    }

    fn assert_clean(&self) {
        let left = [self.cluster.namespaces_of_runs(), self.cluster.roles_of_runs()];
        assert_eq!(left.map(Result::unwrap), [Vec::<String>::new(), Vec::new()]);
    }
}

#[test]
fn study_runs_on_the_node_and_leaves_nothing() {
    let Some(case) = Case::start("study_runs_on_the_node_and_leaves_nothing") else { return };
    case.study(2);
    let weighed = case.run(&["weigh", "small.toml", "-o", "small.tare"]);
    assert!(weighed.status.success(), "{}", stderr(&weighed));
    assert!(stderr(&weighed).contains(&format!("on kubernetes:{}: connected in", case.node)));
    case.assert_clean();
    let record = case.record("small.tare");
    let slices = record["slices"].as_array().unwrap();
    let measured = |name: &str| {
        let good = |slice: &&Value| slice["environment"] == name && slice["void"].is_null();
        slices.iter().filter(good).count()
    };
    assert!(measured("native") >= 1 && measured("box") >= 1, "{}", stderr(&weighed));
    // Exit codes and errors are those of the command there.
    let refused = case.run(&["list", "spaceships"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let planned = case.run(&["weigh", "small.toml", "--dry-run"]);
    assert!(stdout(&planned).contains("oci:runc"), "{}{}", stdout(&planned), stderr(&planned));
    let cleaned = case.run(&["clean", "--programs"]);
    assert!(stdout(&cleaned).contains("a copy of Tare"), "{}", stdout(&cleaned));
    case.assert_clean();
}

/// What runs on the node has nothing of the pod through which it came.
#[test]
fn programs_on_the_node_leave_the_pod() {
    let Some(case) = Case::start("programs_on_the_node_leave_the_pod") else { return };
    let run = format!("{:08x}", std::process::id());
    let namespace = format!("tare-{run}-n0");
    let access = Access::find().unwrap();
    let made = case.cluster.create_node_pod(&access, &namespace, &run, &case.node, None);
    let said = made.map_err(|error| error.to_string()).and_then(|pod| {
        let (stdin, nothing) = std::io::pipe().unwrap();
        drop(nothing);
        let ((mut output, stdout), (_errors, stderr)) =
            (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let look =
            "cat /proc/self/oom_score_adj /proc/self/cgroup; readlink /proc/self/ns/mnt; exit 7";
        let streams = Streams { stdin, stdout, stderr };
        let process = pod.start("sh", &["-c", look], streams).map_err(|error| error.to_string())?;
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        Ok((text, process.wait(None).map_err(|error| error.to_string())?))
    });
    case.cluster.delete_namespace(&namespace, &run).unwrap();
    let (text, code) = said.unwrap();
    assert_eq!(code, Some(7), "{text}");
    assert_eq!(text.lines().next(), Some("0"), "{text}");
    assert!(!text.contains("kubepods"), "{text}");
    case.assert_clean();
}

#[test]
fn killed_command_leaves_what_clean_removes() {
    let Some(case) = Case::start("killed_command_leaves_what_clean_removes") else { return };
    case.study(100_000);
    let errors = case.here.path().join("said");
    let mut command = case.command(&["weigh", "small.toml"]);
    command.stderr(fs::File::create(&errors).unwrap());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    // The line of the second round comes after the slices of the first, and then all is there.
    loop {
        let said = fs::read_to_string(&errors).unwrap();
        assert!(began.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "{said}");
        if said.lines().filter(|line| line.starts_with("round")).count() >= 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(case.cluster.namespaces_of_runs().unwrap().len(), 1);
    let mut clean = tare();
    clean.arg("--state").arg(case.here.path().join("state")).arg("clean");
    let cleaned = clean.output().unwrap();
    assert!(cleaned.status.success(), "{}{}", stdout(&cleaned), stderr(&cleaned));
    case.assert_clean();
    // The run there ends by itself, and its record is brought.
    let began = Instant::now();
    loop {
        let cleaned = case.run(&["clean", "--programs"]);
        assert!(cleaned.status.success(), "{}{}", stdout(&cleaned), stderr(&cleaned));
        if stdout(&cleaned).contains("its files are here now") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{}", stdout(&cleaned));
        std::thread::sleep(Duration::from_secs(1));
    }
    let records = fs::read_dir(case.here.path()).unwrap().flatten();
    let records = records.filter(|one| one.path().extension().is_some_and(|e| e == "tare"));
    assert_eq!(records.count(), 1);
    case.assert_clean();
}

/// The command on the node gets an account of its own.
#[test]
fn pods_are_weighed_on_the_node() {
    let Some(case) = Case::start("pods_are_weighed_on_the_node") else { return };
    case.study_with_pod(2);
    // It is sent no access of the user's.
    let weighed = case.run(&["weigh", "small.toml", "-o", "small.tare"]);
    assert!(weighed.status.success(), "{}", stderr(&weighed));
    case.assert_clean();
    case.assert_pod_measured("small.tare", &stderr(&weighed));
    case.run(&["clean", "--programs"]);
}

/// The account of a detached run stays until its files are here, and no longer. The pod through
/// which it was started goes with the command.
#[test]
fn detached_study_has_its_account_until_it_is_fetched() {
    let test = "detached_study_has_its_account_until_it_is_fetched";
    let Some(case) = Case::start(test) else { return };
    if skipped(test, &[Need::Program("curl")]) {
        return;
    }
    case.study_with_pod(2);
    let node = format!("kubernetes:{}", case.node);
    for fetch in [&["attach", &node][..], &["clean", "--on", &node]] {
        let detached = case.run(&["weigh", "small.toml", "-o", "small.tare", "--detach"]);
        assert!(detached.status.success(), "{}", stderr(&detached));
        assert!(stdout(&detached).contains("goes on at"), "{}", stdout(&detached));
        let cleaned = case.run_here(&["clean"]);
        assert!(stdout(&cleaned).contains("nothing to clean"), "{}", stdout(&cleaned));
        let roles = case.cluster.roles_of_runs().unwrap();
        assert_eq!(roles.len(), 1, "{roles:?}");
        let namespace = format!("/api/v1/namespaces/{}", roles[0]);
        assert_eq!(answer("GET", &namespace, "").0, 200);
        assert_eq!(answer("GET", &format!("{namespace}/pods/node"), "").0, 404);
        let began = Instant::now();
        let fetched = loop {
            let fetched = case.run_here(fetch);
            if !stdout(&fetched).contains("alive; tare attach") {
                break fetched;
            }
            assert!(began.elapsed() < PATIENCE, "{}", stdout(&fetched));
            std::thread::sleep(Duration::from_secs(1));
        };
        let said = stdout(&fetched) + &stderr(&fetched);
        assert!(fetched.status.success(), "{said}");
        case.assert_clean();
        case.assert_pod_measured("small.tare", &said);
        fs::remove_file(case.here.path().join("small.tare")).unwrap();
    }
    case.run(&["clean", "--programs"]);
}

/// A proxy is in the path of the client, whatever leads to the pod, and has an account of its own.
#[test]
fn sidecars_are_weighed() {
    let Some(case) = Case::start("sidecars_are_weighed") else { return };
    let pods = [
        ("bridge", "idle"),
        ("bridge", "proxy"),
        ("host", "proxy"),
        ("service", "proxy"),
        ("node-port", "proxy"),
        ("host-port", "proxy"),
    ];
    let mut text = STUDY.replace("ROUNDS", "1");
    let mut add = |name: &str, network: &str, sidecar: &str, more: &str| {
        let environment = format!(
            "[[environment]]\nname = \"{name} {sidecar}\"\nruntime = \"kubernetes\"\n\
             network = \"{network}\"\nsidecar = \"{sidecar}\"\n{more}[[workload]]"
        );
        text = text.replace("[[workload]]", &environment);
    };
    for (network, sidecar) in pods {
        add(network, network, sidecar, "");
    }
    add("guaranteed", "bridge", "proxy", "cpu = \"quota=0.4\"\nlimits = { memory = \"512M\" }\n");
    fs::write(case.here.path().join("small.toml"), text).unwrap();
    let mut command = tare();
    command.arg("--state").arg(case.here.path().join("state"));
    command.args(["weigh", "small.toml", "--json"]).current_dir(case.here.path());
    let weighed = command.stdin(Stdio::null()).output().unwrap();
    assert!(weighed.status.success(), "{}", stderr(&weighed));
    let record: Value = serde_json::from_str(&stdout(&weighed)).unwrap();
    for (network, sidecar) in pods.into_iter().chain([("guaranteed", "proxy")]) {
        let name = format!("{network} {sidecar}");
        let of = |list: &str, key: &str| -> Vec<Value> {
            let all = record[list].as_array().unwrap().iter();
            all.filter(|one| one[key] == name.as_str()).cloned().collect()
        };
        let slices = of("slices", "environment");
        let good: Vec<&Value> = slices.iter().filter(|slice| slice["void"].is_null()).collect();
        assert!(!good.is_empty(), "{name}: {slices:?} {}", stderr(&weighed));
        let part = &good[0]["layer_cpu_ns"][0];
        assert_eq!(part["part"], "sidecar", "{name}: {:?}", good[0]);
        let is_used = part["cpu_ns"].as_u64().unwrap() > 0;
        assert!(sidecar == "idle" || is_used, "{name}: {part}");
        let layers = of("environments", "name")[0]["layers"].clone();
        let states = layers.as_array().unwrap().clone();
        let state = states.iter().find(|state| state["layer"] == "sidecar").unwrap();
        assert_eq!(state["in_force"], true, "{state}");
        let ends = state["found"].as_str().unwrap().contains("ends at its socket");
        assert_eq!(ends, sidecar == "proxy", "{state}");
        let is_limited = state["found"].as_str().unwrap().contains("memory limit 64 MiB, quota ");
        assert_eq!(is_limited, network == "guaranteed", "{state}");
    }
    case.assert_clean();
}

#[test]
fn loader_runs_on_a_node() {
    let Some(case) = Case::start("loader_runs_on_a_node") else { return };
    let address = case.cluster.node_here().unwrap().address.unwrap();
    let loader = format!(
        "[[loader]]\nhost = \"kubernetes:{}\"\naddress = \"{address}\"\n[[environment]]\n\
         name = \"native\"",
        case.node
    );
    // The loader is on this host, where a published port leads nowhere.
    let box_ = "runtime = \"oci:runc\"\nnetwork = \"host\"\n";
    let text = STUDY.replace("ROUNDS", "2").replace("runtime = \"oci:runc\"\n", box_);
    let text = text.replace("[[environment]]\nname = \"native\"", &loader);
    fs::write(case.here.path().join("small.toml"), text).unwrap();
    let mut command = tare();
    command.arg("--state").arg(case.here.path().join("state"));
    command.args(["weigh", "small.toml", "--json"]).current_dir(case.here.path());
    let weighed = command.stdin(Stdio::null()).output().unwrap();
    assert!(weighed.status.success(), "{}", stderr(&weighed));
    let record: Value = serde_json::from_str(&stdout(&weighed)).unwrap();
    let slices = record["slices"].as_array().unwrap();
    let loaded = |slice: &&Value| {
        let parts = slice["loaders"].as_array();
        slice["void"].is_null() && parts.is_some_and(|parts| parts.len() == 1)
    };
    assert!(slices.iter().filter(loaded).count() >= 2, "{}", stderr(&weighed));
    case.assert_clean();
    case.run(&["clean", "--programs"]);
}

#[test]
fn what_would_be_created_is_printed() {
    let Some(case) = Case::start("what_would_be_created_is_printed") else { return };
    let printed = case.run(&["doctor", "--print-manifests"]);
    assert!(printed.status.success(), "{}", stderr(&printed));
    let text = stdout(&printed);
    for word in ["ClusterRole", "pods/exec", "Namespace", "privileged", "/usr/bin/sleep"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    case.assert_clean();
    let said = |words: &[&str]| {
        let mut command = tare();
        command.arg("--state").arg(case.here.path().join("state")).args(words);
        let output = command.output().unwrap();
        let text = stderr(&output);
        assert!(!output.status.success());
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        text
    };
    let text = said(&["doctor", "--on", "kubernetes:nowhere"]);
    assert!(text.contains(&format!("no node nowhere; its nodes are {}", case.node)), "{text}");
    let text = said(&["doctor", "--on", "kubernetes:other/nowhere"]);
    assert!(text.contains("it has no context other, but "), "{text}");
    let text = said(&["doctor", "--on", "db1", "--print-manifests"]);
    assert!(text.contains("ssh:db1 is no node of a cluster"), "{text}");
    case.assert_clean();
}
