//! The scheduler's wakeup granularity on old kernels.
//!
//! What: `sched_wakeup_granularity_ns` is set to 4 ms where it is 15 ms or more. Kernels from 6.6
//! on (EEVDF) do not have it.
//! Why: with such a high value the kernel's worker that completes direct writes does not preempt a
//! polling shard: 100 times fewer writes; newer Seastar stops polling when it finds such a value.
//! Source: seastar #2696 and #2715; tuned set 15 ms until 2.16.
//! Risk: more preemption of batch work.

use crate::knobs::Context;
use crate::plan::{Action, Group, Item, Key, ValueFormat};

use super::Knob;

#[derive(Debug)]
pub(super) struct WakeupGranularity;

/// Its location: in debugfs since 5.13, a sysctl before.
const PATHS: &[&str] = &[
    "/sys/kernel/debug/sched/wakeup_granularity_ns",
    "/proc/sys/kernel/sched_wakeup_granularity_ns",
];

/// The value from which on Seastar stops polling, in ns.
const TOO_HIGH_NS: u64 = 15_000_000;

/// The kernel's default on 8 CPUs and more (1 ms times 1 + log2 of the CPUs, 8 at most), ns.
const WANTED_NS: &str = "4000000";

impl Knob for WakeupGranularity {
    fn name(&self) -> &'static str {
        "wakeup_granularity"
    }

    fn group(&self) -> Group {
        Group::Cpu
    }

    fn help(&self) -> &'static str {
        "wakeup granularity below 15 ms, on kernels before 6.6"
    }

    fn why(&self) -> &'static str {
        "at 15 ms or more a polling shard starves the kernel's workers that complete its writes"
    }

    fn risk(&self) -> &'static str {
        "batch work is preempted more often"
    }

    fn source(&self) -> &'static str {
        "seastar #2696, #2715; Linux kernel/sched/fair.c before 6.6"
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let Some(path) = PATHS.iter().find(|path| context.snapshot.read(path).is_some()) else {
            return Vec::new();
        };
        let Some(now) = context.snapshot.read_number::<u64>(path) else { return Vec::new() };
        let what = "scheduler's wakeup granularity, ns";
        if now < TOO_HIGH_NS {
            let action = Action::AlreadySet { now: now.to_string() };
            return vec![context.line(self, "host", what, action)];
        }
        let key = Key::file(*path);
        context.item(self, "host", what, key, ValueFormat::Text, WANTED_NS).into_iter().collect()
    }
}
