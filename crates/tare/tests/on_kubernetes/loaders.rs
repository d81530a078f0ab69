//! Loaders that are pods, on another node of the cluster and on the one that is weighed.
//! `scripts/kubernetes --nodes 2` starts the other node; without it, its tests are skipped.

use serde_json::json;
use tare_testkit::kubernetes::{Right, Role, second_node};

use super::*;

/// Pods in every network in which clients reach them, and containers beside them.
pub(super) const ENVIRONMENTS: [(&str, &str, &str); 7] = [
    ("native", "process", "host"),
    ("box", "oci:runc", "bridge"),
    ("pod", "kubernetes", "bridge"),
    ("pod, host network", "kubernetes", "host"),
    ("pod, service", "kubernetes", "service"),
    ("pod, node port", "kubernetes", "node-port"),
    ("pod, host port", "kubernetes", "host-port"),
];

/// What a loader takes of the API.
const RIGHTS: [Right<'_>; 9] = [
    ("", "nodes", "list"),
    ("", "namespaces", "create"),
    ("", "namespaces", "get"),
    ("", "namespaces", "delete"),
    ("", "pods", "create"),
    ("", "pods", "get"),
    ("", "pods", "delete"),
    ("", "pods/exec", "create"),
    ("", "pods/exec", "get"),
];

fn loader(node: &str) -> String {
    format!("[[loader]]\nhost = \"pod:{node}\"\n")
}

/// Writes a study with a loader.
pub(super) fn write_study(
    case: &Case,
    rounds: u32,
    node: &str,
    environments: &[(&str, &str, &str)],
) {
    let (head, _) = STUDY.split_once("[[environment]]").unwrap();
    let (_, workload) = STUDY.split_once("[[workload]]").unwrap();
    let environments = environments.iter().map(|(name, runtime, network)| {
        format!(
            "[[environment]]\nname = \"{name}\"\nruntime = \"{runtime}\"\nnetwork = \"{network}\"\n\
             cgroup = \"own\"\n"
        )
    });
    let text = head.to_string() + &loader(node) + &environments.collect::<String>();
    // Longer than the others, so that a busy machine moves the edges by a small share.
    let text = text.replace("ROUNDS", &rounds.to_string()).replace("100ms", "400ms");
    fs::write(case.here.path().join("small.toml"), text + "[[workload]]" + workload).unwrap();
}

/// Checks that the loader loaded every environment, and no other client did.
fn assert_loaded(record: &Value, environments: &[(&str, &str, &str)], node: &str, said: &str) {
    assert_eq!(record["loaders"][0]["host"], format!("pod:{node}"), "{said}");
    let slices = record["slices"].as_array().unwrap();
    for (name, ..) in environments {
        let of = |slice: &&Value| slice["environment"] == *name;
        let good = |slice: &&Value| {
            let loads = slice["loaders"].as_array().is_some_and(|all| all.len() == 1);
            slice["void"].is_null() && loads && slice["operations"].as_u64() > Some(0)
        };
        let slices: Vec<&Value> = slices.iter().filter(of).collect();
        let void: Vec<&Value> = slices.iter().map(|slice| &slice["void"]).collect();
        assert!(slices.iter().any(good), "{name}: {void:?} {said}");
    }
}

#[test]
fn pod_on_another_node_loads_every_environment() {
    let test = "loaders::pod_on_another_node_loads_every_environment";
    let Some(case) = Case::start(test) else { return };
    let Some(node) = second_node(test) else { return };
    write_study(&case, 3, &node, &ENVIRONMENTS);
    let weighed = case.run_here(&["weigh", "small.toml", "-o", "small.tare"]);
    let said = stderr(&weighed);
    assert!(weighed.status.success(), "{said}");
    assert!(said.contains(&format!("loader pod:{node} is ready")), "{said}");
    // Both nodes of the tests have one kernel.
    assert!(said.contains("is on this machine, so it shares CPUs"), "{said}");
    assert_loaded(&case.record("small.tare"), &ENVIRONMENTS, &node, &said);
    case.assert_clean();
}

/// The harness has an account with the rights for the loader.
#[test]
fn pod_loads_a_study_that_runs_on_the_node() {
    let test = "loaders::pod_loads_a_study_that_runs_on_the_node";
    let Some(case) = Case::start(test) else { return };
    let Some(node) = second_node(test) else { return };
    for environments in [&ENVIRONMENTS[..2], &ENVIRONMENTS[..3]] {
        write_study(&case, 3, &node, environments);
        let printed = case.run(&["weigh", "small.toml", "--print-manifests"]);
        let text = stdout(&printed);
        let manifests = text.split("---\n").filter(|one| !one.is_empty());
        let manifests: Vec<Value> =
            manifests.map(|one| serde_json::from_str(one).unwrap()).collect();
        let pods = manifests.iter().filter(|one| one["kind"] == "Pod");
        let names: Vec<&Value> = pods.map(|pod| &pod["metadata"]["name"]).collect();
        assert_eq!(names, ["node", "loader"], "{text}");
        let weighed = case.run(&["weigh", "small.toml", "-o", "small.tare"]);
        let said = stderr(&weighed);
        assert!(weighed.status.success(), "{said}");
        assert_loaded(&case.record("small.tare"), environments, &node, &said);
        fs::remove_file(case.here.path().join("small.tare")).unwrap();
        case.assert_clean();
    }
    case.run(&["clean", "--programs"]);
}

/// A cluster of one node has no other for the loader, which the output says.
#[test]
fn pod_on_the_same_node_loads_and_says_so() {
    let Some(case) = Case::start("loaders::pod_on_the_same_node_loads_and_says_so") else { return };
    write_study(&case, 3, &case.node, &ENVIRONMENTS[..4]);
    let weighed = case.run_here(&["weigh", "small.toml", "-o", "small.tare"]);
    let said = stderr(&weighed);
    assert!(weighed.status.success(), "{said}");
    let line = format!("loader pod:{} is on this node, so it shares CPUs", case.node);
    assert!(said.contains(&line), "{said}");
    assert_loaded(&case.record("small.tare"), &ENVIRONMENTS[..4], &case.node, &said);
    case.assert_clean();
}

/// Waits until a loader runs, and some time more.
fn wait_for_loader(case: &Case) {
    let began = Instant::now();
    let runs = || {
        let all = case.cluster.namespaces_of_runs().unwrap();
        all.iter().any(|name| matches!(case.cluster.pod(name, "loader"), Ok(Some(_))))
    };
    while !runs() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_secs(3));
}

#[test]
fn killed_study_leaves_a_loader_that_clean_removes() {
    let test = "loaders::killed_study_leaves_a_loader_that_clean_removes";
    let Some(case) = Case::start(test) else { return };
    write_study(&case, 100_000, &case.node, &ENVIRONMENTS[..3]);
    let mut command = tare();
    command.arg("--state").arg(case.here.path().join("state")).args(["weigh", "small.toml"]);
    command.current_dir(case.here.path()).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_for_loader(&case);
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!case.cluster.namespaces_of_runs().unwrap().is_empty());
    let cleaned = case.run_here(&["clean"]);
    assert!(cleaned.status.success(), "{}{}", stdout(&cleaned), stderr(&cleaned));
    case.assert_clean();
}

/// The harness on the node is killed, so that only a clean there can remove its loader.
#[test]
fn clean_on_the_node_removes_the_loader_of_a_killed_harness() {
    let test = "loaders::clean_on_the_node_removes_the_loader_of_a_killed_harness";
    let Some(case) = Case::start(test) else { return };
    let Some(node) = second_node(test) else { return };
    write_study(&case, 100_000, &node, &ENVIRONMENTS[..2]);
    let study = format!("killed-loader-{}.toml", std::process::id());
    fs::rename(case.here.path().join("small.toml"), case.here.path().join(&study)).unwrap();
    let mut child = case.command(&["weigh", &study]).stderr(Stdio::null()).spawn().unwrap();
    wait_for_loader(&case);
    let pids = kills::harness(&study);
    assert!(!pids.is_empty());
    kills::kill(&pids);
    child.kill().unwrap();
    child.wait().unwrap();
    kills::clean(&case, true);
    case.assert_clean();
    case.run(&["clean", "--programs"]);
}

/// A pod that is deleted while it loads ends the study with one line, and nothing stays. The study
/// goes on with another pod, from what was measured.
#[test]
fn deleted_loader_ends_the_study_which_resumes() {
    let test = "loaders::deleted_loader_ends_the_study_which_resumes";
    let Some(case) = Case::start(test) else { return };
    write_study(&case, 100_000, &case.node, &ENVIRONMENTS[..2]);
    let mut command = tare();
    command.arg("--state").arg(case.here.path().join("state"));
    command.args(["weigh", "small.toml", "-o", "small.tare"]);
    let errors = case.here.path().join("said");
    command.current_dir(case.here.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(fs::File::create(&errors).unwrap()).spawn().unwrap();
    let began = Instant::now();
    // The second round has begun, so every environment has its connections.
    let rounds = |said: &str| said.lines().filter(|line| line.starts_with("round")).count();
    while rounds(&fs::read_to_string(&errors).unwrap()) < 2 {
        assert!(began.elapsed() < PATIENCE && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(100));
    }
    for namespace in case.cluster.namespaces_of_runs().unwrap() {
        case.cluster.delete_pod(&namespace, "loader").unwrap();
    }
    let ended = child.wait().unwrap();
    let said = fs::read_to_string(&errors).unwrap();
    assert!(!ended.success(), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("tare: ")).collect();
    let [line] = lines[..] else { panic!("{said}") };
    assert!(line.contains(&format!("pod:{}", case.node)), "{line}");
    assert!(line.contains("its pod does not run any more"), "{line}");
    assert!(line.contains("--resume"), "{line}");
    case.assert_clean();
    let measured = || -> Vec<Value> {
        let record = case.record("small.tare");
        let slices = record["slices"].as_array().unwrap().iter();
        slices.filter(|slice| slice["void"].is_null()).cloned().collect()
    };
    let before = measured();
    let last = before.iter().filter_map(|slice| slice["block"].as_u64()).max().unwrap();
    let rounds = (last + 3).to_string();
    let resumed = case.run_here(&["weigh", "--resume", "small.tare", "--rounds", &rounds]);
    let said = stderr(&resumed);
    assert!(resumed.status.success(), "{said}");
    let after = measured();
    assert_eq!(after[..before.len()], before, "{said}");
    assert!(after.len() > before.len(), "{} slices, then {}: {said}", before.len(), after.len());
    case.assert_clean();
}

/// A node that has no kubelet, as the API knows it. Dropping it removes it.
pub(super) struct Named(&'static str);

impl Named {
    pub(super) fn create(name: &'static str, is_ready: bool) -> Self {
        let node = json!({ "metadata": { "name": name } });
        request("POST", "/api/v1/nodes", &node.to_string());
        if is_ready {
            let status = json!({ "status": { "conditions": [
                { "type": "Ready", "status": "True", "reason": "", "message": "" },
            ] } });
            request("PATCH", &format!("/api/v1/nodes/{name}/status"), &status.to_string());
        }
        Self(name)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        answer("DELETE", &format!("/api/v1/nodes/{}", self.0), "");
    }
}

#[test]
fn loader_that_cannot_be_is_one_line() {
    let test = "loaders::loader_that_cannot_be_is_one_line";
    let Some(case) = Case::start(test) else { return };
    if skipped(test, &[Need::Program("curl")]) {
        return;
    }
    let weigh = |access: Option<&std::path::Path>| {
        let (_, said) = case.refused_weigh(access);
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("tare: ")).collect();
        let [line] = lines[..] else { panic!("{said}") };
        line.to_string()
    };
    let _nodes = [Named::create("tare-unready", false), Named::create("tare-bare", true)];
    for (node, expect) in [
        ("nowhere", "no node nowhere; its nodes are "),
        ("other/nowhere", "it has no context other, but "),
        ("tare-unready", "node tare-unready is not ready: "),
        ("tare-bare", "node tare-bare does not list the image of the pause program"),
    ] {
        write_study(&case, 1, node, &ENVIRONMENTS[..2]);
        let line = weigh(None);
        assert!(line.contains(expect), "{line}");
        case.assert_clean();
    }
    let role = Role::create("tare-test-loader");
    write_study(&case, 1, &case.node, &ENVIRONMENTS[..2]);
    for missing in RIGHTS {
        let (_, resource, verb) = missing;
        // Either verb of pods/exec is enough for one version of the API server or another; without
        // the others something may be left, which the last clean removes.
        if resource == "pods/exec" || verb == "delete" || (resource, verb) == ("namespaces", "get")
        {
            continue;
        }
        role.give(&RIGHTS, Some(missing));
        let line = weigh(Some(&Role::access()));
        assert!(line.contains(&format!("cannot {verb} resource \"{resource}\"")), "{line}");
        assert!(line.contains("ask the administrator for a role that allows it"), "{line}");
        eprintln!("{verb} {resource}: {line}");
    }
    let without_exec: Vec<Right<'_>> = RIGHTS[..7].to_vec();
    role.give(&without_exec, None);
    let line = weigh(Some(&Role::access()));
    assert!(line.contains("resource \"pods/exec\""), "{line}");
    role.give(&RIGHTS, None);
    let cleaned = case.run_here(&["clean"]);
    assert!(cleaned.status.success(), "{}{}", stdout(&cleaned), stderr(&cleaned));
    case.assert_clean();
}

/// What a study asks of a pod, and what a command on a host cannot.
#[test]
fn pod_is_no_host_of_a_command() {
    let Some(case) = Case::start("loaders::pod_is_no_host_of_a_command") else { return };
    let refused = case.run_here(&["doctor", "--on", "pod:n1"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("write kubernetes:n1 for its node"), "{}", stderr(&refused));
    let asked = case.run_here(&["doctor", "--loader", &format!("pod:{}", case.node)]);
    assert!(stdout(&asked).contains("redis-benchmark"), "{}{}", stdout(&asked), stderr(&asked));
    case.assert_clean();
}
