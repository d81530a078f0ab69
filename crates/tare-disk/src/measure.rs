//! The measurement: fill the file, climb to saturation, then run rounds of every load at
//! saturation, 50 % and 80 %, each round in another order, and then the map.
//!
//! The budget is divided in advance: at most 20 % for the file, half of the rest for the map if it
//! is requested, then 35 % for the climb and the rest for the rounds.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::Errno;
use tare_stats::{CONFIDENCE, median};
use tare_std::rng::Rng;

use crate::device::Counters;
use crate::doubt::Doubt;
use crate::engine::{Engine, EngineError, Outcome, Pacing, Stream, Window};
use crate::report::{Cell, Figure, Latency, LoadReport, Map, Point, Report, SteadyReport, VERSION};
use crate::rules::{self, Step};
use crate::steady::{self, Steady, WrittenDisk};
use crate::target::{Kind, SIZE_MIN_BYTES, Target};
use crate::throttle;

/// The default size of the file, if that is at most a tenth of the free space.
const SIZE_DEFAULT_BYTES: u64 = 4 << 30;

const LAYOUT_SHARE: f64 = 0.2;
const MAP_SHARE: f64 = 0.5;
const CLIMB_SHARE: f64 = 0.35;

/// The shares of the saturated rate at which latency is measured.
const SHARES: [f64; 2] = [0.5, 0.8];

/// The number of rounds: the first of these that leaves slices of `SLICE_MIN`, else the last.
const ROUNDS: [u32; 3] = [7, 5, 3];
const SLICE_MIN: Duration = Duration::from_millis(250);

/// How much time may be spent above the budget, as a share of it, if bursts need longer windows.
/// Under a limit that is known to cause bursts, windows are always long enough, regardless of the
/// budget: a window inside one burst would show the disk without its limit.
const OVERTIME_SHARE: f64 = 0.5;
const OVERTIME_CLIMB_SHARE: f64 = 0.25;

/// Bursts with a shorter period are a device's batches and no reason to doubt.
const PERIOD_MIN_S: f64 = 0.01;

/// How many bursts a slice should hold: whole ones, and those at its ends and in its lead-in.
const SLICE_BURSTS: u32 = 7;

/// The block of the map's writes: the most that Seastar's scheduler sends to a disk.
const MAP_WRITE_BYTES: u32 = 128 << 10;
const MAP_STEP_PERCENT: u32 = 5;
const MAP_PROBE_PERCENT: f64 = 1.0;
const MAP_READS_MIN: u64 = 20;

/// The share of resident pages of the file above which there is a doubt.
const RESIDENT_MAX_SHARE: f64 = 0.001;

/// The largest accepted difference between the device's count and the engine's, as a share.
const COUNT_TOLERANCE: f64 = 0.1;

struct Load {
    name: &'static str,
    write: bool,
    random: bool,
    block: u32,
}

const LOADS: [Load; 4] = [
    Load { name: "sequential read", write: false, random: false, block: 1 << 20 },
    Load { name: "sequential write", write: true, random: false, block: 1 << 20 },
    Load { name: "random read", write: false, random: true, block: 4 << 10 },
    Load { name: "random write", write: true, random: true, block: 4 << 10 },
];

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file to create if the target is a directory. The caller must remove it.
    pub file: Option<PathBuf>,
    /// Whether a device may be written over.
    pub destroy: bool,
    /// The bytes of the file, or of the device's start.
    pub size_bytes: Option<u64>,
    pub budget: Duration,
    pub map: bool,
    /// Makes a disk that is written steady first, in time beside the budget.
    pub steady: Option<Steady>,
    pub seed: u64,
}

/// The progress of a measurement.
#[derive(Clone, Debug)]
pub struct Progress {
    pub what: String,
    pub spent: Duration,
    pub budget: Duration,
}

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error("{} does not support direct I/O: a cache would be measured; give a path on a disk", .path.display())]
    NoDirect { path: PathBuf },
    #[error("cannot open {}", .path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("no room for {} MiB on {}; give a smaller --size", .bytes >> 20, .path.display())]
    Full { path: PathBuf, bytes: u64 },
    #[error("cannot allocate {} MiB in {}", .bytes >> 20, .path.display())]
    Allocate { path: PathBuf, bytes: u64, source: io::Error },
    #[error(
        "only {} MiB could be written in {:.1} s, and at least {} MiB are needed; give a larger --budget",
        .bytes >> 20, .seconds, SIZE_MIN_BYTES >> 20
    )]
    Slow { bytes: u64, seconds: f64 },
    #[error("cannot read the free space of {}", .path.display())]
    Free { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl MeasureError {
    /// Returns whether `stop` ended it.
    pub fn interrupted(&self) -> bool {
        matches!(self, Self::Engine(EngineError::Interrupted))
    }
}

struct Session<'a> {
    target: &'a Target,
    options: &'a Options,
    engine: Engine,
    stop: &'a AtomicBool,
    started: Instant,
    progress: &'a mut dyn FnMut(&Progress),
    doubts: Vec<Doubt>,
    /// The time left to spend above the budget.
    overtime: Duration,
    /// The bytes that the engine moved.
    moved: Counters,
}

/// Measures a target within the budget.
///
/// # Errors
/// If the file cannot be created, the kernel allows no io_uring, or an operation fails.
pub fn measure(
    target: &Target,
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report, MeasureError> {
    let started = Instant::now();
    let writable = options.file.is_some() || options.destroy;
    let path = options.file.as_deref().unwrap_or(&target.path);
    let file = open(path, options)?;
    let asked = size(target, options)?;
    if options.file.is_some() {
        allocate(&file, path, asked)?;
    }
    let before = target.device.counters();
    let engine = Engine::new(file, asked, options.seed)?;
    let doubts = standing_doubts(target);
    let moved = Counters::default();
    let overtime = options.budget.mul_f64(OVERTIME_CLIMB_SHARE);
    let mut session =
        Session { target, options, engine, stop, started, progress, doubts, overtime, moved };
    let bytes = if writable { session.lay_out(asked, path)? } else { asked };
    let steady = match options.steady.filter(|_| writable) {
        Some(how) => Some(session.make_steady(how, bytes)?),
        None => None,
    };
    if writable && steady.is_none() {
        session.doubts.push(Doubt::NotMadeSteady);
    }
    session.evict(bytes);

    let loads: Vec<&Load> = LOADS.iter().filter(|load| writable || !load.write).collect();
    // Making the disk steady was beside the budget.
    let started = session.started;
    let left = options.budget.saturating_sub(started.elapsed());
    let map_time = if options.map { left.mul_f64(MAP_SHARE) } else { Duration::ZERO };
    let table_time = left.saturating_sub(map_time);
    let table_end = Instant::now() + table_time;
    let (climbs, period) = session.climbs(&loads, table_time.mul_f64(CLIMB_SHARE))?;
    let left = table_end.saturating_duration_since(Instant::now());
    session.overtime = options.budget.mul_f64(OVERTIME_SHARE);
    let reports = session.rounds(&loads, climbs, left, period)?;
    let left = options.budget.saturating_sub(started.elapsed());
    let map = match options.map && writable {
        true => Some(session.map(&reports, left)?),
        false => None,
    };
    session.check_counters(before);
    session.check_resident(bytes);
    Ok(Report {
        version: VERSION,
        path: target.path.clone(),
        kind: target.kind,
        mount: target.mount.clone(),
        device: target.device.clone(),
        size_bytes: bytes,
        seed: options.seed,
        budget_s: options.budget.as_secs_f64(),
        spent_s: started.elapsed().as_secs_f64(),
        confidence: CONFIDENCE,
        steady,
        loads: reports,
        map,
        doubts: session.doubts,
    })
}

fn open(path: &Path, options: &Options) -> Result<File, MeasureError> {
    let create = options.file.is_some();
    // A device opened with O_EXCL cannot be mounted (open(2)).
    let exclusive = if options.destroy { OFlags::EXCL } else { OFlags::empty() };
    let flags = i32::try_from((OFlags::DIRECT | exclusive).bits()).unwrap_or_default();
    let mut open = OpenOptions::new();
    open.read(true).write(create || options.destroy).create_new(create);
    open.custom_flags(flags).mode(0o600).open(path).map_err(|source| match source.kind() {
        // open(2): EINVAL if the file system does not support O_DIRECT.
        io::ErrorKind::InvalidInput => MeasureError::NoDirect { path: path.into() },
        _ => MeasureError::Open { path: path.into(), source },
    })
}

/// Returns how many bytes are read and written over: whole MiB.
///
/// # Errors
/// If a file of the size has no room, or the target cannot be read.
pub fn size(target: &Target, options: &Options) -> Result<u64, MeasureError> {
    let path = &target.path;
    let there = match target.kind {
        Kind::File => fs::metadata(path)
            .map_err(|source| MeasureError::Open { path: path.clone(), source })?
            .len(),
        Kind::Device => target.device.size_bytes,
        Kind::Directory => {
            let free = rustix::fs::statvfs(path)
                .map_err(|errno| MeasureError::Free { path: path.clone(), source: errno.into() })?;
            let free_bytes = free.f_bavail * free.f_frsize;
            let default = SIZE_DEFAULT_BYTES.min(free_bytes / 10).max(SIZE_MIN_BYTES);
            let asked = options.size_bytes.unwrap_or(default);
            if asked > free_bytes {
                return Err(MeasureError::Full { path: path.clone(), bytes: asked });
            }
            asked
        }
    };
    let wanted = match (target.kind, options.destroy) {
        (Kind::Device, true) => options.size_bytes.unwrap_or(SIZE_DEFAULT_BYTES),
        _ => options.size_bytes.unwrap_or(there),
    };
    let bytes = wanted.min(there).max(SIZE_MIN_BYTES.min(there));
    Ok(bytes >> 20 << 20)
}

fn allocate(file: &File, path: &Path, bytes: u64) -> Result<(), MeasureError> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // Without fallocate, filling the file shows whether there is room.
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(Errno::NOSPC | Errno::DQUOT) => {
            let path = path.parent().unwrap_or(path).to_path_buf();
            Err(MeasureError::Full { path, bytes })
        }
        Err(errno) => {
            Err(MeasureError::Allocate { path: path.into(), bytes, source: errno.into() })
        }
    }
}

/// Returns the doubts that are known before anything is measured.
fn standing_doubts(target: &Target) -> Vec<Doubt> {
    let device = &target.device;
    let mut doubts = Vec::new();
    for limit in &target.limits {
        let file = limit.file.display().to_string();
        doubts.push(Doubt::Throttled { file, limit: limit.text.clone() });
    }
    if device.layers.len() > 1 || device.layers.iter().any(|layer| layer.note.is_some()) {
        let layer = |layer: &crate::device::Layer| match &layer.note {
            Some(note) => format!("{} ({note})", layer.name),
            None => layer.name.clone(),
        };
        let stack: Vec<String> = device.layers.iter().map(layer).collect();
        doubts.push(Doubt::Layered { stack: stack.join(" on ") });
    }
    if device.rotational {
        doubts.push(Doubt::Rotational { device: device.name.clone() });
    } else if let Some(scheduler) = device.scheduler.as_deref().filter(|name| *name != "none") {
        let scheduler = scheduler.to_string();
        doubts.push(Doubt::Scheduler { device: device.name.clone(), scheduler });
    }
    if device.write_cache.as_deref() == Some("write back") {
        doubts.push(Doubt::WriteCache { device: device.name.clone() });
    }
    doubts
}

/// The results of all rounds of one load.
#[derive(Default)]
struct Gathered {
    rates: Vec<f64>,
    service: Vec<Histogram<u64>>,
    cpu_us: Vec<f64>,
    cpu_share: f64,
    unsteady: usize,
    /// The operations from which the rates were counted.
    operations: u64,
    /// For rounds in bursts: periods in seconds, and the fewest whole ones.
    periods_s: Vec<f64>,
    bursts_min: usize,
    points: [GatheredPoint; SHARES.len()],
}

#[derive(Default)]
struct GatheredPoint {
    asked: Vec<f64>,
    rates: Vec<f64>,
    latency: Vec<Histogram<u64>>,
    unsent: u64,
}

impl WrittenDisk for Session<'_> {
    fn written_bytes(&self) -> u64 {
        self.moved.written_bytes
    }

    fn write_over(&mut self, bytes: u64) -> Result<(), EngineError> {
        self.moved.written_bytes += self.engine.lay_out(bytes, None, self.stop)?;
        Ok(())
    }

    fn run_one(&mut self, stream: Stream, window: Window) -> Result<Outcome, EngineError> {
        let mut outcomes = self.run(&[stream], window)?;
        Ok(outcomes.swap_remove(0))
    }

    fn report_progress(&mut self, what: String) {
        let spent = self.started.elapsed();
        (self.progress)(&Progress { what, spent, budget: self.options.budget });
    }
}

impl Session<'_> {
    /// Makes the disk steady. The budget does not run meanwhile.
    fn make_steady(&mut self, how: Steady, bytes: u64) -> Result<SteadyReport, EngineError> {
        let (report, doubt) = steady::make(self, how, bytes)?;
        self.doubts.extend(doubt);
        self.started += Duration::from_secs_f64(report.seconds);
        Ok(report)
    }

    fn lay_out(&mut self, asked: u64, path: &Path) -> Result<u64, MeasureError> {
        self.report_progress(format!("writing {} MiB", asked >> 20));
        let start = Instant::now();
        let deadline = start + self.options.budget.mul_f64(LAYOUT_SHARE);
        let bytes =
            self.engine.lay_out(asked, Some(deadline), self.stop).map_err(|error| match error {
                EngineError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                    MeasureError::Full { path: path.parent().unwrap_or(path).into(), bytes: asked }
                }
                error => error.into(),
            })?;
        self.moved.written_bytes += bytes;
        if bytes < SIZE_MIN_BYTES {
            let seconds = start.elapsed().as_secs_f64();
            return Err(MeasureError::Slow { bytes, seconds });
        }
        if bytes < asked {
            self.doubts.push(Doubt::Cut { asked_bytes: asked, bytes });
        }
        self.engine.set_bytes(bytes);
        Ok(bytes)
    }

    /// Removes the file from the page cache. `check_resident` finds pages that stay.
    fn evict(&mut self, bytes: u64) {
        let file = self.engine.file();
        let length = std::num::NonZeroU64::new(bytes);
        let _advised = rustix::fs::fadvise(file, 0, length, Advice::DontNeed);
    }

    fn check_resident(&mut self, bytes: u64) {
        // The check needs a byte per page, so it covers only the first part of a large device.
        let bytes = bytes.min(SIZE_DEFAULT_BYTES);
        let Ok(pages) = crate::sys::resident_pages(self.engine.file(), bytes) else { return };
        if pages as f64 > bytes as f64 / 4096.0 * RESIDENT_MAX_SHARE {
            self.doubts.push(Doubt::Cached { pages });
        }
    }

    fn run(&mut self, streams: &[Stream], window: Window) -> Result<Vec<Outcome>, EngineError> {
        let outcomes = self.engine.run(streams, window, self.stop)?;
        for (stream, outcome) in streams.iter().zip(&outcomes) {
            match stream.write {
                true => self.moved.written_bytes += outcome.bytes_all,
                false => self.moved.read_bytes += outcome.bytes_all,
            }
        }
        Ok(outcomes)
    }

    /// Returns the shortest window for a rate under the limits in force.
    fn least(&self) -> Duration {
        match self.target.limits.is_empty() {
            true => Duration::ZERO,
            false => throttle::SLICE * SLICE_BURSTS,
        }
    }

    /// Runs a closed loop until enough is counted for a rate.
    fn saturated(&mut self, stream: Stream, window: Window) -> Result<Outcome, EngineError> {
        let outcome = self.run_one(stream, Window { longer: self.overtime, ..window })?;
        self.overtime = self.overtime.saturating_sub(outcome.longer);
        Ok(outcome)
    }

    /// Runs every load at rising depths. Also returns the longest time from one burst to the next,
    /// if there were bursts.
    fn climbs(
        &mut self,
        loads: &[&Load],
        time: Duration,
    ) -> Result<(Vec<Vec<Step>>, Duration), EngineError> {
        let depths = |engine: &Engine, load: &Load| {
            let most = engine.depth_max(load.block);
            std::iter::successors(Some(1), |depth| Some(depth * 2))
                .take_while(move |depth| *depth <= most)
                .collect::<Vec<usize>>()
        };
        let steps: usize = loads.iter().map(|load| depths(&self.engine, load).len()).sum();
        let most = time / u32::try_from(steps).unwrap_or(u32::MAX).max(1);
        let most = most.max(self.least());
        let mut climbs = Vec::new();
        let mut period_s: f64 = 0.0;
        for load in loads {
            let mut climb: Vec<Step> = Vec::new();
            for depth in depths(&self.engine, load) {
                self.report_progress(format!("{}: depth {depth}", load.name));
                let window = Window { most, until_steady: true, longer: Duration::ZERO };
                let outcome = self.saturated(load.stream(Pacing::Closed { depth }), window)?;
                let operations_per_s = outcome.operations_per_s();
                period_s = period_s.max(outcome.counted.period_s().unwrap_or(0.0));
                climb.push(Step { depth, operations_per_s, steady: outcome.steady });
                if rules::climbed(&climb) {
                    break;
                }
            }
            let last = self.engine.depth_max(load.block).next_power_of_two();
            if let Some(found) = rules::saturation(&climb).filter(|step| step.depth >= last) {
                let depth = found.depth;
                self.doubts.push(Doubt::NotSaturated { load: load.name, depth });
            }
            climbs.push(climb);
        }
        Ok((climbs, Duration::from_secs_f64(period_s)))
    }

    /// Runs every load at saturation and at each share of it, in rounds of random order.
    fn rounds(
        &mut self,
        loads: &[&Load],
        climbs: Vec<Vec<Step>>,
        time: Duration,
        period: Duration,
    ) -> Result<Vec<LoadReport>, EngineError> {
        let per_round = u32::try_from(loads.len() * (1 + SHARES.len())).unwrap_or(u32::MAX);
        let least = SLICE_MIN.max(period * SLICE_BURSTS).max(self.least());
        let fits = |rounds: &u32| time / (rounds * per_round) >= least;
        let rounds = ROUNDS.into_iter().find(fits).unwrap_or(ROUNDS[ROUNDS.len() - 1]);
        let most = time / (rounds * per_round);
        let window = Window { most, until_steady: false, longer: Duration::ZERO };
        let mut rng = Rng::stream(self.options.seed, 1);
        let depth = |climb: &Vec<Step>| rules::saturation(climb).map_or(1, |step| step.depth);
        let depths: Vec<usize> = climbs.iter().map(depth).collect();
        let mut gathered: Vec<Gathered> = loads.iter().map(|_| Gathered::default()).collect();
        for round in 1..=rounds {
            let mut order: Vec<usize> = (0..loads.len()).collect();
            shuffle(&mut order, &mut rng);
            for index in order {
                let load = loads[index];
                self.report_progress(format!("round {round} of {rounds}: {}", load.name));
                self.round(load, depths[index], window, &mut gathered[index])?;
            }
        }
        let mut reports = Vec::new();
        for (((load, climb), depth), found) in loads.iter().zip(climbs).zip(depths).zip(gathered) {
            self.doubt_rounds(load, &found);
            reports.push(found.report(load, climb, depth));
        }
        Ok(reports)
    }

    fn round(
        &mut self,
        load: &Load,
        depth: usize,
        window: Window,
        found: &mut Gathered,
    ) -> Result<(), EngineError> {
        let longer = Window { most: window.most.max(self.least()), ..window };
        let outcome = self.saturated(load.stream(Pacing::Closed { depth }), longer)?;
        let counted = outcome.counted;
        found.operations += counted.operations;
        if counted.bursty && counted.period_s().is_none_or(|period| period >= PERIOD_MIN_S) {
            let first = found.periods_s.is_empty();
            let least = if first { usize::MAX } else { found.bursts_min };
            found.bursts_min = least.min(counted.bursts);
            found.periods_s.push(counted.period_s().unwrap_or(outcome.window_s));
        }
        found.rates.push(outcome.operations_per_s());
        found.cpu_us.push(outcome.cpu_s * 1e6 / outcome.operations_all.max(1) as f64);
        found.cpu_share = found.cpu_share.max(outcome.cpu_share);
        // A stream in bursts has no steady rate and needs none.
        found.unsteady += usize::from(!outcome.steady && !counted.bursty);
        found.service.push(outcome.latency_ns);
        let saturated = median(found.rates.iter().copied()).unwrap_or(0.0);
        for (share, point) in SHARES.iter().zip(&mut found.points) {
            let rate_per_s = saturated * share;
            let outcome = self.run_one(load.stream(Pacing::Open { rate_per_s }), window)?;
            point.asked.push(rate_per_s);
            point.rates.push(outcome.operations_per_s());
            point.latency.push(outcome.latency_ns);
            point.unsent += outcome.unsent;
        }
        Ok(())
    }

    fn doubt_rounds(&mut self, load: &Load, found: &Gathered) {
        let name = load.name;
        let of = found.rates.len();
        if found.unsteady * 2 > of {
            self.doubts.push(Doubt::Unsteady { load: name, slices: found.unsteady, of });
        }
        if !found.periods_s.is_empty() {
            self.doubts.push(Doubt::Bursty {
                load: name,
                period_ms: 1e3 * median(found.periods_s.iter().copied()).unwrap_or(0.0),
                bursts: found.bursts_min,
                slices: found.periods_s.len(),
                of,
            });
        }
        if found.cpu_share > 0.9 {
            let cpu_percent = 100.0 * found.cpu_share;
            self.doubts.push(Doubt::ClientSaturated { load: name, cpu_percent });
        }
        for (share, point) in SHARES.iter().zip(&found.points) {
            let done: u64 = point.latency.iter().map(Histogram::len).sum();
            let unsent_percent = 100.0 * point.unsent as f64 / (done + point.unsent).max(1) as f64;
            if unsent_percent > 1.0 {
                let share_percent = 100.0 * share;
                self.doubts.push(Doubt::Behind { load: name, share_percent, unsent_percent });
            }
        }
    }

    /// Measures read latency at every pair of shares, in random order.
    fn map(&mut self, loads: &[LoadReport], time: Duration) -> Result<Map, EngineError> {
        let read = loads.iter().find(|load| load.random && !load.write);
        let write = loads.iter().find(|load| !load.random && load.write);
        let read_per_s = read.map_or(0.0, |load| load.operations_per_s.value);
        let write_bytes_per_s = write.map_or(0.0, |load| load.bytes_per_s.value);
        let shares = 0..=100 / MAP_STEP_PERCENT;
        let mut order: Vec<(u32, u32)> = shares
            .clone()
            .flat_map(|r| shares.clone().map(move |w| (r * MAP_STEP_PERCENT, w * MAP_STEP_PERCENT)))
            .collect();
        shuffle(&mut order, &mut Rng::stream(self.options.seed, 2));
        let end = Instant::now() + time;
        let count = order.len();
        let most = time / u32::try_from(count).unwrap_or(u32::MAX);
        let mut cells = Vec::with_capacity(count);
        for (index, (read_percent, write_percent)) in order.into_iter().enumerate() {
            if index % 21 == 0 {
                self.report_progress(format!("map: {index} of {count}"));
            }
            let share = f64::from(read_percent).max(MAP_PROBE_PERCENT) / 100.0;
            let mut streams = vec![Stream {
                write: false,
                random: true,
                block: 4 << 10,
                pacing: Pacing::Open { rate_per_s: read_per_s * share },
            }];
            if write_percent > 0 {
                let bytes_per_s = write_bytes_per_s * f64::from(write_percent) / 100.0;
                let rate_per_s = bytes_per_s / f64::from(MAP_WRITE_BYTES);
                streams.push(Stream {
                    write: true,
                    random: false,
                    block: MAP_WRITE_BYTES,
                    pacing: Pacing::Open { rate_per_s },
                });
            }
            // Time by which earlier cells overran (draining) is taken from the later ones.
            let left = end.saturating_duration_since(Instant::now());
            let cells_left = u32::try_from(count - index).unwrap_or(u32::MAX);
            let most = most.min(left / cells_left).max(Duration::from_millis(5));
            let outcomes =
                self.run(&streams, Window { most, until_steady: false, longer: Duration::ZERO })?;
            let unsent: u64 = outcomes.iter().map(|outcome| outcome.unsent).sum();
            let done: u64 = outcomes.iter().map(|outcome| outcome.operations_all).sum();
            let reads = &outcomes[0].latency_ns;
            cells.push(Cell {
                read_percent,
                write_percent,
                reads: reads.len(),
                read_p95_ns: (reads.len() >= MAP_READS_MIN).then(|| reads.value_at_quantile(0.95)),
                unsent_share: unsent as f64 / (done + unsent).max(1) as f64,
            });
        }
        cells.sort_by_key(|cell| (cell.write_percent, cell.read_percent));
        Ok(Map {
            read_per_s,
            write_bytes_per_s,
            probe_percent: MAP_PROBE_PERCENT,
            write_block_bytes: MAP_WRITE_BYTES,
            cell_s: most.as_secs_f64(),
            cells,
        })
    }

    /// Compares the device's count with the engine's.
    fn check_counters(&mut self, before: Option<Counters>) {
        let device = self.target.device.name.clone();
        let (Some(before), Some(after)) = (before, self.target.device.counters()) else {
            self.doubts.push(Doubt::NoCounters { device });
            return;
        };
        let read = after.read_bytes.saturating_sub(before.read_bytes);
        let written = after.written_bytes.saturating_sub(before.written_bytes);
        let mut others = 0;
        for (what, ours, theirs) in
            [("read", self.moved.read_bytes, read), ("written", self.moved.written_bytes, written)]
        {
            let share = theirs as f64 / ours.max(1) as f64;
            if ours > 0 && share < 1.0 - COUNT_TOLERANCE {
                self.doubts.push(Doubt::Unseen { what, share_percent: 100.0 * share });
            }
            others += theirs.saturating_sub(ours);
        }
        let ours = self.moved.read_bytes + self.moved.written_bytes;
        let share = others as f64 / ours.max(1) as f64;
        if share > COUNT_TOLERANCE {
            let share_percent = 100.0 * share;
            self.doubts.push(Doubt::Busy { device, bytes: others, share_percent });
        }
    }
}

impl Load {
    fn stream(&self, pacing: Pacing) -> Stream {
        Stream { write: self.write, random: self.random, block: self.block, pacing }
    }
}

impl Gathered {
    fn report(self, load: &Load, climb: Vec<Step>, saturation_depth: usize) -> LoadReport {
        let per_round = self.operations / self.rates.len().max(1) as u64;
        let bytes: Vec<f64> = self.rates.iter().map(|rate| rate * f64::from(load.block)).collect();
        let point = |(share, point): (&f64, GatheredPoint)| Point {
            share: *share,
            asked_per_s: Figure::of(&point.asked),
            operations_per_s: Figure::of(&point.rates),
            latency: Latency::of(&point.latency),
            unsent: point.unsent,
        };
        LoadReport {
            load: load.name,
            write: load.write,
            random: load.random,
            block_bytes: load.block,
            climb,
            saturation_depth,
            operations_per_s: Figure::of(&self.rates).counted(per_round),
            bytes_per_s: Figure::of(&bytes).counted(per_round),
            service: Latency::of(&self.service),
            cpu_us_per_operation: Figure::of(&self.cpu_us),
            points: SHARES.iter().zip(self.points).map(point).collect(),
        }
    }
}

/// Shuffles in place (Fisher and Yates).
fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        let other = usize::try_from(rng.below(last as u64 + 1)).unwrap_or(last);
        items.swap(last, other);
    }
}
