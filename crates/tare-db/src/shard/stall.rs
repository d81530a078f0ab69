//! Finds iterations of a shard's loop that take too long, because all clients of the shard wait for
//! them.
//!
//! The loop measures itself: the length of an iteration is known anyway, and the rarer tasks are
//! timed one by one, so that the rest is the time of the requests. The main thread sees an
//! iteration that does not end through [`Progress`]. The time that the shard waited for a CPU comes
//! from the scheduler (`/proc/thread-self/schedstat`: time on a CPU and time waiting for one, in
//! ns).
//!
//! Limits: an iteration in which the process was frozen looks long. The main thread was frozen too
//! and sees that by its own clock, so an iteration that was frozen for half of its length does not
//! count, whichever of the two threads runs first after the thaw. The scheduler is read every
//! [`SCHEDULE_NS`], so the waiting time of a stall may be too long by that much.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tare_std::units::nanoseconds;

use crate::node::clock::Clock;

/// An iteration that has not ended after this time is reported while it lasts.
const ENDLESS_NS: u64 = 1_000_000_000;
/// The main thread wakes late on a busy machine too; a shorter delay is no freeze.
const FREEZE_NS_MIN: u64 = 50_000_000;
/// Stalls that may wait to be reported; the rest is lost.
const REPORTS_MAX: usize = 1024;
/// How often the scheduler's account is read.
pub(crate) const SCHEDULE_NS: u64 = 100_000_000;
/// Lines that the log may get at once. After that it gets one each [`LINE_NS`].
const LINES_MAX: u32 = 5;
const LINE_NS: u64 = 10_000_000_000;

/// The tasks of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Requests of clients and siblings, and sending their answers: everything that is not timed by
    /// itself.
    Requests,
    /// A step of a scan.
    Scan,
    /// Reads whose blocks have come.
    Resume,
    /// Flush, compaction, and submitting file operations.
    Storage,
}

impl Task {
    const ALL: [Self; 4] = [Self::Requests, Self::Scan, Self::Resume, Self::Storage];

    fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Scan => "scan",
            Self::Resume => "resumed reads",
            Self::Storage => "storage",
        }
    }
}

/// The state of an iteration that the main thread can see, and the counts of stalls.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Start of the iteration, or 0 between iterations.
    since_ns: AtomicU64,
    task: AtomicU8,
    stalls: AtomicU64,
    stalled_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl Progress {
    /// The number of stalls, their total length, and the longest one, in ns.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [&self.stalls, &self.stalled_ns, &self.longest_ns]
            .map(|counter| counter.load(Ordering::Relaxed))
    }
}

/// An iteration that took too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    shard: usize,
    /// The longest task of the iteration, and its length.
    task: Task,
    task_ns: u64,
    begun_ns: u64,
    iteration_ns: u64,
    /// Time that the shard waited for a CPU, at most.
    waited_ns: u64,
}

/// The shard's side of stall detection.
#[derive(Debug)]
pub(crate) struct Detector {
    shard: usize,
    threshold_ns: u64,
    progress: Arc<Progress>,
    reports: SyncSender<Stall>,
    begun_ns: u64,
    /// Length of the timed tasks of this iteration.
    tasks_ns: [u64; Task::ALL.len()],
    schedule: Schedule,
    next_schedule_ns: u64,
}

impl Detector {
    /// Begins an iteration.
    #[inline]
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.begun_ns = now_ns;
        self.progress.since_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Begins a task that is timed by itself, and returns the time.
    #[inline]
    pub(crate) fn enter(&mut self, task: Task, clock: Clock) -> u64 {
        self.progress.task.store(task as u8, Ordering::Relaxed);
        clock.now_ns()
    }

    /// Ends a task.
    #[inline]
    pub(crate) fn leave(&mut self, task: Task, begun_ns: u64, clock: Clock) {
        self.progress.task.store(Task::Requests as u8, Ordering::Relaxed);
        self.tasks_ns[task as usize] += clock.now_ns() - begun_ns;
    }

    /// Ends an iteration.
    #[inline]
    pub(crate) fn end(&mut self, now_ns: u64) {
        self.progress.since_ns.store(0, Ordering::Relaxed);
        let iteration_ns = now_ns - self.begun_ns;
        if iteration_ns > self.threshold_ns {
            self.report(iteration_ns);
        }
        self.tasks_ns = [0; Task::ALL.len()];
    }

    #[cold]
    fn report(&mut self, iteration_ns: u64) {
        let before = self.schedule;
        self.schedule = Schedule::read();
        let others: u64 = self.tasks_ns.iter().sum();
        self.tasks_ns[Task::Requests as usize] += iteration_ns.saturating_sub(others);
        let (task, task_ns) = longest(&self.tasks_ns);
        let waited_ns =
            (self.schedule.waited_ns.saturating_sub(before.waited_ns)).min(iteration_ns);
        // If the queue is full, the main thread has enough stalls to report.
        let (shard, begun_ns) = (self.shard, self.begun_ns);
        let stall = Stall { shard, task, task_ns, begun_ns, iteration_ns, waited_ns };
        let _ = self.reports.try_send(stall);
    }

    /// Reads the scheduler's account if it is time: time on a CPU and time waiting for one, in ns.
    pub(crate) fn schedule(&mut self, now_ns: u64) -> Schedule {
        if now_ns >= self.next_schedule_ns {
            self.next_schedule_ns = now_ns + SCHEDULE_NS;
            self.schedule = Schedule::read();
        }
        self.schedule
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }
}

fn longest(tasks_ns: &[u64; Task::ALL.len()]) -> (Task, u64) {
    let pairs = Task::ALL.into_iter().zip(tasks_ns.iter().copied());
    pairs.max_by_key(|&(_, ns)| ns).unwrap_or((Task::Requests, 0))
}

/// The scheduler's account of the calling thread, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Schedule {
    pub(crate) on_cpu_ns: u64,
    pub(crate) waited_ns: u64,
}

impl Schedule {
    /// Returns zeros if the kernel does not keep the account (CONFIG_SCHED_INFO).
    fn read() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0));
        let (on_cpu_ns, waited_ns) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
        Self { on_cpu_ns, waited_ns }
    }
}

/// The main thread's side: receives stalls, finds iterations that do not end, and chooses what to
/// log.
#[derive(Debug)]
pub(crate) struct Watchdog {
    threshold_ns: u64,
    shards: Vec<Watched>,
    reports: Receiver<Stall>,
    lines: LineLimit,
    last_ns: u64,
    /// The latest first.
    freezes: [Freeze; FREEZES],
}

/// Freezes that are remembered. A study thaws a server for less than a period of the main thread,
/// so that a report can wait until the end of the freeze after its own.
const FREEZES: usize = 4;

/// A time for which the main thread was frozen or starved, and the shards with it.
#[derive(Clone, Copy, Debug, Default)]
struct Freeze {
    begun_ns: u64,
    ended_ns: u64,
}

impl Freeze {
    /// Returns how much of an interval it covers.
    fn covers_ns(self, begun_ns: u64, ended_ns: u64) -> u64 {
        self.ended_ns.min(ended_ns).saturating_sub(self.begun_ns.max(begun_ns))
    }
}

/// Returns how much of an interval these freezes cover. None overlaps another.
fn frozen_ns(freezes: &[Freeze], begun_ns: u64, ended_ns: u64) -> u64 {
    freezes.iter().map(|freeze| freeze.covers_ns(begun_ns, ended_ns)).sum()
}

#[derive(Debug)]
struct Watched {
    progress: Arc<Progress>,
    /// Start of the iteration that was reported while it lasted.
    reported_ns: u64,
}

/// Makes a detector for each shard, and the watchdog over them.
pub(crate) fn detectors(shards: usize, threshold: Duration) -> (Vec<Detector>, Watchdog) {
    let threshold_ns = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
    let (report, reports) = sync_channel(REPORTS_MAX);
    let detector = |shard| Detector {
        shard,
        threshold_ns,
        progress: Arc::new(Progress::default()),
        reports: report.clone(),
        begun_ns: 0,
        tasks_ns: [0; Task::ALL.len()],
        schedule: Schedule::default(),
        next_schedule_ns: 0,
    };
    let detectors: Vec<Detector> = (0..shards).map(detector).collect();
    let watch =
        |detector: &Detector| Watched { progress: Arc::clone(&detector.progress), reported_ns: 0 };
    let shards = detectors.iter().map(watch).collect();
    let lines = LineLimit::default();
    let watchdog =
        Watchdog { threshold_ns, shards, reports, lines, last_ns: 0, freezes: Default::default() };
    (detectors, watchdog)
}

impl Watchdog {
    /// Checks all shards, `period_ns` after the last call if all went well, and returns the lines
    /// to log.
    pub(crate) fn check(&mut self, now_ns: u64, period_ns: u64) -> Vec<String> {
        // A thread that slept much longer than it wanted was frozen or starved, and so were the
        // shards.
        let overslept_ns = now_ns.saturating_sub(self.last_ns).saturating_sub(period_ns);
        if overslept_ns > FREEZE_NS_MIN {
            // It may have been frozen at any time of its sleep, but hardly after it woke.
            self.freezes.rotate_right(1);
            self.freezes[0] = Freeze { begun_ns: self.last_ns, ended_ns: now_ns };
        }
        self.last_ns = now_ns;
        let mut lines = Vec::new();
        for stall in self.reports.try_iter() {
            let ended_ns = stall.begun_ns.saturating_add(stall.iteration_ns);
            if frozen_ns(&self.freezes, stall.begun_ns, ended_ns) > stall.iteration_ns / 2 {
                continue;
            }
            let progress = &self.shards[stall.shard].progress;
            progress.stalls.fetch_add(1, Ordering::Relaxed);
            progress.stalled_ns.fetch_add(stall.iteration_ns, Ordering::Relaxed);
            progress.longest_ns.fetch_max(stall.iteration_ns, Ordering::Relaxed);
            lines
                .extend(self.lines.allow(now_ns).map(|more| stall.line(self.threshold_ns) + &more));
        }
        for (shard, watched) in self.shards.iter_mut().enumerate() {
            let since_ns = watched.progress.since_ns.load(Ordering::Relaxed);
            let ran_ns = now_ns.saturating_sub(since_ns).saturating_sub(frozen_ns(
                &self.freezes,
                since_ns,
                now_ns,
            ));
            let endless = since_ns > 0 && ran_ns > ENDLESS_NS;
            if endless && since_ns != watched.reported_ns {
                watched.reported_ns = since_ns;
                let task = usize::from(watched.progress.task.load(Ordering::Relaxed));
                let task = Task::ALL.get(task).map_or("an unknown task", |task| task.name());
                let lasts = nanoseconds((now_ns - since_ns) as f64);
                lines.push(format!("shard {shard} is stuck: {task} has taken {lasts} and goes on"));
            }
        }
        lines
    }
}

impl Stall {
    fn line(&self, threshold_ns: u64) -> String {
        let ns = |ns: u64| nanoseconds(ns as f64);
        let waited = match self.waited_ns {
            0..1_000_000 => String::new(),
            waited => format!(", {} of it waiting for a CPU", ns(waited)),
        };
        format!(
            "shard {} stalled for {}{waited}: {} took {}, {} over the limit of {}",
            self.shard,
            ns(self.iteration_ns),
            self.task.name(),
            ns(self.task_ns),
            ns(self.iteration_ns.saturating_sub(threshold_ns)),
            ns(threshold_ns),
        )
    }
}

/// A limit on the number of log lines.
#[derive(Debug, Default)]
struct LineLimit {
    written: u32,
    last_ns: u64,
    suppressed: u64,
}

impl LineLimit {
    /// Whether a line may be written now, with a note about suppressed lines if there are any.
    fn allow(&mut self, now_ns: u64) -> Option<String> {
        let quiet = (now_ns.saturating_sub(self.last_ns) / LINE_NS).min(u64::from(LINES_MAX));
        self.written = self.written.saturating_sub(u32::try_from(quiet).unwrap_or(LINES_MAX));
        if self.written >= LINES_MAX {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        self.last_ns = now_ns;
        match std::mem::take(&mut self.suppressed) {
            0 => Some(String::new()),
            more => Some(format!(" ({more} more were not written)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::config::THRESHOLD_DEFAULT;

    const MS: u64 = 1_000_000;

    #[test]
    fn long_iteration_names_its_longest_task() {
        let (mut detectors, mut watchdog) = detectors(2, THRESHOLD_DEFAULT);
        let detector = &mut detectors[1];
        detector.begin(100 * MS);
        detector.tasks_ns[Task::Storage as usize] = 30 * MS;
        detector.tasks_ns[Task::Scan as usize] = MS;
        detector.end(135 * MS);
        detector.begin(135 * MS);
        detector.end(155 * MS);
        let lines = watchdog.check(200 * MS, 200 * MS);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("shard 1 stalled for 35.0 ms"), "{lines:?}");
        assert!(lines[0].contains("storage took 30.0 ms, 15.0 ms over the limit of 20.0 ms"));
        assert_eq!(detectors[1].progress().counts(), [1, 35 * MS, 35 * MS]);
        assert_eq!(detectors[0].progress().counts(), [0, 0, 0]);
    }

    #[test]
    fn untimed_work_counts_as_requests() {
        let (mut detectors, mut watchdog) = detectors(1, THRESHOLD_DEFAULT);
        detectors[0].begin(MS);
        detectors[0].tasks_ns[Task::Scan as usize] = 10 * MS;
        detectors[0].end(41 * MS);
        let lines = watchdog.check(100 * MS, 100 * MS);
        assert!(lines[0].contains("requests took 30.0 ms"), "{lines:?}");
    }

    #[test]
    fn endless_iteration_is_reported_once_and_a_freeze_never() {
        let (mut detectors, mut watchdog) = detectors(1, THRESHOLD_DEFAULT);
        let clock = Clock::new();
        detectors[0].begin(MS);
        detectors[0].enter(Task::Scan, clock);
        assert!(watchdog.check(900 * MS, 900 * MS).is_empty());
        let lines = watchdog.check(1100 * MS, 200 * MS);
        assert_eq!(lines, ["shard 0 is stuck: scan has taken 1.10 s and goes on"]);
        assert!(watchdog.check(1200 * MS, 100 * MS).is_empty());
        detectors[0].end(5000 * MS);
        // The main thread wanted to sleep for 100 ms and slept for 3.8 s.
        assert!(watchdog.check(5000 * MS, 100 * MS).is_empty());
        assert_eq!(detectors[0].progress().counts(), [0, 0, 0]);
    }

    #[test]
    fn freeze_is_no_stall_if_main_thread_runs_first() {
        let (mut detectors, mut watchdog) = detectors(1, THRESHOLD_DEFAULT);
        watchdog.check(100 * MS, 100 * MS);
        detectors[0].begin(150 * MS);
        // Both were frozen from 160 to 800 ms. The main thread runs first after the thaw.
        assert!(watchdog.check(800 * MS, 100 * MS).is_empty());
        detectors[0].end(810 * MS);
        assert!(watchdog.check(900 * MS, 100 * MS).is_empty());
        assert_eq!(detectors[0].progress().counts(), [0, 0, 0]);
        // Thawed for 60 ms, less than a period, between two freezes.
        detectors[0].begin(910 * MS);
        assert!(watchdog.check(1600 * MS, 100 * MS).is_empty());
        detectors[0].end(1610 * MS);
        assert!(watchdog.check(2300 * MS, 100 * MS).is_empty());
        assert_eq!(detectors[0].progress().counts(), [0, 0, 0]);
        // A stall after that counts.
        detectors[0].begin(2300 * MS);
        detectors[0].end(3000 * MS);
        let lines = (24..31).flat_map(|at| watchdog.check(at * 100 * MS, 100 * MS));
        assert_eq!(lines.count(), 1);
        assert_eq!(detectors[0].progress().counts(), [1, 700 * MS, 700 * MS]);
    }

    #[test]
    fn log_lines_are_limited_and_suppressed_ones_counted() {
        let mut lines = LineLimit::default();
        let written = (0..100).filter(|&n| lines.allow(n).is_some()).count();
        assert_eq!(written, 5);
        assert_eq!(lines.allow(LINE_NS + 100).unwrap(), " (95 more were not written)");
        assert_eq!(lines.allow(3 * LINE_NS), Some(String::new()));
    }

    #[test]
    fn scheduler_account_of_this_thread_is_read() {
        let (mut detectors, _watchdog) = detectors(1, THRESHOLD_DEFAULT);
        // The kernel updates the account when the thread leaves its CPU.
        std::thread::sleep(Duration::from_millis(1));
        let schedule = detectors[0].schedule(0);
        // Kernels without the account give zeros.
        assert!(schedule.on_cpu_ns > 0 || schedule.waited_ns == 0);
    }
}
