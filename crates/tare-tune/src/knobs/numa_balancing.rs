//! Automatic NUMA balancing.
//!
//! What: `kernel.numa_balancing` 0 on machines with more than one NUMA node.
//! Why: it unmaps pages to see which node uses them, and moves them. Shards that are pinned and own
//! their memory gain nothing, and each unmapped page costs a fault.
//! Source: the kernel's Documentation/admin-guide/sysctl/kernel.rst (numa_balancing); tuned,
//! cpu-partitioning.
//! Risk: an engine that is neither pinned nor bound to a node (PostgreSQL, a JVM over two sockets)
//! loses the automatic placement. Value 2 (memory tiers) stays, because tiers need it.

use crate::knobs::Context;
use crate::plan::{Action, Group, Item, Key, ValueFormat};

use super::Knob;

#[derive(Debug)]
pub(super) struct NumaBalancing;

const PATH: &str = "/proc/sys/kernel/numa_balancing";

impl Knob for NumaBalancing {
    fn name(&self) -> &'static str {
        "numa_balancing"
    }

    fn group(&self) -> Group {
        Group::Memory
    }

    fn help(&self) -> &'static str {
        "no automatic moves of memory between NUMA nodes"
    }

    fn why(&self) -> &'static str {
        "pinned shards that own their memory pay for page faults and gain nothing"
    }

    fn risk(&self) -> &'static str {
        "an engine that is neither pinned nor bound to a node loses the automatic placement"
    }

    fn source(&self) -> &'static str {
        "Linux Documentation/admin-guide/sysctl/kernel.rst (numa_balancing)"
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let Some(now) = context.snapshot.read(PATH) else { return Vec::new() };
        if context.machine.topology.nodes.len() < 2 {
            return Vec::new();
        }
        let what = "kernel.numa_balancing";
        if now == "2" {
            let reason = "on this host it moves memory between fast and slow tiers".into();
            let action = Action::Leave { now: now.into(), reason };
            return vec![context.line(self, "host", what, action)];
        }
        context
            .item(self, "host", what, Key::file(PATH), ValueFormat::Text, "0")
            .into_iter()
            .collect()
    }
}
