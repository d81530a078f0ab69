//! One slice of several loaders, and the rows that they write.

use std::collections::BTreeMap;
use std::time::Duration;

use tare_lab::driver::{Edge, SliceLoad, SliceOrder, TargetId};
use tare_lab::loader::LoaderSlice;
use tare_lab::path::PathSample;
use tare_lab::study::WorkloadSpec;
use tare_load::clock_ns;

use super::conversation::{Arrival, Received, ns};
use super::division::{self, LoaderShare};
use super::{CLOCK_AGE, EXCHANGES, GRACE, LoaderError, MultiLoader, PROGRESS};
use crate::agent::protocol::{ACCOUNTS_READ, Answer, Order, STOP, SharedRun, SliceResult};
use crate::{multi_instance, sharing};

/// Time between the arrival of an order and the lead-in, for the agent to start its threads.
const START: Duration = Duration::from_millis(3);
/// Time limit for a loader to get ready, or to show that it still tries: a Java tool starts for
/// many seconds.
const PREPARE: Duration = Duration::from_secs(150);
/// The first guess of how long a loader that loads the system has to wait until all others do.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// How often the loaders are prepared until none has to wait longer than it can.
const PREPARATIONS_MAX: u32 = 3;
/// Time limit for the result of a loader that loads until its run ends by itself.
const RUN_END: Duration = Duration::from_secs(180);

/// A slice that runs.
struct RunningSlice {
    /// When the order of each loader was sent. Those without a result yet are waiting.
    sent_ns: BTreeMap<usize, u64>,
    waiting: BTreeMap<usize, ()>,
    results: BTreeMap<usize, SliceResult>,
    failure: Option<LoaderError>,
}

/// The harness's own edges, on its clock.
#[derive(Clone, Copy, Debug)]
struct Edges {
    begin_ns: u64,
    end_ns: u64,
}

impl MultiLoader {
    /// Runs a slice on all loaders that have a part of it.
    pub(super) fn run_slice(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        edge: &mut dyn FnMut(Edge),
    ) -> Result<SliceLoad, LoaderError> {
        let workloads = (self.sharing.divide)(&order.workload, self.count());
        let shares = division::divide(order, workloads);
        let shares: Vec<(usize, LoaderShare)> =
            (0..).zip(shares).filter_map(|(index, share)| Some((index, share?))).collect();
        if shares.is_empty() {
            return Err(LoaderError::NoShare { loaders: self.loaders.len() });
        }
        self.refresh_clocks(&shares)?;
        // Loaders that load already have the lead-in behind them.
        let is_loading = self.prepare(target, &shares)?;
        let (lead_in, limit) =
            if is_loading { (Duration::ZERO, RUN_END) } else { (order.lead_in, GRACE) };
        let at_ns = clock_ns() + ns(START) + self.longest_round_trip_ns(&shares);
        let mut slice = self.send_orders(target, &shares, at_ns)?;
        let planned_begin_ns = at_ns + ns(lead_in);
        self.wait(&mut slice, planned_begin_ns);
        if slice.failure.is_some() {
            return Err(self.abandon(slice));
        }
        let begin_ns = clock_ns();
        edge(Edge::Begin);
        self.wait(&mut slice, planned_begin_ns + ns(order.window));
        if slice.failure.is_some() {
            return Err(self.abandon(slice));
        }
        let end_ns = clock_ns();
        edge(Edge::End);
        self.signal(&slice, ACCOUNTS_READ);
        self.wait(&mut slice, clock_ns() + ns(limit));
        if slice.failure.is_some() || !slice.waiting.is_empty() {
            return Err(self.abandon(slice));
        }
        self.merge(slice, Edges { begin_ns, end_ns })
    }

    /// Compares the clocks of loaders that have not been asked for a while.
    fn refresh_clocks(&mut self, shares: &[(usize, LoaderShare)]) -> Result<(), LoaderError> {
        let now_ns = clock_ns();
        let is_old = |index: &usize| {
            let last_ns = self.loaders[*index].clock.last_ns();
            last_ns.is_none_or(|last_ns| now_ns.saturating_sub(last_ns) > ns(CLOCK_AGE))
        };
        let old: Vec<usize> = shares.iter().map(|(index, _)| *index).filter(is_old).collect();
        if old.is_empty() { Ok(()) } else { self.compare_clocks(&old, EXCHANGES) }
    }

    fn longest_round_trip_ns(&self, shares: &[(usize, LoaderShare)]) -> u64 {
        let trips =
            shares.iter().map(|(index, _)| self.loaders[*index].clock.longest_round_trip_ns());
        trips.max().unwrap_or(0)
    }

    /// Has the loaders get ready: connections opened and statements prepared where the last slice
    /// of this system had another workload, or tools started. Returns whether they load the system
    /// already; then all of them can go on with that until the end of the window.
    fn prepare(
        &mut self,
        target: TargetId,
        shares: &[(usize, LoaderShare)],
    ) -> Result<bool, LoaderError> {
        for _ in 0..PREPARATIONS_MAX {
            let longest = self.longest_wait.map(|wait| wait * 2 + Duration::from_secs(1));
            let wait = longest.unwrap_or(FIRST_WAIT);
            let loading = match self.prepare_once(target, shares, wait) {
                Ok(loading) => loading,
                Err(error) => {
                    self.release(shares);
                    return Err(error);
                }
            };
            let times = || loading.iter().map(|arrival| arrival.at_ns);
            let (Some(first), Some(last)) = (times().min(), times().max()) else {
                return Ok(false);
            };
            let waited = Duration::from_nanos(last - first);
            self.longest_wait = self.longest_wait.max(Some(waited));
            if waited < wait {
                return Ok(true);
            }
            self.release(shares);
        }
        let longest_s = self.longest_wait.unwrap_or_default().as_secs_f64();
        Err(LoaderError::NotTogether { longest_s })
    }

    /// Prepares every loader that is not, and returns those that load the system now.
    fn prepare_once(
        &mut self,
        target: TargetId,
        shares: &[(usize, LoaderShare)],
        wait: Duration,
    ) -> Result<Vec<Arrival>, LoaderError> {
        let mut orders = Vec::new();
        for (index, share) in shares {
            let loader = &self.loaders[*index];
            if loader.prepared.get(&target) == Some(&share.order.workload) {
                continue;
            }
            let Some(theirs) = loader.opened.get(&target).copied() else { continue };
            let (order, part) = (share.order.clone(), self.part(*index));
            orders.push((*index, Order::Prepare { target: theirs, order, part, wait }));
        }
        let (mut connected, mut loading) = (Vec::new(), Vec::new());
        let asked = self.ask(&orders, "prepare", PREPARE, |arrival, answer| match answer {
            Answer::Progress { .. } => Ok(false),
            Answer::Prepared { loading: true } => {
                loading.push(arrival);
                Ok(true)
            }
            Answer::Prepared { loading: false } => {
                connected.push(arrival.loader);
                Ok(true)
            }
            other => Err(other),
        });
        for (index, share) in shares.iter().filter(|(index, _)| connected.contains(index)) {
            self.loaders[*index].prepared.insert(target, share.order.workload.clone());
        }
        asked.map(|()| loading)
    }

    /// Ends what these loaders were prepared for.
    fn release(&mut self, shares: &[(usize, LoaderShare)]) {
        let alive = shares.iter().filter(|(index, _)| self.loaders[*index].link.is_some());
        let orders: Vec<_> = alive.map(|(index, _)| (*index, Order::Release)).collect();
        // One that does not answer is lost, and the next slice connects it again.
        let _ = self.ask(&orders, "release", GRACE, |_, answer| match answer {
            Answer::Released => Ok(true),
            other => Err(other),
        });
    }

    /// Tells every loader when to begin, on its own clock.
    fn send_orders(
        &mut self,
        target: TargetId,
        shares: &[(usize, LoaderShare)],
        at_ns: u64,
    ) -> Result<RunningSlice, LoaderError> {
        let mut slice = RunningSlice {
            sent_ns: BTreeMap::new(),
            waiting: BTreeMap::new(),
            results: BTreeMap::new(),
            failure: None,
        };
        for (index, share) in shares {
            let part = self.part(*index);
            let loader = &self.loaders[*index];
            let known = loader.link.as_ref().zip(loader.opened.get(&target).copied());
            let clock = loader.clock.best(at_ns);
            let (Some((link, target)), Some(clock)) = (known, clock) else {
                slice.failure = Some(self.lose(*index));
                break;
            };
            let phase_ns = share.phase_ns;
            let shared = Some(SharedRun { part, at_ns: clock.to_there(at_ns), phase_ns });
            slice.sent_ns.insert(*index, clock_ns());
            slice.waiting.insert(*index, ());
            link.send(&Order::Run { target, order: share.order.clone(), shared });
        }
        if slice.failure.is_some() {
            return Err(self.abandon(slice));
        }
        Ok(slice)
    }

    /// Takes what the loaders answer until this time, until all have ended, or until one fails.
    fn wait(&mut self, slice: &mut RunningSlice, until_ns: u64) {
        while slice.failure.is_none() && clock_ns() < until_ns {
            if slice.waiting.is_empty() {
                return;
            }
            match self.receive("run", until_ns) {
                Received::Nothing => return,
                Received::Failed(index, error) => {
                    slice.waiting.remove(&index);
                    slice.failure = Some(error);
                }
                Received::Answer(arrival, Answer::Accepted { ns }) => {
                    if let Some(sent_ns) = slice.sent_ns.get(&arrival.loader) {
                        self.loaders[arrival.loader].clock.add(*sent_ns, ns, arrival.at_ns);
                    }
                }
                Received::Answer(arrival, Answer::Ran(result)) => {
                    slice.waiting.remove(&arrival.loader);
                    slice.results.insert(arrival.loader, *result);
                }
                Received::Answer(arrival, other) => {
                    slice.waiting.remove(&arrival.loader);
                    slice.failure = Some(self.unexpected(arrival.loader, "run", &other));
                }
            }
        }
    }

    fn signal(&self, slice: &RunningSlice, line: &str) {
        let links = slice.waiting.keys().filter_map(|index| self.loaders[*index].link.as_ref());
        links.for_each(|link| link.signal(line));
    }

    /// Ends a slice that failed: no loader may go on with it, and no answer may be left over.
    fn abandon(&mut self, mut slice: RunningSlice) -> LoaderError {
        let failure = slice.failure.take();
        let began_ns = clock_ns();
        self.signal(&slice, STOP);
        // Loaders that were late with their result had their time already.
        let limit = if failure.is_some() { GRACE } else { Duration::ZERO };
        let until_ns = began_ns + ns(limit);
        while !slice.waiting.is_empty() && clock_ns() < until_ns {
            self.wait(&mut slice, until_ns);
            slice.failure = None;
        }
        for loader in &mut self.loaders {
            // Its connections may be gone.
            loader.prepared.clear();
        }
        let mut silent = None;
        for index in std::mem::take(&mut slice.waiting).into_keys() {
            silent.get_or_insert(self.silent(index, "run", began_ns));
        }
        failure.or(silent).unwrap_or(LoaderError::NoShare { loaders: self.loaders.len() })
    }

    /// Merges the results of all loaders.
    fn merge(&mut self, slice: RunningSlice, edges: Edges) -> Result<SliceLoad, LoaderError> {
        let (mut loads, mut loaders, mut paths) = (Vec::new(), Vec::new(), Vec::new());
        for (index, result) in slice.results {
            let shared = result.shared;
            let loader = &mut self.loaders[index];
            let host = &loader.record.host;
            let mut load = SliceLoad::try_from(result)
                .map_err(|source| LoaderError::Result { host: host.clone(), source })?;
            let number = u32::try_from(index).unwrap_or(u32::MAX);
            let seen = std::mem::take(&mut load.paths).into_iter();
            paths.extend(seen.map(|sample| PathSample { loader: number, ..sample }));
            if !load.errors.is_empty() {
                // Connections may have been replaced, so the next slice has them checked first.
                loader.prepared.clear();
            }
            let clock = loader.clock.best(edges.end_ns);
            if let Some((shared, clock)) = shared.zip(clock) {
                let apart = |there_ns, here_ns: u64| {
                    let there = i128::from(clock.to_here(there_ns)) - i128::from(here_ns);
                    i64::try_from(there).unwrap_or(i64::MAX)
                };
                loaders.push(LoaderSlice {
                    loader: number,
                    window_ns: load.window_ns,
                    operations: load.operations,
                    cpu_ns: load.client_cpu_ns,
                    busiest_thread_ns: shared.busiest_thread_ns,
                    waited_ns: shared.waited_ns,
                    begin_offset_ns: apart(shared.begin_ns, edges.begin_ns),
                    end_offset_ns: apart(shared.end_ns, edges.end_ns),
                    clock_error_ns: clock.error_ns,
                });
            }
            loads.push(load);
        }
        let mut sum = multi_instance::sum(&loads)?;
        let busiest = loaders.iter().map(|one| one.busiest_thread_ns).max();
        sum.busiest_thread_ns = busiest.unwrap_or(0);
        sum.loaders = loaders;
        sum.paths = paths;
        Ok(sum)
    }

    /// Has every loader write its part of the rows, or the first one all of them. The first one
    /// creates the table, because some databases do not survive several that do so at once.
    pub(super) fn write_rows(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
        seed: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), LoaderError> {
        let mut orders = Vec::new();
        let each_writes = self.sharing.each_writes_rows;
        let parts = match each_writes {
            true => sharing::connections(workload, self.count()),
            false => vec![workload.clone()],
        };
        for (index, own) in (0..).zip(parts) {
            let loader = &self.loaders[index];
            let Some(theirs) = loader.opened.get(&target).copied() else { continue };
            // Every part of the rows has to be written, also by a loader that has no part of the
            // load itself.
            let (connections, in_flight) = (own.connections.max(1), own.in_flight.max(1));
            let workload = WorkloadSpec { connections, in_flight, ..own };
            let part = each_writes.then(|| self.part(index));
            orders.push((index, Order::Populate { target: theirs, workload, seed, part }));
        }
        let mut written: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        let (first, others) = orders.split_at(orders.len().min(1));
        for orders in [first, others] {
            self.ask(orders, "populate", PROGRESS, |arrival, answer| match answer {
                Answer::Progress { done, all } => {
                    written.insert(arrival.loader, (done, all));
                    let done = written.values().map(|(done, _)| done).sum::<u64>();
                    match each_writes {
                        true => progress(done.min(workload.rows), workload.rows),
                        false => progress(done, all),
                    }
                    Ok(false)
                }
                Answer::Populated => Ok(true),
                other => Err(other),
            })?;
        }
        Ok(())
    }
}
