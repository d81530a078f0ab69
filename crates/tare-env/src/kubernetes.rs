//! The journal entries of pods and of the namespace that they are in. The cluster is found by the
//! access in the entry, because the environment variables may name another one by the time of a
//! clean.

use serde::{Deserialize, Serialize};
use tare_host::UndoError;
use tare_host::journal::Entry;
use tare_host::undo::{UndoKinds, check_name};
use tare_kube::{Access, Cluster, KubeError};

/// An entry of this module, as it is written in a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum KubernetesEntry {
    /// A namespace of a cluster, with everything in it.
    KubernetesNamespace { access: Access, name: String },
    /// A pod in the namespace of a run.
    KubernetesPod { access: Access, namespace: String, name: String },
    /// A service in the namespace of a run.
    KubernetesService { access: Access, namespace: String, name: String },
}

impl From<KubernetesEntry> for Entry {
    fn from(entry: KubernetesEntry) -> Self {
        Self::new(&entry)
    }
}

/// Undoes the entries of this module.
#[derive(Debug)]
pub(crate) struct KubernetesKinds;

impl UndoKinds for KubernetesKinds {
    fn kinds(&self) -> &'static [&'static str] {
        &["kubernetes_namespace", "kubernetes_pod", "kubernetes_service"]
    }

    fn undo(&self, run: &str, entry: &Entry) -> Result<(), UndoError> {
        let removed = match entry.read()? {
            KubernetesEntry::KubernetesNamespace { access, name } => {
                check_name(run, &name)?;
                Cluster::connect(&access).and_then(|cluster| cluster.delete_namespace(&name, run))
            }
            KubernetesEntry::KubernetesPod { access, namespace, name } => {
                check_name(run, &namespace)?;
                Cluster::connect(&access).and_then(|cluster| cluster.delete_pod(&namespace, &name))
            }
            KubernetesEntry::KubernetesService { access, namespace, name } => {
                check_name(run, &namespace)?;
                let cluster = Cluster::connect(&access);
                cluster.and_then(|cluster| cluster.delete_service(&namespace, &name))
            }
        };
        removed.map_err(|error: KubeError| UndoError::OfKind(Box::new(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
