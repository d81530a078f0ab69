//! The guard against a harmful plan: more queues on an interrupt CPU than it can serve.
//!
//! Moving the interrupts of many queues to few CPUs made a database's writes 6 times slower
//! (seastar #2350: 32 queues on one CPU of 32). The first of three checks that applies decides:
//! 1. The share of time that interrupts and softirqs of all CPUs took during the snapshot, divided
//!    among the interrupt CPUs. Above 0.7 of one CPU the plan is refused, above 0.5 there is a
//!    note. It is an upper bound, because it includes softirqs that the plan may steer to other
//!    CPUs, and those of disks. Below 0.1 of an interrupt CPU the host was idle and the figure is
//!    not used.
//! 2. A policy for hosts without a measurement: at most 8 receive queues per interrupt CPU, counted
//!    after the channels are set. A queue under load is polled 64 packets at a time and a softirq
//!    pass ends after 300 (`netdev_budget`, Documentation/admin-guide/sysctl/net.rst), so with 8
//!    queues each is polled within two passes.
//! 3. A second policy without a measurement: at most 30 compute CPUs per interrupt CPU, twice the
//!    maximum of the automatic rule (16 cores with two threads, one of these cores for interrupts).
//!    Fewer queues do not mean fewer packets: in seastar #2350 one CPU took the interrupts of the
//!    31 compute CPUs.
//!
//! With perftune.py's rules (`like_perftune`) a plan that would be refused only gets a note.

use super::cpus::{RATIO, RATIO_MIN, choose};
use super::queues::{chosen, counted, predict};
use super::{CpuSets, Group, Mode, Options};
use crate::machine::Machine;

/// The maximum of receive queues per interrupt CPU without a measurement. A policy, not a law.
pub const QUEUES_PER_CPU_MAX: usize = 8;

/// The maximum of compute CPUs per interrupt CPU without a measurement. A policy, not a law.
pub const COMPUTE_PER_CPU_MAX: usize = 30;

/// The measured share of an interrupt CPU above which a plan is refused.
pub const SHARE_MAX: f64 = 0.7;

/// The measured share of an interrupt CPU above which there is a note.
pub const SHARE_NOTED: f64 = 0.5;

/// The measured share of an interrupt CPU below which the host counts as idle.
pub const SHARE_LOADED: f64 = 0.1;

/// Interrupts of network devices on one CPU above which there is a note.
const VECTORS_NOTED: usize = 150;

/// Why a plan would overload the interrupt CPUs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GuardError {
    #[error(
        "{queues} receive queues ({devices}) would go to {} for interrupts ({list}), {} each; at most \
         {QUEUES_PER_CPU_MAX} are allowed without a measurement of the load; {advice}",
        counted(*.cpus, "CPU"), .queues.div_ceil((*.cpus).max(1))
    )]
    Queues { queues: usize, devices: String, cpus: usize, list: String, advice: String },
    #[error(
        "{} for interrupts ({list}) would serve {compute} compute CPUs; at most \
         {COMPUTE_PER_CPU_MAX} each are allowed without a measurement of the load; {advice}",
        counted(*.cpus, "CPU")
    )]
    Compute { compute: usize, cpus: usize, list: String, advice: String },
    #[error(
        "interrupts took the time of {total:.2} CPUs while the host was read; on {} for interrupts \
         ({list}) that is {share:.2} of each, above the maximum of {SHARE_MAX}; {advice}",
        counted(*.cpus, "CPU")
    )]
    Load { total: f64, cpus: usize, list: String, share: f64, advice: String },
}

/// Checks that the interrupt CPUs can serve the queues that will interrupt them.
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

/// Adds a note where a CPU may run out of interrupt vectors: x86 has 256, of which the kernel
/// reserves more than 50 (arch/x86/include/asm/irq_vectors.h). The kernel then refuses writes
/// (seastar #703).
fn vectors(machine: &Machine, options: &Options, cpus: &CpuSets, notes: &mut Vec<String>) {
    let irqs = machine.nics.iter().map(|nic| {
        let queues = predict(nic, options, cpus);
        queues.irqs.len() + queues.rest.len()
    });
    let each = irqs.sum::<usize>().div_ceil(cpus.irq.len().max(1));
    if each > VECTORS_NOTED {
        notes.push(format!(
            "{each} interrupts per CPU would go to {} for interrupts ({}): a CPU has about 200 \
             vectors, so the kernel may refuse some",
            counted(cpus.irq.len(), "CPU"),
            cpus.irq
        ));
    }
}

/// Checks the measured load, then the two policies. The advice of an error is left empty.
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
    // Nothing to move, or nothing that would become more concentrated.
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
            "interrupts took the time of {total:.2} CPUs while the host was read: on {} for interrupts \
             ({list}) that is {share:.2} of each; above {SHARE_MAX} the plan would be refused",
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

/// Returns advice for a refused plan; `besides` is an option that helps only this refusal.
fn advice(machine: &Machine, options: &Options, cpus: &CpuSets, besides: &str) -> String {
    let more = format!(
        "--irq-cpus with more CPUs{besides}, or --mode mq, which shares interrupts over all CPUs"
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
    // The largest ratio that passes takes the fewest CPUs from the database.
    match (RATIO_MIN..now).rev().find(passes) {
        Some(ratio) => format!("give --ratio {ratio} or less, {more}"),
        None => format!("no --ratio suffices; give {more}"),
    }
}
