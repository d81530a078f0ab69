//! Reads and writes the settings of a host: the live host, a directory with the files of a host, or
//! a snapshot in memory. Tests use the last two.

mod live;
mod memory;

use crate::setting::{Key, SettingError};
use crate::snapshot::Snapshot;

pub use live::LiveHost;
pub use memory::{Failure, SnapshotHost};

/// Reads and writes settings.
pub trait SettingStore {
    /// Returns the value as the host reports it.
    ///
    /// # Errors
    /// `Absent` when the host does not have the setting.
    fn read(&self, key: &Key) -> Result<String, SettingError>;

    /// Writes a value.
    ///
    /// # Errors
    /// When the host does not take the value.
    fn write(&mut self, key: &Key, value: &str) -> Result<(), SettingError>;

    /// Checks whether this process may write the setting. A tuning checks all its settings before
    /// it writes the first. `Ok` where that cannot be known.
    ///
    /// # Errors
    /// `Permission`: the process is not root, or the file system is mounted read only.
    fn may_write(&self, key: &Key) -> Result<(), SettingError> {
        let _ = key;
        Ok(())
    }

    /// Takes a snapshot of everything that the planner reads.
    fn snapshot(&self) -> Snapshot;

    /// Returns /proc/sys/kernel/random/boot_id, which differs after each boot.
    fn boot_id(&self) -> String;
}
