//! Network devices: finds the physical devices behind a name, with their queues and interrupts.
//!
//! Method: a device with `/sys/class/net/NAME/device` has its own hardware (or paravirtual device).
//! Any other is followed down to devices with hardware: a bond to its slaves, others (VLAN, team,
//! bridge) by their `lower_*` links. A synthetic device of Hyper-V passes its traffic to the
//! virtual function below it, so the function is tuned if there is one. A device without any
//! hardware below it is tuned only if it is named, and only its queue files: a veth has RPS and
//! XPS.
//!
//! Interrupts come from the device's `msi_irqs` or `irq`; for virtio from the names `virtioN-...`
//! of exactly this device; for Xen from the names that start with the device's. If `msi_irqs` is
//! empty (rpk #10838), the PCI address in /proc/interrupts is used.

pub mod names;
mod resolve;

use crate::snapshot::Snapshot;

use super::{Interrupts, Irq, is_pci_address, last_pci_address};

/// A tunable network device: it has its own hardware (or paravirtual device), or it has queue files
/// and the user named it.
#[derive(Clone, Debug, PartialEq)]
pub struct Nic {
    /// `eth0`.
    pub name: String,
    /// The requested name: the bond, VLAN or synthetic device that this one serves; otherwise its
    /// own name.
    pub requested: String,
    /// Kernel driver: `virtio_net`, `ena`, `mlx5_core`, ... Empty if unknown.
    pub driver: String,
    /// PCI address, if it has one.
    pub pci: Option<String>,
    /// Receive queues `rx-N`, ascending by N.
    pub rx_queues: Vec<u32>,
    /// Transmit queues `tx-N`, ascending by N.
    pub tx_queues: Vec<u32>,
    /// Interrupts of its queues in the order of the queues, then its other interrupts
    /// (configuration, flow director).
    pub irqs: Vec<Irq>,
    /// How many of `irqs`, from the front, belong to queues.
    pub irqs_of_queues: usize,
    /// The channels from ethtool; `None` when the driver does not report them.
    pub channels: Option<Channels>,
}

/// Channel counts of a device (`ethtool -l`). 0 of 0 means that the device does not have the kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    pub rx: u32,
    pub rx_max: u32,
    pub tx: u32,
    pub tx_max: u32,
    pub combined: u32,
    pub combined_max: u32,
}

/// Why a network device cannot be tuned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NicError {
    #[error("there is no network device {name:?}{}; there are {}", .nearest.as_ref().map(|n| format!("; did you mean {n:?}?")).unwrap_or_default(), listed(.known))]
    Unknown { name: String, nearest: Option<String>, known: Vec<String> },
    /// A user of perftune.py did this (scylladb #5259).
    #[error("{name:?} is a driver, not a network device; give --nic with one of its devices: {}", listed(.devices))]
    IsDriver { name: String, devices: Vec<String> },
    /// A stored list that was split into letters (scylladb #4553).
    #[error("{name:?} is a single letter, not a network device; give the whole name, as in --nic eth0; there are {}", listed(.known))]
    Letter { name: String, known: Vec<String> },
    #[error("network device {name:?} has neither hardware nor queues to tune")]
    Virtual { name: String },
    #[error(
        "network device {name:?} has no hardware, so perftune.py does not tune it; omit --like perftune to tune its queues"
    )]
    VirtualForPerftune { name: String },
}

fn listed(names: &[String]) -> String {
    match names.is_empty() {
        true => "none".into(),
        false => names.join(", "),
    }
}

/// Returns the tunable devices behind names; without names, every device with hardware that is up.
///
/// # Errors
/// When a name is unknown or leads to no tunable device.
pub fn find(
    snapshot: &Snapshot,
    interrupts: &Interrupts,
    names: &[String],
) -> Result<Vec<Nic>, NicError> {
    let found = match names.is_empty() {
        true => resolve::all(snapshot),
        false => resolve::named(snapshot, names)?,
    };
    Ok(found
        .into_iter()
        .map(|(name, requested)| read(snapshot, interrupts, name, requested))
        .collect())
}

/// Whether a device has its own hardware or paravirtual device.
pub fn has_hardware(snapshot: &Snapshot, name: &str) -> bool {
    snapshot.exists(&format!("/sys/class/net/{name}/device"))
}

fn read(snapshot: &Snapshot, interrupts: &Interrupts, name: String, requested: String) -> Nic {
    let device = snapshot.real(&format!("/sys/class/net/{name}/device"));
    let pci = device.as_deref().and_then(last_pci_address).map(str::to_string);
    let irqs = match &device {
        Some(device) => irqs_of(snapshot, interrupts, &name, device, pci.as_deref()),
        None => Vec::new(),
    };
    let mut nic = Nic {
        driver: driver_of(snapshot, &name).unwrap_or_default(),
        rx_queues: queues(snapshot, &name, "rx-"),
        tx_queues: queues(snapshot, &name, "tx-"),
        channels: channels(snapshot, &name),
        name,
        requested,
        pci,
        irqs_of_queues: irqs.len(),
        irqs,
    };
    let mut irqs: Vec<(Option<u32>, Irq)> =
        nic.irqs.iter().map(|irq| (nic.queue_of(irq), irq.clone())).collect();
    let of_queues = irqs.iter().filter(|(queue, _)| queue.is_some()).count();
    if of_queues > 0 {
        nic.irqs_of_queues = of_queues;
    }
    // The sort is stable: receive before transmit, in the order of the driver.
    irqs.sort_by_key(|(queue, _)| queue.unwrap_or(u32::MAX));
    nic.irqs = irqs.into_iter().map(|(_, irq)| irq).collect();
    nic
}

impl Nic {
    /// Returns the queue of an interrupt of this device; `None` when its name has no queue.
    pub fn queue_of(&self, irq: &Irq) -> Option<u32> {
        match names::gve_block(&irq.name) {
            // There are as many blocks for transmit queues as for receive queues, and at most one
            // more interrupt (management), so they pair up.
            Some(block) => Some(block % u32::try_from(self.irqs.len() / 2).unwrap_or(1).max(1)),
            None => names::queue_of(&irq.name),
        }
    }
}

/// Returns the interrupts of a device's folder in sysfs, in the order of their numbers.
fn irqs_of(
    snapshot: &Snapshot,
    interrupts: &Interrupts,
    nic: &str,
    device: &str,
    pci: Option<&str>,
) -> Vec<Irq> {
    let known = |numbers: Vec<u32>| -> Vec<Irq> {
        let irqs = numbers.iter().filter_map(|number| interrupts.irqs.get(number));
        let own =
            |irq: &Irq| Irq { pci: irq.pci.clone().or(pci.map(str::to_string)), ..irq.clone() };
        irqs.map(own).collect()
    };
    let named = |wanted: &dyn Fn(&str) -> bool| -> Vec<u32> {
        let irqs = interrupts.irqs.values();
        irqs.filter(|irq| irq.name.split(", ").any(wanted)).map(|irq| irq.number).collect()
    };
    let modalias = snapshot.read(&format!("{device}/modalias")).unwrap_or_default();
    let folder = device.rsplit('/').next().unwrap_or_default();
    if modalias.starts_with("virtio") || is_virtio(folder) {
        // Exactly this device: `virtio1` must not match `virtio10`.
        let of_queue = format!("{folder}-");
        return known(named(&|name| name == folder || name.starts_with(&of_queue)));
    }
    if modalias.starts_with("xen:") {
        let of_queue = format!("{nic}-");
        return known(named(&|name| name == nic || name.starts_with(&of_queue)));
    }
    let listed = snapshot.names(&format!("{device}/msi_irqs"));
    let mut listed: Vec<u32> = listed.iter().filter_map(|name| name.parse().ok()).collect();
    listed.sort_unstable();
    let listed = known(listed);
    if !listed.is_empty() {
        return listed;
    }
    // Only where the folder is the PCI device itself: there may be several devices below it.
    if let Some(address) = pci.filter(|_| is_pci_address(folder)) {
        let of_address: Vec<u32> = interrupts.of_pci(address).map(|irq| irq.number).collect();
        if !of_address.is_empty() {
            return known(of_address);
        }
    }
    known(snapshot.read_number(&format!("{device}/irq")).into_iter().collect())
}

fn is_virtio(folder: &str) -> bool {
    folder.strip_prefix("virtio").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Returns the driver's name from ethtool, otherwise from the driver's folder in sysfs.
fn driver_of(snapshot: &Snapshot, nic: &str) -> Option<String> {
    snapshot.ethtool(nic, "driver", "driver").or_else(|| {
        let path = snapshot.real(&format!("/sys/class/net/{nic}/device/driver"))?;
        path.rsplit('/').next().map(str::to_string)
    })
}

/// Returns the numbers of the folders `rx-N` or `tx-N`, ascending. Their names would sort `rx-10`
/// before `rx-2`.
fn queues(snapshot: &Snapshot, nic: &str, prefix: &str) -> Vec<u32> {
    let names = snapshot.names(&format!("/sys/class/net/{nic}/queues"));
    let numbers = names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok());
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

fn channels(snapshot: &Snapshot, nic: &str) -> Option<Channels> {
    if !snapshot.exists(&format!("/tare/ethtool/{nic}/channels")) {
        return None;
    }
    let value = |name: &str| {
        let value = snapshot.ethtool(nic, "channels", name);
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    Some(Channels {
        rx: value("rx"),
        rx_max: value("rx-max"),
        tx: value("tx"),
        tx_max: value("tx-max"),
        combined: value("combined"),
        combined_max: value("combined-max"),
    })
}
