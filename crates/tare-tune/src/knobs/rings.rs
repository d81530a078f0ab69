//! Rings: how many packets a queue of the device holds. Reported; changed only on request.

use crate::knobs::Context;
use crate::knobs::Knob;
use crate::plan::queues::identity;
use crate::plan::{Action, EthtoolSetting, Group, Item, Key, ValueFormat};

#[derive(Debug)]
pub(super) struct Rings;

impl Knob for Rings {
    fn name(&self) -> &'static str {
        "rings"
    }

    fn group(&self) -> Group {
        Group::Network
    }

    fn help(&self) -> &'static str {
        "entries of the receive and transmit rings; changed only on request"
    }

    fn why(&self) -> &'static str {
        "a ring that is too short drops bursts, and one that is too long does not fit the cache"
    }

    fn risk(&self) -> &'static str {
        "the link may drop packets for a moment, because the driver recreates its rings"
    }

    fn source(&self) -> &'static str {
        "ethtool(8) -G; Documentation/networking/ethtool-netlink.rst, RINGS_SET"
    }

    fn is_of_network_cards(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let mut items = Vec::new();
        for nic in context.nics() {
            let value = |name: &str| {
                let value = context.snapshot.ethtool(&nic.name, "rings", name)?;
                value.parse::<u32>().ok()
            };
            let kinds = [("rx", EthtoolSetting::RingRx), ("tx", EthtoolSetting::RingTx)];
            for (kind, setting) in kinds {
                let Some(now) = value(kind).filter(|now| *now > 0) else { continue };
                let max = value(&format!("{kind}-max")).unwrap_or(now).max(now);
                let what = format!("{kind} ring");
                let Some(requested) = context.options.ring else {
                    let now = format!("{now} of {max}");
                    let reason = "changed only on request, with --ring".into();
                    let action = Action::Leave { now, reason };
                    items.push(context.line(self, &nic.name, &what, action));
                    continue;
                };
                let wanted = requested.clamp(1, max).to_string();
                let key = Key::Ethtool { nic: nic.name.clone(), setting };
                let item = context.item(self, &nic.name, &what, key, ValueFormat::Text, &wanted);
                let Some(mut item) = item else { continue };
                if let Action::Change(change) = &mut item.action {
                    change.identity = identity(context.snapshot, nic);
                    // Like channels: the driver may recreate interrupts with the rings.
                    change.stage = 0;
                }
                item.why = format!("{requested} entries requested, the device has up to {max}");
                items.push(item);
            }
        }
        items
    }
}
