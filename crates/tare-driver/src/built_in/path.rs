//! What an agent knows of the network path to each system.

use std::collections::HashMap;
use std::net::SocketAddr;

use tare_host::net_device;
use tare_lab::driver::TargetId;
use tare_lab::path::{PathSample, RoundTrip};
use tare_load::round_trip;
use tare_std::net_device::NetDevice;

/// The systems that are open.
#[derive(Debug, Default)]
pub(super) struct Paths(HashMap<TargetId, OpenPath>);

#[derive(Debug)]
struct OpenPath {
    addresses: Vec<SocketAddr>,
    /// The device towards the first address.
    device: Option<NetDevice>,
}

impl Paths {
    pub(super) fn open(&mut self, target: TargetId, addresses: Vec<SocketAddr>) {
        let device = addresses.first().and_then(|address| net_device::towards(address.ip()));
        self.0.insert(target, OpenPath { addresses, device });
    }

    pub(super) fn close(&mut self, target: TargetId) {
        self.0.remove(&target);
    }

    /// Returns the device, and the round-trip times now.
    pub(super) fn sample(&self, target: TargetId) -> Option<PathSample> {
        let OpenPath { addresses, device } = self.0.get(&target)?;
        let round_trip = round_trip::sample(addresses).map(|trips| RoundTrip {
            connections: trips.connections,
            median_ns: trips.median_ns,
            least_ns: trips.least_ns,
        });
        Some(PathSample { loader: 0, device: device.clone(), round_trip })
    }
}
