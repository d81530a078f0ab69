//! Measures one slice: the load runs between two edges, and the accounts are read at both.

use std::time::Duration;

use super::member::{Member, Running};
use super::objective;
use super::{
    Campaign, CampaignError, Clock, EMPTY_LOAD, EMPTY_SLICES_MAX, Event, FAILURES_MAX,
    READ_BACK_ROUNDS, error_line,
};
use crate::PartError;
use crate::background::{self, BackgroundWork};
use crate::doubt::Doubt;
use crate::driver::{Edge, InstanceLoad, Pacing, SliceLoad, SliceOrder};
use crate::environment::{NodeUsage, Processes, Usage};
use crate::judge;
use crate::loader;
use crate::own_view;
use crate::path::{self, PathSample};
use crate::probe::{self, Counter, Probe, Scope, names};
use crate::record::{Phase, Slice};
use crate::schedule::{self, Cell, ScheduledSlice};
use crate::seconds::{self, DiskSecond, Seconds};
use crate::system::{BusyTime, LoopTimes, OwnCounts, OwnLatency, System};

/// The CPU accounts at an edge.
#[derive(Debug)]
struct AccountSample {
    /// When they were read, on the campaign's clock.
    at: Duration,
    usage: Usage,
    own: Option<BusyTime>,
    counts: Option<OwnCounts>,
    /// CPU time of each of several instances on one host, in ns, without the idle polling that it
    /// reports.
    instances: Vec<u64>,
}

/// The result of a measured slice.
#[derive(Debug)]
pub(super) struct Measured {
    load: SliceLoad,
    begin: AccountSample,
    end: AccountSample,
    counters: Vec<Counter>,
    probe_doubts: Vec<Doubt>,
    /// What the event loops of a polling system counted before the slice and after it.
    loops: Option<(LoopTimes, LoopTimes)>,
    /// The latency inside a system that was asked for it, during the whole slice.
    own_latency: Option<OwnLatency>,
    /// Whether the load went on around both readings of the accounts.
    under_load: bool,
    /// The disks in each second of a long window.
    disk_seconds: Vec<DiskSecond>,
}

/// Why a slice has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum SliceError {
    #[error("{reason}")]
    NotUp { reason: String },
    #[error("the fixed rate is not known")]
    NoRate,
    #[error("no operation ended in the window")]
    NoOperation,
    #[error("the driver reported no start and end of the window")]
    NoEdges,
    #[error("cannot thaw it")]
    Thaw(#[source] PartError),
    #[error("cannot freeze it")]
    Freeze(#[source] PartError),
    #[error("cannot load it")]
    Load(#[source] PartError),
    #[error("cannot read its CPU time")]
    Usage(#[source] PartError),
}

/// Reads the accounts, which must be up to date.
fn read(
    running: &mut Running,
    system: &dyn System,
    clock: &dyn Clock,
) -> Result<AccountSample, PartError> {
    let began = clock.now();
    let usage = running.environment.usage()?;
    // Other hosts read their accounts about in the middle of the exchange.
    let at = match usage.nodes.is_empty() {
        true => began,
        false => began + (clock.now() - began) / 2,
    };
    let mut own = Some(BusyTime::default());
    let mut counts = Some(OwnCounts::default());
    let mut add = |one: Option<BusyTime>, counted: Option<&OwnCounts>| {
        counts = counts.take().zip(counted).map(|(sum, one)| sum.plus(one));
        own = own.zip(one).map(|(sum, one)| BusyTime {
            busy_ns: sum.busy_ns + one.busy_ns,
            idle_poll_ns: sum.idle_poll_ns + one.idle_poll_ns,
        });
    };
    for node in &usage.nodes {
        add(node.busy, node.counts.as_ref());
    }
    let mut instances = usage.instance_cpu_ns.clone();
    for (number, at) in running.endpoints.iter().filter(|_| usage.nodes.is_empty()).enumerate() {
        let Some(data) = &at.data else {
            add(None, None);
            continue;
        };
        let busy = system.busy_time(data)?;
        if let Some((instance, busy)) = instances.get_mut(number).zip(busy) {
            // Its own account counts time, also while another instance has the CPU.
            *instance = instance.saturating_sub(busy.idle_poll_ns);
        }
        add(busy, system.own_counts(data)?.as_ref());
    }
    Ok(AccountSample { at, usage, own, counts, instances })
}

/// Reads the background work of all instances.
fn background(running: &Running, system: &dyn System) -> Result<Vec<BackgroundWork>, PartError> {
    let mut sum = Vec::new();
    for at in &running.endpoints {
        background::add(&mut sum, system.background(at)?);
    }
    Ok(sum)
}

/// Reads what the event loops of all instances have counted; `None` if the system does not poll.
fn loop_times(running: &Running, system: &dyn System) -> Result<Option<LoopTimes>, PartError> {
    let mut sum = Some(LoopTimes::default());
    for at in &running.endpoints {
        sum = sum.zip(system.loop_times(at)?).map(|(sum, one)| sum.plus(one));
    }
    Ok(sum)
}

/// Asks all instances for the latency inside them; `None` if the system does not tell it.
fn own_latency(running: &Running, system: &dyn System) -> Result<Option<OwnLatency>, PartError> {
    let mut sum = Some(OwnLatency::default());
    for at in &running.endpoints {
        sum = sum.zip(system.own_latency(at)?).map(|(sum, one)| sum.plus(&one));
    }
    Ok(sum)
}

/// Returns the processes of a slice in this environment.
pub(super) fn scope(running: &mut Running, client: Vec<u32>, window: Duration) -> Scope {
    let Processes { system, layer } = running.environment.processes();
    let data = running.endpoints.iter().filter_map(|at| at.data.clone()).collect();
    Scope { system, layer, client, data, by_second: window >= seconds::WINDOW_MIN }
}

/// Returns the counters of a probe, or the doubt that it failed.
fn collect(probe: &mut dyn Probe, begun: &Result<(), PartError>) -> Result<Vec<Counter>, Doubt> {
    let failed = |error: &PartError, probe: &dyn Probe| Doubt::ProbeFailed {
        probe: probe.name().to_string(),
        reason: error_line(&**error),
    };
    match begun {
        Err(error) => Err(failed(error, probe)),
        Ok(()) => probe.end().map_err(|error| failed(&error, probe)),
    }
}

impl Campaign<'_, '_> {
    /// Runs one slice of a round, writes it, and notifies the observer. A failure voids the slice.
    pub(super) fn run_slice(
        &mut self,
        round: u32,
        scheduled: &ScheduledSlice,
        freezes: bool,
    ) -> Result<(), CampaignError> {
        let ScheduledSlice { position, environment: index, cell } = *scheduled;
        let workload = &self.study.workloads[cell.workload];
        let rate_per_s = self.rate(index, cell);
        self.announce_slice(index, cell);
        let started_unix_ms = self.parts.clock.unix_ms();
        let seed = schedule::load_seed(self.seed, round, cell);
        let order = match (cell.phase, rate_per_s) {
            (Phase::Latency | Phase::Traced | Phase::Slo, None) => Err(SliceError::NoRate),
            (_, rate) => Ok(self.order(cell.workload, rate, seed, self.window(cell.phase))),
        };
        let not_dropped = self.drop_cached_pages(index, cell.workload);
        let measured = order.and_then(|order| self.measure(index, &order, freezes, &mut |_| {}));
        let mut slice = Slice {
            round,
            position,
            environment: self.members[index].name().to_string(),
            workload: workload.name.clone(),
            started_unix_ms,
            rate_per_s,
            start: self.members[index].start,
            ..empty(cell.phase)
        };
        let mut doubts = Vec::from_iter(not_dropped);
        let mut failure = None;
        let mut failures_max = FAILURES_MAX;
        match measured {
            Ok(mut measured) => {
                if measured.load.operations == 0 {
                    failure = Some(error_line(&SliceError::NoOperation));
                    failures_max = empty_slices_max(self.window(cell.phase));
                }
                doubts.extend(measured.probe_doubts.iter().cloned());
                let paths = std::mem::take(&mut measured.load.paths);
                slice.counters = path::counters(&paths);
                slice.counters.extend(objective::counter(cell.phase, workload.slo, &measured.load));
                fill(&mut slice, measured);
                self.learn_paths(index, &paths)?;
                let plan = &self.parts.plan;
                let pids = self.parts.driver.pids();
                let loaders = self.parts.driver.loaders();
                let spec = &self.members[index].record.spec;
                let layers = &self.members[index].record.layers;
                let found = judge::found_cpus(spec, layers).map(|cpus| cpus.len() as f64);
                let most = found.unwrap_or_else(|| self.system_cpus_in(spec));
                let system_cpus = judge::cpus_left(&slice, spec, most);
                let context = judge::SliceContext {
                    plan,
                    client_in_harness: pids.contains(&std::process::id()),
                    client: judge::ClientCpus::of(&slice, plan, &loaders),
                    system_cpus,
                    load_suffices: self.workloads[cell.workload].load.suffices(),
                    reads_from_disk: self.workloads[cell.workload].reads_from_disk,
                    host_cpus: self.parts.hosts.as_ref().map(|hosts| hosts.cpus),
                };
                doubts.extend(judge::slice(&slice, context));
                doubts.extend(background::doubts(&slice.counters, slice.window_ns));
                doubts.extend(path::filled(&slice.counters));
                let (window_ns, is_open) = (slice.window_ns, slice.rate_per_s.is_some());
                doubts.extend(loader::doubts(&loaders, &slice.loaders, window_ns, is_open));
                slice.void = loader::void(&loaders, &slice.loaders, window_ns);
                if cell.phase == Phase::Slo {
                    // The search goes beyond what the system can do on purpose.
                    doubts.retain(|doubt| !matches!(doubt, Doubt::RateNotReached { .. }));
                }
                let idle = judge::idle_neighbour(&slice, &self.members[index].record.spec);
                slice.void = slice.void.or(idle.as_ref().map(Doubt::text));
                doubts.extend(idle);
            }
            Err(error) => {
                self.check_hosts()?;
                // An environment that cannot be frozen would disturb all others from now on.
                failures_max =
                    if matches!(error, SliceError::Freeze(_)) { 1 } else { failures_max };
                failure = Some(error_line(&error));
            }
        }
        let gone = self.check_attached(index);
        let gone_text = gone.as_ref().err().map(|error| error_line(error));
        slice.void = gone_text.or(failure.clone()).or(slice.void);
        // A failed slice is void anyway, so its layers are not read back.
        let due = round.is_multiple_of(READ_BACK_ROUNDS) || self.members[index].suspect;
        if freezes && round > 0 && due && failure.is_none() {
            let lost = self.recheck_layers(index);
            slice.void = slice.void.or_else(|| lost.first().map(Doubt::text));
            doubts.extend(lost);
        }
        slice.id = self.writer().put_slice(&slice, &doubts)?;
        self.observer.event(&Event::SliceDone { slice: &slice, doubts: &doubts });
        gone?;
        self.check_driver()?;
        self.count_failure(index, failure.as_deref(), failures_max)
    }

    /// Drops what the page cache has of the data of a system, for a workload whose reads are to
    /// come from disk. Returns a doubt if that failed. The pages of attached systems stay.
    fn drop_cached_pages(&mut self, index: usize, workload: usize) -> Option<Doubt> {
        let is_cold = self.workloads[workload].reads_from_disk.is_some_and(|share| share > 0.0);
        let member = &self.members[index];
        let running = member.running.as_ref();
        let running = running.filter(|_| is_cold && member.record.spec.attach.is_none())?;
        let folders = running.endpoints.iter().filter_map(|at| at.data.as_deref());
        let mut drop_pages = folders.map(|folder| (self.parts.drop_cached_pages)(folder));
        let error = drop_pages.find_map(Result::err)?;
        Some(Doubt::ProbeFailed { probe: "page cache".into(), reason: error_line(&*error) })
    }

    /// Writes the network paths that a slice has shown for the first time, and what weakens figures
    /// of them.
    fn learn_paths(&mut self, index: usize, seen: &[PathSample]) -> Result<(), CampaignError> {
        let loaders = self.parts.driver.loaders();
        let here = path::is_reached_here(self.members[index].record.spec.network, &loaders);
        let mut paths = self.writer().record().paths.clone();
        let before = path::doubts(&paths, &loaders);
        if !path::learn(&mut paths, seen, self.parts.device_towards.as_deref(), here) {
            return Ok(());
        }
        self.writer().put_paths(&paths)?;
        for doubt in path::doubts(&paths, &loaders) {
            if !before.contains(&doubt) {
                self.put_doubt(None, doubt)?;
            }
        }
        Ok(())
    }

    /// Ends the campaign if the driver cannot go on.
    pub(super) fn check_driver(&self) -> Result<(), CampaignError> {
        let reason = self.parts.driver.given_up();
        reason.map_or(Ok(()), |reason| Err(CampaignError::DriverLost { reason }))
    }

    /// Reads the layers back, and returns a doubt for each one that is lost. A failed read-back is
    /// no doubt, because the slices of such an environment fail.
    fn recheck_layers(&mut self, index: usize) -> Vec<Doubt> {
        let member = &mut self.members[index];
        let Some(running) = &mut member.running else { return Vec::new() };
        if running.environment.thaw().is_err() {
            return Vec::new();
        }
        let layers = running.environment.read_back();
        // A failure to freeze shows in the next slice of this environment.
        running.environment.freeze().ok();
        let Ok(layers) = layers else { return Vec::new() };
        let lost: Vec<Doubt> = judge::not_in_force(&layers).collect();
        member.suspect = !lost.is_empty();
        if member.suspect {
            member.record.layers = layers;
        }
        lost
    }

    pub(super) fn order(
        &self,
        workload: usize,
        rate_per_s: Option<f64>,
        seed: u64,
        window: Duration,
    ) -> SliceOrder {
        SliceOrder {
            workload: self.workloads[workload].clone(),
            pacing: rate_per_s.map_or(Pacing::Closed, |rate_per_s| Pacing::Open { rate_per_s }),
            lead_in: self.study.schedule.lead_in,
            window,
            seed,
        }
    }

    /// Announces the next slice to the observer.
    pub(super) fn announce_slice(&mut self, index: usize, cell: Cell) {
        self.observer.event(&Event::SliceStarting {
            environment: self.members[index].name(),
            workload: &self.study.workloads[cell.workload].name,
            phase: cell.phase,
        });
    }

    /// Measures one closed-loop slice without recording it, and returns its operations/s.
    pub(super) fn capacity(
        &mut self,
        index: usize,
        order: &SliceOrder,
        freezes: bool,
    ) -> Result<f64, String> {
        let measured =
            self.measure(index, order, freezes, &mut |_| {}).map_err(|error| error_line(&error))?;
        let SliceLoad { operations, window_ns, .. } = measured.load;
        if operations == 0 || window_ns == 0 {
            return Err(error_line(&SliceError::NoOperation));
        }
        Ok(operations as f64 * 1e9 / window_ns as f64)
    }

    /// Loads an environment between two edges. `watch` runs before the accounts are read at the
    /// first edge, and after they are read at the last one.
    pub(super) fn measure(
        &mut self,
        index: usize,
        order: &SliceOrder,
        freezes: bool,
        watch: &mut dyn FnMut(Edge),
    ) -> Result<Measured, SliceError> {
        let Member { record, running, start_error, .. } = &mut self.members[index];
        let Some(running) = running else {
            let reason = start_error.clone().unwrap_or_else(|| "it is not up".into());
            return Err(SliceError::NotUp { reason });
        };
        let scope = scope(running, self.parts.driver.pids(), order.window);
        let system = self.parts.system_of(&record.spec);
        let probes = &mut self.parts.probes;
        // Before the thaw, so that a slice of a system with many threads, whose files take longer
        // to open, does not begin with more idle time.
        let mut begun: Vec<Result<(), PartError>> =
            probes.iter_mut().map(|probe| probe.prepare(&scope)).collect();
        if freezes {
            running.environment.thaw().map_err(SliceError::Thaw)?;
        }
        let work_before = background(running, system);
        // Last before the load and first after it, so that both have little else than the load.
        let latency_before = own_latency(running, system);
        let loops_before = loop_times(running, system);
        let (clock, refresh) = (self.parts.clock, &mut self.parts.refresh_accounts);
        let mut collected = Vec::new();
        let (mut begin, mut end) = (None, None);
        let target = running.target;
        let loaded = self.parts.driver.run(target, order, &mut |edge| match edge {
            // Accounts come first at both edges: a probe takes longer at the end than at the
            // beginning, and the longer the more threads the system has. Probes keep their order,
            // so that each spans the same time.
            Edge::Begin => {
                watch(edge);
                refresh();
                begin = Some(read(running, system, clock));
                for (probe, begun) in probes.iter_mut().zip(&mut begun) {
                    if begun.is_ok() {
                        *begun = probe.begin();
                    }
                }
            }
            Edge::End => {
                refresh();
                end = Some(read(running, system, clock));
                collected = probes
                    .iter_mut()
                    .zip(&begun)
                    .map(|(probe, begun)| collect(&mut **probe, begun))
                    .collect();
                watch(edge);
            }
        });
        let loops = loops_before.and_then(|before| Ok((before, loop_times(running, system)?)));
        let latency = latency_before.and_then(|before| {
            let after = own_latency(running, system)?;
            Ok(before.zip(after).map(|(before, after)| after.since(&before)))
        });
        let work = work_before.and_then(|before| {
            let after = background(running, system)?;
            Ok(background::counters(&before, &after))
        });
        let frozen = if freezes { running.environment.freeze() } else { Ok(()) };
        let load = loaded.map_err(SliceError::Load)?;
        frozen.map_err(SliceError::Freeze)?;
        let (begin, end) = begin.zip(end).ok_or(SliceError::NoEdges)?;
        let (mut counters, mut probe_doubts) = (Vec::new(), Vec::new());
        let failed = |probe: &str, error: PartError| {
            let reason = error_line(&*error);
            Doubt::ProbeFailed { probe: probe.into(), reason }
        };
        let work = work.map_err(|error| failed("background work", error));
        for one in collected.into_iter().chain([work]) {
            match one {
                Ok(values) => counters.extend(values),
                Err(doubt) => probe_doubts.push(doubt),
            }
        }
        let own_latency = latency.unwrap_or_else(|error| {
            probe_doubts.push(failed("latency inside the system", error));
            None
        });
        let loops = loops.unwrap_or_else(|error| {
            probe_doubts.push(Doubt::NoPollingAccount { reason: error_line(&*error) });
            (None, None)
        });
        Ok(Measured {
            load,
            begin: begin.map_err(SliceError::Usage)?,
            end: end.map_err(SliceError::Usage)?,
            counters,
            probe_doubts,
            loops: loops.0.zip(loops.1),
            own_latency,
            under_load: self.parts.driver.loads_at_edges(),
            disk_seconds: probes.iter_mut().flat_map(|probe| probe.disk_seconds()).collect(),
        })
    }
}

/// Returns how many slices in a row without an operation end an environment.
fn empty_slices_max(window: Duration) -> u32 {
    let slices = EMPTY_LOAD.as_nanos().div_ceil(window.as_nanos().max(1));
    u32::try_from(slices).unwrap_or(u32::MAX).clamp(FAILURES_MAX, EMPTY_SLICES_MAX)
}

/// Returns a slice without figures.
pub(crate) fn empty(phase: Phase) -> Slice {
    Slice {
        id: 0,
        round: 0,
        position: 0,
        environment: String::new(),
        workload: String::new(),
        phase,
        started_unix_ms: 0,
        window_ns: 0,
        operations: 0,
        errors: Vec::new(),
        unsent: 0,
        rate_per_s: None,
        system_cpu_ns: 0,
        layer_cpu_ns: Vec::new(),
        busy_time: None,
        client_cpu_ns: 0,
        throttled_ns: None,
        response: Vec::new(),
        service: Vec::new(),
        counters: Vec::new(),
        void: None,
        start: 0,
        account_ns: None,
        server: Vec::new(),
        loaders: Vec::new(),
        seconds: Seconds::default(),
    }
}

/// Returns the figures of a measurement as a slice without a name.
pub(super) fn accounts(measured: Measured) -> Slice {
    let mut slice = empty(Phase::Latency);
    fill(&mut slice, measured);
    slice
}

/// Stores a measurement in a slice, as differences between the edges.
fn fill(slice: &mut Slice, measured: Measured) {
    let Measured { load, begin, end, counters, under_load, loops, own_latency, .. } = measured;
    slice.seconds = Seconds { load: load.seconds, disks: measured.disk_seconds };
    let before = |part: &str| {
        let parts = begin.usage.layer_cpu_ns.iter();
        parts.filter(|(name, _)| name == part).map(|(_, ns)| *ns).sum::<u64>()
    };
    slice.system_cpu_ns = end.usage.system_cpu_ns.saturating_sub(begin.usage.system_cpu_ns);
    slice.layer_cpu_ns = end
        .usage
        .layer_cpu_ns
        .iter()
        .map(|(part, ns)| (part.clone(), ns.saturating_sub(before(part))))
        .collect();
    slice.throttled_ns =
        end.usage.throttled_ns.map(|ns| ns.saturating_sub(begin.usage.throttled_ns.unwrap_or(0)));
    slice.busy_time = begin.own.zip(end.own).map(|(begin, end)| BusyTime {
        busy_ns: end.busy_ns.saturating_sub(begin.busy_ns),
        idle_poll_ns: end.idle_poll_ns.saturating_sub(begin.idle_poll_ns),
    });
    slice.counters.extend(node_counters(&begin.usage.nodes, &end.usage.nodes));
    slice.counters.extend(neighbour_counters(&begin.usage, &end.usage));
    if let Some((before, after)) = begin.counts.as_ref().zip(end.counts.as_ref()) {
        own_view::fill(slice, &after.since(before));
    } else if let Some(latency) = own_latency {
        own_view::fill_latency(slice, &latency);
    }
    slice.window_ns = load.window_ns;
    slice.account_ns = u64::try_from(end.at.saturating_sub(begin.at).as_nanos()).ok();
    if under_load {
        convert_to_window(slice);
    }
    // The CPU time of an instance that polls is not its work.
    let (usage_before, usage_after) = match loops {
        None => (&begin.instances[..], &end.instances[..]),
        Some(_) => (&[][..], &[][..]),
    };
    slice.counters.extend(instance_counters(&load.instances, usage_before, usage_after));
    slice.operations = load.operations;
    if let Some((before, after)) = loops {
        fill_loops(slice, &before, &after);
    }
    slice.errors = load.errors;
    slice.unsent = load.unsent;
    if let Some(late) = load.sent_late.filter(|_| slice.rate_per_s.is_some()) {
        slice.counters.push(Counter { name: names::CLIENT_SENT_LATE.into(), value: late as f64 });
    }
    slice.client_cpu_ns = load.client_cpu_ns;
    if load.busiest_thread_ns > 0 && load.window_ns > 0 {
        let share = load.busiest_thread_ns as f64 / load.window_ns as f64;
        let name = names::busiest_thread_share(names::CLIENT);
        slice.counters.push(Counter { name, value: share.min(1.0) });
    }
    slice.response = load.response;
    slice.service = load.service;
    slice.loaders = load.loaders;
    for counter in counters {
        match probe::layer_part(&counter.name) {
            Some(part) => slice.layer_cpu_ns.push((part, whole_ns(counter.value))),
            None => slice.counters.push(counter),
        }
    }
}

/// Stores the busy time and the idle polling of a polling system, and the busy time of each of its
/// event loops as a counter.
fn fill_loops(slice: &mut Slice, before: &LoopTimes, after: &LoopTimes) {
    let found = after.in_window(before, slice.operations, slice.window_ns);
    let Some(loops) = found else { return };
    let busy_ns = whole_ns(loops.iter().map(|one| one.busy_ns).sum());
    let idle: Option<f64> = loops.iter().map(|one| one.idle_poll_ns).sum();
    let idle_poll_ns = idle.map_or(slice.system_cpu_ns.saturating_sub(busy_ns), whole_ns);
    slice.busy_time = Some(BusyTime { busy_ns, idle_poll_ns });
    let counter = |(number, value)| Counter { name: names::loop_busy_ns(number), value };
    slice.counters.extend(loops.iter().map(|one| one.busy_ns).enumerate().map(counter));
}

/// Returns the accounts of each host of a system as counters.
fn node_counters(begin: &[NodeUsage], end: &[NodeUsage]) -> Vec<Counter> {
    let mut counters = Vec::new();
    for (number, (before, after)) in begin.iter().zip(end).enumerate() {
        let cpu_ns = after.system_cpu_ns.saturating_sub(before.system_cpu_ns);
        // A polling system uses its CPUs whether or not it works.
        let busy = before.busy.zip(after.busy);
        let busy_ns = busy.map(|(before, after)| after.busy_ns.saturating_sub(before.busy_ns));
        let ns = busy_ns.unwrap_or(cpu_ns);
        counters.push(Counter { name: names::node_cpu_ns(number), value: ns as f64 });
        let late = before.late_ns.max(after.late_ns);
        counters.push(Counter { name: names::node_late_ns(number), value: late as f64 });
    }
    counters
}

/// Returns what each of several instances did, and its CPU time, as counters. The CPU time is that
/// between the two readings of the accounts.
fn instance_counters(loads: &[InstanceLoad], begin: &[u64], end: &[u64]) -> Vec<Counter> {
    let mut counters = Vec::new();
    for (number, load) in loads.iter().enumerate() {
        let mut add = |figure: &str, value: f64| {
            counters.push(Counter { name: names::of_instance(number, figure), value });
        };
        add(names::INSTANCE_OPERATIONS, load.operations as f64);
        if let Some((begin, end)) = begin.get(number).zip(end.get(number)) {
            add(names::INSTANCE_CPU, end.saturating_sub(*begin) as f64);
        }
        for (figure, ns) in
            names::INSTANCE_LATENCIES.into_iter().zip(load.latency_ns.into_iter().flatten())
        {
            add(figure, ns as f64);
        }
    }
    counters
}

/// Returns the CPU time of the neighbours as counters: of all, and of each if there are several.
fn neighbour_counters(begin: &Usage, end: &Usage) -> Vec<Counter> {
    let pairs = begin.neighbour_cpu_ns.iter().zip(&end.neighbour_cpu_ns);
    let each: Vec<f64> =
        pairs.map(|(before, after)| after.saturating_sub(*before) as f64).collect();
    if each.is_empty() {
        return Vec::new();
    }
    let sum = Counter { name: names::NEIGHBOUR_CPU_NS.into(), value: each.iter().sum() };
    let several = if each.len() > 1 { each } else { Vec::new() };
    let one = |(number, value)| Counter { name: names::neighbour_cpu_ns(number), value };
    std::iter::once(sum).chain(several.into_iter().enumerate().map(one)).collect()
}

/// Converts CPU accounts, which span a little more or less time than the window, to the window.
/// Without this a slice of 25 ms whose end is noticed 1 ms late shows 4 % too much CPU time per
/// operation. The load is the same just outside the window, so CPU time is proportional to time.
fn convert_to_window(slice: &mut Slice) {
    let (Some(span), window) = (slice.account_ns, slice.window_ns) else { return };
    if span == 0 || window == 0 {
        return;
    }
    let convert = |ns: &mut u64| {
        let product = u128::from(*ns) * u128::from(window);
        *ns = u64::try_from(product / u128::from(span)).unwrap_or(*ns);
    };
    convert(&mut slice.system_cpu_ns);
    slice.layer_cpu_ns.iter_mut().for_each(|(_, ns)| convert(ns));
    if let Some(time) = &mut slice.busy_time {
        convert(&mut time.busy_ns);
        convert(&mut time.idle_poll_ns);
    }
    slice.throttled_ns.iter_mut().for_each(convert);
}

/// A counter in whole ns.
pub(super) fn whole_ns(value: f64) -> u64 {
    Duration::from_secs_f64(value.max(0.0) / 1e9).as_nanos().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(load: SliceLoad, begin: AccountSample, end: AccountSample) -> Measured {
        Measured {
            load,
            begin,
            end,
            counters: Vec::new(),
            probe_doubts: Vec::new(),
            loops: None,
            own_latency: None,
            under_load: true,
            disk_seconds: Vec::new(),
        }
    }

    #[test]
    fn probe_layer_cpu_joins_layer() {
        let mut slice = empty(Phase::Latency);
        let at = Duration::ZERO;
        let reading = || AccountSample {
            at,
            usage: Usage::default(),
            own: None,
            counts: None,
            instances: Vec::new(),
        };
        let counter = |name: &str, value| Counter { name: name.into(), value };
        let counters =
            vec![counter("layer_cpu_nvme_target_ns", 1234.0), counter("disk_reads", 3.0)];
        let measured = measured(SliceLoad::default(), reading(), reading());
        fill(&mut slice, Measured { counters, ..measured });
        assert_eq!(slice.layer_cpu_ns, [("nvme target".to_string(), 1234)]);
        assert_eq!(slice.counters, [counter("disk_reads", 3.0)]);
    }

    #[test]
    fn neighbours_have_their_own_counters() {
        let usage = |ns: &[u64]| Usage { neighbour_cpu_ns: ns.to_vec(), ..Usage::default() };
        let found = |begin: &[u64], end: &[u64]| -> Vec<(String, f64)> {
            let counters = neighbour_counters(&usage(begin), &usage(end));
            counters.into_iter().map(|one| (one.name, one.value)).collect()
        };
        assert!(found(&[], &[]).is_empty());
        assert_eq!(found(&[5], &[7]), [("neighbour_cpu_ns".to_string(), 2.0)]);
        let two =
            [("neighbour_cpu_ns", 5.0), ("neighbour_1_cpu_ns", 2.0), ("neighbour_2_cpu_ns", 3.0)];
        assert_eq!(found(&[5, 1], &[7, 4]), two.map(|(name, ns)| (name.to_string(), ns)));
    }

    #[test]
    fn accounts_span_the_window() {
        let sample = |ms, ns| AccountSample {
            at: Duration::from_millis(ms),
            usage: Usage {
                system_cpu_ns: ns,
                layer_cpu_ns: vec![("userland proxy".into(), ns / 2)],
                ..Usage::default()
            },
            own: Some(BusyTime { busy_ns: ns / 4, idle_poll_ns: 0 }),
            counts: None,
            instances: Vec::new(),
        };
        let check = |under_load, system_cpu_ns| {
            let mut slice = empty(Phase::Capacity);
            let load = SliceLoad { window_ns: 25_000_000, ..SliceLoad::default() };
            let measured = measured(load, sample(100, 0), sample(126, 26_000_000));
            fill(&mut slice, Measured { under_load, ..measured });
            assert_eq!(slice.system_cpu_ns, system_cpu_ns);
            assert_eq!(slice.layer_cpu_ns[0].1, system_cpu_ns / 2);
            assert_eq!(slice.busy_time.unwrap().busy_ns, system_cpu_ns / 4);
            assert_eq!(slice.account_ns, Some(26_000_000));
        };
        check(true, 25_000_000);
        // Another program's load may have ended: its accounts stay as they were read.
        check(false, 26_000_000);
    }

    #[test]
    fn event_loops_give_the_busy_time_of_a_polling_system() {
        use crate::system::LoopTime;

        let read = |busy_ns: [u64; 2], requests, awake_ns| LoopTimes {
            loops: busy_ns.map(|busy_ns| LoopTime { busy_ns, awake_ns, asleep_ns: 0 }).into(),
            requests,
        };
        let of = |busy_ns, requests| read(busy_ns, requests, 20_000);
        // The CPU time of the slice without idle polling.
        let check = |after: LoopTimes, cpu_ns, expect: Option<u64>| {
            let mut slice = Slice {
                operations: 50,
                window_ns: 5_000,
                system_cpu_ns: cpu_ns,
                ..empty(Phase::Latency)
            };
            fill_loops(&mut slice, &read([1_000, 2_000], 10, 0), &after);
            let found = slice.busy_time.map(|_| slice.system_cpu_ns - slice.idle_poll_cpu_ns());
            assert_eq!(found, expect);
            let loops = slice.counters.iter().filter(|one| names::is_loop_busy(&one.name)).count();
            assert_eq!(loops, if expect.is_some() { 2 } else { 0 });
        };
        check(of([5_000, 4_000], 110), 10_000, Some(3_000));
        // Others had the CPUs for half of the time.
        check(of([5_000, 4_000], 110), 5_000, Some(1_500));
        // Without an account of sleep the clock counts, up to the CPU time.
        check(read([5_000, 4_000], 110, 0), 10_000, Some(3_000));
        check(read([5_000, 4_000], 110, 0), 2_000, Some(2_000));
        check(of([5_000, 4_000], 10), 10_000, None);
    }
}
