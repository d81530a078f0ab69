//! A host in memory: a writable snapshot that can inject write failures.

use super::SettingStore;
use crate::setting::{Key, SettingError, SettingErrorClass};
use crate::snapshot::Snapshot;

/// Reads and writes a snapshot.
#[derive(Clone, Debug, Default)]
pub struct SnapshotHost {
    pub snapshot: Snapshot,
    pub boot_id: String,
    /// The writes that fail. For each write the first match applies.
    pub failures: Vec<Failure>,
    /// Every accepted write, in order.
    pub written: Vec<(Key, String)>,
}

/// A write that fails.
#[derive(Clone, Debug)]
pub struct Failure {
    /// A part of the key as text, such as `/irq/24/`, `rps_cpus` or `eth0 channels combined`.
    pub key: String,
    /// The error. With `NotTaken` the write seems to succeed and changes nothing.
    pub class: SettingErrorClass,
}

impl SnapshotHost {
    /// Returns a host with the settings of a snapshot.
    pub fn new(snapshot: Snapshot) -> Self {
        Self { snapshot, boot_id: "memory".into(), ..Self::default() }
    }

    /// Makes writes to keys that contain `key` fail.
    pub fn failing(mut self, key: &str, class: SettingErrorClass) -> Self {
        self.failures.push(Failure { key: key.into(), class });
        self
    }
}

/// Returns a key as text.
fn shown(key: &Key) -> String {
    match key {
        Key::File { path } => path.clone(),
        Key::Ethtool { nic, setting } => {
            let (file, name) = setting.pseudo();
            format!("{nic} {file} {name}")
        }
        Key::IrqbalanceBans => "irqbalance bans".into(),
    }
}

impl SettingStore for SnapshotHost {
    fn read(&self, key: &Key) -> Result<String, SettingError> {
        let value = key.read_from(&self.snapshot);
        value.ok_or_else(|| SettingError {
            class: SettingErrorClass::Absent,
            text: format!("cannot read {}: this host does not have it", shown(key)),
        })
    }

    fn write(&mut self, key: &Key, value: &str) -> Result<(), SettingError> {
        let name = shown(key);
        self.read(key)?;
        let failure = self.failures.iter().find(|failure| name.contains(&failure.key));
        match failure.map(|failure| failure.class) {
            Some(SettingErrorClass::NotTaken) => {}
            Some(class) => {
                let text = format!("cannot write {value:?} to {name}: injected failure");
                return Err(SettingError { class, text });
            }
            None => key.write_to(&mut self.snapshot, value),
        }
        self.written.push((key.clone(), value.into()));
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    fn boot_id(&self) -> String {
        self.boot_id.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::EthtoolSetting;
    use crate::snapshot::Node;

    #[test]
    fn writes_and_reads_snapshot() {
        let mut snapshot = Snapshot::default();
        snapshot.insert("/proc/sys/vm/swappiness", Node::File("60".into()));
        snapshot.insert("/tare/ethtool/eth0/channels", Node::File("rx 0\ncombined 2".into()));
        let mut host =
            SnapshotHost::new(snapshot).failing("swappiness", SettingErrorClass::Permission);
        let channels =
            Key::Ethtool { nic: "eth0".into(), setting: EthtoolSetting::ChannelsCombined };
        host.write(&channels, "1").unwrap();
        assert_eq!(host.read(&channels).unwrap(), "1");
        let swappiness = Key::file("/proc/sys/vm/swappiness");
        assert_eq!(host.write(&swappiness, "1").unwrap_err().class, SettingErrorClass::Permission);
        assert_eq!(host.read(&swappiness).unwrap(), "60");
        let absent = host.write(&Key::file("/sys/none"), "1").unwrap_err();
        assert_eq!(absent.class, SettingErrorClass::Absent);
        assert_eq!(host.written, [(channels, "1".to_string())]);
    }
}
