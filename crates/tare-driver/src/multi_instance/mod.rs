//! Loads several separate instances of a system at the same time: a driver for each, all where the
//! client runs, or each on all loaders.
//!
//! Method: every instance holds all rows and gets the whole workload; a fixed rate is divided among
//! them. A system may have fewer instances than there are drivers: the others have nothing to do.
//! Accounts are read once the last window has begun, and again when the first one ends.
//! Counts are added up, and histograms merged. What a loader did for all instances is one entry of
//! the result, and its windows are compared with the time of those accounts.
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
use tare_lab::driver::{Driver, Edge, InstanceLoad, Pacing, SliceLoad, SliceOrder, TargetId};
use tare_lab::loader::{Loader, LoaderSlice};
use tare_lab::path::PathSample;
use tare_lab::seconds::LoadSecond;
use tare_lab::study::WorkloadSpec;
use tare_load::clock_ns;

use super::targets::{NoTarget, Targets};
use super::{Client, DriverInfo};
use tare_load::histogram::{self, DecodeError};

/// Why instances could not be loaded together.
#[derive(Debug, thiserror::Error)]
pub enum MultiInstanceError {
    #[error("the driver was created for up to {made} instances of the system, not {given}")]
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
        Ok(Self::of((0..count).map(one).collect::<Result<_, PartError>>()?))
    }

    /// Uses a driver for each instance.
    pub(super) fn of(drivers: Vec<Box<dyn Driver + Send>>) -> Self {
        Self { drivers, targets: Targets::default() }
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
    fn open(
        &mut self,
        addresses: &[SocketAddr],
        deadline: Duration,
    ) -> Result<TargetId, PartError> {
        let (made, given) = (self.drivers.len(), addresses.len());
        if given == 0 || made < given {
            return Err(MultiInstanceError::Number { made, given }.into());
        }
        let open = |(driver, address): (&mut Box<dyn Driver + Send>, &SocketAddr)| {
            driver.open(std::slice::from_ref(address), deadline)
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
        let count = u64::try_from(self.targets.get(target)?.len()).unwrap_or(u64::MAX);
        for (number, (driver, target)) in (0..).zip(self.each(target)?) {
            let mut sum = |done, all| progress(number * all + done, count * all);
            driver.populate(target, workload, seed, &mut sum)?;
        }
        Ok(())
    }

    fn assume_rows(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
        seed: u64,
    ) -> Result<(), PartError> {
        let mut each = self.each(target)?;
        each.try_for_each(|(driver, target)| driver.assume_rows(target, workload, seed))
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
        let count = self.targets.get(target)?.len();
        let mut share = order.clone();
        if let Pacing::Open { rate_per_s } = &mut share.pacing {
            *rate_per_s /= count as f64;
        }
        let (sender, edges) = mpsc::channel();
        let mut apart = false;
        let mut seen = vec![Edges::default(); count];
        let mut read = Edges::default();
        let pairs: Vec<_> = self.each(target)?.collect();
        let loads: Vec<Result<SliceLoad, PartError>> = thread::scope(|scope| {
            let mut threads = Vec::new();
            for (number, (driver, target)) in pairs.into_iter().enumerate() {
                let (sender, share) = (sender.clone(), &share);
                // The receiver outlives the scope.
                let mut tell = move |edge| {
                    let _ = sender.send((number, edge, clock_ns()));
                };
                threads.push(scope.spawn(move || driver.run(target, share, &mut tell)));
            }
            drop(sender);
            for (number, one, at_ns) in edges {
                match one {
                    Edge::Begin => {
                        seen[number].begin_ns = Some(at_ns);
                        if seen.iter().all(|one| one.begin_ns.is_some()) && !apart {
                            read.begin_ns = Some(clock_ns());
                            edge(Edge::Begin);
                        }
                    }
                    Edge::End => {
                        seen[number].end_ns = Some(at_ns);
                        apart |= read.begin_ns.is_none();
                        if read.end_ns.is_none() && !apart {
                            read.end_ns = Some(clock_ns());
                            edge(Edge::End);
                        }
                    }
                }
            }
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(load) => load,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.collect()
        });
        let mut loads = loads.into_iter().collect::<Result<Vec<_>, _>>()?;
        if apart {
            return Err(MultiInstanceError::Apart.into());
        }
        for (load, seen) in loads.iter_mut().zip(seen) {
            seen.compare_with(read, &mut load.loaders);
        }
        sum(&loads).map_err(PartError::from)
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

    fn loaders(&self) -> Vec<Loader> {
        self.drivers.first().map(|driver| driver.loaders()).unwrap_or_default()
    }

    fn given_up(&self) -> Option<String> {
        self.drivers.iter().find_map(|driver| driver.given_up())
    }

    fn stop(&mut self) -> Result<(), PartError> {
        let stopped: Vec<_> = self.drivers.iter_mut().map(|driver| driver.stop()).collect();
        stopped.into_iter().collect()
    }
}

/// When the window of a driver opened and closed, or when the accounts were read.
#[derive(Clone, Copy, Debug, Default)]
struct Edges {
    begin_ns: Option<u64>,
    end_ns: Option<u64>,
}

impl Edges {
    /// Makes offsets from this window those from the time at which the accounts were read.
    fn compare_with(self, read: Self, loaders: &mut [LoaderSlice]) {
        let later = |own: Option<u64>, read: Option<u64>| {
            own.zip(read).map_or(0, |(own, read)| {
                i64::try_from(i128::from(own) - i128::from(read)).unwrap_or(i64::MAX)
            })
        };
        for one in loaders {
            one.begin_offset_ns += later(self.begin_ns, read.begin_ns);
            one.end_offset_ns += later(self.end_ns, read.end_ns);
        }
    }
}

/// Adds up what each loader did for all instances: the worst of its edges, and the mean of how long
/// its threads waited, because every instance has as many.
fn loaders(loads: &[SliceLoad]) -> Vec<LoaderSlice> {
    let mut all: Vec<(LoaderSlice, u64)> = Vec::new();
    for one in loads.iter().flat_map(|load| &load.loaders) {
        let Some((sum, of)) = all.iter_mut().find(|(sum, _)| sum.loader == one.loader) else {
            all.push((*one, 1));
            continue;
        };
        *of += 1;
        sum.window_ns = sum.window_ns.max(one.window_ns);
        sum.operations += one.operations;
        sum.cpu_ns += one.cpu_ns;
        sum.busiest_thread_ns = sum.busiest_thread_ns.max(one.busiest_thread_ns);
        sum.waited_ns = sum.waited_ns.zip(one.waited_ns).map(|(sum, one)| sum + one);
        let further = |sum: i64, one: i64| if one.abs() > sum.abs() { one } else { sum };
        sum.begin_offset_ns = further(sum.begin_offset_ns, one.begin_offset_ns);
        sum.end_offset_ns = further(sum.end_offset_ns, one.end_offset_ns);
        sum.clock_error_ns = sum.clock_error_ns.max(one.clock_error_ns);
    }
    all.sort_by_key(|(sum, _)| sum.loader);
    let mean = |(sum, of): (LoaderSlice, u64)| LoaderSlice {
        waited_ns: sum.waited_ns.map(|waited_ns| waited_ns / of),
        ..sum
    };
    all.into_iter().map(mean).collect()
}

/// Returns the path of each loader, with the round trips of the instance that has the slowest.
fn paths(loads: &[SliceLoad]) -> Vec<PathSample> {
    let mut all: Vec<PathSample> = Vec::new();
    let median_ns = |sample: &PathSample| sample.round_trip.map(|trip| trip.median_ns);
    for one in loads.iter().flat_map(|load| &load.paths) {
        match all.iter_mut().find(|known| known.loader == one.loader) {
            None => all.push(one.clone()),
            Some(known) if median_ns(one) > median_ns(known) => *known = one.clone(),
            Some(_) => {}
        }
    }
    all
}

/// Adds up the results of all drivers.
pub(super) fn sum(loads: &[SliceLoad]) -> Result<SliceLoad, MultiInstanceError> {
    let mut sum = SliceLoad::default();
    let windows: u64 = loads.iter().map(|load| load.window_ns).sum();
    sum.window_ns = windows / u64::try_from(loads.len()).unwrap_or(1).max(1);
    for load in loads {
        sum.operations += load.operations;
        sum.unsent += load.unsent;
        if let Some(late) = load.sent_late {
            *sum.sent_late.get_or_insert(0) += late;
        }
        sum.client_cpu_ns += load.client_cpu_ns;
        sum.busiest_thread_ns = sum.busiest_thread_ns.max(load.busiest_thread_ns);
        for (kind, count) in &load.errors {
            match sum.errors.iter_mut().find(|(known, _)| known == kind) {
                Some((_, all)) => *all += count,
                None => sum.errors.push((kind.clone(), *count)),
            }
        }
    }
    sum.loaders = loaders(loads);
    sum.paths = paths(loads);
    sum.instances = loads.iter().map(instance).collect::<Result<_, _>>()?;
    sum.seconds = LoadSecond::sum(loads.iter().map(|load| load.seconds.as_slice()));
    sum.response = merged(loads.iter().map(|load| load.response.as_slice()))?;
    sum.service = merged(loads.iter().map(|load| load.service.as_slice()))?;
    Ok(sum)
}

/// Returns what the driver of one instance measured.
fn instance(load: &SliceLoad) -> Result<InstanceLoad, MultiInstanceError> {
    let times = if load.response.is_empty() { &load.service } else { &load.response };
    let latency_ns = match times.is_empty() {
        true => None,
        false => {
            let times = histogram::decode(times)?;
            Some([0.5, 0.99, 0.999].map(|share| times.value_at_quantile(share)))
        }
    };
    Ok(InstanceLoad { operations: load.operations, latency_ns })
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
