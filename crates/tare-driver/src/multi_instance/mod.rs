//! Loads several separate instances of a system at the same time: a driver for each, all where the
//! client runs.
//!
//! Method: every instance holds all rows and gets the whole workload; a fixed rate is divided among
//! them. Accounts are read once the last window has begun, and again when the first one ends.
//! Counts are added up, and histograms merged.
//!
//! Limits: windows start and end about a millisecond apart, the time to reach the drivers. With
//! tools whose windows follow their lines it is up to one such interval; long windows make that
//! small.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tare_lab::PartError;
use tare_lab::doubt::Doubt;
use tare_lab::driver::{Driver, Edge, Pacing, SliceLoad, SliceOrder, TargetId};
use tare_lab::study::WorkloadSpec;

use super::targets::{NoTarget, Targets};
use super::{Client, DriverInfo};
use tare_load::histogram::{self, DecodeError};

/// Why instances could not be loaded together.
#[derive(Debug, thiserror::Error)]
pub enum MultiInstanceError {
    #[error("the driver was created for {made} instances of the system, not {given}")]
    Number { made: usize, given: usize },
    #[error(transparent)]
    NoTarget(#[from] NoTarget),
    #[error(
        "the window of one instance ended before that of another started; set a longer schedule.window"
    )]
    Apart,
    #[error("a driver's latency cannot be merged")]
    Histogram(#[from] DecodeError),
    #[error("a driver's latency is too long to be merged")]
    Merge(#[from] hdrhistogram::AdditionError),
}

/// A driver for each instance.
pub(super) struct MultiInstance {
    drivers: Vec<Box<dyn Driver + Send>>,
    /// The number that each driver gave a target, in the order of the drivers.
    targets: Targets<Vec<TargetId>>,
}

impl MultiInstance {
    /// Starts this many drivers.
    pub(super) fn make(
        info: &DriverInfo,
        client: &Client<'_>,
        count: u32,
    ) -> Result<Self, PartError> {
        let one = |number: u32| {
            let scratch = client.scratch.join(format!("driver-{number}"));
            std::fs::create_dir_all(&scratch)?;
            (info.make)(&Client { scratch: &scratch, ..*client })
        };
        let drivers = (0..count).map(one).collect::<Result<_, PartError>>()?;
        Ok(Self { drivers, targets: Targets::default() })
    }

    /// Returns every driver with its number for a target.
    fn each(
        &mut self,
        target: TargetId,
    ) -> Result<impl Iterator<Item = (&mut Box<dyn Driver + Send>, TargetId)>, MultiInstanceError>
    {
        let targets = self.targets.get(target)?;
        Ok(self.drivers.iter_mut().zip(targets.iter().copied()))
    }
}

impl Driver for MultiInstance {
    fn open(&mut self, address: SocketAddr, deadline: Duration) -> Result<TargetId, PartError> {
        self.open_all(&[address], deadline)
    }

    fn open_all(
        &mut self,
        addresses: &[SocketAddr],
        deadline: Duration,
    ) -> Result<TargetId, PartError> {
        let (made, given) = (self.drivers.len(), addresses.len());
        if made != given {
            return Err(MultiInstanceError::Number { made, given }.into());
        }
        let open = |(driver, address): (&mut Box<dyn Driver + Send>, &SocketAddr)| {
            driver.open(*address, deadline)
        };
        let opened = self.drivers.iter_mut().zip(addresses).map(open).collect::<Result<_, _>>()?;
        Ok(self.targets.add(opened))
    }

    fn populate(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
        seed: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), PartError> {
        let count = u64::try_from(self.drivers.len()).unwrap_or(u64::MAX);
        for (number, (driver, target)) in (0..).zip(self.each(target)?) {
            let mut sum = |done, all| progress(number * all + done, count * all);
            driver.populate(target, workload, seed, &mut sum)?;
        }
        Ok(())
    }

    fn loads_at_edges(&self) -> bool {
        self.drivers.iter().all(|driver| driver.loads_at_edges())
    }

    fn run(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        edge: &mut dyn FnMut(Edge),
    ) -> Result<SliceLoad, PartError> {
        let count = self.drivers.len();
        let mut share = order.clone();
        if let Pacing::Open { rate_per_s } = &mut share.pacing {
            *rate_per_s /= count as f64;
        }
        let (sender, edges) = mpsc::channel();
        let (mut begun, mut ended, mut apart) = (0, false, false);
        let pairs: Vec<_> = self.each(target)?.collect();
        let loads: Vec<Result<SliceLoad, PartError>> = thread::scope(|scope| {
            let mut threads = Vec::new();
            for (driver, target) in pairs {
                let (sender, share) = (sender.clone(), &share);
                // The receiver outlives the scope.
                let mut tell = move |edge| {
                    let _ = sender.send(edge);
                };
                threads.push(scope.spawn(move || driver.run(target, share, &mut tell)));
            }
            drop(sender);
            for one in edges {
                match one {
                    Edge::Begin => {
                        begun += 1;
                        if begun == count && !apart {
                            edge(Edge::Begin);
                        }
                    }
                    Edge::End if begun < count => apart = true,
                    Edge::End if !ended && !apart => {
                        ended = true;
                        edge(Edge::End);
                    }
                    Edge::End => {}
                }
            }
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(load) => load,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.collect()
        });
        let loads = loads.into_iter().collect::<Result<Vec<_>, _>>()?;
        if apart {
            return Err(MultiInstanceError::Apart.into());
        }
        Ok(sum(&loads)?)
    }

    fn doubts(&mut self, target: TargetId) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        for (driver, target) in self.each(target).into_iter().flatten() {
            for doubt in driver.doubts(target) {
                if !doubts.contains(&doubt) {
                    doubts.push(doubt);
                }
            }
        }
        doubts
    }

    fn close(&mut self, target: TargetId) -> Result<(), PartError> {
        let closed: Vec<_> =
            self.each(target)?.map(|(driver, target)| driver.close(target)).collect();
        self.targets.remove(target)?;
        closed.into_iter().collect()
    }

    fn pids(&self) -> Vec<u32> {
        self.drivers.iter().flat_map(|driver| driver.pids()).collect()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        let stopped: Vec<_> = self.drivers.iter_mut().map(|driver| driver.stop()).collect();
        stopped.into_iter().collect()
    }
}

/// Adds up the results of all drivers.
pub(super) fn sum(loads: &[SliceLoad]) -> Result<SliceLoad, MultiInstanceError> {
    let mut sum = SliceLoad::default();
    let windows: u64 = loads.iter().map(|load| load.window_ns).sum();
    sum.window_ns = windows / u64::try_from(loads.len()).unwrap_or(1).max(1);
    for load in loads {
        sum.operations += load.operations;
        sum.unsent += load.unsent;
        sum.client_cpu_ns += load.client_cpu_ns;
        sum.busiest_thread_ns = sum.busiest_thread_ns.max(load.busiest_thread_ns);
        for (kind, count) in &load.errors {
            match sum.errors.iter_mut().find(|(known, _)| known == kind) {
                Some((_, all)) => *all += count,
                None => sum.errors.push((kind.clone(), *count)),
            }
        }
    }
    sum.response = merged(loads.iter().map(|load| load.response.as_slice()))?;
    sum.service = merged(loads.iter().map(|load| load.service.as_slice()))?;
    Ok(sum)
}

/// Merges histograms without loss; empty if one is missing.
fn merged<'a>(mut parts: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, MultiInstanceError> {
    let Some(first) = parts.next().filter(|bytes| !bytes.is_empty()) else { return Ok(Vec::new()) };
    let mut all = histogram::decode(first)?;
    all.auto(true);
    for part in parts {
        if part.is_empty() {
            return Ok(Vec::new());
        }
        all.add(histogram::decode(part)?)?;
    }
    Ok(histogram::encode(&all))
}

#[cfg(test)]
mod tests;
