//! Operators of a cluster that tune the node: what they set is theirs. Their pods are stand-ins
//! that have the names of the real ones and do nothing.

use serde_json::json;

use super::attached::{Users, until};
use super::*;

/// Creates a pod on the node that runs the pause program under this name, with these files.
fn run_as(users: &Users, pod: &str, program: &str, files: &[(&str, &std::path::Path)]) {
    let access = std::path::PathBuf::from(std::env::var_os("KUBECONFIG").unwrap());
    let pause = access.parent().unwrap().with_file_name("pause");
    let all = std::iter::once((program, pause.as_path())).chain(files.iter().copied());
    let (volumes, mounts): (Vec<Value>, Vec<Value>) = all
        .enumerate()
        .map(|(number, (inside, path))| {
            let name = format!("f{number}");
            let host = json!({ "path": path, "type": "File" });
            (
                json!({ "name": name, "hostPath": host }),
                json!({ "name": name, "mountPath": inside, "readOnly": true }),
            )
        })
        .unzip();
    let container = json!({ "name": "c", "image": "tare.test/pause:1", "imagePullPolicy": "Never",
        "command": [program], "volumeMounts": mounts });
    users.create(pod, &json!({ "containers": [container], "volumes": volumes }));
    until(&format!("the pod {pod} runs"), || users.pod(pod)["status"]["phase"] == "Running");
}

#[test]
fn plan_leaves_out_what_operators_set() {
    let Some(case) = Case::start("operators::plan_leaves_out_what_operators_set") else { return };
    if skipped("operators::plan_leaves_out_what_operators_set", &[Need::Program("curl")]) {
        return;
    }
    // The words of a plan, without the line breaks of its width.
    let plan = || {
        let planned = case.run(&["tune", "plan"]);
        assert!(planned.status.success(), "{}", stderr(&planned));
        stdout(&planned).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // The folders of logs by which the plan knows pods go a minute after them.
    let before = plan();
    assert!(!before.contains("NodeConfig") && !before.contains("TuneD"), "{before}");
    {
        let profile = case.here.path().join("active_profile");
        fs::write(&profile, "throughput-performance\n").unwrap();
        let openshift =
            Users::create_namespace("openshift-cluster-node-tuning-operator", &case.node);
        let files = [("/etc/tuned/active_profile", profile.as_path())];
        run_as(&openshift, "tuned-x7k2p", "/tuned", &files);
        let text = plan();
        let note = "note: TuneD of the Node Tuning Operator (a process tuned in a pod)";
        assert!(text.contains(note) && text.contains("throughput-performance"), "{text}");
        assert!(text.contains("in a Tuned or PerformanceProfile object"), "{text}");
    }
    {
        let scylla = Users::create_namespace("scylla-operator-node-tuning", &case.node);
        run_as(&scylla, "perftune-1", "/perftune", &[]);
        let text = plan();
        let note = "note: NodeConfig of the Scylla operator";
        assert!(text.contains(note) && text.contains("in its NodeConfig object"), "{text}");
    }
    case.run(&["clean", "--programs"]);
    case.assert_clean();
}
