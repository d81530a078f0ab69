//! The load: one or two streams of reads and writes on one file, closed loop at a depth or open
//! loop at a rate.
//!
//! Method: one thread, one io_uring, direct I/O. In the open loop every operation has an intended
//! start on a fixed schedule, and its latency counts from there. A stall is thus charged to every
//! operation that it delays. The first part of a window (the lead-in) is not counted, and a rate in
//! bursts is counted over whole bursts (`bursts`). Limits: one thread, which a device with more
//! than about 500,000 operations per second may saturate; its CPU use shows that.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use crate::bursts::{self, Completions, Counted};
use crate::offsets::Permutation;
use crate::rules;
use crate::sys::Ring;

/// Time limit for the answer to an operation.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// The memory of the buffers: 64 operations of 1 MiB.
const BUFFER_BYTES: usize = 64 << 20;

/// Shorter waits are spent polling, because a timer would be late.
const SLEEP_MIN: Duration = Duration::from_micros(60);

/// The parts of a window whose rates are compared, and how many of them are the lead-in.
const SLOTS: u32 = 20;
const LEAD_IN_SLOTS: u32 = 2;

/// Completions closer to each other than a window's length divided by this are one entry.
const ENTRIES: u32 = 4096;

/// Why the load could not be run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(
        "cannot create an io_uring; a container's seccomp profile or the sysctl kernel.io_uring_disabled may forbid it"
    )]
    Ring { source: io::Error },
    #[error("cannot submit I/O to the kernel")]
    Enter { source: io::Error },
    #[error("{} at offset {offset} failed", if *.write { "a write" } else { "a read" })]
    Io { write: bool, offset: u64, source: io::Error },
    #[error("{} at offset {offset} moved {moved} of {wanted} bytes", if *.write { "a write" } else { "a read" })]
    Short { write: bool, offset: u64, moved: u32, wanted: u32 },
    #[error("the device left {count} operations unanswered for {} s", ANSWER_LIMIT.as_secs())]
    Silent { count: usize },
    #[error("interrupted")]
    Interrupted,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pacing {
    Closed { depth: usize },
    Open { rate_per_s: f64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stream {
    pub write: bool,
    pub random: bool,
    pub block: u32,
    pub pacing: Pacing,
}

/// How long a window lasts: `most`, less if `until_steady` and the rate is steady, and up to
/// `longer` more while too little was counted for a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub most: Duration,
    pub until_steady: bool,
    pub longer: Duration,
}

/// The result of one stream in the measured part of a window.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub counted: Counted,
    /// The length of the window, and how much longer than `Window::most` it was.
    pub window_s: f64,
    pub longer: Duration,
    /// Latencies in ns, from the intended start.
    pub latency_ns: Histogram<u64>,
    /// Operations that were due before the end and not started.
    pub unsent: u64,
    pub steady: bool,
    /// Bytes moved in the whole window, including lead-in and drain.
    pub bytes_all: u64,
    /// CPU time of this process in the whole window, and the operations in it.
    pub cpu_s: f64,
    pub operations_all: u64,
    /// CPU time as a share of the wall clock.
    pub cpu_share: f64,
}

impl Outcome {
    pub(crate) fn operations_per_s(&self) -> f64 {
        let Counted { operations, seconds, .. } = self.counted;
        if seconds > 0.0 { operations as f64 / seconds } else { 0.0 }
    }
}

struct Flight {
    stream: usize,
    intended: Instant,
    offset: u64,
}

struct Running {
    stream: Stream,
    started: u64,
    in_flight: usize,
    completions: Vec<Completions>,
    operations_all: u64,
    latency_ns: Histogram<u64>,
    slots: Vec<f64>,
}

pub(crate) struct Engine {
    ring: Ring,
    file: File,
    bytes: u64,
    seed: u64,
    /// The offsets at which sequential reads and writes continue.
    cursors: [u64; 2],
    orders: Vec<(bool, u32, Permutation)>,
}

impl Engine {
    pub(crate) fn new(file: File, bytes: u64, seed: u64) -> Result<Self, EngineError> {
        let ring = Ring::new(BUFFER_BYTES, seed).map_err(|source| EngineError::Ring { source })?;
        Ok(Self { ring, file, bytes, seed, cursors: [0; 2], orders: Vec::new() })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Sets the size of the file.
    pub(crate) fn set_bytes(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.cursors = [0; 2];
        self.orders.clear();
    }

    /// Returns the most operations of this size in flight.
    pub(crate) fn depth_max(&self, block: u32) -> usize {
        self.ring.slots(block as usize)
    }

    fn offset(&mut self, stream: &Stream) -> u64 {
        let block = u64::from(stream.block);
        let count = self.bytes / block;
        if !stream.random {
            let cursor = &mut self.cursors[usize::from(stream.write)];
            let offset = *cursor % count * block;
            *cursor = (*cursor + 1) % count;
            return offset;
        }
        let key = (stream.write, stream.block);
        let known = self.orders.iter().position(|(write, block, _)| (*write, *block) == key);
        let index = known.unwrap_or_else(|| {
            let seed = self.seed ^ u64::from(stream.write);
            self.orders.push((key.0, key.1, Permutation::new(count, seed)));
            self.orders.len() - 1
        });
        self.orders[index].2.next() * block
    }

    /// Writes sequentially up to `to` or until the deadline. Returns the number of bytes written.
    pub(crate) fn lay_out(
        &mut self,
        to: u64,
        deadline: Option<Instant>,
        stop: &AtomicBool,
    ) -> Result<u64, EngineError> {
        const BLOCK: u32 = 1 << 20;
        let mut free: Vec<usize> = (0..8).collect();
        let mut offset = 0;
        while offset < to || self.ring.in_flight() > 0 {
            let late = deadline.is_some_and(|deadline| Instant::now() > deadline);
            let over = late || stop.load(Ordering::Relaxed);
            if over && self.ring.in_flight() == 0 {
                break;
            }
            while !over && offset < to {
                let Some(slot) = free.pop() else { break };
                let block = BLOCK as usize;
                self.ring.queue(&self.file, true, slot, block, BLOCK, offset);
                offset += u64::from(BLOCK);
            }
            self.wait_some(Some(ANSWER_LIMIT))?;
            while let Some((slot, result)) = self.ring.reap() {
                free.push(slot);
                moved(true, offset, BLOCK, result)?;
            }
        }
        match stop.load(Ordering::Relaxed) {
            true => Err(EngineError::Interrupted),
            false => Ok(offset),
        }
    }

    fn wait_some(&mut self, wait: Option<Duration>) -> Result<(), EngineError> {
        self.ring.enter(wait).map_err(|source| EngineError::Enter { source })
    }

    /// Runs the streams for one window. No operation is in flight when it returns.
    pub(crate) fn run(
        &mut self,
        streams: &[Stream],
        window: Window,
        stop: &AtomicBool,
    ) -> Result<Vec<Outcome>, EngineError> {
        let block = streams.iter().map(|stream| stream.block as usize).max().unwrap_or(4096);
        let mut running: Vec<Running> = streams.iter().map(|s| Running::new(*s)).collect();
        let slots = self.ring.slots(block);
        let mut free: Vec<usize> = (0..slots).collect();
        let mut flights: Vec<Option<Flight>> = (0..slots).map(|_| None).collect();

        let cpu_before = cpu_s();
        let start = Instant::now();
        let part = (window.most / SLOTS).max(Duration::from_micros(1));
        let edge = start + part * LEAD_IN_SLOTS;
        let mut end = start + window.most;
        let apart_s = window.most.as_secs_f64() / f64::from(ENTRIES);
        let mut answered = start;
        let mut steady = false;
        let mut failed = None;
        loop {
            let now = Instant::now();
            let longest = start + window.most + window.longer;
            if now >= end && end < longest && failed.is_none() && !steady {
                let enough = |run: &Running| run.counted(start, edge, end).is_enough();
                if !running.iter().all(enough) {
                    end = longest.min(end + window.most / 2);
                }
            }
            let open = now < end && failed.is_none();
            if open {
                self.start_due(block, &mut running, &mut free, &mut flights, start, now);
            } else if self.ring.in_flight() == 0 {
                break;
            }
            self.wait_some(pause(&running, !free.is_empty(), start, now, end, open))?;
            let now = Instant::now();
            while let Some((slot, result)) = self.ring.reap() {
                answered = now;
                free.push(slot);
                let Some(flight) = flights.get_mut(slot).and_then(Option::take) else { continue };
                let run = &mut running[flight.stream];
                run.in_flight -= 1;
                run.operations_all += 1;
                let stream = run.stream;
                if let Err(error) = moved(stream.write, flight.offset, stream.block, result) {
                    failed.get_or_insert(error);
                }
                run.complete((now - start).as_secs_f64(), apart_s);
                if now >= edge && now < end {
                    let part = parts(now - start, part);
                    if run.slots.len() <= part {
                        run.slots.resize(part + 1, 0.0);
                    }
                    run.slots[part] += 1.0;
                }
                if flight.intended >= edge && flight.intended < end {
                    let ns = u64::try_from((now - flight.intended).as_nanos()).unwrap_or(u64::MAX);
                    run.latency_ns.saturating_record(ns);
                }
            }
            if self.ring.in_flight() > 0 && now - answered > ANSWER_LIMIT && now > end {
                return Err(EngineError::Silent { count: self.ring.in_flight() });
            }
            if stop.load(Ordering::Relaxed) {
                failed.get_or_insert(EngineError::Interrupted);
            }
            if window.until_steady && now < end && !steady {
                let whole = parts(now - start, part);
                steady =
                    now >= start + window.most / 2 && running.iter().all(|run| run.steady(whole));
                if steady {
                    end = now;
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let all_s = start.elapsed().as_secs_f64();
        let used_s = cpu_s() - cpu_before;
        let elapsed_s = (end - start).as_secs_f64();
        let whole = parts(end - start, part);
        let outcome = |run: Running| Outcome {
            steady: steady || run.steady(whole),
            counted: run.counted(start, edge, end),
            window_s: elapsed_s,
            longer: end.saturating_duration_since(start + window.most),
            unsent: run.due(elapsed_s).saturating_sub(run.started),
            latency_ns: run.latency_ns,
            bytes_all: run.operations_all * u64::from(run.stream.block),
            cpu_s: used_s,
            operations_all: run.operations_all,
            cpu_share: used_s / all_s,
        };
        Ok(running.into_iter().map(outcome).collect())
    }

    /// Queues all operations that are due.
    fn start_due(
        &mut self,
        block: usize,
        running: &mut [Running],
        free: &mut Vec<usize>,
        flights: &mut [Option<Flight>],
        start: Instant,
        now: Instant,
    ) {
        let mut progress = true;
        while progress && !free.is_empty() {
            progress = false;
            for (index, run) in running.iter_mut().enumerate() {
                let Some(intended) = run.due_at(start, now) else { continue };
                let Some(slot) = free.pop() else { return };
                let stream = run.stream;
                let offset = self.offset(&stream);
                self.ring.queue(&self.file, stream.write, slot, block, stream.block, offset);
                flights[slot] = Some(Flight { stream: index, intended, offset });
                run.started += 1;
                run.in_flight += 1;
                progress = true;
            }
        }
    }
}

impl Running {
    fn new(stream: Stream) -> Self {
        // 1 ns to 1,000 s with three digits; the library accepts these constant bounds.
        let latency_ns = Histogram::new_with_bounds(1, 1_000_000_000_000, 3)
            .unwrap_or_else(|error| unreachable!("constant bounds: {error}"));
        Self {
            stream,
            started: 0,
            in_flight: 0,
            completions: Vec::new(),
            operations_all: 0,
            latency_ns,
            slots: Vec::new(),
        }
    }

    /// Records a completion.
    fn complete(&mut self, at_s: f64, apart_s: f64) {
        match self.completions.last_mut() {
            Some(last) if at_s - last.at_s < apart_s => {
                *last = Completions { at_s, count: last.count + 1 };
            }
            _ => self.completions.push(Completions { at_s, count: 1 }),
        }
    }

    fn counted(&self, start: Instant, edge: Instant, end: Instant) -> Counted {
        let since = |time: Instant| time.saturating_duration_since(start).as_secs_f64();
        bursts::count(&self.completions, since(edge), since(end))
    }

    /// Returns whether the rate is steady at the end of so many parts.
    fn steady(&self, parts: usize) -> bool {
        self.slots.get(LEAD_IN_SLOTS as usize..parts).is_some_and(rules::steady)
    }

    /// Returns how many operations have an intended start before this time.
    fn due(&self, elapsed_s: f64) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        match self.stream.pacing {
            Pacing::Closed { .. } => self.started,
            Pacing::Open { rate_per_s } => (elapsed_s * rate_per_s).ceil().max(0.0) as u64,
        }
    }

    /// Returns the intended start of the next operation, if it has come.
    fn due_at(&self, start: Instant, now: Instant) -> Option<Instant> {
        match self.stream.pacing {
            Pacing::Closed { depth } => (self.in_flight < depth).then_some(now),
            Pacing::Open { .. } => self.next_at(start).filter(|at| *at <= now),
        }
    }

    fn next_at(&self, start: Instant) -> Option<Instant> {
        match self.stream.pacing {
            Pacing::Open { rate_per_s } if rate_per_s > 0.0 => {
                Some(start + Duration::from_secs_f64(self.started as f64 / rate_per_s))
            }
            _ => None,
        }
    }
}

/// Returns how long to wait for a completion: until the next operation is due or the window ends.
fn pause(
    running: &[Running],
    free: bool,
    start: Instant,
    now: Instant,
    end: Instant,
    open: bool,
) -> Option<Duration> {
    if !open {
        return Some(Duration::from_millis(100));
    }
    let next = running.iter().filter(|_| free).filter_map(|run| run.next_at(start)).min();
    let until = next.unwrap_or(end).min(end);
    let wait = until.saturating_duration_since(now);
    (wait >= SLEEP_MIN).then_some(wait)
}

/// Returns how many whole parts of a window have passed.
fn parts(passed: Duration, part: Duration) -> usize {
    usize::try_from(passed.as_nanos() / part.as_nanos()).unwrap_or(usize::MAX)
}

fn moved(
    write: bool,
    offset: u64,
    wanted: u32,
    result: io::Result<u32>,
) -> Result<(), EngineError> {
    match result {
        Ok(moved) if moved == wanted => Ok(()),
        Ok(moved) => Err(EngineError::Short { write, offset, moved, wanted }),
        Err(source) => Err(EngineError::Io { write, offset, source }),
    }
}

/// Returns the CPU time of this process, including its io_uring workers.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
