//! The kubelet of this host: its process, its version, and those of its settings that decide which
//! CPUs and which memory a pod gets. Tare reads them and never changes them.
//!
//! Method: `describe` finds the process, merges its configuration file, its drop-in files and its
//! flags as the kubelet does, and keeps the settings of [`Settings`] as one JSON text, the pseudo
//! file `/tare/kubelet`. Everything else in these files (tokens, addresses, paths of certificates)
//! stays out of a snapshot. `read` returns what a snapshot has.
//!
//! Limits: a kubelet inside another process (k3s) is not read; [`inside_other_process`] names it.

mod configuration;
mod describe;
mod flags;
pub mod quantity;
mod settings;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::snapshot::Snapshot;

pub(crate) use describe::describe;
pub use describe::runs_kubelet;
pub use settings::{ReservedMemory, Settings};

/// The pseudo file of a snapshot with the kubelet as JSON.
pub(crate) const FILE: &str = "/tare/kubelet";

/// A running kubelet with its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kubelet {
    /// Its process id on this host.
    pub process: u32,
    /// The version that its program prints: `v1.34.1`; `None` if the program could not be asked.
    pub version: Option<String>,
    /// The configuration file (`--config`), as the kubelet names it.
    pub config: Option<String>,
    /// The folder of drop-in files (`--config-dir`).
    pub config_dir: Option<String>,
    /// The folder of its state (`--root-dir`).
    pub root_dir: String,
    /// The settings in force after its last start, if the files have not changed since.
    pub settings: Settings,
    /// Flags of its command line that override the files: `--cpu-manager-policy`.
    pub flags: Vec<String>,
    /// The CPU manager's policy in its checkpoint, which the running kubelet has; `None` if the
    /// checkpoint cannot be read.
    pub running_policy: Option<String>,
    /// Whether a file could not be read, so that a setting that is not set here may be set there.
    pub incomplete: bool,
    /// What could not be read and why, one sentence each.
    pub troubles: Vec<String>,
}

impl Kubelet {
    /// Returns the kubelet of a snapshot; `None` where none ran.
    pub fn read(snapshot: &Snapshot) -> Option<Self> {
        serde_json::from_str(snapshot.read(FILE)?).ok()
    }

    /// Returns the kubelet of this host; `None` where none runs.
    pub fn here() -> Option<Self> {
        serde_json::from_str(&describe(Path::new("/"))?).ok()
    }

    /// Returns major and minor version: `(1, 34)` for `v1.34.1`, `v1.34.1+k3s1` or `v1.34.1-gke.5`.
    pub fn release(&self) -> Option<(u32, u32)> {
        let numbers = self.version.as_deref()?.strip_prefix('v')?;
        let mut numbers = numbers.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    /// Whether its version is known and at least this one.
    pub fn is_at_least(&self, release: (u32, u32)) -> bool {
        self.release().is_some_and(|is| is >= release)
    }
}

/// Returns the process that runs the kubelet inside itself, whose settings are not read.
pub fn inside_other_process(snapshot: &Snapshot) -> Option<&'static str> {
    let runs = |name: &&&str| snapshot.exists(&format!("/tare/owners/process/{name}"));
    ["k3s-server", "k3s-agent"].iter().find(runs).copied()
}
