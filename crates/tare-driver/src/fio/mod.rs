//! fio as a driver: the distribution's own program, run inside the environment on the files of its
//! data directory.
//!
//! Method: `server`, Tare's program, runs inside with fio as its child. Each slice is a job whose
//! ramp time is the lead-in and which would run forever. The edges of the window are read while it
//! runs; then fio is interrupted and prints its json+.
//!
//! What the figures are:
//! - Operations of the window are fio's own rate (its count over its own time, which starts after
//!   the ramp and ends with the interrupt, some ms after the window) times the length of the
//!   window; its count where that time was shorter than the window, because nothing was completed.
//! - In a closed loop, service time is fio's `lat`: from when it created the request to its
//!   completion.
//! - At the fixed rate fio starts an operation late when none of its depth is free, and counts from
//!   that start: `lat` is service time again, and there is no response time. (`io_submit_mode =
//!   offload` would count from when it was due, but fio 3.33 hangs with it at its end.)
//! - The client has no CPU time of its own: fio's is the system's.
//!
//! Limits: a rate is divided among jobs and directions in whole operations/s.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tare_lab::PartError;
use tare_lab::doubt::Doubt;
use tare_lab::driver::{Driver, Edge, Pacing, SliceLoad, SliceOrder, TargetId, first_address};
use tare_lab::study::WorkloadSpec;
use tare_stats::steady_state::{SteadyWindow, WINDOW_ROUNDS};

use super::option_reader::OptionError;
use super::printed::on_one_line;
use super::scale;
use super::targets::{NoTarget, Targets};
use super::{DriverInfo, PlacementError, Program, Saturation};
use tare_load::histogram;

mod connection;
mod job;
mod options;
mod output;
mod protocol;
mod server;

use connection::Connection;
use options::{Options, Steady};
pub use output::OutputError;
use output::Totals;
use protocol::{Answer, Order};
pub use server::{ServerError, serve};

pub(super) const INFO: DriverInfo = DriverInfo {
    name: "fio",
    help: "fio, run inside the environment on its data directory (system fio)",
    speaks: &["fio"],
    options: options::OPTIONS,
    load_options: &[],
    program: Some(Program { name: "fio", home: None, get: "apt-get install fio" }),
    check: |study, _| {
        let read = |workload| Options::read(workload).map(drop);
        Ok(study.workloads.iter().try_for_each(read)?)
    },
    saturation: Saturation::Not(
        "its load is iodepth times numjobs, and files are laid out for numjobs; name them, or find the \
         knee of a disk with tare disk",
    ),
    scale: scale::unscaled,
    make: |client| Ok(Box::new(Fio::new(client.namespace))),
    sharing: None,
};

/// What a workload does with the storage before it is measured, after each start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditioning {
    /// Bytes that are written in order.
    pub fill_bytes: u64,
    /// The least and the most time for which the workload then runs until it is steady.
    pub steady_least: Duration,
    pub steady_most: Duration,
    /// Whether it writes in that time.
    pub steady_writes: bool,
}

/// Returns the conditioning that a workload of fio asks for; none for options that are not valid.
pub fn conditioning(workload: &WorkloadSpec) -> Conditioning {
    let Ok(options) = Options::read(workload) else { return Conditioning::default() };
    let fill_bytes = options.numjobs.saturating_mul(options.size) * options.precondition;
    let (least_s, most_s) = match &options.steady {
        None => (0, 0),
        Some(Steady::Criterion { duration_s, limit_s, .. }) => (*duration_s.min(limit_s), *limit_s),
        Some(Steady::Snia { round_s, rounds_max }) => {
            (round_s * WINDOW_ROUNDS as u64, round_s * rounds_max)
        }
    };
    Conditioning {
        fill_bytes,
        steady_least: Duration::from_secs(least_s),
        steady_most: Duration::from_secs(most_s),
        steady_writes: !matches!(options.rw.as_str(), "read" | "randread"),
    }
}

/// Time limit for fio to start its threads, beyond the lead-in. An emulated guest takes seconds.
const START_LIMIT: Duration = Duration::from_secs(90);
/// Time limit for fio to end and print after an interrupt.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for filling files: it takes as long as the disk takes, with signs of life.
const FILL_LIMIT: Duration = Duration::from_secs(6 * 3600);
/// The share of the window that fio must have measured; with less it had not started.
const COVERED_SHARE: f64 = 0.1;

/// Why fio could not run or gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum FioError {
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error(transparent)]
    Place(#[from] PlacementError),
    #[error("cannot connect to {address}")]
    Connect { address: SocketAddr, source: std::io::Error },
    #[error("{address} takes connections, but there is no fio server behind it")]
    NoServer { address: SocketAddr },
    #[error("cannot talk to the fio server")]
    Talk { source: std::io::Error },
    #[error("the fio server inside has ended")]
    Gone,
    #[error("the fio server inside has sent nothing for {} s", .limit.as_secs())]
    Silent { limit: Duration },
    #[error("fio did not start or end in time")]
    Late,
    #[error("{error}")]
    Refused { error: String },
    #[error("fio ended before the window did ({status}): {said}")]
    Early { status: String, said: String },
    #[error("fio failed with {error}: {said}")]
    Failed { error: std::io::Error, said: String },
    #[error("cannot use what fio printed: {said}")]
    Output { said: String, source: OutputError },
    #[error("fio measured {runtime_ms} ms of a window of {window_ms} ms")]
    Uncovered { runtime_ms: u64, window_ms: u128 },
    #[error(
        "fio cannot be held to {rate_per_s:.0} operations/s: each of its jobs and directions needs a \
         whole one; take fewer jobs or a higher rate"
    )]
    Rate { rate_per_s: f64 },
    #[error(transparent)]
    NoTarget(#[from] NoTarget),
}

/// The driver: connections to the fio servers inside.
#[derive(Debug)]
pub struct Fio {
    namespace: Option<PathBuf>,
    targets: Targets<Target>,
}

#[derive(Debug)]
struct Target {
    connection: Connection,
    /// Filled files: the number of jobs and the bytes of each.
    filled: Vec<(u64, u64)>,
    doubts: Vec<Doubt>,
}

impl Fio {
    /// Returns a driver that connects from the network namespace at `namespace`.
    pub fn new(namespace: Option<&Path>) -> Self {
        Self { namespace: namespace.map(Path::to_path_buf), targets: Targets::default() }
    }
}

impl Target {
    /// Runs a job that ends by itself.
    fn complete(
        &mut self,
        job: String,
        options: &Options,
        limit: Duration,
    ) -> Result<Totals, FioError> {
        let Options { numjobs: jobs, size, .. } = *options;
        self.connection.say(&Order::Run { job, jobs, size })?;
        let end = Instant::now() + limit;
        loop {
            if let Answer::Done { output, stderr, .. } = self.connection.next_answer(end)? {
                return totals(&output, &stderr);
            }
        }
    }

    /// Runs the workload until it is steady, if its options ask for that. Returns the criterion and
    /// the time in seconds if it did not become steady.
    fn make_steady(
        &mut self,
        options: &Options,
        seed: u64,
    ) -> Result<Option<(String, u64)>, FioError> {
        let limit = |seconds| START_LIMIT + Duration::from_secs(seconds) + END_LIMIT;
        match &options.steady {
            None => Ok(None),
            Some(Steady::Criterion { criterion, duration_s, limit_s }) => {
                let asked = (criterion.as_str(), *duration_s, *limit_s);
                let job = job::conditioning(options, asked, seed);
                let totals = self.complete(job, options, limit(*limit_s))?;
                let steady = totals.steady == Some(true);
                Ok((!steady).then(|| (criterion.clone(), *limit_s)))
            }
            Some(Steady::Snia { round_s, rounds_max }) => {
                let mut rates = Vec::new();
                for round in 0..*rounds_max {
                    // Each round asks for other places of the disk.
                    let job = job::round(options, *round_s, seed.wrapping_add(round << 33));
                    rates.push(self.complete(job, options, limit(*round_s))?.rate_per_s);
                    if SteadyWindow::of(&rates).is_some_and(SteadyWindow::is_steady) {
                        return Ok(None);
                    }
                }
                let last = SteadyWindow::of(&rates).map(|window| window.to_string());
                Ok(Some((last.unwrap_or("no operations".into()), round_s * rounds_max)))
            }
        }
    }

    /// Runs a job until the window is over. Returns what fio counted and the length of the window.
    fn window(
        &mut self,
        job: String,
        options: &Options,
        order: &SliceOrder,
        edge: &mut dyn FnMut(Edge),
    ) -> Result<(Totals, Duration), FioError> {
        let Options { numjobs: jobs, size, .. } = *options;
        self.connection.say(&Order::Run { job, jobs, size })?;
        let early = |answer| match answer {
            Answer::Done { output, stderr, status } => {
                // fio's own error explains more than that it ended.
                totals(&output, &stderr)
                    .map_or_else(|error| error, |_| FioError::Early { status, said: said(&stderr) })
            }
            _ => FioError::Gone,
        };
        match self.connection.next_answer(Instant::now() + START_LIMIT)? {
            Answer::Running => {}
            answer => return Err(early(answer)),
        }
        self.sleep(order.lead_in).map_err(early_or(early))?;
        let begun = Instant::now();
        edge(Edge::Begin);
        self.sleep(order.window.saturating_sub(begun.elapsed())).map_err(early_or(early))?;
        let window = begun.elapsed();
        edge(Edge::End);
        self.connection.say(&Order::Stop)?;
        let end = Instant::now() + END_LIMIT;
        loop {
            if let Answer::Done { output, stderr, .. } = self.connection.next_answer(end)? {
                return totals(&output, &stderr).map(|totals| (totals, window));
            }
        }
    }

    /// Waits while the job runs. An answer in that time is an error: the job has ended.
    fn sleep(&mut self, time: Duration) -> Result<(), Interrupted> {
        match self.connection.next_answer(Instant::now() + time) {
            Err(FioError::Late) => Ok(()),
            Ok(answer) => Err(Interrupted::Answer(answer)),
            Err(error) => Err(Interrupted::Error(error)),
        }
    }
}

enum Interrupted {
    Answer(Answer),
    Error(FioError),
}

fn early_or(early: impl Fn(Answer) -> FioError) -> impl Fn(Interrupted) -> FioError {
    move |interrupted| match interrupted {
        Interrupted::Answer(answer) => early(answer),
        Interrupted::Error(error) => error,
    }
}

/// Reads an output. An error of a job is an error.
fn totals(output: &str, stderr: &str) -> Result<Totals, FioError> {
    let totals =
        output::read(output).map_err(|source| FioError::Output { said: said(stderr), source })?;
    match totals.error {
        None => Ok(totals),
        Some(errno) => {
            let error = std::io::Error::from_raw_os_error(errno);
            Err(FioError::Failed { error, said: said(stderr) })
        }
    }
}

/// Returns what fio wrote to standard error.
fn said(stderr: &str) -> String {
    on_one_line(stderr).unwrap_or_else(|| "it printed nothing more".into())
}

/// Computes a slice's figures from fio's counts.
fn slice(totals: Totals, window: Duration, pacing: Pacing) -> SliceLoad {
    let seconds = window.as_secs_f64();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
    let whole = |operations: f64| operations.round().max(0.0) as u64;
    // The ramp ends with the first completion after its time. If that came late, none came before
    // it in the window.
    let measured = Duration::from_millis(totals.runtime_ms).as_secs_f64();
    let covered = if seconds > 0.0 { (measured / seconds).min(1.0) } else { 1.0 };
    let operations = whole(totals.rate_per_s * seconds * covered);
    let unsent = match pacing {
        Pacing::Closed => 0,
        Pacing::Open { rate_per_s } => whole(rate_per_s * seconds).saturating_sub(operations),
    };
    let short = ("short I/O".to_string(), totals.short);
    SliceLoad {
        window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
        operations,
        errors: if totals.short > 0 { vec![short] } else { Vec::new() },
        unsent,
        sent_late: None,
        client_cpu_ns: 0,
        busiest_thread_ns: 0,
        response: Vec::new(),
        service: histogram::encode(&totals.latency),
        loaders: Vec::new(),
        instances: Vec::new(),
        paths: Vec::new(),
        seconds: Vec::new(),
    }
}

impl Driver for Fio {
    fn open(
        &mut self,
        addresses: &[SocketAddr],
        deadline: Duration,
    ) -> Result<TargetId, PartError> {
        let address = first_address(addresses)?;
        let (connection, _) = Connection::open(address, self.namespace.as_deref(), deadline)?;
        Ok(self.targets.add(Target { connection, filled: Vec::new(), doubts: Vec::new() }))
    }

    fn populate(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
        seed: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), PartError> {
        let options = Options::read(workload)?;
        let target = self.targets.get_mut(target)?;
        let (jobs, size) = (options.numjobs, options.size);
        let bytes = jobs * size;
        if !target.filled.iter().any(|(j, s)| *j >= jobs && *s >= size) {
            progress(0, bytes);
            target.complete(job::fill(&options), &options, FILL_LIMIT)?;
            target.filled.push((jobs, size));
        }
        progress(bytes, bytes);
        if options.precondition > 0 {
            target.complete(job::precondition(&options), &options, FILL_LIMIT)?;
        }
        if let Some((criterion, waited_s)) = target.make_steady(&options, seed)? {
            let workload = workload.name.clone();
            target.doubts.push(Doubt::NotSteady { workload, criterion, waited_s });
        }
        if options.writes_at_random() && options.steady.is_none() {
            target.doubts.push(Doubt::NotMadeSteady { workload: workload.name.clone() });
        }
        Ok(())
    }

    fn run(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        edge: &mut dyn FnMut(Edge),
    ) -> Result<SliceLoad, PartError> {
        let options = Options::read(&order.workload)?;
        let target = self.targets.get_mut(target)?;
        let job = job::measured(&options, order.pacing, order.lead_in, order.seed);
        let job = match (job, order.pacing) {
            (Some(job), _) => job,
            (None, Pacing::Open { rate_per_s }) => return Err(FioError::Rate { rate_per_s }.into()),
            (None, Pacing::Closed) => return Err(FioError::Rate { rate_per_s: 0.0 }.into()),
        };
        let (totals, window) = target.window(job, &options, order, edge)?;
        let runtime_ms = totals.runtime_ms;
        if (runtime_ms as f64) < window.as_millis() as f64 * COVERED_SHARE {
            let window_ms = window.as_millis();
            return Err(FioError::Uncovered { runtime_ms, window_ms }.into());
        }
        Ok(slice(totals, window, order.pacing))
    }

    fn doubts(&mut self, target: TargetId) -> Vec<Doubt> {
        let target = self.targets.get_mut(target);
        target.map(|target| std::mem::take(&mut target.doubts)).unwrap_or_default()
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
