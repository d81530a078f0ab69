//! Forwarding between network devices while a published port needs it, and its journal entry.
//!
//! It is set for single devices: `net.ipv4.ip_forward` would reset other settings of all devices.
//! The kernel turns large receive offload off on a device that forwards, and never on again
//! (`devinet_sysctl_forward` in net/ipv4/devinet.c), so that is put back too.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tare_host::UndoError;
use tare_host::exec::{Command, find};
use tare_host::journal::Entry;
use tare_host::undo::UndoKinds;

use crate::client::NetworkError;

/// The kind of the journal's entries.
const KIND: &str = "forwarding";

/// Forwarding of one network device of the host that is not Tare's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "forwarding")]
pub(crate) struct Forwarding {
    device: String,
    /// Whether the device forwards without Tare, which then changes nothing.
    was_on: bool,
    /// Whether all devices forward without Tare, unless one is set otherwise.
    host_was_on: bool,
    /// Whether the device had large receive offload.
    receive_offload: bool,
}

impl Forwarding {
    /// Reads the present state of a device.
    pub(crate) fn read(device: &str) -> Result<Self, NetworkError> {
        let path = path(device);
        let value = "read";
        let text = fs::read_to_string(&path).map_err(|source| NetworkError::Setting {
            path,
            value,
            source,
        })?;
        Ok(Self {
            device: device.into(),
            was_on: text.trim() == "1",
            host_was_on: host_forwards(),
            receive_offload: has_receive_offload(device),
        })
    }

    /// Returns whether the device forwards without Tare.
    pub(crate) fn was_on(&self) -> bool {
        self.was_on
    }

    /// Returns the entry that must be in the journal before `set`, if `set` changes anything.
    pub(crate) fn entry(&self) -> Option<Entry> {
        (!self.was_on).then(|| Entry::new(self))
    }

    /// Turns forwarding on, or puts it back.
    pub(crate) fn set(&self, on: bool) -> Result<(), NetworkError> {
        if self.was_on {
            return Ok(());
        }
        if !on && host_forwards() && !self.host_was_on {
            // Somebody, such as a starting container engine, has turned it on for the host since.
            return Ok(());
        }
        Self::of_ours(&self.device, on)?;
        if !on && self.receive_offload {
            Command::new("ethtool").args(["-K", &self.device, "lro", "on"]).run()?;
        }
        Ok(())
    }

    /// Sets forwarding of a device that Tare created, which needs no journal.
    pub(crate) fn of_ours(device: &str, on: bool) -> Result<(), NetworkError> {
        let (path, value) = (path(device), if on { "1" } else { "0" });
        let written = fs::write(&path, value);
        written.map_err(|source| NetworkError::Setting { path, value, source })
    }

    /// Returns the state of the device in words, and whether it is the one that an environment
    /// needs that publishes a port, or none.
    pub(crate) fn state(&self, published: bool) -> (String, bool) {
        let found = fs::read_to_string(path(&self.device)).unwrap_or_default();
        let wanted = if published || self.was_on { "1" } else { "0" };
        (format!("forwarding of {}: {}", self.device, found.trim()), found.trim() == wanted)
    }
}

fn host_forwards() -> bool {
    fs::read_to_string("/proc/sys/net/ipv4/ip_forward").is_ok_and(|text| text.trim() == "1")
}

fn path(device: &str) -> PathBuf {
    PathBuf::from(format!("/proc/sys/net/ipv4/conf/{device}/forwarding"))
}

/// Returns whether large receive offload is on. Without ethtool it is taken as off, as in almost
/// every driver.
fn has_receive_offload(device: &str) -> bool {
    let features =
        find("ethtool").and_then(|path| Command::new(path).args(["-k", device]).run().ok());
    features.is_some_and(|features| {
        features.stdout.lines().any(|line| line.trim() == "large-receive-offload: on")
    })
}

/// Undoes the entries of this file.
#[derive(Debug)]
pub(crate) struct ForwardingKinds;

impl UndoKinds for ForwardingKinds {
    fn kinds(&self) -> &'static [&'static str] {
        &[KIND]
    }

    fn undo(&self, _run: &str, entry: &Entry) -> Result<(), UndoError> {
        let forwarding: Forwarding = entry.read()?;
        let device = &forwarding.device;
        // The name is part of a path.
        if device.contains('/')
            || device.starts_with('.')
            || !Path::new("/sys/class/net").join(device).exists()
        {
            return Ok(());
        }
        forwarding.set(false).map_err(|error| UndoError::OfKind(Box::new(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_keeps_its_form() {
        let text = r#"{"kind":"forwarding","device":"eth0","was_on":false,"host_was_on":false,"receive_offload":true}"#;
        let entry: Entry = serde_json::from_str(text).unwrap();
        assert_eq!(entry.kind(), KIND);
        let read: Forwarding = entry.read().unwrap();
        assert_eq!(read.entry(), Some(entry));
        assert_eq!(Forwarding { was_on: true, ..read }.entry(), None);
        // A device that is gone, or a path, is left alone.
        for device in ["tare-none0", "../lo", "."] {
            let entry = Forwarding {
                device: device.into(),
                was_on: false,
                host_was_on: false,
                receive_offload: false,
            };
            ForwardingKinds.undo("ab12", &Entry::new(&entry)).unwrap();
        }
    }
}
