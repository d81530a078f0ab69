//! Transparent huge pages.
//!
//! What: `enabled` from `always` to `madvise`, `defrag` from `always` to `madvise`.
//! Why: with `always` every engine gets them, asked for or not: Redis copies 2 MiB for one changed
//! byte after a fork, MongoDB and Cassandra saw stalls; and `defrag always` compacts memory inside
//! a page fault. With `madvise` those that gain (Seastar, JVMs with UseTransparentHugePages) ask
//! for them.
//! Source: the kernel's Documentation/admin-guide/mm/transhuge.rst; Redis, "Diagnosing latency
//! issues"; Seastar's memory allocator calls madvise.
//! Risk: engines that rely on `always` without asking (MongoDB 8 wants it so) lose them.
//! `never` stays, because an administrator chose it.

use crate::knobs::Context;
use crate::plan::{Action, Form, Group, Item, Key};

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
        "huge pages for those who ask for them"
    }

    fn why(&self) -> &'static str {
        "given unasked they cost copies after a fork and stalls in page faults; engines that gain ask"
    }

    fn risk(&self) -> &'static str {
        "an engine that gains from them without asking (MongoDB 8) loses them"
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
            let now = Form::Choice.tidy(now);
            let what = format!("transparent huge pages, {file}");
            if now == "always" {
                let key = Key::file(path);
                items.extend(context.item(self, "host", &what, key, Form::Choice, "madvise"));
                continue;
            }
            let action = match (file, now.as_str()) {
                ("enabled", "never") => Action::Leave {
                    now,
                    reason:
                        "an administrator switched them off; engines on Seastar gain with madvise"
                            .into(),
                },
                _ => Action::Right { now },
            };
            items.push(context.line(self, "host", &what, action));
        }
        items
    }
}
