//! The guard against a harmful plan: more queues on an interrupt CPU than it can serve.
//!
//! Moving the interrupts of many queues to few CPUs made writes of a database 6 times slower
//! (seastar #2350: 32 queues on one CPU of 32). Of three measures the first that applies decides:
//! 1. The share of time that interrupts and softirqs of all CPUs took during the snapshot, divided
//!    among the interrupt CPUs: above 0.7 of one the plan is refused, above 0.5 there is a note. It
//!    is an upper bound, because it includes softirqs that the plan may steer to other CPUs, and
//!    those of disks. Below 0.1 of an interrupt CPU the host was idle and the figure is not used.
//! 2. A policy for hosts without a measurement: at most 8 receive queues for each interrupt CPU,
//!    counted after the channels are set. A queue under load is polled 64 packets at a time and a
//!    round of softirqs ends after 300 (`netdev_budget`,
//!    Documentation/admin-guide/sysctl/net.rst), so with 8 each queue has its turn within two
//!    rounds.
//! 3. A second policy without a measurement: at most 30 computing CPUs for each interrupt CPU,
//!    twice the maximum of the automatic rule (16 cores of two threads, one core of them for
//!    interrupts). Fewer queues do not mean fewer packets: in seastar #2350 one CPU took the
//!    interrupts of the 31 that computed.
//!
//! With perftune.py's rules (`like_perftune`) the plan only notes what would be refused.

use super::cpus::{RATIO, RATIO_MIN, choose};
use super::queues::{chosen, counted, predict};
use super::{CpuSets, Group, Mode, Options};
use crate::machine::Machine;

/// Receive queues for each interrupt CPU where nothing was measured. A policy, not a law.
pub const QUEUES_PER_CPU_MAX: usize = 8;

/// Computing CPUs for each interrupt CPU where nothing was measured. A policy, not a law.
pub const COMPUTE_PER_CPU_MAX: usize = 30;

/// Share of an interrupt CPU above which a plan is refused, by what was measured.
pub const SHARE_MAX: f64 = 0.7;

/// Share of an interrupt CPU above which there is a note.
pub const SHARE_NOTED: f64 = 0.5;

/// Share of an interrupt CPU below which the host is taken to have been idle.
pub const SHARE_LOADED: f64 = 0.1;

/// Interrupts of network devices on one CPU above which there is a note.
const VECTORS_NOTED: usize = 150;

/// A plan that would overload the CPUs of interrupts.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GuardError {
    #[error(
        "{queues} receive queues ({devices}) would go to {} for interrupts ({list}), {} each; at most \
         {QUEUES_PER_CPU_MAX} are allowed where the load was not measured; {advice}",
        counted(*.cpus, "CPU"), .queues.div_ceil((*.cpus).max(1))
    )]
    Queues { queues: usize, devices: String, cpus: usize, list: String, advice: String },
    #[error(
        "{} for interrupts ({list}) would serve {compute} CPUs that compute; at most \
         {COMPUTE_PER_CPU_MAX} for each are allowed where the load was not measured; {advice}",
        counted(*.cpus, "CPU")
    )]
    Compute { compute: usize, cpus: usize, list: String, advice: String },
    #[error(
        "interrupts took {total:.2} CPUs' time while the host was read; on {} for interrupts ({list}) \
         that is {share:.2} of each, more than the {SHARE_MAX} that is allowed; {advice}",
        counted(*.cpus, "CPU")
    )]
    Load { total: f64, cpus: usize, list: String, share: f64, advice: String },
}

/// Checks a division of the CPUs against the queues that will deliver to them.
///
/// # Errors
/// When an interrupt CPU would get more than it can serve.
pub fn check(
    machine: &Machine,
    options: &Options,
    cpus: &CpuSets,
    notes: &mut Vec<String>,
) -> Result<(), GuardError> {
    for nic in &machine.nics {
        let queues = predict(nic, options, cpus);
        if queues.grown() > 0 {
            notes.push(format!(
                "{} gets {}; their interrupts and steering are planned once they exist",
                nic.name,
                counted(queues.grown(), "more queue")
            ));
        }
    }
    if options.mode == Mode::None && !options.like_perftune
        || !chosen(options, "nic_irqs", Group::Interrupts)
    {
        return Ok(());
    }
    vectors(machine, options, cpus, notes);
    match load(machine, options, cpus, notes) {
        Err(error) if options.like_perftune => {
            notes.push(format!("Tare's own plan would be refused: {error}"));
            Ok(())
        }
        Err(mut error) => {
            match &mut error {
                GuardError::Queues { advice: text, .. } => {
                    *text = advice(machine, options, cpus, ", --rx-queues with fewer queues");
                }
                GuardError::Compute { advice: text, .. }
                | GuardError::Load { advice: text, .. } => {
                    *text = advice(machine, options, cpus, "");
                }
            }
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

/// A note where one CPU may run out of interrupt vectors: x86 has 256, of which the kernel keeps
/// more than 50 (arch/x86/include/asm/irq_vectors.h). Writes are refused then (seastar #703); the
/// plan's lines say which.
fn vectors(machine: &Machine, options: &Options, cpus: &CpuSets, notes: &mut Vec<String>) {
    let irqs = machine.nics.iter().map(|nic| {
        let queues = predict(nic, options, cpus);
        queues.irqs.len() + queues.rest.len()
    });
    let each = irqs.sum::<usize>().div_ceil(cpus.irq.len().max(1));
    if each > VECTORS_NOTED {
        notes.push(format!(
            "{each} interrupts come to each of {} for interrupts ({}): a CPU has about 200 vectors, \
             so some may be refused",
            counted(cpus.irq.len(), "CPU"),
            cpus.irq
        ));
    }
}

/// Compares; the advice of an error is left empty.
fn load(
    machine: &Machine,
    options: &Options,
    cpus: &CpuSets,
    notes: &mut Vec<String>,
) -> Result<(), GuardError> {
    let counts: Vec<(&str, usize)> = machine
        .nics
        .iter()
        .map(|nic| (nic.name.as_str(), predict(nic, options, cpus).serving()))
        .filter(|(_, count)| *count > 0)
        .collect();
    let online = machine.topology.cpus();
    // Nothing to move, or nothing that would come closer together.
    if counts.is_empty() || cpus.irq.is_empty() || online.is_subset(&cpus.irq) {
        return Ok(());
    }
    let (count, list) = (cpus.irq.len(), cpus.irq.to_string());
    let total: f64 = machine.interrupt_share.values().sum();
    #[expect(clippy::cast_precision_loss, reason = "a machine has far fewer than 2^52 CPUs")]
    let share = total / count as f64;
    let advice = String::new();
    if share > SHARE_MAX {
        return Err(GuardError::Load { total, cpus: count, list, share, advice });
    }
    if share > SHARE_NOTED {
        notes.push(format!(
            "interrupts took {total:.2} CPUs' time while the host was read: on {} for interrupts ({list}) \
             that is {share:.2} of each; above {SHARE_MAX} the plan would be refused",
            counted(count, "CPU")
        ));
    }
    let queues: usize = counts.iter().map(|(_, count)| count).sum();
    if share >= SHARE_LOADED {
        return Ok(());
    }
    if queues <= QUEUES_PER_CPU_MAX * count {
        let compute = cpus.compute.difference(&cpus.irq).len();
        return match compute <= COMPUTE_PER_CPU_MAX * count {
            true => Ok(()),
            false => Err(GuardError::Compute { compute, cpus: count, list, advice }),
        };
    }
    let devices = counts.iter().map(|(name, count)| format!("{name}: {count}"));
    let devices = devices.collect::<Vec<_>>().join(", ");
    Err(GuardError::Queues { queues, devices, cpus: count, list, advice })
}

/// What can be done about a refusal; `besides` is an option that only this one has.
fn advice(machine: &Machine, options: &Options, cpus: &CpuSets, besides: &str) -> String {
    let more = format!(
        "--irq-cpus with more CPUs{besides}, or --mode mq, where all CPUs share the interrupts"
    );
    if options.irq_cpus.is_some() || options.mode != Mode::Auto {
        return format!("give {more}");
    }
    let now = options.ratio.unwrap_or(RATIO);
    let passes = |ratio: &u32| {
        let options = Options { ratio: Some(*ratio), ..options.clone() };
        choose(machine, &options).is_ok_and(|chosen| {
            chosen != *cpus && load(machine, &options, &chosen, &mut Vec::new()).is_ok()
        })
    };
    // The largest that passes takes the fewest CPUs from the database.
    match (RATIO_MIN..now).rev().find(passes) {
        Some(ratio) => format!("give --ratio {ratio} or less, {more}"),
        None => format!("no --ratio suffices; give {more}"),
    }
}
