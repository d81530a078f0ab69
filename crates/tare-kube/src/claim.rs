//! A claim of storage (PersistentVolumeClaim), and the volume that the cluster binds to it.
//!
//! Method: a class that binds at once is waited for before a pod is made; a class that waits for
//! the first consumer binds when the pod is scheduled. A claim without a volume in time is an error
//! with what the events of the claim say.

use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, DELETE_LIMIT, PAUSE};
use crate::error::{KubeError, RUN_LABEL, one_line};
use crate::events;

/// The provisioner of classes whose volumes an administrator makes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The annotation of a class that claims without a class get.
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// The annotation of a volume that a provisioner made for a claim.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// How long a provisioner may take to make a volume.
const PROVISION_LIMIT: Duration = Duration::from_secs(120);

/// How long a volume that exists may take to be seen.
const EXISTING_LIMIT: Duration = Duration::from_secs(10);

/// A claim to create.
#[derive(Clone, Copy, Debug)]
pub struct NewClaim<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// The run that it belongs to, as a label.
    pub run: &'a str,
    /// The storage class; `None` is the cluster's default.
    pub class: Option<&'a str>,
    pub bytes: u64,
}

/// A volume that is bound to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub name: String,
    uid: String,
    pub class: String,
    /// What it is, such as `CSI driver ebs.csi.aws.com` or `directory /srv/disk1`.
    pub what: String,
    /// The directory of the node that it is (`local`, `hostPath`).
    pub directory: Option<String>,
    /// Whether it stays when its claim is deleted (reclaim policy `Retain`).
    pub is_retained: bool,
    /// Whether a provisioner made it for the claim. Otherwise it existed before.
    pub is_provisioned: bool,
}

impl NewClaim<'_> {
    /// Returns the claim as it is written in a manifest.
    fn manifest(&self) -> Value {
        let mut claim = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": { RUN_LABEL: self.run },
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": self.bytes.to_string() } },
            },
        });
        if let Some(class) = self.class {
            claim["spec"]["storageClassName"] = json!(class);
        }
        claim
    }
}

impl Volume {
    fn of(volume: PersistentVolume) -> Self {
        let PersistentVolume { metadata, spec, .. } = volume;
        let spec = spec.unwrap_or_default();
        let directory = spec.local.map(|local| local.path);
        let directory = directory.or_else(|| spec.host_path.map(|host| host.path));
        let what = match (&directory, spec.csi) {
            (Some(path), _) => format!("directory {path}"),
            (None, Some(csi)) => format!("CSI driver {}", csi.driver),
            (None, None) => "neither a directory of the node nor of a CSI driver".into(),
        };
        let annotations = metadata.annotations.unwrap_or_default();
        Self {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            class: spec.storage_class_name.unwrap_or_default(),
            what,
            directory,
            is_retained: spec.persistent_volume_reclaim_policy.as_deref() == Some("Retain"),
            is_provisioned: annotations.contains_key(PROVISIONED_BY),
        }
    }
}

impl Cluster {
    /// Creates a claim and waits for its volume, if its class binds before there is a pod. Returns
    /// how long a pod may wait for the volume.
    ///
    /// # Errors
    /// If there is no such class, or no volume in time. The claim stays until it is deleted.
    pub fn create_claim(&self, new: &NewClaim<'_>) -> Result<Duration, KubeError> {
        let class = self.class(new.class)?;
        let existing = class.provisioner == NO_PROVISIONER;
        let limit = if existing { EXISTING_LIMIT } else { PROVISION_LIMIT };
        let what = format!("create the claim {}", new.name);
        let claim: PersistentVolumeClaim = self.typed(&what, new.manifest())?;
        let claims = self.claims(new.namespace);
        self.call(&what, async { claims.create(&PostParams::default(), &claim).await })?;
        if class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer") {
            return Ok(limit);
        }
        let deadline = Instant::now() + limit;
        while self.volume_of(new.namespace, new.name)?.is_none() {
            if Instant::now() > deadline {
                let none = KubeError::TimedOut { what: "bind the claim".into(), limit };
                return Err(self.unbound(new.namespace, new.name, none));
            }
            thread::sleep(PAUSE);
        }
        Ok(limit)
    }

    /// Returns a class, or the cluster's default.
    fn class(&self, name: Option<&str>) -> Result<StorageClass, KubeError> {
        let all: Api<StorageClass> = Api::all(self.client.clone());
        let listed = self.call("list the storage classes", all.list(&ListParams::default()))?;
        let names = listed.items.iter().filter_map(|class| class.metadata.name.clone());
        let known = names.collect::<Vec<_>>().join(", ");
        let is_default = |class: &StorageClass| {
            let annotations = class.metadata.annotations.as_ref();
            annotations.and_then(|all| all.get(IS_DEFAULT)).is_some_and(|value| value == "true")
        };
        let is_it = |class: &StorageClass| match name {
            Some(name) => class.metadata.name.as_deref() == Some(name),
            None => is_default(class),
        };
        let known = if known.is_empty() { "none".into() } else { known };
        let wanted = name.unwrap_or("that is the default");
        let missing = || KubeError::NoClass { name: wanted.into(), known };
        listed.items.into_iter().find(is_it).ok_or_else(missing)
    }

    /// Returns the volume of a claim, once it is bound.
    ///
    /// # Errors
    /// If the user may not read claims and volumes.
    pub fn volume_of(&self, namespace: &str, claim: &str) -> Result<Option<Volume>, KubeError> {
        let what = format!("read the claim {claim}");
        let found = self.call(&what, self.claims(namespace).get_opt(claim))?;
        let bound = found.filter(|found| {
            found.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
        });
        let name = bound.and_then(|claim| claim.spec?.volume_name);
        let Some(name) = name else { return Ok(None) };
        let what = format!("read the volume {name}");
        Ok(self.call(&what, self.volumes().get_opt(&name))?.map(Volume::of))
    }

    /// Returns why a pod with a claim did not start: if the claim has no volume, what its events
    /// and the scheduler say.
    pub(crate) fn unbound(&self, namespace: &str, claim: &str, error: KubeError) -> KubeError {
        if !matches!(self.volume_of(namespace, claim), Ok(None)) {
            return error;
        }
        let why = match self.events(namespace, ("PersistentVolumeClaim", claim)) {
            Ok(events) => {
                let lines: Vec<String> = events.iter().filter_map(events::line).collect();
                if lines.is_empty() { "it has no events".into() } else { lines.join("; ") }
            }
            Err(error) => error.to_string(),
        };
        KubeError::Unbound { claim: claim.into(), why, pod: error.to_string() }
    }

    /// Deletes a claim and waits until it is gone, and its volume too where the volume's policy is
    /// to be deleted. A missing one is no error.
    ///
    /// # Errors
    /// If one of them is still there after a while.
    pub fn delete_claim(&self, namespace: &str, claim: &str) -> Result<(), KubeError> {
        let volume = self.volume_of(namespace, claim)?;
        self.delete(&format!("delete the claim {claim}"), &self.claims(namespace), claim)?;
        volume.filter(|volume| !volume.is_retained).map_or(Ok(()), |volume| self.wait_gone(&volume))
    }

    /// Waits until a volume is gone, which its provisioner deletes.
    fn wait_gone(&self, volume: &Volume) -> Result<(), KubeError> {
        let what = format!("delete the volume {}", volume.name);
        let deadline = Instant::now() + DELETE_LIMIT;
        loop {
            let found = self.call(&what, self.volumes().get_opt(&volume.name))?;
            // A provisioner of local volumes may have made another one of the same name.
            let same = |found: &PersistentVolume| found.metadata.uid.as_ref() == Some(&volume.uid);
            let Some(found) = found.filter(same) else { return Ok(()) };
            let status = found.status.unwrap_or_default();
            if status.phase.as_deref() == Some("Failed") {
                let message = one_line(&status.message.unwrap_or_default());
                return Err(KubeError::Api { what, code: 0, message });
            }
            if Instant::now() > deadline {
                return Err(KubeError::TimedOut { what, limit: DELETE_LIMIT });
            }
            thread::sleep(PAUSE);
        }
    }

    /// Makes a retained volume, whose claim is gone, available to other claims again.
    ///
    /// # Errors
    /// If the user may not change volumes.
    pub fn release_volume(&self, volume: &Volume) -> Result<(), KubeError> {
        let what = format!("make the volume {} available again", volume.name);
        let unclaimed = Patch::Merge(json!({ "spec": { "claimRef": null } }));
        let volumes = self.volumes();
        let parameters = PatchParams::default();
        self.call(&what, volumes.patch(&volume.name, &parameters, &unclaimed)).map(drop)
    }

    /// Returns whether a volume is still that of claims in a namespace.
    ///
    /// # Errors
    /// If the user may not read volumes.
    pub fn volume_stays(&self, name: &str, namespace: &str) -> Result<bool, KubeError> {
        let what = format!("read the volume {name}");
        let found = self.call(&what, self.volumes().get_opt(name))?;
        let claim = found.and_then(|found| found.spec?.claim_ref?.namespace);
        Ok(claim.as_deref() == Some(namespace))
    }

    fn claims(&self, namespace: &str) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_a_claim_of_the_api() {
        for class in [Some("fast"), None] {
            let new =
                NewClaim { namespace: "tare-ab12", name: "e1", run: "ab12", class, bytes: 1 << 30 };
            let claim: PersistentVolumeClaim = serde_json::from_value(new.manifest()).unwrap();
            let spec = claim.spec.unwrap();
            assert_eq!(spec.storage_class_name.as_deref(), class);
            let requests = spec.resources.unwrap().requests.unwrap();
            assert_eq!(requests["storage"].0, "1073741824");
        }
    }

    #[test]
    fn volumes_are_described_by_what_they_are() {
        let volume = |spec: Value, annotations: Value| {
            let metadata = json!({ "name": "v1", "uid": "u1", "annotations": annotations });
            Volume::of(
                serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap(),
            )
        };
        let local = volume(
            json!({ "local": { "path": "/srv/disk1" }, "persistentVolumeReclaimPolicy": "Retain" }),
            json!({}),
        );
        assert_eq!(local.what, "directory /srv/disk1");
        assert!(local.is_retained && !local.is_provisioned);
        let csi = json!({ "driver": "ebs.csi.aws.com", "volumeHandle": "vol-1" });
        let csi = volume(json!({ "csi": csi }), json!({ PROVISIONED_BY: "ebs.csi.aws.com" }));
        assert_eq!((csi.what.as_str(), csi.directory), ("CSI driver ebs.csi.aws.com", None));
        assert!(!csi.is_retained && csi.is_provisioned);
    }
}
