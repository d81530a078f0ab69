//! `interrupts`: interrupts by source and CPU: devices, timers, and calls between CPUs.
//!
//! Source: `/proc/interrupts`, proc_interrupts(5). To write it, the kernel walks every source on
//! every CPU, which takes ms on a large host. The probe is unavailable if a reading takes longer
//! than an edge may take.

use std::time::{Duration, Instant};

use tare_lab::probe::Counter;
use tare_std::cpus::CpuSet;

use crate::counter_names::{CounterNames, add, grown};
use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::softirq_counts::by_cpu;
use crate::source::Source;
use crate::{CounterKind, Opened, ProbeError, ProbeKind, Roots, counter, name_part};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "interrupts",
    help: "interrupts by source and CPU",
    needs: "/proc/interrupts, read in less than 0.5 ms",
    limits: "only the CPUs of the plan; at most 10 pairs of source and CPU, the first that change",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind { name: "interrupts", help: "all interrupts on the CPUs of the plan" },
        CounterKind { name: "interrupts_cpu{N}", help: "interrupts that CPU N handled" },
        CounterKind {
            name: "interrupts_{source}_cpu{N}",
            help: "interrupts of one source on CPU N: a device's action, or the kernel's short name in lower case \
                   (loc: local timer, res: rescheduling, cal: function call, tlb: TLB shootdown)",
        },
    ],
    open,
};

/// The longest time that a reading may take.
const READING_MAX: Duration = Duration::from_micros(500);
const NAMES_MAX: usize = 10;

struct Interrupts {
    source: Source,
    cpus: CpuSet,
    names: CounterNames,
}

fn open(roots: &Roots, cpus: &CpuSet) -> Opened {
    let path = roots.proc.join("interrupts");
    let source = Source::open(&path, KIND.needs)?;
    let mut probe = Interrupts { source, cpus: cpus.clone(), names: CounterNames::new(NAMES_MAX) };
    // The fastest of a few readings counts, because an interrupted one says nothing about the host.
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        probe.read(Edge::Begin)?;
        best = best.min(began.elapsed());
    }
    match best > READING_MAX {
        true => Err(ProbeError::Slow { path, took: best, limit: READING_MAX }),
        false => edge_probe(&KIND, probe),
    }
}

/// The source of a line. The interrupt of a device has a number, and after its counts the chip,
/// line and action. Other interrupts have a short name.
fn source_of(label: &str, rest: &str) -> String {
    match label.parse::<u32>() {
        Ok(_) => name_part(rest.rsplit(' ').next().unwrap_or(label)),
        Err(_) => name_part(label),
    }
}

impl EdgeReader for Interrupts {
    type Values = (Vec<(u32, u64)>, Vec<(String, u64)>);

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
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

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let before = |cpu: u32| begin.0.iter().find(|(known, _)| *known == cpu).map_or(0, |b| b.1);
        let per_cpu: Vec<(u32, u64)> =
            end.0.iter().map(|(cpu, n)| (*cpu, n.saturating_sub(before(*cpu)))).collect();
        let all: u64 = per_cpu.iter().map(|(_, n)| n).sum();
        let mut counters = vec![counter("interrupts", all as f64)];
        for (cpu, n) in per_cpu {
            counters.push(counter(format!("interrupts_cpu{cpu}"), n as f64));
        }
        counters.extend(self.names.select(grown(&begin.1, end.1)));
        counters
    }
}
