//! The journal entries of pods, what they use, and the namespace that they are in. The cluster is
//! found by the access in the entry, because the environment variables may name another one by the
//! time of a clean.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tare_host::UndoError;
use tare_host::journal::Entry;
use tare_host::undo::{UndoKinds, check_name};
use tare_kube::{Access, Cluster, KubeError, Volume};
use tare_lab::PartError;

use crate::pod_sandbox::PodSandbox;

/// Names a file with the access to the cluster of this node, for the entries of a run that came
/// with an access of its own (`tare clean --on kubernetes:NODE`).
pub const NODE_KUBECONFIG_VARIABLE: &str = "TARE_NODE_KUBECONFIG";

/// The access that the harness of another host has sent to this process.
static SENT: OnceLock<Access> = OnceLock::new();

/// How long an API server that did not answer is not asked again: a run has many entries, and each
/// would wait for it.
const SILENCE: Duration = Duration::from_secs(5);

/// An API server that did not answer.
struct SilentServer {
    access: Access,
    server: String,
    why: String,
    since: Instant,
}

/// The last one.
static SILENT: Mutex<Option<SilentServer>> = Mutex::new(None);

/// Returns the access to the cluster of this node: the one that was sent, else the user's.
pub(crate) fn access() -> Result<Access, KubeError> {
    SENT.get().cloned().map_or_else(Access::find, Ok)
}

/// Stores an access that was sent to this process in a folder of the run, for root alone, and uses
/// it for all pods from then on.
pub(crate) fn use_sent(folder: &Path, kubeconfig: &str) -> Result<(), PartError> {
    let path = folder.join("kubeconfig");
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(kubeconfig.as_bytes()));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    let access = Access::of_file(path)?;
    SENT.get_or_init(|| access);
    Ok(())
}

/// An entry of this module, as it is written in a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
pub(crate) enum KubernetesEntry {
    /// A namespace of a cluster, with everything in it.
    #[serde(rename = "kubernetes_namespace")]
    Namespace { access: Access, name: String },
    /// A pod in the namespace of a run.
    #[serde(rename = "kubernetes_pod")]
    Pod { access: Access, namespace: String, name: String },
    /// A folder with a seccomp profile below the kubelet's, and whether that one was made too.
    #[serde(rename = "kubernetes_profile")]
    Profile { folder: PathBuf, made_parent: bool },
    /// A service in the namespace of a run.
    #[serde(rename = "kubernetes_service")]
    Service { access: Access, namespace: String, name: String },
    /// A claim of storage in the namespace of a run, with the name of its pod.
    #[serde(rename = "kubernetes_claim")]
    Claim { access: Access, namespace: String, name: String },
    /// A volume that stays after the claim of a run, which only a person can delete.
    #[serde(rename = "kubernetes_volume")]
    Volume { access: Access, namespace: String, name: String },
}

/// A volume is left.
#[derive(Debug, thiserror::Error)]
#[error(
    "the volume {name} stays with the run's data, because its reclaim policy is Retain; kubectl delete \
     persistentvolume {name}, and delete the storage behind it"
)]
struct VolumeStays {
    name: String,
}

impl From<KubernetesEntry> for Entry {
    fn from(entry: KubernetesEntry) -> Self {
        Self::new(&entry)
    }
}

/// Returns the journal entry of a namespace, which must be named after the run.
pub fn namespace_entry(access: Access, name: String) -> Entry {
    KubernetesEntry::Namespace { access, name }.into()
}

/// Undoes the entries of this module.
#[derive(Debug)]
pub(crate) struct KubernetesKinds;

impl UndoKinds for KubernetesKinds {
    fn kinds(&self) -> &'static [&'static str] {
        &[
            "kubernetes_namespace",
            "kubernetes_pod",
            "kubernetes_profile",
            "kubernetes_service",
            "kubernetes_claim",
            "kubernetes_volume",
        ]
    }

    fn undo(&self, run: &str, entry: &Entry) -> Result<(), UndoError> {
        match entry.read()? {
            KubernetesEntry::Profile { folder, made_parent } => {
                remove_profile(run, &folder, made_parent)
            }
            KubernetesEntry::Namespace { access, name } => {
                check_name(run, &name)?;
                with_access(&access, |cluster| cluster.delete_namespace(&name, run))
            }
            KubernetesEntry::Pod { access, namespace, name } => {
                check_name(run, &namespace)?;
                with_access(&access, |cluster| {
                    // The kubelet cannot end a paused sandbox; one that runs refuses.
                    let pod = cluster.pod(&namespace, &name).ok().flatten();
                    if let Some(sandbox) = pod.and_then(|pod| PodSandbox::find(&pod.uid)) {
                        let _ = sandbox.resume();
                    }
                    cluster.delete_pod(&namespace, &name)
                })
            }
            KubernetesEntry::Service { access, namespace, name } => {
                check_name(run, &namespace)?;
                with_access(&access, |cluster| cluster.delete_service(&namespace, &name))
            }
            KubernetesEntry::Claim { access, namespace, name } => {
                check_name(run, &namespace)?;
                remove_claim(&access, &namespace, &name)
            }
            KubernetesEntry::Volume { access, namespace, name } => {
                check_name(run, &namespace)?;
                match with_access(&access, |cluster| cluster.volume_stays(&name, &namespace))? {
                    true => Err(of_kind(VolumeStays { name })),
                    false => Ok(()),
                }
            }
        }
    }
}

fn of_kind(error: impl std::error::Error + Send + Sync + 'static) -> UndoError {
    UndoError::OfKind(Box::new(error))
}

/// Returns the name of the directory of the data in the volume of a claim.
pub(crate) fn data_directory(namespace: &str, claim: &str) -> String {
    format!("{namespace}-{claim}")
}

/// Returns the directory of the node to which a volume is given back as it was: without the data,
/// and available. Only one that existed before and is retained is.
pub(crate) fn given_back(volume: &Volume) -> Option<&Path> {
    let existed = volume.is_retained && !volume.is_provisioned;
    volume.directory.as_deref().map(Path::new).filter(|_| existed)
}

/// Deletes a claim after its pod, and gives its volume back if it existed before.
fn remove_claim(access: &Access, namespace: &str, name: &str) -> Result<(), UndoError> {
    let volume = with_access(access, |cluster| cluster.volume_of(namespace, name))?;
    let directory = volume.as_ref().and_then(given_back);
    if let Some(directory) = directory {
        let data = directory.join(data_directory(namespace, name));
        fs::remove_dir_all(&data).or_else(|error| removal(&data, &error))?;
    }
    let released = volume.as_ref().filter(|_| directory.is_some());
    with_access(access, |cluster| {
        cluster.delete_claim(namespace, name)?;
        released.map_or(Ok(()), |volume| cluster.release_volume(volume))
    })
}

/// Returns the error of a removal; that of what is gone already is none.
fn removal(path: &Path, error: &io::Error) -> Result<(), UndoError> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(UndoError::OfKind(format!("cannot remove {}: {error}", path.display()).into())),
    }
}

/// Uses the access of an entry; if there is none any more, that in the file of
/// `NODE_KUBECONFIG_VARIABLE`. An account that was deleted may be known for some seconds more,
/// without a right.
fn with_access<T>(
    access: &Access,
    undo: impl Fn(&Cluster) -> Result<T, KubeError>,
) -> Result<T, UndoError> {
    if let Some(silent) = silent().as_ref().filter(|one| one.is_of(access)) {
        return Err(silent.error());
    }
    let undone = Cluster::connect(access).and_then(|cluster| undo(&cluster));
    let other = std::env::var_os(NODE_KUBECONFIG_VARIABLE).map(PathBuf::from);
    let undone = match (undone, other) {
        (
            Err(KubeError::Access { .. } | KubeError::Unknown { .. } | KubeError::Rights { .. }),
            Some(file),
        ) => Access::of_file(file).and_then(|access| undo(&Cluster::connect(&access)?)),
        (undone, _) => undone,
    };
    match undone {
        Err(KubeError::Unreachable { server, why, .. }) => {
            let since = Instant::now();
            let new = SilentServer { access: access.clone(), server, why, since };
            Err(silent().insert(new).error())
        }
        undone => undone.map_err(of_kind),
    }
}

fn silent() -> MutexGuard<'static, Option<SilentServer>> {
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SilentServer {
    fn is_of(&self, access: &Access) -> bool {
        self.access == *access && self.since.elapsed() < SILENCE
    }

    fn error(&self) -> UndoError {
        let (who, why) = (format!("the API server {}", self.server), self.why.clone());
        UndoError::NoAnswer { who, why, entries: 1 }
    }
}

/// Removes the folder of a profile, and the kubelet's own folder of profiles if it was made for it
/// and is empty again.
fn remove_profile(run: &str, folder: &Path, made_parent: bool) -> Result<(), UndoError> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    check_name(run, &name)?;
    fs::remove_dir_all(folder).or_else(|error| removal(folder, &error))?;
    match folder.parent().filter(|_| made_parent) {
        Some(parent) => fs::remove_dir(parent).or_else(|error| match error.kind() {
            // Another program has a profile there by now.
            io::ErrorKind::DirectoryNotEmpty => Ok(()),
            _ => removal(parent, &error),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_the_folder_of_profiles_only_if_it_made_it() {
        let state = tempfile::tempdir().unwrap();
        let parent = state.path().join("seccomp");
        let folder = parent.join("tare-ab12-e0");
        for (made_parent, other, stays) in
            [(true, false, false), (true, true, true), (false, false, true)]
        {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("profile.json"), "{}").unwrap();
            if other {
                fs::write(parent.join("other.json"), "{}").unwrap();
            }
            let entry: Entry =
                KubernetesEntry::Profile { folder: folder.clone(), made_parent }.into();
            KubernetesKinds.undo("ab12", &entry).unwrap();
            KubernetesKinds.undo("ab12", &entry).unwrap();
            assert!(!folder.exists());
            assert_eq!(parent.exists(), stays, "{made_parent} {other}");
            let _ = fs::remove_dir_all(&parent);
            let error = KubernetesKinds.undo("cd34", &entry).unwrap_err();
            assert!(matches!(error, UndoError::NotOurs { .. }), "{error}");
        }
    }

    #[test]
    fn removes_only_what_has_the_name_of_the_run() {
        let access = r#"{"files":["/tare-none/config"],"context":"c"}"#;
        let texts = [
            (r#""kubernetes_namespace","name":"tare-ab12""#, "No such file"),
            (r#""kubernetes_namespace","name":"default""#, "default"),
            (r#""kubernetes_pod","namespace":"tare-ab12","name":"e1""#, "No such file"),
            (r#""kubernetes_pod","namespace":"kube-system","name":"e1""#, "kube-system"),
            (r#""kubernetes_service","namespace":"tare-ab12","name":"e1""#, "No such file"),
            (r#""kubernetes_service","namespace":"kube-system","name":"e1""#, "kube-system"),
            (r#""kubernetes_claim","namespace":"tare-ab12","name":"e1""#, "No such file"),
            (r#""kubernetes_claim","namespace":"kube-system","name":"e1""#, "kube-system"),
            (r#""kubernetes_volume","namespace":"tare-ab12","name":"pvc-1""#, "No such file"),
            (r#""kubernetes_volume","namespace":"kube-system","name":"pvc-1""#, "kube-system"),
        ];
        for (text, expect) in texts {
            let text = format!(r#"{{"kind":{text},"access":{access}}}"#);
            let entry: Entry = serde_json::from_str(&text).unwrap();
            let read: KubernetesEntry = entry.read().unwrap();
            assert_eq!(Entry::from(read), entry);
            let line = tare_host::error_line(&KubernetesKinds.undo("ab12", &entry).unwrap_err());
            assert!(line.contains(expect), "{line}");
        }
    }
}
