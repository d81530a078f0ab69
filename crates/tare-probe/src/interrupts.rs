//! `interrupts`: interrupts by source and CPU: devices, timers, and the calls by which CPUs wake one
//! another.
//!
//! Source: `/proc/interrupts`, proc_interrupts(5). The kernel walks every source on every CPU to
//! write it, which takes ms on a large host; where one reading takes longer than an edge may, there
//! is no such probe.

use std::time::{Duration, Instant};

use tare_lab::probe::Counter;
use tare_std::cpus::CpuSet;

use crate::between::{Edge, Numbers, between};
use crate::softirq_counts::by_cpu;
use crate::source::Source;
use crate::sticky::{Sticky, add, grown};
use crate::{CounterKind, Opened, ProbeError, ProbeKind, Roots, counter, word};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "interrupts",
    help: "interrupts by source and CPU",
    needs: "/proc/interrupts, read in less than 0.5 ms",
    limits: "only the CPUs of the plan; at most 10 pairs of source and CPU, those that moved first",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind { name: "interrupts", help: "all interrupts on the CPUs of the plan" },
        CounterKind { name: "interrupts_cpu{N}", help: "those of them that CPU N took" },
        CounterKind {
            name: "interrupts_{source}_cpu{N}",
            help: "those of one source: a device's action, or the kernel's short name in lower case \
                   (loc: local timer, res: rescheduling, cal: function call, tlb: TLB shootdown)",
        },
    ],
    open,
};

/// A reading may take so long.
const READING_MAX: Duration = Duration::from_micros(500);
const NAMES_MAX: usize = 10;

struct Interrupts {
    source: Source,
    cpus: CpuSet,
    names: Sticky,
}

fn open(roots: &Roots, cpus: &CpuSet) -> Opened {
    let path = roots.proc.join("interrupts");
    let source = Source::open(&path, KIND.needs)?;
    let mut probe = Interrupts { source, cpus: cpus.clone(), names: Sticky::new(NAMES_MAX) };
    // The best of a few: a reading that was interrupted says nothing about the host.
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        probe.read(Edge::Begin)?;
        best = best.min(began.elapsed());
    }
    match best > READING_MAX {
        true => Err(ProbeError::Slow { path, took: best, limit: READING_MAX }),
        false => between(&KIND, probe),
    }
}

/// A device's interrupt has a number and, behind its counts, chip, line and action; the others have
/// a short name.
fn source_of(label: &str, rest: &str) -> String {
    match label.parse::<u32>() {
        Ok(_) => word(rest.rsplit(' ').next().unwrap_or(label)),
        Err(_) => word(label),
    }
}

impl Numbers for Interrupts {
    type Reading = (Vec<(u32, u64)>, Vec<(String, u64)>);

    fn read(&mut self, _: Edge) -> Result<Self::Reading, ProbeError> {
        let cpus = &self.cpus;
        self.source.number("column of a CPU of the plan", |text| {
            let mut sums: Vec<(u32, u64)> = Vec::new();
            let mut places = Vec::new();
            for (label, numbers, rest) in by_cpu(text, cpus) {
                for (cpu, number) in numbers {
                    match sums.iter_mut().find(|(known, _)| *known == cpu) {
                        Some((_, sum)) => *sum += number,
                        None => sums.push((cpu, number)),
                    }
                    if number > 0 {
                        let name = format!("interrupts_{}_cpu{cpu}", source_of(label, rest));
                        add(&mut places, name, number);
                    }
                }
            }
            (!sums.is_empty()).then_some((sums, places))
        })
    }

    fn counters(&mut self, begin: Self::Reading, end: Self::Reading) -> Vec<Counter> {
        let before = |cpu: u32| begin.0.iter().find(|(known, _)| *known == cpu).map_or(0, |b| b.1);
        let per_cpu: Vec<(u32, u64)> =
            end.0.iter().map(|(cpu, n)| (*cpu, n.saturating_sub(before(*cpu)))).collect();
        let all: u64 = per_cpu.iter().map(|(_, n)| n).sum();
        let mut counters = vec![counter("interrupts", all as f64)];
        for (cpu, n) in per_cpu {
            counters.push(counter(format!("interrupts_cpu{cpu}"), n as f64));
        }
        counters.extend(self.names.of(grown(&begin.1, end.1)));
        counters
    }
}
