//! Swapping.
//!
//! What: `vm.swappiness` at most 1 where there is swap; a line for each active swap area.
//! Why: a shard that waits for a page from swap answers no request. With 1 the kernel swaps only to
//! avoid running out of memory; with 0 it does not even then until it is too late.
//! Source: the kernel's Documentation/admin-guide/sysctl/vm.rst (swappiness); ScyllaDB's,
//! Cassandra's and MongoDB's production notes (1); tuned sets 10.
//! Risk: page cache is dropped earlier, which slows engines that rely on it (PostgreSQL) on a host
//! that is short of memory. Swap areas are not switched off: that can fail halfway, or kill
//! processes.

use crate::knobs::Context;
use crate::plan::{Action, Group, Item, Key, ValueFormat};

use super::Knob;

#[derive(Debug)]
pub(super) struct Swap;

const PATH: &str = "/proc/sys/vm/swappiness";

impl Knob for Swap {
    fn name(&self) -> &'static str {
        "swap"
    }

    fn group(&self) -> Group {
        Group::Memory
    }

    fn help(&self) -> &'static str {
        "swap only to avoid running out of memory"
    }

    fn why(&self) -> &'static str {
        "a shard that waits for a page from swap answers no request"
    }

    fn risk(&self) -> &'static str {
        "page cache is dropped earlier when memory is short"
    }

    fn source(&self) -> &'static str {
        "Linux Documentation/admin-guide/sysctl/vm.rst (swappiness); MongoDB production notes"
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let areas = areas(context.snapshot.read("/proc/swaps").unwrap_or_default());
        let mut items = Vec::new();
        let what = "vm.swappiness";
        match context.snapshot.read_number::<u64>(PATH) {
            Some(now) if areas.is_empty() => {
                let reason = "no swap is active".into();
                let action = Action::Leave { now: now.to_string(), reason };
                items.push(context.line(self, "host", what, action));
            }
            Some(now) if now <= 1 => {
                let action = Action::AlreadySet { now: now.to_string() };
                items.push(context.line(self, "host", what, action));
            }
            Some(_) => {
                let key = Key::file(PATH);
                items.extend(context.item(self, "host", what, key, ValueFormat::Text, "1"));
            }
            None => {}
        }
        for SwapArea { name, size_kib, used_kib } in areas {
            let action = Action::Advise {
                now: format!("active, {} MiB, {} MiB of it used", size_kib / 1024, used_kib / 1024),
                wanted: "none for the database".into(),
                how: format!(
                    "lock the database's memory, or set memory.swap.max=0 on its cgroup; or \
                     swapoff {name} when {} MiB of memory are free",
                    used_kib / 1024
                ),
            };
            items.push(context.line(self, &name, "swap area", action));
        }
        items
    }
}

struct SwapArea {
    name: String,
    size_kib: u64,
    used_kib: u64,
}

/// Parses the lines of /proc/swaps below its heading: name, type, size and use in KiB, priority
/// (proc_swaps(5)).
fn areas(text: &str) -> Vec<SwapArea> {
    let area = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_string();
        let size_kib = words.nth(1)?.parse().ok()?;
        Some(SwapArea { name, size_kib, used_kib: words.next()?.parse().ok()? })
    };
    text.lines().skip(1).filter_map(area).collect()
}
