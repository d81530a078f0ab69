//! The trait of drivers, which load a system.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::PartError;
use crate::doubt::Doubt;
use crate::loader::{Loader, LoaderSlice};
use crate::path::PathSample;
use crate::seconds::LoadSecond;
use crate::study::WorkloadSpec;

/// A system to which the driver is connected: an index returned by `open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TargetId(pub u32);

/// How operations are paced.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// Closed loop: the next operation starts when one of those in flight ends. Latency is service
    /// time, which does not include the wait before the send.
    Closed,
    /// Open loop: operations start on a schedule, independent of the system. Response time counts
    /// from the intended start.
    Open { rate_per_s: f64 },
}

/// One stretch of load: a lead-in that is cut, then the measured window, then a short tail under
/// the same load, in which the accounts are read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SliceOrder {
    pub workload: WorkloadSpec,
    pub pacing: Pacing,
    pub lead_in: Duration,
    pub window: Duration,
    /// Every operation derives from (seed, index).
    pub seed: u64,
}

/// The two instants at which the harness reads the accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The measured window opens.
    Begin,
    /// The measured window has closed; the load still runs.
    End,
}

/// The figures of the driver between the edges.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SliceLoad {
    /// Actual length of the measured window, in ns.
    pub window_ns: u64,
    /// Operations that succeeded inside the window.
    pub operations: u64,
    /// Operations that failed, by kind.
    pub errors: Vec<(String, u64)>,
    /// Open loop: operations that were due in the window and never sent.
    pub unsent: u64,
    /// Open loop: operations that were sent more than 1 ms after they were due; `None` if the
    /// driver does not know it.
    #[serde(default)]
    pub sent_late: Option<u64>,
    /// CPU time of the client's threads in the window, in ns.
    pub client_cpu_ns: u64,
    /// CPU time of the client's busiest thread in the window, in ns. 0 if the driver does not know
    /// it: probes see the threads of a client that lives longer than a slice.
    #[serde(default)]
    pub busiest_thread_ns: u64,
    /// Open loop: response time, from the intended start. HdrHistogram V2 (compressed), ns.
    /// Empty in a closed loop.
    pub response: Vec<u8>,
    /// Service time, from the send. HdrHistogram V2 (compressed), ns.
    pub service: Vec<u8>,
    /// What each loader did, where the study has loaders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaders: Vec<LoaderSlice>,
    /// What each instance did, if there are several and each has a load of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<InstanceLoad>,
    /// What each loader saw of its network path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathSample>,
    /// The seconds of a long window ([`crate::seconds`]); empty if the driver does not count by
    /// the second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seconds: Vec<LoadSecond>,
}

/// What one of several instances did in the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceLoad {
    /// Operations that succeeded inside the window.
    pub operations: u64,
    /// Response time at a fixed rate, else service time, in ns: median, 99 % and 99.9 %. `None`
    /// without a histogram.
    pub latency_ns: Option<[u64; 3]>,
}

/// `open` received no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no instance of the system to connect to")]
pub struct NoInstanceError;

/// Returns the first address of a system, for a driver that needs only one.
///
/// # Errors
/// If there is none.
pub fn first_address(addresses: &[SocketAddr]) -> Result<SocketAddr, NoInstanceError> {
    addresses.first().copied().ok_or(NoInstanceError)
}

/// A load generator or an adapter for one. It runs on the client's CPUs.
pub trait Driver {
    /// Connects to all instances of a system, and waits until it answers, at most `deadline`. In a
    /// cluster, a driver may learn the other addresses from the first one.
    fn open(&mut self, addresses: &[SocketAddr], deadline: Duration)
    -> Result<TargetId, PartError>;

    /// Creates the schema and writes the workload's rows. Calls `progress(done, all)`.
    fn populate(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
        seed: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), PartError>;

    /// Takes note that the workload's rows are there, written with this seed through another
    /// connection. The default needs to know nothing of them.
    fn assume_rows(
        &mut self,
        _target: TargetId,
        _workload: &WorkloadSpec,
        _seed: u64,
    ) -> Result<(), PartError> {
        Ok(())
    }

    /// Returns whether the load goes on while `edge` runs, at both edges. CPU accounts that span a
    /// little more or less than the window can then be converted to the window.
    fn loads_at_edges(&self) -> bool {
        false
    }

    /// Runs one slice, and calls `edge` at the two edges of the measured window.
    fn run(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        edge: &mut dyn FnMut(Edge),
    ) -> Result<SliceLoad, PartError>;

    /// Returns doubts about all figures of a system whose data is loaded.
    fn doubts(&mut self, _target: TargetId) -> Vec<Doubt> {
        Vec::new()
    }

    /// Drops the connections to one system.
    fn close(&mut self, target: TargetId) -> Result<(), PartError>;

    /// Returns the client's process ids, so that its CPU time counts as the client's.
    fn pids(&self) -> Vec<u32>;

    /// Returns the loaders, where the study has them.
    fn loaders(&self) -> Vec<Loader> {
        Vec::new()
    }

    /// Returns why the driver cannot load any system any more, if that is so. The campaign then
    /// ends, and can be resumed.
    fn given_up(&self) -> Option<String> {
        None
    }

    /// Ends the driver. Idempotent.
    fn stop(&mut self) -> Result<(), PartError>;
}
