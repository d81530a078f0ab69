//! Volumes of storage classes. The cluster of the tests has no driver: the classes have no
//! provisioner, and the volumes are directories of the node.

use tare_testkit::kubernetes::{answer, request};
use tare_testkit::{Need, skipped};

use super::*;

const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const VOLUMES: &str = "/api/v1/persistentvolumes";

/// A storage class, and a volume of it over a directory.
struct LocalVolume {
    name: String,
    folder: tempfile::TempDir,
}

impl LocalVolume {
    fn make(test: &str, binding: &str, policy: &str, annotations: &str) -> Self {
        let name = format!("tare-test-{test}-{}", std::process::id());
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let made = Self { name: name.clone(), folder };
        let class = format!(
            r#"{{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{{"name":"{name}"}},
                "provisioner":"kubernetes.io/no-provisioner","volumeBindingMode":"{binding}"}}"#
        );
        request("POST", CLASSES, &class);
        if !policy.is_empty() {
            let path = made.folder.path().display();
            let node =
                Cluster::connect(&Access::find().unwrap()).unwrap().node_here().unwrap().name;
            let affinity = format!(
                r#"{{"required":{{"nodeSelectorTerms":[{{"matchExpressions":[{{
                    "key":"kubernetes.io/hostname","operator":"In","values":["{node}"]}}]}}]}}}}"#
            );
            let volume = format!(
                r#"{{"apiVersion":"v1","kind":"PersistentVolume",
                    "metadata":{{"name":"{name}","annotations":{annotations}}},
                    "spec":{{"capacity":{{"storage":"1Gi"}},"accessModes":["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy":"{policy}","storageClassName":"{name}",
                    "local":{{"path":"{path}"}},"nodeAffinity":{affinity}}}}}"#
            );
            request("POST", VOLUMES, &volume);
        }
        made
    }

    /// Returns whether the volume is in this phase; without a volume, none is.
    fn is(&self, phase: &str) -> bool {
        let (_, text) = answer("GET", &format!("{VOLUMES}/{}", self.name), "");
        let text = text.replace([' ', '\n'], "");
        text.contains(&format!("\"phase\":\"{phase}\""))
    }

    fn delete(&self) {
        answer("DELETE", &format!("{VOLUMES}/{}", self.name), "");
    }

    fn spec(&self) -> EnvironmentSpec {
        let mut spec = spec("host", "shared", "none", "directory");
        spec.name = self.name.clone();
        spec.storage.kind = "class".into();
        spec.storage.options =
            vec![("class".into(), self.name.clone()), ("size".into(), "16M".into())];
        spec
    }

    fn entries(&self) -> usize {
        std::fs::read_dir(self.folder.path()).unwrap().count()
    }
}

impl Drop for LocalVolume {
    fn drop(&mut self) {
        self.delete();
        answer("DELETE", &format!("{CLASSES}/{}", self.name), "");
    }
}

/// Waits until something is true, at most a minute.
fn wait(what: &str, is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns whether a test on the node goes on in this process.
fn here(test: &str) -> Option<std::sync::MutexGuard<'static, ()>> {
    let alone = alone_on_node(test)?;
    (!skipped(test, &[Need::Program("curl")])).then_some(alone)
}

#[test]
fn volume_of_the_node_is_given_back() {
    let Some(_alone) = here("volumes::volume_of_the_node_is_given_back") else { return };
    for binding in ["WaitForFirstConsumer", "Immediate"] {
        let scratch = Scratch::open("kubernetes-volume");
        let volume = LocalVolume::make("given", binding, "Retain", "{}");
        let others = volume.folder.path().join("of-others");
        std::fs::write(&others, "").unwrap();
        // Its second start needs the volume again.
        conforms(&scratch.factory, &volume.spec());
        drop(scratch);
        assert!(volume.is("Available") && others.exists(), "{binding}");
        assert_eq!(volume.entries(), 1, "{binding}");
    }
}

/// The class has no provisioner, so the test is one: it deletes the volume that is released.
#[test]
fn volume_of_a_provisioner_is_deleted_or_stays() {
    let test = "volumes::volume_of_a_provisioner_is_deleted_or_stays";
    let Some(_alone) = here(test) else { return };
    let made = r#"{"pv.kubernetes.io/provisioned-by":"tare.test/driver"}"#;
    for policy in ["Delete", "Retain"] {
        let scratch = Scratch::open("kubernetes-provisioned");
        let volume = LocalVolume::make("made", "WaitForFirstConsumer", policy, made);
        let mut environment = scratch.factory.environment(&volume.spec()).unwrap();
        let endpoint = environment.start(&launch()).unwrap();
        assert_eq!(echo(&scratch.factory, endpoint.address).unwrap(), "hello\n");
        let states = environment.read_back().unwrap();
        let storage = states.iter().find(|state| state.layer == "storage").unwrap();
        assert!(storage.in_force, "{storage:?}");
        assert_eq!(storage.found.contains("which stays"), policy == "Retain", "{storage:?}");
        std::thread::scope(|scope| {
            if policy == "Delete" {
                scope.spawn(|| {
                    wait("released", || volume.is("Released"));
                    volume.delete();
                });
            }
            environment.stop().unwrap();
        });
        drop(environment);
        let left: Vec<String> =
            scratch.factory.close().iter().map(|error| tare_host::error_line(error)).collect();
        match policy {
            "Delete" => assert!(left.is_empty(), "{left:?}"),
            _ => {
                assert!(volume.is("Released"));
                assert_eq!(left.len(), 1, "{left:?}");
                let expect = format!("the volume {} stays", volume.name);
                assert!(left[0].contains(&expect), "{left:?}");
                eprintln!("{}", left[0]);
                volume.delete();
                wait("deleted", || !volume.is("Released"));
            }
        }
    }
}

#[test]
fn claim_without_a_volume_is_one_line() {
    let Some(_alone) = here("volumes::claim_without_a_volume_is_one_line") else { return };
    let scratch = Scratch::open("kubernetes-unbound");
    let refusal = |spec: &EnvironmentSpec| {
        let mut environment = scratch.factory.environment(spec).unwrap();
        let line = tare_host::error_line(&*environment.start(&launch()).unwrap_err());
        eprintln!("{line}");
        assert!(!line.contains('\n'), "{line}");
        line
    };
    for (binding, expect) in [
        ("WaitForFirstConsumer", "waiting for first consumer"),
        ("Immediate", "the claim e1 has no volume"),
    ] {
        let volume = LocalVolume::make("unbound", binding, "", "{}");
        let line = refusal(&volume.spec());
        assert!(line.contains("has no volume") && line.contains(expect), "{binding}: {line}");
    }
    let mut unknown = spec("host", "shared", "none", "directory");
    unknown.storage.kind = "class".into();
    unknown.storage.options = vec![("class".into(), "tare-none".into())];
    let line = refusal(&unknown);
    assert!(line.contains("has no storage class tare-none"), "{line}");
    unknown.runtime = "process".into();
    unknown.security = "none".parse().unwrap();
    let error = scratch.factory.environment(&unknown).map(drop).unwrap_err();
    let line = tare_host::error_line(&*error);
    assert!(line.contains("a claim is of a cluster's storage"), "{line}");
}
