//! `softirq_counts`: how many softirqs of which kind ran on the CPUs of the plan: NET_RX is the
//! receiving half of the network stack, and each hop of a packet through a veth pair is one more.
//! Source: `/proc/softirqs`, proc_softirqs(5).

use tare_lab::probe::Counter;
use tare_std::cpus::CpuSet;

use crate::between::{Edge, Numbers, between};
use crate::source::Source;
use crate::sticky::{Sticky, grown};
use crate::{CounterKind, ProbeError, ProbeKind, word};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "softirq_counts",
    help: "softirqs by kind, and by kind and CPU",
    needs: "/proc/softirqs",
    limits: "only kinds that ran; at most 32 pairs of kind and CPU; what ran for strangers counts too",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind {
            name: "softirqs_{kind}",
            help: "softirqs of a kind (net_rx, net_tx, block, timer, sched, rcu ...) on the plan's CPUs",
        },
        CounterKind { name: "softirqs_{kind}_cpu{N}", help: "those of them that ran on CPU N" },
    ],
    open: |roots, cpus| {
        let source = Source::open(&roots.proc.join("softirqs"), KIND.needs)?;
        let (kinds, places) = (Sticky::new(KINDS_MAX), Sticky::new(PLACES_MAX));
        let mut counts = SoftirqCounts { source, cpus: cpus.clone(), kinds, places };
        counts.read(Edge::Begin)?;
        between(&KIND, counts)
    },
};

const KINDS_MAX: usize = 16;
const PLACES_MAX: usize = 32;

struct SoftirqCounts {
    source: Source,
    cpus: CpuSet,
    kinds: Sticky,
    places: Sticky,
}

/// A table whose head names CPUs and whose lines begin with a name and a colon: each line's name,
/// its numbers on some CPUs, and the words behind the numbers.
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

impl Numbers for SoftirqCounts {
    /// By kind, and by kind and CPU.
    type Reading = (Vec<(String, u64)>, Vec<(String, u64)>);

    fn read(&mut self, _: Edge) -> Result<Self::Reading, ProbeError> {
        let cpus = &self.cpus;
        self.source.number("column of a CPU of the plan", |text| {
            let (mut kinds, mut places) = (Vec::new(), Vec::new());
            for (kind, numbers, _) in by_cpu(text, cpus) {
                let name = format!("softirqs_{}", word(kind));
                for (cpu, number) in &numbers {
                    places.push((format!("{name}_cpu{cpu}"), *number));
                }
                kinds.push((name, numbers.iter().map(|(_, number)| number).sum()));
            }
            (!places.is_empty()).then_some((kinds, places))
        })
    }

    fn counters(&mut self, begin: Self::Reading, end: Self::Reading) -> Vec<Counter> {
        let mut counters = self.kinds.of(grown(&begin.0, end.0));
        counters.extend(self.places.of(grown(&begin.1, end.1)));
        counters
    }
}
