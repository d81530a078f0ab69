//! Interrupts of network queues: spread over the interrupt CPUs, each on one CPU.
//!
//! Differences from perftune.py:
//! - unused queues are never spread together with used ones (perftune.py checks that only where it
//!   set channels or the device's hash is known to feed fewer);
//! - interrupts of flow direction or configuration stay where they are;
//! - an interrupt that the kernel manages is reported and left alone, instead of a write that
//!   fails.

use tare_std::cpus::CpuSet;

use crate::knobs::Context;
use crate::knobs::Knob;
use crate::machine::{Irq, Nic, Owner};
use crate::plan::queues::{Queues, counted, predict};
use crate::plan::spread::spread;
use crate::plan::{Action, Group, Identity, Item, Key, Mode, Requirement, ValueFormat};

#[derive(Debug)]
pub(super) struct NicIrqs;

impl Knob for NicIrqs {
    fn name(&self) -> &'static str {
        "nic_irqs"
    }

    fn group(&self) -> Group {
        Group::Interrupts
    }

    fn help(&self) -> &'static str {
        "CPU of each interrupt of a network device's queues"
    }

    fn why(&self) -> &'static str {
        "compute CPUs are not interrupted, and no interrupt CPU serves more queues than another"
    }

    fn risk(&self) -> &'static str {
        "the interrupt CPUs are lost to the database, and they limit the packets per second"
    }

    fn source(&self) -> &'static str {
        "Documentation/core-api/irq/irq-affinity.rst; Documentation/networking/scaling.rst, RSS; \
         seastar #703, #2350, #3003"
    }

    fn in_perftune(&self) -> bool {
        true
    }

    fn is_of_network_cards(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let options = context.options;
        let mut items = Vec::new();
        for nic in context.nics() {
            if nic.irqs.is_empty() {
                continue;
            }
            if options.mode == Mode::None && !options.like_perftune {
                let now = format!("{}, unchanged", counted(nic.irqs_of_queues, "interrupt"));
                let action = Action::Leave { now, reason: "the mode is none".into() };
                items.push(context.line(self, &nic.name, "CPUs of its interrupts", action));
                continue;
            }
            let queues = predict(nic, options, context.cpus);
            let Queues { irqs, rest, .. } = &queues;
            items.extend(self.spread(context, nic, irqs, Requirement::Required));
            items.extend(self.spread(context, nic, rest, Requirement::Wanted));
        }
        items
    }
}

impl NicIrqs {
    fn spread(
        &self,
        context: &Context<'_>,
        nic: &Nic,
        irqs: &[&Irq],
        requirement: Requirement,
    ) -> Vec<Item> {
        let cpus = &context.cpus.irq;
        let slots = spread(&context.machine.topology, cpus, irqs.len());
        let items = irqs.iter().zip(slots).filter_map(|(irq, cpu)| {
            let what = format!("CPUs of interrupt {} ({})", irq.number, irq.name);
            if irq.managed == Some(true) {
                return Some(self.managed(context, nic, irq, &what));
            }
            let key = Key::file(format!("/proc/irq/{}/smp_affinity", irq.number));
            let mask = CpuSet::from_iter([cpu]).to_kernel_mask();
            let mut item = context.item(self, &nic.name, &what, key, ValueFormat::Mask, &mask)?;
            item.why = match requirement {
                Requirement::Required => format!(
                    "{} of queues, as far apart as the {} for interrupts ({cpus}) allow",
                    counted(irqs.len(), "interrupt"),
                    counted(cpus.len(), "CPU"),
                ),
                _ => {
                    "its queue is not in use; if it is used later, it must not interrupt a compute CPU"
                        .into()
                }
            };
            if let Action::Change(change) = &mut item.action {
                change.requirement = requirement;
                change.identity = Identity {
                    pci: irq.pci.clone(),
                    irq_name: Some(irq.name.clone()),
                    device: None,
                };
            }
            Some(item)
        });
        items.collect()
    }

    fn managed(&self, context: &Context<'_>, nic: &Nic, irq: &Irq, what: &str) -> Item {
        let now = irq.affinity.as_ref().map_or("unknown".into(), |cpus| cpus.to_string());
        let reason =
            "the kernel set it when the driver created its queues and refuses changes; only fewer \
             channels or the driver's own options change it"
                .into();
        let mut item = context.line(self, &nic.name, what, Action::Leave { now, reason });
        item.owner = Some(Owner {
            name: "the kernel".into(),
            evidence: format!("IRQD_AFFINITY_MANAGED in /sys/kernel/debug/irq/irqs/{}", irq.number),
            effect: "refuses every other affinity".into(),
        });
        item
    }
}
