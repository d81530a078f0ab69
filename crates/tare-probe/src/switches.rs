//! `switches`: how often the threads of the system, the layer and the client gave up their CPU,
//! lost it, or moved to another CPU.
//!
//! Source: `/proc/PID/task/TID/sched` (`nr_voluntary_switches`, `nr_involuntary_switches`,
//! `se.nr_migrations`; kernel/sched/debug.c, proc_sched_show_task). A kernel without
//! CONFIG_SCHED_DEBUG lacks it; then `status`, proc_pid_status(5), gives all but the migrations.
//! Processes of other pid namespaces have the file too.

use tare_lab::probe::{Counter, Scope};

use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::process_files::{CLIENT, LAYER, ProcessFiles, SYSTEM};
use crate::{CounterKind, ProbeError, ProbeKind, Roots, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "switches",
    help: "how often threads of the system, the layer and the client slept, were preempted, moved",
    needs: "/proc/PID/task/TID/sched (CONFIG_SCHED_DEBUG), or status without migrations",
    limits: "threads that start and end inside a slice are missed; the layer counts only if it has \
             processes",
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
    ],
    open: |roots, _| edge_probe(&KIND, Switches { roots: roots.clone(), parts: Vec::new() }),
};

struct Switches {
    roots: Roots,
    parts: Vec<(ProcessFiles<3>, bool)>,
}

impl Switches {
    fn part(&self, of: &'static str, pids: &[u32]) -> Result<(ProcessFiles<3>, bool), ProbeError> {
        let proc = &self.roots.proc;
        let has_sched =
            pids.first().is_some_and(|pid| proc.join(pid.to_string()).join("sched").exists());
        let files = match has_sched {
            true => ProcessFiles::of_threads(of, proc, pids, "sched", from_sched)?,
            false => ProcessFiles::of_threads(of, proc, pids, "status", from_status)?,
        };
        Ok((files, has_sched))
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
        for (((files, has_sched), begin), end) in self.parts.iter().zip(begin).zip(end) {
            let grown = |at: usize| end[at].saturating_sub(begin[at]) as f64;
            let part = files.of;
            counters.push(counter(format!("{part}_switches_voluntary"), grown(0)));
            counters.push(counter(format!("{part}_switches_involuntary"), grown(1)));
            if *has_sched {
                counters.push(counter(format!("{part}_migrations"), grown(2)));
            }
        }
        counters
    }
}
