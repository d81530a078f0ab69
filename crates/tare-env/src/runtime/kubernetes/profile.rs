//! A seccomp profile as a file of the node, for the time of a run (`Localhost`).
//!
//! The kubelet looks for it below `seccomp` of its folder
//! (<https://kubernetes.io/docs/reference/node/seccomp/>); the container runtime reads it in the
//! form of the OCI when it starts the pod.

use std::fs;
use std::path::PathBuf;

use tare_host::journal::Journal;
use tare_lab::PartError;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::Security;
use tare_tune::machine::kubelet::Kubelet;

use super::KubernetesError;
use crate::kubernetes::KubernetesEntry;
use crate::layer::security;
use crate::run_context::RunContext;
use crate::runtime::bundle;

/// The folder of profiles below that of the kubelet (`--root-dir`).
const FOLDER: &str = "seccomp";

/// The name of the file in the folder of a run.
const FILE: &str = "profile.json";

/// A profile in the run's folder. All pods of the run share it.
#[derive(Debug)]
pub(super) struct Profile {
    folder: PathBuf,
    /// As a manifest names it, from the kubelet's folder of profiles on.
    name: String,
    security: Security,
}

impl Profile {
    /// Returns the profile of an environment, if it is neither the runtime's own nor none.
    ///
    /// # Errors
    /// If no kubelet is found on this host.
    pub(super) fn of(
        spec: &EnvironmentSpec,
        context: &RunContext,
    ) -> Result<Option<Self>, KubernetesError> {
        let security = spec.security;
        if security != Security::DefaultWithIoUring {
            return Ok(None);
        }
        let environment = || spec.name.clone();
        let kubelet = Kubelet::here()
            .ok_or_else(|| KubernetesError::NoKubelet { environment: environment(), security })?;
        let name = context.prefix();
        let folder = PathBuf::from(kubelet.root_dir).join(FOLDER).join(&name);
        Ok(Some(Self { folder, name: format!("{name}/{FILE}"), security }))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Writes the file, unless another environment of the run has.
    pub(super) fn provide(&self, journal: &Journal) -> Result<(), PartError> {
        let path = self.folder.join(FILE);
        if path.exists() {
            return Ok(());
        }
        let made_parent = self.folder.parent().is_some_and(|parent| !parent.exists());
        let folder = self.folder.clone();
        journal.write(vec![KubernetesEntry::Profile { folder, made_parent }.into()])?;
        let profile = security::default_profile(self.security, bundle::kernel())?;
        let text = serde_json::to_string(&profile)?;
        fs::create_dir_all(&self.folder)
            .and_then(|()| fs::write(&path, text))
            .map_err(|source| KubernetesError::File { path, source }.into())
    }
}
