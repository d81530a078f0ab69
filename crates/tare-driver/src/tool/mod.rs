//! Load tools of other projects as drivers: one process of the tool for each slice, where the
//! client runs. `driver` runs it for the harness, `served` in the agent of a loader.
//!
//! Method: the tool is started with a length that covers the lead-in, the window and a tail. The
//! edges of the window are read while it loads. If it prints a line each interval, they are at such
//! lines (the next one after the lead-in, the nearest to the window's end). If it logs each
//! operation, they are set by the clock, and its log is cut. Then the tool ends by itself, and its
//! report is read.
//!
//! Exit codes and silence are not trusted: each wait has a deadline, the work done is compared with
//! the work asked for, and the printed figures with the logged ones.
//!
//! Limits: probes of the client's processes see none, because those live for one slice. Errors are
//! those of the tool's whole run.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use tare_lab::PartError;
use tare_lab::doubt::Doubt;
use tare_lab::driver::{Driver, Pacing, SliceOrder};
use tare_lab::study::{Study, WorkloadSpec};

use super::agent::protocol::LoaderPart;
use super::agent::{AgentContext, AgentDriver};
use super::option_reader::{OptionError, OptionReader};
use super::sharing::{self, DividedKind, DividedOption, Needs, Sharing};
use super::{Client, placement};

mod driver;
mod error;
mod follower;
pub(super) mod outcome;
mod process;
pub(super) mod scratch;
mod served;
#[cfg(test)]
pub(super) mod tests;

pub(super) use driver::{SPARE, ToolDriver};
pub use error::ToolError;
pub use outcome::OutputError;
pub(super) use outcome::{Outcome, WindowCut};
use process::RunningTool;
pub use process::become_tool;
pub(super) use process::{ClientPlacement, CommandLine, ToolOutput};
use served::ServedTool;

/// What a line reports of the interval that ends with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Progress {
    /// The tool's own time, in seconds.
    pub(super) tool_s: Option<f64>,
    pub(super) count: Count,
}

/// Operations as a line reports them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Count {
    /// Since the start of the tool.
    Total(u64),
    /// In the interval.
    Interval(u64),
    /// Per second of the interval.
    Rate(f64),
}

/// How the edges of the window are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EdgeSource {
    /// They are at the lines that it prints.
    AtLines,
    /// They are set by the clock, because its report can be cut anywhere.
    ByTheClock,
}

/// The command for one run of a tool.
#[derive(Clone, Debug)]
pub(super) struct ToolCommand {
    pub(super) words: CommandLine,
    /// The operations after which it ends, if it does not end by time.
    pub(super) operations: Option<u64>,
}

/// What is known of a tool and its system from earlier runs; a guess at first.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObservedTool {
    /// The workload's operations/s.
    pub(super) rate_per_s: f64,
    /// The longest start time so far.
    pub(super) start: Duration,
}

/// The constant properties of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToolInfo {
    /// The name in a study.
    pub(super) name: &'static str,
    pub(super) edges: EdgeSource,
    /// Bytes that are sent to a starting system; it is ready once it sends anything back. Empty:
    /// accepting a connection is enough.
    pub(super) greeting: &'static [u8],
    /// Whether its latencies can be cut to the window.
    pub(super) cuts_latency: bool,
    /// The options that are divided among loaders.
    pub(super) divided: &'static [DividedOption],
}

/// An option that is divided among loaders, and its value where a workload does not name it. Each
/// of them needs at least one of what it numbers.
pub(super) const fn each(name: &'static str, default: u32) -> DividedOption {
    DividedOption { name, default, kind: DividedKind::Each }
}

/// As [`each`], for what the load consists of: a loader without any has no part of it.
pub(super) const fn load(name: &'static str, default: u32) -> DividedOption {
    DividedOption { name, default, kind: DividedKind::Load }
}

/// A slice that a tool is to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceRun<'a> {
    pub(super) address: SocketAddr,
    pub(super) order: &'a SliceOrder,
    pub(super) seen: ObservedTool,
    /// An empty directory for what the tool writes, in which it runs.
    pub(super) scratch: &'a Path,
    /// Which of several loaders it is.
    pub(super) part: LoaderPart,
}

impl SliceRun<'_> {
    /// Adds the tool's option for a fixed rate in operations/s, if the load has one.
    pub(super) fn with_rate(
        &self,
        words: CommandLine,
        option: impl FnOnce(f64) -> String,
    ) -> CommandLine {
        match self.order.pacing {
            Pacing::Closed => words,
            Pacing::Open { rate_per_s } => words.args(&option(rate_per_s)),
        }
    }
}

/// The output of a finished run, and the slice that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToolReport<'a> {
    pub(super) printed: &'a ToolOutput,
    /// The directory that the tool wrote to.
    pub(super) scratch: &'a Path,
    pub(super) order: &'a SliceOrder,
    pub(super) cut: &'a WindowCut,
}

impl ToolReport<'_> {
    /// Returns whether the load had a fixed rate.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.order.pacing, Pacing::Open { .. })
    }
}

/// The options of a workload for one tool.
pub(super) trait ToolOptions: Sized {
    /// Reads and checks the options.
    fn read(workload: &WorkloadSpec) -> Result<Self, OptionError>;

    /// Returns the program, as its path or its name on PATH.
    fn program(&self) -> &str;

    /// Returns the files that it needs besides, and the error for each that is missing.
    fn files(&self, _words: OptionReader<'_>) -> Vec<(PathBuf, OptionError)> {
        Vec::new()
    }

    /// Returns a name for the rows, if they are the same for all workloads with this name and are
    /// written once.
    fn rows(&self) -> Option<String> {
        None
    }
}

/// What distinguishes one tool from the others.
pub(super) trait Tool: Clone + fmt::Debug {
    const INFO: ToolInfo;

    /// The options that a workload gives it.
    type Options: ToolOptions;

    /// Refuses a study that it cannot run.
    fn check(study: &Study) -> Result<(), ToolError> {
        let options = |workload| Self::Options::read(workload).map(drop);
        Ok(study.workloads.iter().try_for_each(options)?)
    }

    /// Returns whether its latency at a fixed rate counts from when an operation was due.
    fn counts_from_due(_options: &Self::Options) -> bool {
        true
    }

    /// Returns the command that runs a slice.
    fn command(&self, options: &Self::Options, run: &SliceRun<'_>) -> ToolCommand;

    /// Creates schema and rows.
    fn populate(&self, at: &mut ToolTarget<'_>, options: &Self::Options) -> Result<(), ToolError>;

    /// Reads a line of its output.
    fn progress(&self, line: &str) -> Option<Progress>;

    /// Returns whether a line says that its load is over, though others may follow.
    fn is_last(&self, _line: &str) -> bool {
        false
    }

    /// Reads its report.
    fn read(&self, options: &Self::Options, report: &ToolReport<'_>) -> Result<Outcome, ToolError>;
}

/// `DriverInfo::check` of a tool.
pub(super) fn check<T: Tool>(study: &Study, _speaks: &str) -> Result<(), PartError> {
    Ok(T::check(study)?)
}

/// `DriverInfo::make` of a tool.
pub(super) fn make<T: Tool + Default + Send + 'static>(
    client: &Client<'_>,
) -> Result<Box<dyn Driver + Send>, PartError> {
    Ok(Box::new(ToolDriver::new(T::default(), client)))
}

/// `DriverInfo::sharing` of a tool.
pub(super) const fn sharing<T: Tool + Default + Send + 'static>() -> Option<Sharing> {
    Some(Sharing {
        divide: divide::<T>,
        each_writes_rows: false,
        doubts: doubts::<T>,
        needs: needs::<T>,
        serve: serve::<T>,
        options: T::INFO.divided,
    })
}

fn divide<T: Tool>(workload: &WorkloadSpec, count: u32) -> Vec<Option<WorkloadSpec>> {
    sharing::by_options(T::INFO.divided, workload, count)
}

/// Returns the doubts about all figures of a workload.
fn doubts<T: Tool>(workload: &WorkloadSpec) -> Vec<Doubt> {
    let driver = || T::INFO.name.to_string();
    let mut doubts = Vec::new();
    let is_rated = workload.latency_share > 0.0 || workload.rate_per_s.is_some();
    let omits = T::Options::read(workload).is_ok_and(|options| !T::counts_from_due(&options));
    if is_rated && omits {
        doubts.push(Doubt::CoordinatedOmission { driver: driver() });
    }
    if !T::INFO.cuts_latency {
        doubts.push(Doubt::LatencyBeyondWindow { driver: driver() });
    }
    doubts
}

fn needs<T: Tool>(workload: &WorkloadSpec) -> Result<Needs, OptionError> {
    let options = T::Options::read(workload)?;
    let files = options.files(OptionReader { tool: T::INFO.name, workload });
    Ok(Needs { program: Some(options.program().into()), files })
}

fn serve<T: Tool + Default + Send + 'static>(
    context: AgentContext,
) -> Result<Box<dyn AgentDriver>, PartError> {
    Ok(Box::new(ServedTool::start(T::default(), context)?))
}

/// A system to write rows to, and where the client that loads it runs.
pub(super) struct ToolTarget<'s> {
    pub(super) tool: &'static str,
    pub(super) address: SocketAddr,
    pub(super) placement: &'s ClientPlacement,
    /// How many rows are to be written, once that is known.
    pub(super) all: u64,
    /// Reports how many rows are written, of how many.
    pub(super) progress: &'s mut dyn FnMut(u64, u64),
}

impl ToolTarget<'_> {
    /// Runs a tool to its end. A bad exit code is a failure; a good one proves nothing.
    pub(super) fn complete(
        &mut self,
        words: &CommandLine,
        limit: Duration,
    ) -> Result<ToolOutput, ToolError> {
        let mut running = RunningTool::start(self.placement, words)?;
        let deadline = Instant::now() + limit;
        let end = loop {
            match running.end(deadline.min(Instant::now() + SIGN_OF_LIFE)) {
                Ok(None) if Instant::now() < deadline => (self.progress)(0, self.all),
                end => break end,
            }
        };
        finished(self.tool, &running, end, limit)?;
        Ok(std::mem::take(&mut running.printed))
    }

    /// Writes rows by a run of the tool itself, whose report must count as many as were requested.
    /// `read` reads the report from the tool's output and its directory.
    pub(super) fn fill(
        &mut self,
        words: &CommandLine,
        asked: u64,
        read: impl FnOnce(&ToolOutput, &Path) -> Result<Outcome, ToolError>,
    ) -> Result<(), ToolError> {
        self.all = asked;
        (self.progress)(0, asked);
        let printed = self.complete(words, FILL_LIMIT)?;
        let done = read(&printed, &self.placement.scratch)?.total();
        if done != asked {
            let (tool, said) = (self.tool, printed.said());
            return Err(ToolError::Short { tool, asked, done, said });
        }
        (self.progress)(asked, asked);
        Ok(())
    }

    /// Runs `work` where the client runs.
    pub(super) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, ToolError> {
        Ok(placement::within(self.placement.namespace.as_deref(), work)?)
    }
}

/// How often a run that writes rows shows that it goes on.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
/// How long a tool may take to write the rows of a workload.
pub(super) const FILL_LIMIT: Duration = Duration::from_secs(4 * 3600);
/// How late a tool may print its lines.
const LATE: Duration = Duration::from_millis(1_500);
/// Windows of this length and more are cut by whole seconds.
const LONG: Duration = Duration::from_secs(5);

/// Returns how often a tool prints a line, if that can be set.
pub(super) fn interval(order: &SliceOrder) -> Duration {
    Duration::from_millis(if order.window < LONG { 200 } else { 1_000 })
}

/// Returns how many seconds a tool must run that prints a line each `interval`: up to one interval
/// is lost at each edge, and one at its start.
pub(super) fn seconds(order: &SliceOrder, interval: Duration) -> f64 {
    (order.lead_in + order.window + 4 * interval + LATE).as_secs_f64().ceil()
}

/// Refuses fixed rates for a tool that cannot hold one.
pub(super) fn closed_loop(tool: &'static str, workloads: &[WorkloadSpec]) -> Result<(), ToolError> {
    let rated = workloads.iter().find(|one| one.latency_share > 0.0 || one.rate_per_s.is_some());
    let refuse = |one: &WorkloadSpec| ToolError::ClosedLoop { tool, workload: one.name.clone() };
    rated.map_or(Ok(()), |one| Err(refuse(one)))
}

/// Refuses workloads that want the tool's tables in different sizes: it fills them once. `sizes`
/// returns the options that say how large they are.
pub(super) fn same_tables<O: ToolOptions, const N: usize>(
    tool: &'static str,
    workloads: &[WorkloadSpec],
    sizes: impl Fn(&O) -> [(&'static str, u64); N],
) -> Result<(), ToolError> {
    let mut first = None;
    for workload in workloads {
        let own = sizes(&O::read(workload)?);
        let wanted = *first.get_or_insert(own);
        if let Some(((option, _), _)) = own.iter().zip(&wanted).find(|(own, wanted)| own != wanted)
        {
            let words = OptionReader { tool, workload };
            let expected = "that of the other workloads: its tables are the same";
            return Err(words.bad(option, expected).into());
        }
    }
    Ok(())
}

/// Reads a file that a tool should have written.
pub(super) fn written(tool: &'static str, path: &Path) -> Result<String, ToolError> {
    std::fs::read_to_string(path).map_err(|source| ToolError::Read {
        tool,
        path: path.to_path_buf(),
        source,
    })
}

/// Makes an error of unusable output.
pub(super) fn unusable(
    tool: &'static str,
    printed: &ToolOutput,
) -> impl FnOnce(OutputError) -> ToolError {
    let said = printed.said();
    move |source| ToolError::Output { tool, said, source }
}

/// An OPTIONS request of CQL version 4, which every server answers before anything else.
/// <https://github.com/apache/cassandra/blob/trunk/doc/native_protocol_v4.spec>, sections 2 and
/// 4.1.3.
pub(super) const CQL_OPTIONS: &[u8] = &[4, 0, 0, 0, 5, 0, 0, 0, 0];

/// Refuses a tool that does not end, or that fails.
fn finished(
    tool: &'static str,
    running: &RunningTool,
    ended: io::Result<Option<ExitStatus>>,
    limit: Duration,
) -> Result<(), ToolError> {
    let said = running.printed.said();
    match ended {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(ToolError::Failed { tool, status: status.to_string(), said }),
        Ok(None) => Err(ToolError::Late { tool, limit, said }),
        Err(error) => Err(ToolError::Failed { tool, status: error.to_string(), said }),
    }
}
