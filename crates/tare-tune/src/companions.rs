//! Settings that the kernel resets when another one is written, so that a revert must restore both.
//!
//! A change of channels recreates the queues of a device and their interrupts: those that vanish
//! lose their CPUs, and some drivers spread all queues again (`virtnet_set_affinity`). A change of
//! the I/O scheduler sets the queue depth and the scheduler's own limits to defaults
//! (`elevator_switch`).

pub(super) use super::journal::Companion;

use super::SettingStore;
use super::identity::SettingLocator;
use crate::machine::Interrupts;
use crate::plan::{EthtoolSetting, Identity, Key, ValueFormat};

/// Settings below `queue/` that go with `queue/scheduler`.
const OF_SCHEDULER: &[&str] = &[
    "nr_requests",
    "wbt_lat_usec",
    "iosched/read_expire",
    "iosched/write_expire",
    "iosched/writes_starved",
    "iosched/front_merges",
    "iosched/fifo_batch",
    "iosched/prio_aging_expire",
    "iosched/async_depth",
    "iosched/read_lat_nsec",
    "iosched/write_lat_nsec",
    "iosched/low_latency",
    "iosched/slice_idle",
    "iosched/slice_idle_us",
    "iosched/strict_guarantees",
];

/// Returns the companions of a setting with their current values.
pub(super) fn of(store: &dyn SettingStore, key: &Key, identity: &Identity) -> Vec<Companion> {
    let with = |key: Key, form, identity: &Identity| {
        let old = store.read(&key).ok()?.trim().to_string();
        Some(Companion { key, form, old, identity: identity.clone() })
    };
    match key {
        Key::File { path } => {
            let Some(folder) = path.strip_suffix("/queue/scheduler") else { return Vec::new() };
            let of = |name: &&str| {
                with(Key::file(format!("{folder}/queue/{name}")), ValueFormat::Text, identity)
            };
            OF_SCHEDULER.iter().filter_map(of).collect()
        }
        Key::Ethtool { nic, setting } => match setting {
            EthtoolSetting::ChannelsRx | EthtoolSetting::ChannelsCombined => {
                let keys = of_channels(store, nic, identity);
                keys.into_iter().filter_map(|(key, form, id)| with(key, form, &id)).collect()
            }
            _ => Vec::new(),
        },
        Key::IrqbalanceBans => Vec::new(),
    }
}

/// Returns the CPU settings of every queue and interrupt of a network device.
fn of_channels(
    store: &dyn SettingStore,
    nic: &str,
    identity: &Identity,
) -> Vec<(Key, ValueFormat, Identity)> {
    let snapshot = store.snapshot();
    let mut keys = Vec::new();
    let queues = format!("/sys/class/net/{nic}/queues");
    for queue in snapshot.names(&queues) {
        for (file, form) in [
            ("rps_cpus", ValueFormat::Mask),
            ("rps_flow_cnt", ValueFormat::Text),
            ("xps_cpus", ValueFormat::Mask),
        ] {
            keys.push((Key::file(format!("{queues}/{queue}/{file}")), form, identity.clone()));
        }
    }
    let real = snapshot.real(&format!("/sys/class/net/{nic}")).unwrap_or_default();
    let pci = identity.pci.as_deref().or(crate::machine::last_pci_address(&real));
    let Some(pci) = pci else { return keys };
    for irq in Interrupts::read(&snapshot).irqs.values() {
        if irq.pci.as_deref() == Some(pci) {
            let identity =
                Identity { pci: Some(pci.into()), irq_name: Some(irq.name.clone()), device: None };
            let path = format!("/proc/irq/{}/smp_affinity", irq.number);
            keys.push((Key::file(path), ValueFormat::Mask, identity));
        }
    }
    keys
}

/// Reads the current values of companions; `None` for one that has vanished.
pub(super) fn read(store: &dyn SettingStore, companions: &[Companion]) -> Vec<Option<String>> {
    let mut finder = SettingLocator::default();
    let read = |companion: &Companion| {
        let key = finder.locate(store, &companion.key, &companion.identity)?;
        Some(store.read(&key).ok()?.trim().to_string())
    };
    companions.iter().map(read).collect()
}

/// Restores companions after their setting was restored.
///
/// `before` are their values just before that, `after` those just after the setting was written. A
/// value that is neither of these nor the old value comes from another program, and stays unless
/// the kernel has reset it. Returns the errors.
pub(super) fn restore(
    store: &mut dyn SettingStore,
    companions: &[Companion],
    before: &[Option<String>],
    after: Option<&Vec<Option<String>>>,
) -> Vec<String> {
    let mut finder = SettingLocator::default();
    let mut failed = Vec::new();
    for (index, companion) in companions.iter().enumerate() {
        let same = |value: &str| companion.form.same(value, &companion.old);
        let ours = match before.get(index).and_then(Option::as_ref) {
            // It did not exist.
            None => true,
            Some(before) => match after.and_then(|after| after.get(index)) {
                Some(Some(after)) => same(before) || companion.form.same(before, after),
                // It did not exist and now does: another program recreated it.
                Some(None) => same(before),
                // The tuning was interrupted before its value was recorded.
                None => true,
            },
        };
        let Some(key) = finder.locate(store, &companion.key, &companion.identity) else { continue };
        let Ok(now) = store.read(&key) else { continue };
        if !ours || same(&now) {
            continue;
        }
        let old = match companion.form {
            ValueFormat::Choice => companion.form.normalize(&companion.old),
            _ => companion.old.clone(),
        };
        let result = store.write(&key, &old);
        if let Err(error) = result {
            failed.push(error.text);
        }
    }
    failed
}

/// Returns the location of a setting for messages.
pub(super) fn describe_location(key: &Key) -> String {
    match key {
        Key::File { path } => path.clone(),
        Key::Ethtool { nic, setting } => {
            let (file, name) = setting.pseudo();
            format!("{name} of {nic} (ethtool, {file})")
        }
        Key::IrqbalanceBans => "the interrupts banned in irqbalance".into(),
    }
}
