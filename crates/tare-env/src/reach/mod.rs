//! The address of this host at which other hosts reach the systems (loaders, and the instances of a
//! system there), and the forwarding of its device. `layer::network::published` explains how a
//! system is published there.

use std::net::{IpAddr, Ipv4Addr};

use tare_host::exec::Command;
use tare_host::journal::Journal;

use crate::client::{Client, NetworkError, ReachError};

mod forwarding;

pub(crate) use forwarding::{Forwarding, ForwardingKinds};

/// How other hosts reach the systems of this host: loaders, and the instances of a system there.
#[derive(Clone, Copy, Debug)]
pub struct ReachOptions {
    /// The address of this host at which they do.
    pub address: IpAddr,
    /// Whether all of them are in the cluster of this node, so that they reach its pods.
    pub from_cluster: bool,
}

/// The address at which other hosts reach the systems of this host.
#[derive(Debug)]
pub(crate) struct Reach {
    address: Ipv4Addr,
    from_cluster: bool,
    device: String,
    forwarding: Forwarding,
    /// The host's end of the client's link.
    client_device: String,
    /// Whether that end forwards, as on a node of a cluster, where the client reaches services.
    client_forwards: bool,
}

impl Reach {
    /// Finds the device of the address, journals its forwarding, and routes the client to it.
    ///
    /// # Errors
    /// When the address belongs to no network device of this host.
    pub(crate) fn open(
        ReachOptions { address, from_cluster }: ReachOptions,
        journal: &Journal,
        client: &Client,
    ) -> Result<Self, NetworkError> {
        let IpAddr::V4(address) = address else { return Err(ReachError::Ipv6 { address }.into()) };
        let listed = Command::new("ip").args(["-json", "-4", "address", "show"]).run()?.stdout;
        let known = addresses(&listed).map_err(|source| ReachError::Addresses { source })?;
        let Some((device, _)) = known.iter().find(|(_, one)| *one == address) else {
            let known: Vec<String> =
                known.iter().map(|(name, ip)| format!("{name} {ip}")).collect();
            return Err(ReachError::NotHere { address, known: known.join(", ") }.into());
        };
        let forwarding = Forwarding::read(device)?;
        journal.write(forwarding.entry().into_iter().collect())?;
        let client_device = client.route_to(journal, address, None)?;
        let client_forwards = Forwarding::read(&client_device)?.was_on();
        let device = device.clone();
        Ok(Self { address, from_cluster, device, forwarding, client_device, client_forwards })
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns whether the other hosts reach pods of this node too.
    pub(crate) fn is_from_cluster(&self) -> bool {
        self.from_cluster
    }

    /// Returns the device of the address.
    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// Returns the forwarding of the address's device.
    pub(crate) fn forwarding(&self) -> &Forwarding {
        &self.forwarding
    }

    /// Returns whether the host's end of the client's link forwards without a published port.
    pub(crate) fn client_forwards(&self) -> bool {
        self.client_forwards
    }

    /// Returns the host's end of the client's link.
    pub(crate) fn client_device(&self) -> &str {
        &self.client_device
    }
}

/// Returns the devices and their addresses in the output of `ip -json address`, without loopback.
fn addresses(text: &str) -> Result<Vec<(String, Ipv4Addr)>, serde_json::Error> {
    let devices: Vec<serde_json::Value> = serde_json::from_str(text)?;
    let mut found = Vec::new();
    for device in &devices {
        let name = device["ifname"].as_str().unwrap_or_default();
        if name == "lo" {
            continue;
        }
        let of_device = device["addr_info"].as_array().into_iter().flatten();
        let of_device = of_device.filter_map(|one| one["local"].as_str()?.parse().ok());
        found.extend(of_device.map(|address| (name.to_string(), address)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_addresses_of_devices() {
        let text = r#"[{"ifname":"lo","addr_info":[{"family":"inet","local":"127.0.0.1"}]},
            {"ifname":"eth0","addr_info":[{"local":"10.0.0.5"},{"local":"10.0.0.6"}]},
            {"ifname":"eth1","addr_info":[]},{}]"#;
        let found = addresses(text).unwrap();
        let shown: Vec<String> = found.iter().map(|(name, ip)| format!("{name} {ip}")).collect();
        assert_eq!(shown, ["eth0 10.0.0.5", "eth0 10.0.0.6"]);
        assert!(addresses("no").is_err());
    }
}
