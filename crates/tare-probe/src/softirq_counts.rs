//! `softirq_counts`: softirqs by kind on the CPUs of the plan and the interrupt CPUs. NET_RX is the
//! receive half of the network stack, and each hop of a packet through a veth pair adds one.
//! Source: `/proc/softirqs`, proc_softirqs(5).

use tare_lab::probe::Counter;

use crate::counter_names::CounterNames;
use crate::cpu_table::{Counts, CpuTable};
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
            help: "softirqs of a kind (net_rx, net_tx, block, timer, sched, rcu ...) on the plan's CPUs and the interrupt CPUs",
        },
        CounterKind { name: "softirqs_{kind}_cpu{N}", help: "softirqs of a kind on CPU N" },
    ],
    open: |roots, cpus| {
        let source = Source::open(&roots.proc.join("softirqs"), KIND.needs)?;
        let (kinds, places) = (CounterNames::new(KINDS_MAX), CounterNames::new(PLACES_MAX));
        let table = CpuTable::new(&cpus.all());
        let mut counts = SoftirqCounts { source, table, kinds, places };
        counts.read(Edge::Begin)?;
        edge_probe(&KIND, counts)
    },
};

const KINDS_MAX: usize = 16;
const PLACES_MAX: usize = 32;

struct SoftirqCounts {
    source: Source,
    table: CpuTable,
    kinds: CounterNames,
    places: CounterNames,
}

impl EdgeReader for SoftirqCounts {
    type Values = Counts;

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
        let table = &mut self.table;
        self.source.number("column of a CPU of the plan", |text| table.read(text))
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let grown = end.since(&begin);
        let (mut kinds, mut places) = (Vec::new(), Vec::new());
        for (index, source) in self.table.sources().iter().enumerate() {
            let name = format!("softirqs_{}", name_part(&source.label));
            let mut sum = 0;
            for (at, cpu) in self.table.cpus().iter().enumerate() {
                let number = grown.of(index, at);
                sum += number;
                if number > 0 {
                    places.push((format!("{name}_cpu{cpu}"), number));
                }
            }
            kinds.push((name, sum));
        }
        let mut counters = self.kinds.select(kinds);
        counters.extend(self.places.select_changed(places));
        counters
    }
}
