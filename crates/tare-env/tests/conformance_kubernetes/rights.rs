//! What a cluster does not allow or does not have, in the words of a real API server and kubelet.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tare_kube::{Cpus, NewPod, PodMount, PodSource, Profile};
use tare_testkit::kubernetes::{Role, RuntimeClass, request};
use tare_testkit::{Need, skipped};

use super::*;

/// What a study with a pod behind a service needs, as in docs/guides/kubernetes.md.
const RIGHTS: [(&str, &[&str]); 4] = [
    ("nodes", &["list"]),
    ("namespaces", &["create", "get", "delete"]),
    ("pods", &["create", "get", "delete"]),
    ("services", &["create", "get", "delete"]),
];

/// Returns whether a test on the node goes on in this process.
fn here(test: &str) -> Option<std::sync::MutexGuard<'static, ()>> {
    let alone = alone_on_node(test)?;
    (!skipped(test, &[Need::Program("curl")])).then_some(alone)
}

/// Starts and stops a pod as the user of a role, and prints every error; does nothing when it is
/// run as a test.
#[test]
fn user_of_a_role() {
    let words: Vec<String> = std::env::args().collect();
    let Some(state) = words.iter().find_map(|word| word.strip_prefix("state-of-role=")) else {
        return;
    };
    let factory = open(Path::new(state));
    let made = factory.environment(&spec("service", "shared", "none", "directory"));
    let ran = made.and_then(|mut environment| {
        environment.start(&launch())?;
        environment.stop()
    });
    let ran = ran.err().map(|error| tare_host::error_line(&*error));
    let closed = factory.close().into_iter().map(|error| tare_host::error_line(&error));
    for line in ran.into_iter().chain(closed) {
        writeln!(std::io::stderr(), "refused: {line}").unwrap();
    }
}

/// Runs `user_of_a_role` with the access of the user of a role, and returns its lines.
fn lines_of_user(state: &Path) -> BTreeSet<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["rights::user_of_a_role", "--exact", "--nocapture"]);
    command.arg(format!("state-of-role={}", state.display()));
    command.env("KUBECONFIG", Role::access());
    let output = String::from_utf8(command.output().unwrap().stderr).unwrap();
    output.lines().filter_map(|line| line.strip_prefix("refused: ")).map(String::from).collect()
}

#[test]
fn every_missing_right_is_one_line() {
    let Some(_alone) = here("rights::every_missing_right_is_one_line") else { return };
    let state = tempfile::tempdir().unwrap();
    let cluster = Cluster::connect(&Access::find().unwrap()).unwrap();
    let all: Vec<(&str, &str, &str)> = RIGHTS
        .iter()
        .flat_map(|(resource, verbs)| verbs.iter().map(|verb| ("", *resource, *verb)))
        .collect();
    let role = Role::create("tare-test-rights");
    role.give(&all, None);
    assert_eq!(lines_of_user(state.path()), BTreeSet::new(), "with all of them nothing is refused");
    for missing in &all {
        let (_, resource, verb) = missing;
        role.give(&all, Some(*missing));
        let lines = lines_of_user(state.path());
        let named = format!("cannot {verb} resource \"{resource}\"");
        assert!(!lines.is_empty() && lines.iter().all(|line| line.contains(&named)), "{lines:?}");
        eprintln!("{verb} {resource}: {}", lines.iter().next().unwrap());
        role.give(&all, None);
        let report = clean::clean(state.path(), tare_env::undo::KINDS).unwrap();
        for (run, outcome) in &report.runs {
            assert!(matches!(outcome, Outcome::Cleaned { .. }), "{run}: {outcome:?}");
        }
        assert_eq!(cluster.namespaces_of_runs().unwrap(), Vec::<String>::new(), "{missing:?}");
    }
}

/// Pods of Tare need the class `privileged`, which its namespace asks for; a webhook of an
/// administrator may change that.
#[test]
fn pod_security_says_what_has_to_be_allowed() {
    let Some(_alone) = here("rights::pod_security_says_what_has_to_be_allowed") else { return };
    let scratch = Scratch::open("kubernetes-restricted");
    let spec = spec("bridge", "shared", "default", "directory");
    let mut environment = scratch.factory.environment(&spec).unwrap();
    environment.start(&launch()).unwrap();
    environment.stop().unwrap();
    let cluster = Cluster::connect(&Access::find().unwrap()).unwrap();
    let namespace = cluster.namespaces_of_runs().unwrap().remove(0);
    let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    let restricted = json!({ "metadata": { "labels": labels } });
    request("PATCH", &format!("/api/v1/namespaces/{namespace}"), &restricted.to_string());
    let line = tare_host::error_line(&*environment.start(&launch()).unwrap_err());
    eprintln!("{line}");
    assert!(line.contains("violates PodSecurity \"restricted"), "{line}");
    assert!(line.contains("ask the administrator to exempt namespaces with the label tare.run"));
    assert!(!line.contains('\n'), "{line}");
}

/// Returns a pod of the default layers.
fn new_pod<'a>(namespace: &'a str, node: &'a str, image: &'a str) -> NewPod<'a> {
    NewPod {
        namespace,
        name: "e0",
        run: "0000",
        node,
        image,
        runtime_class: None,
        command: vec!["/none".into()],
        variables: Vec::new(),
        address_variable: None,
        host_network: false,
        host_port: None,
        without_capabilities: false,
        user_namespace: false,
        seccomp: Profile::Default,
        apparmor: None,
        cpus: Cpus::None,
        memory_bytes: None,
        huge_pages_bytes: None,
        mounts: Vec::new(),
        sidecar: None,
        volume_limit: Duration::ZERO,
    }
}

/// Tare pulls nothing, so an image that the node lacks is none for it, in a registry or not.
#[test]
fn image_that_the_node_lacks_is_one_line() {
    let Some(_alone) = here("rights::image_that_the_node_lacks_is_one_line") else { return };
    let cluster = Cluster::connect(&Access::find().unwrap()).unwrap();
    let node = cluster.node_here().unwrap().name;
    let namespace = format!("tare-test-image-{}", std::process::id());
    cluster.create_namespace(&namespace, "0000").unwrap();
    let created = cluster.create_pod(&new_pod(&namespace, &node, "tare.test/none:1"));
    cluster.delete_namespace(&namespace, "0000").unwrap();
    let line = created.unwrap_err().to_string();
    eprintln!("{line}");
    assert!(line.contains("ErrImageNeverPull"), "{line}");
    assert!(line.contains("tare.test/none:1") && line.contains("load the image on the node"));
}

/// A pod that waits for what the node lacks does so until the limit: the line has what the cluster
/// says in its events, or the right to read those. What cannot succeed is said at once.
#[test]
fn pod_that_does_not_start_in_time_says_why() {
    let test = "rights::pod_that_does_not_start_in_time_says_why";
    let Some(_alone) = here(test) else { return };
    let admin = Access::find().unwrap();
    let cluster = Cluster::connect(&admin).unwrap();
    let node = cluster.node_here().unwrap();
    let image = node.pause_image().unwrap();
    let role = Role::create("tare-test-events");
    let rights =
        RIGHTS.iter().flat_map(|(resource, verbs)| verbs.iter().map(|v| ("", *resource, *v)));
    role.give(&rights.collect::<Vec<_>>(), None);
    let powerless = Access::of_file(Role::access()).unwrap();
    let no_profile: fn(&mut NewPod<'_>) =
        |pod| pod.seccomp = Profile::OfNode("tare-test-none.json");
    let no_directory: fn(&mut NewPod<'_>) = |pod| {
        let source = PodSource::HostDirectory("/tare-test-none".into());
        pod.mounts.push(PodMount { path: "/data".into(), source, read_only: true });
    };
    let starts = [
        ("profile", &admin, no_profile, ["CreateContainerError: ", "tare-test-none.json"]),
        (
            "mount",
            &admin,
            no_directory,
            ["within 60 s: FailedMount: ", "/tare-test-none is not a directory"],
        ),
        (
            "no-right",
            &powerless,
            no_directory,
            [
                "within 60 s: its container system is waiting: ContainerCreating",
                "cannot list resource \"events\"",
            ],
        ),
    ];
    // At the same time, because each of them takes the whole limit.
    let start = &|name: &str, access: &Access, change: fn(&mut NewPod<'_>)| {
        let cluster = Cluster::connect(access).unwrap();
        let namespace = format!("tare-test-{name}-{}", std::process::id());
        cluster.create_namespace(&namespace, "0000").unwrap();
        let mut new = new_pod(&namespace, &node.name, image);
        change(&mut new);
        let created = cluster.create_pod(&new);
        cluster.delete_namespace(&namespace, "0000").unwrap();
        created.unwrap_err().to_string()
    };
    std::thread::scope(|scope| {
        let threads = starts.map(|(name, access, change, expect)| {
            (scope.spawn(move || start(name, access, change)), expect)
        });
        for (thread, expect) in threads {
            let line = thread.join().unwrap();
            eprintln!("{line}");
            assert!(line.contains(&node.name) && !line.contains('\n'), "{line}");
            assert!(expect.iter().all(|words| line.contains(words)), "{line}");
        }
    });
}

/// As a user meets it: a runtime class of the cluster whose handler the node lacks.
#[test]
fn runtime_class_without_a_handler_on_the_node_is_one_line() {
    let test = "rights::runtime_class_without_a_handler_on_the_node_is_one_line";
    let Some(_alone) = here(test) else { return };
    let class = RuntimeClass::create("tare-test-class", "tare-test-none", "");
    let scratch = Scratch::open("kubernetes-no-handler");
    let mut spec = spec("bridge", "shared", "default", "directory");
    spec.runtime = "kubernetes:tare-test-class".into();
    let mut environment = scratch.factory.environment(&spec).unwrap();
    let started = environment.start(&launch());
    drop(class);
    let line = tare_host::error_line(&*started.unwrap_err());
    eprintln!("{line}");
    assert!(line.contains("within 60 s: FailedCreatePodSandBox: "), "{line}");
    assert!(line.contains("no runtime for \"tare-test-none\" is configured"), "{line}");
    assert!(!line.contains('\n'), "{line}");
}

#[test]
fn kubelet_without_static_cpu_manager_is_one_line() {
    let test = "rights::kubelet_without_static_cpu_manager_is_one_line";
    let Some(_alone) = here(test) else { return };
    let cluster = Cluster::connect(&Access::find().unwrap()).unwrap();
    let node = cluster.node_here().unwrap().name;
    let policy = cluster.kubelet_configuration(&node).unwrap()["cpuManagerPolicy"].clone();
    if policy == "static" {
        let place = "with TARE_KUBERNETES_CPU_MANAGER=none scripts/kubernetes".to_string();
        return skip(test, Reason::RunsElsewhere { place });
    }
    assert_eq!(policy, Value::from("none"));
    let scratch = Scratch::open("kubernetes-no-static");
    let pinned = spec("bridge", "pinned", "default", "directory");
    let error = scratch.factory.environment(&pinned).map(drop).unwrap_err();
    let line = tare_host::error_line(&*error);
    eprintln!("{line}");
    let expect = format!("the kubelet of node {node} gives no pod CPUs of its own");
    assert!(line.contains(&expect) && line.contains("(cpuManagerPolicy is none)"), "{line}");
    assert!(line.contains("its administrator has to set static"), "{line}");
}
