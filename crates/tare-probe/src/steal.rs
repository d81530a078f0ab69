//! `steal`: time in which a CPU of the plan wanted to run and the hypervisor ran others.
//!
//! The kernel keeps it in ns but shows ticks, so that a slice is off by at most one tick per CPU.

use tare_lab::probe::names;

use crate::source::GrowthProbe;
use crate::{CounterKind, Opened, ProbeCpus, ProbeKind, Roots, stat};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "steal",
    help: "CPU time that the hypervisor took from the CPUs of the plan (resolution 1/USER_HZ)",
    needs: "/proc/stat",
    limits: "off by at most 1/USER_HZ per CPU and slice",
    optional: false,
    disturbs: false,
    counters: &[CounterKind {
        name: names::STEAL_NS,
        help: "time in which a CPU of the plan wanted to run and the hypervisor ran others",
    }],
    open,
};

fn open(roots: &Roots, cpus: &ProbeCpus) -> Opened {
    let cpus = cpus.plan.clone();
    let take = move |text: &str| stat::over_cpus(text, &cpus, stat::STEAL);
    let what = "steal column for the CPUs of the plan";
    GrowthProbe::open(&KIND, &roots.proc.join("stat"), what, stat::tick_ns(), take)
}
