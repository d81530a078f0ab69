//! Where the settings of a host are read and written: the live host, a directory that holds the
//! files of one, or a snapshot in memory. Tests of everything above use the last two.

mod live;
mod memory;

use crate::plan::Key;
use crate::snapshot::Snapshot;

pub use live::LiveHost;
pub use memory::{Failure, SnapshotHost};

/// Reads and writes settings.
pub trait SettingStore {
    /// The value as the host gives it.
    ///
    /// # Errors
    /// `Absent` when the host does not have the setting.
    fn read(&self, key: &Key) -> Result<String, SettingError>;

    /// Writes a value.
    ///
    /// # Errors
    /// Why the host did not take it.
    fn write(&mut self, key: &Key, value: &str) -> Result<(), SettingError>;

    /// Whether a write of this setting could be tried at all: asked for all settings of a tuning
    /// before the first is written. `Ok` where that cannot be known.
    ///
    /// # Errors
    /// `Permission`: not root, or the file is on a file system that is mounted read only.
    fn may_write(&self, key: &Key) -> Result<(), SettingError> {
        let _ = key;
        Ok(())
    }

    /// Everything that the planner reads, now.
    fn snapshot(&self) -> Snapshot;

    /// Differs after each boot: /proc/sys/kernel/random/boot_id.
    fn boot_id(&self) -> String;
}

/// Why a setting could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct SettingError {
    pub class: SettingErrorClass,
    /// What failed, on what, why.
    pub text: String,
}

/// Kinds of setting errors, each with its own advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingErrorClass {
    /// The kernel manages the affinity of this interrupt (EPERM or EIO on /proc/irq).
    ManagedIrq,
    /// The CPU has no interrupt vector left (ENOSPC).
    NoVector,
    /// The host, the driver or the device does not have it (ENOENT, EOPNOTSUPP, EINVAL).
    Absent,
    /// EACCES, EPERM, EROFS.
    Permission,
    /// It was written but reads back as it was, or as a third value.
    NotTaken,
    /// Somebody else wrote it meanwhile.
    ChangedByOther,
    /// Anything else of the host.
    Failed,
}
