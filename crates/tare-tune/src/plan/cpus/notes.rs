//! Notes about a division of the CPUs.

use tare_std::cpus::CpuSet;

use super::{CpuSets, Mode, RATIO, is_even, shape};
use crate::machine::Topology;
use crate::plan::Options;

pub(super) fn notes(topology: &Topology, options: &Options, cpus: &CpuSets) -> Vec<String> {
    let mut notes = Vec::new();
    if topology.flat {
        let text = "this kernel reports no CPU topology: every CPU counts as a core, and interrupts \
                    are spread by CPU number";
        notes.push(text.to_string());
    }
    let mut note = |set: &CpuSet, text: &dyn Fn(&CpuSet) -> String| {
        if !set.is_empty() {
            notes.push(text(set));
        }
    };
    note(&topology.offline, &|set| {
        format!("CPUs {set} are offline and not used; plan again when they are online")
    });
    isolation(topology, options, cpus, &mut note);
    hybrid(topology, options, cpus, &mut note);
    let part = topology.restrict(&cpus.universe);
    if !is_even(&part) {
        let nodes = part.nodes.iter().map(|node| {
            format!("node {} has {}", node.id, shape(node.cores.len(), node.cpus().len()))
        });
        let nodes: Vec<String> = nodes.collect();
        notes.push(format!("the NUMA nodes are uneven: {}", nodes.join(", ")));
    }
    let without = part.nodes.iter().filter(|node| node.cpus().is_disjoint(&cpus.irq));
    let without: Vec<String> = without.map(|node| node.id.to_string()).collect();
    // On a small machine the rule gives one interrupt core for all nodes, which needs no note.
    let cores = part.cores().count();
    let is_news = options.irq_cpus.is_some() || cores > options.ratio.unwrap_or(RATIO) as usize;
    if !without.is_empty() && is_news {
        notes.push(format!(
            "NUMA node {} takes no interrupts: its traffic crosses to another node",
            without.join(", ")
        ));
    }
    notes
}

type Note<'a> = &'a mut dyn FnMut(&CpuSet, &dyn Fn(&CpuSet) -> String);

fn isolation(topology: &Topology, options: &Options, cpus: &CpuSets, note: Note<'_>) {
    let left_out = |set: &CpuSet| set.difference(&cpus.universe);
    let used = |set: &CpuSet| set.intersection(&cpus.universe);
    note(&left_out(&topology.isolated), &|set| {
        format!(
            "CPUs {set} are isolated (isolcpus=) and left out: the kernel does not balance load there, \
             so threads that are not pinned one by one pile up on one CPU; name them in --cpus for a \
             database that pins its threads"
        )
    });
    note(&used(&topology.isolated), &|set| {
        format!(
            "CPUs {set} are isolated (isolcpus=): the kernel does not balance load there; right for a \
             database that pins one thread to each CPU, wrong for any other"
        )
    });
    note(&left_out(&topology.partitioned), &|set| {
        format!(
            "CPUs {set} belong to an isolated cpuset partition and are left out: only tasks of its \
             cgroup run there, without load balancing"
        )
    });
    note(&used(&topology.partitioned), &|set| {
        format!(
            "CPUs {set} belong to an isolated cpuset partition: only tasks of its cgroup run there, \
             without load balancing"
        )
    });
    let tickless = topology.nohz_full.intersection(&cpus.irq);
    let chosen = options.irq_cpus.is_none() && !options.like_perftune && options.mode == Mode::Auto;
    note(&used(&topology.nohz_full), &|set| match (tickless.is_empty(), chosen) {
        (true, true) => format!(
            "CPUs {set} run without a scheduler tick (nohz_full=) while one task runs there, so they \
             get no interrupts"
        ),
        (true, false) => format!(
            "CPUs {set} run without a scheduler tick (nohz_full=) while one task runs there"
        ),
        (false, _) => format!(
            "CPUs {tickless} take interrupts although they run without a scheduler tick (nohz_full=), \
             which defeats its purpose"
        ),
    });
}

fn hybrid(topology: &Topology, options: &Options, cpus: &CpuSets, note: Note<'_>) {
    let efficient = topology.efficiency.intersection(&cpus.universe);
    let fast = cpus.universe.difference(&efficient);
    if fast.is_empty() {
        return;
    }
    let by_hand = options.irq_cpus.is_some() || options.like_perftune;
    note(&efficient, &|set| {
        let interrupts = match by_hand || cpus.irq == cpus.universe {
            true => String::new(),
            false => format!(
                "; interrupts go to them only on request (--irq-cpus {})",
                set.iter().take(cpus.irq.len()).collect::<CpuSet>()
            ),
        };
        format!(
            "CPUs {set} are efficiency cores: a shard there is slower than the others; leave them out \
             with --cpus {fast}{interrupts}"
        )
    });
}
