//! Channels: as many receive queues as there are CPUs that take interrupts.
//!
//! What Tare does otherwise than perftune.py: it asks for at most as many as the device has, where
//! perftune.py asks for more, is refused and leaves the number as it is.

use crate::knobs::Context;
use crate::knobs::Knob;
use crate::plan::queues::{counted, identity, predict};
use crate::plan::{Action, Change, Form, Group, Item, Key, Need};

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
        "a second queue on one interrupt CPU brings another interrupt and smaller batches, and no CPU"
    }

    fn risk(&self) -> &'static str {
        "the driver makes its queues anew: the link may drop packets for a moment"
    }

    fn source(&self) -> &'static str {
        "ethtool(8) -L; Documentation/networking/scaling.rst, RSS; seastar #503"
    }

    fn in_perftune(&self) -> bool {
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
                true => Action::Right { now: wanted },
                false => Action::Change(Change {
                    key,
                    form: Form::Text,
                    now: channels.now.to_string(),
                    wanted,
                    need: Need::Should,
                    identity: identity(context.snapshot, nic),
                    stage: 0,
                }),
            };
            let mut item = context.line(self, &nic.name, &what, action);
            let irq = &context.cpus.irq;
            item.why = match context.options.rx_queues {
                Some(asked) => format!(
                    "{} asked for, the device has up to {}",
                    counted(asked as usize, "channel"),
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
