//! The DaemonSet of `tare tune manifest`: it applies a plan on the node and reverts it at its end,
//! with the programs of the node and with the image of Tare on a node without a shell.

use std::path::Path;

use super::attached::until;
use super::image::{Loaded, NAME, WithoutShell};
use super::*;

/// It is that of the node's network namespace, in which the tests are.
const SETTING: &str = "/proc/sys/net/core/somaxconn";

fn setting() -> u32 {
    fs::read_to_string(SETTING).unwrap().trim().parse().unwrap()
}

/// The manifests of a daemon with these arguments, for a node with this state directory.
fn manifests(namespace: &str, state: &Path, words: &[&str]) -> Output {
    let mut command = tare();
    command.args(["tune", "manifest", "--only", "sysctls", "--namespace", namespace]);
    command.arg("--node-state").arg(state).args(words).output().unwrap()
}

/// A DaemonSet of the cluster, which a failed test deletes too: some of its settings are those of
/// the whole machine.
struct Daemon {
    path: String,
}

impl Daemon {
    fn delete(&self) -> bool {
        answer("DELETE", &self.path, r#"{"propagationPolicy":"Foreground"}"#).0 < 300
    }

    fn is_there(&self) -> bool {
        answer("GET", &self.path, "").0 != 404
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let began = Instant::now();
        self.delete();
        while self.is_there() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Applies manifests to the cluster, looks at what they do on the node, and deletes them.
fn check(case: &Case, words: &[&str]) {
    let old = setting();
    fs::write(SETTING, "128").unwrap();
    let namespace = format!("tare-test-tune-{}", std::process::id());
    let state = case.here.path().join("node");
    let printed = manifests(&namespace, &state, words);
    assert!(printed.status.success(), "{}", stderr(&printed));
    let home = format!("/api/v1/namespaces/{namespace}");
    let sets = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets");
    let paths = ["/api/v1/namespaces", &format!("{home}/configmaps"), &sets];
    let text = stdout(&printed);
    let manifests: Vec<&str> = text.split("---\n").filter(|one| !one.is_empty()).collect();
    assert_eq!(manifests.len(), paths.len(), "{text}");
    // A node with a plan of its own is left alone.
    let own = state.join("tune/persist.journal");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    fs::write(&own, "").unwrap();
    let daemon = Daemon { path: format!("{sets}/tare-tune") };
    for (path, manifest) in paths.iter().zip(&manifests) {
        request("POST", path, manifest);
    }
    let pod = || -> Value {
        let list = request("GET", &format!("{home}/pods"), "");
        serde_json::from_str::<Value>(&list).unwrap()["items"][0].clone()
    };
    let restarts = || pod()["status"]["containerStatuses"][0]["restartCount"].as_u64();
    until("the pod starts again", || restarts().is_some_and(|count| count > 0));
    let name = pod()["metadata"]["name"].as_str().unwrap().to_string();
    let log = || answer("GET", &format!("{home}/pods/{name}/log"), "").1;
    // Between two containers there may be none.
    until("the log has the reason", || {
        let text = log();
        let why = "this host applies a plan of its own at boot; run tare tune persist --remove";
        text.contains(why) && text.trim_end().lines().count() == 1
    });
    assert!(own.exists() && setting() == 128);
    fs::remove_file(own).unwrap();

    until("the plan is applied", || setting() != 128);
    assert!(setting() > 128 && state.join("tune/plan.json").exists());
    until("the log has the outcome", || log().contains("written and read back"));
    assert!(daemon.delete());
    until("the plan is reverted", || setting() == 128);
    until("the DaemonSet ends", || !state.join("tune/plan.json").exists() && !daemon.is_there());
    request("DELETE", &home, "");
    until("the namespace ends", || answer("GET", &home, "").0 == 404);
    fs::write(SETTING, old.to_string()).unwrap();
    case.assert_clean();
}

#[test]
fn daemon_applies_the_plan_and_reverts_it() {
    let test = "daemon::daemon_applies_the_plan_and_reverts_it";
    let Some(case) = Case::start(test) else { return };
    if skipped(test, &[Need::Program("curl")]) {
        return;
    }
    check(&case, &["--image", "tare.test/pause:1", "--program", env!("CARGO_BIN_EXE_tare")]);
}

/// Nothing of the node is used, and nothing but the settings is changed there.
#[test]
fn daemon_of_the_image_tunes_a_node_without_a_shell() {
    let test = "daemon::daemon_of_the_image_tunes_a_node_without_a_shell";
    let Some(case) = Case::start(test) else { return };
    if skipped(test, &[Need::Program("ctr"), Need::Program("curl")]) {
        return;
    }
    for more in [["--program", "/opt/tare"], ["--image", "pause:3"]] {
        let words = [&["--tare-image", NAME], &more[..]].concat();
        let refused = manifests("none", case.here.path(), &words);
        assert_eq!(refused.status.code(), Some(2), "{}", stdout(&refused));
        let said = stderr(&refused);
        assert!(said.contains("cannot be used with") && said.contains(more[0]), "{said}");
    }
    let copies = || {
        let entries = fs::read_dir("/var/tmp").unwrap().flatten();
        entries.filter(|one| one.file_name().to_string_lossy().starts_with("tare-")).count()
    };
    let before = copies();
    let _loaded = Loaded::load(case.here.path());
    let _without = WithoutShell::hide();
    check(&case, &["--tare-image", NAME]);
    assert_eq!(copies(), before, "no copy of the program is left on the node");
}
