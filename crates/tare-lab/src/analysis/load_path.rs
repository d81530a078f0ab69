//! Finds out whether the load of a record crossed a network card.
//!
//! Method: facts about the path of loaders on other hosts name the device of this host. Without
//! them the counted bytes decide: environments in the host's network namespace count the bytes of
//! each of its devices. A
//! load that crosses a card leaves most of its bytes there; one behind a veth pair leaves them on
//! that.
//!
//! Limits: a card of another namespace is not seen, and neither is one of records without the host
//! fact that lists the cards.

use crate::layer::Network;
use crate::probe::Counter;
use crate::record::{Phase, Record, Slice, TUNING_FACTS};

/// The section and key of the host fact that lists the host's network cards.
pub const CARDS_FACT: (&str, &str) = ("network", "cards");
/// The section and key of the host fact that lists the cards that the load crosses, which the study
/// found before it ran.
pub const CARDS_OF_LOAD_FACT: (&str, &str) = (TUNING_FACTS, "cards of the load");
/// The section of the facts about the path of each loader. The key ends with what it is.
const PATH_FACTS: &str = "path";
const PATH_DEVICE: &str = " device";
/// The share of the bytes on cards from which a load crosses one. Other programs of the host cause
/// the rest.
const CARD_SHARE: f64 = 0.25;

/// Returns whether the load of a record crossed a network card: whether a loader on another host
/// reached this one through a card, or cards carried a quarter of
/// the bytes in most slices at capacity of an environment in the host's network.
pub fn crosses_network_card(record: &Record) -> bool {
    let fact = |(section, key): (&str, &str)| {
        record.host.iter().find(|fact| fact.section == section && fact.key == key)
    };
    if fact(CARDS_OF_LOAD_FACT).is_some() {
        return true;
    }
    let Some(fact) = fact(CARDS_FACT) else { return false };
    let of_loaders = record.host.iter().filter(|fact| fact.section == PATH_FACTS);
    let mut devices = of_loaders.filter(|fact| fact.key.ends_with(PATH_DEVICE));
    if devices.any(|device| fact.value.split_whitespace().any(|card| card == device.value)) {
        return true;
    }
    let cards: Vec<String> = fact.value.split_whitespace().map(counter_part).collect();
    let on_host = record.environments.iter().filter(|one| one.spec.network == Network::Host);
    on_host.into_iter().any(|environment| {
        let slices = record.slices.iter().filter(|slice| {
            slice.environment == environment.spec.name
                && slice.phase == Phase::Capacity
                && slice.void.is_none()
        });
        let shares: Vec<f64> = slices.filter_map(|slice| share(slice, &cards)).collect();
        let crossed = shares.iter().filter(|share| **share >= CARD_SHARE).count();
        crossed * 2 > shares.len()
    })
}

/// Returns the share of the bytes of a slice that went through these devices.
fn share(slice: &Slice, cards: &[String]) -> Option<f64> {
    let bytes = |counter: &Counter| {
        let name = counter.name.strip_prefix("system_net_")?;
        let device = name.strip_suffix("_in_bytes").or(name.strip_suffix("_out_bytes"))?;
        Some((device.to_string(), counter.value))
    };
    let (mut all, mut on_cards) = (0.0, 0.0);
    for (device, value) in slice.counters.iter().filter_map(bytes) {
        all += value;
        on_cards += if cards.contains(&device) { value } else { 0.0 };
    }
    (all > 0.0).then(|| on_cards / all)
}

/// Returns the name of a device as counters have it.
fn counter_part(device: &str) -> String {
    let words = device.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{record, slice};
    use crate::record::HostFact;

    fn crosses(cards: &str, bytes: &[(&str, f64)]) -> bool {
        let mut record = record();
        let (section, key) = (CARDS_FACT.0.to_string(), CARDS_FACT.1.to_string());
        record.host.push(HostFact { section, key, value: cards.into() });
        for environment in &mut record.environments {
            environment.spec.network = Network::Host;
        }
        for round in 0..5 {
            let one = slice(&mut record, round, "native", 10.0);
            for (device, value) in bytes {
                for way in ["in", "out"] {
                    let name = format!("system_net_{device}_{way}_bytes");
                    one.counters.push(Counter { name, value: *value });
                }
            }
        }
        crosses_network_card(&record)
    }

    #[test]
    fn facts_of_the_path_decide() {
        let crosses = |facts: &[(&str, &str, &str)]| {
            let mut record = record();
            for (section, key, value) in facts {
                let (section, key) = ((*section).into(), (*key).into());
                record.host.push(HostFact { section, key, value: (*value).into() });
            }
            crosses_network_card(&record)
        };
        let cards = ("network", "cards", "eth0 eth1");
        assert!(crosses(&[cards, ("path", "ssh:load1 device", "eth1")]));
        assert!(!crosses(&[cards, ("path", "ssh:load1 device", "veth1")]));
        assert!(!crosses(&[cards, ("path", "ssh:load1 driver", "eth1")]));
        assert!(crosses(&[("tune", "cards of the load", "eth1")]));
    }

    #[test]
    fn load_is_where_its_bytes_are() {
        assert!(!crosses("eth0", &[("tare_h", 1e6), ("eth0", 2e3)]));
        assert!(!crosses("eth0", &[("tare_h", 1e6), ("lo", 1e6)]));
        assert!(crosses("eth0 enp3s0", &[("enp3s0", 1e6), ("lo", 3e3)]));
        assert!(!crosses("eth0", &[("docker0", 1e6)]), "a bridge is no card");
        assert!(!crosses("eth0", &[]), "nothing was counted");
        assert!(!crosses("", &[("eth0", 1e6)]), "not listed as a card");
    }
}
