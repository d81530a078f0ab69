//! A tool as a driver of a study: its runs, their windows, and the figures made from them.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use tare_lab::PartError;
use tare_lab::doubt::Doubt;
use tare_lab::driver::{Driver, Edge, Pacing, SliceLoad, SliceOrder, TargetId, first_address};
use tare_lab::study::WorkloadSpec;

use super::follower::{Follower, LIMITS, TimeLimits, WindowEdge};
use super::process::RunningTool;
use super::{
    ClientPlacement, EdgeSource, ObservedTool, SliceRun, Tool, ToolCommand, ToolError, ToolOptions,
    ToolReport, ToolTarget, WindowCut, finished,
};
use crate::agent::protocol::LoaderPart;
use crate::targets::Targets;
use crate::{Client, placement, sharing};
use tare_load::histogram;

/// Time between two attempts to connect to a system that starts.
const RETRY: Duration = Duration::from_millis(20);
/// Time limit for the answer to a greeting.
const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// The share of the window that the tool's own time must reach; tools round it.
const COVERED_PERCENT: u128 = 90;
/// The most runs of a tool that takes a number of operations, until that number covers the window.
const ATTEMPTS_MAX: u32 = 6;
/// The most starts of a tool that ends before its load has started. A Java tool gives the system 5
/// s to answer its first requests, which is short while both still compile their code on few CPUs.
const STARTS_MAX: u32 = 3;
/// How many times the needed operations such a tool gets, so that it does not end in the window.
pub(crate) const SPARE: f64 = 1.5;
/// The most of that, after slices in which they ran out.
const SPARE_MAX: f64 = 4.0;
/// The first guess of a rate, in operations/s. A low guess costs one short run more.
const FIRST_RATE_PER_S: f64 = 5_000.0;
/// How much greater the next guess is if the tool ended before it printed a rate.
const FASTER_UNSEEN: f64 = 8.0;
/// The first guess of a tool's start time: that of a Java tool on a busy host.
const FIRST_START: Duration = Duration::from_secs(10);

/// A tool as a driver.
#[derive(Debug)]
pub(crate) struct ToolDriver<T> {
    tool: T,
    pub(super) placement: ClientPlacement,
    targets: Targets<OpenSystem>,
    /// The last throughput of each workload, in operations/s.
    rates: HashMap<(TargetId, String), f64>,
    /// The longest time from a start to the first figures.
    start: Option<Duration>,
    pub(super) limits: TimeLimits,
}

/// A system that is open.
#[derive(Debug)]
struct OpenSystem {
    address: SocketAddr,
    /// The workloads whose rows are there.
    workloads: Vec<WorkloadSpec>,
    /// The names of their rows, where those have one (`ToolOptions::rows`).
    rows: HashSet<String>,
}

/// The load of a slice that is to be started.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadStart<'a> {
    pub(super) target: TargetId,
    pub(super) order: &'a SliceOrder,
    pub(super) part: LoaderPart,
    /// Time between the lead-in and the window.
    pub(super) wait: Duration,
}

/// A tool that loads the system, after its lead-in.
#[derive(Debug)]
pub(super) struct LoadingTool<T> {
    pub(super) follower: Follower<T>,
    /// When the lead-in was over, and the tool's time of that if it was at a line.
    at: Instant,
    tool_s: Option<f64>,
    asked: Option<u64>,
}

/// A run of a tool up to the end of the window.
#[derive(Debug)]
pub(super) struct MeasuredRun {
    running: RunningTool,
    begin: WindowEdge,
    end: WindowEdge,
    pub(super) busiest_thread_ns: u64,
    asked: Option<u64>,
}

impl<T: Tool> LoadingTool<T> {
    /// Measures the window between two edges that have passed.
    pub(super) fn measured(self, begin: WindowEdge, end: WindowEdge) -> MeasuredRun {
        let Self { follower: Follower { running, .. }, asked, .. } = self;
        let busiest_thread_ns = running.busiest_thread_ns(&begin.threads, &end.threads);
        MeasuredRun { running, begin, end, busiest_thread_ns, asked }
    }
}

impl<T: Tool> ToolDriver<T> {
    pub(crate) fn new(tool: T, client: &Client<'_>) -> Self {
        let placement = ClientPlacement {
            cpus: client.cpus.clone(),
            namespace: client.namespace.map(Path::to_path_buf),
            run: Some(client.run.to_string()),
            scratch: client.scratch.join("load-tool"),
            keeper: None,
        };
        Self::placed(tool, placement)
    }

    pub(super) fn placed(tool: T, placement: ClientPlacement) -> Self {
        let (targets, rates) = (Targets::default(), HashMap::new());
        Self { tool, placement, targets, rates, start: None, limits: LIMITS }
    }

    /// Returns the expected start time, with a reserve.
    fn start(&self) -> Duration {
        self.start.map_or(FIRST_START, |start| start.mul_f64(1.5) + Duration::from_secs(1))
    }

    pub(super) fn slice(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        edge: &mut dyn FnMut(Edge),
    ) -> Result<SliceLoad, ToolError> {
        let start = LoadStart { target, order, part: LoaderPart::ALONE, wait: Duration::ZERO };
        let loading = self.begin_load(start, &mut || {})?;
        let measured = window(loading, order, edge)?;
        self.finish(measured, start)
    }

    /// Starts the tool and follows it over the lead-in. Where it takes a number of operations, that
    /// is raised until it covers the window. Calls `attempt` before each start.
    pub(super) fn begin_load(
        &mut self,
        load: LoadStart<'_>,
        attempt: &mut dyn FnMut(),
    ) -> Result<LoadingTool<T>, ToolError> {
        let LoadStart { target, order, part, wait } = load;
        let address = self.targets.get(target)?.address;
        let options = T::Options::read(&order.workload)?;
        let key = (target, order.workload.name.clone());
        let mut rate_per_s = self.rates.get(&key).copied().unwrap_or(FIRST_RATE_PER_S);
        let whole = SliceOrder { lead_in: order.lead_in + wait, ..order.clone() };
        let mut starts = 0;
        for _ in 0..ATTEMPTS_MAX {
            attempt();
            let seen = ObservedTool { rate_per_s, start: self.start() };
            let scratch = &self.placement.scratch;
            let run = SliceRun { address, order: &whole, seen, scratch, part };
            let ask = self.tool.command(&options, &run);
            let begun = match self.lead_in(&ask, order.lead_in, wait + order.window) {
                Err(ToolError::Unbegun { .. }) if starts + 1 < STARTS_MAX => {
                    starts += 1;
                    continue;
                }
                other => other?,
            };
            match begun {
                Ok(loading) => {
                    // `finish` replaces it. If the operations run out in the window, that is not
                    // reached, and the next slice gets more of them; within bounds, because it is
                    // not reached after other failures either, and the tool has to end in time.
                    let seen_per_s = loading.follower.rate_per_s();
                    let more_per_s = seen_per_s.max(rate_per_s) * SPARE;
                    self.rates.insert(key, more_per_s.min(seen_per_s * SPARE_MAX));
                    return Ok(loading);
                }
                Err(seen_per_s) => {
                    // A tool that ended before its first line has no rate yet.
                    let faster = if seen_per_s > 0.0 { 2.0 } else { FASTER_UNSEEN };
                    rate_per_s = seen_per_s.max(rate_per_s * faster);
                }
            }
        }
        // The next slice goes on from there.
        self.rates.insert(key, rate_per_s);
        Err(ToolError::Unsteady { tool: T::INFO.name })
    }

    /// Starts the tool and follows it over the lead-in. If its number of operations does not last
    /// for `ahead` from there, returns its rate.
    fn lead_in(
        &mut self,
        ask: &ToolCommand,
        lead_in: Duration,
        ahead: Duration,
    ) -> Result<Result<LoadingTool<T>, f64>, ToolError> {
        let started = Instant::now();
        let running = RunningTool::start(&self.placement, &ask.words)?;
        let mut follower = Follower::new(self.tool.clone(), running, self.limits);
        let begin = match T::INFO.edges {
            EdgeSource::AtLines => follower.lead_in(lead_in, ask.operations.is_some())?,
            EdgeSource::ByTheClock => Some((follower.begin(lead_in)?, None)),
        };
        let start = follower.first().map(|first| first.duration_since(started));
        self.start = self.start.max(start);
        let Some((at, tool_s)) = begin else { return Ok(Err(follower.rate_per_s())) };
        if let Some(all) = ask.operations {
            let rate = follower.rate_per_s();
            let needed = follower.operations + rate * ahead.as_secs_f64() * SPARE.sqrt();
            if needed > all as f64 {
                return Ok(Err(rate));
            }
        }
        Ok(Ok(LoadingTool { follower, at, tool_s, asked: ask.operations }))
    }

    /// Waits for the tool to end, computes the slice's figures from its report, and keeps its rate.
    pub(super) fn finish(
        &mut self,
        measured: MeasuredRun,
        LoadStart { target, order, wait, .. }: LoadStart<'_>,
    ) -> Result<SliceLoad, ToolError> {
        let load = self.figures(measured, order, self.limits.end + wait)?;
        let seconds = Duration::from_nanos(load.window_ns).as_secs_f64();
        let key = (target, order.workload.name.clone());
        self.rates.insert(key, load.operations as f64 / seconds.max(1e-3));
        Ok(load)
    }

    /// Waits for the tool to end and computes the slice's figures from its report.
    fn figures(
        &self,
        measured: MeasuredRun,
        order: &SliceOrder,
        limit: Duration,
    ) -> Result<SliceLoad, ToolError> {
        let MeasuredRun { mut running, begin, end, busiest_thread_ns, asked } = measured;
        let (tool, options) = (T::INFO.name, T::Options::read(&order.workload)?);
        let limit = limit + order.window + order.lead_in;
        let ended = running.end(Instant::now() + limit);
        finished(tool, &running, ended, limit)?;
        let cut =
            WindowCut { unix_s: (begin.unix_s, end.unix_s), tool_s: begin.tool_s.zip(end.tool_s) };
        let scratch = &self.placement.scratch;
        let report = ToolReport { printed: &running.printed, scratch, order, cut: &cut };
        let outcome = self.tool.read(&options, &report)?;
        if let Some(asked) = asked.filter(|asked| outcome.total() < *asked) {
            let (done, said) = (outcome.total(), running.printed.said());
            return Err(ToolError::Short { tool, asked, done, said });
        }
        let window = end.at.duration_since(begin.at);
        if u128::from(outcome.elapsed_ns) < window.as_nanos() * COVERED_PERCENT / 100 {
            let (ran_ms, window_ms) = (outcome.elapsed_ns / 1_000_000, window.as_millis());
            let said = running.printed.said();
            return Err(ToolError::Uncovered { tool, ran_ms, window_ms, said });
        }
        let operations = match T::INFO.edges {
            EdgeSource::AtLines => rounded(end.operations - begin.operations),
            EdgeSource::ByTheClock => outcome.total(),
        };
        let (response, unsent) = match order.pacing {
            Pacing::Closed => (None, 0),
            Pacing::Open { rate_per_s } => {
                let due = rounded(rate_per_s * window.as_secs_f64());
                (outcome.response, due.saturating_sub(operations))
            }
        };
        let encoded = |histogram: Option<histogram::Histogram>| {
            histogram.map(|histogram| histogram::encode(&histogram)).unwrap_or_default()
        };
        Ok(SliceLoad {
            window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            operations,
            errors: outcome.errors,
            unsent,
            sent_late: None,
            client_cpu_ns: end.cpu_ns.saturating_sub(begin.cpu_ns),
            busiest_thread_ns,
            response: encoded(response),
            service: encoded(outcome.service),
            loaders: Vec::new(),
            instances: Vec::new(),
            paths: Vec::new(),
            seconds: Vec::new(),
        })
    }
}

/// Follows a tool over the window.
fn window<T: Tool>(
    mut loading: LoadingTool<T>,
    order: &SliceOrder,
    edge: &mut dyn FnMut(Edge),
) -> Result<MeasuredRun, ToolError> {
    let LoadingTool { follower, at, tool_s, .. } = &mut loading;
    let begin = follower.mark(*at, *tool_s);
    edge(Edge::Begin);
    let (at, tool_s) = match T::INFO.edges {
        EdgeSource::AtLines => follower.until(*at + order.window)?,
        EdgeSource::ByTheClock => {
            follower.sleep(order.window.saturating_sub(at.elapsed()))?;
            (Instant::now(), None)
        }
    };
    let end = follower.mark(at, tool_s);
    edge(Edge::End);
    Ok(loading.measured(begin, end))
}

/// Waits until a system answers.
fn answers(address: SocketAddr, greeting: &[u8], limit: Duration) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    let once = || {
        let mut stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(GREETING_LIMIT))?;
        stream.write_all(greeting)?;
        if greeting.is_empty() { Ok(()) } else { stream.read_exact(&mut [0]) }
    };
    loop {
        match once() {
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => std::thread::sleep(RETRY),
            Ok(()) => return Ok(()),
        }
    }
}

/// Rounds a computed count.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
pub(super) fn rounded(operations: f64) -> u64 {
    operations.round().max(0.0) as u64
}

impl<T: Tool> ToolDriver<T> {
    /// Takes note that the rows of a workload are there.
    pub(super) fn note_rows(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
    ) -> Result<(), ToolError> {
        let options = T::Options::read(workload)?;
        let open = self.targets.get_mut(target)?;
        open.rows.extend(options.rows());
        open.workloads.push(workload.clone());
        Ok(())
    }

    fn write_rows(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), ToolError> {
        let options = T::Options::read(workload)?;
        let OpenSystem { address, rows, .. } = self.targets.get(target)?;
        if options.rows().is_none_or(|name| !rows.contains(&name)) {
            let (tool, address, placement) = (T::INFO.name, *address, &self.placement);
            let mut at = ToolTarget { tool, address, placement, all: 1, progress };
            self.tool.populate(&mut at, &options)?;
        }
        self.note_rows(target, workload)
    }
}

impl<T: Tool> Driver for ToolDriver<T> {
    fn open(
        &mut self,
        addresses: &[SocketAddr],
        deadline: Duration,
    ) -> Result<TargetId, PartError> {
        // In a cluster, tools learn the other addresses from the first one.
        let address = first_address(addresses)?;
        let greeting = T::INFO.greeting;
        placement::within(self.placement.namespace.as_deref(), || {
            answers(address, greeting, deadline)
        })
        .map_err(ToolError::from)?
        .map_err(|source| ToolError::Connect { address, source })?;
        Ok(self.targets.add(OpenSystem { address, workloads: Vec::new(), rows: HashSet::new() }))
    }

    fn populate(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
        _seed: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), PartError> {
        Ok(self.write_rows(target, workload, progress)?)
    }

    fn assume_rows(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
        _seed: u64,
    ) -> Result<(), PartError> {
        Ok(self.note_rows(target, workload)?)
    }

    fn run(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        edge: &mut dyn FnMut(Edge),
    ) -> Result<SliceLoad, PartError> {
        Ok(self.slice(target, order, edge)?)
    }

    fn doubts(&mut self, target: TargetId) -> Vec<Doubt> {
        let Ok(open) = self.targets.get(target) else { return Vec::new() };
        sharing::distinct(open.workloads.iter().flat_map(super::doubts::<T>))
    }

    fn close(&mut self, target: TargetId) -> Result<(), PartError> {
        self.targets.remove(target)?;
        Ok(())
    }

    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.targets.clear();
        Ok(())
    }
}
