//! `context_switches`: how often the CPUs of the host switched between tasks. A layer that adds a
//! hop (a proxy, a sentry) shows here first.

use crate::source::GrowthProbe;
use crate::{CounterKind, Opened, ProbeCpus, ProbeKind, Roots, stat};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "context_switches",
    help: "context switches on the whole host",
    needs: "/proc/stat",
    limits: "switches of other programs count too",
    optional: false,
    disturbs: false,
    counters: &[CounterKind {
        name: "context_switches",
        help: "times a CPU of the host switched from one task to another",
    }],
    open,
};

fn open(roots: &Roots, _: &ProbeCpus) -> Opened {
    GrowthProbe::open(&KIND, &roots.proc.join("stat"), "ctxt line", 1.0, stat::context_switches)
}
