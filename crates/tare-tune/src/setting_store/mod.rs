//! Where the settings of a host are read and written: the live host, a directory that holds the
//! files of one, or a snapshot in memory. Tests of everything above use the last two.

mod live;
mod memory;

use crate::setting::{Key, SettingError};
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
