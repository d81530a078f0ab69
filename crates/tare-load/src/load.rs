//! `tare load`: one load from the command line, told second by second and as a report.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tare_lab::study::WorkloadSpec;
use tare_std::cpus::CpuSet;
use tare_std::units::{nanoseconds, significant, thousands};

use crate::access::Access;
use crate::engine::{Engine, Follow, Order};
use crate::error::LoadError;
use crate::histogram::{LogWriter, Quantiles};
use crate::pacing::Pace;
use crate::rows::{KeyType, Shape};
use crate::stats::{Recovered, Stats};

/// What to load, how, and for how long.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    pub access: Access,
    /// One thread runs on each of these.
    pub cpus: CpuSet,
    pub workload: WorkloadSpec,
    pub key_type: KeyType,
    pub pace: Pace,
    /// Write every row once before the load.
    pub populate: bool,
    /// Load before the measured window.
    pub lead_in: Duration,
    /// Every operation derives from (seed, index), every row from (seed, key).
    pub seed: u64,
    /// Compare every row read with what was written. The rows must have been written with the same
    /// seed.
    pub verify: bool,
    /// Where to write an HdrHistogram log with an interval per second.
    pub hdr_file: Option<PathBuf>,
    /// How long to wait for the server to answer at all.
    pub connect_deadline: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// Operations that ended well in the window.
    pub operations: u64,
    /// Length of the window as it was, in s.
    pub window_s: f64,
    pub throughput_per_s: f64,
    /// `closed` or `open`.
    pub pacing: &'static str,
    /// Open loop: the asked rate in operations/s.
    pub rate_per_s: Option<f64>,
    /// Open loop: time from the intended start.
    pub response: Option<Quantiles>,
    /// Time from the send.
    pub service: Quantiles,
    /// Open loop: how much later than intended operations were sent, in ns; part of the response
    /// time.
    pub late: Option<Quantiles>,
    /// Open loop: operations due in the window that were never sent.
    pub dropped: u64,
    pub errors: Vec<ErrorCount>,
    /// What was done about failures, where that was asked for.
    pub recovery: Recovered,
    /// CPU time of the load threads per operation, in µs.
    pub client_cpu_us_per_operation: Option<f64>,
    /// Share of its CPUs that the client used, 0 to 1. Near 1 the client is what was measured.
    pub client_cpu_share: f64,
}

/// Failed operations of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorCount {
    pub kind: String,
    pub count: u64,
    /// What the first of them said.
    pub first: String,
}

/// Runs a load to its end or until `stop`; the report then covers what there was. Writes a line
/// per second to `out`.
pub fn run(
    config: &LoadConfig,
    stop: &AtomicBool,
    out: &mut dyn Write,
) -> Result<LoadReport, LoadError> {
    let say = |out: &mut dyn Write, line: String| {
        writeln!(out, "{line}").map_err(|source| LoadError::Output { source })
    };
    let engine = Engine::new(&config.cpus)?;
    // Settings are refused before the server is asked for anything.
    let shape = Shape::of(&config.workload, config.key_type)?;
    let log_error = |source| LoadError::HistogramLog {
        path: config.hdr_file.clone().unwrap_or_default(),
        source,
    };
    let file = config.hdr_file.as_ref().map(File::create).transpose().map_err(log_error)?;
    let mut target = engine.open(&config.access, config.connect_deadline, stop)?;
    if config.populate {
        let mut told = 0;
        let mut failed = None;
        let (workload, table) = (&config.workload, shape.table());
        engine.populate(
            &mut target,
            workload,
            config.key_type,
            config.seed,
            stop,
            &mut |done, all| {
                let tenth = done * 10 / all;
                if tenth > told {
                    told = tenth;
                    let line = format!("{} of {} rows in {table}", thousands(done), thousands(all));
                    failed = failed.take().or(say(out, line).err());
                }
            },
        )?;
        failed.map_or(Ok(()), Err)?;
    }
    let start = SystemTime::now() + config.lead_in;
    let mut log = file
        .map(|file| LogWriter::begin(BufWriter::new(file), start))
        .transpose()
        .map_err(log_error)?;
    let is_open = matches!(config.pace, Pace::Open(_));
    let order = Order {
        workload: &config.workload,
        key_type: config.key_type,
        pace: &config.pace,
        lead_in: config.lead_in,
        stretch: Duration::from_secs(1),
        seed: config.seed,
        verify: config.verify,
    };
    let mut begin_ns = None;
    let mut failed = None;
    let mut stretch = |stats: &Stats| {
        let begin_ns = *begin_ns.get_or_insert(stats.begin_ns);
        let begin = Duration::from_nanos(stats.begin_ns.saturating_sub(begin_ns));
        let length = Duration::from_nanos(stats.end_ns - stats.begin_ns);
        let mut tell = || -> Result<(), LoadError> {
            say(out, line(begin + length, stats, engine.cpus(), is_open))?;
            if let Some(log) = &mut log {
                if is_open {
                    log.interval("response", begin, length, &stats.response())
                        .map_err(log_error)?;
                }
                log.interval("service", begin, length, &stats.service()).map_err(log_error)?;
            }
            Ok(())
        };
        failed = failed.take().or(tell().err());
    };
    let mut follow = Follow { stop, edge: &|_| {}, stretch: &mut stretch };
    let total = engine.run(&mut target, &order, &mut follow)?;
    failed.map_or(Ok(()), Err)?;
    log.map_or(Ok(()), LogWriter::finish).map_err(log_error)?;
    Ok(report(config, &engine, &total))
}

fn report(config: &LoadConfig, engine: &Engine, total: &Stats) -> LoadReport {
    let window_s = total.window_ns() as f64 / 1e9;
    let rate_per_s = match &config.pace {
        Pace::Closed(_) => None,
        Pace::Open(schedule) => Some(schedule.mean_per_s()),
    };
    let errors = total.errors.iter().map(|(kind, errors)| ErrorCount {
        kind: kind.name(),
        count: errors.count,
        first: errors.first.clone(),
    });
    LoadReport {
        operations: total.operations,
        window_s,
        throughput_per_s: ratio(total.operations as f64, window_s).unwrap_or(0.0),
        pacing: if rate_per_s.is_some() { "open" } else { "closed" },
        rate_per_s,
        response: rate_per_s.map(|_| Quantiles::of(&total.response())),
        service: Quantiles::of(&total.service()),
        late: total.late.as_ref().map(Quantiles::of),
        dropped: total.dropped,
        errors: errors.collect(),
        recovery: total.recovery,
        client_cpu_us_per_operation: ratio(total.cpu_ns as f64 / 1e3, total.operations as f64),
        client_cpu_share: cpu_share(total, engine.cpus()),
    }
}

fn line(at: Duration, stats: &Stats, cpus: usize, is_open: bool) -> String {
    let seconds = stats.window_ns() as f64 / 1e9;
    let per_s = ratio(stats.operations as f64, seconds).unwrap_or(0.0);
    let (name, histogram) =
        if is_open { ("response", stats.response()) } else { ("service", stats.service()) };
    let quantile = |q| nanoseconds(histogram.value_at_quantile(q) as f64);
    let cpu_us = ratio(stats.cpu_ns as f64 / 1e3, stats.operations as f64);
    let errors = stats.failed();
    format!(
        "{:>4.0} s  {:>9} op/s  {name} p50 {}, p99 {}, p99.9 {}, max {}  client {} µs/op, {:.0} % \
         CPU  errors {errors}",
        at.as_secs_f64(),
        format!("{per_s:.0}"),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        nanoseconds(histogram.max() as f64),
        cpu_us.map_or_else(|| "-".into(), |us| significant(us, 3)),
        100.0 * cpu_share(stats, cpus),
    )
}

fn cpu_share(stats: &Stats, cpus: usize) -> f64 {
    ratio(stats.cpu_ns as f64, stats.window_ns() as f64 * cpus as f64).unwrap_or(0.0)
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
