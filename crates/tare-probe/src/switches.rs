//! `switches`: how often the threads of the system, the layer and the client gave up their CPU,
//! lost it, or moved to another CPU.
//!
//! Source: `/proc/PID/task/TID/sched` (`nr_voluntary_switches`, `nr_involuntary_switches`,
//! `se.nr_migrations`; kernel/sched/debug.c, proc_sched_show_task). A kernel without
//! CONFIG_SCHED_DEBUG lacks it; then `status`, proc_pid_status(5), gives all but the migrations.
//! Of many threads these take too long to read: then the third field of `schedstat` tells how
//! often a CPU turned to a thread (Documentation/scheduler/sched-stats.rst).
//! Processes of other pid namespaces have the file too.

use tare_lab::probe::{Counter, Scope};

use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::process_files::{
    CLIENT, LAYER, ProcessFiles, SCHEDSTAT_THREADS_MAX, SYSTEM, THREADS_MAX, Take,
};
use crate::{CounterKind, ProbeError, ProbeKind, Roots, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "switches",
    help: "how often threads of the system, the layer and the client slept, were preempted, moved",
    needs: "/proc/PID/task/TID/sched (CONFIG_SCHED_DEBUG), or status without migrations",
    limits: "threads that start and end inside a slice are missed; the layer counts only if it has \
             processes; of more than 160 threads the sum alone is read, and at most 640 are read",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind {
            name: "{part}_switches_voluntary",
            help: "times a thread gave up its CPU to wait",
        },
        CounterKind {
            name: "{part}_switches_involuntary",
            help: "times a thread lost its CPU to another one",
        },
        CounterKind { name: "{part}_migrations", help: "times a thread was moved to another CPU" },
        CounterKind {
            name: "{part}_switches",
            help: "times a CPU turned to a thread, in place of the three above, of many threads",
        },
    ],
    open: |roots, _| edge_probe(&KIND, Switches { roots: roots.clone(), parts: Vec::new() }),
};

struct Switches {
    roots: Roots,
    parts: Vec<(ProcessFiles<3>, File)>,
}

/// The file that is read of each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Sched,
    Status,
    Schedstat,
}

impl File {
    /// Its name, what is taken from it, and the most threads.
    fn reading(self) -> (&'static str, Take<3>, usize) {
        match self {
            Self::Sched => ("sched", from_sched, THREADS_MAX),
            Self::Status => ("status", from_status, THREADS_MAX),
            Self::Schedstat => ("schedstat", from_schedstat, SCHEDSTAT_THREADS_MAX),
        }
    }
}

impl Switches {
    fn part(&self, of: &'static str, pids: &[u32]) -> Result<(ProcessFiles<3>, File), ProbeError> {
        let proc = &self.roots.proc;
        let open = |file: File| {
            let (name, take, most) = file.reading();
            Ok((ProcessFiles::of_threads(of, proc, pids, name, take, most)?, file))
        };
        let has_sched =
            pids.first().is_some_and(|pid| proc.join(pid.to_string()).join("sched").exists());
        match open(if has_sched { File::Sched } else { File::Status }) {
            Err(ProbeError::ManyThreads { .. }) => open(File::Schedstat),
            opened => opened,
        }
    }
}

fn from_sched(text: &str) -> Option<[u64; 3]> {
    take(text, ["nr_voluntary_switches", "nr_involuntary_switches", "se.nr_migrations"])
}

fn from_status(text: &str) -> Option<[u64; 3]> {
    let names = ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"];
    let [voluntary, involuntary] = take(text, names)?;
    Some([voluntary, involuntary, 0])
}

fn from_schedstat(text: &str) -> Option<[u64; 3]> {
    Some([text.split_ascii_whitespace().nth(2)?.parse().ok()?, 0, 0])
}

/// Numbers of a file of `name : number` lines.
fn take<const N: usize>(text: &str, names: [&str; N]) -> Option<[u64; N]> {
    let mut found = [None; N];
    for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
        if let Some(at) = names.iter().position(|wanted| *wanted == name.trim_end()) {
            found[at] = value.trim().parse().ok();
        }
    }
    let mut numbers = [0; N];
    for (number, found) in numbers.iter_mut().zip(found) {
        *number = found?;
    }
    Some(numbers)
}

impl EdgeReader for Switches {
    type Values = Vec<[u64; 3]>;

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        self.parts.clear();
        let mut parts = vec![self.part(SYSTEM, &scope.system)?];
        if !scope.layer.is_empty() {
            parts.push(self.part(LAYER, &scope.layer)?);
        }
        if !scope.client.is_empty() {
            parts.push(self.part(CLIENT, &scope.client)?);
        }
        self.parts = parts;
        Ok(())
    }

    fn read(&mut self, edge: Edge) -> Result<Self::Values, ProbeError> {
        if self.parts.is_empty() {
            return Err(ProbeError::NoProcess { of: SYSTEM });
        }
        let mut readings = Vec::new();
        for (files, _) in &mut self.parts {
            if edge == Edge::End {
                files.look()?;
            }
            readings.push(files.read());
        }
        Ok(readings)
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let mut counters = Vec::new();
        for (((files, file), begin), end) in self.parts.iter().zip(begin).zip(end) {
            let grown = |at: usize| end[at].saturating_sub(begin[at]) as f64;
            let names: &[&str] = match file {
                File::Sched => &["switches_voluntary", "switches_involuntary", "migrations"],
                File::Status => &["switches_voluntary", "switches_involuntary"],
                File::Schedstat => &["switches"],
            };
            let part = files.of;
            let named = names.iter().enumerate();
            counters.extend(named.map(|(at, name)| counter(format!("{part}_{name}"), grown(at))));
        }
        counters
    }
}
