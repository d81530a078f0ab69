//! The names that drivers give to the interrupts of their queues, and how many queues their hash
//! can feed.
//!
//! The forms are those of the kernel's drivers: Intel `eth0-TxRx-3` and `i40e-eth0-TxRx-3`, ena
//! `eth0-Tx-Rx-3`, bnx2x and qede `eth0-fp-3`, vmxnet3 `ens192-rxtx-3`, mlx4 `mlx4-3@0000:..`, mlx5
//! `mlx5_comp3@pci:0000:..`, mana `mana_q3@pci:7870:..`, virtio `virtio2-input.3`, Xen
//! `eth0-q3-rx`, gve `gve-ntfy-blk3@pci:0000:..` (blocks of the transmit queues, then of the
//! receive queues). For any other driver all interrupts count as interrupts of queues, in the order
//! of their numbers.

/// Returns the queue in an interrupt's name; `None` when the name has none (flow director,
/// configuration, control events, or an unknown form). mlx4 counts from 1.
pub fn queue_of(name: &str) -> Option<u32> {
    // Flow director: named like a queue, but it receives no packets.
    if name.contains("fdir-TxRx") {
        return None;
    }
    for mark in ["-TxRx-", "-Tx-Rx-", "-fp-", "-rxtx-"] {
        if let Some((_, number)) = name.rsplit_once(mark) {
            return number.parse().ok();
        }
    }
    for prefix in ["mlx5_comp", "mlx4-", "mana_q"] {
        if let Some(rest) = name.strip_prefix(prefix) {
            return rest.split_once('@')?.0.parse().ok();
        }
    }
    if let Some(rest) = name.strip_prefix("virtio") {
        let (device, queue) = rest.split_once('-')?;
        device.parse::<u32>().ok()?;
        let (kind, number) = queue.split_once('.')?;
        return matches!(kind, "input" | "output").then(|| number.parse().ok())?;
    }
    // Xen: `eth0-q3-rx`, or without a direction if both share one event channel.
    let name = name.strip_suffix("-rx").or(name.strip_suffix("-tx")).unwrap_or(name);
    name.rsplit_once("-q").and_then(|(_, number)| number.parse().ok())
}

/// Returns the notification block of gve in an interrupt's name.
pub fn gve_block(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("gve-ntfy-blk")?;
    rest.split_once('@').map_or(rest, |(number, _)| number).parse().ok()
}

/// Whether perftune.py counts an interrupt as one of the fast path. If a device has none of these,
/// perftune.py takes all its interrupts.
pub fn known_to_perftune(name: &str) -> bool {
    let mlx = name.strip_prefix("mlx4-").or(name.strip_prefix("mlx5_comp"));
    let at = mlx.or(name.strip_prefix("mana_q"));
    ["-TxRx-", "-fp-", "-Tx-Rx-"].iter().any(|mark| name.contains(mark))
        || at.and_then(|rest| rest.split_once('@')).is_some_and(|(n, _)| n.parse::<u32>().is_ok())
        || (name.starts_with("virtio") && queue_of(name).is_some())
}

/// Returns the number of receive queues that a device's hash can feed, however many it has; `None`
/// means all. Source: the limits of Intel's drivers in perftune.py.
pub fn rss_queues_max(driver: &str) -> Option<usize> {
    match driver {
        "ixgbe" => Some(16),
        "ixgbevf" => Some(4),
        "i40e" => Some(64),
        "i40evf" | "iavf" => Some(16),
        _ => None,
    }
}

/// Returns the values of `rx-usecs` with which a driver adapts the delay of the receive interrupt
/// to the traffic, the driver's default first. These drivers have no switch for it (adaptive-rx).
/// Source: the kernel's `e1000e_set_coalesce`, `igb_set_coalesce`, `igc_ethtool_set_coalesce` and
/// `ixgbe_set_coalesce`; Documentation/networking/device_drivers/ethernet/intel.
pub fn adaptive_rx_usecs(driver: &str) -> &'static [&'static str] {
    match driver {
        "e1000" | "e1000e" | "igb" | "igc" => &["3", "1"],
        "ixgbe" => &["1"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_queue_in_names_of_every_driver() {
        let check = |name: &str, queue: Option<u32>, perftune: bool| {
            assert_eq!(queue_of(name), queue, "{name}");
            assert_eq!(known_to_perftune(name), perftune, "{name}");
        };
        check("eth0-TxRx-3", Some(3), true);
        check("i40e-eth0-TxRx-12", Some(12), true);
        check("i40e-eth0-fdir-TxRx-0", None, true);
        check("eth0-Tx-Rx-7", Some(7), true);
        check("ena-mgmnt@pci:0000:00:05.0", None, false);
        check("eth0-fp-2", Some(2), true);
        check("ens192-rxtx-5", Some(5), false);
        check("ens192-event-8", None, false);
        check("mlx4-3@0000:01:00.0", Some(3), true);
        check("mlx4-async@pci:0000:01:00.0", None, false);
        check("mlx5_comp10@pci:0000:00:05.0", Some(10), true);
        check("mlx5_async0@pci:0000:00:05.0", None, false);
        check("mana_q4@pci:7870:00:00.0", Some(4), true);
        check("mana_hwc@pci:7870:00:00.0", None, false);
        check("gve-ntfy-blk31@pci:0000:00:04.0", None, false);
        assert_eq!(gve_block("gve-ntfy-blk31@pci:0000:00:04.0"), Some(31));
        assert_eq!(gve_block("gve-mgmnt@pci:0000:00:04.0"), None);
        check("gve-mgmnt@pci:0000:00:04.0", None, false);
        check("virtio2-input.11", Some(11), true);
        check("virtio2-output.0", Some(0), true);
        check("virtio2-config", None, false);
        check("virtio2-control", None, false);
        check("virtio1-req.0", None, false);
        check("eth0-q3-rx", Some(3), false);
        check("eth0-q3", Some(3), false);
        check("eth0", None, false);
        check("nvme0q1", None, false);
        check("", None, false);
    }
}
