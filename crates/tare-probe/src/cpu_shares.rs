//! `cpu_shares`: how busy each CPU of the plan was, and how much of that was interrupts. A CPU that
//! handles the interrupts of a network or disk is lost to the system.

use tare_lab::probe::Counter;
use tare_std::cpus::CpuSet;

use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::source::Source;
use crate::{CounterKind, ProbeError, ProbeKind, counter, stat};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "cpu_shares",
    help: "how busy each CPU of the plan was, in all and with interrupts",
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
    ],
    open: |roots, cpus| {
        let source = Source::open(&roots.proc.join("stat"), KIND.needs)?;
        let mut shares = CpuShares { source, cpus: cpus.clone() };
        shares.read(Edge::Begin)?;
        edge_probe(&KIND, shares)
    },
};

/// user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time.
const COLUMNS: usize = 8;

struct CpuShares {
    source: Source,
    cpus: CpuSet,
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
        for (cpu, end) in end {
            // A CPU that was offline at the beginning has no share.
            let Some((_, begin)) = begin.iter().find(|(known, _)| *known == cpu) else { continue };
            let ticks = |at: usize| end[at].saturating_sub(begin[at]) as f64;
            let all: f64 = (0..COLUMNS).map(ticks).sum();
            if all <= 0.0 {
                continue;
            }
            let interrupts = ticks(stat::IRQ) + ticks(stat::SOFTIRQ);
            let tasks = ticks(stat::USER) + ticks(stat::NICE) + ticks(stat::SYSTEM);
            counters.push(counter(format!("cpu{cpu}_busy_share"), (tasks + interrupts) / all));
            counters.push(counter(format!("cpu{cpu}_interrupt_share"), interrupts / all));
            counters.push(counter(format!("cpu{cpu}_steal_share"), ticks(stat::STEAL) / all));
        }
        counters
    }
}
