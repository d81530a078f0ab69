//! Coalescing: how long the device waits for more packets before it interrupts. Reported; changed
//! only on request, because the right value trades latency for CPU time and only a measurement can
//! find it.

use crate::knobs::Context;
use crate::knobs::Knob;
use crate::machine::nics::names::adaptive_rx_usecs;
use crate::plan::queues::identity;
use crate::plan::{Action, EthtoolSetting, Group, Item, Key, ValueFormat};

#[derive(Debug)]
pub(super) struct Coalescing;

impl Knob for Coalescing {
    fn name(&self) -> &'static str {
        "coalescing"
    }

    fn group(&self) -> Group {
        Group::Network
    }

    fn help(&self) -> &'static str {
        "delay of the receive interrupt in µs; changed only on request"
    }

    fn why(&self) -> &'static str {
        "a longer delay saves interrupts but adds latency to every request"
    }

    fn risk(&self) -> &'static str {
        "an interrupt CPU may not keep up with 0 µs, which means one interrupt per packet"
    }

    fn source(&self) -> &'static str {
        "ethtool(8) -C; Documentation/networking/ethtool-netlink.rst, COALESCE_SET"
    }

    fn is_of_network_cards(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let mut items = Vec::new();
        for nic in context.nics() {
            let value = |name: &str| context.snapshot.ethtool(&nic.name, "coalesce", name);
            let Some(now) = value("rx-usecs") else { continue };
            let adaptive = value("adaptive-rx").is_some_and(|adaptive| adaptive == "on");
            let what = "receive interrupt delay, µs";
            let by_value = value("adaptive-rx").is_none()
                && adaptive_rx_usecs(&nic.driver).contains(&now.as_str());
            let shown = if adaptive || by_value { format!("{now}, adaptive") } else { now };
            let Some(requested) = context.options.coalesce_us else {
                let reason = "changed only on request, with --coalesce".into();
                let action = Action::Leave { now: shown, reason };
                items.push(context.line(self, &nic.name, what, action));
                continue;
            };
            let wanted = requested.to_string();
            if adaptive {
                let how = format!(
                    "the driver adapts the delay and would overwrite it; run ethtool -C {} \
                     adaptive-rx off rx-usecs {requested}",
                    nic.name
                );
                let action = Action::Advise { now: shown, wanted, how };
                items.push(context.line(self, &nic.name, what, action));
                continue;
            }
            let setting = EthtoolSetting::CoalesceRxUs;
            let key = Key::Ethtool { nic: nic.name.clone(), setting };
            let item = context.item(self, &nic.name, what, key, ValueFormat::Text, &wanted);
            let Some(mut item) = item else { continue };
            if let Action::Change(change) = &mut item.action {
                change.identity = identity(context.snapshot, nic);
            }
            item.why = format!("--coalesce {requested}; {}", self.why());
            items.push(item);
        }
        items
    }
}
