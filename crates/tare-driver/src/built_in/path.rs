//! What an agent knows of the network path to each system.

use std::collections::HashMap;
use std::net::SocketAddr;

use tare_host::net_device;
use tare_lab::driver::TargetId;
use tare_lab::path::{PathSample, RoundTrip};
use tare_load::round_trip;

/// The systems that are open, with their addresses.
#[derive(Debug, Default)]
pub(super) struct Paths(HashMap<TargetId, OpenPath>);

#[derive(Debug)]
struct OpenPath {
    addresses: Vec<SocketAddr>,
    /// Whether the driver knows the device already.
    is_told: bool,
}

impl Paths {
    pub(super) fn open(&mut self, target: TargetId, addresses: Vec<SocketAddr>) {
        self.0.insert(target, OpenPath { addresses, is_told: false });
    }

    pub(super) fn close(&mut self, target: TargetId) {
        self.0.remove(&target);
    }

    /// Returns the round-trip times now, and in the first sample of a system the device towards it.
    pub(super) fn sample(&mut self, target: TargetId) -> Option<PathSample> {
        let path = self.0.get_mut(&target)?;
        let first = path.addresses.first().filter(|_| !path.is_told);
        let device = first.and_then(|address| net_device::towards(address.ip()));
        path.is_told = true;
        let round_trip = round_trip::sample(&path.addresses).map(|trips| RoundTrip {
            connections: trips.connections,
            median_ns: trips.median_ns,
            least_ns: trips.least_ns,
        });
        Some(PathSample { loader: 0, device, round_trip })
    }
}
