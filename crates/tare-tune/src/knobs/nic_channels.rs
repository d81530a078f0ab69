//! Channels: one receive queue per interrupt CPU.
//!
//! Unlike perftune.py, Tare requests at most as many as the device has. perftune.py requests more,
//! is refused, and so leaves the number unchanged.

use crate::knobs::Context;
use crate::knobs::Knob;
use crate::plan::queues::{counted, identity, predict};
use crate::plan::{Action, Change, Group, Item, Key, Requirement, ValueFormat};

#[derive(Debug)]
pub(super) struct NicChannels;

impl Knob for NicChannels {
    fn name(&self) -> &'static str {
        "nic_channels"
    }

    fn group(&self) -> Group {
        Group::Network
    }

    fn help(&self) -> &'static str {
        "number of receive or combined channels of a network device"
    }

    fn why(&self) -> &'static str {
        "a second queue on an interrupt CPU adds an interrupt and smaller batches, but no capacity"
    }

    fn risk(&self) -> &'static str {
        "the link may drop packets for a moment, because the driver recreates its queues"
    }

    fn source(&self) -> &'static str {
        "ethtool(8) -L; Documentation/networking/scaling.rst, RSS; seastar #503"
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
            let Some(channels) = &queues.channels else { continue };
            let (kind, wanted) = (channels.setting.pseudo().1, channels.wanted.to_string());
            let what = format!("{kind} channels");
            let key = Key::Ethtool { nic: nic.name.clone(), setting: channels.setting.clone() };
            let action = match channels.now == channels.wanted {
                true => Action::AlreadySet { now: wanted },
                false => Action::Change(Change {
                    key,
                    form: ValueFormat::Text,
                    now: channels.now.to_string(),
                    wanted,
                    requirement: Requirement::Wanted,
                    identity: identity(context.snapshot, nic),
                    stage: 0,
                }),
            };
            let mut item = context.line(self, &nic.name, &what, action);
            let irq = &context.cpus.irq;
            item.why = match context.options.rx_queues {
                Some(requested) => format!(
                    "{} requested, the device has up to {}",
                    counted(requested as usize, "channel"),
                    channels.max
                ),
                None => format!(
                    "{} for interrupts ({irq}), and the device has up to {}: {}",
                    counted(irq.len(), "CPU"),
                    counted(channels.max as usize, "channel"),
                    self.why()
                ),
            };
            if queues.grown() > 0 {
                item.why += "; the new queues are planned once they exist";
            }
            items.push(item);
        }
        items
    }
}
