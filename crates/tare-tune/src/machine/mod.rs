//! Reads the machine from a snapshot: CPUs, interrupts, network devices, disks, and other programs
//! that tune it. Pure.

pub mod disks;
pub mod interrupts;
pub mod kubelet;
pub mod nics;
pub mod owners;
pub mod topology;

use crate::snapshot::Snapshot;

pub use disks::Disk;
pub use interrupts::{Interrupts, Irq};
pub use kubelet::Kubelet;
pub use nics::Nic;
pub use owners::{Owner, Owners};
pub use topology::{Topology, TopologyError};

/// Everything of the machine that knobs use. Devices are only those to be tuned.
#[derive(Clone, Debug)]
pub struct Machine {
    pub topology: Topology,
    pub interrupts: Interrupts,
    pub nics: Vec<Nic>,
    pub disks: Vec<Disk>,
    pub owners: Owners,
    /// Share of the wall clock that each online CPU spent in interrupts and softirqs while the
    /// snapshot was taken, 0 to 1, by CPU number. Empty where it was not measured.
    pub interrupt_share: std::collections::BTreeMap<u32, f64>,
}

/// Returns the last PCI address in a sysfs path, such as `0000:00:03.0`, at the end or in the
/// middle.
pub fn last_pci_address(path: &str) -> Option<&str> {
    path.rsplit('/').find(|part| is_pci_address(part))
}

/// Whether a text is a PCI address: `dddd:bb:dd.f` in hexadecimal digits.
pub fn is_pci_address(text: &str) -> bool {
    let digits = |part: &str, count: usize| {
        part.len() == count && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let Some((domain, rest)) = text.split_once(':') else { return false };
    let Some((bus, rest)) = rest.split_once(':') else { return false };
    let Some((device, function)) = rest.split_once('.') else { return false };
    (4..=8).contains(&domain.len())
        && digits(domain, domain.len())
        && digits(bus, 2)
        && digits(device, 2)
        && digits(function, 1)
}

/// Returns the share of the wall clock in hard interrupts and softirqs, 0 to 1, by CPU: the
/// difference between the two readings of /proc/stat in a snapshot (`/tare/load/stat-0` and
/// `stat-1`).
pub fn interrupt_share(snapshot: &Snapshot) -> std::collections::BTreeMap<u32, f64> {
    let read = |path: &str| -> std::collections::BTreeMap<u32, (f64, f64)> {
        let text = snapshot.read(path).unwrap_or_default();
        let cpus = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
            // user nice system idle iowait irq softirq steal (proc_stat(5)); guest time is in user.
            let ticks: Vec<f64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
            let of_interrupts = ticks.get(5)? + ticks.get(6)?;
            Some((cpu, (of_interrupts, ticks.iter().sum())))
        });
        cpus.collect()
    };
    let (before, after) = (read("/tare/load/stat-0"), read("/tare/load/stat-1"));
    let shares = after.iter().filter_map(|(cpu, (interrupts, all))| {
        let (interrupts_before, all_before) = before.get(cpu)?;
        let wall = all - all_before;
        (wall > 0.0).then(|| (*cpu, ((interrupts - interrupts_before) / wall).clamp(0.0, 1.0)))
    });
    shares.collect()
}
