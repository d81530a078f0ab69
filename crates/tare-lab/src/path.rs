//! The network path between each loader and the system: the devices at both ends, how long a round
//! trip takes, and whether the load fills the link.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tare_std::net_device::NetDevice;

use crate::doubt::Doubt;
use crate::layer::Network;
use crate::loader::Loader;
use crate::probe::{Counter, names};

/// A load that uses more of the link than this is limited by it.
pub const FILLED_SHARE: f64 = 0.9;

/// Finds the device of this host over which packets to an address leave.
pub type DeviceTowards<'p> = dyn Fn(IpAddr) -> Option<NetDevice> + 'p;

/// What a loader saw of its path in a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSample {
    /// Its place among the loaders of the run; 0 for the client of the host.
    #[serde(default)]
    pub loader: u32,
    /// The device towards the system; `None` where its host does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<NetDevice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<RoundTrip>,
}

/// Round-trip times of the load's own connections at the end of a slice, from TCP_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrip {
    pub connections: u64,
    /// The median of the smoothed times.
    pub median_ns: u64,
    /// The least that any connection has seen.
    pub least_ns: u64,
}

/// The path of one loader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderPath {
    pub loader: u32,
    /// The loader's device.
    pub there: NetDevice,
    /// The device of the system's host, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here: Option<NetDevice>,
}

impl LoaderPath {
    /// Returns the words for what the path consists of if no card is in it, such as `veth`.
    pub fn without_card(&self) -> Option<&'static str> {
        let ends = std::iter::once(&self.there).chain(&self.here);
        ends.map(|device| device.kind).find(|kind| !kind.has_card()).map(|kind| kind.word())
    }
}

/// Adds the paths that a slice has shown for the first time. Returns whether there were any.
///
/// The system's own end is found by the loader's address. Behind a bridge of its own that address
/// is not this host's, so only `network = "host"` shows it, unless loaders are elsewhere.
pub(crate) fn learn(
    paths: &mut Vec<LoaderPath>,
    samples: &[PathSample],
    towards: Option<&DeviceTowards<'_>>,
    is_reached_here: bool,
) -> bool {
    let before = paths.clone();
    for sample in samples {
        let Some(there) = &sample.device else { continue };
        let known = paths.iter().position(|path| path.loader == sample.loader);
        if !is_reached_here && known.is_some() {
            continue;
        }
        let find = || towards.zip(there.address).and_then(|(towards, at)| towards(at));
        let here = if is_reached_here { find() } else { None };
        let path = LoaderPath { loader: sample.loader, there: there.clone(), here };
        match known {
            None => paths.push(path),
            Some(at) if paths[at].here.is_none() => paths[at] = path,
            Some(_) => {}
        }
    }
    paths.sort_by_key(|path| path.loader);
    *paths != before
}

/// Returns whether the address that clients dial belongs to the host's own network.
pub(crate) fn is_reached_here(network: Network, loaders: &[Loader]) -> bool {
    network == Network::Host || loaders.iter().any(|one| one.host != crate::loader::LOCAL)
}

/// Returns the counters of the round-trip times of a slice, by loader.
pub(crate) fn counters(samples: &[PathSample]) -> Vec<Counter> {
    let of = |sample: &PathSample| {
        let trip = sample.round_trip?;
        let counter = |name: String, ns: u64| Counter { name, value: ns as f64 };
        Some([
            counter(names::loader_rtt(sample.loader), trip.median_ns),
            counter(names::loader_rtt_least(sample.loader), trip.least_ns),
        ])
    };
    samples.iter().filter_map(of).flatten().collect()
}

/// Returns the doubt that the link of the system's host limits the throughput of a slice with these
/// counters.
pub(crate) fn filled(counters: &[Counter]) -> Option<Doubt> {
    let share = counters.iter().find(|one| one.name == names::LINK_SHARE)?.value;
    (share > FILLED_SHARE).then_some(Doubt::LinkFilled { share })
}

/// Returns the doubts about the paths of loaders that the user named: a path without a card.
pub(crate) fn doubts(paths: &[LoaderPath], loaders: &[Loader]) -> Vec<Doubt> {
    let of = |path: &LoaderPath| {
        let loader = loaders.get(usize::try_from(path.loader).ok()?)?;
        let what = path.without_card()?.to_string();
        Some(Doubt::NoCardInPath { loader: loader.host.clone(), what })
    };
    paths.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_std::net_device::DeviceKind;

    fn device(name: &str, kind: DeviceKind) -> NetDevice {
        let address = Some("10.0.0.9".parse().unwrap());
        NetDevice { name: name.into(), kind, address, ..NetDevice::default() }
    }

    fn sample(loader: u32, device: Option<NetDevice>) -> PathSample {
        let round_trip = Some(RoundTrip { connections: 2, median_ns: 90_000, least_ns: 40_000 });
        PathSample { loader, device, round_trip }
    }

    #[test]
    fn learns_each_path_once() {
        let mut paths = Vec::new();
        let samples = [sample(1, Some(device("eth0", DeviceKind::Card))), sample(0, None)];
        let towards = |at: IpAddr| {
            assert_eq!(at.to_string(), "10.0.0.9");
            Some(device("veth7", DeviceKind::Veth))
        };
        // Behind a bridge only the loader's own end is known.
        assert!(learn(&mut paths, &samples, Some(&towards), false));
        assert_eq!((paths.len(), &paths[0].here), (1, &None));
        assert_eq!(paths[0].without_card(), None);
        assert!(!learn(&mut paths, &samples, Some(&towards), false));
        assert!(learn(&mut paths, &samples, Some(&towards), true));
        assert_eq!(paths[0].here.as_ref().unwrap().name, "veth7");
        assert!(!learn(&mut paths, &samples, Some(&towards), true));
        assert_eq!(paths[0].without_card(), Some("veth"));

        let loader = |host: &str| Loader {
            host: host.into(),
            cpus: "0".parse().unwrap(),
            kernel: String::new(),
            architecture: String::new(),
        };
        let loaders = [loader("ssh:a"), loader("ssh:b")];
        let found = doubts(&paths, &loaders);
        assert!(matches!(&found[..], [Doubt::NoCardInPath { loader, .. }] if loader == "ssh:b"));
        assert!(doubts(&paths, &[]).is_empty());
        assert!(is_reached_here(Network::Bridge { proxy: false }, &loaders));
        assert!(!is_reached_here(Network::Bridge { proxy: false }, &[]));
    }

    #[test]
    fn round_trips_become_counters() {
        let found = counters(&[sample(0, None), PathSample::default()]);
        let shown: Vec<(&str, f64)> = found.iter().map(|c| (c.name.as_str(), c.value)).collect();
        assert_eq!(shown, [("loader_0_rtt_ns_mean", 90e3), ("loader_0_rtt_least_ns_mean", 40e3)]);
    }

    #[test]
    fn full_link_is_a_doubt() {
        let with = |value| filled(&[Counter { name: names::LINK_SHARE.into(), value }]);
        assert_eq!(with(0.89), None);
        assert_eq!(with(0.95), Some(Doubt::LinkFilled { share: 0.95 }));
    }
}
