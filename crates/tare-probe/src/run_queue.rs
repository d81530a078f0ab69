//! `run_queue`: how long runnable threads of the system, the layer and the client waited for a CPU,
//! and how much of a CPU the busiest of them used: one thread can limit a program while most of its
//! CPUs are idle.
//!
//! Source: the first two fields of `/proc/PID/task/TID/schedstat`, CPU time and time in the queue,
//! in ns (Documentation/scheduler/sched-stats.rst). It needs CONFIG_SCHED_INFO, but not
//! `schedstats=`.

use std::time::Instant;

use tare_lab::probe::names::busiest_thread_share;
use tare_lab::probe::{Counter, Scope};

use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::process_files::{CLIENT, LAYER, ProcessFiles, SCHEDSTAT_THREADS_MAX, SYSTEM};
use crate::{CounterKind, ProbeError, ProbeKind, Roots, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "run_queue",
    help: "how long threads of the system, the layer and the client waited for a CPU, and the busiest thread of each",
    needs: "/proc/PID/task/TID/schedstat (CONFIG_SCHED_INFO)",
    limits: "a wait counts when it ends; threads that start and end inside a slice are missed; at most 640 threads",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind {
            name: "{part}_run_queue_wait_ns",
            help: "time for which runnable threads waited in a CPU's queue, over all threads",
        },
        CounterKind {
            name: "{part}_busiest_thread_share",
            help: "share of a CPU that the busiest thread used; also of the load tool, which other probes cannot see",
        },
    ],
    open: |roots, _| edge_probe(&KIND, RunQueue { roots: roots.clone(), parts: Vec::new() }),
};

struct RunQueue {
    roots: Roots,
    parts: Vec<ProcessFiles<2>>,
}

/// CPU time and time in the queue.
fn times_ns(text: &str) -> Option<[u64; 2]> {
    let mut words = text.split_ascii_whitespace();
    Some([words.next()?.parse().ok()?, words.next()?.parse().ok()?])
}

/// The times of each thread of a part, and when they were read.
struct PartTimes {
    at: Instant,
    threads: Vec<[u64; 2]>,
}

impl PartTimes {
    fn waited_ns(&self) -> u64 {
        self.threads.iter().map(|[_, wait]| wait).sum()
    }

    /// Returns the share of a CPU that the busiest thread used since `begin`. A thread that was not
    /// there then counts from its start.
    fn busiest_share(&self, begin: &Self) -> f64 {
        let before = begin.threads.iter().map(|[cpu, _]| *cpu).chain(std::iter::repeat(0));
        let used = self.threads.iter().zip(before).map(|([cpu, _], before)| cpu - before.min(*cpu));
        let window_ns = self.at.duration_since(begin.at).as_nanos().max(1) as f64;
        (used.max().unwrap_or(0) as f64 / window_ns).min(1.0)
    }
}

impl EdgeReader for RunQueue {
    type Values = Vec<PartTimes>;

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        self.parts.clear();
        let proc = &self.roots.proc;
        let part = |of, pids: &[u32]| {
            let most = SCHEDSTAT_THREADS_MAX;
            ProcessFiles::of_threads(of, proc, pids, "schedstat", times_ns, most)
        };
        let mut parts = vec![part(SYSTEM, &scope.system)?];
        for (of, pids) in [(LAYER, &scope.layer), (CLIENT, &scope.client)] {
            if !pids.is_empty() {
                parts.push(part(of, pids)?);
            }
        }
        self.parts = parts;
        Ok(())
    }

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
        if self.parts.is_empty() {
            return Err(ProbeError::NoProcess { of: SYSTEM });
        }
        let mut readings = Vec::new();
        for files in &mut self.parts {
            // Also at the beginning: a connection has its process since the lead-in, whose CPU time
            // is no part of the slice.
            files.look()?;
            let at = Instant::now();
            files.read();
            readings.push(PartTimes { at, threads: files.each() });
        }
        Ok(readings)
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let mut counters = Vec::new();
        for ((files, begin), end) in self.parts.iter().zip(begin).zip(end) {
            let waited = end.waited_ns().saturating_sub(begin.waited_ns());
            counters.push(counter(format!("{}_run_queue_wait_ns", files.of), waited as f64));
            counters.push(counter(busiest_thread_share(files.of), end.busiest_share(&begin)));
        }
        counters
    }
}
