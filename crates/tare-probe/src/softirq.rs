//! `softirq`: CPU time in softirqs on the CPUs of the plan and the interrupt CPUs. It includes the
//! receive work of the network stack that is charged to no task.
//!
//! A kernel without CONFIG_IRQ_TIME_ACCOUNTING charges a whole tick to the code that the tick
//! interrupts, so that the figure is a sample. It is coarse over one slice and good over a study.

use tare_lab::probe::names;

use crate::source::GrowthProbe;
use crate::{CounterKind, Opened, ProbeCpus, ProbeKind, Roots, stat};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "softirq",
    help: "CPU time in softirqs on the CPUs of the plan and the interrupt CPUs (sampled, resolution 1/USER_HZ)",
    needs: "/proc/stat",
    limits: "sampled by the tick unless the kernel has CONFIG_IRQ_TIME_ACCOUNTING; resolution 1/USER_HZ",
    optional: false,
    disturbs: false,
    counters: &[CounterKind {
        name: names::SOFTIRQ_NS,
        help: "CPU time in softirqs, over all CPUs of the plan and the interrupt CPUs",
    }],
    open,
};

fn open(roots: &Roots, cpus: &ProbeCpus) -> Opened {
    let cpus = cpus.all();
    let take = move |text: &str| stat::over_cpus(text, &cpus, stat::SOFTIRQ);
    let what = "softirq column for the CPUs of the plan";
    GrowthProbe::open(&KIND, &roots.proc.join("stat"), what, stat::tick_ns(), take)
}
