//! Transparent huge pages.
//!
//! What: `enabled` from `always` to `madvise`, `defrag` from `always` to `madvise`.
//! Why: with `always` every engine gets them, requested or not: Redis copies 2 MiB for one changed
//! byte after a fork, MongoDB and Cassandra had stalls; and `defrag always` compacts memory inside
//! a page fault. With `madvise` only engines that gain (Seastar, JVMs with UseTransparentHugePages)
//! request them.
//! Source: the kernel's Documentation/admin-guide/mm/transhuge.rst; Redis, "Diagnosing latency
//! issues"; Seastar's memory allocator calls madvise.
//! Risk: engines that rely on `always` and do not request them (as MongoDB 8 recommends) lose them.
//! `never` stays, because an administrator chose it.

use crate::knobs::Context;
use crate::plan::{Action, Group, Item, Key, ValueFormat};

use super::Knob;

#[derive(Debug)]
pub(super) struct TransparentHugepages;

const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";

impl Knob for TransparentHugepages {
    fn name(&self) -> &'static str {
        "transparent_hugepages"
    }

    fn group(&self) -> Group {
        Group::Memory
    }

    fn help(&self) -> &'static str {
        "huge pages only for processes that request them"
    }

    fn why(&self) -> &'static str {
        "unrequested huge pages cost copies after a fork and stalls in page faults; engines that gain \
         request them"
    }

    fn risk(&self) -> &'static str {
        "an engine that gains from them but does not request them (MongoDB 8) loses them"
    }

    fn source(&self) -> &'static str {
        "Linux Documentation/admin-guide/mm/transhuge.rst; Redis documentation, \"Diagnosing latency \
         issues\""
    }

    fn takes_effect_at_start(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let mut items = Vec::new();
        for file in ["enabled", "defrag"] {
            let path = format!("{FOLDER}/{file}");
            let Some(now) = context.snapshot.read(&path) else { continue };
            let now = ValueFormat::Choice.normalize(now);
            let what = format!("transparent huge pages, {file}");
            if now == "always" {
                let key = Key::file(path);
                items.extend(context.item(
                    self,
                    "host",
                    &what,
                    key,
                    ValueFormat::Choice,
                    "madvise",
                ));
                continue;
            }
            let action = match (file, now.as_str()) {
                ("enabled", "never") => Action::Leave {
                    now,
                    reason:
                        "an administrator switched them off; engines on Seastar gain with madvise"
                            .into(),
                },
                _ => Action::AlreadySet { now },
            };
            items.push(context.line(self, "host", &what, action));
        }
        items
    }
}
