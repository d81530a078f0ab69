//! `softirq_counts`: softirqs by kind on the CPUs of the plan. NET_RX is the receive half of the
//! network stack, and each hop of a packet through a veth pair adds one.
//! Source: `/proc/softirqs`, proc_softirqs(5).

use tare_lab::probe::Counter;
use tare_std::cpus::CpuSet;

use crate::counter_names::{CounterNames, grown};
use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::source::Source;
use crate::{CounterKind, ProbeError, ProbeKind, name_part};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "softirq_counts",
    help: "softirqs by kind, and by kind and CPU",
    needs: "/proc/softirqs",
    limits: "only kinds that ran; at most 32 pairs of kind and CPU; softirqs for other programs count too",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind {
            name: "softirqs_{kind}",
            help: "softirqs of a kind (net_rx, net_tx, block, timer, sched, rcu ...) on the plan's CPUs",
        },
        CounterKind { name: "softirqs_{kind}_cpu{N}", help: "softirqs of a kind on CPU N" },
    ],
    open: |roots, cpus| {
        let source = Source::open(&roots.proc.join("softirqs"), KIND.needs)?;
        let (kinds, places) = (CounterNames::new(KINDS_MAX), CounterNames::new(PLACES_MAX));
        let mut counts = SoftirqCounts { source, cpus: cpus.clone(), kinds, places };
        counts.read(Edge::Begin)?;
        edge_probe(&KIND, counts)
    },
};

const KINDS_MAX: usize = 16;
const PLACES_MAX: usize = 32;

struct SoftirqCounts {
    source: Source,
    cpus: CpuSet,
    kinds: CounterNames,
    places: CounterNames,
}

/// Reads a table whose head names CPUs and whose lines start with a name and a colon. Returns for
/// each line its name, its numbers on `cpus`, and the words after the numbers.
pub(crate) fn by_cpu<'t>(
    text: &'t str,
    cpus: &CpuSet,
) -> impl Iterator<Item = (&'t str, Vec<(u32, u64)>, &'t str)> {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let columns: Vec<Option<u32>> = head
        .split_ascii_whitespace()
        .map(|name| name.strip_prefix("CPU")?.parse().ok().filter(|cpu| cpus.contains(*cpu)))
        .collect();
    lines.filter_map(move |line| {
        let (name, mut rest) = line.split_once(':')?;
        let mut numbers = Vec::new();
        for column in &columns {
            rest = rest.trim_start();
            let end = rest.find(' ').unwrap_or(rest.len());
            // ERR and MIS of /proc/interrupts have one number for the whole host.
            let number = rest[..end].parse().ok()?;
            rest = &rest[end..];
            numbers.extend(column.map(|cpu| (cpu, number)));
        }
        Some((name.trim(), numbers, rest.trim()))
    })
}

impl EdgeReader for SoftirqCounts {
    /// The counts by kind, and by kind and CPU.
    type Values = (Vec<(String, u64)>, Vec<(String, u64)>);

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
        let cpus = &self.cpus;
        self.source.number("column of a CPU of the plan", |text| {
            let (mut kinds, mut places) = (Vec::new(), Vec::new());
            for (kind, numbers, _) in by_cpu(text, cpus) {
                let name = format!("softirqs_{}", name_part(kind));
                for (cpu, number) in &numbers {
                    places.push((format!("{name}_cpu{cpu}"), *number));
                }
                kinds.push((name, numbers.iter().map(|(_, number)| number).sum()));
            }
            (!places.is_empty()).then_some((kinds, places))
        })
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let mut counters = self.kinds.select(grown(&begin.0, end.0));
        counters.extend(self.places.select(grown(&begin.1, end.1)));
        counters
    }
}
