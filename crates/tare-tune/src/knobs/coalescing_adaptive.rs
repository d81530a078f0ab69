//! Adaptive coalescing: the driver chooses the delay of the receive interrupt by the traffic. An
//! alternative to `coalescing` with a delay and to `coalescing_off`.

use crate::knobs::Context;
use crate::knobs::Knob;
use crate::machine::Nic;
use crate::machine::nics::names::adaptive_rx_usecs;
use crate::plan::queues::identity;
use crate::plan::{Action, EthtoolSetting, Group, Item, Key, ValueFormat};

#[derive(Debug)]
pub(super) struct CoalescingAdaptive;

impl Knob for CoalescingAdaptive {
    fn name(&self) -> &'static str {
        "coalescing_adaptive"
    }

    fn group(&self) -> Group {
        Group::Network
    }

    fn help(&self) -> &'static str {
        "delay of the receive interrupt that the driver adapts to the traffic (adaptive-rx on; for e1000, e1000e, igb, \
         igc and ixgbe a value of rx-usecs)"
    }

    fn why(&self) -> &'static str {
        "few packets are handled at once, and many with fewer interrupts"
    }

    fn risk(&self) -> &'static str {
        "the latency depends on the traffic of the whole device, and changes with it"
    }

    fn source(&self) -> &'static str {
        "ethtool(8) -C; Documentation/networking/net_dim.rst"
    }

    fn is_of_network_cards(&self) -> bool {
        true
    }

    fn on_request(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let item = |nic: &Nic| {
            let value = |name: &str| context.snapshot.ethtool(&nic.name, "coalesce", name);
            let values = match value("adaptive-rx") {
                Some(_) => [].as_slice(),
                None => adaptive_rx_usecs(&nic.driver),
            };
            let (setting, what, wanted) = match (values.first(), value("rx-usecs")) {
                (Some(usual), Some(now)) => {
                    // Any of these values is adaptive already.
                    let kept = values.iter().find(|value| **value == now).unwrap_or(usual);
                    let what = "receive interrupt delay, µs, or a kind of adaptive delay";
                    (EthtoolSetting::CoalesceRxUs, what, *kept)
                }
                _ => {
                    let what = "adaptive receive interrupt delay";
                    (EthtoolSetting::CoalesceAdaptiveRx, what, "on")
                }
            };
            let key = Key::Ethtool { nic: nic.name.clone(), setting };
            let mut item = context.item(self, &nic.name, what, key, ValueFormat::Text, wanted)?;
            if let Action::Change(change) = &mut item.action {
                change.identity = identity(context.snapshot, nic);
            }
            Some(item)
        };
        context.nics().iter().filter_map(item).collect()
    }
}
