//! `softirq`: CPU time in softirqs on the CPUs of the plan, where the receive work of the network
//! stack is done when no task's account takes it.
//!
//! A kernel without CONFIG_IRQ_TIME_ACCOUNTING charges a whole tick to whatever the tick meets, so
//! this is a sample; over one slice it is coarse, over a study it adds up.

use tare_lab::probe::names;
use tare_std::cpus::CpuSet;

use crate::source::Growth;
use crate::{CounterKind, Opened, ProbeKind, Roots, stat};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "softirq",
    help: "CPU time in softirqs on the CPUs of the plan (sampled, resolution 1/USER_HZ)",
    needs: "/proc/stat",
    limits: "sampled by the tick unless the kernel has CONFIG_IRQ_TIME_ACCOUNTING; 1/USER_HZ",
    optional: false,
    disturbs: false,
    counters: &[CounterKind {
        name: names::SOFTIRQ_NS,
        help: "CPU time in softirqs, over all CPUs of the plan",
    }],
    open,
};

fn open(roots: &Roots, cpus: &CpuSet) -> Opened {
    let cpus = cpus.clone();
    let take = move |text: &str| stat::over_cpus(text, &cpus, stat::SOFTIRQ);
    let what = "softirq column for the CPUs of the plan";
    Growth::open(&KIND, &roots.proc.join("stat"), what, stat::tick_ns(), take)
}
