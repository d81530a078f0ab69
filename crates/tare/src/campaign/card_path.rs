//! The network cards that the load of a study crosses, found before it runs: the devices of this
//! host at whose addresses the loaders on other hosts see it.

use std::net::IpAddr;

use anyhow::Context;
use tare_host::exec::Command;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::study::Study;
use tare_tune::machine::{Interrupts, nics};
use tare_tune::snapshot::Snapshot;

use super::loaders::ConnectedLoaders;

/// How the packets of a study reach the system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CardPath {
    /// Whether packets of the study cross a card.
    pub(crate) crosses: bool,
    /// The cards that the load crosses. Empty if it crosses none, or if it is not known which.
    pub(crate) cards: Vec<String>,
    /// What the load crosses in place of a card.
    pub(crate) instead: String,
}

impl CardPath {
    /// Finds the path of a study on this host.
    ///
    /// # Errors
    /// If the addresses of this host cannot be read, or a loader does not tell at which it sees
    /// this host.
    pub(crate) fn find(
        study: &Study,
        snapshot: &Snapshot,
        loaders: Option<&ConnectedLoaders>,
    ) -> anyhow::Result<Self> {
        let seen = loaders.map(ConnectedLoaders::addresses_seen).transpose()?.unwrap_or_default();
        if seen.is_empty() {
            return Ok(Self::without_loaders(study));
        }
        let listed = Command::new("ip").args(["-json", "address", "show"]).run();
        let listed = listed.context("cannot list the addresses of this host")?.stdout;
        let devices = devices(&listed).context("cannot read the output of ip -json address")?;
        let mut path = Self::default();
        let mut others = Vec::new();
        for (loader, address) in seen {
            let device = devices.iter().find(|(_, addresses)| addresses.contains(&address));
            let Some((device, _)) = device else {
                others.push(format!("{loader} sees this host at {address}, which no device has"));
                continue;
            };
            match cards_below(snapshot, device) {
                cards if cards.is_empty() => {
                    others.push(format!("{loader} reaches this host through {device}"));
                }
                cards => path.cards.extend(cards),
            }
        }
        path.cards.sort();
        path.cards.dedup();
        path.crosses = !path.cards.is_empty();
        path.instead = others.join("; ");
        Ok(path)
    }

    /// The client runs on the host of the system, behind a veth pair, so that only storage on
    /// another host crosses a card.
    fn without_loaders(study: &Study) -> Self {
        let has = |spec: &EnvironmentSpec, wanted: &str| {
            spec.storage.options.iter().any(|(name, value)| name == wanted && value != "loop")
        };
        let crosses = study
            .environments
            .iter()
            .any(|spec| spec.storage.kind == "nvme-of" && has(spec, "nqn"));
        let instead = "a veth pair connects client and system".into();
        Self { crosses, cards: Vec::new(), instead }
    }

    /// Returns why knobs of network cards are not weighed.
    pub(crate) fn no_card(&self) -> String {
        format!("the load crosses no network card: {}", self.instead)
    }

    /// Returns why a knob of this device is not weighed, if the load crosses cards and not this
    /// one.
    pub(crate) fn leaves_out(&self, device: &str) -> Option<String> {
        let known = !self.cards.is_empty() && device != "host";
        let other = known && !self.cards.iter().any(|card| card == device);
        other.then(|| format!("the load crosses {}, not this card", self.cards.join(", ")))
    }
}

/// Returns the cards that carry the traffic of a device: itself, or those below a bond, a VLAN or a
/// bridge.
fn cards_below(snapshot: &Snapshot, device: &str) -> Vec<String> {
    let found = nics::find(snapshot, &Interrupts::read(snapshot), &[device.to_string()]);
    let found = found.unwrap_or_default().into_iter().map(|nic| nic.name);
    found.filter(|name| nics::has_hardware(snapshot, name)).collect()
}

/// Returns the devices in the output of `ip -json address` with their addresses.
fn devices(text: &str) -> Result<Vec<(String, Vec<IpAddr>)>, serde_json::Error> {
    let devices: Vec<serde_json::Value> = serde_json::from_str(text)?;
    let device = |device: &serde_json::Value| {
        let addresses = device["addr_info"].as_array().into_iter().flatten();
        let addresses = addresses.filter_map(|one| one["local"].as_str()?.parse().ok()).collect();
        (device["ifname"].as_str().unwrap_or_default().to_string(), addresses)
    };
    Ok(devices.iter().map(device).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_their_addresses() {
        let text = r#"[{"ifname":"lo","addr_info":[{"local":"127.0.0.1"},{"local":"::1"}]},
            {"ifname":"eth0","addr_info":[{"local":"10.0.0.5"}]},{}]"#;
        let found = devices(text).unwrap();
        assert_eq!(found[1], ("eth0".to_string(), vec![[10, 0, 0, 5].into()]));
        assert_eq!(found[0].1.len(), 2);
        assert!(devices("no").is_err());
    }

    #[test]
    fn only_the_crossed_cards_are_weighed() {
        let path = CardPath { crosses: true, cards: vec!["eth0".into()], instead: String::new() };
        assert_eq!(path.leaves_out("eth0"), None);
        assert_eq!(path.leaves_out("host"), None, "a setting of all cards");
        assert!(path.leaves_out("eth1").unwrap().contains("crosses eth0, not this card"));
        let unknown = CardPath { crosses: true, ..CardPath::default() };
        assert_eq!(unknown.leaves_out("eth1"), None);
    }
}
