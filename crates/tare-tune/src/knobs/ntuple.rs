//! Accelerated RFS: the device delivers a flow to the queue of the CPU that reads it.
//!
//! Like perftune.py: on where interrupts and compute share all CPUs; off where interrupts have
//! their own CPUs, because then no CPU that reads has a queue. With `--mode none` Tare leaves it
//! unchanged.

use crate::knobs::Context;
use crate::knobs::Knob;
use crate::plan::queues::identity;
use crate::plan::{Action, EthtoolSetting, Group, Item, Key, Mode, ValueFormat};

#[derive(Debug)]
pub(super) struct Ntuple;

impl Knob for Ntuple {
    fn name(&self) -> &'static str {
        "ntuple"
    }

    fn group(&self) -> Group {
        Group::Network
    }

    fn help(&self) -> &'static str {
        "flow filters in the device (ntuple), for accelerated RFS"
    }

    fn why(&self) -> &'static str {
        "packets arrive on the CPU that reads them, but only where that CPU has a queue"
    }

    fn risk(&self) -> &'static str {
        "the driver programs a filter for each flow; switching it off removes filters set by hand"
    }

    fn source(&self) -> &'static str {
        "Documentation/networking/scaling.rst, Accelerated RFS; ethtool(8) -K ntuple"
    }

    fn in_perftune(&self) -> bool {
        true
    }

    fn is_of_network_cards(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let options = context.options;
        let shared = context.cpus.irq == context.cpus.universe;
        let wanted = if options.arfs.unwrap_or(shared) { "on" } else { "off" };
        let mut items = Vec::new();
        for nic in context.nics() {
            let feature = |name: &str| context.snapshot.ethtool(&nic.name, "features", name);
            let Some(now) = feature("ntuple") else { continue };
            let setting = EthtoolSetting::Feature("ntuple".into());
            let key = Key::Ethtool { nic: nic.name.clone(), setting };
            let what = "ntuple filters";
            let item = context.item(self, &nic.name, what, key, ValueFormat::Text, wanted);
            let Some(mut item) = item else { continue };
            let fixed = feature("ntuple-fixed").is_some_and(|fixed| fixed == "yes");
            let untouched =
                options.mode == Mode::None && !options.like_perftune && options.arfs.is_none();
            if untouched {
                item.action = Action::Leave { now, reason: "the mode is none".into() };
            } else if fixed && now != wanted {
                let reason = "the driver cannot change it (fixed)".into();
                item.action = Action::Leave { now, reason };
            } else if let Action::Change(change) = &mut item.action {
                change.identity = identity(context.snapshot, nic);
            }
            item.why = match (options.arfs, shared) {
                (Some(requested), _) => format!("--arfs {requested}"),
                (None, true) => {
                    "all CPUs take interrupts: a flow can arrive on the CPU that reads it".into()
                }
                (None, false) => format!(
                    "only CPUs {} take interrupts: no compute CPU has a queue",
                    context.cpus.irq
                ),
            };
            items.push(item);
        }
        items
    }
}
