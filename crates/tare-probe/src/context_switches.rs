//! `context_switches`: how often a CPU of the host went from one task to another. A layer that adds
//! a hop (a proxy, a sentry) shows here before it shows elsewhere.

use tare_std::cpus::CpuSet;

use crate::source::Growth;
use crate::{CounterKind, Opened, ProbeKind, Roots, stat};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "context_switches",
    help: "context switches on the whole host",
    needs: "/proc/stat",
    limits: "strangers' switches count too",
    optional: false,
    disturbs: false,
    counters: &[CounterKind {
        name: "context_switches",
        help: "times a CPU of the host went from one task to another",
    }],
    open,
};

fn open(roots: &Roots, _: &CpuSet) -> Opened {
    Growth::open(&KIND, &roots.proc.join("stat"), "ctxt line", 1.0, stat::context_switches)
}
