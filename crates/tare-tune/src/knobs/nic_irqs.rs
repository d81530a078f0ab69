//! Interrupts of network queues: spread over the CPUs that take interrupts, each on one.
//!
//! What Tare does otherwise than perftune.py: queues that are not in use never take part in the
//! spreading of those that are (perftune.py looks at that only where it set channels or the
//! device's hash is known to feed fewer), an interrupt of flow direction or configuration stays
//! where it is, and one that the kernel manages is left and said so instead of being written to and
//! failing.

use tare_std::cpus::CpuSet;

use crate::knobs::Context;
use crate::knobs::Knob;
use crate::machine::{Irq, Nic, Owner};
use crate::plan::queues::{Queues, counted, predict};
use crate::plan::spread::spread;
use crate::plan::{Action, Form, Group, Identity, Item, Key, Mode, Need};

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
        "a CPU that computes is not interrupted, and no interrupt CPU serves more queues than another"
    }

    fn risk(&self) -> &'static str {
        "the CPUs that take all interrupts are lost to the database and limit the packets per second"
    }

    fn source(&self) -> &'static str {
        "Documentation/core-api/irq/irq-affinity.rst; Documentation/networking/scaling.rst, RSS; \
         seastar #703, #2350, #3003"
    }

    fn in_perftune(&self) -> bool {
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
                let now = format!("{} as found", counted(nic.irqs_of_queues, "interrupt"));
                let action = Action::Leave { now, reason: "the mode is none".into() };
                items.push(context.line(self, &nic.name, "CPUs of its interrupts", action));
                continue;
            }
            let queues = predict(nic, options, context.cpus);
            let Queues { irqs, rest, .. } = &queues;
            items.extend(self.spread(context, nic, irqs, Need::Must));
            items.extend(self.spread(context, nic, rest, Need::Should));
        }
        items
    }
}

impl NicIrqs {
    fn spread(&self, context: &Context<'_>, nic: &Nic, irqs: &[&Irq], need: Need) -> Vec<Item> {
        let cpus = &context.cpus.irq;
        let slots = spread(&context.machine.topology, cpus, irqs.len());
        let items = irqs.iter().zip(slots).filter_map(|(irq, cpu)| {
            let what = format!("CPUs of interrupt {} ({})", irq.number, irq.name);
            if irq.managed == Some(true) {
                return Some(self.managed(context, nic, irq, &what));
            }
            let key = Key::file(format!("/proc/irq/{}/smp_affinity", irq.number));
            let mask = CpuSet::from_iter([cpu]).to_kernel_mask();
            let mut item = context.item(self, &nic.name, &what, key, Form::Mask, &mask)?;
            item.why = match need {
                Need::Must => format!(
                    "{} of queues, as far apart as the {} for interrupts ({cpus}) allow",
                    counted(irqs.len(), "interrupt"),
                    counted(cpus.len(), "CPU"),
                ),
                _ => {
                    "its queue is not in use; should it be, it must not come to a CPU that computes"
                        .into()
                }
            };
            if let Action::Change(change) = &mut item.action {
                change.need = need;
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
        let now = irq.affinity.as_ref().map_or("not known".into(), |cpus| cpus.to_string());
        let reason =
            "the kernel set it when the driver asked for its queues and lets nobody change \
                      it; fewer channels or the driver's own options can"
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
