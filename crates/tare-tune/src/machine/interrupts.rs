//! Interrupts, from /proc/interrupts and /proc/irq.
//!
//! Method: a line of /proc/interrupts has a number, a count for each CPU of the header, the chip,
//! the chip's own number with the trigger (`1-edge`, `-event`, or two words on arm), and the names
//! from the drivers (kernel/irq/proc.c `show_interrupts`). The PCI address is at the end of the
//! chip's name (`PCI-MSIX-0000:00:03.0`, since Linux 5.17); in older kernels the device's folder
//! `msi_irqs` lists the number. Interrupts of the architecture (`NMI`, `LOC`) have no number and
//! are left out.

use std::collections::BTreeMap;

use tare_std::cpus::CpuSet;

use super::is_pci_address;
use crate::snapshot::Snapshot;

/// The device interrupts of a host by number. Numbers change at every boot and when a driver
/// recreates its queues, so PCI address and name identify an interrupt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interrupts {
    pub irqs: BTreeMap<u32, Irq>,
}

/// One interrupt line or message.
#[derive(Clone, Debug, PartialEq)]
pub struct Irq {
    pub number: u32,
    /// Name from the driver: `virtio2-input.0`, `eth0-TxRx-3`, `nvme0q1`.
    pub name: String,
    /// PCI address of its device, if it has one.
    pub pci: Option<String>,
    /// CPUs that may take it (`smp_affinity`).
    pub affinity: Option<CpuSet>,
    /// The CPU that takes it (`effective_affinity`).
    pub effective: Option<CpuSet>,
    /// Whether the kernel set its affinity and refuses changes (`IRQD_AFFINITY_MANAGED`); `None`
    /// where debugfs does not show it.
    pub managed: Option<bool>,
    /// How often it arrived since boot, over all CPUs.
    pub count: u64,
}

impl Interrupts {
    /// Reads the interrupts of a snapshot; empty where there are none.
    pub fn read(snapshot: &Snapshot) -> Self {
        let text = snapshot.read("/proc/interrupts").unwrap_or_default();
        let mut lines = text.lines();
        let header = lines.next().unwrap_or_default();
        let cpus = header.split_whitespace().filter(|word| word.starts_with("CPU")).count();
        let of_devices = std::cell::OnceCell::new();
        let debugfs = snapshot.exists("/sys/kernel/debug/irq/irqs");
        let irqs = lines.filter_map(|line| {
            let (number, count, pci, name) = parse_line(line, cpus)?;
            let pci = pci.or_else(|| {
                of_devices.get_or_init(|| numbers_of_devices(snapshot)).get(&number).cloned()
            });
            let set = |file: &str| {
                let path = format!("/proc/irq/{number}/{file}");
                let mask = snapshot.read(&path).and_then(|text| CpuSet::parse_mask(text).ok());
                mask.or_else(|| {
                    let list = snapshot.read(&format!("{path}_list"))?;
                    CpuSet::parse_list(list).ok()
                })
            };
            let state = match debugfs {
                true => snapshot.read(&format!("/sys/kernel/debug/irq/irqs/{number}")),
                false => None,
            };
            let managed =
                |text: &str| text.split_whitespace().any(|word| word == "IRQD_AFFINITY_MANAGED");
            let irq = Irq {
                number,
                name,
                pci,
                affinity: set("smp_affinity"),
                effective: set("effective_affinity"),
                managed: state.map(managed),
                count,
            };
            Some((number, irq))
        });
        Self { irqs: irqs.collect() }
    }

    /// Returns the interrupts of a PCI device in the order of their numbers.
    pub fn of_pci<'a>(&'a self, address: &'a str) -> impl Iterator<Item = &'a Irq> {
        self.irqs.values().filter(move |irq| irq.pci.as_deref() == Some(address))
    }
}

/// Returns the PCI address of each message interrupt that sysfs lists for a device.
fn numbers_of_devices(snapshot: &Snapshot) -> BTreeMap<u32, String> {
    let mut addresses = BTreeMap::new();
    for address in snapshot.names("/sys/bus/pci/devices") {
        for number in snapshot.names(&format!("/sys/bus/pci/devices/{address}/msi_irqs")) {
            if let Ok(number) = number.parse() {
                addresses.insert(number, address.to_string());
            }
        }
    }
    addresses
}

/// Parses number, count, PCI address and name of a line; `None` for an interrupt of the
/// architecture.
fn parse_line(line: &str, cpus: usize) -> Option<(u32, u64, Option<String>, String)> {
    let (number, rest) = line.split_once(':')?;
    let number = number.trim().parse().ok()?;
    let (count, rest) = sum_columns(rest, cpus);
    let words: Vec<&str> = rest.split_whitespace().collect();
    let chip = words.first().copied().unwrap_or_default();
    let pci = address_of_chip(chip);
    let trigger = words.iter().skip(1).position(|word| is_trigger(word));
    let name = match trigger {
        Some(position) => words[position + 2..].join(" "),
        None => words.iter().skip(1).last().copied().unwrap_or_default().to_string(),
    };
    Some((number, count, pci, name))
}

/// Sums up to `cpus` numbers at the start of a line. Returns the sum and the rest of the line.
fn sum_columns(line: &str, cpus: usize) -> (u64, &str) {
    // A count of 0 as the kernel writes it: nearly all of the million columns of a large host.
    const IDLE: &[u8] = b"          0";
    let bytes = line.as_bytes();
    let ends = |at: usize| bytes.get(at).is_none_or(u8::is_ascii_whitespace);
    let (mut sum, mut at) = (0u64, 0);
    for _ in 0..cpus {
        if bytes[at..].starts_with(IDLE) && ends(at + IDLE.len()) {
            at += IDLE.len();
            continue;
        }
        let blanks = bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let start = at + blanks;
        let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        // The line of an interrupt without counters may be shorter.
        if digits == 0 || !ends(start + digits) {
            break;
        }
        at = start + digits;
        sum = sum.saturating_add(line[start..at].parse().unwrap_or(u64::MAX));
    }
    (sum, &line[at..])
}

/// Whether a word is a trigger: `1-edge`, `19-fasteoi`, `-event`, and on arm the word after the
/// number, `Edge` or `Level`.
fn is_trigger(word: &str) -> bool {
    if word == "Edge" || word == "Level" {
        return true;
    }
    let Some((number, kind)) = word.split_once('-') else { return false };
    number.bytes().all(|byte| byte.is_ascii_digit())
        && !kind.is_empty()
        && kind.bytes().all(|byte| byte.is_ascii_lowercase())
}

fn address_of_chip(chip: &str) -> Option<String> {
    let address = chip.rsplit('-').next()?;
    is_pci_address(address).then(|| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Node;

    fn parse(cpus: usize, line: &str) -> (u32, u64, Option<String>, String) {
        parse_line(line, cpus).unwrap()
    }

    #[test]
    fn parses_every_kind_of_line() {
        let check = |cpus, line: &str, number, count, pci: Option<&str>, name: &str| {
            let expect = (number, count, pci.map(str::to_string), name.to_string());
            assert_eq!(parse(cpus, line), expect, "{line}");
        };
        check(
            2,
            " 38:  0  20983 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0",
            38,
            20983,
            Some("0000:00:03.0"),
            "virtio2-input.0",
        );
        check(2, " 24: 1 0  IO-APIC   5-edge      ACPI:Ged", 24, 1, None, "ACPI:Ged");
        check(1, " 65: 7 PCI-MSI 1572865-edge  nvme0q1", 65, 7, None, "nvme0q1");
        check(
            1,
            " 65: 7 IR-PCI-MSIX-0000:5e:00.1 3-edge  i40e-eth0-TxRx-3",
            65,
            7,
            Some("0000:5e:00.1"),
            "i40e-eth0-TxRx-3",
        );
        check(
            1,
            " 16: 4 IO-APIC 16-fasteoi usb1, ehci_hcd:usb2",
            16,
            4,
            None,
            "usb1, ehci_hcd:usb2",
        );
        check(2, " 70: 3 4 xen-dyn    -event     eth0-q0-rx", 70, 7, None, "eth0-q0-rx");
        check(2, " 71: 3 4 xen-dyn -event blkif", 71, 7, None, "blkif");
        check(
            1,
            " 20: 5 ITS-PCI-MSIX-0000:00:05.0   1 Edge      eth0-Tx-Rx-0",
            20,
            5,
            Some("0000:00:05.0"),
            "eth0-Tx-Rx-0",
        );
        check(1, " 13: 9 GICv3  27 Level     arch_timer", 13, 9, None, "arch_timer");
        check(3, " 35:          0          7          0 GICv3 3 Edge x-0", 35, 7, None, "x-0");
        check(2, " 36:          5 PLIC 3-edge short", 36, 5, None, "short");
        // One without a name, one without a trigger.
        check(1, " 14: 9 IO-APIC 14-edge", 14, 9, None, "");
        check(1, " 33: 2 PLIC ttyS0", 33, 2, None, "ttyS0");
        for line in ["NMI:          0          0   Non-maskable interrupts", "ERR:          0", ""]
        {
            assert_eq!(parse_line(line, 2), None);
        }
    }

    #[test]
    fn reads_affinity_from_proc_and_management_from_debugfs() {
        let mut host = Snapshot::default();
        let file = |text: &str| Node::File(text.into());
        let text =
            "   CPU0  CPU1\n 40: 1 2 PCI-MSI 1-edge nvme0q1\n 41: 0 0 PCI-MSI 2-edge x\nNMI: 0 0";
        host.insert("/proc/interrupts", file(text));
        host.insert("/proc/irq/40/smp_affinity", file("00000000,00000002"));
        host.insert("/proc/irq/40/effective_affinity_list", file("1"));
        host.insert(
            "/sys/kernel/debug/irq/irqs/40",
            file("handler:  handle_edge_irq\ndstate:   0x3740a00\n   IRQD_AFFINITY_MANAGED"),
        );
        host.insert("/sys/kernel/debug/irq/irqs/41", file("dstate: 0\n IRQD_MANAGED_SHUTDOWN"));
        host.insert("/sys/bus/pci/devices/0000:00:04.0/msi_irqs/40", file("msix"));
        let interrupts = Interrupts::read(&host);
        let irq = &interrupts.irqs[&40];
        assert_eq!(irq.affinity, Some(CpuSet::from_iter([1])));
        assert_eq!(irq.effective, Some(CpuSet::from_iter([1])));
        assert_eq!((irq.managed, irq.count), (Some(true), 3));
        assert_eq!(irq.pci.as_deref(), Some("0000:00:04.0"));
        assert_eq!(interrupts.irqs[&41].managed, Some(false));
        assert_eq!(interrupts.irqs.len(), 2);
        assert_eq!(interrupts.of_pci("0000:00:04.0").count(), 1);
        assert_eq!(Interrupts::read(&Snapshot::default()), Interrupts::default());
    }
}
