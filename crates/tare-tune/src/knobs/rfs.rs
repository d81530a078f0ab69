//! Receive flow steering: a packet goes to the CPU where its socket was last used.
//!
//! Like perftune.py, except for the written number: the kernel rounds the entries of a queue up to
//! a power of two (`rps_flow_cnt` of 10922 reads back as 16384), so Tare writes the rounded number.

use crate::knobs::Context;
use crate::knobs::Knob;
use crate::plan::queues::{counted, identity, predict};
use crate::plan::{Action, Group, Item, Key, ValueFormat};

/// Entries of the flow table over all queues, as the kernel's documentation suggests for a server.
const FLOWS: u32 = 32_768;

#[derive(Debug)]
pub(super) struct Rfs;

impl Knob for Rfs {
    fn name(&self) -> &'static str {
        "rfs"
    }

    fn group(&self) -> Group {
        Group::Network
    }

    fn help(&self) -> &'static str {
        "delivery of packets to the CPU of their socket (rps_sock_flow_entries, rps_flow_cnt)"
    }

    fn why(&self) -> &'static str {
        "a packet is processed on the CPU of its shard, which then has its data in the cache"
    }

    fn risk(&self) -> &'static str {
        "a lookup for each packet, and some memory for the tables"
    }

    fn source(&self) -> &'static str {
        "Documentation/networking/scaling.rst, RFS: 32768 entries, divided by the queues"
    }

    fn in_perftune(&self) -> bool {
        true
    }

    fn is_of_network_cards(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        if context.nics().is_empty() {
            return Vec::new();
        }
        let key = Key::file("/proc/sys/net/core/rps_sock_flow_entries");
        let what = "net.core.rps_sock_flow_entries";
        let total = FLOWS.to_string();
        let mut items: Vec<Item> =
            context.item(self, "host", what, key, ValueFormat::Text, &total).into_iter().collect();
        for nic in context.nics() {
            let queues = predict(nic, context.options, context.cpus);
            let count = u32::try_from(queues.rx.len() + queues.grown()).unwrap_or(FLOWS);
            let each = (FLOWS / count.max(1)).max(1).next_power_of_two();
            for queue in &queues.rx {
                let path = format!("/sys/class/net/{}/queues/rx-{queue}/rps_flow_cnt", nic.name);
                let what = format!("rps_flow_cnt of rx-{queue}");
                let key = Key::file(path);
                let item =
                    context.item(self, &nic.name, &what, key, ValueFormat::Text, &each.to_string());
                let Some(mut item) = item else { continue };
                if let Action::Change(change) = &mut item.action {
                    change.identity = identity(context.snapshot, nic);
                }
                item.why = format!(
                    "{FLOWS} flows over {}; {}",
                    counted(count as usize, "receive queue"),
                    self.why()
                );
                items.push(item);
            }
        }
        items
    }
}
