//! What an agent knows of the network path to a system.

use std::net::SocketAddr;

use tare_host::net_device;
use tare_lab::path::{PathSample, RoundTrip};
use tare_load::round_trip;
use tare_std::net_device::NetDevice;

/// The path to one system.
#[derive(Clone, Debug)]
pub(crate) struct OpenPath {
    addresses: Vec<SocketAddr>,
    /// The device towards the first address.
    device: Option<NetDevice>,
}

impl OpenPath {
    pub(crate) fn new(addresses: &[SocketAddr]) -> Self {
        let device = addresses.first().and_then(|address| net_device::towards(address.ip()));
        Self { addresses: addresses.to_vec(), device }
    }

    /// Returns the device, and the round-trip times of this host's connections now.
    pub(crate) fn sample(&self) -> PathSample {
        let round_trip = round_trip::sample(&self.addresses).map(|trips| RoundTrip {
            connections: trips.connections,
            median_ns: trips.median_ns,
            least_ns: trips.least_ns,
        });
        PathSample { loader: 0, device: self.device.clone(), round_trip }
    }
}
