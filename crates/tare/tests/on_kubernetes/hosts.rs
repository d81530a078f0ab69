//! A system whose hosts are nodes of the cluster, reached through its API without ssh: an instance
//! on each, and what is left there.

use std::path::{Path, PathBuf};
use std::process::Child;

use tare_testkit::downloads::cassandra;
use tare_testkit::host_state::left_of_run;
use tare_testkit::kubernetes::{node_inside, other_nodes, second_node, second_node_inside};

use super::*;

/// The state directory of agents on the first node.
const NODE_STATE: &str = "/var/lib/tare/runs";

/// Pods, at their own addresses and at those of their nodes.
const MORE: &str = "[[environment]]\nname = \"pod\"\nruntime = \"kubernetes\"\nnetwork = \"bridge\"\n\
     [[environment]]\nname = \"pod, host network\"\nruntime = \"kubernetes\"\nnetwork = \"host\"\n\
     cgroup = \"own\"\n";
/// Their names, and those of the others.
const ALL: [&str; 4] = ["native", "box", "pod", "pod, host network"];

impl Case {
    /// Writes a study of a system on both nodes.
    fn study_on_nodes(&self, rounds: u32, second: &str, more: &str) {
        let hosts =
            format!("[system]\nhosts = [\"kubernetes:{}\", \"kubernetes:{second}\"]\n", self.node);
        let text = STUDY.replace("ROUNDS", &rounds.to_string()).replace("[system]\n", &hosts);
        // The harness is on one of the nodes, whose own packets do not pass a published port.
        let text = text.replace("oci:runc\"\n", "oci:runc\"\nnetwork = \"host\"\n");
        // Longer than the others, so that a busy machine moves the edges by a small share.
        let text = text.replace("100ms", "400ms") + more;
        fs::write(self.here.path().join("small.toml"), text).unwrap();
    }

    /// Checks that a record has slices of these environments from all nodes, which it names.
    fn assert_measured_on_nodes(
        &self,
        record: &str,
        environments: &[&str],
        nodes: &[&str],
        said: &str,
    ) {
        let record = self.record(record);
        let slices = record["slices"].as_array().unwrap();
        for name in environments {
            let of = |slice: &&Value| slice["environment"] == *name && slice["void"].is_null();
            assert!(slices.iter().any(|slice| of(&slice)), "{name}: {said}");
        }
        for (number, node) in nodes.iter().enumerate() {
            let (section, host) = (format!("node {}", number + 1), format!("kubernetes:{node}"));
            let named = |fact: &&Value| fact["section"] == section && fact["key"] == "host";
            let facts = record["host"].as_array().unwrap();
            let fact = facts.iter().find(named).unwrap_or_else(|| panic!("{section}: {facts:?}"));
            assert_eq!(fact["value"], host);
            let counter = format!("node_{}_cpu_ns", number + 1);
            let used = slices.iter().any(|slice| slice.to_string().contains(&counter));
            assert!(used, "{counter}: {said}");
        }
    }
}

/// Returns the journals, the agents, links and rules of Tare that are left on the nodes. Other runs
/// on this machine are in other namespaces.
pub(super) fn left_on_nodes() -> String {
    let look = "ip -o link show | grep -o 'tare-[0-9a-f]*[^:@]*' | grep -v tare-node; \
                nft list tables | grep tare-; ip netns list | grep tare-; true";
    let mut left = String::new();
    for (pid, state) in nodes_inside() {
        let mut enter = Command::new("nsenter");
        enter.args(["--target", &pid.to_string(), "--net", "--mount", "sh", "-c", look]);
        left += &stdout(&enter.output().unwrap());
        left.extend(kills::runs(&state).iter().map(|run| format!("{run}.journal\n")));
    }
    left.extend(agents().iter().map(|agent| format!("agent {agent}\n")));
    left
}

/// Returns a process in the namespaces of each node, and the folder of Tare's journals there.
fn nodes_inside() -> Vec<(u32, PathBuf)> {
    let netns = std::env::var("TARE_KUBERNETES_NETNS").unwrap();
    let first = netns.split('/').find_map(|part| part.parse().ok()).unwrap();
    let others = (2..).map_while(node_inside);
    std::iter::once((first, NODE_STATE.into())).chain(others).collect()
}

#[test]
fn instances_run_on_two_nodes() {
    let test = "hosts::instances_run_on_two_nodes";
    let Some(case) = Case::start(test) else { return };
    let Some(second) = second_node(test) else { return };
    case.study_on_nodes(2, &second, MORE);
    let weighed = case.run_here(&["weigh", "small.toml", "-o", "small.tare"]);
    let said = stderr(&weighed);
    assert!(weighed.status.success(), "{said}");
    // Both nodes of the tests have one kernel.
    assert!(
        said.contains(&format!("the node of kubernetes:{second} is on this machine")),
        "{said}"
    );
    case.assert_measured_on_nodes("small.tare", &ALL, &[&case.node, &second], &said);
    case.assert_clean();
    assert_eq!(left_on_nodes(), "", "{said}");
    case.run(&["clean", "--programs"]);
}

/// The harness on a node has an account with the rights for the other one, and for the loader.
#[test]
fn study_on_a_node_has_the_other_as_a_host() {
    let test = "hosts::study_on_a_node_has_the_other_as_a_host";
    let Some(case) = Case::start(test) else { return };
    let Some(second) = second_node(test) else { return };
    let loader = format!("{MORE}[[loader]]\nhost = \"pod:{second}\"\n");
    case.study_on_nodes(2, &second, &loader);
    let printed = case.run(&["weigh", "small.toml", "--print-manifests"]);
    let text = stdout(&printed);
    for node in [&case.node, &second] {
        assert!(text.contains(&format!("\"{node}\"")), "{text}");
    }
    let weighed = case.run(&["weigh", "small.toml", "-o", "small.tare"]);
    let said = stderr(&weighed);
    assert!(weighed.status.success(), "{said}");
    case.assert_measured_on_nodes("small.tare", &ALL, &[&case.node, &second], &said);
    assert_eq!(case.record("small.tare")["loaders"][0]["host"], format!("pod:{second}"));
    case.assert_clean();
    assert_eq!(left_on_nodes(), "", "{said}");
    case.run(&["clean", "--programs"]);
}

/// Starts a study that would go on for long, and waits until it has measured something.
pub(super) fn start_and_measure(case: &Case, second: &str) -> Child {
    case.study_on_nodes(100_000, second, MORE);
    let mut command = tare();
    command.arg("--state").arg(case.here.path().join("state"));
    command.args(["weigh", "small.toml", "-o", "small.tare"]).current_dir(case.here.path());
    let errors = case.here.path().join("said");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(fs::File::create(&errors).unwrap()).spawn().unwrap();
    let began = Instant::now();
    let said = || fs::read_to_string(&errors).unwrap();
    while said().lines().filter(|line| line.starts_with("round")).count() < 2 {
        assert!(began.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "{}", said());
        std::thread::sleep(Duration::from_millis(100));
    }
    child
}

/// Agents lose their pipes with the harness, or are killed too; `tare clean` does the rest.
#[test]
fn killed_study_leaves_nothing_on_its_nodes() {
    let test = "hosts::killed_study_leaves_nothing_on_its_nodes";
    let Some(case) = Case::start(test) else { return };
    let Some(second) = second_node(test) else { return };
    for kill_agents in [false, true] {
        let mut child = start_and_measure(&case, &second);
        let folders =
            [case.here.path().join("state/runs"), NODE_STATE.into(), second_node_inside().1];
        let runs: Vec<String> = folders.iter().flat_map(|folder| kills::runs(folder)).collect();
        assert!(runs.len() >= 3, "{runs:?}");
        child.kill().unwrap();
        if kill_agents {
            kills::kill(&agents());
        }
        child.wait().unwrap();
        assert!(case.cluster.namespaces_of_runs().unwrap().len() >= 2);
        // Removes the ways to the nodes and the accounts of their agents. What those have made
        // waits for a clean there.
        let cleaned = case.run_here(&["clean"]);
        assert!(cleaned.status.success(), "{}{}", stdout(&cleaned), stderr(&cleaned));
        let began = Instant::now();
        loop {
            for node in [&case.node, &second] {
                let cleaned = case.run_here(&["clean", "--on", &format!("kubernetes:{node}")]);
                assert!(cleaned.status.success(), "{}{}", stdout(&cleaned), stderr(&cleaned));
            }
            if left_on_nodes().is_empty() {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{}", left_on_nodes());
            std::thread::sleep(Duration::from_secs(1));
        }
        let left: Vec<String> = runs.iter().flat_map(|run| left_of_run(run)).collect();
        assert_eq!(left, Vec::<String>::new());
        case.assert_clean();
        let slices = case.record("small.tare")["slices"].as_array().unwrap().len();
        assert!(slices > 0);
        fs::remove_file(case.here.path().join("small.tare")).unwrap();
    }
    case.run(&["clean", "--programs"]);
}

/// Returns the agents on the nodes.
fn agents() -> Vec<u32> {
    let networks: Vec<_> = nodes_inside().iter().map(|(pid, _)| network(*pid)).collect();
    let is_agent = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_one = command.split(|byte| *byte == 0).any(|word| word == b"host-agent");
        is_one && networks.contains(&network(*pid))
    };
    tare_host::process::all().into_iter().filter(is_agent).collect()
}

/// The agent of a host is killed in the middle: one line names the host, and the study goes on with
/// another agent.
#[test]
fn lost_node_ends_the_study_which_resumes() {
    let test = "hosts::lost_node_ends_the_study_which_resumes";
    let Some(case) = Case::start(test) else { return };
    let Some(second) = second_node(test) else { return };
    let mut child = start_and_measure(&case, &second);
    // Those of the second host.
    kills::kill(&agents().into_iter().filter(|pid| is_on_second(*pid)).collect::<Vec<_>>());
    let ended = child.wait().unwrap();
    let said = fs::read_to_string(case.here.path().join("said")).unwrap();
    assert!(!ended.success(), "{said}");
    // Another line says what has to be cleaned there.
    let lost = format!("kubernetes:{second} is lost");
    let says_how_to_go_on = |line: &str| line.contains(&lost) && line.contains("--resume");
    assert!(said.lines().any(says_how_to_go_on), "{said}");
    // The namespace of the killed agent is left until then.
    let cleaned = case.run_here(&["clean", "--on", &format!("kubernetes:{second}")]);
    assert!(cleaned.status.success(), "{}{}", stdout(&cleaned), stderr(&cleaned));
    case.assert_clean();
    assert_eq!(left_on_nodes(), "");
    let count = || case.record("small.tare")["slices"].as_array().unwrap().len();
    let before = count();
    let last = |record: Value| -> u64 {
        let slices = record["slices"].as_array().unwrap().iter();
        slices.filter_map(|slice| slice["block"].as_u64()).max().unwrap()
    };
    let rounds = (last(case.record("small.tare")) + 3).to_string();
    let resumed = case.run_here(&["weigh", "--resume", "small.tare", "--rounds", &rounds]);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    assert!(count() > before, "{}", stderr(&resumed));
    case.assert_clean();
    assert_eq!(left_on_nodes(), "");
    case.run(&["clean", "--programs"]);
}

/// Returns whether a process is in the network of the second node.
fn is_on_second(pid: u32) -> bool {
    network(pid) == network(second_node_inside().0)
}

fn network(pid: u32) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

#[test]
fn nodes_that_cannot_be_hosts_are_one_line() {
    let test = "hosts::nodes_that_cannot_be_hosts_are_one_line";
    let Some(case) = Case::start(test) else { return };
    case.study(1);
    let check = |hosts: &str, code: i32, expect: &str| {
        let weighed = case.run_here(&["weigh", "small.toml", "--hosts", hosts]);
        let said = stderr(&weighed);
        assert!(weighed.status.code() == Some(code) && said.contains(expect), "{hosts}: {said}");
        case.assert_clean();
    };
    check("kubernetes:nowhere", 4, "no node nowhere; its nodes are ");
    check("kubernetes:other/n1", 4, "it has no context other, but ");
    check("pod:n1", 2, "write kubernetes:n1 for its node");
    check("kubernetes:n1,kubernetes:n1", 3, "named twice");
    let bridge = "this host, whose own packets do not pass the rules that publish a port";
    check(&format!("kubernetes:{}", case.node), 4, bridge);
    case.study_with_pod(1);
    check("ssh:db2", 3, "is a pod, and ssh:db2 is not reached as a node of a cluster");
}

/// The environments of a cluster of Cassandra.
const BOX: &str = "[[environment]]\nname = \"box\"\nruntime = \"oci:runc\"\nnetwork = \"host\"\n";
const POD: &str = "[[environment]]\nname = \"pod\"\nruntime = \"kubernetes\"\n";

/// Weighs a real cluster of Cassandra on nodes, each row on all of them, loaded from a pod on the
/// last node. Returns what the command said.
fn weigh_cassandra(
    case: &Case,
    directory: &Path,
    nodes: &[&str],
    loader: &str,
    environments: &[&str],
) -> String {
    let hosts: Vec<String> = nodes.iter().map(|node| format!("kubernetes:{node}")).collect();
    let copies = nodes.len();
    let baseline = if environments[0] == BOX { "box" } else { "pod" };
    let text = format!(
        "name = \"rows\"\nbaseline = \"{baseline}\"\n[system]\nname = \"cassandra\"\n\
         directory = {directory:?}\nheap = \"256M\"\njvm = \"-XX:TieredStopAtLevel=1\"\n\
         cluster = true\nhosts = {hosts:?}\n\
         [[loader]]\nhost = \"pod:{loader}\"\n\
         [schedule]\nkind = \"trials\"\ndata = \"loaded\"\nwindow = \"2s\"\nlead_in = \"1s\"\n\
         rounds = 1\nrounds_min = 1\nstop_width_percent = 0\nbudget = \"10m\"\nseed = 7\n\
         {}\
         [[workload]]\nname = \"w\"\nlatency_share = 0\nwrite_share = 0.5\nrows = 500\n\
         connections = 2\nin_flight = 8\nreplication = {copies}\nconsistency = \"quorum\"\n",
        environments.concat()
    );
    fs::write(case.here.path().join("small.toml"), text).unwrap();
    let weighed = case.run_here(&["weigh", "small.toml", "-o", "small.tare"]);
    let said = stderr(&weighed);
    assert!(weighed.status.success(), "{said}");
    said
}

/// Containers and pods on two nodes.
#[test]
fn cassandra_cluster_runs_on_two_nodes() {
    let test = "hosts::cassandra_cluster_runs_on_two_nodes";
    let Some(case) = Case::start(test) else { return };
    let Some(second) = second_node(test) else { return };
    if skipped(test, &[Need::Program("java")]) {
        return;
    }
    let Some(directory) = cassandra(test) else { return };
    let nodes = [&case.node[..], &second];
    let said = weigh_cassandra(&case, &directory, &nodes, &second, &[BOX, POD]);
    case.assert_measured_on_nodes("small.tare", &["box", "pod"], &nodes, &said);
    case.assert_clean();
    assert_eq!(left_on_nodes(), "", "{said}");
    case.run(&["clean", "--programs"]);
}

/// Three pods, each on a node of its own, and the loader on a node without one.
#[test]
fn cassandra_cluster_of_three_pods_is_loaded_from_a_fourth_node() {
    let test = "hosts::cassandra_cluster_of_three_pods_is_loaded_from_a_fourth_node";
    let Some(case) = Case::start(test) else { return };
    let Some([second, third, fourth]) = other_nodes(test) else { return };
    if skipped(test, &[Need::Program("java")]) {
        return;
    }
    let Some(directory) = cassandra(test) else { return };
    let nodes = [&case.node[..], &second, &third];
    let said = weigh_cassandra(&case, &directory, &nodes, &fourth, &[POD]);
    case.assert_measured_on_nodes("small.tare", &["pod"], &nodes, &said);
    assert_eq!(case.record("small.tare")["loaders"][0]["host"], format!("pod:{fourth}"));
    case.assert_clean();
    assert_eq!(left_on_nodes(), "", "{said}");
    case.run(&["clean", "--programs"]);
}
