//! Spreads interrupts over CPUs as far apart in the machine as possible.
//!
//! Method: the machine is a tree of CPU sets (machine, nodes, packages, dies, caches, cores,
//! threads), restricted to the usable CPUs. Each part gets slots in proportion to its CPUs, rounded
//! up from the front, and divides them among its own parts; a part without a slot joins the part
//! before it, so that no CPU is lost. This is hwloc's `hwloc_distrib` (hwloc/helper.h), used by
//! perftune.py through the command `hwloc-distrib`; `tests/hwloc.rs` compares the two.

use tare_std::cpus::CpuSet;

use crate::machine::Topology;

/// Returns a CPU for each of `count` interrupts, within `cpus`, as `hwloc-distrib COUNT --single
/// --restrict CPUS` prints them. Empty when `cpus` has no CPU of the topology.
pub fn spread(topology: &Topology, cpus: &CpuSet, count: usize) -> Vec<u32> {
    slots(topology, cpus, count).iter().filter_map(Bits::first).collect()
}

/// Returns the same slots as sets, each with all CPUs of its part (`hwloc-distrib` without
/// `--single`).
pub fn spread_sets(topology: &Topology, cpus: &CpuSet, count: usize) -> Vec<CpuSet> {
    slots(topology, cpus, count).iter().map(|slot| slot.iter().collect()).collect()
}

fn slots(topology: &Topology, cpus: &CpuSet, count: usize) -> Vec<Bits> {
    let machine = Bits::of(cpus.intersection(&topology.cpus()).iter());
    if machine.is_empty() {
        return Vec::new();
    }
    let mut slots = Vec::with_capacity(count);
    distribute(&[Part::build(topology, machine)], count, &mut slots);
    slots
}

/// Divides `count` slots among sibling parts.
fn distribute(parts: &[Part], count: usize, slots: &mut Vec<Bits>) {
    let all: usize = parts.iter().map(|part| part.cpus.len()).sum();
    let up_to = |weight: usize| (weight * count).div_ceil(all);
    let mut before = 0;
    for part in parts {
        let share = up_to(before + part.cpus.len()) - up_to(before);
        before += part.cpus.len();
        if share > 1 && !part.parts.is_empty() {
            distribute(&part.parts, share, slots);
        } else if share == 0 {
            // The first part always gets a slot, so there is one before.
            if let Some(last) = slots.last_mut() {
                last.add(&part.cpus);
            }
        } else {
            slots.extend(std::iter::repeat_n(&part.cpus, share).cloned());
        }
    }
}

/// A part of the machine with its own parts, in the order of their lowest CPU.
struct Part {
    cpus: Bits,
    parts: Vec<Part>,
}

impl Part {
    fn build(topology: &Topology, machine: Bits) -> Self {
        let nodes = topology
            .nodes
            .iter()
            .map(|node| Bits::of(node.cores.iter().flat_map(|core| core.cpus.iter())));
        let domains = topology.domains.iter().map(|cpus| Bits::of(cpus.iter()));
        let cores = topology.cores().map(|core| Bits::of(core.cpus.iter()));
        let threads = machine.iter().map(|cpu| Bits::of([cpu]));
        let mut sets: Vec<Bits> =
            nodes.chain(domains).chain(cores).chain(threads).map(|set| set.and(&machine)).collect();
        sets.retain(|set| !set.is_empty());
        // The largest first, so that the superset of a set is already in the tree.
        sets.sort_by_key(|set| (usize::MAX - set.len(), set.first()));
        sets.dedup();
        let mut root = Self { cpus: machine, parts: Vec::new() };
        for set in sets {
            root.place(set);
        }
        root.sort();
        root
    }

    fn place(&mut self, set: Bits) {
        if set == self.cpus {
            return;
        }
        // A set that partly overlaps an existing part is left out, as in hwloc.
        match self.parts.iter_mut().find(|part| part.cpus.meets(&set)) {
            Some(part) if set.is_within(&part.cpus) => part.place(set),
            Some(_) => {}
            None => self.parts.push(Self { cpus: set, parts: Vec::new() }),
        }
    }

    fn sort(&mut self) {
        self.parts.sort_by_key(|part| part.cpus.first());
        self.parts.iter_mut().for_each(Self::sort);
    }
}

/// A set of CPUs as bits, which is fast: the planner spreads dozens of times over hundreds of CPUs.
#[derive(Clone, PartialEq, Eq)]
struct Bits(Vec<u64>);

impl Bits {
    fn of(cpus: impl IntoIterator<Item = u32>) -> Self {
        let mut words: Vec<u64> = Vec::new();
        for cpu in cpus {
            let word = (cpu / 64) as usize;
            if words.len() <= word {
                words.resize(word + 1, 0);
            }
            words[word] |= 1 << (cpu % 64);
        }
        Self(words)
    }

    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let words = self.0.iter().zip((0u32..).step_by(64));
        words.flat_map(|(word, base)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| base + bit)
        })
    }

    fn first(&self) -> Option<u32> {
        let words = self.0.iter().zip((0u32..).step_by(64)).find(|(word, _)| **word != 0);
        words.map(|(word, base)| base + word.trailing_zeros())
    }

    fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn and(&self, other: &Self) -> Self {
        let mut words: Vec<u64> = self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect();
        // Equal sets have equal words.
        while words.last() == Some(&0) {
            words.pop();
        }
        Self(words)
    }

    fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    fn is_within(&self, other: &Self) -> bool {
        self.and(other) == *self
    }
}
