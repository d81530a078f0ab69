//! `switches`: how often the threads of the system, of the layer and of the client gave up their
//! CPU, lost it, or were moved to another.
//!
//! Source: `/proc/PID/task/TID/sched` (`nr_voluntary_switches`, `nr_involuntary_switches`,
//! `se.nr_migrations`; kernel/sched/debug.c, proc_sched_show_task), which a kernel without
//! CONFIG_SCHED_DEBUG does not have; then `status`, proc_pid_status(5), without migrations.
//! In a process of another pid namespace the file is there too.

use tare_lab::probe::{Counter, Scope};

use crate::between::{Edge, Numbers, between};
use crate::files::{CLIENT, Files, LAYER, SYSTEM};
use crate::{CounterKind, ProbeError, ProbeKind, Roots, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "switches",
    help: "how often threads of the system, the layer and the client slept, were preempted, moved",
    needs: "/proc/PID/task/TID/sched (CONFIG_SCHED_DEBUG), or status without migrations",
    limits: "threads that come and go inside a slice are missed; the layer's only where it has \
             processes",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind {
            name: "{part}_switches_voluntary",
            help: "times a thread gave up its CPU: it waited for something",
        },
        CounterKind {
            name: "{part}_switches_involuntary",
            help: "times a thread lost its CPU to another one",
        },
        CounterKind { name: "{part}_migrations", help: "times a thread was moved to another CPU" },
    ],
    open: |roots, _| between(&KIND, Switches { roots: roots.clone(), parts: Vec::new() }),
};

struct Switches {
    roots: Roots,
    parts: Vec<(Files<3>, bool)>,
}

impl Switches {
    fn part(&self, of: &'static str, pids: &[u32]) -> Result<(Files<3>, bool), ProbeError> {
        let proc = &self.roots.proc;
        let has_sched =
            pids.first().is_some_and(|pid| proc.join(pid.to_string()).join("sched").exists());
        let files = match has_sched {
            true => Files::of_threads(of, proc, pids, "sched", from_sched)?,
            false => Files::of_threads(of, proc, pids, "status", from_status)?,
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

impl Numbers for Switches {
    type Reading = Vec<[u64; 3]>;

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

    fn read(&mut self, edge: Edge) -> Result<Self::Reading, ProbeError> {
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

    fn counters(&mut self, begin: Self::Reading, end: Self::Reading) -> Vec<Counter> {
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
