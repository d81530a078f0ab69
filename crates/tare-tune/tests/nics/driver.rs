//! Imitates a driver whose channels are set: its queues appear and vanish, and most drivers request
//! their interrupts again, which resets the affinity.

use tare_tune::machine::{Interrupts, Irq, nics};
use tare_tune::plan::{EthtoolSetting, Key};
use tare_tune::snapshot::{Node, Snapshot};

/// Drivers whose interrupts do not depend on the channels.
const KEEP: &[&str] = &["virtio_net", "mlx5_core", "mlx4_en", "gve", "hv_netvsc"];

/// Writes a setting of stage 0 with its effects on the host.
pub(crate) fn write(snapshot: &mut Snapshot, key: &Key, value: &str) {
    let Key::Ethtool { nic, setting } = key else { panic!("{key:?} is no setting of stage 0") };
    let old: u32 = key.read_from(snapshot).unwrap().parse().unwrap();
    let new: u32 = value.parse().unwrap();
    let device = nics::find(snapshot, &Interrupts::read(snapshot), std::slice::from_ref(nic))
        .unwrap()
        .remove(0);
    key.write_to(snapshot, value);
    match setting {
        EthtoolSetting::ChannelsRx => queues(snapshot, nic, "rx", &device.rx_queues, (old, new)),
        EthtoolSetting::ChannelsCombined => {
            queues(snapshot, nic, "rx", &device.rx_queues, (old, new));
            queues(snapshot, nic, "tx", &device.tx_queues, (old, new));
        }
        _ => return,
    }
    if !KEEP.contains(&device.driver.as_str()) {
        let of_queues = &device.irqs[..device.irqs_of_queues];
        of_queues.iter().for_each(|irq| interrupt(snapshot, irq, device.queue_of(irq), new));
        (old..new).for_each(|queue| request(snapshot, &of_queues[0], queue));
    }
}

fn queues(snapshot: &mut Snapshot, nic: &str, kind: &str, there: &[u32], channels: (u32, u32)) {
    let (old, new) = channels;
    let folder = snapshot.real(&format!("/sys/class/net/{nic}/queues")).unwrap();
    let each = u32::try_from(there.len()).unwrap() / old;
    for queue in there.iter().filter(|queue| **queue >= new * each) {
        snapshot.remove(&format!("{folder}/{kind}-{queue}"));
    }
    let files: &[&str] = if kind == "rx" { &["rps_cpus", "rps_flow_cnt"] } else { &["xps_cpus"] };
    for queue in old * each..new * each {
        for file in files {
            snapshot.insert(&format!("{folder}/{kind}-{queue}/{file}"), Node::File("0".into()));
        }
    }
}

/// Releases an interrupt, or requests it again.
fn interrupt(snapshot: &mut Snapshot, irq: &Irq, queue: Option<u32>, channels: u32) {
    let number = irq.number;
    if queue.is_some_and(|queue| queue < channels) {
        let default = snapshot.read("/proc/irq/default_smp_affinity").unwrap().to_string();
        snapshot.write(&format!("/proc/irq/{number}/smp_affinity"), &default);
        return;
    }
    let row = format!("{number}:");
    let table = snapshot.read("/proc/interrupts").unwrap();
    let kept: Vec<&str> = table.lines().filter(|l| !l.trim_start().starts_with(&row)).collect();
    let kept = kept.join("\n");
    // The header starts with spaces that `read` trims.
    snapshot.write("/proc/interrupts", &kept);
    snapshot.remove(&format!("/proc/irq/{number}"));
    if let Some(pci) = &irq.pci {
        let folder = snapshot.real(&format!("/sys/bus/pci/devices/{pci}")).unwrap();
        snapshot.remove(&format!("{folder}/msi_irqs/{number}"));
    }
}

/// Adds an interrupt like `like` for another queue.
fn request(snapshot: &mut Snapshot, like: &Irq, queue: u32) {
    let numbers = Interrupts::read(snapshot).irqs;
    let number = numbers.keys().max().unwrap() + 1;
    let (stem, rest) = like
        .name
        .split_once('@')
        .map_or((like.name.as_str(), None), |(stem, rest)| (stem, Some(rest)));
    let stem = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = format!("{stem}{queue}{}", rest.map(|rest| format!("@{rest}")).unwrap_or_default());
    let table = snapshot.read("/proc/interrupts").unwrap().to_string();
    let row = format!("{}:", like.number);
    let row = table.lines().find(|line| line.trim_start().starts_with(&row)).unwrap();
    let row = row.trim_start().replacen(&like.number.to_string(), &number.to_string(), 1);
    let row = row.replace(&like.name, &name);
    snapshot.write("/proc/interrupts", &format!("{table}\n{row}"));
    let default = snapshot.read("/proc/irq/default_smp_affinity").unwrap().to_string();
    snapshot.insert(&format!("/proc/irq/{number}/smp_affinity"), Node::File(default));
    if let Some(pci) = &like.pci {
        let folder = snapshot.real(&format!("/sys/bus/pci/devices/{pci}")).unwrap();
        snapshot.insert(&format!("{folder}/msi_irqs/{number}"), Node::File("msix".into()));
    }
}
