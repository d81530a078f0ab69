//! Checks whether applied settings are in force: their current values and, from two snapshots of a
//! host under load, where interrupts arrived and which were moved.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

use super::identity::{SettingLocator, irq_of};
use super::status::{SettingState, TuningStatus, status};
use super::{SettingStore, TuneError};
use crate::machine::{Interrupts, interrupt_share};
use crate::plan::Key;
use crate::snapshot::{Node, Snapshot};

/// The state of every applied setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    pub tunings: Vec<TuningStatus>,
    /// The interrupts whose CPUs were set.
    pub interrupts: Vec<InterruptCheck>,
}

/// An interrupt whose CPUs were set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptCheck {
    /// Its current number.
    pub number: u32,
    pub name: String,
    /// The CPUs that were written.
    pub wanted: CpuSet,
    /// The CPUs to which the kernel delivers it; `None` when the kernel does not show them. The
    /// value may lag, because an interrupt moves only when it next arrives.
    pub effective: Option<CpuSet>,
}

impl InterruptCheck {
    /// Whether it is delivered to the CPUs that were written.
    pub fn is_right(&self) -> bool {
        self.effective.as_ref().is_none_or(|cpus| cpus.is_subset(&self.wanted))
    }
}

impl Verification {
    /// Whether every setting of every tuning has the written value.
    pub fn is_in_force(&self) -> bool {
        self.tunings.iter().all(TuningStatus::is_in_force)
    }

    /// Returns the CPUs to which interrupts were moved; empty when none was moved.
    pub fn irq_cpus(&self) -> CpuSet {
        let all = self.interrupts.iter();
        all.fold(CpuSet::new(), |cpus, interrupt| cpus.union(&interrupt.wanted))
    }
}

/// Checks every setting that was written and not restored.
///
/// # Errors
/// When a journal cannot be read.
pub fn verify(store: &dyn SettingStore, state: &Path) -> Result<Verification, TuneError> {
    let tunings = status(store, state)?;
    let mut finder = SettingLocator::default();
    let mut interrupts = Vec::new();
    for setting in tunings.iter().flat_map(|tuning| &tuning.settings) {
        if setting.state != SettingState::InForce {
            continue;
        }
        let located = finder.locate(store, &setting.key, &setting.identity);
        let Some(Key::File { path }) = located else { continue };
        let Some((number, "smp_affinity")) = irq_of(&path) else { continue };
        let Ok(wanted) = CpuSet::parse_mask(&setting.written) else { continue };
        let effective = store.read(&Key::file(format!("/proc/irq/{number}/effective_affinity")));
        let effective = effective.ok().and_then(|mask| CpuSet::parse_mask(mask.trim()).ok());
        let name = setting.identity.irq_name.clone().unwrap_or_default();
        interrupts.push(InterruptCheck { number, name, wanted, effective });
    }
    Ok(Verification { tunings, interrupts })
}

/// The interrupt load between two snapshots of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadCheck {
    /// Interrupts of devices that arrived on other CPUs than the interrupt CPUs, the most frequent
    /// first. Empty when no interrupt was moved.
    #[serde(rename = "stray")]
    pub misrouted: Vec<MisroutedInterrupt>,
    /// Share of the wall clock that each CPU spent in interrupts and softirqs, 0 to 1.
    pub cpus: Vec<CpuShare>,
    /// Interrupts whose CPUs irqbalance or another program changed meanwhile.
    pub moved: Vec<MovedInterrupt>,
}

/// Arrivals of an interrupt on a wrong CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MisroutedInterrupt {
    pub number: u32,
    pub name: String,
    pub cpu: u32,
    pub count: u64,
    /// How often this interrupt arrived on all CPUs.
    pub of: u64,
}

/// The interrupt load of a CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuShare {
    pub cpu: u32,
    pub share: f64,
    /// Whether it is one of the CPUs to which interrupts were moved.
    pub takes_interrupts: bool,
}

/// An interrupt whose CPUs were changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedInterrupt {
    pub number: u32,
    pub name: String,
    pub from: CpuSet,
    pub to: CpuSet,
}

impl LoadCheck {
    /// Compares two snapshots, `--after` apart. `irq_cpus` are the CPUs to which interrupts were
    /// moved.
    pub fn between(before: &Snapshot, after: &Snapshot, irq_cpus: &CpuSet) -> Self {
        let (then, now) = (Interrupts::read(before), Interrupts::read(after));
        let (counts_then, counts_now) = (counts(before), counts(after));
        let mut check = Self::default();
        for irq in now.irqs.values() {
            let Some(earlier) = then.irqs.get(&irq.number).filter(|old| old.name == irq.name)
            else {
                continue;
            };
            if let (Some(from), Some(to)) = (&earlier.affinity, &irq.affinity)
                && from != to
            {
                check.moved.push(MovedInterrupt {
                    number: irq.number,
                    name: irq.name.clone(),
                    from: from.clone(),
                    to: to.clone(),
                });
            }
            let none = BTreeMap::new();
            let old = counts_then.get(&irq.number).unwrap_or(&none);
            let new = counts_now.get(&irq.number).unwrap_or(&none);
            let arrived = |cpu: &u32, count: &u64| {
                count.saturating_sub(old.get(cpu).copied().unwrap_or_default())
            };
            let of: u64 = new.iter().map(|(cpu, count)| arrived(cpu, count)).sum();
            for (cpu, count) in new {
                let count = arrived(cpu, count);
                if count > 0 && !irq_cpus.is_empty() && !irq_cpus.contains(*cpu) {
                    let name = irq.name.clone();
                    check.misrouted.push(MisroutedInterrupt {
                        number: irq.number,
                        name,
                        cpu: *cpu,
                        count,
                        of,
                    });
                }
            }
        }
        check.misrouted.sort_by_key(|irq| std::cmp::Reverse(irq.count));
        let mut load = Snapshot::default();
        for (path, from) in [("/tare/load/stat-0", before), ("/tare/load/stat-1", after)] {
            load.insert(path, Node::File(from.read(path).unwrap_or_default().to_string()));
        }
        let shares = interrupt_share(&load).into_iter();
        check.cpus = shares
            .map(|(cpu, share)| CpuShare { cpu, share, takes_interrupts: irq_cpus.contains(cpu) })
            .collect();
        check
    }
}

/// Returns how often each numbered interrupt arrived on each CPU since boot.
fn counts(snapshot: &Snapshot) -> BTreeMap<u32, BTreeMap<u32, u64>> {
    let text = snapshot.read("/proc/interrupts").unwrap_or_default();
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default().split_whitespace();
    let cpus: Vec<u32> = header.filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect();
    let of_line = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let counts = cpus.iter().zip(rest.split_whitespace());
        let counts = counts.filter_map(|(cpu, count)| Some((*cpu, count.parse().ok()?)));
        Some((number.trim().parse().ok()?, counts.collect()))
    };
    lines.filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(interrupts: &str, affinity: &str, stat: &str, which: u32) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.insert("/proc/interrupts", Node::File(interrupts.into()));
        snapshot.insert("/proc/irq/24/smp_affinity", Node::File(affinity.into()));
        snapshot.insert(&format!("/tare/load/stat-{which}"), Node::File(stat.into()));
        snapshot
    }

    #[test]
    fn finds_misrouted_and_moved_interrupts() {
        let head = "       CPU0 CPU1\n";
        let line =
            |a, b| format!("{head} 24: {a} {b} PCI-MSIX-0000:00:03.0 1-edge virtio2-input.0");
        let before = host(&line(100, 5), "1", "cpu0 0 0 0 100 0 0 0 0\ncpu1 0 0 0 100 0 0 0 0", 0);
        let after =
            host(&line(150, 15), "2", "cpu0 0 0 0 150 0 10 40 0\ncpu1 0 0 0 200 0 0 0 0", 1);
        let check = LoadCheck::between(&before, &after, &CpuSet::parse_list("0").unwrap());
        let name = "virtio2-input.0".to_string();
        let misrouted =
            MisroutedInterrupt { number: 24, name: name.clone(), cpu: 1, count: 10, of: 60 };
        assert_eq!(check.misrouted, [misrouted]);
        assert_eq!((check.moved.len(), check.moved[0].name.as_str()), (1, name.as_str()));
        let shares: Vec<(u32, f64, bool)> =
            check.cpus.iter().map(|c| (c.cpu, c.share, c.takes_interrupts)).collect();
        assert_eq!(shares, [(0, 0.5, true), (1, 0.0, false)]);
    }
}
