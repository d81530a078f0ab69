//! `path_link`: bytes over the link between this host and loaders elsewhere, against its speed.
//!
//! Source: `/sys/class/net/DEVICE/statistics`, of the device of this host's address that loaders
//! reach. The share is that of the busier direction, because links are full duplex.

use std::path::Path;
use std::time::Instant;

use tare_lab::probe::{Counter, names};

use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::source::Source;
use crate::{CounterKind, Opened, ProbeError, ProbeKind, Roots, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "path_link",
    help: "bytes over the link to loaders on other hosts, and the share of its speed that they use",
    needs: "a study with loaders on other hosts; /sys/class/net/DEVICE/statistics",
    limits: "traffic of other programs on the link counts too; the share needs a device with a speed",
    optional: true,
    disturbs: false,
    counters: &[
        CounterKind { name: "path_in_bytes", help: "received over the link" },
        CounterKind { name: "path_out_bytes", help: "sent over the link" },
        CounterKind {
            name: names::LINK_SHARE,
            help: "share of the speed of the link that the busier direction used",
        },
    ],
    // The device is known only to the caller: `path_link`.
    open: |roots, _| {
        let (path, needs) = (roots.sys.join("class/net"), KIND.needs);
        Err(ProbeError::Missing { path, what: "loader on another host".into(), needs })
    },
};

/// Opens the probe for a device.
///
/// # Errors
/// If its statistics cannot be read.
pub fn path_link(roots: &Roots, device: &str) -> Opened {
    edge_probe(&KIND, PathLink::open(roots, device)?)
}

struct PathLink {
    received: Source,
    sent: Source,
    /// The speed in bits/s; `None` for a device without one.
    bits_per_s: Option<f64>,
}

impl PathLink {
    fn open(roots: &Roots, device: &str) -> Result<Self, ProbeError> {
        let folder = roots.sys.join("class/net").join(device);
        let open = |name: &str| Source::open(&folder.join("statistics").join(name), KIND.needs);
        let (received, sent) = (open("rx_bytes")?, open("tx_bytes")?);
        Ok(Self { received, sent, bits_per_s: speed(&folder) })
    }
}

/// Returns the speed of a device with a card, in bits/s. Others report one that means nothing.
fn speed(folder: &Path) -> Option<f64> {
    let is_of_cards =
        ["device", "bonding"].iter().any(|name| folder.join(name).exists()) || is_vlan(folder);
    let text = std::fs::read_to_string(folder.join("speed")).ok()?;
    let mbit: i64 = text.trim().parse().ok()?;
    (is_of_cards && mbit > 0).then_some(mbit as f64 * 1e6)
}

fn is_vlan(folder: &Path) -> bool {
    std::fs::read_to_string(folder.join("uevent")).is_ok_and(|text| text.contains("DEVTYPE=vlan"))
}

impl EdgeReader for PathLink {
    type Values = (Instant, u64, u64);

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
        let number = |text: &str| text.trim().parse().ok();
        let received = self.received.number("number of bytes", number)?;
        let sent = self.sent.number("number of bytes", number)?;
        Ok((Instant::now(), received, sent))
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let (took, received, sent) = (
            end.0.duration_since(begin.0),
            end.1.saturating_sub(begin.1),
            end.2.saturating_sub(begin.2),
        );
        let mut counters =
            vec![counter("path_in_bytes", received as f64), counter("path_out_bytes", sent as f64)];
        let busier_bits = received.max(sent) as f64 * 8.0;
        counters.extend(
            self.bits_per_s
                .filter(|_| !took.is_zero())
                .map(|speed| counter(names::LINK_SHARE, busier_bits / took.as_secs_f64() / speed)),
        );
        counters
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn counts_bytes_and_share_of_speed() {
        let sys = tempfile::tempdir().unwrap();
        let folder = sys.path().join("class/net/eth0");
        fs::create_dir_all(folder.join("statistics")).unwrap();
        fs::create_dir_all(folder.join("device")).unwrap();
        let put = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        put("statistics/rx_bytes", "1000\n");
        put("statistics/tx_bytes", "5\n");
        put("speed", "100\n");
        let roots = Roots { sys: sys.path().into(), ..Roots::default() };
        let mut link = PathLink::open(&roots, "eth0").unwrap();
        let begin = link.read(Edge::Begin).unwrap();
        put("statistics/rx_bytes", "2000\n");
        put("statistics/tx_bytes", "10000005\n");
        let mut end = link.read(Edge::End).unwrap();
        // 10 MB in 1 s are 80 % of 100 Mbit/s.
        end.0 = begin.0 + Duration::from_secs(1);
        let found = link.counters(begin, end);
        let values: Vec<f64> = found.iter().map(|counter| counter.value).collect();
        assert_eq!(values, [1000.0, 1e7, 0.8]);
        for (speed, names) in [("-1", 2), ("no", 2), ("10000", 3)] {
            put("speed", speed);
            let mut link = PathLink::open(&roots, "eth0").unwrap();
            assert_eq!(link.counters(begin, end).len(), names, "{speed}");
        }
        fs::remove_dir(folder.join("device")).unwrap();
        let mut veth = PathLink::open(&roots, "eth0").unwrap();
        assert_eq!(veth.counters(begin, end).len(), 2);
        assert!(PathLink::open(&roots, "eth9").is_err());
    }
}
