//! `run_queue`: how long runnable threads of the system, the layer and the client waited for a CPU.
//!
//! Source: the second field of `/proc/PID/task/TID/schedstat`, in ns
//! (Documentation/scheduler/sched-stats.rst). It needs CONFIG_SCHED_INFO, but not `schedstats=`.

use tare_lab::probe::{Counter, Scope};

use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::process_files::{CLIENT, LAYER, ProcessFiles, SYSTEM};
use crate::{CounterKind, ProbeError, ProbeKind, Roots, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "run_queue",
    help: "how long threads of the system, the layer and the client waited for a CPU",
    needs: "/proc/PID/task/TID/schedstat (CONFIG_SCHED_INFO)",
    limits: "a wait counts when it ends; threads that start and end inside a slice are missed",
    optional: false,
    disturbs: false,
    counters: &[CounterKind {
        name: "{part}_run_queue_wait_ns",
        help: "time for which runnable threads waited in a CPU's queue, over all threads",
    }],
    open: |roots, _| edge_probe(&KIND, RunQueue { roots: roots.clone(), parts: Vec::new() }),
};

struct RunQueue {
    roots: Roots,
    parts: Vec<ProcessFiles<1>>,
}

fn wait_ns(text: &str) -> Option<[u64; 1]> {
    Some([text.split_ascii_whitespace().nth(1)?.parse().ok()?])
}

impl EdgeReader for RunQueue {
    type Values = Vec<u64>;

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        self.parts.clear();
        let proc = &self.roots.proc;
        let part =
            |of, pids: &[u32]| ProcessFiles::of_threads(of, proc, pids, "schedstat", wait_ns);
        let mut parts = vec![part(SYSTEM, &scope.system)?];
        for (of, pids) in [(LAYER, &scope.layer), (CLIENT, &scope.client)] {
            if !pids.is_empty() {
                parts.push(part(of, pids)?);
            }
        }
        self.parts = parts;
        Ok(())
    }

    fn read(&mut self, edge: Edge) -> Result<Self::Values, ProbeError> {
        if self.parts.is_empty() {
            return Err(ProbeError::NoProcess { of: SYSTEM });
        }
        let mut readings = Vec::new();
        for files in &mut self.parts {
            if edge == Edge::End {
                files.look()?;
            }
            let [wait] = files.read();
            readings.push(wait);
        }
        Ok(readings)
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let grown = self.parts.iter().zip(begin).zip(end);
        let grown = grown.map(|((files, begin), end)| (files.of, end.saturating_sub(begin)));
        grown.map(|(of, ns)| counter(format!("{of}_run_queue_wait_ns"), ns as f64)).collect()
    }
}
