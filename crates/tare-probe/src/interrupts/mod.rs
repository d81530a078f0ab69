//! `interrupts`: interrupts by source and CPU: devices, timers, and calls between CPUs.
//!
//! Source: `/proc/interrupts`, proc_interrupts(5). To write it, the kernel walks every source on
//! every CPU, which takes tens of ms for 2,000 sources on 256 CPUs. Where a reading takes longer
//! than an edge may take, the probe reads `/sys/kernel/irq/N/per_cpu_count` of the busiest devices
//! instead ([`per_irq`]).

mod per_irq;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use tare_lab::probe::{Counter, Scope};

use crate::counter_names::{CounterNames, add};
use crate::cpu_table::{self, Counts, CpuTable};
use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::source::Source;
use crate::{CounterKind, Opened, ProbeCpus, ProbeError, ProbeKind, Roots, counter, name_part};
use per_irq::PerIrq;

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "interrupts",
    help: "interrupts by source and CPU",
    needs: "/proc/interrupts; where it takes over 0.5 ms to read, /sys/kernel/irq/N/per_cpu_count",
    limits: "only the CPUs of the plan and the interrupt CPUs; at most 10 pairs of source and CPU of each of the two groups, \
             the first that change; where /proc/interrupts takes over 0.5 ms to read, only the 16 devices that interrupt these \
             CPUs most, without timers and calls between CPUs, interrupts_on_host in place of interrupts, and \
             device_interrupts_cpu{N} in place of interrupts_cpu{N}",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind {
            name: "interrupts",
            help: "all interrupts on the CPUs of the plan and the interrupt CPUs",
        },
        CounterKind { name: "interrupts_cpu{N}", help: "interrupts that CPU N handled" },
        CounterKind {
            name: "device_interrupts_cpu{N}",
            help: "interrupts of the devices that are read on CPU N, where the host's table takes too long to read",
        },
        CounterKind {
            name: "interrupts_{source}_cpu{N}",
            help: "interrupts of one source on CPU N: a device's action, or the kernel's short name in lower case \
                   (loc: local timer, res: rescheduling, cal: function call, tlb: TLB shootdown)",
        },
        CounterKind {
            name: "interrupts_on_host",
            help: "all interrupts on all CPUs of the host, where its table takes too long to read",
        },
    ],
    open,
};

/// The longest time that a reading may take.
const READING_MAX: Duration = Duration::from_micros(500);
const NAMES_MAX: usize = 10;

fn open(roots: &Roots, cpus: &ProbeCpus) -> Opened {
    edge_probe(&KIND, Interrupts::open(roots, cpus, READING_MAX)?)
}

struct Interrupts {
    reader: Reader,
    names: Names,
}

enum Reader {
    Table { source: Source, table: CpuTable },
    PerIrq(Box<PerIrq>),
}

/// The readings of an edge.
enum Values {
    Table(Counts),
    PerIrq(per_irq::Values),
}

impl Interrupts {
    /// Opens the probe. `longest` is the longest time that a reading of the table may take.
    fn open(roots: &Roots, cpus: &ProbeCpus, longest: Duration) -> Result<Self, ProbeError> {
        let path = roots.proc.join("interrupts");
        let mut source = Source::open(&path, KIND.needs)?;
        let mut table = CpuTable::new(&cpus.all());
        // The fastest of a few readings counts, because an interrupted one says nothing about the
        // host.
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let began = Instant::now();
            read_table(&mut source, &mut table)?;
            best = best.min(began.elapsed());
        }
        let reader = match best > longest {
            false => Reader::Table { source, table },
            true => Reader::PerIrq(Box::new(PerIrq::open(roots, source, table, (best, longest))?)),
        };
        Ok(Self { reader, names: Names::new(cpus) })
    }
}

fn read_table(source: &mut Source, table: &mut CpuTable) -> Result<Counts, ProbeError> {
    source.number("column of a CPU of the plan", |text| table.read(text))
}

impl EdgeReader for Interrupts {
    type Values = Values;

    fn method(&self) -> Option<String> {
        match &self.reader {
            Reader::Table { .. } => None,
            Reader::PerIrq(reader) => Some(reader.method()),
        }
    }

    fn prepare(&mut self, _: &Scope) -> Result<(), ProbeError> {
        match &mut self.reader {
            Reader::Table { .. } => Ok(()),
            Reader::PerIrq(reader) => reader.prepare(),
        }
    }

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
        match &mut self.reader {
            Reader::Table { source, table } => read_table(source, table).map(Values::Table),
            Reader::PerIrq(reader) => reader.read().map(Values::PerIrq),
        }
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let names = &mut self.names;
        match (&self.reader, begin, end) {
            (Reader::Table { table, .. }, Values::Table(begin), Values::Table(end)) => {
                of_table(table, &end.since(&begin), names)
            }
            (Reader::PerIrq(reader), Values::PerIrq(begin), Values::PerIrq(end)) => {
                reader.counters(&begin, &end, names)
            }
            _ => Vec::new(),
        }
    }
}

fn of_table(table: &CpuTable, grown: &Counts, names: &mut Names) -> Vec<Counter> {
    let mut sums = vec![0; table.cpus().len()];
    let mut places = Vec::new();
    for (index, source) in table.sources().iter().enumerate() {
        for (at, cpu) in table.cpus().iter().enumerate() {
            let number = grown.of(index, at);
            sums[at] += number;
            if number > 0 {
                places.push((source_name(source), *cpu, number));
            }
        }
    }
    let mut counters = vec![counter("interrupts", sums.iter().sum::<u64>() as f64)];
    let cpus = table.cpus().iter().zip(&sums).enumerate();
    for (_, (cpu, sum)) in cpus.filter(|(at, _)| grown.has(*at)) {
        counters.push(counter(format!("interrupts_cpu{cpu}"), *sum as f64));
    }
    counters.extend(names.select(places));
    counters
}

/// The source of a line. The interrupt of a device has a number, and after its counts the chip,
/// line and action. Other interrupts have a short name.
fn source_name(source: &cpu_table::Source) -> String {
    match (source.label.parse::<u32>(), source.action.as_str()) {
        (Ok(_), "") | (Err(_), _) => name_part(&source.label),
        (Ok(_), action) => name_part(action),
    }
}

/// Selects the counters of a source and a CPU: those of the plan's CPUs and of the interrupt CPUs
/// apart, so that neither crowds out the other.
struct Names {
    interrupts: tare_std::cpus::CpuSet,
    of_plan: CounterNames,
    of_interrupts: CounterNames,
}

impl Names {
    fn new(cpus: &ProbeCpus) -> Self {
        let new = || CounterNames::new(NAMES_MAX);
        Self { interrupts: cpus.interrupts.clone(), of_plan: new(), of_interrupts: new() }
    }

    /// The counters of what has grown, by source and CPU.
    fn select(&mut self, grown: Vec<(String, u32, u64)>) -> Vec<Counter> {
        let (mut plan, mut interrupts) = (Vec::new(), Vec::new());
        for (source, cpu, number) in grown {
            let group = match self.interrupts.contains(cpu) {
                true => &mut interrupts,
                false => &mut plan,
            };
            add(group, format!("interrupts_{source}_cpu{cpu}"), number);
        }
        let mut counters = self.of_plan.select_changed(plan);
        counters.extend(self.of_interrupts.select_changed(interrupts));
        counters
    }
}
