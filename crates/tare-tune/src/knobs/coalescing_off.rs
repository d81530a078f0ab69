//! Coalescing off: the device interrupts at once for each packet. An alternative to `coalescing`
//! with a delay and to `coalescing_adaptive`.

use crate::knobs::Context;
use crate::knobs::Knob;
use crate::plan::queues::identity;
use crate::plan::{Action, EthtoolSetting, Group, Item, Key, ValueFormat};

#[derive(Debug)]
pub(super) struct CoalescingOff;

impl Knob for CoalescingOff {
    fn name(&self) -> &'static str {
        "coalescing_off"
    }

    fn group(&self) -> Group {
        Group::Network
    }

    fn help(&self) -> &'static str {
        "no delay of the receive interrupt (adaptive-rx off, rx-usecs 0)"
    }

    fn why(&self) -> &'static str {
        "a request that waits for no other packet is answered sooner"
    }

    fn risk(&self) -> &'static str {
        "one interrupt per packet: an interrupt CPU may not keep up, and throughput falls"
    }

    fn source(&self) -> &'static str {
        "ethtool(8) -C; Documentation/networking/ethtool-netlink.rst, COALESCE_SET"
    }

    fn is_of_network_cards(&self) -> bool {
        true
    }

    fn on_request(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let mut items = Vec::new();
        for nic in context.nics() {
            // First, because a driver that adapts the delay overwrites it.
            for (setting, what, wanted) in [
                (EthtoolSetting::CoalesceAdaptiveRx, "adaptive receive interrupt delay", "off"),
                (EthtoolSetting::CoalesceRxUs, "receive interrupt delay, µs", "0"),
            ] {
                let key = Key::Ethtool { nic: nic.name.clone(), setting };
                let item = context.item(self, &nic.name, what, key, ValueFormat::Text, wanted);
                let Some(mut item) = item else { continue };
                if let Action::Change(change) = &mut item.action {
                    change.identity = identity(context.snapshot, nic);
                }
                items.push(item);
            }
        }
        items
    }
}
