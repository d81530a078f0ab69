//! The volume of a storage class (`storage = { kind = "class" }`): a claim with the pod's name, and
//! a directory of its own in the volume, so that `lost+found` and what others have there stay
//! apart.

use std::path::Path;
use std::time::Duration;

use tare_host::journal::Entry;
use tare_kube::{NewClaim, Volume};
use tare_lab::PartError;
use tare_lab::environment::LayerState;

use super::Pod;
use crate::kubernetes::{KubernetesEntry, data_directory, given_back};
use crate::storage::MountView;
use crate::system;

impl Pod {
    /// Returns the journal entry of the claim, if the storage has one.
    pub(super) fn claim_entry(&self) -> Option<Entry> {
        self.storage.claim().map(|_| {
            let (access, namespace) = (self.access.clone(), self.context.prefix());
            let name = self.name.clone();
            KubernetesEntry::Claim { access, namespace, name }.into()
        })
    }

    /// Creates the claim, if the storage has one. Returns how long the pod may wait for a volume.
    pub(super) fn claim_volume(&self) -> Result<Duration, PartError> {
        let Some(claim) = self.storage.claim() else { return Ok(Duration::ZERO) };
        Ok(self.cluster.create_claim(&NewClaim {
            namespace: &self.namespace,
            name: &self.name,
            run: self.context.run(),
            class: claim.class.as_deref(),
            bytes: claim.bytes,
        })?)
    }

    /// Returns the volume of the claim of a running pod, and journals it if it stays after the
    /// claim: the entry names it at the end of the run.
    pub(super) fn bound_volume(&self) -> Result<Option<Volume>, PartError> {
        if self.storage.claim().is_none() {
            return Ok(None);
        }
        let volume = self.cluster.volume_of(&self.namespace, &self.name)?;
        if let Some(volume) = volume.as_ref().filter(|volume| stays(volume)) {
            let (access, namespace) = (self.access.clone(), self.context.prefix());
            let name = volume.name.clone();
            let entry = KubernetesEntry::Volume { access, namespace, name };
            self.context.journal().write(vec![entry.into()])?;
        }
        Ok(volume)
    }

    /// Reads the storage layer back: the volume of the API, and the mount of the process.
    pub(super) fn volume_state(&self, volume: &Volume, seen: &MountView) -> LayerState {
        let is_ours = seen.is_in(&data_directory(&self.namespace, &self.name));
        let is_there = |path: &String| seen.is_mount_of(&MountView::of_host(Path::new(path)));
        let in_force = is_ours && volume.directory.as_ref().is_none_or(is_there);
        let Volume { name, class, what, .. } = volume;
        let stays = if stays(volume) { ", which stays (reclaim policy Retain)" } else { "" };
        let found = format!("volume {name} of class {class}{stays}: {what}; {}", seen.text());
        system::state("storage", &self.spec.storage, found, in_force)
    }
}

/// Returns whether a volume stays with the data when its claim is gone.
fn stays(volume: &Volume) -> bool {
    volume.is_retained && given_back(volume).is_none()
}
