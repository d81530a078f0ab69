//! Transmit packet steering: which CPUs send through a queue.
//!
//! perftune.py divides all CPUs of the machine among the queues. Tare divides only those of the
//! universe, because the others do not send for this database and would take queues away from those
//! that do.

use crate::knobs::Context;
use crate::knobs::Knob;
use crate::plan::queues::{counted, identity, predict};
use crate::plan::spread::spread_sets;
use crate::plan::{Action, Group, Item, Key, ValueFormat};

#[derive(Debug)]
pub(super) struct Xps;

impl Knob for Xps {
    fn name(&self) -> &'static str {
        "xps"
    }

    fn group(&self) -> Group {
        Group::Network
    }

    fn help(&self) -> &'static str {
        "CPUs that send through each transmit queue (xps_cpus)"
    }

    fn why(&self) -> &'static str {
        "CPUs that share a queue contend for its lock, so each queue gets CPUs that are close together"
    }

    fn risk(&self) -> &'static str {
        "one queue fills while another is idle if the load of the CPUs is uneven"
    }

    fn source(&self) -> &'static str {
        "Documentation/networking/scaling.rst, XPS"
    }

    fn in_perftune(&self) -> bool {
        true
    }

    fn is_of_network_cards(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let topology = &context.machine.topology;
        let cpus = match context.options.like_perftune {
            true => topology.cpus(),
            false => context.cpus.universe.clone(),
        };
        let mut items = Vec::new();
        for nic in context.nics() {
            let queues = predict(nic, context.options, context.cpus);
            let slots = spread_sets(topology, &cpus, queues.tx.len());
            for (queue, slot) in queues.tx.iter().zip(slots) {
                let path = format!("/sys/class/net/{}/queues/tx-{queue}/xps_cpus", nic.name);
                let what = format!("xps_cpus of tx-{queue}");
                let (key, mask) = (Key::file(path), slot.to_kernel_mask());
                let item = context.item(self, &nic.name, &what, key, ValueFormat::Mask, &mask);
                let Some(mut item) = item else { continue };
                if let Action::Change(change) = &mut item.action {
                    change.identity = identity(context.snapshot, nic);
                }
                item.why = format!(
                    "{} for {}: only neighbouring CPUs share a queue and its lock",
                    counted(queues.tx.len(), "transmit queue"),
                    counted(cpus.len(), "CPU")
                );
                items.push(item);
            }
        }
        items
    }
}
