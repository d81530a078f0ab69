//! A network device at one end of the path between a loader and a system.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The kind of a network device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A device on a bus, also one that a hypervisor offers.
    Card,
    /// Several cards as one, or a part of one: `bond`, `team`, `vlan`.
    OfCards,
    Veth,
    Bridge,
    Loopback,
    /// Any other device of the kernel's own, such as a tunnel.
    #[default]
    Virtual,
}

impl DeviceKind {
    /// Returns whether its packets leave over a card.
    pub fn has_card(self) -> bool {
        matches!(self, Self::Card | Self::OfCards)
    }

    /// Returns the word for texts.
    pub fn word(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::OfCards => "several cards or a part of one",
            Self::Veth => "veth",
            Self::Bridge => "bridge",
            Self::Loopback => "loopback",
            Self::Virtual => "virtual device",
        }
    }
}

/// A network device, and the route over it. What the host does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetDevice {
    pub name: String,
    pub kind: DeviceKind,
    /// The address of its host from which packets leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The next hop, where the other end is not on the device's own network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Speed of the link; only of cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbit: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_queues: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmit_queues: Option<u64>,
    /// The offloads that are on, by ethtool's names; empty without ethtool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offloads: Vec<String>,
}

impl fmt::Display for NetDevice {
    /// Writes the device in one line: `eth0 (virtio_net, 10 Gbit/s, MTU 1500, queues 4 in 4 out)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match &self.driver {
            Some(driver) => parts.push(driver.clone()),
            None => parts.push(self.kind.word().to_string()),
        }
        parts.extend(self.speed_mbit.map(speed));
        parts.extend(self.mtu_bytes.map(|mtu| format!("MTU {mtu}")));
        if let Some((receive, transmit)) = self.receive_queues.zip(self.transmit_queues) {
            parts.push(format!("queues {receive} in, {transmit} out"));
        }
        write!(f, "{} ({})", self.name, parts.join(", "))
    }
}

/// Returns the speed of a link in words, such as `10 Gbit/s`.
fn speed(mbit: u64) -> String {
    match mbit {
        0..1000 => format!("{mbit} Mbit/s"),
        _ if mbit.is_multiple_of(1000) => format!("{} Gbit/s", mbit / 1000),
        _ => format!("{:.1} Gbit/s", mbit as f64 / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_one_line() {
        let device = NetDevice {
            name: "eth0".into(),
            kind: DeviceKind::Card,
            driver: Some("virtio_net".into()),
            speed_mbit: Some(2500),
            mtu_bytes: Some(1500),
            receive_queues: Some(4),
            transmit_queues: Some(2),
            ..NetDevice::default()
        };
        let text = "eth0 (virtio_net, 2.5 Gbit/s, MTU 1500, queues 4 in, 2 out)";
        assert_eq!(device.to_string(), text);
        let unknown = NetDevice { name: "x".into(), ..NetDevice::default() };
        assert_eq!(unknown.to_string(), "x (virtual device)");
        assert_eq!((speed(100), speed(25_000)), ("100 Mbit/s".into(), "25 Gbit/s".into()));
    }
}
