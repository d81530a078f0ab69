//! `cpu_shares`: how busy each CPU of the plan was, and how much of that was interrupts. A CPU that
//! handles the interrupts of a network or disk is lost to the system. Where some CPUs are kept for
//! interrupts, what they do has counters of its own, over all of them.

use tare_lab::probe::{Counter, names};
use tare_std::cpus::CpuSet;

use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::source::Source;
use crate::{CounterKind, ProbeError, ProbeKind, counter, stat};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "cpu_shares",
    help: "how busy each CPU of the plan and each interrupt CPU was, in all and with interrupts",
    needs: "/proc/stat",
    limits: "resolution 1/USER_HZ: over 0.3 s a tick is 3 %; a mean over slices is finer",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind {
            name: "cpu{N}_busy_share",
            help: "share of its time in which CPU N ran any task, interrupt or softirq",
        },
        CounterKind {
            name: "cpu{N}_interrupt_share",
            help: "share of its time in which CPU N was in interrupts and softirqs",
        },
        CounterKind {
            name: "cpu{N}_steal_share",
            help: "share of its time in which CPU N wanted to run and the hypervisor ran others",
        },
        CounterKind {
            name: names::INTERRUPT_CPUS_BUSY_NS,
            help: "CPU time of any task, interrupt or softirq on the CPUs kept for interrupts",
        },
        CounterKind {
            name: "interrupt_cpus_busy_share",
            help: "share of their time in which the CPUs kept for interrupts ran anything",
        },
        CounterKind {
            name: "interrupt_cpus_interrupt_share",
            help: "share of their time in which these CPUs were in interrupts and softirqs",
        },
        CounterKind {
            name: "interrupt_cpus_softirq_share",
            help: "share of their time in which these CPUs were in softirqs",
        },
    ],
    open: |roots, cpus| {
        let source = Source::open(&roots.proc.join("stat"), KIND.needs)?;
        let mut shares =
            CpuShares { source, cpus: cpus.all(), interrupts: cpus.interrupts.clone() };
        shares.read(Edge::Begin)?;
        edge_probe(&KIND, shares)
    },
};

/// user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time.
const COLUMNS: usize = 8;

struct CpuShares {
    source: Source,
    cpus: CpuSet,
    interrupts: CpuSet,
}

impl EdgeReader for CpuShares {
    type Values = Vec<(u32, [u64; COLUMNS])>;

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
        let cpus = &self.cpus;
        self.source.number("line of a CPU of the plan", |text| {
            let found: Vec<_> = stat::by_cpu(text, cpus).collect();
            (!found.is_empty()).then_some(found)
        })
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let mut counters = Vec::new();
        let mut of_interrupts = [0.0; COLUMNS];
        for (cpu, end) in end {
            // A CPU that was offline at the beginning has no share.
            let Some((_, begin)) = begin.iter().find(|(known, _)| *known == cpu) else { continue };
            let ticks: [f64; COLUMNS] =
                std::array::from_fn(|at| end[at].saturating_sub(begin[at]) as f64);
            if self.interrupts.contains(cpu) {
                of_interrupts.iter_mut().zip(ticks).for_each(|(sum, one)| *sum += one);
            }
            if let Some(shares) = Shares::of(&ticks) {
                counters.push(counter(format!("cpu{cpu}_busy_share"), shares.busy));
                counters.push(counter(format!("cpu{cpu}_interrupt_share"), shares.interrupts));
                counters.push(counter(format!("cpu{cpu}_steal_share"), shares.steal));
            }
        }
        if let Some(shares) = Shares::of(&of_interrupts) {
            let busy_ns = busy(&of_interrupts) * stat::tick_ns();
            counters.push(counter(names::INTERRUPT_CPUS_BUSY_NS, busy_ns));
            counters.push(counter("interrupt_cpus_busy_share", shares.busy));
            counters.push(counter("interrupt_cpus_interrupt_share", shares.interrupts));
            counters.push(counter("interrupt_cpus_softirq_share", shares.softirqs));
        }
        counters
    }
}

/// What a CPU did with its time.
struct Shares {
    busy: f64,
    interrupts: f64,
    softirqs: f64,
    steal: f64,
}

impl Shares {
    /// `None` if the CPU has no time: it went offline.
    fn of(ticks: &[f64; COLUMNS]) -> Option<Self> {
        let all: f64 = ticks.iter().sum();
        (all > 0.0).then(|| Self {
            busy: busy(ticks) / all,
            interrupts: (ticks[stat::IRQ] + ticks[stat::SOFTIRQ]) / all,
            softirqs: ticks[stat::SOFTIRQ] / all,
            steal: ticks[stat::STEAL] / all,
        })
    }
}

fn busy(ticks: &[f64; COLUMNS]) -> f64 {
    let columns = [stat::USER, stat::NICE, stat::SYSTEM, stat::IRQ, stat::SOFTIRQ];
    columns.iter().map(|at| ticks[*at]).sum()
}
