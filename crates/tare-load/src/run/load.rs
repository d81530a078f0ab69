//! One load from configuration to report, with an event for every second.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use tare_std::error_line;

use tare_std::cpus::CpuSet;

use crate::access::Access;
use crate::error::LoadError;
use crate::pacing::Pace;
use crate::report::histogram::{Histogram, Quantiles};
use crate::report::log::Log;
use crate::report::stats::Stats;
use crate::report::{LoadReport, ReportBuilder, Verified, cpu_share, ratio};
use crate::run::engine::{Engine, LoadObserver, LoadOrder, LoadSpec, Target};
use crate::run::search_run::SearchRun;

/// What to load, how, and for how long.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    pub access: Access,
    /// The CPUs of the load threads, one thread on each.
    pub cpus: CpuSet,
    pub spec: LoadSpec,
    pub pace: Pace,
    /// Write every row once before the load.
    pub populate: bool,
    /// How long the load runs before the measured window.
    pub lead_in: Duration,
    /// Every operation derives from (seed, index), every row from (seed, key).
    pub seed: u64,
    /// Compare every row that is read with what was written. The rows must have been written with
    /// the same seed.
    pub verify: bool,
    /// The file for an HdrHistogram log with one interval per second.
    pub hdr_file: Option<PathBuf>,
    /// How long to wait for the first answer of the server.
    pub connect_deadline: Duration,
}

/// What happens while a load runs.
#[derive(Debug)]
pub enum LoadEvent<'a> {
    /// Rows of a table have been written.
    Populating { table: &'a str, done: u64, all: u64 },
    /// A second of the window has passed.
    Interval(Interval<'a>),
    /// The search for the highest rate has tried a rate.
    Tried(&'a SearchRun),
}

/// The figures of a part of the window.
#[derive(Debug)]
pub struct Interval<'a> {
    /// When it ended, counted from the beginning of the window.
    pub end: Duration,
    pub throughput_per_s: f64,
    /// True if the latencies are response times; false if they are service times.
    pub is_open: bool,
    pub latency: Quantiles,
    /// The whole distribution of these latencies.
    pub histogram: &'a Histogram,
    pub failed: u64,
    pub client_cpu_us_per_operation: Option<f64>,
    pub client_cpu_share: f64,
}

/// Runs a load to its end or until `stop`, and reports on it.
///
/// # Errors
/// If the load could not be made. Failed operations, a server that goes away for a while, and a log
/// that cannot be finished are part of the report.
pub fn run(
    config: &LoadConfig,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(&LoadEvent<'_>),
) -> Result<LoadReport, LoadError> {
    let log = config.hdr_file.as_deref().map(Log::create).transpose()?;
    Session::open(config, stop, on_event)?.run(&config.pace, log, on_event)
}

/// Connections to a system whose rows have been written.
pub(crate) struct Session<'a> {
    config: &'a LoadConfig,
    stop: &'a AtomicBool,
    engine: Engine,
    target: Target,
}

impl<'a> Session<'a> {
    /// Connects, and writes the rows if the configuration asks for it.
    pub(crate) fn open(
        config: &'a LoadConfig,
        stop: &'a AtomicBool,
        on_event: &mut dyn FnMut(&LoadEvent<'_>),
    ) -> Result<Self, LoadError> {
        let engine = Engine::new(&config.cpus)?;
        // Bad settings are refused before anything is sent to the server.
        let table = config.spec.workload.table.full_name();
        let mut target = engine.open(&config.access, config.connect_deadline, stop)?;
        if config.populate {
            let mut reported = 0;
            let mut progress = |done, all| {
                let tenth = done * 10 / all;
                if tenth > reported {
                    reported = tenth;
                    on_event(&LoadEvent::Populating { table: &table, done, all });
                }
            };
            engine.populate(&mut target, &config.spec, config.seed, stop, &mut progress)?;
        }
        Ok(Self { config, stop, engine, target })
    }

    /// Runs one load.
    pub(crate) fn run(
        &mut self,
        pace: &Pace,
        mut log: Option<Log>,
        on_event: &mut dyn FnMut(&LoadEvent<'_>),
    ) -> Result<LoadReport, LoadError> {
        let config = self.config;
        if let Some(log) = &mut log {
            log.begin(SystemTime::now() + config.lead_in);
        }
        let order = LoadOrder {
            spec: &config.spec,
            pace,
            lead_in: config.lead_in,
            stretch: Duration::from_secs(1),
            seed: config.seed,
            verify: config.verify,
            start: None,
        };
        let cpus = self.engine.cpus();
        let is_open = matches!(pace, Pace::Open(_));
        let kinds = config.spec.workload.query_names();
        let mut gathering = ReportBuilder::new(pace);
        let mut stretch = |stats: &Stats| {
            let histogram = if is_open { stats.response() } else { stats.service() };
            let begin = gathering.take(stats, &histogram);
            if let Some(log) = &mut log {
                log.stretch(begin, stats, &kinds);
            }
            on_event(&LoadEvent::Interval(Interval {
                end: begin + Duration::from_nanos(stats.window_ns()),
                throughput_per_s: ratio(stats.operations as f64, stats.window_ns() as f64 / 1e9)
                    .unwrap_or(0.0),
                is_open,
                latency: Quantiles::of(&histogram),
                histogram: &histogram,
                failed: stats.failed(),
                client_cpu_us_per_operation: ratio(
                    stats.cpu_ns as f64 / 1e3,
                    stats.operations as f64,
                ),
                client_cpu_share: cpu_share(stats, cpus),
            }));
        };
        let mut follow = LoadObserver {
            stop: self.stop,
            edge: &|_| {},
            accounts_read: None,
            stretch: &mut stretch,
            outlives: true,
        };
        let total = self.engine.run(&mut self.target, &order, &mut follow)?;
        let mut report = gathering.report(pace, &total, &kinds, cpus);
        let reads = config.spec.workload.queries.iter().map(|query| query.kind.reads());
        report.verify = config.verify.then(|| Verified::of(&total, reads));
        report.log_error =
            log.map(Log::finish).and_then(Result::err).map(|error| error_line(&error));
        Ok(report)
    }
}
