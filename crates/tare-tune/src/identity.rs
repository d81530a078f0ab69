//! Finds a recorded setting by its device, because numbers and names may have changed since: an
//! interrupt has another number, a network device was renamed.
//!
//! Method: a cheap check that the number or name is unchanged (one read of /proc/interrupts, one
//! small file for each device); only if that fails, the whole host is read. A setting whose device
//! is absent is never written, because its number may belong to another device by now.

use std::collections::HashMap;

use super::SettingStore;
use crate::machine::Interrupts;
use crate::plan::{Identity, Key};
use crate::snapshot::Snapshot;

/// Finds settings on one host at one time.
#[derive(Default)]
pub(super) struct SettingLocator {
    /// /proc/interrupts, read on first use.
    interrupts: Option<HashMap<u32, String>>,
    /// The current folder of each device that was checked, by recorded folder.
    devices: HashMap<(String, Option<String>), Option<String>>,
    snapshot: Option<Snapshot>,
}

impl SettingLocator {
    /// Returns the current location of a setting; `None` when its device is absent.
    pub(super) fn locate(
        &mut self,
        store: &dyn SettingStore,
        key: &Key,
        identity: &Identity,
    ) -> Option<Key> {
        match key {
            Key::IrqbalanceBans => Some(key.clone()),
            Key::Ethtool { nic, setting } => {
                let folder = format!("/sys/class/net/{nic}");
                let found = self.device(store, &folder, identity)?;
                let nic = found.rsplit('/').next()?.to_string();
                Some(Key::Ethtool { nic, setting: setting.clone() })
            }
            Key::File { path } => {
                if let Some((number, file)) = irq_of(path)
                    && let Some(name) = &identity.irq_name
                {
                    let now = self.irq(store, number, name, identity)?;
                    return Some(Key::file(format!("/proc/irq/{now}/{file}")));
                }
                let Some((folder, rest)) = device_of(path) else { return Some(key.clone()) };
                Some(Key::file(format!("{}{rest}", self.device(store, folder, identity)?)))
            }
        }
    }

    /// Returns the current number of an interrupt.
    fn irq(
        &mut self,
        store: &dyn SettingStore,
        number: u32,
        name: &str,
        identity: &Identity,
    ) -> Option<u32> {
        let interrupts = self.interrupts.get_or_insert_with(|| {
            let text = store.read(&Key::file("/proc/interrupts")).unwrap_or_default();
            text.lines().filter_map(number_and_rest).collect()
        });
        let named = |rest: &String| {
            rest.split([' ', ',']).filter(|word| !word.is_empty()).any(|word| word == name)
                || rest.ends_with(&format!(" {name}"))
        };
        let of_device = identity.pci.as_ref().is_none_or(|pci| {
            let folder = format!("/sys/bus/pci/devices/{pci}");
            store.read(&Key::file(format!("{folder}/msi_irqs/{number}"))).is_ok()
                || store
                    .read(&Key::file(format!("{folder}/irq")))
                    .is_ok_and(|irq| irq.trim() == number.to_string())
        });
        if of_device && interrupts.get(&number).is_some_and(named) {
            return Some(number);
        }
        let interrupts = Interrupts::read(self.snapshot(store));
        let same = |pci: &Option<String>| match (pci, &identity.pci) {
            (Some(now), Some(then)) => now == then,
            _ => true,
        };
        let mut found = interrupts.irqs.values().filter(|irq| irq.name == name && same(&irq.pci));
        found.next().map(|irq| irq.number)
    }

    /// Returns the current folder of a device.
    fn device(
        &mut self,
        store: &dyn SettingStore,
        folder: &str,
        identity: &Identity,
    ) -> Option<String> {
        let cached = (folder.to_string(), identity.device.clone());
        if let Some(found) = self.devices.get(&cached) {
            return found.clone();
        }
        let found = self.device_uncached(store, folder, identity);
        self.devices.insert(cached, found.clone());
        found
    }

    fn device_uncached(
        &mut self,
        store: &dyn SettingStore,
        folder: &str,
        identity: &Identity,
    ) -> Option<String> {
        let Some(device) = &identity.device else { return Some(folder.into()) };
        // The interface index, or MAJOR:MINOR.
        let file = if folder.contains("/net/") { "ifindex" } else { "dev" };
        let number = store.read(&Key::file(format!("{folder}/{file}")));
        if number.is_ok_and(|number| number.trim() == device) {
            return Some(folder.into());
        }
        let class = if file == "dev" { "/sys/class/block" } else { "/sys/class/net" };
        let snapshot = self.snapshot(store);
        let mut names = snapshot.names(class).into_iter().filter(|name| {
            let folder = format!("{class}/{name}");
            let of_pci = |pci: &String| {
                snapshot.real(&folder).is_some_and(|real| real.split('/').any(|part| part == pci))
            };
            snapshot.read(&format!("{folder}/{file}")) == Some(device.as_str())
                && identity.pci.as_ref().is_none_or(of_pci)
        });
        names.next().map(|name| format!("{class}/{name}"))
    }

    fn snapshot(&mut self, store: &dyn SettingStore) -> &Snapshot {
        self.snapshot.get_or_insert_with(|| store.snapshot())
    }
}

/// Splits a line of /proc/interrupts into its number and the rest.
fn number_and_rest(line: &str) -> Option<(u32, String)> {
    let (number, rest) = line.split_once(':')?;
    Some((number.trim().parse().ok()?, rest.to_string()))
}

/// Returns number and file of a path `/proc/irq/N/FILE`.
pub(super) fn irq_of(path: &str) -> Option<(u32, &str)> {
    let (number, file) = path.strip_prefix("/proc/irq/")?.split_once('/')?;
    Some((number.parse().ok()?, file))
}

/// Splits a path after the folder of a network or block device.
fn device_of(path: &str) -> Option<(&str, &str)> {
    let path_in_sys = path.starts_with("/sys/").then_some(path)?;
    for class in ["/net/", "/block/"] {
        if let Some(at) = path_in_sys.find(class) {
            let name = at + class.len();
            let end = path[name..].find('/').map_or(path.len(), |slash| name + slash);
            return Some(path.split_at(end));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_path_at_device() {
        let check = |path, folder, rest| assert_eq!(device_of(path), Some((folder, rest)));
        check(
            "/sys/class/net/eth0/queues/rx-0/rps_cpus",
            "/sys/class/net/eth0",
            "/queues/rx-0/rps_cpus",
        );
        let disk = "/sys/devices/pci0/0000:00:04.0/virtio1/block/vda";
        check(&format!("{disk}/queue/nomerges"), disk, "/queue/nomerges");
        assert_eq!(device_of("/proc/sys/net/core/somaxconn"), None);
        assert_eq!(irq_of("/proc/irq/38/smp_affinity"), Some((38, "smp_affinity")));
    }
}
