//! Receive packet steering: which CPUs do the protocol work of a received packet.
//!
//! Differences from perftune.py, which steers every queue to all CPUs of the universe:
//! - where interrupts have their own CPUs, packets are steered to the compute CPUs: the interrupt
//!   CPUs are busy with the driver's work, and the database has no socket there (perftune.py
//!   included them for small agents that run on interrupt CPUs, seastar #818; RFS still brings a
//!   packet to its socket);
//! - where every CPU has its own queue, steering is off: the kernel's documentation calls it
//!   redundant then, because the hash of the device has already chosen the CPU;
//! - isolated and `nohz_full` CPUs are left out, because the kernel removes them from the written
//!   value (net/core, since 5.9), which would then never read back as written.

use tare_std::cpus::CpuSet;

use crate::knobs::Context;
use crate::knobs::Knob;
use crate::machine::Nic;
use crate::plan::queues::{counted, identity, predict};
use crate::plan::{Action, Group, Item, Key, ValueFormat};

#[derive(Debug)]
pub(super) struct Rps;

impl Knob for Rps {
    fn name(&self) -> &'static str {
        "rps"
    }

    fn group(&self) -> Group {
        Group::Network
    }

    fn help(&self) -> &'static str {
        "CPUs that process received packets after the interrupt (rps_cpus of each receive queue)"
    }

    fn why(&self) -> &'static str {
        "without steering, all protocol work stays on the interrupt CPUs"
    }

    fn risk(&self) -> &'static str {
        "each steered packet costs an interrupt between CPUs and a cache miss"
    }

    fn source(&self) -> &'static str {
        "Documentation/networking/scaling.rst, RPS; seastar #818"
    }

    fn in_perftune(&self) -> bool {
        true
    }

    fn is_of_network_cards(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let mut items = Vec::new();
        for nic in context.nics() {
            let queues = predict(nic, context.options, context.cpus);
            let (wanted, why) = wanted(context, nic, queues.rx.len() + queues.grown());
            let allowed = steerable(context, &wanted);
            for queue in &queues.rx {
                let path = format!("/sys/class/net/{}/queues/rx-{queue}/rps_cpus", nic.name);
                let what = format!("rps_cpus of rx-{queue}");
                let mask = allowed.to_kernel_mask();
                let key = Key::file(path);
                let item =
                    context.item(self, &nic.name, &what, key.clone(), ValueFormat::Mask, &mask);
                let Some(mut item) = item else { continue };
                if allowed.is_empty() && !wanted.is_empty() {
                    let now = ValueFormat::Mask
                        .normalize(&key.read_from(context.snapshot).unwrap_or_default());
                    let reason = format!("the kernel steers no packet to isolated CPUs ({wanted})");
                    item.action = Action::Leave { now, reason };
                } else if let Action::Change(change) = &mut item.action {
                    change.identity = identity(context.snapshot, nic);
                }
                item.why.clone_from(&why);
                items.push(item);
            }
        }
        items
    }
}

/// Returns the CPUs that packets are steered to, and the reason.
fn wanted(context: &Context<'_>, nic: &Nic, queues: usize) -> (CpuSet, String) {
    let sets = context.cpus;
    let all = sets.universe.len();
    if context.options.like_perftune {
        let why = format!("perftune.py steers to all {all} CPUs, interrupt CPUs included");
        return (sets.universe.clone(), why);
    }
    if sets.irq != sets.compute {
        let why = format!(
            "interrupt CPUs ({}) do the driver's work; the protocol work of a packet goes to the {} \
             compute CPUs",
            sets.irq,
            sets.compute.len()
        );
        return (sets.compute.clone(), why);
    }
    if queues >= all {
        let why = format!(
            "{} has a queue for each of the {all} CPUs, so steering is redundant",
            nic.name
        );
        return (CpuSet::new(), why);
    }
    let why = format!(
        "{} for {all} CPUs: with steering all of them process packets",
        counted(queues, "queue")
    );
    (sets.universe.clone(), why)
}

/// Returns the CPUs that the kernel keeps of a set that is written to `rps_cpus`.
fn steerable(context: &Context<'_>, cpus: &CpuSet) -> CpuSet {
    let topology = &context.machine.topology;
    cpus.difference(&topology.isolated).difference(&topology.nohz_full)
}
